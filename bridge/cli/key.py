"""`dialect-bridge key`: an API key, and the line with its hash for `server.auth.keys`."""

from __future__ import annotations

import argparse
import getpass
import hashlib
import json
import os
import secrets
import sys

from bridge.engine.config.invisible import invisible_in
from bridge.errors import ConfigError

_BYTES = 32
_SHORT = 32
"""Minimum length of a key without a warning."""


def key(args: argparse.Namespace) -> int:
    """Prints lines with hashes for `server.auth.keys` on stdout, and each new key on stderr, once."""
    for name in args.names:
        if not name.strip() or not name.isprintable():
            raise ConfigError("NAME: expected printable characters")
    if args.hash and len(args.names) > 1:
        raise ConfigError("--hash: expected one NAME, since stdin has one key")
    for name in args.names:
        text = _given() if args.hash else secrets.token_urlsafe(_BYTES)
        digest = hashlib.sha256(text.encode()).hexdigest()
        # JSON strings are valid YAML, whatever characters the name contains.
        print(f"- {{name: {json.dumps(name, ensure_ascii=False)}, key_sha256: {json.dumps(digest)}}}", flush=True)
        if not args.hash:
            print(f"The key of {name}, shown only once:\n{text}", file=sys.stderr)
        elif len(text) < _SHORT:
            print("note: a short key can be guessed from its hash; let this command generate one", file=sys.stderr)
    return 0


def _given() -> str:
    text = getpass.getpass("Key: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    if not text or text != text.strip() or not text.isprintable():
        raise ConfigError("stdin: expected a key, one line of printable characters without spaces at its ends")
    if mistake := invisible_in(text):
        raise ConfigError(f"stdin: the key {mistake}")
    return text


def given_key(args: argparse.Namespace) -> str | None:
    """Return the key of `--api-key` or of the environment. Raises `ConfigError` for one that cannot be sent."""
    text: str | None = args.api_key or os.environ.get("BRIDGE_API_KEY")
    if text and (mistake := invisible_in(text)):
        raise ConfigError(f"--api-key (or BRIDGE_API_KEY): the key {mistake}")
    return text
