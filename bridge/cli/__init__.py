"""The command line. Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.

What has to be done before anything else is imported, which takes a tenth of a second and more: standard streams that
are closed, signals to a server that is starting.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from bridge.cli import early_signals

_SERVING = ("serve", "demo")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    _open_standard_streams()
    if argv and argv[0] in _SERVING:
        early_signals.hold()
    from bridge.cli.parser import run

    return run(argv)


def _open_standard_streams() -> None:
    """Open /dev/null in place of standard streams that are closed.

    Else the next file or socket would take the number of one, and what is printed would go there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number, which is this one: those below it are open.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))


def remove_working_directory() -> None:
    """Remove the working directory from where modules are searched: `python -m` puts it first.

    A file there must not be imported in place of a library. The folder of this package stays, so that a checkout runs.
    """
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if not sys.flags.safe_path and sys.path and sys.path[0] == os.getcwd() != package:
        del sys.path[0]
