"""Which proxy leads to a URL: that of the configuration, else that of the environment.

The variables are those that other programs know, in lower or upper case: `HTTPS_PROXY` and `HTTP_PROXY` for the scheme
of the URL, `ALL_PROXY` for both, and in `NO_PROXY`, separated by commas, what is called directly: host names, with all
names below them, `host:port`, addresses, networks (`10.0.0.0/8`), or `*` for everything. Loopback addresses and
`localhost` are never called through a proxy of the environment (as Go's net/http has it).
"""

from __future__ import annotations

import ipaddress
import logging
from functools import cache
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

from yarl import URL

log = logging.getLogger("bridge.http")

NONE = "none"
"""In the configuration of a backend: no proxy, whatever the environment says."""


def proxy_for(address: URL | str, configured: str | None = None) -> URL | None:
    """Return the proxy for a URL; None if it is called directly. `configured`: the URL of a proxy, or `none`."""
    url = URL(address)
    if configured is not None:
        return None if configured == NONE else URL(configured)
    variables = getproxies_environment()
    name = url.scheme if variables.get(url.scheme) else "all"
    found = variables.get(name)
    if not found or _is_loopback(url.host or "") or _is_excepted(url, variables.get("no", "")):
        return None
    return _parsed(found, f"{name.upper()}_PROXY")


def credentials_in(proxy: URL | None) -> list[str]:
    """Return the secrets in the URL of a proxy, as they are and as they are quoted."""
    if proxy is None:
        return []
    return [word for word in (proxy.password, proxy.raw_password) if word]


@cache
def _parsed(text: str, variable: str) -> URL | None:
    """Return a proxy of the environment; None, with a warning, if it is of a kind that is not known here."""
    try:
        url = URL(text if "://" in text else f"http://{text}")
        if url.scheme in ("http", "https") and url.host:
            return url
    except ValueError:
        pass
    # The value may hold a password.
    log.warning("%s is ignored: expected the URL of an HTTP proxy, such as http://proxy.example:3128", variable)
    return None


def _is_loopback(host: str) -> bool:
    name = host.rstrip(".").lower()
    return name == "localhost" or name.endswith(".localhost") or ((a := _address(host)) is not None and a.is_loopback)


def _is_excepted(url: URL, exceptions: str) -> bool:
    """Return whether `NO_PROXY` names the host of a URL."""
    entries = [entry.strip().removeprefix("*.") for entry in exceptions.split(",")]
    if "*" in entries:
        return True
    host = (url.host or "").rstrip(".")
    address = _address(host)
    if address is None:
        named = {"no": ",".join(entries)}
        return bool(proxy_bypass_environment(f"{host}:{url.port}", named))
    return any(_holds(entry, address, url.port) for entry in entries)


def _holds(entry: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int | None) -> bool:
    """Return whether an entry of `NO_PROXY` is this address, with or without the port, or a network that holds it."""
    plain = entry.removesuffix(f":{port}") if entry.startswith("[") or entry.count(":") == 1 else entry
    try:
        return address in ipaddress.ip_network(plain.strip("[]"), strict=False)
    except ValueError:
        return False


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
