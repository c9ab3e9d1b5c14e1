"""There is a witness for every feature, and it says the feature in our own model."""

from __future__ import annotations

import pytest

from bridge.contract import ANSWER_FEATURES, REQUEST_FEATURES, Feature
from bridge.model import Request, fold, verify
from bridge.testing.witnesses import ANSWERS, REQUESTS, answer_of


def test_every_feature_has_a_witness() -> None:
    assert set(ANSWERS) == set(ANSWER_FEATURES)
    assert set(REQUESTS) == set(REQUEST_FEATURES) - {Feature.EXTRAS}


@pytest.mark.parametrize("feature", ANSWER_FEATURES)
def test_an_answer_says_its_feature_and_no_other_does(feature: Feature) -> None:
    read = ANSWERS[feature].read
    said = read(fold(verify(answer_of(feature))))
    assert said
    # Usage and its details are said together, and many an answer says more text.
    others = [read(fold(answer_of(other))) for other in ANSWERS if other is not feature]
    assert any(other != said for other in others)


@pytest.mark.parametrize("feature", list(REQUESTS))
def test_a_request_says_its_feature_and_a_plain_one_does_not(feature: Feature) -> None:
    read = REQUESTS[feature].read
    assert read(REQUESTS[feature].request) != read(Request([]))
