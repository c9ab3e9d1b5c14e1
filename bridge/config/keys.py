"""The file that `server.auth.keys_file` names: a YAML list of keys by their SHA-256, read apart from the rest."""

from __future__ import annotations

from pydantic import TypeAdapter, ValidationError

from bridge.config import checks, source
from bridge.config.origin import Origin
from bridge.config.problems import Problem
from bridge.config.schema.server import FileKey
from bridge.config.schema.whole import Config
from bridge.config.translate import translate

_KEYS = tuple[FileKey, ...]
_FORM = 'expected a list of keys, each as `- {name: "web", key_sha256: "..."}`; `dialect-bridge key` prints such a line'


def parse_keys(text: str, name: str, config: Config) -> tuple[FileKey, ...]:
    """Return the keys in the text of a keys file.

    `name` is the file's, for errors; `config` is the configuration that the keys belong to, by which their routes are
    checked. Several keys may have one name, and are then one user. Raises `ConfigError` with a line for each mistake;
    none shows a value of the file.
    """
    document = source.read(text, name)
    origin = Origin(name, document.places, secret=True)
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
