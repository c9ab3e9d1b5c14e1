"""Questions of agents to people: requests for permission, and forms. What is asked, and what an answer means.

The ids of options are the agent's own. Their kinds are hints: one may occur twice, rejections may be missing, and
`allow_always` may allow much more than the call in question, so that nobody but the person chooses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from bridge.contract.optional.agents import PromptAnswer
from bridge.dialects.acp.wire import ALLOW_ALWAYS, ALLOW_ONCE, REJECT_ALWAYS, REJECT_ONCE, Wire
from bridge.model import Resume
from bridge.model.jsontext import dict_of, dicts_of, text_of

PERMISSION: Final = "session/request_permission"
FORM: Final = "elicitation/create"
CANCELLED: Final[Wire] = {"outcome": {"outcome": "cancelled"}}
DECLINED: Final[Wire] = {"action": "decline"}


def options_in(params: Wire) -> list[Wire]:
    """Return the options that can be chosen: those with an id, which is also the name of one without."""
    return [
        {"optionId": each["optionId"], "name": text_of(each.get("name")) or each["optionId"], "kind": each.get("kind")}
        for each in dicts_of(params.get("options"))
        if isinstance(each.get("optionId"), str)
    ]


def permission_payload(title: str, options: Sequence[Wire], content: list[Any]) -> Wire:
    """Return what a person is asked: the text, the options, what the call changes, the form of the answer."""
    names = ", ".join(each["name"] for each in options)
    message = f"{title}\n\nAnswer with one of: {names}." if options else title
    ids = [each["optionId"] for each in options]
    schema = {"type": "object", "properties": {"optionId": {"type": "string", "enum": ids}}, "required": ["optionId"]}
    return {
        "message": message,
        "title": title,
        "options": list(options),
        **({"content": content} if content else {}),
        "responseSchema": schema,
    }


def form_payload(params: Wire) -> Wire:
    """Return what a person is asked with a form."""
    schema = params.get("requestedSchema")
    message = text_of(params.get("message")) or "The agent asks for input."
    return {"message": message, **({"responseSchema": schema} if isinstance(schema, dict) else {})}


# ------------------------------------------------------------------ answers


def permission_answer(params: Wire, resume: Resume) -> PromptAnswer:
    """Return the answer that a person gave: an option by its id or name, a yes, or else a no."""
    options = options_in(params)
    named = _named(options, resume) if resume.decision == "resolved" else None
    agrees = resume.agrees and not _names_option(resume.payload)
    if named is not None and not (agrees and named["kind"] == ALLOW_ALWAYS):
        return _selected(named)  # a plain yes is not the name of an option that allows more
    return allowed(params) if agrees else rejected(params)


def allowed(params: Wire) -> PromptAnswer:
    """Return the answer that allows the call, this once; a rejection if the agent offers no such option."""
    option = _first(options_in(params), ALLOW_ONCE)
    return rejected(params) if option is None else _selected(option)


def rejected(params: Wire) -> PromptAnswer:
    """Return the answer that rejects the call. If the agent offers no rejection, the prompt is canceled."""
    options = options_in(params)
    option = _first(options, REJECT_ONCE) or _first(options, REJECT_ALWAYS)
    return PromptAnswer(CANCELLED, cancels=True) if option is None else _selected(option)


def is_rejection(params: Wire, result: Wire) -> bool:
    """Return whether an answer allows nothing."""
    chosen = dict_of(result.get("outcome")).get("optionId")
    kinds = {each["optionId"]: each["kind"] for each in options_in(params)}
    return kinds.get(chosen) in (None, REJECT_ONCE, REJECT_ALWAYS)


def form_answer(params: Wire, resume: Resume) -> PromptAnswer:
    """Return a filled form; declined if the person refuses, or the answer has not the form of one."""
    payload = resume.payload
    fields = dict_of(dict_of(params.get("requestedSchema")).get("properties"))
    if isinstance(payload, dict) and "content" in payload and "action" in payload and "content" not in fields:
        payload = payload["content"]
    if resume.decision != "resolved":
        return PromptAnswer(DECLINED)
    if not isinstance(payload, dict) and payload is not None and len(fields) == 1:
        payload = {next(iter(fields)): payload}
    if not isinstance(payload, dict):
        return PromptAnswer(DECLINED if payload is not None or fields else {"action": "accept", "content": {}})
    return PromptAnswer({"action": "accept", "content": payload})


def _named(options: Sequence[Wire], resume: Resume) -> Wire | None:
    said = resume.payload
    if _names_option(said):
        said = _option_id(said)
        return next((each for each in options if each["optionId"] == said), None)
    if not isinstance(said, str):
        return None
    exact = [each for each in options if each["optionId"] == said]
    word = said.strip().rstrip(".!").strip().lower()
    found = exact or [each for each in options if word in (each["optionId"].lower(), each["name"].strip().lower())]
    return found[0] if len(found) == 1 else None


def _names_option(payload: object) -> bool:
    return _option_id(payload) is not None


def _option_id(payload: object) -> Any:
    wire = dict_of(payload)
    return wire.get("optionId", dict_of(wire.get("outcome")).get("optionId"))


def _first(options: Sequence[Wire], kind: str) -> Wire | None:
    return next((each for each in options if each["kind"] == kind), None)


def _selected(option: Wire) -> PromptAnswer:
    return PromptAnswer({"outcome": {"outcome": "selected", "optionId": option["optionId"]}})
