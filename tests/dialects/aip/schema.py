"""The protocol's own schema, compiled by protoc: the judge of what our messages look like on the wire."""

from __future__ import annotations

import importlib
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(__file__).parent


@cache
def _compiled() -> Path:
    from grpc_tools import protoc

    out = tempfile.mkdtemp(prefix="aip-schema-")
    arguments = [
        "protoc",
        f"-I{FOLDER}",
        f"--python_out={out}",
        f"--grpc_python_out={out}",
        "aip.proto",
        "aip_toolbox.proto",
    ]
    if protoc.main(arguments) != 0:
        raise RuntimeError("protoc could not compile the schema")
    sys.path.append(out)
    return Path(out)


def tool() -> ModuleType:
    """The messages of the tool generation."""
    _compiled()
    return importlib.import_module("aip_pb2")


def toolbox() -> ModuleType:
    """Those that differ in the toolbox generation."""
    _compiled()
    return importlib.import_module("aip_toolbox_pb2")


def services() -> ModuleType:
    """Stubs and servicers of the tool generation."""
    _compiled()
    return importlib.import_module("aip_pb2_grpc")


def message(name: str, /, *, box: bool = False, **fields: Any) -> Any:
    """A message of the schema by its name."""
    return getattr(toolbox() if box else tool(), name)(**fields)
