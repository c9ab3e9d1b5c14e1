"""Plays one side of a recorded conversation over its standard input and output: `player.py CAPTURE NAME SIDE`.

It expects the other side's lines byte for byte, and exits with status 1 when another one comes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    lines = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for sender, text in lines:
        if sender == sys.argv[2]:
            sys.stdout.buffer.write(text.encode() + b"\n")
            sys.stdout.buffer.flush()
        else:
            came = sys.stdin.buffer.readline()
            if came != text.encode() + b"\n":
                sys.exit(f"expected {text}\ngot      {came.decode()}")
    if sys.stdin.buffer.read():
        sys.exit("more came")


if __name__ == "__main__":
    main()
