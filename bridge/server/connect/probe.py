"""What answers at a URL: the models that it lists, a missing `/v1`, another dialect than the expected one."""

from __future__ import annotations

import ipaddress
import json
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from bridge.server.connect.programs import ANSWERS

_SECONDS = 3.0
_LARGEST = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Found:
    """`url` is the base URL at which `dialect` answers; `problem` says what is wrong with what was asked for."""

    url: str
    dialect: str | None = None
    models: list[str] = field(default_factory=list)
    problem: str = ""


def is_loopback(url: str) -> bool:
    """Return whether a URL is of this machine, so that no key has to travel to it."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def probe(url: str, dialect: str, key: str = "") -> Found:
    """Ask a server what it is, by reading only: `GET` of what `programs.json` lists under `answers`.

    `key` is sent as a bearer token and as `x-api-key`; nothing is sent without one. Never raises.
    """
    base = url.rstrip("/")
    split = urlsplit(base)
    origin = f"{split.scheme}://{split.netloc}"
    paths = list(dict.fromkeys(answer["path"] for answer in ANSWERS))
    other: Found | None = None
    for place in dict.fromkeys((base, f"{base}/v1", f"{origin}/v1", f"{origin}/api/v1", f"{origin}/openai/v1", origin)):
        for path in paths:
            status, body = _read(place + path, key)
            if status is None:
                return Found(base, problem=f"nothing answers at {base}: {body}")
            if status in (401, 403) and place == base:
                return Found(base, problem=f"{place}{path} answers {status}: it wants a key")
            if found := _recognized(path, body):
                if dialect in found[0]:
                    return _told(place, *found, dialect, base)
                # A server may speak several: the expected one may be found elsewhere.
                other = other or _told(place, *found, dialect, base)
    return other or Found(base)


def _told(url: str, dialects: list[str], models: list[str], dialect: str, base: str) -> Found:
    problems = []
    if url != base:
        problems.append(f"it answers at {url}, not at {base}")
    if dialect not in dialects:
        problems.append(f"what answers there speaks {dialects[0]}, not {dialect}")
    return Found(url, dialect if dialect in dialects else dialects[0], models, "; ".join(problems))


def _recognized(path: str, body: Any) -> tuple[list[str], list[str]] | None:
    """Return the dialects of a body, and the models that it lists; None if it says nothing."""
    if not isinstance(body, dict):
        return None
    for answer in ANSWERS:
        if answer["path"] != path:
            continue
        if "keys" in answer:
            if all(key in body for key in answer["keys"]):
                return answer["dialects"], []
            continue
        models = _models(body.get(answer["list"]), answer)
        if models is not None:
            return answer["dialects"], models
    return None


def _models(listed: Any, answer: dict[str, Any]) -> list[str] | None:
    """Return the names in a list of models; None if it is not of this kind."""
    entries = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    names = [each[answer["id"]] for each in entries if isinstance(each.get(answer["id"]), str)]
    prefix, holds = answer.get("prefix", ""), answer.get("holds", {}).items()
    fits = all(each.get(name) == value for each in entries for name, value in holds)
    fits = fits and all(answer.get("lacks") not in each for each in entries)
    if not names or not fits or not all(name.startswith(prefix) for name in names):
        return None
    return [name.removeprefix(prefix) for name in names]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        return None


def _read(url: str, key: str) -> tuple[int | None, Any]:
    """Return the status and the JSON of a GET; the reason instead of the JSON if nothing answers."""
    headers = {"accept": "application/json", "anthropic-version": "2023-06-01"}
    if key:
        headers |= {"authorization": f"Bearer {key}", "x-api-key": key}
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    if is_loopback(url):
        handlers.append(urllib.request.ProxyHandler({}))
    try:
        with urllib.request.build_opener(*handlers).open(
            urllib.request.Request(url, headers=headers), timeout=_SECONDS
        ) as answer:
            return answer.status, json.loads(answer.read(_LARGEST))
    except urllib.error.HTTPError as error:
        with error:
            return error.code, None
    except ValueError:
        return 200, None
    except OSError as error:
        reason = getattr(error, "reason", error)
        return None, getattr(reason, "strerror", None) or str(reason) or type(error).__name__
