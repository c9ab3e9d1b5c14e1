"""Push notification configs: where the events of a task are sent, as both versions name it."""

from __future__ import annotations

import re
from typing import Final

from bridge.contract import PushAction, PushCall, PushTarget
from bridge.dialects.a2a.wire import Method, Spelled, Version, Wire
from bridge.errors import RequestError
from bridge.toolkit.check import wrong

TOKEN_HEADER: Final = "x-a2a-notification-token"
ACTIONS = {
    Method.SET_PUSH: PushAction.SET,
    Method.GET_PUSH: PushAction.GET,
    Method.LIST_PUSH: PushAction.LIST,
    Method.DELETE_PUSH: PushAction.DELETE,
}
_SCHEME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_LONGEST_ID, _LONGEST_URL, _LONGEST_SECRET = 256, 2048, 4096
_IN_MESSAGES = ("taskPushNotificationConfig", "pushNotificationConfig", "pushNotification")


def config_in(configuration: Spelled | None) -> Spelled | None:
    """Return the config that a message's configuration has; None if it has none."""
    if configuration is None:
        return None
    return next((found for name in _IN_MESSAGES if (found := configuration.object(name)) is not None), None)


def read_push(method: Method, params: Spelled, version: Version) -> tuple[str, PushCall]:
    """Return the id of the task, and the operation of a call on its configs."""
    action, is_old = ACTIONS[method], version is Version.OLD
    if action is PushAction.SET:
        config = params.need_object("pushNotificationConfig") if is_old else params
        return params.need_string("taskId"), PushCall(action, read_target(config, version))
    task_id = params.need_string("id" if is_old else "taskId")
    if action is PushAction.LIST:
        return task_id, PushCall(action)
    target_id = params.string("pushNotificationConfigId") or "" if is_old else params.need_string("id")
    return task_id, PushCall(action, target_id=target_id)


def read_target(config: Spelled, version: Version) -> PushTarget:
    """Return the target that a config names."""
    target_id = _bounded(config, "id", _LONGEST_ID)
    url = config.need_string("url")
    if not url or len(url) > _LONGEST_URL:
        raise RequestError(_too_long(config.at("url"), _LONGEST_URL), param=config.at("url"))
    scheme = credentials = ""
    authentication = config.object("authentication")
    if authentication is not None:
        credentials = _sayable(authentication, "credentials")
        # In 0.3 the schemes are a list, which may be empty.
        if credentials or version is Version.NEW or authentication.get("scheme") or authentication.array("schemes"):
            scheme = _scheme(authentication)
    return PushTarget(target_id, url, version, _sayable(config, "token"), scheme, credentials, config.at("url"))


def _scheme(authentication: Spelled) -> str:
    """The scheme of HTTP authentication; of the list of 0.3 the first one."""
    schemes = authentication.array("schemes")
    name = "schemes" if schemes else "scheme"
    said = schemes[0] if schemes else authentication.need_string("scheme")
    if not isinstance(said, str) or not _SCHEME.fullmatch(said):
        wrong(authentication.at(name), "the name of a scheme, such as Bearer", said)
    return said


def _bounded(node: Spelled, name: str, most: int) -> str:
    value = node.string(name) or ""
    if len(value) > most:
        raise RequestError(_too_long(node.at(name), most), param=node.at(name))
    return value


def _sayable(node: Spelled, name: str) -> str:
    """The value of a header, which no message repeats: it may be a secret."""
    value = _bounded(node, name, _LONGEST_SECRET)
    if not (value.isascii() and value.isprintable()):
        raise RequestError(f"{node.at(name)}: expected printable ASCII characters.", param=node.at(name))
    return value


def _too_long(place: str, most: int) -> str:
    return f"{place}: expected at least one and at most {most} characters."


def config_said(task_id: str, target: PushTarget, version: Version, *, old_rest: bool) -> Wire:
    """Return a target as its client reads it: without its credentials."""
    config: Wire = {"id": target.id, "url": target.url}
    if target.token:
        config["token"] = target.token
    if target.scheme:
        config["authentication"] = {"schemes": [target.scheme]} if version is Version.OLD else {"scheme": target.scheme}
    if old_rest:
        name = f"tasks/{task_id}/pushNotificationConfigs/{target.id}"
        return {"name": name, "pushNotificationConfig": config}
    if version is Version.OLD:
        return {"taskId": task_id, "pushNotificationConfig": config}
    return {"taskId": task_id, **config}


def headers_of(target: PushTarget) -> dict[str, str]:
    """Return the headers of each notification."""
    headers = {"content-type": "application/json"}
    if target.token:
        headers[TOKEN_HEADER] = target.token
    if target.scheme:
        headers["authorization"] = f"{target.scheme} {target.credentials}".strip()
    return headers
