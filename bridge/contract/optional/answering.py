"""The optional contract of dialects that answer some requests themselves, without calling a backend for a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bridge.contract.capabilities import Capabilities
from bridge.contract.context import Context
from bridge.contract.dialect import Options
from bridge.contract.optional.models import ModelInfo, ModelsDialect
from bridge.contract.wire import WireRequest, WireResponse
from bridge.model.request import Request


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model in the list of a route. Each of `backends` may answer its requests."""

    info: ModelInfo
    backends: Sequence[Capabilities] = ()


@dataclass(frozen=True, slots=True)
class RouteFacts:
    """What a dialect's own answers are made of: the options of the route, and for `MODELS` its models."""

    options: Options | None = None
    models: Sequence[ServedModel] = ()


class AnsweringDialect(ModelsDialect):
    """A dialect whose clients ask for more than runs and a list of models, such as a version or one model's abilities.

    Requests of its surface's `MODELS` are answered with the models of the route, those of `ANSWER` without, and
    without their bodies.
    """

    def answer(self, wire: WireRequest, facts: RouteFacts) -> WireResponse:
        """Return the response to a request of `ANSWER` or `MODELS`. Raises `RequestError`."""
        raise NotImplementedError

    def answer_run(self, request: Request, context: Context) -> WireResponse | None:
        """Return the response to a request of `RUN` that asks for no run; None for one that does."""
        return None
