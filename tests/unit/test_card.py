"""Cards name every feature of both roles, and nothing else."""

from __future__ import annotations

import pytest

from bridge.contract import (
    ANSWER_FEATURES,
    REQUEST_FEATURES,
    Capabilities,
    Context,
    Feature,
    FeatureSupport,
    Losses,
    Support,
    entries,
    registry,
)
from bridge.engine.route import Route


def test_all_features_belong_to_a_role() -> None:
    assert set(ANSWER_FEATURES) | set(REQUEST_FEATURES) == set(Feature)
    assert len(set(ANSWER_FEATURES)) == len(ANSWER_FEATURES)
    assert len(set(REQUEST_FEATURES)) == len(REQUEST_FEATURES)


@pytest.mark.parametrize("feature", ANSWER_FEATURES)
def test_a_card_that_forgets_an_answer_feature_is_refused(feature: Feature) -> None:
    answers = entries(ANSWER_FEATURES)
    del answers[feature]
    with pytest.raises(ValueError) as caught:
        Capabilities(answers, entries(REQUEST_FEATURES))
    assert str(caught.value) == f"card.answers: missing {[feature]}, not of this role []"


@pytest.mark.parametrize("feature", REQUEST_FEATURES)
def test_a_card_that_forgets_a_request_feature_is_refused(feature: Feature) -> None:
    requests = entries(REQUEST_FEATURES)
    del requests[feature]
    with pytest.raises(ValueError) as caught:
        Capabilities(entries(ANSWER_FEATURES), requests)
    assert str(caught.value) == f"card.requests: missing {[feature]}, not of this role []"


def test_a_card_that_names_a_feature_of_the_other_role_is_refused() -> None:
    answers = {**entries(ANSWER_FEATURES), Feature.TOOLS: FeatureSupport(Support.EXACT)}
    with pytest.raises(ValueError, match=r"^card\.answers: missing \[\], not of this role .*tools"):
        Capabilities(answers, entries(REQUEST_FEATURES))


def test_entries() -> None:
    made = entries(
        ANSWER_FEATURES,
        text={Feature.IMAGE: "a link"},
        custom={Feature.STEP: "as custom"},
        drop={Feature.USAGE: "no place"},
        refuse={Feature.AUDIO: "never"},
    )
    assert list(made) == list(ANSWER_FEATURES)
    named = {
        Feature.IMAGE: FeatureSupport(Support.TEXT, "a link"),
        Feature.STEP: FeatureSupport(Support.CUSTOM, "as custom"),
        Feature.USAGE: FeatureSupport(Support.DROP, "no place"),
        Feature.AUDIO: FeatureSupport(Support.REFUSE, "never"),
    }
    for feature, entry in made.items():
        assert entry == named.get(feature, FeatureSupport(Support.EXACT))


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        ({"drop": {Feature.USAGE: "a"}, "text": {Feature.USAGE: "b"}}, "usage is named twice: as text, and dropped"),
        ({"drop": {Feature.TOOLS: "not of answers"}}, "tools is no feature of answers"),
    ],
)
def test_entries_that_contradict(groups: dict[str, dict[Feature, str]], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        entries(ANSWER_FEATURES, **groups)  # type: ignore[arg-type]


def test_a_card_answers_for_each_role() -> None:
    """A feature of both roles may have two fates."""
    capabilities = Capabilities(
        entries(ANSWER_FEATURES, drop={Feature.DATA: "x"}), entries(REQUEST_FEATURES, text={Feature.DATA: "x"})
    )
    assert capabilities.answer(Feature.DATA) is Support.DROP
    assert capabilities.request(Feature.DATA) is Support.TEXT


def test_losses_keep_the_order_and_the_details() -> None:
    losses = Losses()
    assert not losses
    losses.add(Feature.USAGE)
    losses.add(Feature.IMAGE, "messages[1]")
    losses.add(Feature.USAGE, "later")
    assert losses
    assert losses.names == ["usage", "image"]
    assert losses.details == {"usage": "later", "image": "messages[1]"}


def test_a_context_makes_the_same_ids_for_the_same_run() -> None:
    first, second = Context("run", "thread", 4.0), Context("run")
    made = [first.make_id("msg") for _ in range(40)]
    assert made == [second.make_id("msg") for _ in range(40)]
    assert len(set(made)) == 40
    assert made[:2] == ["msg_run", "msg_run2"]
    builder = first.builder()
    builder.start()
    head = builder.take()[0]
    assert (head.run_id, head.thread_id, head.created_at) == ("run", "thread", 4.0)  # type: ignore[union-attr]


OPTIONS = {
    "a2a": ({"reasoning": "status"}, Feature.REASONING, Support.EXACT),
    "ag-kit": ({"reasoning": "text"}, Feature.REASONING, Support.TEXT),
    "ag-ui": ({"reasoning_events": "none"}, Feature.REASONING, Support.DROP),
    "agentscope": ({"events": "messages"}, Feature.STATE, Support.EXACT),
    "agentscope-java": ({"events": "messages"}, Feature.STATE, Support.EXACT),
    "aip": ({"reasoning": "text"}, Feature.REASONING, Support.TEXT),
    "anthropic-messages": ({"reasoning": "drop"}, Feature.REASONING, Support.DROP),
    "gemini": ({"media": "drop"}, Feature.IMAGE, Support.DROP),
    "mcp": ({"structured": True}, Feature.IMAGE, Support.TEXT),
    "ollama": ({"media": "drop"}, Feature.IMAGE, Support.DROP),
    "openai-chat": ({"media": "drop"}, Feature.IMAGE, Support.DROP),
    "openai-responses": ({"media": "drop"}, Feature.IMAGE, Support.DROP),
}


def test_every_dialect_whose_options_change_its_card_is_here() -> None:
    others = {name for name in registry.names() if "capabilities_with" in vars(type(registry.get(name)))}
    assert others <= OPTIONS.keys()


@pytest.mark.parametrize("name", OPTIONS)
def test_the_card_of_a_route_is_that_of_its_options(name: str) -> None:
    """What a log line, `X-Bridge-Lost` and the projection say is about this route, not about the defaults."""
    options, feature, support = OPTIONS[name]
    dialect = registry.get(name)
    assert dialect.capabilities.answer(feature) is not support
    route = Route(dialect, "/it", dialect.front_options(**options), listen="127.0.0.1:1" if dialect.over_grpc else "")
    assert route.capabilities.answer(feature) is support


def test_a_reason_may_have_several_features() -> None:
    reasons = {"no field": (Feature.STEP, Feature.STATE), "no word": [Feature.CUSTOM]}
    features = {Feature.STEP: "no field", Feature.STATE: "no field", Feature.CUSTOM: "no word"}
    assert entries(ANSWER_FEATURES, drop=reasons) == entries(ANSWER_FEATURES, drop=features)
