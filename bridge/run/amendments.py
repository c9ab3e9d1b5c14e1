"""Second tries: what a backend says when it refuses a request, and what is changed for one more try.

Models behind one API differ in the parameters that they take, and only the refusal says so. Each row of `AMENDMENTS`
names what the refusal is about, changes the request or its body, and has the report that it came from. A row for a body
is remembered for the backend and the model, so that later requests are amended before they are sent. What is amended is
named as lost, and logged once for each backend and model. Passthrough routes are never amended.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bridge.contract import Feature, Losses
from bridge.contract.demands import SchemaDemands
from bridge.errors import ErrorCode, Failure
from bridge.model import Request
from bridge.model.jsontext import dict_of, dumps, read_json
from bridge.translation.policies.signatures import without_signatures
from bridge.translation.schemas import SchemaWriter

log = logging.getLogger("bridge.run")

Body = dict[str, Any]

MOST_TRIES = 4
"""Amended tries of one request."""
_MOST_MODELS = 256
"""Models of one backend whose amendments are remembered; clients may name any."""
_LONGEST = 4096
"""Characters of a refusal that are read."""


@dataclass(frozen=True, slots=True)
class ParameterRefusal:
    """What a refusal says: its words in lower case, and the parameters that it names, each once, likeliest first."""

    words: str
    names: tuple[str, ...]

    @property
    def is_unsupported(self) -> bool:
        """Return whether the backend does not take a parameter at all, whatever its value is."""
        return _UNSUPPORTED.search(self.words) is not None


@dataclass(frozen=True, slots=True)
class Amendment:
    """One row. `change` changes a body in place and returns whether it did; `feature` is what is lost by that."""

    what: str
    applies: Callable[[ParameterRefusal], bool]
    change: Callable[[Body], bool]
    feature: Feature
    source: str


_UNSUPPORTED = re.compile(
    r"unsupported|(?:not|n't|longer) (?:be )?(?:support|allow|permit|accept|recogni|available|compatible)"
    r"|unrecogni[sz]ed"
    r"|unknown (?:parameter|field|argument|name|variant|request)|unexpected (?:keyword|field|parameter|role|argument)"
    r"|extra (?:inputs|fields)|extra_forbidden|deprecated|only the default|cannot both|unavailable"
    r"|only (?:be )?(?:allowed|supported|set)|no field named|unknown_parameter",
)
_NAMES = (
    re.compile(r"\b([a-z]{1,20}_[a-z_]{1,20}|temperature|verbosity|logprobs)\b"),
    re.compile(r"\b(?:parameter|argument|field|supplied|this model):? ([a-z_]{1,40})"),
    re.compile(r"\b([a-z_]{1,40}) (?:parameter|argument|field)\b"),
)
_QUOTED = re.compile(r"[`'\"]([a-z_]{1,40})(?:[.\[][^`'\"]{0,80})?[`'\"]")
_PATH = re.compile(r"[a-zA-Z_]{1,40}")


_THINKING = re.compile(r"support(?:ed|s)? (?:for )?(?:thinking|reasoning)\b|(?:thinking|reasoning) is not supported")


def _names_of(failure: Failure, words: str) -> Iterator[str]:
    """The parameters that a refusal names: in its own field, else in quotes, else among its words."""
    if path := [step.lower() for step in _PATH.findall((failure.param or "")[:200]) if step != "body"]:
        yield from path[:2]
        return
    yield from _QUOTED.findall(words)
    for pattern in _NAMES:
        yield from pattern.findall(words)


def read(failure: Failure) -> ParameterRefusal | None:
    """Return what a refused request is refused for; None for any other failure."""
    if failure.code not in (ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED):
        return None
    words = f"{failure.message[:_LONGEST]} {failure.backend_code or ''} {failure.param or ''}"[: 2 * _LONGEST].lower()
    names = (_SPELLINGS.get(name.replace("_", ""), name) for name in _names_of(failure, words))
    return ParameterRefusal(words, tuple(dict.fromkeys(names)))


# ---------------------------------------------------------------------- changes of bodies


def _renamed(old: str, new: str) -> Callable[[Body], bool]:
    def change(body: Body) -> bool:
        if old not in body:
            return False
        body.setdefault(new, body.pop(old))
        return True

    return change


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.title, rest))


def _without(name: str, inside: str | None = None) -> Callable[[Body], bool]:
    def change(body: Body) -> bool:
        if inside is None and name in body:
            return body.pop(name) is not None
        if inside is None:
            return _without(_camel(name), "generationConfig")(body) if "generationConfig" in body else False
        inner = dict_of(body.get(inside))
        if name not in inner:
            return False
        body[inside] = {key: value for key, value in inner.items() if key != name}
        if not body[inside]:
            del body[inside]
        return True

    return change


def _without_thinking(body: Body) -> bool:
    """Leave out what asks a model to think, in the words of any API."""
    changes = (
        _without("reasoning_effort"), _without("reasoning"), _without("thinking"),
        _without("effort", "output_config"), _without("thinkingConfig", "generationConfig"),
    )  # fmt: skip
    done = [change(body) for change in changes]
    return any(done)


def _thinking(refusal: ParameterRefusal) -> bool:
    return refusal.is_unsupported and _THINKING.search(refusal.words) is not None


def _no_effort(body: Body) -> bool:
    if body.get("reasoning_effort") in (None, "none"):
        return False
    body["reasoning_effort"] = "none"
    return True


def _plain_json(body: Body) -> bool:
    if dict_of(body.get("response_format")).get("type") != "json_schema":
        return False
    body["response_format"] = {"type": "json_object"}
    return True


def _system_for_developer(body: Body) -> bool:
    is_changed = False
    for message in body["messages"] if isinstance(body.get("messages"), list) else ():
        if isinstance(message, dict) and message.get("role") == "developer":
            message["role"] = "system"
            is_changed = True
    return is_changed


def _plain_schemas(body: Body) -> bool:
    demands = SchemaDemands(object_root=True, root_properties=True, plain_root=True)
    is_changed = False
    for tool in body["tools"] if isinstance(body.get("tools"), list) else ():
        holder = dict_of(tool)
        holder = holder["function"] if isinstance(holder.get("function"), dict) else holder
        for key in ("parameters", "input_schema"):
            given = holder.get(key)
            if isinstance(given, dict) and (written := SchemaWriter(demands).write(given)) is not given:
                holder[key] = written
                is_changed = True
    return is_changed


def _root_of_schema(refusal: ParameterRefusal) -> bool:
    return "top level" in refusal.words and any(word in refusal.words for word in ("anyof", "oneof", "allof"))


def _names(name: str, *words: str) -> Callable[[ParameterRefusal], bool]:
    """The refusal is about this parameter first, and has these words."""

    def applies(refusal: ParameterRefusal) -> bool:
        named = [n for n in refusal.names if n in _PARAMETERS]
        return bool(named) and named[0] == name and refusal.is_unsupported and all(w in refusal.words for w in words)

    return applies


def _both(refusal: ParameterRefusal) -> bool:
    return "temperature" in refusal.words and "top_p" in refusal.words and "both" in refusal.words


def _developer(refusal: ParameterRefusal) -> bool:
    return "developer" in refusal.words and "role" in refusal.words


def _drops(name: str, feature: Feature, source: str, *, inside: str | None = None, path: str = "") -> Amendment:
    return Amendment(f"{name} is left out", _names(path or name), _without(name, inside), feature, source)


_OPTIONAL: dict[str, Feature] = {
    **dict.fromkeys(
        ("temperature", "top_p", "top_k", "seed", "stop", "n", "presence_penalty", "frequency_penalty", "logprobs",
         "top_logprobs", "logit_bias"),
        Feature.SAMPLING,
    ),
    "stream_options": Feature.USAGE,
    "parallel_tool_calls": Feature.PARALLEL_TOOL_CALLS,
    "reasoning_effort": Feature.REASONING_EFFORT,
    "response_format": Feature.RESPONSE_FORMAT,
    "metadata": Feature.METADATA,
    "user": Feature.USER_ID,
    **dict.fromkeys(
        ("store", "service_tier", "verbosity", "prompt_cache_key", "prompt_cache_retention", "safety_identifier"),
        Feature.EXTRAS,
    ),
}  # fmt: skip
"""Parameters without which a request means the same, or nearly so -> what is lost without them."""

_PARAMETERS = frozenset(_OPTIONAL) | {"max_tokens", "max_completion_tokens", "reasoning", "effort", "text"}

_SPELLINGS = {name.replace("_", ""): name for name in _PARAMETERS}
"""Some servers name a parameter in camel case: `presencePenalty`, `reasoningEffort` (xAI)."""

AMENDMENTS: tuple[Amendment, ...] = (
    Amendment(
        "max_completion_tokens is sent for max_tokens",
        _names("max_tokens"),
        _renamed("max_tokens", "max_completion_tokens"),
        Feature.SAMPLING,
        "BerriAI/litellm#13381, vercel/ai#7863: reasoning models of OpenAI",
    ),
    Amendment(
        "max_tokens is sent for max_completion_tokens",
        _names("max_completion_tokens"),
        _renamed("max_completion_tokens", "max_tokens"),
        Feature.SAMPLING,
        "servers from before 2024-09, which know max_tokens alone",
    ),
    Amendment(
        "top_p is left out beside temperature",
        _both,
        _without("top_p"),
        Feature.SAMPLING,
        "jekalmin/extended_openai_conversation#428: Claude 4.1 and later",
    ),
    Amendment(
        "reasoning_effort none is sent beside tools",
        lambda refusal: "reasoning_effort" in refusal.names and "none" in refusal.words and "tools" in refusal.words,
        _no_effort,
        Feature.REASONING_EFFORT,
        "agentgateway/agentgateway#2501, danny-avila/LibreChat#14231: GPT-5.4 and later over chat completions",
    ),
    Amendment(
        "the choices at the root of a tool's schema are merged",
        _root_of_schema,
        _plain_schemas,
        Feature.TOOLS,
        "OpenAI, \"schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf' at the top level\"",
    ),
    Amendment(
        "response_format json_object is sent for a schema",
        _names("response_format"),
        _plain_json,
        Feature.RESPONSE_FORMAT,
        "DeepSeek, \"This response_format type is unavailable now\"",
    ),
    _drops("effort", Feature.REASONING_EFFORT, "OpenAI's chat models", inside="reasoning", path="reasoning"),
    _drops("effort", Feature.REASONING_EFFORT, "Anthropic's models without it", inside="output_config", path="effort"),
    _drops("verbosity", Feature.EXTRAS, "OpenAI's models before GPT-5", inside="text", path="text"),
    Amendment(
        "the request to think is left out",
        _thinking,
        _without_thinking,
        Feature.REASONING_EFFORT,
        "Ollama, \"does not support thinking\"; Google, \"thinking is not supported by this model\"",
    ),
    Amendment(
        "the role system is sent for developer",
        _developer,
        _system_for_developer,
        Feature.SYSTEM,
        "DeepSeek, \"unknown variant `developer`\"; templates of open models, \"Unexpected role\"",
    ),
    *(
        _drops(name, feature, "OpenAI, \"Unsupported parameter\"; FastAPI servers, \"Extra inputs are not permitted\"")
        for name, feature in _OPTIONAL.items()
    ),
)  # fmt: skip
"""What a refusal says -> what is changed, first row first."""


def rows_for(failure: Failure, known: Sequence[Amendment] = ()) -> list[Amendment]:
    """Return the rows that may answer a refusal, without those that the refused request had already."""
    refusal = read(failure)
    return [] if refusal is None else [row for row in AMENDMENTS if row not in known and row.applies(refusal)]


def amended_body(body: bytes, rows: Sequence[Amendment], lost: Losses) -> tuple[bytes, list[Amendment]]:
    """Return a JSON body after these rows, and those that changed it."""
    value = read_json(body)
    if not isinstance(value, dict):
        return body, []
    changed = [row for row in rows if row.change(value)]
    for row in changed:
        lost.add(row.feature, f"{row.what}, as the backend demands")
    return (dumps(value) if changed else body), changed


def amended_request(request: Request, failure: Failure, lost: Losses) -> Request | None:
    """Return the request without what only this conversation has and the backend refused; None if it is not that.

    Signatures of others: such a change is not remembered.
    """
    return without_signatures(request, failure, lost)


class Remembered:
    """The amendments that the models of one backend need.

    Attributes:
        models: The amendments of each model that needs some.
    """

    def __init__(self, backend: str) -> None:
        self.models: OrderedDict[str, tuple[Amendment, ...]] = OrderedDict()
        self._backend = backend

    def rows(self, model: str | None) -> tuple[Amendment, ...]:
        """Return what every request for this model needs."""
        return self.models.get(model or "", ())

    def add(self, model: str | None, row: Amendment, failure: Failure) -> None:
        """Remember a row for a model, and log it."""
        name = model or ""
        known = self.models.pop(name, ())
        if row not in known:
            known = (*known, row)
            said = failure.message[:200]
            log.warning("backend %s, model %s: %s, because it answered: %s", self._backend, name or "-", row.what, said)
        self.models[name] = known
        if len(self.models) > _MOST_MODELS:
            self.models.popitem(last=False)
