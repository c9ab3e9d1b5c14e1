"""One answer on its way from a backend to a client, without I/O.

    backend bytes -> AnswerDecoder -> stages -> Reader -> Writer -> client bytes

`Reader` and `Writer` are usable alone; `Translation` is both together. Every caller uses these objects: the HTTP
server, `Translator`, `Bridge.stream`, agents in this process, runs that are kept in a log, and gRPC sessions.
"""

from bridge.translation.decoding import AnswerDecoder
from bridge.translation.reader import Reader
from bridge.translation.stage import Stage, StageFunction
from bridge.translation.translation import Translation
from bridge.translation.writer import Writer

__all__ = ["AnswerDecoder", "Reader", "Stage", "StageFunction", "Translation", "Writer"]
