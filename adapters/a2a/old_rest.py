"""Objects of 0.3 over HTTP+JSON <-> objects of 1.0 (docs/dialects/a2a.md).

They are the JSON form of protobuf messages, unlike those of 0.3 over JSON-RPC; a field may have either of two names.
The rest of the dialect reads and writes the objects of 1.0. Values of a wrong type are kept, and refused where they are
read.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable

from bridge.dialects.a2a.wire import DATA_COMPAT, Spelled, Wire, camel_keys
from bridge.model.jsontext import dict_of

_CANCELED, _CANCELLED = "TASK_STATE_CANCELED", "TASK_STATE_CANCELLED"
_Change = Callable[[Wire], Wire]
_BASE64_TEXT = re.compile(rb"[A-Za-z0-9+/\-_]+={0,2}")


class OldRest(Spelled):
    """Parameters in the form of 1.0; errors name their fields as the client's body does."""

    __slots__ = ()

    def at(self, name: str) -> str:
        return super().at("content" if name == "parts" else name)


# ------------------------------------------------------------------ requests


def read_params(body: Wire) -> Wire:
    """Return the parameters of a message in the form of 1.0."""
    params = _changed(body, message=_read_message, request=_read_message)
    if "request" in params:
        params["message"] = params.pop("request")
    return params


def write_params(params: Wire) -> Wire:
    """Return the parameters of a message, as 1.0 has them, in the form of 0.3."""
    return {**params, "message": _write_message(params["message"])}


# ------------------------------------------------------------------ answers


def read_result(value: Wire) -> Wire:
    """Return a task, or the one object in an answer or an event, in the form of 1.0."""
    result = dict(camel_keys(value))
    if "msg" in result:
        result["message"] = result.pop("msg")
    return _converted(result, _read_message, _read_status, _read_part)


def write_result(value: Wire) -> Wire:
    """Return the form in 0.3 of a task, or of the one object in an answer or an event; anything else unchanged."""
    return _converted(value, _write_message, _write_status, _write_part)


def _converted(value: Wire, message: _Change, status: _Change, part: _Change) -> Wire:
    """Return the object with the messages, the statuses and the parts in it converted."""

    def artifact(said: Wire) -> Wire:
        return _changed(said, parts=part)

    def task(said: Wire) -> Wire:
        return _changed(said, status=status, artifacts=artifact, history=message)

    if "status" in value and "id" in value:
        return task(value)
    return _changed(
        value,
        message=message,
        task=task,
        statusUpdate=lambda said: _changed(said, status=status),
        artifactUpdate=lambda said: _changed(said, artifact=artifact),
    )


def _changed(value: Wire, **changes: _Change) -> Wire:
    """Return the object with these fields changed: the object in each, or the objects of its list."""
    out = dict(camel_keys(value))
    for name, change in changes.items():
        each = out.get(name)
        if isinstance(each, dict):
            out[name] = change(each)
        elif isinstance(each, list):
            out[name] = [change(one) if isinstance(one, dict) else one for one in each]
    return out


def _read_message(value: Wire) -> Wire:
    message = _changed(value, content=_read_part, parts=_read_part)
    if "content" in message:
        message["parts"] = message.pop("content")
    return message


def _write_message(value: Wire) -> Wire:
    message = _changed(value, parts=_write_part)
    return {"content" if name == "parts" else name: each for name, each in message.items()}


def _read_status(value: Wire) -> Wire:
    status = _changed(value, message=_read_message, update=_read_message)
    if "update" in status:
        status["message"] = status.pop("update")
    return {**status, "state": _CANCELED} if status.get("state") == _CANCELLED else status


def _write_status(value: Wire) -> Wire:
    status = _changed(value, message=_write_message)
    return {**status, "state": _CANCELLED} if status.get("state") == _CANCELED else status


# ------------------------------------------------------------------ parts


def _read_part(value: Wire) -> Wire:
    part = dict(camel_keys(value))
    if isinstance(part.get("data"), dict) and "data" in part["data"]:
        part["data"] = part["data"]["data"]
    if not isinstance(part.get("file"), dict):
        return part
    file = camel_keys(part.pop("file"))
    content = {"url": file.get("fileWithUri")} if file.get("fileWithBytes") is None else {}
    if isinstance(file.get("fileWithBytes"), str):
        content = {"raw": _text_in(file["fileWithBytes"])}
    given = {**content, "mediaType": file.get("mimeType"), "filename": file.get("name")}
    return {**part, **{name: each for name, each in given.items() if each not in (None, "")}}


def _write_part(value: Wire) -> Wire:
    part: Wire = {"metadata": value["metadata"]} if value.get("metadata") else {}
    if "text" in value:
        return {"text": value["text"], **part}
    if "data" in value:
        data = value["data"]
        if not isinstance(data, dict):
            data, part = {"value": data}, {"metadata": {**dict_of(value.get("metadata")), DATA_COMPAT: True}}
        return {"data": {"data": data}, **part}
    if "raw" in value:
        file: Wire = {"fileWithBytes": base64.b64encode(value["raw"].encode()).decode()}
    else:
        file = {"fileWithUri": value.get("url")}
    named = {"mimeType": value.get("mediaType"), "name": value.get("filename")}
    return {"file": {**file, **{name: each for name, each in named.items() if each}}, **part}


def _text_in(said: str) -> str:
    """Return the content of a file as base64. The Python SDK fills the field, whose bytes are base64, with base64."""
    try:
        content = base64.b64decode(said, validate=True)
    except (binascii.Error, ValueError):
        return said
    return content.decode() if len(content) % 4 == 0 and _BASE64_TEXT.fullmatch(content) else said
