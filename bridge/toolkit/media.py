"""Media where a wire has text only: which feature each is, and the text of a tool's result."""

from __future__ import annotations

from bridge.contract.capabilities import Feature
from bridge.contract.context import Losses
from bridge.model import Data, FileRef, Media, MediaKind, Part, ToolResult, ToolResulted, Url, result_text

DEFAULT_TYPES = {
    MediaKind.IMAGE: "image/png",
    MediaKind.AUDIO: "audio/wav",
    MediaKind.VIDEO: "video/mp4",
    MediaKind.FILE: "application/octet-stream",
}
"""The media types of bytes whose type nobody named, for wires that demand one."""


_KINDS = {kind.value: kind for kind in MediaKind}


def kind_of(mime: str | None) -> MediaKind:
    """Return the kind of a medium of this media type: a file if the type is unknown or that of anything else."""
    return _KINDS.get((mime or "").partition("/")[0].strip().lower(), MediaKind.FILE)


def answer_feature(part: Part) -> Feature:
    """Return the feature of answers for a whole part: a medium, or data."""
    return Feature(str(part.kind)) if isinstance(part, Media) else Feature.DATA


def request_feature(media: Part) -> Feature:
    """Return the feature of requests for a medium or for data."""
    if isinstance(media, Data):
        return Feature.DATA
    assert isinstance(media, Media)
    if isinstance(media.source, FileRef):
        return Feature.FILE_REF
    return Feature(f"{media.kind}_{'url' if isinstance(media.source, Url) else 'inline'}")


ERROR_MARK = "the mark that a result is an error"


def result_as_text(result: ToolResult | ToolResulted, lost: Losses, *, marks_errors: bool = True) -> str:
    """A tool's result, of a request or of an answer, as one string; the media that become text are noted as lost.

    `marks_errors`: whether the wire says that a result is an error, which else is lost as well.
    """
    of_answer = isinstance(result, ToolResulted)
    if result.is_error and not marks_errors:
        lost.add(Feature.TOOL_RESULT if of_answer else Feature.TOOL_HISTORY, ERROR_MARK)
    for part in result.parts:
        if isinstance(part, Media):
            lost.add(answer_feature(part) if of_answer else request_feature(part), "in a tool's result, sent as text")
    return result_text(result.parts)
