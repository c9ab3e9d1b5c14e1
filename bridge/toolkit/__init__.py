"""What dialects are made of: bases of encoders and decoders, tables of fields, errors and words.

A dialect needs none of it, and most use most of it.
"""

from bridge.toolkit.check import Node, body_of
from bridge.toolkit.decoder import JsonDecoder
from bridge.toolkit.encoder import Encoder
from bridge.toolkit.fields import Fields, Row
from bridge.toolkit.message_losses import MessageLosses
from bridge.toolkit.objects import ObjectDialect
from bridge.toolkit.projection import Projection

__all__ = [
    "Encoder",
    "Fields",
    "JsonDecoder",
    "MessageLosses",
    "Node",
    "ObjectDialect",
    "Projection",
    "Row",
    "body_of",
]
