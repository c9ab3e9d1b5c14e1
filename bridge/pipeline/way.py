"""One backend's side of a run: the request as this backend gets it, its stages, its names, its turn in the talk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from bridge.codec import Card, Losses
from bridge.model import Folder, Request, RunStarted
from bridge.pipeline.backend import Backend, Call, CallInfo, Reply
from bridge.pipeline.memory import Turn
from bridge.pipeline.names import tool_names
from bridge.pipeline.seam import Begun
from bridge.pipeline.stages import AUTOMATIC, StageContext, StageFactory, build


class Way:
    """What a run needs to ask one backend. A run has one at a time.

    `said` is None when nothing is kept of the talk. `call` is the current try.
    """

    __slots__ = (
        "backend",
        "begun",
        "call",
        "info",
        "lost",
        "names",
        "request",
        "said",
        "stages",
        "turn",
    )

    def __init__(
        self,
        request: Request,
        backend: Backend,
        front: Card,
        info: CallInfo,
        *,
        options: object = None,
        stages: Sequence[StageFactory] = (),
        lost: Losses | None = None,
        untouched: bool = False,
        turn: Turn | None = None,
        begun: str = "",
    ) -> None:
        """`untouched`: no stage may change the stream (passthrough). `turn` keeps the conversation at the end. `begun`
        are the words behind which the backend is asked to go on.

        Raises `Unsupported` from the back's codec.
        """
        self.lost = lost if lost is not None else Losses()
        self.backend = backend
        self.info = info
        context = StageContext(request, front, backend.card, options, self.lost)
        self.stages = [] if untouched else build((*AUTOMATIC, *stages), context)
        self.names = None if untouched else tool_names(context.request, front, backend.card)
        self.request = context.request if self.names is None else self.names.request
        self.begun = Begun(begun) if begun else None
        self.turn = turn
        self.said = Folder() if turn is not None else None
        self.call: Call = self._first_call()

    @property
    def plain(self) -> bool:
        """Whether pieces of open parts pass as they are: stages may hold them back, names stand in other events."""
        for stage in self.stages:  # noqa: SIM110 - a generator more, for each token
            if not getattr(stage, "at_rest", False):
                return False
        return True

    @property
    def asks_nobody(self) -> bool:
        """Whether the answer is known without the backend."""
        return self.turn is not None and self.turn.reply is not None

    def head(self) -> RunStarted:
        """What a run begins with of which the backend has said nothing."""
        info = self.info
        return RunStarted(info.run_id, info.shown_thread or info.thread_id, None, info.created_at)

    def _first_call(self) -> Call:
        if self.turn is not None and self.turn.reply is not None:
            return Reply(self.info, [self.head(), *self.turn.reply])
        return self.backend.call(self.request, self.info, self.lost)

    async def again(self) -> None:
        """Lets go of the call and makes the next one."""
        await self.call.close()
        self.call = self.backend.call(self.request, self.info, self.lost)

    async def leave(self) -> None:
        """Lets go of everything; nothing is kept of what happened here."""
        await self.call.close()
        turn, self.turn, self.said = self.turn, None, None
        if turn is not None:
            await turn.close()


NextWay = Callable[[str], Awaitable[Way]]
"""Prepares the way to another backend, when the one before has failed behind these words of its answer; "" = before
the first one. Raises `BridgeError`."""
