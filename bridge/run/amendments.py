"""Second tries: what a backend says when it refuses a request, and what is changed for one more try.

Models behind one API differ in the parameters that they take, and only the refusal says so. Each row of `AMENDMENTS`
names what the refusal is about, changes the request or its body, and has the report that it came from. A row for a body
is remembered for the backend, the model and the owner, so that later requests are amended before they are sent: a
refusal repeats words of the client, and what one client can have said changes nothing for others. What is amended is
named as lost, and logged once for each backend and model. Passthrough routes are never amended.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bridge.contract import Feature, Losses
from bridge.contract.demands import SchemaDemands
from bridge.errors import ErrorCode, Failure
from bridge.model import Request
from bridge.model.jsontext import dict_of, dicts_of, dumps, read_json
from bridge.run.continuation import GO_ON
from bridge.run.plain_tools import NO_FUNCTION, plain_tools
from bridge.run.templates import (
    EMPTY_TEXT,
    NO_SYSTEM,
    NOT_FIRST,
    NOT_IN_TURNS,
    OF_TEMPLATE,
    in_turns,
    one_system_message,
    system_as_user,
    without_empty_texts,
)
from bridge.run.token_limits import REFUSED_AS, lower_limit
from bridge.run.unknown_fields import refused_betas, unknown_fields
from bridge.translation.policies.signatures import without_signatures
from bridge.translation.schemas import SchemaWriter

log = logging.getLogger("bridge.run")

Body = dict[str, Any]

MOST_TRIES = 4
"""Amended tries of one request."""
_MOST_MODELS = 1024
"""Models of owners at one backend whose amendments are remembered; clients may name any."""
_MOST_ROWS = 32
"""Amendments that are remembered for one model of an owner; a refusal may name any field."""
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
        return _UNSUPPORTED.search(_QUOTED_NAME.sub("", self.words)) is not None


@dataclass(frozen=True, slots=True)
class Amendment:
    """One row. `change` changes a body in place and returns whether it did; `feature` is what is lost by that.

    `lasts`: later requests for the model need it as well; else it depends on the request. `of_headers`: `change` is of
    the client's headers that are sent on, not of the body.
    """

    what: str
    applies: Callable[[ParameterRefusal], bool]
    change: Callable[[Body], bool]
    feature: Feature
    source: str
    lasts: bool = True
    of_headers: bool = False


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
_QUOTED_NAME = re.compile(r"(?<!\w)([`'\"])[\w.\[\]-]{1,80}\1(?!\w)")
"""A name in quotes, which may be the client's: a schema has a property called 'deprecated'."""
_PATH = re.compile(r"[a-zA-Z_]{1,40}")


_THINKING = re.compile(
    r"support(?:ed|s)? (?:for )?(?:thinking|reasoning)\b|(?:thinking|reasoning) is not supported"
    r"|thinking[ _.](?:level|budget|type)[^,;]{0,40} is not supported"
)
_ALWAYS_THINKS = re.compile(
    r"only works in thinking mode|can.?(?:no)?t (?:be )?(?:disabled?|turned off)"
    r"|(?:set(?:ting)?|setting of) (?:the )?thinking.?budget to 0|budget (?:cannot be set to )?0\b"
)


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
    if failure.code not in (ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED) and not _is_of_template(failure):
        return None
    words = f"{failure.message[:_LONGEST]} {failure.backend_code or ''} {failure.param or ''}"[: 2 * _LONGEST].lower()
    names = (_SPELLINGS.get(name.replace("_", ""), name) for name in _names_of(failure, words))
    return ParameterRefusal(words, tuple(dict.fromkeys(names)))


_NUMBERS = re.compile(r"[0-9a-f-]{8,}|[0-9]+")


def is_same_refusal(one: Failure, other: Failure) -> bool:
    """Return whether two refusals have the same words, whatever numbers and ids of requests they name."""
    words = [_NUMBERS.sub("", each.message[:_LONGEST]) for each in (one, other)]
    return words[0] == words[1]


def _is_of_template(failure: Failure) -> bool:
    """Return whether the chat template of a model refused the messages, which some servers call their own failure."""
    return failure.code is ErrorCode.BACKEND_ERROR and OF_TEMPLATE.search(failure.message[:_LONGEST]) is not None


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


def _always_thinks(refusal: ParameterRefusal) -> bool:
    return "thinking" in refusal.words and _ALWAYS_THINKS.search(refusal.words) is not None


def _not_turned_off(body: Body) -> bool:
    """Leave out what turns thinking off, in the words of any API."""
    config = dict_of(dict_of(body.get("generationConfig")).get("thinkingConfig"))
    changes = [
        body.get("reasoning_effort") == "none" and _without("reasoning_effort")(body),
        dict_of(body.get("thinking")).get("type") == "disabled" and _without("thinking")(body),
        body.get("enable_thinking") is False and _without("enable_thinking")(body),
        config.get("thinkingBudget") == 0 and _without("thinkingConfig", "generationConfig")(body),
    ]
    return any(changes)


_THINKS_IN_STREAMS = re.compile(
    r"enable[_ ]thinking[^\n]{0,40}(?: false for non-?streaming| support when [`'\"]?stream=false|设置为false)"
)


def _not_thinking(body: Body) -> bool:
    """Turn off thinking where the answer comes in one piece."""
    if body.get("stream") or body.get("enable_thinking") is False:
        return False
    body["enable_thinking"] = False
    return True


def _no_effort(body: Body) -> bool:
    if body.get("reasoning_effort") in (None, "none"):
        return False
    body["reasoning_effort"] = "none"
    return True


_ENDS_OTHERWISE = re.compile(
    r"assistant message prefill|must end with a user (?:message|role|turn)|expected last role user"
    r"|ends with a user role"
)


def _asked_to_continue(body: Body) -> bool:
    """Ask for the continuation of the last message, which is the assistant's."""
    for name, role, field, text in (
        ("messages", "assistant", "content", GO_ON),
        ("contents", "model", "parts", [{"text": GO_ON}]),
    ):
        messages = body.get(name)
        if not isinstance(messages, list) or not messages:
            continue
        last = dict_of(messages[-1])
        if last.get("role") == role and not last.get("tool_calls"):
            body[name] = [*messages, {"role": "user", field: text}]
            return True
    return False


_BESIDE_TOOLS = re.compile(r"(?:function calling|tool use|tools?) with a response mime.?type")


def _without_form(body: Body) -> bool:
    names = ("responseMimeType", "responseSchema", "responseJsonSchema")
    changes = [_without(name, "generationConfig")(body) for name in names]
    return any([*changes, _without("response_format")(body)])


_UNFORCED = re.compile(
    r"(?:not|n't) support (?:this |being set to |the )?(?:tool_choice|required)"
    r"|tool_choice[^\n]{0,60} incompatible with thinking"
    r"|tool_choice[^\n]{0,60}(?:not|n't) support|tool_choice forces tool use|only [`'\"]?auto[`'\"]? is supported"
)


def _forced_choice(refusal: ParameterRefusal) -> bool:
    return "tool_choice" in refusal.words and _UNFORCED.search(refusal.words) is not None


def _choice_of_the_model(body: Body) -> bool:
    """Let the model choose whether it calls a tool, and which."""
    choice = body.get("tool_choice")
    kind = dict_of(choice).get("type")
    if choice == "required" or kind in ("function", "custom", "allowed_tools"):
        body["tool_choice"] = "auto"
    elif kind in ("any", "tool"):
        body["tool_choice"] = {**{k: v for k, v in dict_of(choice).items() if k != "name"}, "type": "auto"}
    else:
        return False
    return True


_STRICT = re.compile(
    r"'(?:additionalproperties|required)' is required to be supplied|too many (?:strict tools|optional parameters)"
    r"|'additionalproperties' must be (?:explicitly )?(?:set to )?false|\bin context=[^\n]{0,400} is not permitted"
)
_FORMATS = ("response_format", "text.format", "output_format", "output_config")


def _not_strict(refusal: ParameterRefusal) -> bool:
    return _STRICT.search(refusal.words) is not None and not any(name in refusal.words for name in _FORMATS)


def _format_not_strict(refusal: ParameterRefusal) -> bool:
    return _STRICT.search(refusal.words) is not None and any(name in refusal.words for name in _FORMATS[:2])


def _loose(holder: object) -> bool:
    if not isinstance(holder, dict) or holder.get("strict") is not True:
        return False
    holder["strict"] = False
    return True


def _loose_tools(body: Body) -> bool:
    done = [_loose(tool) or _loose(tool.get("function")) for tool in dicts_of(body.get("tools"))]
    return any(done)


def _loose_format(body: Body) -> bool:
    done = [
        _loose(dict_of(body.get("response_format")).get("json_schema")),
        _loose(dict_of(body.get("text")).get("format")),
    ]
    return any(done)


_SHORT_IDS = re.compile(r"a-z, a-z, 0-9, with a length of 9")
_SHORT_ID = re.compile(r"[a-zA-Z0-9]{9}")


def _short_id(call_id: str) -> str:
    if _SHORT_ID.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode(errors="surrogatepass")).hexdigest()[:9]


def _short_ids(body: Body) -> bool:
    """Give calls and their results ids of nine letters and digits."""
    is_changed = False
    for message in dicts_of(body.get("messages")):
        holders = [(message, "tool_call_id"), *((call, "id") for call in dicts_of(message.get("tool_calls")))]
        for holder, name in holders:
            given = holder.get(name)
            if isinstance(given, str) and (short := _short_id(given)) != given:
                holder[name] = short
                is_changed = True
    return is_changed


def _plain_json(body: Body) -> bool:
    if dict_of(body.get("response_format")).get("type") != "json_schema":
        return False
    body["response_format"] = {"type": "json_object"}
    return True


def _system_for_developer(body: Body) -> bool:
    is_changed = False
    for message in (*dicts_of(body.get("messages")), *dicts_of(body.get("input"))):
        if message.get("role") == "developer":
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


def _says(pattern: re.Pattern[str]) -> Callable[[ParameterRefusal], bool]:
    """The refusal has words of this pattern."""
    return lambda refusal: pattern.search(refusal.words) is not None


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
        "all tools are sent as functions, or left out",
        _says(NO_FUNCTION),
        plain_tools,
        Feature.TOOLS,
        "ggml-org/llama.cpp#20156, openai/codex#10635: llama.cpp, \"'type' of tool must be 'function'\"",
    ),
    Amendment(
        "tools are not strict",
        _not_strict,
        _loose_tools,
        Feature.TOOLS,
        "vercel/ai#20681, anomalyco/opencode#13737: the rules for strict schemas differ between APIs",
        lasts=False,
    ),
    Amendment(
        "the schema of the answer is not strict",
        _format_not_strict,
        _loose_format,
        Feature.RESPONSE_FORMAT,
        "OpenAI, \"Invalid schema for response_format\"",
        lasts=False,
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
        "the form of the answer is left out beside tools",
        _says(_BESIDE_TOOLS),
        _without_form,
        Feature.RESPONSE_FORMAT,
        "googleapis/python-genai#867, openai/openai-agents-python#656: Gemini 2.5 and earlier",
    ),
    Amendment(
        "the model may choose whether it calls a tool",
        _forced_choice,
        _choice_of_the_model,
        Feature.TOOL_CHOICE,
        "deepseek-ai/DeepSeek-V3#1376, cloudwego/eino#994: models that think, such as those of DeepSeek, Kimi and Qwen",
        lasts=False,
    ),
    Amendment(
        "ids of calls have nine letters and digits",
        _says(_SHORT_IDS),
        _short_ids,
        Feature.TOOL_HISTORY,
        "sst/opencode#1680, nearai/ironclaw#1241: Mistral",
    ),
    Amendment(
        "thinking is turned off for an answer in one piece",
        _says(_THINKS_IN_STREAMS),
        _not_thinking,
        Feature.REASONING_EFFORT,
        "QuantumNous/new-api#1109, musistudio/claude-code-router#948: Qwen 3 at DashScope and ModelScope",
    ),
    Amendment(
        "thinking is not turned off",
        _always_thinks,
        _not_turned_off,
        Feature.REASONING_EFFORT,
        "vercel/ai#8027, earendil-works/pi#3460: Gemini 2.5 Pro, \"Budget 0 is invalid\"",
    ),
    Amendment(
        "a message of the user asks to continue the last one",
        _says(_ENDS_OTHERWISE),
        _asked_to_continue,
        Feature.EXTRAS,
        "ericc-ch/copilot-api#261, aj47/SpeakMCP#1037: Claude 4.6 and later; Mistral",
    ),
    Amendment(
        "system messages are sent as one, before all others",
        _says(NOT_FIRST),
        one_system_message,
        Feature.SYSTEM,
        "ggml-org/llama.cpp#20733, lemonade-sdk/lemonade#2674: Qwen 3.5 and later",
    ),
    Amendment(
        "system messages are sent as words of the user",
        _says(NO_SYSTEM),
        system_as_user,
        Feature.SYSTEM,
        "huggingface/chat-ui#1386: Gemma; Google, \"Developer instruction is not enabled\"",
    ),
    Amendment(
        "messages of one role in a row are joined",
        _says(NOT_IN_TURNS),
        in_turns,
        Feature.PART_BORDERS,
        "google/adk-python#1373: Gemma; SWE-agent/mini-swe-agent#759: Devstral",
    ),
    Amendment(
        "empty texts are left out",
        _says(EMPTY_TEXT),
        without_empty_texts,
        Feature.PART_BORDERS,
        "NousResearch/hermes-agent#11929, farion1231/cc-switch#7373: gateways to Claude; Moonshot AI",
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
    rows = [] if refusal is None else [row for row in AMENDMENTS if row.applies(refusal)]
    return [row for row in (*rows, *_rows_of_words(failure)) if row not in known]


def _rows_of_words(failure: Failure) -> Iterator[Amendment]:
    """The rows whose change depends on the words of the refusal: a limit that is too large, fields that are unknown."""
    if failure.code not in REFUSED_AS:
        return
    words = f"{failure.message[:_LONGEST]} {failure.param or ''}".lower()
    limit = lower_limit(words, is_full=failure.code is ErrorCode.CONTEXT_LENGTH)
    if limit is not None:
        yield Amendment(_LOWER, _by_words, limit, Feature.SAMPLING, _LARGE_LIMITS, lasts=limit.lasts)
    for field in unknown_fields(words):
        yield Amendment(field.what, _by_words, field, field.feature, _UNKNOWN_FIELDS)
    if (betas := refused_betas(words)) is not None:
        one = Amendment(betas.what, _by_words, betas, Feature.EXTRAS, _UNKNOWN_BETAS, of_headers=True)
        yield one if betas.names else replace(one, lasts=False)  # one client's value is no reason to drop all of others


_LOWER = "the limit of the answer is lowered"
_LARGE_LIMITS = (
    "claude-code-best/claude-code#272: vLLM; router-for-me/CLIProxyAPI#2758: DeepSeek; Gitlawb/openclaude#331: Doubao"
)
_UNKNOWN_FIELDS = (
    "anthropics/claude-code#21612: Vertex AI; decolua/9router#1468, can1357/oh-my-pi#826: Anthropic's API and others"
)
_UNKNOWN_BETAS = 'anthropics/claude-code#34802: Vertex AI; anthropics/claude-code#82549: Bedrock, "invalid beta flag"'


def _by_words(refusal: ParameterRefusal) -> bool:
    return True


def amended_body(
    body: bytes, rows: Sequence[Amendment], lost: Losses, headers: dict[str, str] | None = None
) -> tuple[bytes, list[Amendment]]:
    """Return a JSON body after these rows, and those that changed it or `headers`, the client's that are sent on."""
    value = read_json(body)
    if not isinstance(value, dict):
        return body, []
    sent_on = {} if headers is None else headers
    changed = [row for row in rows if row.change(sent_on if row.of_headers else value)]
    for row in changed:
        lost.add(row.feature, f"{row.what}, as the backend demands")
    is_other = any(not row.of_headers for row in changed)
    return (dumps(value) if is_other else body), changed


def amended_request(request: Request, failure: Failure, lost: Losses) -> Request | None:
    """Return the request without what only this conversation has and the backend refused; None if it is not that.

    Signatures of others: such a change is not remembered.
    """
    return without_signatures(request, failure, lost)


class Remembered:
    """The amendments that the models of one backend need.

    Attributes:
        models: The amendments of each owner and model that needs some.
    """

    def __init__(self, backend: str) -> None:
        self.models: OrderedDict[tuple[str, str | None], tuple[Amendment, ...]] = OrderedDict()
        self._backend = backend
        self._logged: OrderedDict[tuple[str | None, str], None] = OrderedDict()

    def rows(self, owner: str, model: str | None) -> tuple[Amendment, ...]:
        """Return what every request of this owner for this model needs."""
        return self.models.get((owner, model), ())

    def add(self, owner: str, model: str | None, row: Amendment, failure: Failure) -> None:
        """Remember a row for a model, and log it."""
        known = self.models.pop((owner, model), ())
        if row not in known:
            known = (*(each for each in known if each.what != row.what), row)[-_MOST_ROWS:]
            self._log(model, row, failure)
        self.models[owner, model] = known
        if len(self.models) > _MOST_MODELS:
            self.models.popitem(last=False)

    def _log(self, model: str | None, row: Amendment, failure: Failure) -> None:
        if (model, row.what) in self._logged:
            return  # another owner's request needed it, too
        self._logged[model, row.what] = None
        if len(self._logged) > _MOST_MODELS:
            self._logged.popitem(last=False)
        said = failure.message[:200]
        log.warning("backend %s, model %s: %s, because it answered: %s", self._backend, model or "-", row.what, said)
