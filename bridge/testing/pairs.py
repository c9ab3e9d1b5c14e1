"""A dialect beside the others, both ways: a test class to inherit.

    class TestMine(PairConformance):
        dialects = [my_package.dialect]

The tests check that a pair carries exactly what both dialects declare. Needs the extra `testing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.contract import Dialect, Feature, Support, WireRequest, WireResponse, registry
from bridge.contract.registry import resolve
from bridge.errors import BridgeError, Unsupported
from bridge.model import Event, FinishReason, Message, PartKind, Request, Text, fold, result_text, unfold, verify
from bridge.model.jsontext import loads
from bridge.testing.conformance import quick
from bridge.testing.outline import project
from bridge.testing.strategies import answers, splits, texts, tools
from bridge.testing.wires import answers_whole, context, decode, encode, with_numbered_calls
from bridge.testing.witnesses import (
    ANSWERS,
    REQUEST_PARTS,
    REQUESTS,
    answer_of,
    supported_answers,
    supported_parts,
    supported_requests,
)
from bridge.translation import AnswerDecoder, framing
from bridge.translation.library import Translator

# What two wires of any age have in common; the rest is between a dialect and its own card.
_COMMON: dict[str, Any] = {
    "redacted": False, "interrupts": False, "raw": False, "choices": False, "results": False, "media": (),
    "data": False,
}  # fmt: skip

# There are as many pairs as dialects squared: few examples of each find as much as many of a few, and
# `DialectConformance` tries more of each dialect by itself.
few = settings(quick, max_examples=5)
brief = settings(quick, max_examples=3)


def visible_to(events: list[Event], dialect: Dialect) -> dict[str, Any]:
    """Return what an answer shows to a client of this dialect, regardless of how it is divided into parts."""
    out = project(with_numbered_calls(fold(events), dialect), dialect.capabilities)
    return {
        **{kind: "".join(i[1] for i in out.items if i[0] == kind) for kind in ("text", "refusal", "reasoning")},
        "calls": [i[1:4] for i in out.items if i[0] == "tool_call"],
        "usage": out.usage,
        "failed": out.error is not None,
    }


def stream_of(dialect: Dialect, *words: str, finish: FinishReason | None = FinishReason.STOP) -> bytes:
    """Return a stream with these texts; with `finish` None, one whose backend stopped without an end."""
    return b"".join(frames_of(dialect, *words, finish=finish))


def frames_of(dialect: Dialect, *words: str, finish: FinishReason | None = FinishReason.STOP) -> list[bytes]:
    """The same, each frame by itself."""
    builder = context(None).builder()
    for word in words:
        builder.flow(0, PartKind.TEXT, word)
    if finish is not None:
        builder.finish(finish)
    builder.end()
    encoder = dialect.encoder(context(dialect.front_options()))
    return [framing.of(dialect.framing).join([f]) for f in encoder.encode(builder.take())]


def _calls_of_failure_fit(came: dict[str, Any], expected: dict[str, Any], translator: Translator) -> bool:
    """Take the calls out of both and check them. Return whether some are missing because they were cut off.

    If a run fails, calls whose owner is not known yet are dropped, so that they are not run. A wire whose calls are
    whole also drops those that were cut off, and names them.
    """
    calls, meant = came.pop("calls"), expected.pop("calls")
    if calls in ([], meant):
        return False
    assert str(Feature.TOOL_CALL) in translator.lost
    left = iter(meant)
    assert all(call in left for call in calls), f"{calls} are not among {meant}, or in another order"
    return True


def _value(arguments: str) -> Any:
    try:
        return loads(arguments)
    except ValueError:
        return arguments


class PairConformance:
    """Each test runs for each of `dialects` with each of `others` (by default all that are installed), both ways.

    A pair is a dialect that is served over one that is called.
    """

    dialects: ClassVar[Sequence[str | Dialect]] = ()
    others: ClassVar[Sequence[str | Dialect] | None] = None
    names_losses: ClassVar[bool] = False
    """Whether each translation must also name the losses that the cards declare (`X-Bridge-Lost`)."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Runs a test once for each pair. Raises `TypeError` when there is no dialect."""
        pairs = self._pairs()
        if {"back", "front"} <= set(metafunc.fixturenames):
            # What a backend answers is written by its own dialect: one that is only called has its recordings.
            pairs = {names: (a, b) for names, (a, b) in pairs.items() if a.served and b.called}
            metafunc.parametrize(("back", "front"), pairs.values(), ids=[f"{b}-{f}" for b, f in pairs])

    def _pairs(self) -> dict[tuple[str, str], tuple[Dialect, Dialect]]:
        """Backend and front of each pair, by their names."""
        own = [resolve(d) for d in self.dialects]
        if not own:
            raise TypeError(f"{type(self).__name__}.dialects: expected at least one dialect, got none")
        others = [resolve(d) for d in (registry.names() if self.others is None else self.others)]
        every = {(a.name, b.name): (a, b) for d in own for o in [*own, *others] for a, b in ((d, o), (o, d))}
        return {names: (a, b) for names, (a, b) in every.items() if a.called and b.served}

    @few
    @given(data=st.data())
    def test_a_stream_arrives_as_the_cards_say(self, back: Dialect, front: Dialect, data: st.DataObject) -> None:
        wire = encode(back, data.draw(answers(**_COMMON)))
        # The backend's dialect limits what can be sent, the frontend's what its clients receive of that.
        meant = decode(back, [wire])
        translator = Translator(back, front, run_id="run1", created_at=1_700_000_000.0)
        out = b"".join(translator.feed(piece) for piece in data.draw(splits(wire))) + translator.close()
        again = Translator(back, front, run_id="run1", created_at=1_700_000_000.0)
        assert again.feed(wire) + again.close() == out, "where reads end changes what is written"
        came, expected = visible_to(verify(decode(front, [out])), front), visible_to(unfold(fold(meant)), front)
        cut = expected["failed"] and _calls_of_failure_fit(came, expected, translator)
        assert came == expected
        lost = {
            str(f)
            for f in Feature
            if f in front.capabilities.answers and front.capabilities.answer(f) is not Support.EXACT
        }
        has_lost_call = cut or front.capabilities.drops_invalid_calls
        counts = {"usage", "usage_details", "choices"}
        assert set(translator.lost) <= lost | counts | ({"tool_call"} if has_lost_call else set())

    @brief
    @given(data=st.data())
    def test_there_and_back_leaves_what_both_cards_leave(
        self, back: Dialect, front: Dialect, data: st.DataObject
    ) -> None:
        wire = encode(back, data.draw(answers(**_COMMON)))
        there = Translator(back, front, run_id="run1", created_at=1_700_000_000.0)
        middle = there.feed(wire) + there.close()
        home = Translator(front, back, run_id="run1", created_at=1_700_000_000.0)
        again = visible_to(verify(decode(back, [home.feed(middle) + home.close()])), back)
        expected = visible_to(unfold(fold(decode(front, [middle]))), back)
        if expected["failed"]:
            _calls_of_failure_fit(again, expected, home)
        assert again == expected

    @brief
    @given(data=st.data())
    def test_to_translate_and_fold_is_to_fold_and_translate(
        self, back: Dialect, front: Dialect, data: st.DataObject
    ) -> None:
        """Check that an answer in one piece has what a client of a stream can put together."""
        wire = encode(back, data.draw(answers(**_COMMON)))
        if fold(decode(back, [wire])).failure is not None or not answers_whole(front):
            return
        streaming = Translator(back, front, run_id="run1", created_at=1_700_000_000.0)
        pieces = visible_to(decode(front, [streaming.feed(wire) + streaming.close()]), front)
        at_once = Translator(back, front, run_id="run1", created_at=1_700_000_000.0)
        try:
            body = at_once.response(wire)
        except BridgeError:
            assert pieces["failed"]
            return
        whole = WireResponse(200, {"content-type": "application/json"}, body)
        at_end = visible_to(decode_whole(front, whole), front)
        for side in (at_end, pieces):
            side["calls"] = [(i, name, _value(arguments)) for i, name, arguments in side["calls"]]
        if pieces["usage"] is None and at_end["usage"] == (0, 0):
            # Some wires demand numbers in a whole answer, where a stream may leave them out.
            at_end["usage"] = None
        assert at_end == pieces
        assert set(at_once.lost) - {"usage"} == set(streaming.lost) - {"usage"}

    @brief
    @given(data=st.data())
    def test_two_runs_that_take_turns_do_not_touch_each_other(
        self, back: Dialect, front: Dialect, data: st.DataObject
    ) -> None:
        wires = [encode(back, data.draw(answers(**_COMMON))) for _ in range(2)]
        requests = [_request_to(front, data.draw(texts(empty=False, awkward=False))) for _ in wires]

        def new(n: int) -> Translator:
            return Translator(back, front, model="m", run_id=f"run{n}", created_at=1_700_000_000.0)

        alone, sent, lost = [], [], []
        for n, wire in enumerate(wires):
            one = new(n)
            sent.append(one.request(requests[n].body, client=front, headers=requests[n].headers))
            alone.append(one.feed(wire) + one.close())
            lost.append(set(one.lost))
        both, cuts = [new(n) for n in range(2)], [data.draw(splits(wire)) for wire in wires]
        assert [t.request(a.body, client=front, headers=a.headers) for t, a in zip(both, requests, strict=True)] == sent
        outs = [b"", b""]
        for turn in zip_longest(*cuts, fillvalue=b""):
            for n, piece in enumerate(turn):
                outs[n] += both[n].feed(piece)
        assert [out + t.close() for out, t in zip(outs, both, strict=True)] == alone
        assert [set(t.lost) for t in both] == lost

    def test_a_request_there_and_back_says_the_same(self, back: Dialect, front: Dialect) -> None:
        both = {f for f in REQUESTS if front.capabilities.request(f) is back.capabilities.request(f) is Support.EXACT}
        for feature in sorted(both):
            request, read = REQUESTS[feature].request, REQUESTS[feature].read
            wire = front.encode_request(request, context(front.back_options(), request))
            there = Translator(back, front, model="m", run_id="run1", created_at=1_700_000_000.0)
            body = there.request(wire.body, client=front, headers=wire.headers)
            assert there.sent is not None
            home = Translator(front, back, model="m", run_id="run1", created_at=1_700_000_000.0)
            again = home.request(body, client=back, headers=there.sent.headers)
            assert home.sent is not None
            last = WireRequest(headers=home.sent.headers, body=again)
            came = front.decode_request(last, context(front.front_options()))
            assert read(with_numbered_calls(came, back, front)) == read(with_numbered_calls(request, back, front)), (
                feature
            )

    def test_each_feature_of_an_answer_fares_as_the_card_says(self, back: Dialect, front: Dialect) -> None:
        for feature in sorted(supported_answers(back)):
            read = ANSWERS[feature].read
            wire = encode(back, answer_of(feature))
            translator = Translator(back, front, run_id="run1", created_at=1_700_000_000.0)
            answer = fold(decode(front, [translator.feed(wire) + translator.close()]))
            meant = fold(decode(back, [wire]))
            arrived = read(with_numbered_calls(answer, front)) == read(with_numbered_calls(meant, front))
            match front.capabilities.answer(feature):
                case Support.EXACT:
                    assert arrived, f"{feature} is exact on the card and did not arrive"
                case Support.REFUSE:
                    assert answer.failure is not None, f"{feature} is refused on the card and was sent as a success"
                case Support.TEXT:
                    assert arrived or answer.text, f"{feature} is text on the card, and there is none"
                case _:
                    named = not self.names_losses or arrived or str(feature) in translator.lost
                    assert named, f"{feature} was lost in silence"

    def test_each_feature_of_a_request_fares_as_the_card_says(self, back: Dialect, front: Dialect) -> None:
        for feature in sorted(supported_requests(front)):
            request, read = REQUESTS[feature].request, REQUESTS[feature].read
            wire = front.encode_request(request, context(front.back_options(), request))
            translator = Translator(back, front, model="m", run_id="run1", created_at=1_700_000_000.0)
            support, refused = back.capabilities.request(feature), None
            try:
                body = translator.request(wire.body, client=front, headers=wire.headers)
            except Unsupported as error:
                refused = error
            if refused is not None:
                assert support is Support.REFUSE, f"{feature} is declared {support} but was refused: {refused.message}"
                assert refused.failure.param
                continue
            again = WireRequest(headers=translator.sent.headers, body=body)
            came = back.decode_request(again, context(back.front_options()))
            arrived = read(with_numbered_calls(came, back, front)) == read(with_numbered_calls(request, back, front))
            assert support is not Support.REFUSE, f"{feature} is refused on the card and was sent"
            if support is Support.EXACT:
                assert arrived, f"{feature} is exact on the card and did not arrive"
            else:
                # Sent as text, as declared or by a stage that writes features without a field as text.
                as_text = _words(came) != _words(request) or (support is Support.TEXT and read(came))
                named = not self.names_losses or arrived or as_text or str(feature) in translator.lost
                assert named, f"{feature} was lost in silence"

    def test_each_part_of_a_feature_arrives_or_is_named(self, back: Dialect, front: Dialect) -> None:
        for name in sorted(supported_parts(front)):
            feature, witness = REQUEST_PARTS[name]
            wire = front.encode_request(witness.request, context(front.back_options(), witness.request))
            translator = Translator(back, front, model="m", run_id="run1", created_at=1_700_000_000.0)
            exact = back.capabilities.request(feature) is Support.EXACT
            refused, body = None, b""
            try:
                body = translator.request(wire.body, client=front, headers=wire.headers)
            except Unsupported as error:
                refused = error.message
            if refused is not None:
                assert not exact, f"{feature} is exact on the card, but {name} was refused: {refused}"
                continue
            again = WireRequest(headers=translator.sent.headers, body=body)
            arrived = witness.read(back.decode_request(again, context(back.front_options()))) == witness.read(
                witness.request
            )
            named = not exact and (not self.names_losses or str(feature) in translator.lost)
            assert arrived or named, f"{name} was lost in silence"

    def test_what_is_asked_of_one_that_is_only_called_fares_as_the_card_says(self) -> None:
        for called, front in self._pairs().values():
            if not called.served and front.called:
                for feature in sorted(supported_requests(front)):
                    self._check_asked(called, front, feature)

    def _check_asked(self, called: Dialect, front: Dialect, feature: Feature) -> None:
        request = REQUESTS[feature].request
        wire = front.encode_request(request, context(front.back_options(), request))
        translator = Translator(called, front, model="m", run_id="run1", created_at=1_700_000_000.0)
        support, refused = called.capabilities.request(feature), None
        try:
            translator.request(wire.body, client=front, headers=wire.headers)
        except Unsupported as error:
            refused = error
        assert (refused is not None) == (support is Support.REFUSE), f"{called.name} {front.name} {feature}"
        if refused is not None:
            assert refused.failure.param
        elif self.names_losses and support is Support.DROP:
            # A stage writes a context without a field into a system message.
            told = feature is Feature.CONTEXT and called.capabilities.request(Feature.SYSTEM) is Support.EXACT
            named = {str(feature), str(Feature.SYSTEM)} & set(translator.lost)
            assert told or named, f"{called.name} {front.name}: {feature} was lost in silence"

    @few
    @given(data=st.data())
    def test_an_answer_in_one_piece_arrives_too(self, back: Dialect, front: Dialect, data: st.DataObject) -> None:
        wire = _whole(back, data.draw(answers(**_COMMON)))
        translator = Translator(back, front, run_id="run1", created_at=1_700_000_000.0)
        if wire.status >= 400:
            with pytest.raises(BridgeError):
                translator.response(wire.body, status=wire.status, headers=wire.headers)
            return
        meant = visible_to(decode_whole(back, wire), front)
        if meant["failed"] or not answers_whole(front):
            # A failure has no whole answer, and a client that supports only streams does not get a part of one.
            with pytest.raises(BridgeError):
                translator.response(wire.body, headers=wire.headers)
            return
        whole = WireResponse(200, {"content-type": front.content_type}, translator.response(wire.body))
        came = visible_to(verify(decode_whole(front, whole)), front)
        # There are wires that hold a call's arguments as an object, which keeps its value and not its spelling.
        for answer in (came, meant):
            answer["calls"] = [(i, name, _value(arguments)) for i, name, arguments in answer["calls"]]
        assert came == meant

    @few
    @given(data=st.data())
    def test_a_request_arrives_or_is_refused(self, back: Dialect, front: Dialect, data: st.DataObject) -> None:
        text = data.draw(texts(empty=False, awkward=False))
        offered = data.draw(st.lists(tools(), max_size=2, unique_by=lambda t: t.name))
        request = Request([Message("user", [Text(text)])], tools=offered or None, model="m", thread_id="thread1")
        wire = front.encode_request(request, context(front.back_options(), request))
        translator = Translator(back, front, model="m")
        refused: Unsupported | None = None
        try:
            body = translator.request(wire.body, client=front, headers=wire.headers)
        except Unsupported as error:
            refused = error
        if refused is not None:
            assert refused.failure.param
            return
        headers = translator.sent.headers
        read = back.decode_request(WireRequest(headers=headers, body=body), context(back.front_options()))
        assert result_text(read.messages[-1].parts) == text
        if all(d.capabilities.request(Feature.TOOLS) is Support.EXACT for d in (front, back)):
            assert [t.name for t in read.tools or []] == [t.name for t in offered]

    def test_a_failure_is_never_a_success(self, back: Dialect, front: Dialect) -> None:
        wire = stream_of(back, "half an answer", finish=None)
        for cut in (len(wire), len(wire) // 2):
            translator = Translator(back, front)
            out = translator.feed(wire[:cut]) + translator.close()
            assert fold(decode(front, [out])).failure is not None
        pieces = frames_of(back, "half an answer")
        for count in range(1, len(pieces) + 1):
            translator = Translator(back, front)
            out = translator.feed(b"".join(pieces[:count])) + translator.close(ConnectionResetError())
            answer = fold(decode(front, [out]))
            assert answer.failure is not None or answer.text == "half an answer"
            if count == 1 < len(pieces):
                assert answer.failure is not None


def _whole(dialect: Dialect, events: list[Event]) -> WireResponse:
    """The answer in one piece, or the whole stream of a dialect that has streams only."""
    if answers_whole(dialect):
        return dialect.assemble(events, context(dialect.front_options()))
    return WireResponse(200, {"content-type": framing.of(dialect.framing).CONTENT_TYPE}, encode(dialect, events))


def _request_to(front: Dialect, text: str) -> WireRequest:
    request = Request([Message("user", [Text(text)])], model="m", thread_id="thread1")
    return front.encode_request(request, context(front.back_options(), request))


def _words(request: Request) -> str:
    return "\n".join(p.text for m in request.messages for p in m.parts if isinstance(p, Text))


def decode_whole(dialect: Dialect, wire: WireResponse) -> list[Event]:
    """The events of a whole answer, whichever form the dialect has for it."""
    reading = AnswerDecoder(dialect, context(dialect.back_options()), wire.headers)
    return reading.receive(wire.body) + reading.close()
