"""How an unexpected exception is logged: its kind and place at once, its text and stack only for those who ask.

Texts of foreign exceptions may hold anything, keys and bodies included; a debug log is for people who accept that.
"""

from __future__ import annotations

import logging
import traceback


def report(log: logging.Logger, what: str, error: BaseException) -> None:
    """One line at level error that names the exception's class and where it was raised; all of it at level debug."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else "an unknown place"
    log.error("%s: %s at %s (run with --log-level debug for the rest)", what, type(error).__name__, place)
    log.debug("%s", what, exc_info=error)
