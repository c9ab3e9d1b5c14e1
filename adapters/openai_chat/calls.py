"""Which call does this fragment belong to? The one place that decides it.

The official wire counts calls by `index`, sends `id` and `name` once and then pieces of the arguments. Others leave
out the index, repeat the id, give each fragment a new one, give two calls the same index, or send a call whole. The
key is the index, else the id, else the position.
"""

from __future__ import annotations

import re
from typing import Any

from bridge.dialects.openai_chat.wire import noted_call, without_empty
from bridge.model import Builder, PartKind, json_text
from bridge.model.builder import NO_IDS
from bridge.model.jsontext import is_number, is_object, text_of

_CALL_KEYS = frozenset({"index", "id", "type", "function"})
_FUNCTION_KEYS = frozenset({"name", "arguments"})
_TOKENS = re.compile(r'\\.?|["{}\[\]]', re.DOTALL)
"""Of JSON: what may begin or end a string, an object or a list, and what a backslash escapes."""


class _Call:
    """One call while it is open. Its part opens when its name is known, since the model wants it at the start."""

    __slots__ = (
        "_depth", "_escaped", "_over", "_quoted", "_seen", "call_id", "extras", "ids", "indexed", "key", "late", "name",
        "opened", "pieces",
    )  # fmt: skip

    def __init__(self, key: tuple[int, int]) -> None:
        self.key = key
        self.call_id = ""
        self.ids: set[str] = set()
        self.indexed = False
        self.name = ""
        self.opened = False
        self.pieces: list[str] = []
        self.extras: dict[str, Any] = {}
        self.late = False
        # How many pieces of the arguments were examined, whether they end within a string or after a backslash, how
        # many brackets are open there, and whether the object is complete: 1, or -1 if there is none or more follows
        # it.
        self._seen = 0
        self._quoted = self._escaped = False
        self._depth = 0
        self._over = 0

    @property
    def whole(self) -> bool:
        """True if the arguments are complete: after the end of an object only another call can follow.

        Each piece is looked at once, and the whole text only when its brackets are closed for the first time.
        """
        pieces = self.pieces
        while self._seen < len(pieces) and self._over >= 0:
            piece, self._seen = pieces[self._seen], self._seen + 1
            if self._over and not piece.isspace():
                self._over = -1
            elif not self._over and self._closes(piece):
                self._over = 1 if is_object("".join(pieces[: self._seen])) else -1
        return self._over > 0

    def _closes(self, piece: str) -> bool:
        """Return whether the brackets of the arguments are closed after this piece."""
        tokens = _TOKENS.findall(piece, 1 if self._escaped else 0)
        self._escaped = bool(tokens) and tokens[-1] == "\\"
        found = False
        for token in tokens:
            if self._quoted:
                self._quoted = token != '"'
            elif token == '"':
                self._quoted = True
            elif token in "{[":
                self._depth += 1
            elif token in "}]":
                self._depth -= 1
                found = True
        return found and self._depth == 0 and not self._quoted


class Calls:
    """The tool calls of one choice; `open` holds those that may still grow."""

    __slots__ = ("_builder", "_by_id", "_by_index", "_choice", "_count", "_grown", "_last", "open")

    def __init__(self, builder: Builder, choice: int) -> None:
        self._builder = builder
        self._choice = choice
        self._count = 0
        self._by_id: dict[str, _Call] = {}  # the last one that has the id
        self._by_index: dict[int, _Call] = {}
        self._last: _Call | None = None
        self.open: dict[_Call, None] = {}
        self._grown: dict[_Call, None] = {}  # those that may be whole since they were looked at last

    @property
    def any(self) -> bool:
        """True if there was a call."""
        return self._count > 0

    def feed(self, fragments: list[Any]) -> None:
        """The `tool_calls` of one delta."""
        for position, fragment in enumerate(fragments):
            if isinstance(fragment, dict):
                self._fragment(fragment, position)

    def feed_old(self, fragment: dict[str, Any]) -> None:
        """The `function_call` of one delta: one call without id and index."""
        self._fragment({"index": 0, "function": fragment}, 0)

    def settle(self) -> None:
        """Something else begins: ends the calls whose arguments are complete, so that clients can run them."""
        grown, self._grown = self._grown, {}
        for call in grown:
            if call.opened and call.whole:
                self._end(call)

    def close(self) -> None:
        """The answer is over: nothing more can come for any call."""
        cut = self._builder.cutting and not self._builder.finishing
        for call in list(self.open):
            if not call.opened and (call.call_id or call.pieces) and not cut:
                self._begin(call)
            self._end(call)

    # -------------------------------------------------------------- inside

    def _fragment(self, fragment: dict[str, Any], position: int) -> None:
        function, custom = fragment.get("function"), fragment.get("custom")
        if isinstance(custom, dict):
            # Like an id, `type` comes with the first fragment only
            fragment = {**fragment, "type": "custom"}
            function = {**custom, "arguments": custom.get("input")}
            function.pop("input", None)
        if not isinstance(function, dict):
            function = {}
        call_id, name = text_of(fragment.get("id")), text_of(function.get("name"))
        if call_id in NO_IDS:
            call_id = ""
            name = "" if name in NO_IDS else name
        arguments = _arguments(function.get("arguments"))
        call = self._find(fragment.get("index"), call_id, name, arguments, position)
        if call is None:
            return
        if call_id:
            call.ids.add(call_id)
            last = self._by_id.get(call_id)
            if last is None or last.key < call.key:
                self._by_id[call_id] = call
        # The first non-empty id and name count: fragments repeat them (capture tool-name-and-id-repeated)
        call.call_id = call.call_id or call_id
        call.name = call.name or name
        self._note(call, fragment, function)
        self._grow(call, function.get("arguments"), arguments)

    def _grow(self, call: _Call, raw: Any, arguments: str) -> None:
        if not call.opened and call.name:
            self._begin(call)
        if not arguments or (call.pieces and not isinstance(raw, str)):
            return  # an object that is repeated grows nothing
        call.pieces.append(arguments)
        self._grown[call] = None
        if call.opened:
            self._builder.delta(call.key, arguments)

    def _find(self, index: Any, call_id: str, name: str, arguments: str, position: int) -> _Call | None:
        number = _number(index)
        if number is not None:
            call = self._by_index.get(number) or self._begun_without_index(call_id, name)
            if call is None and not (call_id or name):
                call = self._unfinished(arguments)
            if call is None or self._is_another(call, call_id, name, arguments):
                call = self._new()
            call.indexed = True
            self._by_index[number] = call
            return call
        known = self._by_id.get(call_id) if call_id else self._last
        if known is None or (
            name
            and (
                (not call_id and position > 0)
                or (known.name and name != known.name)
                or self._is_another(known, call_id, name, arguments)
            )
        ):
            return self._new() if call_id or name or arguments else None
        return known

    def _begun_without_index(self, call_id: str, name: str) -> _Call | None:
        """Return the last call if this fragment continues it: some servers number only some fragments."""
        last = self._last
        if last is None or last.indexed:
            return None
        return last if (call_id in last.ids if call_id else not name) else None

    def _unfinished(self, arguments: str) -> _Call | None:
        """Return the last call if its arguments are not complete: some servers count each piece of them
        (vllm-project/vllm#37070).
        """
        last = self._last
        if last is None or last not in self.open or not last.opened:
            return None
        return last if not arguments or not last.whole else None

    @staticmethod
    def _is_another(call: _Call, call_id: str, name: str, arguments: str) -> bool:
        """Two calls under one index or id: each with its own id and name, or whole ones one after the other."""
        if call_id and name and call.ids and call_id not in call.ids:
            return bool(call.name)
        return bool(name and arguments[:1] == "{" and call.whole)

    def _new(self) -> _Call:
        self.settle()
        call = self._last = _Call((self._choice, self._count))
        self._count += 1
        self.open[call] = None
        return call

    def _begin(self, call: _Call) -> None:
        call.opened = True
        self._grown[call] = None
        self._builder.open_part(
            call.key,
            self._choice,
            PartKind.TOOL_CALL,
            call_id=call.call_id or None,
            name=call.name,
            extras=noted_call(dict(call.extras)),
        )
        for piece in call.pieces:
            self._builder.delta(call.key, piece)

    def _end(self, call: _Call) -> None:
        if call not in self.open:
            return
        del self.open[call]
        self._builder.end_part(call.key, extras=noted_call(dict(call.extras)) if call.late else None)

    def _note(self, call: _Call, fragment: dict[str, Any], function: dict[str, Any]) -> None:
        """Keeps other fields, such as Gemini's signature (capture gemini-tool-no-index)."""
        known = _CALL_KEYS if fragment.get("type") != "custom" else _CALL_KEYS | {"custom"}
        if known.issuperset(fragment) and _FUNCTION_KEYS.issuperset(function):
            if fragment.get("type") == "custom":
                call.extras["type"] = "custom"
            return
        more = without_empty({k: v for k, v in fragment.items() if k not in known})
        if inner := without_empty({k: v for k, v in function.items() if k not in _FUNCTION_KEYS}):
            more["function"] = inner
        if fragment.get("type") == "custom":
            more["type"] = "custom"
        call.late = call.late or (call.opened and any(call.extras.get(k) != v for k, v in more.items()))
        call.extras.update(more)


def _number(index: Any) -> int | None:
    """An index as a number; `1.0` and `"1"` are meant as one."""
    if isinstance(index, str) and index.isdecimal():
        return int(index)
    return int(index) if is_number(index) and index == int(index) else None


def _arguments(value: Any) -> str:
    """A piece of the arguments string; an object (Ollama's own API, capture tool-arguments-object) is written once."""
    if isinstance(value, str):
        return value
    return json_text(value) if isinstance(value, (dict, list)) else ""
