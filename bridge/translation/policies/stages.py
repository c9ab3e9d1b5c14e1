"""Stages wrap the stream: callables from a list of events to a list of events, made once per run.

A route gets some by itself (`build`) and may name more in its configuration as `module:factory`. A factory
takes the run's `StageContext` and returns the stage, or None when this run does not need it. It may also change
`context.request` before the backend is called.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from itertools import chain
from types import ModuleType
from typing import Any, cast

from bridge.contract import Capabilities, Feature, Losses
from bridge.errors import ConfigError, ErrorCode, Failure, shortened
from bridge.model import (
    ArgsDelta,
    Event,
    FinishReason,
    Interrupted,
    Message,
    MessageEnded,
    MessageStarted,
    PartEnded,
    PartKind,
    PartStarted,
    ReasoningDelta,
    Request,
    RunFailed,
    RunFinished,
    Text,
    TextDelta,
    ToolResulted,
    UsageReported,
    estimate_tokens,
    interrupt_text,
    question_about,
    result_text,
)
from bridge.model.estimate import quarter_tokens
from bridge.model.events import AWAITS_RESULT
from bridge.toolkit.caching import CACHE, marks_in_tools
from bridge.translation.call_ids import of_calls, with_ids_of
from bridge.translation.pair import Pair, pair_of
from bridge.translation.policies.forbidden_fields import without_redirects
from bridge.translation.policies.names import tool_names
from bridge.translation.policies.signatures import CarrySignatures, SealSignatures, for_backend
from bridge.translation.stage import Stage, StageFunction, as_stage
from bridge.translation.survey import PLAIN, Survey, surveyed


@dataclass(slots=True)
class StageContext:
    """The run that a stage belongs to.

    `front` and `back`: the capabilities of the two dialects; `options`: those of the route.
    """

    request: Request
    front: Capabilities
    back: Capabilities
    options: Any
    lost: Losses


StageFactory = Callable[[StageContext], StageFunction | None]
"""Makes the stage of one run, or None when this run needs none."""


class ShowAwaitedCalls(Stage):
    """Shows a call whose result the backend waits for as any call of the client, without the question for its result.

    The conversation has noted the question before, so that the result in the next request answers it.
    """

    passes_deltas = True

    def __call__(self, events: list[Event]) -> list[Event]:
        kept = [e for e in events if not (isinstance(e, Interrupted) and e.reason == AWAITS_RESULT)]
        if len(kept) == len(events) or any(isinstance(e, Interrupted) for e in kept):
            return kept
        waits = (MessageEnded, RunFinished)
        return [
            replace(e, reason=FinishReason.TOOL_CALLS)
            if isinstance(e, waits) and e.reason is FinishReason.INTERRUPTED
            else e
            for e in kept
        ]


_UNASKED = (
    "The agent's run ended with its own tool call {}, which has neither a result nor a question. "
    "The agent may be waiting for an approval that its adapter does not report."
)


class WithholdServerTools(Stage):
    """Keeps tool calls that the backend runs itself away from clients that would run them again.

    Whose call it is shows only when its result comes, or when the answer ends without one; until then the call is
    kept back and everything else passes. `show`: "drop" forgets such calls, "text" and "reasoning" tell them. The
    question about a call that waits for a person tells that call.
    """

    def __init__(
        self,
        lost: Losses,
        offered: frozenset[str],
        show: str = "drop",
        *,
        holds_offered: bool = False,
        runs_others: bool = False,
        passes_results: bool = False,
    ) -> None:
        """`offered` are the client's tools. If `holds_offered`, the backend may run even calls of those itself; if
        `runs_others`, it runs all others, or asks, also where it does not tell results: such a call is dropped, and an
        answer that ends with it is a failure. `passes_results`: the client's dialect shows no results; they only
        divide the texts around them.
        """
        self._lost = lost
        self._offered = offered
        self._passed = frozenset() if holds_offered else offered
        self._show = show
        self._runs_others = runs_others
        self._passes_results = passes_results
        self._ends_in_own = False  # nothing followed the backend's own calls
        self._awaits_client = False  # a call of the client's was passed on
        self._asked: list[Interrupted] = []
        self._held: dict[str, list[Event]] = {}
        self._calls: dict[str, str] = {}
        self._ends: dict[str, Event] = {}
        self._held_of: Counter[str] = Counter()  # how many calls of a message are kept back
        # Calls whose result came before their own end: what still comes of them is theirs too.
        self._unfinished: set[str] = set()
        self._count = 0

    def __call__(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            self._one(event, out)
        # A piece of an open part may belong to a call that is, or was, withheld.
        self.passes_deltas = not (self._held or self._unfinished)
        return out

    def _one(self, event: Event, out: list[Event]) -> None:
        match event:
            case PartStarted(kind=PartKind.TOOL_CALL) if event.name not in self._passed:
                self._ends_in_own = self._runs_others and event.name not in self._offered
                self._held[event.part_id] = [event]
                self._held_of[event.message_id] += 1
                self._calls[event.call_id or ""] = event.part_id
            case PartStarted():
                self._ends_in_own = False
                self._awaits_client = self._awaits_client or event.kind is PartKind.TOOL_CALL
                out.append(event)
            case ArgsDelta() | PartEnded() if event.part_id in self._held:
                self._held[event.part_id].append(event)
            case ArgsDelta() | PartEnded() if event.part_id in self._unfinished:
                if isinstance(event, PartEnded):
                    self._unfinished.discard(event.part_id)
            case MessageEnded() if self._held_of[event.message_id]:
                self._ends[event.message_id] = event
            case ToolResulted():
                self._ran(event, out)
            case Interrupted():
                self._asked.append(event)
            case RunFinished() | RunFailed():
                failure = self._release(out, finished=isinstance(event, RunFinished))
                out.append(event if failure is None else RunFailed(failure))
            case _:
                out.append(event)

    def _ran(self, event: ToolResulted, out: list[Event]) -> None:
        part_id = self._calls.pop(event.call_id, None)
        if part_id is None:
            out.append(event)
            return
        held = self._held.pop(part_id)
        start = cast(PartStarted, held[0])
        self._held_of[start.message_id] -= 1
        if not isinstance(held[-1], PartEnded):
            self._unfinished.add(part_id)
        self._hide(start, held, result_text(event.parts), out)
        if self._passes_results:
            out.append(event)
        if not self._held_of[start.message_id] and start.message_id in self._ends:
            out.append(self._ends.pop(start.message_id))

    def _hide(self, start: PartStarted, pieces: Sequence[Event], result: str | None, out: list[Event]) -> None:
        self._lost.add(Feature.TOOL_RESULT, "tools run by the backend are not shown as calls")
        if self._show != "drop":
            told = f"{start.name}({_arguments(pieces)})"
            self._tell(told if result is None else f"{told} -> {result}", start, out)

    def _tell(self, text: str, call: PartStarted, out: list[Event]) -> None:
        """The finished call in a message of its own: the call's may be ended already."""
        self._count += 1
        message, part = f"{call.part_id}-told", f"{call.part_id}-told-{self._count}"
        kind = PartKind.REASONING if self._show == "reasoning" else PartKind.TEXT
        delta = ReasoningDelta(part, text + "\n") if kind is PartKind.REASONING else TextDelta(part, text)
        out += [
            MessageStarted(message),
            PartStarted(part, message, kind),
            delta,
            PartEnded(part),
            MessageEnded(message),
        ]

    def _release(self, out: list[Event], *, finished: bool) -> Failure | None:
        """End the answer: calls without a result become the client's, unless the backend runs all that were not
        offered. After a failure they are dropped, and so are the backend's own while the run waits for a person.
        Return the failure of an answer that ends with a call that neither side runs.
        """
        failure = None
        waiting: dict[str | None, list[str]] = {}
        for start, *pieces in self._held.values():
            assert isinstance(start, PartStarted)
            if self._asked and start.name not in self._offered:
                waiting.setdefault(start.call_id, []).append(f"{start.name}({_arguments(pieces)})")
            elif finished and self._runs_others and start.name not in self._offered:
                if self._ends_in_own and not self._awaits_client:
                    text = _UNASKED.format(shortened(f"{start.name}({_arguments(pieces)})"))
                    failure = failure or Failure(ErrorCode.BACKEND_PROTOCOL, text)
                else:
                    self._hide(start, pieces, None, out)
            elif finished:
                out += [start, *pieces]
        self._held.clear()
        self._held_of.clear()
        out.extend(self._ends.values())
        self._ends.clear()
        out += self._questions(waiting)
        return failure

    def _questions(self, waiting: dict[str | None, list[str]]) -> list[Event]:
        """The questions, each with the call that it is about; the first one also with those that none names."""
        about = [waiting.pop(event.call_id, []) for event in self._asked]
        if self._asked:
            about[0] = [*about[0], *chain.from_iterable(waiting.values())]
        asked, self._asked = self._asked, []
        return [
            replace(event, payload=question_about(calls, interrupt_text(event))) if calls else event
            for event, calls in zip(asked, about, strict=True)
        ]


def _arguments(call: Sequence[Event]) -> str:
    return "".join(e.text for e in call if isinstance(e, ArgsDelta))


def withhold_server_tools(context: StageContext) -> Stage | None:
    """The stage, for fronts whose clients run what they see over backends that may have run it already."""
    pair = pair_of(context.front, context.back)
    if not pair.withholds_calls:
        return None
    offered = frozenset(t.name for t in context.request.tools or ())
    show = getattr(context.options, "server_tools", "drop")
    return WithholdServerTools(
        context.lost,
        offered,
        show,
        holds_offered=pair.holds_offered,
        # Without its request, as in `translate`, an answer does not show which tools were offered.
        runs_others=pair.runs_others and bool(context.request.messages),
        passes_results=pair.drops_results,
    )


def _context_as_system(request: Request) -> Request:
    """Return the request with what the frontend gave along as a system message before the others."""
    lines = [f"{entry.get('description', '')}: {entry.get('value', '')}" for entry in request.context]
    message = Message("system", [Text("\n".join(lines))])
    return replace(request, messages=[message, *request.messages], context=[])


class EstimateUsage(Stage):
    """Reports the tokens of a finished run whose backend reported none, estimated from its texts (`estimate_usage`)."""

    passes_deltas = True

    def __init__(self, context: StageContext) -> None:
        self._request = context.request
        self._lost = context.lost
        self._quarters = 0
        self._reported = False

    def passed(self, deltas: list[Event]) -> None:
        self._count(deltas)

    def __call__(self, events: list[Event]) -> list[Event]:
        self._count(events)
        if self._reported or not events or not isinstance(events[-1], RunFinished):
            return events
        self._lost.add(Feature.USAGE, "estimated; the backend reported no usage")
        taken, given = estimate_tokens(self._request), -(-self._quarters // 4)
        usage = UsageReported(taken, given, taken + given, estimated=True)
        return [*(e for e in events[:-1] if not isinstance(e, UsageReported)), usage, events[-1]]

    def _count(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, (TextDelta, ReasoningDelta, ArgsDelta)):
                self._quarters += quarter_tokens(event.text)
            elif isinstance(event, UsageReported):
                self._reported = bool(event.input or event.output)


@dataclass(slots=True)
class Prepared:
    """A request as a backend's dialect takes it, but for what the API demands, and the stages that the answer passes.

    `survey` is that of the request's messages. Events pass `first` before the conversation is recorded, which has what
    the backend said in the client's words, and `stages` after it.
    """

    request: Request
    survey: Survey
    first: list[Stage]
    stages: list[Stage]


def prepare(factories: Sequence[StageFactory], context: StageContext) -> Prepared:
    """Return the request for the backend, and the stages of the run, those of `factories` last.

    Fields that redirect the call are removed, the client's context becomes a message for a backend that has no such
    field, opaque values of reasoning go only to the vendor that made them, and names and ids of calls are those that
    the backend knows. `context.request` is the request as the factories see it.
    """
    front, back, lost = context.front, context.back, context.lost
    pair = pair_of(front, back)
    request = context.request
    if request.extras:
        request = without_redirects(request, lost)
    if request.context and pair.context_as_message:
        request = _context_as_system(request)
    survey = surveyed(request.messages)
    if survey is not PLAIN:
        request = for_backend(request, survey, front, back, lost)
    context.request = request
    if not back.caches_marks and (CACHE in survey.extras or marks_in_tools(request)):
        lost.add(Feature.EXTRAS, "prompt cache markers")
    if request.logprobs is not None and not back.logprobs:
        lost.add(Feature.SAMPLING, "log probabilities")
    stages = _stages(factories, context, pair) if factories or pair.has_stages else []
    if factories:  # they may have added messages
        survey = surveyed(context.request.messages)
    request, names = context.request, None
    if pair.legal_name is not None and (survey.names or request.tools):
        names = tool_names(request, survey, pair.legal_name)
    if names is not None:
        request = names.request
    first = of_calls(request, back, lost)
    if names is not None:
        first.append(as_stage(names.restore))
    if pair.only_new_messages:
        request = with_ids_of(request, survey)
    return Prepared(request, survey, first, stages)


def _stages(factories: Sequence[StageFactory], context: StageContext, pair: Pair) -> list[Stage]:
    front, back, lost = context.front, context.back, context.lost
    stages: list[Stage] = [ShowAwaitedCalls()] if pair.shows_awaited_calls else []
    if pair.withholds_calls and (withhold := withhold_server_tools(context)) is not None:
        stages.append(withhold)
    if pair.seals_signatures:
        stages.append(SealSignatures(back.vendor, wraps=pair.wraps_signatures, signs=front.wants_signatures))
    if pair.call_signatures is not None:
        stages.append(CarrySignatures(pair.call_signatures, pair.loses_signatures, lost))
    for factory in factories:
        if (stage := factory(context)) is not None:
            stages.append(as_stage(stage))
    return stages


def load(target: str, folder: str | None = None) -> StageFactory:
    """The factory that `module:name` points at. Raises `ConfigError` when there is none."""
    return cast(StageFactory, load_object(target, "a stage", folder))


def _named_module(name: str, folders: Sequence[str]) -> ModuleType:
    """Import a module that the configuration names: from the first of these folders that has it, else as any other.

    Only such names are looked for there: any other file of such a folder could take the place of a library.
    What the module imports itself is found there, too, after everything that is installed.
    """
    package = name.partition(".")[0]
    for here in folders if package not in sys.modules else ():
        spec = PathFinder.find_spec(package, [here])
        if spec is None:
            continue
        if here not in sys.path:
            sys.path.append(here)
        if spec.loader is not None and spec.origin is not None:
            _imported(package, spec)
        break
    return importlib.import_module(name)


def _imported(name: str, spec: ModuleSpec) -> None:
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise


def load_object(target: str, what: str, folder: str | None = None) -> Callable[..., Any]:
    """The callable that `module:name` points at. Raises `ConfigError` that says what was looked for.

    The module is looked for in `folder`, that of the configuration's file, then in the working directory.
    """
    folders = list(dict.fromkeys([*([folder] if folder is not None else []), os.getcwd()]))
    module_name, colon, name = target.partition(":")
    if not colon or not module_name or module_name.startswith(".") or not name:
        raise ConfigError(f"{target!r}: expected {what} as 'module:name'")
    try:
        found: Any = _named_module(module_name, folders)
    except Exception as error:
        # Whatever the module raises while it is imported, it is the configuration's target that cannot be had.
        where = f" (looked for in {' and '.join(folders)})" if isinstance(error, ModuleNotFoundError) else ""
        raise ConfigError(f"{target!r}: cannot import {module_name!r} for {what}: {error}{where}") from error
    for piece in name.split("."):
        found = getattr(found, piece, None)
    if not callable(found):
        raise ConfigError(f"{target!r}: {module_name!r} has no callable {name!r} for {what}")
    return cast(Callable[..., Any], found)
