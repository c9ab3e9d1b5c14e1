"""What dialects are made of: bases of encoders and decoders, tables of fields, errors and words.

A dialect needs none of it, and most use most of it.
"""

from bridge.toolkit.check import Node, SpelledNode, body_of, model_in
from bridge.toolkit.citations import citations_in, with_citations
from bridge.toolkit.counts import counts_in
from bridge.toolkit.decoder import JsonDecoder
from bridge.toolkit.encoder import Encoder
from bridge.toolkit.error_table import ErrorTable
from bridge.toolkit.errors import STATUSES, error_in
from bridge.toolkit.fields import BOOLEAN, INTEGER, NUMBER, OBJECT, STRING, STRINGS, Fields, Row, integer, number
from bridge.toolkit.media import request_feature, result_as_text
from bridge.toolkit.message_losses import RESULT, MessageLosses
from bridge.toolkit.objects import ObjectDialect
from bridge.toolkit.open_calls import OpenCalls
from bridge.toolkit.paths import resource, segment
from bridge.toolkit.projection import Projection
from bridge.toolkit.redact import masked
from bridge.toolkit.signed_parts import signature_of, signed
from bridge.toolkit.template import Template
from bridge.toolkit.tools import supported
from bridge.toolkit.words import end_of

__all__ = [
    "BOOLEAN",
    "INTEGER",
    "NUMBER",
    "OBJECT",
    "RESULT",
    "STATUSES",
    "STRING",
    "STRINGS",
    "Encoder",
    "ErrorTable",
    "Fields",
    "JsonDecoder",
    "MessageLosses",
    "Node",
    "ObjectDialect",
    "OpenCalls",
    "Projection",
    "Row",
    "SpelledNode",
    "Template",
    "body_of",
    "citations_in",
    "counts_in",
    "end_of",
    "error_in",
    "integer",
    "masked",
    "model_in",
    "number",
    "request_feature",
    "resource",
    "result_as_text",
    "segment",
    "signature_of",
    "signed",
    "supported",
    "with_citations",
]
