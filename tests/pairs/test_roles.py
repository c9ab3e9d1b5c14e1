"""An answer in one piece says what its stream says, whatever roles its messages have."""

from __future__ import annotations

import pytest

from bridge.contract import registry
from bridge.model import Inline, Media, MediaKind, PartKind, verify
from bridge.model import events as ev
from bridge.testing.wires import answers_whole, context, encode
from tests.cases import all_cases

ROLES = ("assistant", "tool", "user", "system", "developer")
KINDS = (PartKind.TEXT, PartKind.REASONING, PartKind.REFUSAL)


def answer(role: str, kinds: tuple[PartKind, ...], *, pictures: bool = False, results: bool = False) -> list[ev.Event]:
    """An answer of two messages of a role, with a part of each kind."""
    body: list[ev.Event] = []
    for number in range(2):
        message = f"m{number}"
        body.append(ev.MessageStarted(message, role))
        for kind in kinds:
            part = f"{message}-{kind}"
            piece = ev.ReasoningDelta if kind is PartKind.REASONING else ev.TextDelta
            body += [ev.PartStarted(part, message, kind), piece(part, f"said-{kind}-{number}"), ev.PartEnded(part)]
        if pictures:
            body.append(ev.ContentAdded(message, Media(MediaKind.IMAGE, Inline("AAAA"), "image/png")))
        body.append(ev.MessageEnded(message))
        if results:
            body.append(ev.ToolResulted(f"c{number}", [], "f", message_id=f"r{number}"))
    events = [ev.RunStarted("run1", "thread1", "m", 1_700_000_000.0), *body, ev.RunFinished(ended_at=1_700_000_000.0)]
    verify(events)
    return events


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "dialect", [n for n in registry.called() if registry.get(n).served and answers_whole(registry.get(n))]
)
def test_an_answer_in_one_piece_says_what_its_stream_says(dialect: str, role: str) -> None:
    spoken = registry.get(dialect)
    with all_cases() as case:
        for kinds in (KINDS[:1], KINDS):
            for more in ({}, {"pictures": True}, {"results": True}, {"pictures": True, "results": True}):
                with case((kinds, more)):
                    events = answer(role, kinds, **more)
                    streamed = encode(spoken, events)
                    whole = spoken.assemble(events, context(spoken.front_options())).body
                    for number in range(2):
                        for kind in kinds:
                            said = f"said-{kind}-{number}".encode()
                            assert (said in whole) == (said in streamed), said
