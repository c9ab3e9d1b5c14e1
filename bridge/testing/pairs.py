"""A dialect beside the others, both ways: a test class to inherit.

    class TestMine(PairConformance):
        dialects = [my_package.dialect]

What comes out of a pair is what the two cards say, and nothing less. Needs the extra `testing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.codec import Dialect, Fate, Feature, WireRequest, WireResponse, outline, project, registry
from bridge.codec.jsontext import loads
from bridge.errors import BridgeError, Unsupported
from bridge.framing import sse
from bridge.library import Translator
from bridge.library.reading import Reading, dialect_of
from bridge.model import Event, FinishReason, Message, PartKind, Request, Text, fold, result_text, unfold, verify
from bridge.testing.conformance import quick
from bridge.testing.strategies import answers, splits, texts, tools
from bridge.testing.wires import context, decode, encode

# What two wires of any age have in common; the rest is between a dialect and its own card.
_COMMON: dict[str, Any] = {
    "redacted": False, "interrupts": False, "raw": False, "choices": False, "results": False, "media": (),
    "data": False,
}  # fmt: skip


def told(events: list[Event], dialect: Dialect) -> dict[str, Any]:
    """What a client of this dialect is told, in words that do not depend on how parts are cut and placed."""
    out = project(fold(events), dialect.card)
    return {
        **{kind: "".join(i[1] for i in out.items if i[0] == kind) for kind in ("text", "refusal", "reasoning")},
        "calls": [i[1:4] for i in out.items if i[0] == "tool_call"],
        "usage": out.usage,
        "failed": out.error is not None,
    }


def said(dialect: Dialect, *words: str, finish: FinishReason | None = FinishReason.STOP) -> bytes:
    """A stream of these words; with `finish` None it is one whose backend stopped without a word."""
    builder = context(None).builder()
    for word in words:
        builder.flow(0, PartKind.TEXT, word)
    if finish is not None:
        builder.finish(finish)
    builder.end()
    return encode(dialect, builder.take())


def _value(arguments: str) -> Any:
    try:
        return loads(arguments)
    except ValueError:
        return arguments


class PairConformance:
    """Each test runs for each of `dialects` with each of `others` (by default all that are installed), both ways."""

    dialects: ClassVar[Sequence[str | Dialect]] = ()
    others: ClassVar[Sequence[str | Dialect] | None] = None

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Runs a test once for each pair. Raises `TypeError` when there is no dialect."""
        own = [dialect_of(d) for d in self.dialects]
        if not own:
            raise TypeError(f"{type(self).__name__}.dialects: expected at least one dialect, got none")
        others = [dialect_of(d) for d in (registry.names() if self.others is None else self.others)]
        pairs = {(a.name, b.name): (a, b) for d in own for o in [*own, *others] for a, b in ((d, o), (o, d))}
        if {"back", "front"} <= set(metafunc.fixturenames):
            metafunc.parametrize(("back", "front"), pairs.values(), ids=[f"{b}-{f}" for b, f in pairs])

    @quick
    @given(data=st.data())
    def test_a_stream_arrives_as_the_cards_say(self, back: Dialect, front: Dialect, data: st.DataObject) -> None:
        wire = encode(back, data.draw(answers(**_COMMON)))
        # The backend's dialect decides what it can say at all, the frontend's what its clients are told of that.
        meant = decode(back, [wire])
        translator = Translator(back, front, run_id="run1", created_at=1_700_000_000.0)
        out = b"".join(translator.feed(piece) for piece in data.draw(splits(wire))) + translator.close()
        again = Translator(back, front, run_id="run1", created_at=1_700_000_000.0)
        assert again.feed(wire) + again.close() == out, "where reads end changes what is written"
        came, expected = told(verify(decode(front, [out])), front), told(unfold(fold(meant)), front)
        if expected["failed"]:
            # Calls that are held back until it is known whose they are stay back when the run fails: nobody shall run
            # them.
            assert came.pop("calls") in ([], expected.pop("calls"))
        assert came == expected
        lost = {str(f) for f in Feature if f in front.card.answers and front.card.answer(f) is not Fate.EXACT}
        assert set(translator.lost) <= lost | {"usage", "usage_details", "choices"}

    @quick
    @given(data=st.data())
    def test_an_answer_in_one_piece_arrives_too(self, back: Dialect, front: Dialect, data: st.DataObject) -> None:
        wire = _whole(back, data.draw(answers(**_COMMON)))
        translator = Translator(back, front, run_id="run1", created_at=1_700_000_000.0)
        if wire.status >= 400:
            with pytest.raises(BridgeError):
                translator.response(wire.body, status=wire.status, headers=wire.headers)
            return
        meant = told(decode_whole(back, wire), front)
        if meant["failed"] or not _has_whole(front):
            # A failure is none, and a client that knows streams only is not given half of one.
            with pytest.raises(BridgeError):
                translator.response(wire.body, headers=wire.headers)
            return
        whole = WireResponse(200, {"content-type": "application/json"}, translator.response(wire.body))
        came = told(verify(decode_whole(front, whole)), front)
        # There are wires that hold a call's arguments as an object, which keeps its value and not its spelling.
        for answer in (came, meant):
            answer["calls"] = [(i, name, _value(arguments)) for i, name, arguments in answer["calls"]]
        assert came == meant

    @quick
    @given(data=st.data())
    def test_a_request_arrives_or_is_refused(self, back: Dialect, front: Dialect, data: st.DataObject) -> None:
        text = data.draw(texts(empty=False, awkward=False))
        offered = data.draw(st.lists(tools(), max_size=2, unique_by=lambda t: t.name))
        asked = Request([Message("user", [Text(text)])], tools=offered or None, model="m", thread_id="thread1")
        wire = front.encode_request(asked, context(front.back_options(), asked))
        translator = Translator(back, front, model="m")
        refused: Unsupported | None = None
        try:
            body = translator.request(wire.body, client=front, headers=wire.headers)
        except Unsupported as error:
            refused = error
        if refused is not None:
            assert refused.failure.param
            return
        assert translator.sent is not None
        headers = translator.sent.headers
        read = back.decode_request(WireRequest(headers=headers, body=body), context(back.front_options()))
        assert result_text(read.messages[-1].parts) == text
        if all(d.card.request(Feature.TOOLS) is Fate.EXACT for d in (front, back)):
            assert [t.name for t in read.tools or []] == [t.name for t in offered]

    def test_a_failure_is_never_a_success(self, back: Dialect, front: Dialect) -> None:
        wire = said(back, "half an answer", finish=None)
        for cut in (len(wire), len(wire) // 2):
            translator = Translator(back, front)
            out = translator.feed(wire[:cut]) + translator.close()
            assert fold(decode(front, [out])).failure is not None
        whole = said(back, "half an answer")
        for end in (n for n in range(len(whole) - 2) if whole.startswith(b"\n\n", n)):
            translator = Translator(back, front)
            out = translator.feed(whole[: end + 2]) + translator.close(ConnectionResetError())
            answer = fold(decode(front, [out]))
            assert answer.failure is not None or answer.text == "half an answer"
            if end == whole.index(b"\n\n"):
                assert answer.failure is not None

    def test_two_runs_in_one_process_do_not_touch_each_other(self, back: Dialect, front: Dialect) -> None:
        wires = [said(back, *[f"{word} "] * 5) for word in ("one", "two")]
        alone = []
        for wire in wires:
            translator = Translator(back, front, run_id="r")
            alone.append(translator.feed(wire) + translator.close())
        both = [Translator(back, front, run_id="r") for _ in wires]
        outs = [b"", b""]
        for at in range(0, max(map(len, wires)), 7):
            for n, translator in enumerate(both):
                outs[n] += translator.feed(wires[n][at : at + 7])
        assert [o + t.close() for o, t in zip(outs, both, strict=True)] == alone
        assert outline(fold(decode(front, [alone[0]]))).items == [("text", "one one one one one ")]


def _whole(dialect: Dialect, events: list[Event]) -> WireResponse:
    """The answer in one piece, or the whole stream of a dialect that has streams only."""
    if _has_whole(dialect):
        return dialect.assemble(events, context(dialect.front_options()))
    return WireResponse(200, {"content-type": sse.CONTENT_TYPE}, encode(dialect, events))


def _has_whole(dialect: Dialect) -> bool:
    return type(dialect).assemble is not Dialect.assemble


def decode_whole(dialect: Dialect, wire: WireResponse) -> list[Event]:
    """The events of a whole answer, whichever form the dialect has for it."""
    reading = Reading(dialect, context(dialect.back_options()), wire.headers)
    return reading.feed(wire.body) + reading.close()
