"""Finds dialects by name: entry points of the group `bridge.dialects`, and whatever a program registers itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec

from bridge.contract.capabilities import Capabilities
from bridge.contract.dialect import Dialect
from bridge.contract.surface import Operation
from bridge.errors import ConfigError

GROUP = "bridge.dialects"

_registered: dict[str, Dialect] = {}
_installed: dict[str, EntryPoint] = {}
"""The entry points as they were read last, by name."""
_read: list[tuple[str, int]] = []
"""The folders of `sys.path` in which they were read, each with the time of its last change."""


def register(dialect: Dialect, name: str | None = None) -> None:
    """Make a dialect known to this process; an entry point does the same for every process.

    Raises `ConfigError` if it has no name.
    """
    _check_named(dialect)
    _registered[name or dialect.name] = dialect


_OF_FRONTS = ("decode_request", "encoder", "encode_error", "example_request")
_OF_BACKS = ("encode_request", "decoder", "parse_response", "decode_error")


def check_complete(dialect: Dialect) -> None:
    """Raise `ConfigError` with everything that a dialect lacks for the roles that it declares.

    The suites call it first.
    """
    _check_named(dialect)
    kind = type(dialect)
    if not isinstance(getattr(dialect, "capabilities", None), Capabilities):
        raise ConfigError(f"the dialect {dialect.name!r} has no capabilities: set the class attribute capabilities")

    def missing(methods: Iterable[str]) -> str:
        return ", ".join(each for each in methods if getattr(kind, each) is getattr(Dialect, each))

    has_health = any(endpoint.operation is Operation.HEALTH for endpoint in dialect.surface)
    lacks = []
    if dialect.served and (found := missing((*_OF_FRONTS, *(["encode_health"] if has_health else [])))):
        lacks.append(f"{found} (it has a surface, so clients can call it)")
    if dialect.called and (found := missing(_OF_BACKS)):
        lacks.append(f"{found} (backends can speak it; a dialect for clients only sets called = False)")
    if lacks:
        raise ConfigError(f"the dialect {dialect.name!r} lacks {', and '.join(lacks)}")


def _check_named(dialect: Dialect) -> None:
    name = getattr(dialect, "name", None)
    if not isinstance(name, str) or not name:
        raise ConfigError(f"the dialect {type(dialect).__name__} has no name: set the class attribute name")


def unregister(name: str) -> None:
    """Remove a dialect that `register` added. One that is installed is found again."""
    _registered.pop(name, None)
    if _installed.pop(name, None) is not None:
        _read.clear()


def names() -> list[str]:
    """Return the names of all available dialects, sorted, without loading them."""
    _read_installed()
    return sorted(_installed.keys() | _registered.keys())


def known(name: str) -> bool:
    """Return whether there is a dialect `name`, without loading it."""
    return name in _registered or _entry_point(name) is not None


def _entry_point(name: str) -> EntryPoint | None:
    if name not in _installed:
        _read_installed()
    return _installed.get(name)


def _read_installed() -> None:
    """Read the installed entry points, unless no package was added or removed since: it opens a file of each."""
    global _installed, _read
    folders = [(folder, _changed(folder)) for folder in sys.path]
    if _installed and folders == _read:
        return
    _read = folders
    # Reversed, for the first of a name to win: that is the one which is imported, too.
    _installed = {entry.name: entry for entry in reversed(tuple(entry_points(group=GROUP)))}


def _changed(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0


def served() -> list[str]:
    """Return the names of the dialects that routes can use; loads all dialects."""
    return [name for name in names() if get(name).served]


def called() -> list[str]:
    """Return the names of the dialects that backends can use; loads all dialects."""
    return [name for name in names() if get(name).called]


def over_http() -> list[str]:
    """The names of those that are mounted at a path; loads all of them."""
    return [name for name in served() if not get(name).over_grpc]


def check_installed(dialect: Dialect) -> None:
    """Raise `ConfigError` with what to install if a requirement of the dialect is missing."""
    missing = [module for module in dialect.needs if find_spec(module) is None]
    if missing:
        hint = f"; pip install 'dialect-bridge[{dialect.extra}]'" if dialect.extra else ""
        raise ConfigError(f"the dialect {dialect.name} needs {', '.join(missing)}, which is not installed{hint}")


def get(name: str) -> Dialect:
    """The dialect `name`, imported at first use. Raises `ConfigError` with the nearest known name."""
    found = _registered.get(name)
    if found is not None:
        return found
    entry = _entry_point(name)
    if entry is not None:
        try:
            dialect = entry.load()
        except Exception as error:
            what = f"{type(error).__name__}: {error}{_place_of(error)}"
            raise ConfigError(f"dialect {name!r} cannot be loaded: {what}") from error
        if not isinstance(dialect, Dialect):
            raise ConfigError(f"the entry point {entry.value!r} of dialect {name!r} is not a bridge.contract.Dialect")
        _check_named(dialect)
        _registered[name] = dialect
        return dialect
    near = suggestion(name, names())
    hint = f"; did you mean {near!r}?" if near else "."
    raise ConfigError(f"unknown dialect {name!r}{hint} Known: {', '.join(names())}.")


def _place_of(error: Exception) -> str:
    """Return file and line where an exception came from, as " (file:line)"; empty where it is not known."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}:{error.lineno})"
    # The last line that is not of Python itself; of a module that is not there, it is in the import machinery.
    place, step = "", None if isinstance(error, ModuleNotFoundError) else error.__traceback__
    while step is not None:
        module = str(step.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        if module not in sys.stdlib_module_names and module != "bridge":
            place = f" ({step.tb_frame.f_code.co_filename}:{step.tb_lineno})"
        step = step.tb_next
    return place


def suggestion(name: str, known: Iterable[str]) -> str | None:
    """Return the name in `known` that was probably meant: the dialect of software with this name, else the most similar
    name. Loads all dialects.
    """
    import difflib  # here: who names dialects that exist has no use for it

    near = difflib.get_close_matches(name, [*known], 1)
    for each in set(known) & set(names()):
        # The package of another dialect may be broken.
        with suppress(ConfigError):
            if name.lower() in get(each).spoken_by:
                return each
    return near[0] if near else None


def resolve(given: str | Dialect) -> Dialect:
    """Returns the dialect that is named, or given as an object. Raises `ConfigError` for an unknown name."""
    if isinstance(given, Dialect):
        return given
    if not isinstance(given, str):
        raise TypeError(f"expected a dialect or its name, got {type(given).__name__}")
    return get(given)
