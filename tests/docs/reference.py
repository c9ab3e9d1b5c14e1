"""docs/reference: what the code says of each public name, as plain Markdown that code hosts show too.

`<!-- api: bridge.Text -->` ... `<!-- /api -->` in a page holds what is said of that name; `::: bridge.Text` on a
line of its own becomes such a part.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import griffe

from tests.docs.tables import ROOT

FOLDER = ROOT / "docs" / "reference"
PUBLIC = (
    "bridge",
    "bridge.server",
    "bridge.testing",
    "bridge.testing.strategies",
    "bridge.contract",
    "bridge.toolkit",
    "bridge.sdk.agentscope",
    "bridge.sdk.aip",
)
"""The modules whose `__all__` is public."""
WIDTH = 100
"""Signatures that are longer have one parameter per line."""

_NAME = re.compile(r"^(?:<!-- api: (\S+) -->\n.*?^<!-- /api -->|::: (\S+))$", re.MULTILINE | re.DOTALL)

_SECTION = re.compile(r"^(Args|Raises|Returns|Yields|Attributes):\n((?: {4}.*\n?|\n(?= {4}))+)", re.MULTILINE)


@cache
def sources() -> griffe.ModulesCollection:
    """Our packages, read once."""
    loader = griffe.GriffeLoader(search_paths=[ROOT])
    loader.load("bridge")
    loader.resolve_aliases()
    return loader.modules_collection


def named(path: str) -> griffe.Object:
    """What a dotted name stands for. Raises `KeyError` if there is none."""
    found = sources()[path]
    found = found.final_target if isinstance(found, griffe.Alias) else found
    # `bridge.server.host.http_server` is a function and the module that it is in.
    return named(f"{found.path}.{found.name}") if isinstance(found, griffe.Module) else found


@cache
def public_names(module: str) -> dict[str, griffe.Object]:
    """What the module's `__all__` names."""
    loaded = sources()[module]
    assert loaded.exports, f"{module} has no __all__"
    return {str(name): named(f"{module}.{name}") for name in loaded.exports}


def referred() -> dict[str, Path]:
    """Each name of the reference, with its page."""
    return {
        match[1] or match[2]: page
        for page in sorted(FOLDER.glob("*.md"))
        for match in _NAME.finditer(page.read_text(encoding="utf-8"))
    }


def page(path: Path) -> str:
    """The page with what the code says today."""
    return _NAME.sub(lambda match: _entry(match[1] or match[2]), path.read_text(encoding="utf-8"))


def _entry(path: str) -> str:
    told = named(path)
    parts = [f'<!-- api: {path} -->\n<a id="{path}"></a>', f"### {path.rpartition('.')[2]}"]
    if isinstance(told, griffe.Class):
        parts += _of_class(told, path.rpartition(".")[2])
    elif isinstance(told, griffe.Function):
        parts += [_signature(told, told.name), _words(told)]
    else:
        assert isinstance(told, griffe.Attribute), path
        parts += [_block(_value(told.name, str(told.value))), _words(told)]
    return "\n\n".join([*(part for part in parts if part), "<!-- /api -->"])


def _of_class(told: griffe.Class, name: str) -> list[str]:
    bases = f"({', '.join(map(str, told.bases))})" if told.bases else ""
    enum = "Enum" in bases or "Flag" in bases
    parameters = [p for p in told.parameters if p.name != "self"]
    shown = f"class {name}{bases}"
    if parameters:
        shown += "\n\n" + _laid(f"{name}(", _parameters(parameters), ")")
    elif bases == "(NamedTuple)":
        fields_of = [m for m in told.members.values() if isinstance(m, griffe.Attribute)]
        values = [f"{m.name}: {m.annotation}" + (f" = {m.value}" if m.value is not None else "") for m in fields_of]
        shown += "\n\n" + _laid(f"{name}(", values, ")")
    parts = [_block(shown), _words(told)]
    if (init := told.members.get("__init__")) is not None and init.docstring is not None:
        parts.append(_words(init))
    accepted = {p.name for p in parameters}
    fields, methods = [], []
    for member in told.members.values():
        if member.is_alias or member.name.startswith("_"):
            continue
        if isinstance(member, griffe.Attribute):
            if member.docstring is not None or enum or member.name not in accepted:
                fields.append(_field(member, enum))
        elif isinstance(member, griffe.Function) and member.docstring is not None:
            methods += [f"#### {name}.{member.name}", _signature(member, member.name), _words(member)]
    return [*parts, "\n".join(fields), *methods]


def _field(member: griffe.Attribute, enum: bool) -> str:
    kind = f" = `{member.value}`" if enum else f": `{member.annotation}`" if member.annotation is not None else ""
    said = " ".join(member.docstring.value.split()) if member.docstring is not None else ""
    return f"- `{member.name}`{kind}{': ' if said else ''}{said}"


def _parameter(told: griffe.Parameter) -> str:
    star = {"variadic positional": "*", "variadic keyword": "**"}.get(told.kind.value if told.kind else "", "")
    said = f"{star}{told.name}"
    if told.annotation is not None:
        said += f": {told.annotation}"
    if told.default is not None and not star:
        default = str(told.default)  # `at(...)` is a field's number and type on the wire of AIP
        said += "" if default.startswith("at(") else f" = {default}" if told.annotation is not None else f"={default}"
    return said


def _parameters(parameters: list[griffe.Parameter]) -> list[str]:
    """Parameters with the star before those that are given by name only."""
    words: list[str] = []
    keyword_only = False
    for parameter in parameters:
        kind = parameter.kind.value if parameter.kind else ""
        if kind == "keyword-only" and not keyword_only:
            words += [] if words and words[-1].startswith("*") else ["*"]
            keyword_only = True
        words.append(_parameter(parameter))
    return words


def _signature(told: griffe.Function, name: str) -> str:
    words = _parameters([p for p in told.parameters if p.name not in ("self", "cls")])
    made = f" -> {told.returns}" if told.returns is not None else ""
    start = "async def" if "async" in told.labels else "def"
    heads = [f"@{label}\n" for label in ("classmethod", "staticmethod", "property") if label in told.labels]
    return _block("".join(heads) + _laid(f"{start} {name}(", words, f"){made}"))


def _laid(start: str, words: list[str], end: str) -> str:
    whole = f"{start}{', '.join(words)}{end}"
    return whole if len(whole) <= WIDTH else "\n".join([start, *(f"    {word}," for word in words), end])


def _value(name: str, value: str) -> str:
    """A constant, or a union of types, with one element per line where it is long."""
    if len(name) + len(value) + 3 <= WIDTH:
        return f"{name} = {value}"
    node = ast.parse(value, mode="eval").body
    if isinstance(node, ast.Dict):
        pairs = [
            f"{ast.unparse(key)}: {ast.unparse(of)}" for key, of in zip(node.keys, node.values, strict=True) if key
        ]
        return _laid(f"{name} = {{", pairs, "}")
    if isinstance(node, ast.Tuple):
        return _laid(f"{name} = (", [ast.unparse(each) for each in node.elts], ")")
    return f"{name} = " + value.replace(" | ", "\n    | ")


def _block(code: str) -> str:
    return f"```python\n{code}\n```"


def _words(told: griffe.Object | griffe.Alias) -> str:
    """The docstring: its sections as lists, each paragraph as it is."""
    if told.docstring is None:
        return ""
    text = told.docstring.value
    return re.sub(
        r"^(Args|Raises|Returns|Yields|Attributes):\n((?:[ ]{4}.*\n?|\n(?=[ ]{4}))+)", _listed, text, flags=re.M
    )


def _listed(match: re.Match[str]) -> str:
    items = re.sub(r"\n(?= {8})\s+", " ", match[2].rstrip())
    lines = []
    for line in items.splitlines():
        name, found, said = line.strip().partition(": ")
        lines.append(f"- `{name}`: {said}" if found else f"- {line.strip()}")
    return f"{match[1]}:\n\n" + "\n".join(lines) + "\n"
