"""The test class that every dialect must pass, to inherit from.

The three lines of a package that brings a dialect, in a module of its tests:

    class TestMine(DialectConformance):
        dialects = [my_package.dialect]

(with `from bridge.testing import DialectConformance`). Needs the extra `testing`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.contract import Dialect, Feature, Frame, FrameLike, Support, WireRequest, WireResponse
from bridge.contract.registry import check_complete, resolve
from bridge.errors import ErrorCode, Failure, RequestError, Unsupported
from bridge.model import (
    Event,
    FinishReason,
    Heartbeat,
    Inline,
    Message,
    MessageStatus,
    PartEnded,
    PartKind,
    Request,
    RunFailed,
    RunFinished,
    RunStarted,
    Text,
    ToolMode,
    Url,
    UsageReported,
    fold,
    verify,
)
from bridge.testing.outline import Outline, outline, project
from bridge.testing.strategies import answers, json_values, requests, splits
from bridge.testing.wires import (
    altered,
    answers_whole,
    comparable,
    context,
    decode,
    encode,
    has_inner_result,
    overlaps,
    with_numbered_calls,
    without_separators,
)
from bridge.testing.witnesses import (
    ANSWER_DETAILS,
    ANSWERS,
    LINK,
    REQUEST_DETAILS,
    REQUESTS,
    answer_of,
    answer_told,
    supported_answers,
    supported_requests,
)
from bridge.toolkit import Encoder
from bridge.translation import AnswerDecoder, framing

# The duration of an example reveals nothing about the dialect, and subclasses share the tests of one class.
quick = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.differing_executors],
)

_JSON = "application/json"
_OF_BACKENDS = frozenset(
    {
        "test_no_bytes_raise",
        "test_a_request_is_sent_or_refused_with_its_place",
        "test_an_error_of_the_backend_tells_no_key",
        "test_an_error_of_the_backend_says_when_to_try_again",
        "test_a_refused_part_is_named_by_its_own_place",
    }
)
"""The tests that also apply to dialects that are called and not served."""
_OF_CLIENTS = frozenset({"test_each_count_of_an_answer_is_written_or_named"})
"""The tests that also apply to dialects that are served and not called."""
_COUNT = 40_711
"""A number of tokens that is not found in an answer by chance."""


class DialectConformance:
    """Each test runs for each of `dialects`, given by name or as objects.

    The tests check that encoded data are decoded again as the capabilities declare, that the same events give the same
    bytes in any batches, that every prefix of a stream ends well, that no bytes raise an exception, that requests are
    sent or refused with a position, that every failure can be a response and the end of a stream, that no key of a
    backend gets into one, that clients do not run a call that was cut off, and that a complete answer equals the
    stream. For a dialect that is called and not served, they check requests to backends and their
    answers.
    """

    dialects: ClassVar[Sequence[str | Dialect]] = ()
    names_losses: ClassVar[bool] = False
    """Whether `encode_request` must also record what it does not send (`X-Bridge-Lost`)."""
    streams_always: ClassVar[Collection[str]] = ()
    """Names of dialects whose protocol answers each request by a stream, whatever the request says."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run a test once for each dialect. Raises `TypeError` if there is none."""
        if not self.dialects:
            raise TypeError(f"{type(self).__name__}.dialects: expected at least one dialect, got none")
        if "dialect" in metafunc.fixturenames:
            found = [resolve(d) for d in self.dialects]
            for each in found:
                check_complete(each)
            # Answers of a dialect that is only called cannot be written here, nor its requests read; answers of one
            # that is only served cannot be read.
            name = metafunc.function.__name__
            found = [d for d in found if (d.called or name in _OF_CLIENTS) and (d.served or name in _OF_BACKENDS)]
            metafunc.parametrize("dialect", found, ids=[d.name for d in found])

    @quick
    @given(data=st.data())
    def test_what_is_written_is_read_as_the_card_says(self, dialect: Dialect, data: st.DataObject) -> None:
        events = data.draw(answers(interrupts=False, raw=False, choices=False))
        again = verify(decode(dialect, [encode(dialect, events)]))
        wanted = project(with_numbered_calls(fold(events), dialect), dialect.capabilities)
        read = outline(with_numbered_calls(fold(again), dialect))
        if has_inner_result(events) and dialect.capabilities.separator:
            wanted, read = (without_separators(out, dialect.capabilities.separator) for out in (wanted, read))
        by_kind = overlaps(events)
        assert comparable(read, by_kind) == comparable(wanted, by_kind)

    def test_its_own_wire_carries_all_that_is_exact(self, dialect: Dialect) -> None:
        exact = {f for f in ANSWERS if dialect.capabilities.answer(f) is Support.EXACT}
        assert exact - supported_answers(dialect) == set()
        exact = {f for f in REQUESTS if dialect.capabilities.request(f) is Support.EXACT}
        assert exact - supported_requests(dialect) == set()

    @quick
    @given(data=st.data())
    def test_the_same_events_give_the_same_bytes_however_they_are_cut(
        self, dialect: Dialect, data: st.DataObject
    ) -> None:
        events = data.draw(answers())
        whole = encode(dialect, events)
        assert encode(dialect, events) == whole
        encoder = dialect.encoder(context(dialect.front_options()))
        frames = [f for event in events for f in encoder.encode([event])]
        assert framing.of(dialect.framing).join(frames) == whole
        assert decode(dialect, data.draw(splits(whole))) == decode(dialect, [whole])

    @quick
    @given(data=st.data())
    def test_an_answer_in_one_piece_says_what_the_stream_says(self, dialect: Dialect, data: st.DataObject) -> None:
        if not answers_whole(dialect):
            return
        events = data.draw(answers(interrupts=False, raw=False, choices=False, data=False, sources=(Url, Inline)))
        whole, answer = dialect.assemble(events, context(dialect.front_options())), fold(events)
        if answer.failure is not None:
            assert whole.status == dialect.encode_error(answer.failure).status >= 400
            return
        if project(answer, dialect.capabilities).error is not None:
            assert whole.status >= 400, "an end that the card refuses is sent as an error"
            return
        assert whole.status == 200
        reading = AnswerDecoder(dialect, context(dialect.back_options()), whole.headers)
        came = fold(verify(reading.receive(whole.body) + reading.close()))
        assert came.failure is None
        streamed = fold(decode(dialect, [encode(dialect, events)]))
        assert (came.text, came.reason) == (streamed.text, streamed.reason)
        assert [(c.call_id, c.name) for c in came.calls] == [(c.call_id, c.name) for c in streamed.calls]
        # Only a stream has an order, and some wires have numbers in a whole answer that their streams leave out.
        came_out, streamed_out = outline(came), outline(streamed)
        for kind in ("media", "reasoning", "tool_result"):
            assert _sorted(came_out, kind) == _sorted(streamed_out, kind)
        assert came_out.usage == streamed_out.usage

    @quick
    @given(data=st.data())
    def test_every_prefix_ends_well(self, dialect: Dialect, data: st.DataObject) -> None:
        """A stream that is cut or breaks anywhere is one well-formed run; and never a success that it was not."""
        wire = encode(dialect, data.draw(answers(interrupts=False)))
        position = data.draw(st.integers(0, len(wire)))
        broken = verify(decode(dialect, [wire[:position]], Failure(ErrorCode.TRUNCATED_STREAM, "cut")))
        clean = verify(decode(dialect, [wire[:position]]))
        assert isinstance(clean[-1], (RunFinished, RunFailed))
        whole = fold(decode(dialect, [wire]))
        if not isinstance(broken[-1], RunFailed):
            # Nothing but late facts may be missing from what counts as finished.
            assert fold(broken).reason == whole.reason
            assert outline(fold(broken)).items == outline(whole).items

    @quick
    @given(data=st.data())
    def test_no_bytes_raise(self, dialect: Dialect, data: st.DataObject) -> None:
        payloads = data.draw(st.lists(st.one_of(json_values().map(orjson.dumps), st.binary(max_size=40)), max_size=6))
        verify(decode(dialect, [framing.of(dialect.framing).join(payloads)]))
        verify(decode(dialect, payloads))
        body = data.draw(st.one_of(json_values().map(orjson.dumps), st.binary(max_size=40)))
        wire = WireResponse(200, {"content-type": data.draw(st.sampled_from([_JSON, dialect.content_type]))}, body)
        verify(dialect.parse_response(wire, context(dialect.back_options())))
        assert dialect.decode_error(WireResponse(500, wire.headers, body)).message
        with contextlib.suppress(RequestError, Unsupported):
            dialect.decode_request(WireRequest(headers=wire.headers, body=body), context(dialect.front_options()))

    def test_a_value_of_any_type_raises_nothing(self, dialect: Dialect) -> None:
        """Each value on the wire is of any type, or not there: in a frame, in a whole answer, in a request."""
        in_frames, in_wholes, in_requests = set[Any](), set[Any](), set[Any]()
        for witness in [*ANSWERS.values(), *(detail for _, detail in ANSWER_DETAILS.values())]:
            events = answer_told(witness)
            frames = _frames(dialect, dialect.encoder(context(dialect.front_options())).encode(events))
            for index, frame in enumerate(frames):
                payload = frame.data if isinstance(frame, Frame) else frame
                for odd in altered(payload, in_frames):
                    changed = [*frames[:index], _with(frame, odd), *frames[index + 1 :]]
                    decoder = dialect.decoder(context(dialect.back_options()))
                    verify([*decoder.feed(changed), *decoder.close()])
            if answers_whole(dialect) and (whole := _assembled(dialect, events)) is not None:
                for odd in altered(whole.body, in_wholes):
                    wire = replace(whole, body=odd)
                    verify(dialect.parse_response(wire, context(dialect.back_options())))
        for asked in REQUESTS.values():
            with contextlib.suppress(Unsupported):
                sent = dialect.encode_request(asked.request, context(dialect.back_options(), asked.request))
                for odd in altered(sent.body, in_requests):
                    read = WireRequest(headers=sent.headers, body=odd)
                    with contextlib.suppress(RequestError):
                        dialect.decode_request(read, context(dialect.front_options()))

    @quick
    @given(data=st.data())
    def test_a_request_is_sent_or_refused_with_its_place(self, dialect: Dialect, data: st.DataObject) -> None:
        request = data.draw(requests())
        wire: WireRequest | None = None
        refused: Failure | None = None
        try:
            wire = dialect.encode_request(request, context(dialect.back_options(), request))
        except Unsupported as error:
            refused = error.failure
        assert (wire is None) == (refused is not None)
        if wire is None:
            assert refused is not None
            assert refused.param
            return
        if dialect.content_type == _JSON:
            assert isinstance(orjson.loads(wire.body), dict)
        if not dialect.served:
            return
        read = dialect.decode_request(
            WireRequest(headers=wire.headers, body=wire.body), context(dialect.front_options())
        )
        if dialect.capabilities.request(Feature.TOOLS) is not Support.EXACT:
            return
        offered = [t.name for t in request.tools or []]
        # Where the wire cannot express "call none of them", the tools are left out.
        unwanted = request.tool_choice is not None and request.tool_choice.mode is ToolMode.NONE
        assert [t.name for t in read.tools or []] in ([offered, []] if unwanted else [offered])

    @pytest.mark.parametrize("code", list(ErrorCode))
    def test_every_failure_has_a_response_and_a_place_in_the_stream(self, dialect: Dialect, code: ErrorCode) -> None:
        failure = Failure(code, "it went wrong", headers={"retry-after": "7"})
        response = dialect.encode_error(failure)
        assert 400 <= response.status <= 599
        assert b"it went wrong" in response.body
        assert response.headers["retry-after"] == "7"
        assert dialect.decode_error(response).message
        builder = context(None).builder()
        builder.flow(0, PartKind.TEXT, "half")
        builder.fail(failure)
        again = fold(decode(dialect, [encode(dialect, builder.take())]))
        assert again.failure is not None
        assert again.text == "half"
        # A backend's message about keys is not passed on.
        hidden = again.failure.code is ErrorCode.BACKEND_AUTH
        assert hidden or "it went wrong" in again.failure.message

    @pytest.mark.parametrize("status", [400, 401, 403, 429, 500, 503])
    def test_an_error_of_the_backend_tells_no_key(self, dialect: Dialect, status: int) -> None:
        message = "It failed for sk-secret0123456789abcdef."
        body = orjson.dumps({"error": {"message": message}, "message": message, "detail": message})
        failure = dialect.decode_error(WireResponse(status, {"content-type": "application/json"}, body))
        assert failure.message
        assert "sk-secret" not in failure.message

    @pytest.mark.parametrize("status", [429, 503])
    def test_an_error_of_the_backend_says_when_to_try_again(self, dialect: Dialect, status: int) -> None:
        headers = {"content-type": _JSON, "retry-after": "7"}
        body = orjson.dumps({"error": {"message": "later"}, "message": "later", "detail": "later"})
        for answer in (b"", body):
            assert dialect.decode_error(WireResponse(status, headers, answer)).headers.get("retry-after") == "7"

    def test_a_failure_in_a_stream_tells_no_key(self, dialect: Dialect) -> None:
        # An encoder may mask a key as well: it is put into what was written.
        builder = context(None).builder()
        builder.flow(0, PartKind.TEXT, "half")
        builder.fail(Failure(ErrorCode.BACKEND_ERROR, "It failed for no-secret0123456789abcdef."))
        wire = encode(dialect, builder.take())
        assert b"no-secret" in wire, "the failure does not carry its message"
        answer = fold(decode(dialect, [wire.replace(b"no-secret", b"sk-secret")]))
        assert answer.failure is not None
        assert "sk-secret" not in answer.failure.message

    def test_a_field_of_its_own_is_read_and_sent_or_neither(self, dialect: Dialect) -> None:
        if dialect.content_type != _JSON:
            return
        wire = dialect.example_request("Hello")
        wire.body = orjson.dumps({**orjson.loads(wire.body), "own": "kept"})
        read = dialect.decode_request(wire, context(dialect.front_options()))
        request = Request([Message("user", [Text("Hello")])], model="m", extras={dialect.name: {"own": "kept"}})
        sent = orjson.loads(dialect.encode_request(request, context(dialect.back_options(), request)).body)
        # A protocol without unknown fields does neither.
        assert (read.extra(dialect.name).get("own") == "kept") == (sent.get("own") == "kept")

    @pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.CONTENT_FILTER])
    def test_a_call_that_was_cut_off_is_written_as_incomplete(self, dialect: Dialect, reason: FinishReason) -> None:
        builder = context(None).builder()
        builder.open_part("call", 0, PartKind.TOOL_CALL, call_id="call-1", name="look")
        builder.delta("call", '{"city": "Par')
        builder.end_part("call")
        builder.finish(reason)
        builder.end()
        events = builder.take()
        known = [replace(e, status=MessageStatus.INCOMPLETE) if isinstance(e, PartEnded) else e for e in events]
        assert encode(dialect, events) == encode(dialect, known), "see bridge.toolkit.cut_calls.CutCalls"

    def test_a_refused_part_is_named_by_its_own_place(self, dialect: Dialect) -> None:
        earlier = [Message("user", [Text("one")]), Message("assistant", [Text("two")])]
        for feature, witness in REQUESTS.items():
            if dialect.capabilities.request(feature) is not Support.REFUSE:
                continue
            later = replace(witness.request, messages=[*earlier, *witness.request.messages])
            places = []
            for request in (witness.request, later):
                try:
                    dialect.encode_request(request, context(dialect.back_options(), request))
                except Unsupported as refused:
                    places.append(refused.failure.param)
                else:
                    pytest.fail(f"{feature} is refused on the card, but encode_request sent it")
            first, second = places
            assert first
            assert feature is not Feature.RESUME or first == witness.request.resume[0].place
            assert not first.startswith("messages[") or first != second, f"{feature}: always {first}"

    def test_each_detail_of_a_request_is_sent_or_named(self, dialect: Dialect) -> None:
        for name, (feature, witness) in REQUEST_DETAILS.items():
            sending = context(dialect.back_options(), witness.request)
            exact = dialect.capabilities.request(feature) is Support.EXACT
            wire, refused = None, None
            try:
                wire = dialect.encode_request(witness.request, sending)
            except Unsupported as error:
                refused = error
            if wire is None:
                in_result = exact and "in a tool result" in name
                assert not in_result, f"{name} was refused, though {feature} is exact on the card: {refused}"
                continue
            body = WireRequest(headers=wire.headers, body=wire.body)
            read = dialect.decode_request(body, context(dialect.front_options()))
            arrived = witness.read(read) == witness.read(witness.request)
            detail = sending.lost.details.get(feature)
            assert not (exact and arrived) or detail is None, f"{name} was sent, but is reported as lost: {detail!r}"
            if "by URL" in name and detail is not None and "sent as text" in detail:
                assert LINK in wire.body, f"{name} was not sent, but is reported as {detail!r}"
            # The whole history may be lost, and with it what was in it.
            named = detail is not None or ("result" in name and str(Feature.TOOL_HISTORY) in sending.lost.names)
            assert arrived or named or not self.names_losses, f"{name} was lost in silence"

    @pytest.mark.parametrize("count", ["total", "cached", "reasoning", "written"])
    def test_each_count_of_an_answer_is_written_or_named(self, dialect: Dialect, count: str) -> None:
        builder = context(None).builder()
        builder.flow(0, PartKind.TEXT, "done")
        # A total that is not the sum of the others: backends count what tools have put into the prompt.
        report = UsageReported(20_000, 10_000) if count == "total" else UsageReported(100_000, 90_000, 190_000)
        setattr(report, count, _COUNT)
        builder.usage(report)
        builder.finish(FinishReason.STOP)
        builder.end()
        events = builder.take()
        for in_one_piece in (False, True) if answers_whole(dialect) else (False,):
            arrived, lost = _carries(dialect, events, count, in_one_piece)
            where = f"{count} tokens of an answer {'in one piece' if in_one_piece else 'that is streamed'}"
            assert not (arrived and lost), f"{where} were written, but are reported as lost"
            assert arrived or lost or not self.names_losses, f"{where} were lost in silence"
            encoder = type(dialect.encoder(context(dialect.front_options())))
            if arrived or not issubclass(encoder, Encoder):
                continue
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(encoder, "keeps", {*encoder.keeps, Feature.USAGE, Feature.USAGE_DETAILS})
                kept = _carries(dialect, events, count, in_one_piece)[0]
            assert not kept, (
                f"{where} have a place on the wire, but the card drops them before the encoder: declare "
                "Feature.USAGE_DETAILS as exact, or name it in `keeps` of the encoder, which then records what it drops"
            )

    @pytest.mark.parametrize("name", list(ANSWER_DETAILS))
    def test_each_detail_of_an_answer_is_written_or_named(self, dialect: Dialect, name: str) -> None:
        features, witness = ANSWER_DETAILS[name]
        events = answer_told(witness)
        writing = context(dialect.front_options())
        frames = dialect.encoder(writing).encode(events)
        came = fold(decode(dialect, [framing.of(dialect.framing).join(frames)]))
        arrived = witness.read(came) == witness.read(fold(events))
        lost = {str(feature) for feature in features} & set(writing.lost.names)
        assert not (arrived and lost), f"{name} was written, but is reported as lost"
        assert arrived or lost or not self.names_losses, f"{name} was lost in silence"

    def test_the_total_of_an_answer_is_that_of_the_backend(self, dialect: Dialect) -> None:
        came = fold(decode(dialect, [encode(dialect, answer_of(Feature.USAGE))])).usage
        assert came is None or came.total in (None, 46)

    def test_the_name_of_a_conversation_is_written_and_read(self, dialect: Dialect) -> None:
        """Clients of backends that name a conversation know it by `RunStarted.thread_id`."""
        if not (dialect.capabilities.names_threads and dialect.called_over_http):
            return
        events = answer_of(Feature.TEXT)
        reading = replace(context(dialect.back_options()), thread_id=None)
        frames = dialect.encoder(context(dialect.front_options())).encode(events)
        assert _thread(dialect.decoder(reading).feed(_frames(dialect, frames))) == _thread(events)
        if answers_whole(dialect):
            whole = dialect.assemble(events, context(dialect.front_options()))
            answer = AnswerDecoder(dialect, replace(reading, thread_id=None), whole.headers)
            assert _thread(answer.receive(whole.body) + answer.close()) == _thread(events)

    def test_the_model_of_the_backend_is_sent_or_named(self, dialect: Dialect) -> None:
        """The model that is configured for a backend counts more than the client's."""
        sent = {}
        for model in ("model-of-this-backend", "model-of-another"):
            request = Request([Message("user", [Text("hello")])], model="model-of-the-client")
            sending = replace(context(dialect.back_options(), request), model=model)
            wire = dialect.encode_request(request, sending)
            sent[model] = repr((wire.path, wire.query, wire.params, wire.headers, wire.body))
            if str(Feature.MODEL) in sending.lost.names:
                return
        assert len(set(sent.values())) == 1 or all(model in wire for model, wire in sent.items()), (
            "context.model is not what was sent"
        )
        if dialect.requires_model or "model" in repr(dialect.example_request("hello").body):
            assert len(set(sent.values())) == 2, "context.model is not sent, and not reported as lost"

    def test_a_call_that_was_cut_off_gets_no_end_of_a_complete_one(self, dialect: Dialect) -> None:
        """Clients of an encoder that `holds_cut_calls` run a call as soon as it is complete."""

        def frames(arguments: str) -> tuple[list[bytes], list[bytes]]:
            """Return the frames of a call that a limit ended, and those of its end by themselves."""
            builder = context(None).builder()
            builder.open_part("call", 0, PartKind.TOOL_CALL, call_id="call-1", name="look")
            builder.delta("call", arguments)
            builder.end_part("call")
            builder.finish(FinishReason.LENGTH)
            builder.end()
            encoder, join = dialect.encoder(context(dialect.front_options())), framing.of(dialect.framing).join
            every, ends = list[bytes](), list[bytes]()
            for event in builder.take():
                written = [join([frame]) for frame in encoder.encode([event])]
                every += written
                ends += written if isinstance(event, PartEnded) else []
            return every, ends

        if getattr(dialect.encoder(context(dialect.front_options())), "holds_cut_calls", False):
            ends, cut = frames("{}")[1], frames('{"city": "Par')[0]
            assert not [end for end in ends if end in cut], "a call that was cut off is written as a complete one"

    def test_a_heartbeat_says_nothing(self, dialect: Dialect) -> None:
        builder = context(None).builder()
        builder.emit(Heartbeat())
        builder.flow(0, PartKind.TEXT, "x")
        builder.emit(Heartbeat())
        builder.finish(FinishReason.STOP)
        builder.end()
        answer = fold(decode(dialect, [encode(dialect, builder.take())]))
        assert (answer.text, answer.reason) == ("x", FinishReason.STOP)

    def test_its_example_is_a_request_it_reads(self, dialect: Dialect) -> None:
        wire = dialect.example_request("Hello")
        request = dialect.decode_request(wire, context(dialect.front_options()))
        assert request.stream
        assert "Hello" in str(request.messages[-1].parts)
        assert request.history is dialect.capabilities.history, "Request.history is not that of the card"

    def test_a_whole_answer_is_asked_for_where_it_is_wanted(self, dialect: Dialect) -> None:
        wanted = dialect.example_request("Hello", stream=False)
        if dialect.name in self.streams_always or not answers_whole(dialect):
            return
        if wanted == dialect.example_request("Hello"):
            return  # requests of the protocol do not say what is wanted
        # An option of the route may have to allow it.
        switches = [
            {},
            *({n: not f.default} for n, f in dialect.front_options.model_fields.items() if f.annotation is bool),
        ]
        read = [dialect.decode_request(wanted, context(dialect.front_options(**each))) for each in switches]
        assert not all(each.stream for each in read), "a request for a whole answer is read as one for a stream"
        sent = list[str]()
        for stream in (True, False) if not read[0].stream else ():
            asked = Request([Message("user", [Text("Hello")])], model="m", stream=stream)
            sent.append(repr(dialect.encode_request(asked, context(dialect.back_options(), asked))))
        assert not sent or sent[0] != sent[1], "a whole answer is asked for as a stream is"

    def test_a_whole_answer_has_each_feature_of_the_stream(self, dialect: Dialect) -> None:
        if not answers_whole(dialect):
            return
        for feature, witness in ANSWERS.items():
            events = answer_of(feature)
            if feature is Feature.PART_BORDERS or (whole := _assembled(dialect, events)) is None:
                continue
            reading = AnswerDecoder(dialect, context(dialect.back_options()), whole.headers)
            came = fold(reading.receive(whole.body) + reading.close())
            streamed = fold(decode(dialect, [encode(dialect, events)]))
            assert witness.read(came) == witness.read(streamed), f"{feature} differs in an answer in one piece"

    @pytest.mark.parametrize(
        "said", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
    )
    def test_a_body_that_says_it_is_something_else_is_refused(self, dialect: Dialect, said: str) -> None:
        if not dialect.checks_content_type:
            return
        wire = dialect.example_request("Hello")
        others = {name: value for name, value in wire.headers.items() if name != "content-type"}
        wire.headers = {**others, "content-type": said}
        with pytest.raises(RequestError, match=f"content-type: expected {re.escape(dialect.content_type)}") as caught:
            dialect.decode_request(wire, context(dialect.front_options()))
        assert 400 <= dialect.encode_error(caught.value.failure).status < 500
        for fine in ({}, {"content-type": f"{dialect.content_type}; charset=utf-8"}):
            wire.headers = {**others, **fine}
            dialect.decode_request(wire, context(dialect.front_options()))


def _carries(dialect: Dialect, events: list[Event], count: str, in_one_piece: bool) -> tuple[bool, bool]:
    """Return whether a client gets this count of the answer, and whether usage or its details are reported as lost."""
    writing = context(dialect.front_options())
    reading = context(dialect.back_options()) if dialect.called else None
    usage: UsageReported | None = None
    if in_one_piece:
        whole = dialect.assemble(events, writing)
        wire = whole.body
        if reading is not None:
            decoder = AnswerDecoder(dialect, reading, whole.headers)
            usage = fold(decoder.receive(wire) + decoder.close()).usage
    else:
        wire = framing.of(dialect.framing).join(dialect.encoder(writing).encode(events))
        usage = fold(decode(dialect, [wire])).usage if reading is not None else None
    arrived = getattr(usage, count, None) == _COUNT if reading is not None else str(_COUNT).encode() in wire
    return arrived, not {str(Feature.USAGE), str(Feature.USAGE_DETAILS)}.isdisjoint(writing.lost.names)


def _frames(dialect: Dialect, frames: Sequence[FrameLike]) -> list[FrameLike]:
    """Return frames as a decoder gets them, off the wire."""
    wire, splitter = framing.of(dialect.framing), framing.of(dialect.framing).Splitter()
    return [*splitter.feed(wire.join(frames)), *splitter.close()]


def _with(frame: FrameLike, payload: bytes) -> FrameLike:
    return replace(frame, data=payload) if isinstance(frame, Frame) else payload


def _assembled(dialect: Dialect, events: Sequence[Event]) -> WireResponse | None:
    """Return a whole answer; None if the card refuses the end of it."""
    whole = dialect.assemble(events, context(dialect.front_options()))
    return whole if whole.status == 200 else None


def _sorted(out: Outline, kind: str) -> list[Any]:
    """Return what an outline has of a kind: the whole text of one with pieces, or its items in a fixed order."""
    items = [item[1:] for item in out.items if item[0] == kind]
    return ["".join(item[0] for item in items)] if kind == "reasoning" else sorted(items, key=repr)


def _thread(events: Sequence[Event]) -> str | None:
    """Return the name of the conversation of a run."""
    first = events[0] if events else None
    return first.thread_id if isinstance(first, RunStarted) else None
