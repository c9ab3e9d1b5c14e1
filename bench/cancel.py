#!/usr/bin/env python3
"""Does a client that goes away stop the upstream reply?

    python bench/cancel.py [TARGETS.json ...] [--only NAMES]

For every streaming case of every target: eight streams of ten seconds each are opened, read until the first text
delta, and closed by the client. Then the mock upstream is watched: how many replies did the target drop, and how
long after the clients left? A target that reads on to the end drops none.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import sys
import time
import uuid
from pathlib import Path

import procfs
from targets import HERE, Case, Mock, NotStarted, Target, read
from wires import DIALECTS

STREAMS = 8
PATIENCE = 12


def open_stream(target: Target, case: Case) -> socket.socket:
    """A stream whose first delta was read."""
    host, port = target.base.split("//")[1].split(":")
    body = target.fill(json.dumps(case.payload())).replace("__ID__", uuid.uuid4().hex).encode()
    headers = {"host": host, "content-type": "application/json", "content-length": str(len(body))}
    headers |= {"accept": "text/event-stream", **{k.lower(): target.fill(v) for k, v in case.headers.items()}}
    lines = [f"POST {target.fill(case.path)} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
    out = socket.create_connection((host, int(port)), timeout=15)
    out.sendall("\r\n".join(lines).encode() + body)
    delta, got = DIALECTS[case.front].delta, b""
    while not delta.search(got):
        piece = out.recv(65536)
        if not piece:
            raise OSError(f"closed early: {got[:200]!r}")
        got += piece
    return out


def dropped(target: Target, case: Case, mock: Mock) -> str:
    """A table row."""
    mock.reset()
    try:
        streams = [open_stream(target, case) for _ in range(STREAMS)]
    except OSError as e:
        return f"| {target.name} | {case.name} | {e} | |"
    for stream in streams:
        stream.close()
    begun = time.monotonic()
    while (stats := mock.stats())["open"] and time.monotonic() - begun < PATIENCE:
        time.sleep(0.02)
    seconds = f"{time.monotonic() - begun:.2f}" if stats["dropped"] == STREAMS else ""
    return f"| {target.name} | {case.name} | {stats['dropped']} | {seconds} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = [HERE / "baselines.json", HERE / "bridge.json"]
    parser.add_argument("targets", nargs="*", type=Path, default=default)
    parser.add_argument("--only", help="target names with commas")
    args = parser.parse_args()
    if why := procfs.missing():
        sys.exit(why)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    status = 0
    with Mock() as mock:
        mock.set(tokens=100, delay_ms=100)
        fill = {"upstream": mock.url, "upstream_port": str(mock.port), "here": str(HERE), "python": sys.executable}
        try:
            targets = read(args.targets, args.only, fill)
        except ValueError as e:
            parser.error(str(e))
        print(f"| target | case | dropped of {STREAMS} | seconds until the last was dropped |\n|---|---|---|---|")
        for target in targets:
            try:
                if absent := target.absent():
                    print(f"!!! SKIPPED: target {target.name}, because {absent} is not installed", file=sys.stderr)
                    continue
                target.start()
                for case in target.cases:
                    if case.stream and not case.follow:
                        print(dropped(target, case, mock), flush=True)
            except NotStarted as e:
                print(f"!!! {target.name} did not start: {e}", file=sys.stderr)
                status = 1
            finally:
                target.clean()
    return status


if __name__ == "__main__":
    sys.exit(main())
