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
def _compiled() -> dict[str, ModuleType]:
    """The modules by their names."""
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory(prefix="aip-schema-") as out:
        outputs = (f"--python_out={out}", f"--grpc_python_out={out}")
        if protoc.main(["protoc", f"-I{FOLDER}", *outputs, "aip.proto", "aip_toolbox.proto"]) != 0:
            raise RuntimeError("protoc could not compile the schema")
        sys.path.append(out)
        try:
            return {name: importlib.import_module(name) for name in ("aip_pb2", "aip_toolbox_pb2", "aip_pb2_grpc")}
        finally:
            sys.path.remove(out)


def tool() -> ModuleType:
    """The messages of the tool generation."""
    return _compiled()["aip_pb2"]


def toolbox() -> ModuleType:
    """Those that differ in the toolbox generation."""
    return _compiled()["aip_toolbox_pb2"]


def services() -> ModuleType:
    """Stubs and servicers of the tool generation."""
    return _compiled()["aip_pb2_grpc"]


def message(name: str, /, *, box: bool = False, **fields: Any) -> Any:
    """A message of the schema by its name."""
    return getattr(toolbox() if box else tool(), name)(**fields)
