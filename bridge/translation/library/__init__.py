"""Translation without a server, a socket or a loop: whole recordings in one call, live ones with `Translator`."""

from bridge.translation.library.recordings import What, decode, encode, translate
from bridge.translation.library.translator import Translator

__all__ = ["Translator", "What", "decode", "encode", "translate"]
