"""Convert a recorded stream on the command line, to another dialect or to readable events.

    python examples/convert.py openai-chat agentscope < recording.sse > other.sse
    python examples/convert.py openai-chat events < recording.sse

It translates piece by piece, so a recording may be larger than memory or still growing (`tail -f | ...`). For one that
fits into memory, `dialect-bridge translate` does the same.
"""

import os
import sys

from bridge import BridgeError, Translator, decode, pretty


def main(source: str, target: str) -> None:
    recording, out = sys.stdin.buffer, sys.stdout.buffer
    if target == "events":
        print(pretty(decode(recording.read(), source)))
        return
    translator = Translator(source, target)
    while data := os.read(recording.fileno(), 64 * 1024):
        out.write(translator.feed(data))
        out.flush()
    out.write(translator.close())
    if translator.lost:
        print("lost:", ", ".join(translator.lost), file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except BridgeError as error:
        sys.exit(error.message)
