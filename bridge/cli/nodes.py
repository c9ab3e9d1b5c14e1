"""`dialect-bridge nodes`: lists the nodes that are registered at a running gateway."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, fields, replace

from bridge.cli.key import given_key
from bridge.contract import SessionDialect, WireResponse, registry
from bridge.contract.optional.sessions import RegisteredNode
from bridge.errors import BackendError, ConfigError, ErrorCode
from bridge.toolkit.redact import printable

_SECONDS = 10.0
"""Seconds that the gateway has to answer."""


def nodes(args: argparse.Namespace) -> int:
    """Prints the nodes as a table or as JSON. Raises `BackendError` when the gateway does not answer."""
    dialect = _dialect(args.dialect)
    registry.check_installed(dialect)
    found = asyncio.run(_ask(dialect, args))
    if args.json:
        print(json.dumps([asdict(node) for node in found], indent=2, ensure_ascii=False))
    elif found:
        for line in _table(found):
            print(line)
    else:
        print("no node is registered")
    return 0


def _dialect(name: str | None) -> SessionDialect:
    """The dialect of this name; without one the only dialect that has gateways."""
    known = [d for d in map(registry.get, registry.names()) if isinstance(d, SessionDialect)]
    found = [dialect for dialect in known if name in (None, dialect.name)]
    if len(found) != 1:
        names = ", ".join(dialect.name for dialect in known)
        raise ConfigError(f"{name or '--dialect'}: expected a dialect whose agents register at a gateway: {names}")
    return found[0]


async def _ask(dialect: SessionDialect, args: argparse.Namespace) -> list[RegisteredNode]:
    # Here, as it loads gRPC.
    from bridge.run.backends.grpc.channels import call_unary, metadata_of, open_channel

    settings = replace(dialect.channel(dialect.back_options()), ca=args.ca, cert=args.cert, key=args.cert_key)
    wire = dialect.nodes_request(args.domain)
    shown = metadata_of(dialect, given_key(args))
    async with open_channel(args.address, settings) as channel:
        try:
            body = await call_unary(channel, dialect, wire.path, wire.body, _SECONDS, shown)
        except BackendError as error:
            if error.failure.code is not ErrorCode.BACKEND_AUTH:
                raise
            text = "the gateway requires a valid key: use --api-key or $BRIDGE_API_KEY"
            raise BackendError(text, code=ErrorCode.BACKEND_AUTH) from None
    return dialect.decode_nodes(WireResponse(200, {"content-type": dialect.content_type}, body))


def _table(found: Sequence[RegisteredNode]) -> list[str]:
    """The nodes in columns. Names and descriptions are foreign text, which must not control the terminal."""
    names = [field.name for field in fields(RegisteredNode)]
    rows = [["id" if name == "node_id" else name for name in names]]
    rows += [[printable(getattr(node, name)) for name in names] for node in found]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
