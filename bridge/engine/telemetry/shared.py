"""Files in which several processes count, so that no full disk and no removed folder ends a process.

`prometheus_client` maps files that have holes into memory. A write into a hole for which the file system has no block
ends the process with SIGBUS. Here the blocks are taken before, where their lack is an `OSError`.
"""

from __future__ import annotations

import os
from typing import Any

from prometheus_client import values
from prometheus_client.mmap_dict import MmapedDict

_FIRST = 1 << 16
"""Bytes of a new file, as in `prometheus_client`."""
_BESIDE = 64
"""The most bytes that an entry takes beside its key."""


class AllocatedDict(MmapedDict):
    """A file of numbers whose blocks all exist. Raises `OSError` for one that cannot be had."""

    def __init__(self, filename: str, read_mode: bool = False) -> None:
        if not read_mode:
            _create(filename)
        super().__init__(filename, read_mode)  # type: ignore[no-untyped-call]

    def _init_value(self, key: str) -> None:
        own: Any = self
        capacity = own._capacity
        while own._used + len(key.encode()) + _BESIDE > capacity:
            capacity *= 2
        if capacity > own._capacity:
            _extend(own._f.fileno(), own._capacity, capacity)
        super()._init_value(key)  # type: ignore[no-untyped-call]


class NoSeries:
    """A series that cannot be kept: what is counted is dropped."""

    def inc(self, amount: float = 1) -> None: ...

    def set(self, value: float) -> None: ...

    def observe(self, value: float) -> None: ...


def count_in_files() -> None:
    """Let the metrics that are created from now on use such files."""
    values.MmapedDict = AllocatedDict  # type: ignore[attr-defined]


def count_in_memory() -> None:
    """Let the metrics that are created from now on use numbers of this process alone."""
    values.ValueClass = values.MutexValue


def _create(filename: str) -> None:
    os.makedirs(os.path.dirname(filename), mode=0o700, exist_ok=True)
    with open(filename, "ab") as file:
        if not os.fstat(file.fileno()).st_size:
            _extend(file.fileno(), 0, _FIRST)


def _extend(file: int, size: int, wanted: int) -> None:
    """Write zeros up to the size that is wanted, or leave the file as it was."""
    os.ftruncate(file, size)  # what an attempt that failed may have left
    end = size
    try:
        while end < wanted:
            end += os.write(file, bytes(wanted - end))
    except OSError:
        os.ftruncate(file, size)
        raise
