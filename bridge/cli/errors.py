"""`explain`: what an error code means and what to check, from the package itself."""

from __future__ import annotations

import argparse
import difflib

from bridge.errors import ConfigError, ErrorCode, shortened
from bridge.server.page.error_pages import meanings, page_of


def explain(args: argparse.Namespace) -> int:
    """Print the page of a code, or all codes with what they mean. Raises `ConfigError` for an unknown one."""
    if args.code is None:
        width = max(map(len, ErrorCode))
        for code, meaning in meanings().items():
            print(f"{code:<{width}}  {meaning}")
        return 0
    if args.code not in list(ErrorCode):
        near = difflib.get_close_matches(args.code, list(ErrorCode), 1, 0.6)
        hint = f"; did you mean {str(near[0])!r}?" if near else ""
        raise ConfigError(f"CODE: expected one of {', '.join(ErrorCode)}; got {shortened(args.code)!r}{hint}")
    print(page_of(ErrorCode(args.code)), end="")
    return 0
