"""Constants and small readers that both directions share."""

from __future__ import annotations

from typing import Any

from bridge.model import (
    Extras,
    FileRef,
    FinishReason,
    Media,
    MediaKind,
    Reasoning,
    json_text,
    mime_of,
    source_of,
    unseal,
    url_of,
)
from bridge.model.jsontext import loads, text_of
from bridge.model.media_types import registered
from bridge.toolkit.media import DEFAULT_TYPES, kind_of
from bridge.toolkit.signed_parts import GOOGLE, signature_of, signed

NAME = "ai-sdk-ui"
OURS = "dialect_bridge"
"""The namespace under which `providerMetadata` holds what the wire has no field for."""

INVALID_INPUT = "The arguments of this call are not a complete JSON value."
"""The `errorText` of a call without a tool to run it. A backend's own text is the result of such a call."""

_SIGNATURE = "thoughtSignature"

EARLIER: dict[str, dict[str, Any]] = {OURS: {"earlier": True}}
"""The `providerMetadata` of a call of an earlier answer, which clients need beside its result."""

FINISHES: dict[FinishReason, str] = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.CONTENT_FILTER: "content-filter",
    FinishReason.TOOL_CALLS: "tool-calls",
    FinishReason.INTERRUPTED: "tool-calls",
}


Wire = dict[str, Any]


def own(extras: Extras | None) -> Wire:
    """Return this dialect's extras of a part or an event; an empty dict if there are none."""
    return extras.get(NAME) or {} if extras else {}


def noted(values: Wire) -> Extras | None:
    """Return `extras` with these values for this dialect; None if there are none."""
    given = {k: v for k, v in values.items() if v is not None}
    return {NAME: given} if given else None


def picked(values: Wire, *names: str) -> Wire:
    """The fields of these names that are not null."""
    return {name: values[name] for name in names if values.get(name) is not None}


# ------------------------------------------------------------------ providerMetadata


def metadata_of(value: Any) -> dict[str, Wire] | None:
    """`providerMetadata` if it has the form that clients accept: objects by namespace."""
    if isinstance(value, dict) and value and all(isinstance(v, dict) for v in value.values()):
        return value
    return None


def secret_of(metadata: dict[str, Wire] | None, *, sealed: bool) -> tuple[str | None, str | None]:
    """`(signature, redacted)` of a reasoning.

    Values of another namespace than the bridge's are the provider's: its plain signature, or with `sealed` all of the
    metadata as one opaque text, so that a client of any dialect returns it with its namespace.
    """
    if not metadata:
        return None, None
    ours = metadata.get(OURS, {})
    if ours or not sealed:
        values = [ours, *metadata.values()]
        signature = next((v["signature"] for v in values if text_of(v.get("signature"))), None)
        redacted = next((v[k] for v in values for k in ("redacted", "redactedData") if text_of(v.get(k))), None)
        return signature, redacted
    return unseal(json_text(metadata))


def metadata_for(signature: str | None, redacted: str | None, extras: Extras | None) -> dict[str, Wire] | None:
    """`providerMetadata` for a reasoning, in the namespace that it came in."""
    if native := metadata_of(own(extras).get("providerMetadata")):
        return native
    if signature and signature.startswith("{"):
        try:
            native = metadata_of(loads(signature))
        except ValueError:
            native = None
        if native:
            return native
    ours = {k: v for k, v in (("signature", signature), ("redacted", redacted)) if v}
    return {OURS: ours} if ours else None


def metadata_in(extras: Extras | None) -> dict[str, Wire] | None:
    """`providerMetadata` of a text, a call or a medium."""
    return with_signature(metadata_of(own(extras).get("providerMetadata")), extras)


def with_signature(metadata: dict[str, Wire] | None, extras: Extras | None) -> dict[str, Wire] | None:
    """The metadata with the signature of the part, in the form of the AI SDK's provider for Gemini."""
    signature = signature_of(extras)
    if signature is None:
        return metadata
    known = metadata or {}
    return {**known, GOOGLE: {**known.get(GOOGLE, {}), _SIGNATURE: signature}}


def noted_part(values: Wire, metadata: Any) -> Extras | None:
    """Return `extras` of a part with these values for this dialect, and the signature that its metadata has."""
    known = metadata_of(metadata) or {}
    return signed(noted(values), text_of(known.get(GOOGLE, {}).get(_SIGNATURE)))


def with_metadata(wire: Wire, metadata: dict[str, Wire] | None) -> Wire:
    """The chunk or part, with `providerMetadata` if there is any."""
    return {**wire, "providerMetadata": metadata} if metadata else wire


# ------------------------------------------------------------------ media and values


def read_file(wire: Wire) -> Media:
    """A medium. Its kind follows from the media type unless this bridge noted another."""
    metadata = metadata_of(wire.get("providerMetadata")) or {}
    ours, native = metadata.get(OURS, {}), {k: v for k, v in metadata.items() if k != OURS}
    source, declared = source_of(text_of(wire.get("url")))
    mime = text_of(wire.get("mediaType"))
    if declared and registered(mime or None) is None:  # `image/*` says less than the URL (vercel/ai#20604)
        mime = declared
    kind = kind_of(mime)
    if text_of(ours.get("kind")) in DEFAULT_TYPES:
        kind = MediaKind(ours["kind"])
    filename = text_of(wire.get("filename")) or text_of(ours.get("filename"))
    extras = noted_part({"providerMetadata": native or None}, native)
    return Media(kind, source, None if ours.get("guessed") else mime or None, filename or None, extras)


def write_file(media: Media) -> Wire:
    """Return a medium as `url` and `mediaType`, which the wire requires. The id of a file replaces the address."""
    mime = mime_of(media) or DEFAULT_TYPES[media.kind]
    url = media.source.file_id if isinstance(media.source, FileRef) else url_of(media, mime)
    return {"type": "file", "url": url, "mediaType": mime}


def noted_file(media: Media) -> Wire:
    """A medium as a chunk, whose `providerMetadata` holds what the chunk has no field for."""
    wire = write_file(media)
    ours: Wire = {"filename": media.filename} if media.filename else {}
    if media.mime is None:
        ours["guessed"] = True
    if kind_of(wire["mediaType"]) is not media.kind:
        ours["kind"] = str(media.kind)
    native = metadata_in(media.extras) or {}
    return with_metadata(wire, {**native, OURS: ours} if ours else native)


def parsed(arguments: str) -> tuple[Any, bool]:
    """The JSON value of a call's arguments, no arguments being an empty object; false if they are not JSON."""
    if not arguments.strip():
        return {}, True
    try:
        return loads(arguments), True
    except ValueError:
        return arguments, False


def output_of(text: str, extras: Extras | None) -> Any:
    """The output of a tool: the value that the wire had, else an object or a list where its text is one."""
    if "output" in (native := own(extras)):
        return native["output"]
    if text.lstrip()[:1] in ("{", "["):
        value, is_json = parsed(text)
        return value if is_json else text
    return text


def value_text(value: Any) -> str:
    """A tool's output, or its input, as text."""
    return value if isinstance(value, str) else json_text(value)


def read_reasoning(text: str, metadata: Any) -> Reasoning:
    """The reasoning of an earlier answer, with its metadata for backends of this dialect."""
    known = metadata_of(metadata)
    return Reasoning(text, *secret_of(known, sealed=False), noted_part({"providerMetadata": known}, known))
