"""Parses YAML into plain data and the position of every key.

PyYAML's own loaders lose positions and accept duplicate keys, so this module walks the node tree. Keys are always text:
a model named `4` or a header `on` stays a string.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from bridge.engine.config.origin import Position
from bridge.engine.config.problems import Path, Problem
from bridge.errors import ConfigError

LARGEST = 1024 * 1024
"""Maximum characters of a file: more take many seconds to parse, and no configuration needs them."""
MOST_VALUES = 100_000
"""Maximum values in a file, with aliases expanded: a few nested ones could expand to billions."""
_MERGE = "tag:yaml.org,2002:merge"


@dataclass(slots=True)
class Document:
    """A parsed file. `places`: the position of the key of each mapping entry and of the start of each list item."""

    data: Any = None
    positions: dict[Path, Position] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def read(text: str, name: str) -> Document:
    """Parse one YAML document; `name` is the file's, for errors.

    Raises `ConfigError` if it is not valid YAML, or longer than `LARGEST` characters.
    """
    if len(text) > LARGEST:
        raise ConfigError(f"{name}: expected a file of at most {LARGEST} characters, got {len(text)}")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise _syntax_error(error, text, name) from None
    except RecursionError:
        raise ConfigError(f"{name}: lists and mappings are nested too deeply") from None
    document = Document()
    if node is not None:
        document.positions[()] = _position(node)
        document.data = _Walk(document).value(node, ())
    return document


class _Walk:
    """Converts nodes to data, and records positions and problems in the document."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.loader = yaml.SafeLoader("")
        self.open: set[int] = set()
        self.values = 0

    def value(self, node: Node, path: Path) -> Any:
        self.values += 1
        if self.values > MOST_VALUES:
            if self.values == MOST_VALUES + 1:
                self.refuse(path, f"expected at most {MOST_VALUES} values in the file, aliases included")
            return None
        if id(node) in self.open:
            return self.refuse(path, "an alias may not be inside the value that it refers to")
        self.open.add(id(node))
        try:
            if isinstance(node, MappingNode):
                return self.mapping(node, path)
            if isinstance(node, SequenceNode):
                return self.sequence(node, path)
            return self.scalar(node, path)
        finally:
            self.open.discard(id(node))

    def scalar(self, node: Node, path: Path) -> Any:
        try:
            return self.loader.construct_object(node)
        except (yaml.YAMLError, ValueError, OverflowError):
            hint = "" if node.tag.startswith("tag:") else "; an environment variable is written ${NAME}"
            return self.refuse(path, f"not a valid value of type {node.tag}{hint}")

    def sequence(self, node: SequenceNode, path: Path) -> list[Any]:
        found = []
        for index, item in enumerate(node.value):
            where = (*path, index)
            self.document.positions.setdefault(where, _position(item))
            found.append(self.value(item, where))
        return found

    def mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: list[Node] = []
        lines: dict[str, int] = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                merged += value.value if isinstance(value, SequenceNode) else [value]
            elif not isinstance(key, ScalarNode):
                self.refuse(path, f"expected text as key on line {_position(key).line}")
            elif key.value in found:
                # The position of the path is that of its first key, so the message names both lines.
                message = f"written twice, on line {lines[key.value]} and on line {_position(key).line}"
                self.refuse((*path, key.value), message)
            else:
                where = (*path, key.value)
                lines[key.value] = _position(key).line
                self.document.positions.setdefault(where, _position(key))
                found[key.value] = self.value(value, where)
        return self.merge(found, merged, path)

    def merge(self, found: dict[str, Any], merged: list[Node], path: Path) -> dict[str, Any]:
        """Apply `<<: *other`: own keys override merged ones, and earlier merges override later ones."""
        for node in merged:
            other = self.value(node, path)
            if isinstance(other, dict):
                found = {**other, **found}
            elif other is not None:
                self.refuse(path, "expected a mapping after <<")
        return found

    def refuse(self, path: Path, message: str) -> None:
        self.document.problems.append(Problem(path, message))


def _position(node: Node) -> Position:
    return Position(node.start_mark.line + 1, node.start_mark.column + 1)


def _syntax_error(error: yaml.YAMLError, text: str, name: str) -> ConfigError:
    """Return the error with a clearer message, at the line of its cause."""
    words = getattr(error, "problem", None) or "a character that YAML does not allow"
    mark = getattr(error, "problem_mark", None)
    said = f"{getattr(error, 'context', '')}; {words}"
    for pattern, ours, where_it_opens in _SYNTAX:
        if found := pattern.search(said):
            words = ours.format(*found.groups())
            mark = getattr(error, "context_mark", None) if where_it_opens else mark
            break
    position = mark.index if mark else getattr(error, "position", 0)
    line = text.count("\n", 0, position) + 1
    lines = text.splitlines()
    if line <= len(lines) and "${" in lines[line - 1]:
        words += '; inside { } and [ ] a variable needs quotes: "${NAME}"'
    column = mark.column + 1 if mark else position - text.rfind("\n", 0, position)
    message = f"not valid YAML: {words}"
    details = {"path": "", "message": message, "file": name, "line": line, "column": column}
    return ConfigError(f"{name}:{line}: {message}", details={"problems": [details]})


_SYNTAX = (
    (re.compile(r"found character '\\t'"), "a tab is not allowed here; indent with spaces", False),
    (re.compile(r"found character ('.') that cannot start"), "a value that begins with {0} needs quotes", False),
    (
        re.compile(r"(?:values|keys|entries) are not allowed here|could not find expected ':'"),
        "no `key: value` is expected here; check the indentation, and quote text that holds `: `",
        False,
    ),
    (re.compile(r"parsing a flow mapping"), "the {{ that opens here is not closed, or a comma is missing in it", True),
    (re.compile(r"parsing a flow sequence"), "the [ that opens here is not closed, or a comma is missing in it", True),
    (re.compile(r"node content, but found '<"), "the file ends where a value is expected", False),
    (re.compile(r"node content, but found ('.')"), "a value is missing before {0}", False),
    (re.compile(r"expected <block end>, but found ('[\]},]')"), "{0} is not expected here", False),
    (re.compile(r"expected <block end>"), "the indentation does not fit the lines above", False),
    (re.compile(r"scanning a quoted scalar; found unexpected end"), "the quote that opens here is not closed", True),
    (re.compile(r"found undefined alias ('.*')"), "no anchor is named {0}; quote a value that begins with *", False),
    (re.compile(r"scanning an (?:alias|anchor)"), "a value that begins with * or & needs quotes", False),
    (
        re.compile(r"unknown escape character '(.)'"),
        r"'\{0}' has no meaning between double quotes; use single quotes",
        False,
    ),
    (re.compile(r"found another document"), "a line --- begins a second document; expected one", False),
)
"""Pattern of PyYAML's message, replacement, and whether the position is where the broken construct opens."""
