"""The small types that the schema is made of: names, URLs, mount paths, header names, references."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationInfo
from pydantic_core import PydanticCustomError

from bridge.contract import AgentDialect, Options, Scope, registry
from bridge.contract.dialect import Dialect
from bridge.engine.config.invisible import invisible_in
from bridge.engine.config.problems import Path, at, expected, unknown, wrong

# Backends that are part of the engine: they produce events directly, without a codec in the registry.
UNIX = "unix"
"""In place of the address of a connection: it has none."""
DEMO = "demo"
PYTHON = "python"
BUILT_IN = (DEMO, PYTHON)

PUBLIC_ALGORITHMS = (*(f"{family}{size}" for family in ("RS", "PS", "ES") for size in (256, 384, 512)), "EdDSA")
"""Signature algorithms of tokens (RFC 7518, RFC 8037) with public keys."""
_ALGORITHMS = ("HS256", "HS384", "HS512", *PUBLIC_ALGORITHMS)

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/\s]+", re.IGNORECASE)
_REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ODD_IN_PATH = re.compile(r"[\s?#{}]")
_ODD_IN_ADDRESS = re.compile(r"[\s/@?#]")
_METADATA_NAME = re.compile(r"[a-z0-9_.-]+")
_METADATA_TEXT = re.compile(r"[ -~]*")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_AN_URL = "a URL such as https://host/v1 (http or https, with a host)"


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on `host`."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def dialect_of(name: str) -> Dialect | None:
    """Return the registered dialect, or None if it is built in, unknown, or cannot be loaded."""
    if name in BUILT_IN:
        return None
    try:
        return registry.get(name)
    except Exception:
        return None


def front_options(dialect: str) -> type[Options]:
    """Return the model of a route's `options`; an empty one for an unknown dialect."""
    found = dialect_of(dialect)
    return found.front_options if found else Options


def back_options(dialect: str) -> type[Options]:
    """Return the model of a backend's `options`; an empty one for the built-in backends."""
    found = dialect_of(dialect)
    return found.back_options if found else Options


def _registered(name: str) -> str:
    if not registry.known(name):
        raise unknown("dialect", registry.names())
    try:
        registry.get(name)
    except Exception as error:  # A third party's package may fail in any way while it is imported.
        raise wrong(f"this dialect cannot be loaded: {type(error).__name__}: {error}") from None
    return name


def _route_dialect(name: str) -> str:
    if not registry.get(_registered(name)).served:
        raise wrong(f"{name} can be used by backends only; a route can use one of {', '.join(registry.served())}")
    return name


def _backend_dialect(name: str) -> str:
    if name in BUILT_IN:
        return name
    if not registry.known(name):
        raise unknown("dialect", sorted([*registry.names(), *BUILT_IN]))
    if not registry.get(_registered(name)).called:
        raise wrong(f"{name} can be used by routes only; a backend can use one of {', '.join(registry.called())}")
    return name


def _by_mode(value: Any, info: ValidationInfo) -> Any:
    """Accept what `_group` accepts, or a mapping of modes to that."""
    if not isinstance(value, dict) or not value:
        return _group(value, info, "the name of a backend, a list of names, or a mapping of modes to names")
    for mode, group in value.items():
        _group(group, info, path=(mode,))
    return value


def _group(
    value: Any, info: ValidationInfo, what: str = "the name of a backend, or a list of them", path: Path = ()
) -> Any:
    """Accept one name, a list of names, or a list of `{name, weight}`. Return the value."""
    if not isinstance(value, list | tuple):
        _named(value, info, what, path)
        return value
    if not value:
        raise at(path, wrong("must not be empty"), value) if path else wrong("must not be empty")
    weighted = isinstance(value[0], dict)
    known: list[str] = []
    for index, entry in enumerate(value):
        here: Path = (*path, index)
        if isinstance(entry, dict) != weighted:
            raise at(here, wrong("either all entries have a weight or none has"), entry)
        name = _weighted(entry, here) if weighted else entry
        _named(name, info, "the name of a backend", (*here, "name") if weighted else here)
        if name in known:
            raise at(here, wrong("this backend is already in the list"), entry)
        known.append(name)
    return value


def _weighted(entry: dict[Any, Any], path: Path) -> Any:
    """Return the name in `{name, weight}`."""
    for key in entry:
        if key not in ("name", "weight"):
            raise at((*path, str(key)), wrong("unknown key. Known keys: name, weight"), entry[key])
    weight = entry.get("weight", 1)
    if isinstance(weight, bool) or not isinstance(weight, int) or weight < 1:
        raise at((*path, "weight"), expected("a whole number, 1 or more"), weight)
    return entry.get("name")


def _named(name: Any, info: ValidationInfo, what: str, path: Path) -> None:
    try:
        if not isinstance(name, str):
            raise expected(what)
        _configured(name, info)
    except PydanticCustomError as error:
        if not path:
            raise
        raise at(path, error, name) from None


def _configured(name: str, info: ValidationInfo) -> str:
    """Check the name of a backend. `parse` passes the names of all backends as context."""
    backends = (info.context or {}).get("backends")
    if backends is not None and name not in backends:
        raise unknown("backend", backends)
    return name


def _empty_is_none(value: Any) -> Any:
    return None if value == "" else value


def _filled(value: str) -> str:
    if not value.strip():
        raise wrong("must not be empty")
    return value


def _no_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise expected("a whole number")
    return value


def _secret(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not text.strip():
        raise wrong("must not be empty")
    if _CONTROL.search(text):
        raise wrong("must be one line of printable characters")
    if mistake := invisible_in(text):
        raise wrong(mistake)
    return value


def _digest(value: str) -> str:
    if not _SHA256.fullmatch(value.lower()):
        raise wrong("expected a SHA-256 digest: 64 hexadecimal digits")
    return value.lower()


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        raise expected(_AN_URL) from None
    # urlsplit silently drops line breaks and tabs.
    if not good or _CONTROL.search(value) or " " in value or parts.fragment:
        raise expected(_AN_URL)
    if "@" in parts.netloc:
        raise wrong("expected a URL without a user name or password; write the key as api_key")
    if mistake := invisible_in(value):
        raise wrong(mistake)
    return value


def _proxy(value: SecretStr) -> SecretStr:
    """Check the URL of a proxy, which may hold a password, or `none`."""
    text = value.get_secret_value()
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.path in ("", "/")
        good = good and not (parts.query or parts.fragment) and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if text != "none" and (not good or _CONTROL.search(text) or " " in text):
        raise wrong("expected the URL of an HTTP proxy, such as http://proxy.example:3128, or none")
    return value


def _address(value: str) -> str:
    """Check a gRPC address, `host:port`; an IPv6 address is in brackets."""
    host, colon, port = value.rpartition(":")
    good = bool(colon and host) and port.isascii() and port.isdigit() and int(port) <= 65535
    if not good or _ODD_IN_ADDRESS.search(host) or (":" in host and not (host[0] == "[" and host[-1] == "]")):
        raise expected("an address such as 127.0.0.1:50051 (host:port, no scheme)")
    return value


def _backend_url(value: str, info: ValidationInfo) -> str:
    """Check a backend's url, which for gRPC dialects is an address."""
    if "dialect" not in info.data:
        return value  # The dialect is wrong, which is an error already.
    dialect = dialect_of(info.data["dialect"])
    if isinstance(dialect, AgentDialect):
        return _socket_url(value)
    return _address(value) if dialect is not None and dialect.over_grpc else _url(value)


def _socket_url(value: str) -> str:
    """Check the URL of a WebSocket."""
    scheme, colon, rest = value.partition("://")
    if scheme in ("ws", "wss") and colon:
        _url(f"http{scheme[2:]}://{rest}")
        return value
    return _url(value)


def _store_url(*schemes: str) -> AfterValidator:
    def check(value: str) -> str:
        if value.partition(":")[0] not in schemes or not value.partition(":")[2]:
            raise expected(f"a URL that begins with {' or '.join(f'{scheme}:' for scheme in schemes)}")
        if value.startswith("sqlite:") and not value.startswith("sqlite:///"):
            raise expected("sqlite:/// and the path of a file; an absolute path has a fourth slash")
        if mistake := invisible_in(value):
            raise wrong(mistake)
        return value

    return AfterValidator(check)


def _bare_host(value: str) -> str:
    if "/" in value or value.count(":") == 1:
        raise expected("an address or a host name, without scheme and port")
    return value


def _mount(value: str) -> str:
    if not value.startswith("/"):
        raise expected('a path that begins with "/"')
    if _ODD_IN_PATH.search(value):
        raise expected("a path without white space, ?, #, { and }")
    path = value.removesuffix("/") or "/"
    if "//" in path or path.endswith("/") != (path == "/"):
        raise expected("a path without empty segments")
    return path


def _matching(match: Callable[[str], object], what: str) -> AfterValidator:
    def check(value: str) -> str:
        if not match(value):
            raise expected(what)
        return value

    return AfterValidator(check)


def _among(what: str, known: Sequence[str]) -> AfterValidator:
    def check(value: str) -> str:
        if value not in known:
            raise unknown(what, known)
        return value

    return AfterValidator(check)


def host_name(host: str) -> str:
    """Return the host as in a `Host` header: in lower case, an IPv6 address in brackets."""
    host = host.lower().removesuffix(".")
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _host_name(value: str) -> str:
    name = host_name(value)
    address = name.strip("[]")
    if not name or _ODD_IN_ADDRESS.search(name) or (":" in name and not _is_address(address)):
        raise expected('"*" or a host name such as localhost or [::1] (no scheme, no port, no path)')
    return name


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


# They belong to one connection or to the body that the bridge writes. Other values would be wrong, and a wrong length
# allows request smuggling.
_NEVER_SENT = frozenset(
    {
        "connection",
        "content-encoding",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


def _header_name(value: str) -> str:
    if not _HEADER_NAME.fullmatch(value):
        raise expected("a header name")
    if value.lower() in _NEVER_SENT:
        raise wrong(f"{value} is set by the bridge and cannot be configured")
    return value.lower()


def _headers(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not _HEADER_NAME.fullmatch(name):
            raise at((name,), wrong("not a header name"), text)
        if name.lower() in _NEVER_SENT:
            raise at((name,), wrong("is set by the bridge and cannot be configured"), text)
        if _CONTROL.search(text):
            raise at((name,), wrong("must be one line of printable characters"), text)
        if mistake := invisible_in(text.strip(" ")):
            raise at((name,), wrong(mistake), text)
    return value


# Headers that gRPC itself writes; it silently drops others.
_GRPC_OWN = frozenset({"content-type", "te", "user-agent"})


def not_in_metadata(name: str, text: str = "") -> str | None:
    """Return why gRPC cannot carry a header as metadata, where names are in lower case; None if it can."""
    name = name.lower()
    if name in _GRPC_OWN or name.startswith("grpc-"):
        return f"{name} is set by gRPC and cannot be configured"
    if name.endswith("-bin"):
        return "names that end in -bin hold bytes in gRPC, and this is text"
    if not _METADATA_NAME.fullmatch(name):
        return "gRPC allows letters, digits, _, - and . in a name"
    return None if _METADATA_TEXT.fullmatch(text) else "gRPC allows printable ASCII characters only"


def _peer(value: str) -> str:
    return value if value == UNIX else _network(value)


def _network(value: str) -> str:
    try:
        return str(ipaddress.ip_network(value))
    except ValueError:
        raise expected("an IP address, or a network such as 10.0.0.0/8 (no bits set beyond its length)") from None


def _time_zone(value: str) -> str:
    try:
        # UTC needs no time zone data, and a slim container has none.
        if value != "UTC":
            ZoneInfo(value)
    except (KeyError, ValueError, OSError):
        raise unknown("time zone", sorted(available_timezones())) from None
    return value


# The bounds come before the validator: only then does pydantic add `minimum` and `maximum` to the JSON Schema.
Whole = Annotated[int, Field(ge=0), BeforeValidator(_no_boolean)]
Positive = Annotated[int, Field(ge=1), BeforeValidator(_no_boolean)]
Port = Annotated[int, Field(ge=0, le=65535), BeforeValidator(_no_boolean)]
Text = Annotated[str, AfterValidator(_filled)]
BareHost = Annotated[Text, AfterValidator(_bare_host)]
OptionalText = Annotated[Text | None, BeforeValidator(_empty_is_none)]
Secret = Annotated[SecretStr, AfterValidator(_secret)]
OptionalSecret = Annotated[Secret | None, BeforeValidator(_empty_is_none)]
OptionalProxy = Annotated[Annotated[SecretStr, AfterValidator(_proxy)] | None, BeforeValidator(_empty_is_none)]
Digest = Annotated[str, AfterValidator(_digest)]
Url = Annotated[str, AfterValidator(_url)]
BackendUrl = Annotated[str, AfterValidator(_backend_url)]
OptionalBackendUrl = Annotated[BackendUrl | None, BeforeValidator(_empty_is_none)]
Address = Annotated[str, AfterValidator(_address)]
OptionalUrl = Annotated[Url | None, BeforeValidator(_empty_is_none)]
HistoryUrl = Annotated[str, _store_url("sqlite", "postgresql")]
RunsUrl = Annotated[str, _store_url("sqlite", "postgresql")]
AttachmentsUrl = Annotated[str, _store_url("file", "s3", "gs", "az")]
MountPath = Annotated[str, AfterValidator(_mount)]
Reference = Annotated[str, _matching(_REFERENCE.fullmatch, '"module:function", as in "mypkg.agent:run"')]
Origin = Annotated[
    str, _matching(_ORIGIN.fullmatch, '"*" or an origin such as https://app.example (no path, no "/" at the end)')
]
HostName = Annotated[str, AfterValidator(_host_name)]
HeaderName = Annotated[str, AfterValidator(_header_name)]
EnvironmentName = Annotated[
    str, _matching(_ENVIRONMENT_NAME.fullmatch, "the name of a variable: letters, digits and _, no digit first")
]
Headers = Annotated[dict[str, str], AfterValidator(_headers)]
Algorithm = Annotated[str, _among("algorithm", _ALGORITHMS)]
OperationWord = Annotated[str, _among("operation", [*map(str, Scope), "*"])]
Peer = Annotated[str, AfterValidator(_peer)]
TimeZone = Annotated[str, AfterValidator(_time_zone)]
FrontDialect = Annotated[str, AfterValidator(_route_dialect)]
BackDialect = Annotated[str, AfterValidator(_backend_dialect)]
BackendName = Annotated[str, AfterValidator(_configured)]


class Weighted(BaseModel):
    """A backend with its share of the load."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: str = Field(description="name of the backend. For: every entry")
    weight: Positive = Field(
        default=1,
        description="its share of the load, relative to the other backends"
        ". For: machines of different size, or a new model for a few",
    )


Names = str | tuple[str, ...] | tuple[Weighted, ...]
"""One backend; several, each the fallback of the one before; or several that share the load."""
BackendGroup = Annotated[Names, BeforeValidator(_group)]
BackendChoice = Annotated[Names | dict[str, Names], BeforeValidator(_by_mode)]


def names_in(group: Names) -> tuple[str, ...]:
    """Return the names of the backends in a group, in order."""
    if isinstance(group, str):
        return (group,)
    return tuple(entry if isinstance(entry, str) else entry.name for entry in group)


def weights_in(group: Names) -> list[int] | None:
    """Return the weights of the backends in a group; None if they do not share the load."""
    entries = [entry for entry in group if isinstance(entry, Weighted)] if not isinstance(group, str) else []
    return [entry.weight for entry in entries] or None
