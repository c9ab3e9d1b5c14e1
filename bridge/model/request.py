"""The request side of the model: a frontend's request, independent of its protocol.

`None` means "not set"; a codec never invents a value unless its wire requires one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, fields
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, get_args

from bridge.model.events import Interrupted
from bridge.model.parts import Extras, Message, Part, Text


class HistoryMode(StrEnum):
    """Whether `Request.messages` is the whole conversation or only the new messages.

    LAST: only the last message of the conversation. A known one is repeated, and what followed it is deleted.
    """

    FULL = "full"
    DELTA = "delta"
    LAST = "last"


class ToolMode(StrEnum):
    """The tool choice: the model may, must or must not call tools."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"


@dataclass(slots=True)
class Sampling:
    """Sampling parameters. `n` is the number of answers, `max_tokens` the maximum length of each."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: list[str] | None = None
    seed: int | None = None
    n: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None


@dataclass(slots=True)
class Tool:
    """A tool that the model may call. `parameters` is a JSON Schema object, or None.

    `kind` is the tool's type in its protocol. Only the dialect that stored a tool in `extras` can express one that is
    not a function (a search that the provider runs, a tool with free text as input). An `optional` tool is omitted for
    other backends.
    """

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    extras: Extras | None = None
    kind: str = "function"
    optional: bool = False


@dataclass(slots=True)
class ToolChoice:
    """`names` restricts the choice to these tools; `REQUIRED` with one name requires a call of this tool."""

    mode: ToolMode
    names: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ResponseFormat:
    """`kind` is text, json (any object) or json_schema."""

    kind: str
    name: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None


# fmt: off
_YES = frozenset({
    "true", "yes", "y", "ok", "okay", "approve", "approved", "confirm", "confirmed",
    "是", "是的", "好", "好的", "可以", "同意", "确认", "批准",
})
_NO = frozenset({
    "false", "no", "n", "cancel", "canceled", "cancelled", "decline", "declined", "deny", "denied", "ignore", "refuse",
    "refused", "reject", "rejected", "否", "不", "拒绝", "取消",
})
DECISIONS = frozenset({
    "accept", "accepted", "agree", "agreed", "allow", "allowed", "approve", "approved", "confirm", "confirmed",
})
"""The members by which the buttons of frameworks say yes or no: of AG-UI, the AI SDK, CopilotKit, google-adk and
others."""
# fmt: on
_VERDICTS = ("action", "answer", "decision", "outcome", "response", "status", "type")
"""Members that have a verdict as a word, in the answers of MCP, LangChain and OpenAI's agents."""


@dataclass(slots=True)
class Resume:
    """Answers an interrupt or an approval. `decision` is resolved or cancelled.

    An empty `interrupt_id` means the open interrupt, for protocols without interrupt ids. `place` is the position in
    the client's body; it is never stored.
    """

    interrupt_id: str
    decision: str
    payload: Any = None
    extras: Extras | None = None
    place: str = field(default="resume", compare=False, repr=False)

    @property
    def agrees(self) -> bool:
        """True for an approval, for backends that ask for nothing else.

        No payload is an approval, and so is an object that says no no; its members `DECISIONS` are explicit. Of texts
        only a plain yes is one, as an agent must not act on a misunderstanding.
        """
        return self.decision == "resolved" and (self.payload is None or _agrees(self.payload))


def _agrees(payload: Any) -> bool:
    if not isinstance(payload, dict):
        return _is_yes(payload)
    if explicit := [value for name, value in payload.items() if name in DECISIONS]:
        return all(map(_is_yes, explicit))
    if isinstance(listed := payload.get("decisions"), list):
        return bool(listed) and all(_says_no(each) is False for each in listed if isinstance(each, dict))
    return not _says_no(payload)


def _says_no(payload: dict[str, Any]) -> bool:
    """Return whether one of the members for verdicts, or the only member, is a no."""
    told = payload.values() if len(payload) == 1 else [payload[name] for name in _VERDICTS if name in payload]
    return any(each is False or (isinstance(each, str) and each.strip().lower() in _NO) for each in told)


def _is_yes(said: Any) -> bool:
    return said.strip().rstrip(".!。！").lower() in _YES if isinstance(said, str) else said is True


_ROLES = ("system", "developer", "user", "assistant", "tool")
_PARTS = get_args(Part)


def _list_of(kind: type | tuple[type, ...], given: object, place: str) -> list[Any]:
    """Return a list of these. Raises `TypeError` for anything else."""
    name = "Part" if isinstance(kind, tuple) else kind.__name__
    if not isinstance(given, list):
        raise TypeError(f"{place}: expected a string or a list of {name}, got {type(given).__name__}")
    for index, each in enumerate(given):
        if not isinstance(each, kind):
            raise TypeError(f"{place}[{index}]: expected a {name}, got {type(each).__name__}")
    return given


@dataclass(slots=True)
class Request:
    """One request for a run. A string as `messages` is one message of the user.

    `thread_id` is the conversation's id as the client knows it, None when its protocol has none. `extras` holds
    per dialect the top-level fields that only that dialect understands; a codec of the same dialect sends them on.
    `open_interrupts` are the questions that the client's copy of the conversation shows as unanswered. They count only
    if the bridge stores none.
    `reasoning_effort` is `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`, or a word of a backend.
    `reasoning_summary` is how the client wants to read the reasoning: `auto`, `concise`, `detailed`, `none` (not at
    all), or None if it says nothing. With `encrypted_reasoning` it also wants the opaque form, which it sends back.
    `logprobs` asks for the log probabilities of the answer's tokens, with so many alternatives for each.
    `shared` holds fields that several APIs have under one name and with one meaning, and that the model has no field
    for, such as `service_tier` or `logit_bias`; None when the client's protocol has no such fields.
    """

    messages: list[Message]
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    model: str | None = None
    thread_id: str | None = None
    run_id: str | None = None
    parent_run_id: str | None = None
    user_id: str | None = None
    stream: bool = True
    history: HistoryMode = HistoryMode.FULL
    sampling: Sampling = field(default_factory=Sampling)
    response_format: ResponseFormat | None = None
    reasoning_effort: str | None = None
    resume: list[Resume] = field(default_factory=list)
    state: Any = None
    context: list[dict[str, Any]] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    extras: Extras | None = None
    shared: dict[str, Any] | None = None
    open_interrupts: list[Interrupted] = field(default_factory=list)
    reasoning_summary: str | None = None
    encrypted_reasoning: bool = False
    logprobs: int | None = None

    if TYPE_CHECKING:  # what `dataclass` makes does not say that a string is taken, too

        def __init__(
            self,
            messages: list[Message] | str,
            tools: list[Tool] | None = None,
            tool_choice: ToolChoice | None = None,
            parallel_tool_calls: bool | None = None,
            model: str | None = None,
            thread_id: str | None = None,
            run_id: str | None = None,
            parent_run_id: str | None = None,
            user_id: str | None = None,
            stream: bool = True,
            history: HistoryMode = ...,
            sampling: Sampling = ...,
            response_format: ResponseFormat | None = None,
            reasoning_effort: str | None = None,
            resume: list[Resume] = ...,
            state: Any = None,
            context: list[dict[str, Any]] = ...,
            metadata: dict[str, Any] = ...,
            extras: Extras | None = None,
            shared: dict[str, Any] | None = None,
            open_interrupts: list[Interrupted] = ...,
            reasoning_summary: str | None = None,
            encrypted_reasoning: bool = False,
            logprobs: int | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        given: object = self.messages
        if isinstance(given, str):
            self.messages = [Message("user", [Text(given)])]

    def check(self) -> None:
        """Raise `TypeError` or `ValueError` for what a program has built and type checkers would refuse."""
        for index, message in enumerate(_list_of(Message, self.messages, "messages")):
            place = f"messages[{index}]"
            _list_of(_PARTS, message.parts, f"{place}.parts")
            if message.role not in _ROLES:
                raise ValueError(f"{place}.role: expected one of {', '.join(_ROLES)}, got {message.role!r}")

    def extra(self, dialect: str) -> dict[str, Any]:
        """Return the extras of `dialect`, its "notes" among them; an empty dict if there are none."""
        return (self.extras or {}).get(dialect) or {}

    def has_fields_of_others(self, dialect: str, known: Collection[str] = ()) -> bool:
        """Return whether the extras hold fields of a dialect other than `dialect`, except those that are `known`.

        "notes" holds the original form of a request and does not count.
        """
        for name, of_dialect in (self.extras or {}).items():
            if name == dialect:
                continue
            for key, value in of_dialect.items():
                if key != "notes" and key not in known and (any(value.values()) if isinstance(value, dict) else value):
                    return True
        return False

    @property
    def wants_reasoning(self) -> bool:
        """True if the client asks to read the reasoning, and does not turn it off."""
        return self.reasoning_summary not in (None, "none") and self.reasoning_effort != "none"

    def copy(self) -> Request:
        """Return a shallow copy. It is six times as fast as `dataclasses.replace`."""
        return Request(*_fields_of(self))


_fields_of = attrgetter(*(field.name for field in fields(Request)))
