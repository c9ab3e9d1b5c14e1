"""What an answer loses on its way to a client is named, by every dialect; what is exact on its card never is."""

from __future__ import annotations

import pytest

from bridge.contract import Feature, Support, registry
from bridge.model import Message, Request, Text, fold
from bridge.testing.wires import context, decode
from bridge.testing.witnesses import ANSWERS, answer_of
from bridge.translation import framing

BOTH = [name for name in registry.served() if registry.get(name).called]
"""Where an answer can be read back."""
PLACES = [pytest.param(name, feature, id=f"{name}-{feature}") for name in BOTH for feature in ANSWERS]


@pytest.mark.parametrize(("name", "feature"), PLACES)
def test_a_loss_of_an_answer_is_named(name: str, feature: Feature) -> None:
    dialect, events = registry.get(name), answer_of(feature)
    told = context(dialect.front_options())
    encoder = dialect.encoder(told)
    wire = framing.of(dialect.framing).join(encoder.encode(events))
    support, read = dialect.capabilities.answer(feature), ANSWERS[feature].read
    if support is Support.EXACT:
        assert feature not in told.lost.names
        return
    arrived = read(fold(decode(dialect, [wire]))) == read(fold(events))
    # A refused finish is told as an error: nobody takes it for the answer.
    assert arrived or feature in told.lost.names or support is Support.REFUSE


@pytest.mark.parametrize("name", registry.called())
def test_fields_of_another_dialect_are_named(name: str) -> None:
    dialect = registry.get(name)
    for fields, is_lost in (({"a": 1}, True), ({"a": None}, False), ({"notes": {"a": 1}}, False)):
        asked = Request([Message("user", [Text("Hi")])], model="m", extras={"of-another": fields})
        told = context(dialect.back_options())
        dialect.encode_request(asked, told)
        assert (Feature.EXTRAS in told.lost.names) is is_lost
