"""`Writer`: the events of one answer as the bytes of a client's stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bridge.contract import Context, Dialect, EncoderLike, FrameLike
from bridge.model import Event, Heartbeat
from bridge.model.events import TERMINAL
from bridge.translation import framing
from bridge.translation.framing import arrays


class Writer:
    """Writes one stream of events, which must be well formed: a `Reader` sees to that.

    Attributes:
        after: The frames by which the framing ends the stream.
        ended: The terminal event was written; nothing follows it.
        join: Returns the bytes of frames.
    """

    __slots__ = ("_encoder", "after", "ended", "join")

    def __init__(self, dialect: Dialect, context: Context, encoder: EncoderLike | None = None) -> None:
        """`encoder` has written the beginning of the stream; by default, a new one begins it."""
        self._encoder = encoder or dialect.encoder(context)
        self.join: Callable[[Sequence[FrameLike]], bytes] = framing.of(dialect.framing).join
        self.after: tuple[FrameLike, ...] = ()
        if dialect.writes_array(context):
            self.join, self.after = arrays.Joiner(), (arrays.END,)
        self.ended = False

    def frames(self, events: Sequence[Event]) -> list[FrameLike]:
        """Returns the frames of these events; with those that follow the terminal event, if it is among them."""
        if self.ended or not events:
            return []
        frames = self._encoder.encode(events)
        if type(events[-1]) in TERMINAL:
            self.ended = True
            frames = [*frames, *self.after]
        return frames

    def write(self, events: Sequence[Event]) -> bytes:
        """Returns the bytes of these events."""
        frames = self.frames(events)
        return self.join(frames) if frames else b""

    def heartbeat(self) -> bytes:
        """Returns what keeps a silent connection open; nothing where the dialect has no such thing, and at the end."""
        return self.write([Heartbeat()])
