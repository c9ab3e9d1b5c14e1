"""URLs of stores: what they name, and mistakes in those of PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from bridge.errors import ConfigError

_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_SSL_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
_CONNECTING = (
    *("host", "port", "dbname", "database", "user", "password", "passfile", "service"),
    *("sslmode", *_SSL_FILES, "sslpassword", "sslnegotiation", "ssl_min_protocol_version", "ssl_max_protocol_version"),
    *("target_session_attrs", "krbsrvname", "gsslib"),
)
_SETTINGS = ("application_name", "lock_timeout", "options", "role", "search_path", "statement_timeout")
"""Of the server, for each connection. Poolers refuse most of them."""
_PREPARED = "statement_cache_size"
_DEFAULT_ROOT = Path("~/.postgresql/root.crt")


def describe(url: str) -> str:
    """Return what a URL names, without names and passwords of accounts: `postgresql at db:5432, database bridge`."""
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite":
        return f"sqlite file {rest.removeprefix('///')}"
    try:
        parts = urlsplit(url)
        if scheme.startswith("postgres"):
            return _postgres(parts)
        if scheme == "file":
            return f"folder {parts.path}"
        query = dict(parse_qsl(parts.query))
        endpoint = urlsplit(query.get("endpoint") or query.get("base_url") or "").netloc.rpartition("@")[2]
        return f"{scheme} bucket {parts.netloc}{f' at {endpoint}' if endpoint else ''}"
    except ValueError:
        return scheme


def check_postgres(url: str, setting: str) -> tuple[str, int | None]:
    """Return the URL for the driver, and how many prepared statements it may keep (None = as many as it likes).

    Raises `ConfigError`, with host, database, parameter and reason.
    """
    parsed = _parsed(url)
    if parsed is None:
        raise ConfigError("expected postgresql://user:password@host:port/database", key=setting)
    parts, query = parsed
    where = _postgres(parts)
    for name, value in query.items():
        if name not in (*_CONNECTING, *_SETTINGS, _PREPARED):
            known = ", ".join((*_CONNECTING, *_SETTINGS, _PREPARED))
            raise ConfigError(f"{where}: unknown parameter {name}; known are {known}", key=setting)
        if name == "sslmode" and value not in _SSL_MODES:
            raise ConfigError(f"{where}: sslmode: expected one of {', '.join(_SSL_MODES)}", key=setting)
        if name in _SSL_FILES and not Path(value).expanduser().is_file():
            raise ConfigError(f"{where}: {name}: there is no such file: {value}", key=setting)
        if name in ("port", _PREPARED) and not _is_number(value.replace(",", "")):
            raise ConfigError(f"{where}: {name}: expected a number", key=setting)
    is_verified = query.get("sslmode", "").startswith("verify-")
    if is_verified and "sslrootcert" not in query and not _DEFAULT_ROOT.expanduser().is_file():
        raise ConfigError(
            f"{where}: sslmode={query['sslmode']} needs the certificates of the authorities to trust: set sslrootcert, "
            f"or make {_DEFAULT_ROOT}",
            key=setting,
        )
    prepared = query.pop(_PREPARED, None)
    if prepared is None:
        return url, None
    return parts._replace(query=urlencode(query)).geturl(), int(prepared)


def _parsed(url: str) -> tuple[SplitResult, dict[str, str]] | None:
    """Return the parts of a URL and its parameters; None where it has a mistake: the error would repeat its text."""
    try:
        parts = urlsplit(url)
        _ = parts.port if "," not in parts.netloc else None
        return parts, dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        return None


def _postgres(parts: SplitResult) -> str:
    query = dict(parse_qsl(parts.query))
    name = query.get("dbname") or query.get("database") or unquote(parts.path.removeprefix("/"))
    return f"postgresql at {_hosts(parts, query, '5432')}{f', database {name}' if name else ''}"


def _hosts(parts: SplitResult, query: Mapping[str, str], port: str) -> str:
    """Return hosts and ports: of the authority, else of the parameters, else the default."""
    found = parts.netloc.rpartition("@")[2] or query.get("host") or "localhost"
    port = query.get("port") or port
    return found if not port or ":" in found.rpartition("]")[2] or found.startswith("/") else f"{found}:{port}"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
