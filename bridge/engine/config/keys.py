"""The keys file (`server.auth.keys_file`): a YAML list of keys by their SHA-256."""

from __future__ import annotations

from pydantic import TypeAdapter, ValidationError

from bridge.engine.config import checks, source
from bridge.engine.config.origin import ConfigOrigin
from bridge.engine.config.problems import Problem
from bridge.engine.config.schema.server import FileKey
from bridge.engine.config.schema.whole import Config
from bridge.engine.config.translate import translate

_KEYS = tuple[FileKey, ...]
_FORM = 'expected a list of keys, each as `- {name: "web", key_sha256: "..."}`; `dialect-bridge key` prints such a line'


def parse_keys(text: str, name: str, config: Config) -> tuple[FileKey, ...]:
    """Return the keys in the text of a keys file.

    `name` is the name of the file, for errors; the routes of the keys are checked with `config`. Keys with the same
    name belong to one user. Raises `ConfigError` with a line for each problem; none shows a value of the file.
    """
    document = source.read(text, name)
    origin = ConfigOrigin(name, document.positions, secret=True)
    found = list(document.problems)
    if document.data is None:
        # A file that is being written may be empty for a moment, and must not lock everybody out.
        found.append(Problem((), "is empty; write `[]` for no keys"))
    elif not isinstance(document.data, list):
        found.append(Problem((), _FORM))
    if found:
        raise origin.error(found)
    try:
        keys = TypeAdapter(_KEYS).validate_python(document.data)
    except ValidationError as error:
        raise origin.error(translate(error, document.data, origin, _KEYS)) from None
    if found := list(checks.key_problems(config, origin.show, keys)):
        raise origin.error(found)
    return keys
