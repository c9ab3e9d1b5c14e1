"""Joins clients and backends that differ in who stores the conversation, or in how a run waits for a person.

Some clients send only what is new and rely on the server's memory (AgentScope's web frontend, AG-Kit); others send the
whole conversation each time (OpenAI chat, AG-UI). Some backends remember it by an id, others do not. Where the two
sides differ, the bridge stores the history: it expands an increment to the whole conversation for a backend without a
memory, and trims a whole conversation to what is new for one with a memory. Where the client only lacks interrupts, the
bridge stores those alone. Rules: docs/dialects/ag-kit.md.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, Self

from bridge.contract import Capabilities, Feature, Support
from bridge.errors import BridgeError, ErrorCode
from bridge.model import (
    Answer,
    Event,
    FinishReason,
    HistoryMode,
    Interrupted,
    Message,
    Request,
    Resume,
    RunFinished,
    RunStarted,
    Text,
    ToolCall,
    unfold,
)
from bridge.model.dump import dump, load_message, load_request
from bridge.model.events import CONTENT
from bridge.model.jsontext import dumps
from bridge.run.conversation.comparison import (
    as_client_sees,
    canceled,
    continues,
    digest,
    finished,
    half_answered,
    is_answer,
    messages_of,
    no_results,
    only_results,
    open_calls,
    refused,
    squeezed,
    states_before,
    unknown,
    up_to_last_answer,
)
from bridge.run.conversation.interrupts import Settled, settle
from bridge.stores import Attachments
from bridge.stores.conversation_store import Conversation
from bridge.stores.conversations import ConversationStore, HeldConversation
from bridge.stores.joint import Joint
from bridge.translation.pair import pair_of

log = logging.getLogger("bridge.conversations")

_PRUNE_FIRST = 3.0
_PRUNE_EVERY = 3600.0
"""Seconds."""

_RAN = "ran"
"""Key of the calls that the backend ran or was told to run: their results are not new to it."""

_TOLD = "told"
"""Key of the messages that answered interrupts: the backend has them as answers, not as messages."""

_ANSWER = "answer"
"""Key of the messages with which the run ended that waits."""

_CONTEXT = "context"
"""Key of the SHA-256 of the client's context that the backend was told last."""

_PARTIAL = "partial_answers"
"""Key of a request that holds the answers received so far, with their questions, while other answers are missing."""

_HALF = "half"
"""Key of the text of a canceled answer, of which the client may have less."""

_MOST_NOTED = 1000

_BACKEND = "keeper"
"""Key of the backend that remembers the conversation, among several."""


class Turn:
    """One request of one conversation, from the moment its history is known until it is kept.

    `request` is what the backend is to be sent. `reply`, when it is set, is the answer after `RunStarted`, and the
    backend is not called.
    """

    keeps_thread = False
    """The bridge keeps the conversation, so that a backend without a word for its id loses nothing."""
    continues = False
    """The backend has the conversation, as far as the bridge knows."""
    sent_in: str | None = None
    """The conversation at the backend in which it was sent the request; None if it was not sent."""
    finds_by_digest = False
    """`keep` reads `shown`: the next request is found by the digest of what the client has seen."""

    def __init__(
        self,
        store: ConversationStore,
        owner: str,
        scope: str,
        request: Request,
        front: Capabilities,
        back: Capabilities,
        backend_name: str | None = None,
    ) -> None:
        """`backend_name` is the backend's name if others may answer the next request of this conversation."""
        self.request = request
        self.reply: list[Event] | None = None
        self._new: list[Message] = []
        self._unanswered: list[Interrupted] = []
        self._store = store
        self._owner = owner
        self._scope = scope
        self._front = front
        self._back = back
        self._backend_name = backend_name
        self._named: str | None = None
        self._turn: AbstractAsyncContextManager[HeldConversation] | None = None
        self._held: HeldConversation | None = None
        self.joint: Joint | None = None
        """A transaction that is to store the conversation, if it can."""
        self._conversation: Conversation  # known when it has begun

    async def begin(self, run_id: str) -> None:
        """Loads what is needed and rewrites `request`. Raises `BridgeError`."""
        raise NotImplementedError

    async def begin_or_close(self, run_id: str) -> Self:
        """The turn after `begin`; closed when that fails."""
        try:
            await self.begin(run_id)
        except BaseException:
            await self.close()
            raise
        return self

    async def keep(self, answer: Answer, shown: Answer) -> None:
        """The run is over: stores what the next request needs. `answer` is the backend's, `shown` what the client got
        of it if `finds_by_digest`, else the same.

        Raises `BridgeError` when the store fails.
        """
        raise NotImplementedError

    async def forget(self) -> None:
        """The request was refused: removes what `begin` has stored of it. Raises `BridgeError` when the store fails."""

    def for_client(self, events: list[Event], answer: Answer) -> list[Event]:
        """Return a batch of the backend as the client gets it; `answer` is what came before it.

        Agents that wait for an answer and get another message stay silent (docs/dialects/ag-kit.md); then the question
        is asked again.
        """
        if events and isinstance(events[0], RunStarted):
            self._named = events[0].thread_id
        if not self._unanswered or not events or not isinstance(events[-1], RunFinished):
            return events
        if answer.messages or answer.interrupts or not CONTENT.isdisjoint(map(type, events)):
            return events
        end = replace(events[-1], reason=FinishReason.INTERRUPTED)
        return [*events[:-1], *self._waiting_calls(), *self._unanswered, end]

    def _waiting_calls(self) -> list[Event]:
        """Return the agent's own calls that unanswered questions are about, for clients that are not shown them."""
        return []

    def fresh_request(self) -> Request | None:
        """Return the request for a conversation that is new to the backend, which does not know the one that it had;
        None if that is not how this conversation is kept, or nothing continues.
        """
        return None

    def _new_thread(self, name: str) -> str | None:
        """The name of a conversation that begins at the backend; None if the backend names it."""
        return None if self._back.names_threads else name

    def _remembers(self, answer: Answer) -> bool:
        """Return whether the backend has the request, and its own answer as far as that came."""
        return finished(answer) or (self._back.keeps_canceled and canceled(answer) and self.sent_in is not None)

    def _thread_kept(self, answer: Answer, thread: str | None) -> str | None:
        """Return under which name the backend has the conversation that it was sent as `thread`, if it was called;
        None if it is unknown what it has.
        """
        if not finished(answer):
            return self.sent_in if self._remembers(answer) else None
        return self._named if self._back.names_threads and self.reply is None else thread

    async def close(self) -> None:
        """Lets the next request of this conversation go on."""
        turn, self._turn, self._held = self._turn, None, None
        if turn is not None:
            await turn.__aexit__(None, None, None)

    async def _enter(self, thread: str) -> None:
        """Waits for earlier requests of this conversation, then loads it."""
        turn = self._store.turn(self._owner, self._scope, thread)
        self._held = await turn.__aenter__()
        self._turn, self._conversation = turn, self._held.conversation

    async def _load(self, thread: str) -> None:
        self._conversation = await self._store.load(self._owner, self._scope, thread) or Conversation(thread)

    async def _commit(self, new: list[Message], *, keep: int | None = None, name: str | None = None) -> None:
        """Store the conversation. The next request of it may go on from now."""
        if self._held is not None:
            await self._held.commit(new, keep=keep, digest=name, joint=self.joint)
        else:
            await self._store.commit(
                self._owner, self._scope, self._conversation, new, keep=keep, digest=name, joint=self.joint
            )

    def _settle(self, new: list[Message]) -> Settled:
        """Return the client's new messages, without its answers to interrupts."""
        native = self._front.answer(Feature.INTERRUPT) is Support.EXACT
        settled = settle(self._conversation.open_interrupts, self.request, new, native=native)
        self._unanswered = settled.unanswered
        return settled

    def _note_interrupts(self, answer: Answer) -> None:
        """A run that broke off leaves the questions open that it was to answer: the client may try again. The backend
        may also refuse an answer because it no longer waits for it.
        """
        failure, asked = answer.failure, self._conversation.open_interrupts
        if finished(answer):
            self._conversation.open_interrupts = list(answer.interrupts)
        elif self._remembers(answer):
            self._conversation.open_interrupts = []
        elif failure is not None and failure.code is ErrorCode.CONFLICT and failure.param is not None:
            answered = {each.interrupt_id for each in self.request.resume}
            self._conversation.open_interrupts = [each for each in asked if each.interrupt_id not in answered]


class Expand(Turn):
    """The client sends what is new, the backend needs the whole conversation."""

    keeps_thread = True
    _keep: int | None = None
    """How many of the stored messages stay, where the client asks again; None is all."""
    _partial: list[Any] | None = None
    _decided: Collection[str | None] = ()
    """The calls that a person has agreed or refused to with this request."""

    async def begin(self, run_id: str) -> None:
        stored, new = await self._find(run_id)
        self._partial = self._conversation.extra.pop(_PARTIAL, None) if self._keep is None else None
        given = load_request(self._partial) if self._partial else Request([])
        settled = self._settle(new)
        self._new = settled.messages
        waiting = [call for call in open_calls(stored, self._new) if call.call_id not in self._theirs]
        asked = [*given.open_interrupts, *self._conversation.open_interrupts]
        settled.resume = [*given.resume, *settled.resume]
        if self._unanswered:
            # A backend that remembers nothing would take this for a new question; the client is asked again.
            self.reply = [*self._unanswered, RunFinished(FinishReason.INTERRUPTED)]
            resumed = {r.interrupt_id for r in settled.resume}
            given = Request([], resume=settled.resume, open_interrupts=[i for i in asked if i.interrupt_id in resumed])
            self._conversation.extra[_PARTIAL] = dump(given)
        elif waiting and only_results(self._new):
            # The results of parallel calls come one by one; the backend wants them together.
            self.reply = [RunFinished(FinishReason.TOOL_CALLS)]
        else:
            resumed = {r.interrupt_id for r in settled.resume}
            self._decided = {i.call_id for i in asked if i.interrupt_id in resumed}
            self._new = [*no_results([c for c in waiting if c.call_id not in self._decided]), *self._new]
        self.request = request = self.request.copy()
        request.messages, request.resume = [*stored, *self._new], settled.resume
        request.tools = self._conversation.tools if request.tools is None else request.tools
        request.history = HistoryMode.FULL

    @property
    def _theirs(self) -> Collection[str]:
        """The calls that are the backend's, so that the client owes no results of them."""
        return ()

    async def _find(self, run_id: str) -> tuple[list[Message], list[Message]]:
        """Return the stored conversation and what is new."""
        await self._enter(self.request.thread_id or run_id)
        if self._conversation.dropped:
            log.warning(
                "run %s: the backend does not get the oldest %d messages of this conversation, which are deleted "
                "(stores.max_conversation, stores.max_messages)",
                run_id, self._conversation.dropped,
            )  # fmt: skip
        stored, messages = self._conversation.messages, self.request.messages
        if self.request.history is not HistoryMode.LAST:
            return stored, unknown(stored, messages)
        ids = {m.id for m in messages if m.id}
        self._keep = next((n for n, m in enumerate(stored) if m.id in ids), None)
        if self._keep is not None:
            # A backend that remembers what followed cannot be told to forget it: it gets a conversation of its own.
            self._conversation.backend_thread = None
            self._conversation.open_interrupts = []
        return stored[: self._keep], messages

    async def keep(self, answer: Answer, shown: Answer) -> None:
        """Store the client's messages unless they were refused, no failed answer, and half of a canceled one."""
        if refused(answer):
            await self._refused()
            return
        self._conversation.tools = self.request.tools
        self._conversation.backend_thread = self._keeps(answer)
        self._note_interrupts(answer)
        if self._partial and not self._remembers(answer):
            self._conversation.extra[_PARTIAL] = self._partial  # the client may try again
        await self._commit([*self._new, *messages_of(answer)], keep=self._keep)

    async def _refused(self) -> None:
        """The backend refused the request: the conversation stays as it was before it."""
        await self.forget()

    def _keeps(self, answer: Answer) -> str | None:
        """Return the id under which the backend now has the whole conversation; None if it does not."""
        return None


class Follow(Expand):
    """The client sends what is new, the backend remembers the conversation, but others may have answered since.

    The backend that answered last gets what is new; any other gets the whole conversation under a new id.
    """

    @property
    def _is_here(self) -> bool:
        """Return whether the backend answered last."""
        conversation = self._conversation
        return conversation.backend_thread is not None and conversation.extra.get(_BACKEND) == self._backend_name

    @property
    def _theirs(self) -> Collection[str]:
        return [str(each) for each in self._conversation.extra.get(_RAN, ())] if self._is_here else ()

    async def begin(self, run_id: str) -> None:
        await super().begin(run_id)
        conversation = self._conversation
        request = self.request
        if self._is_here:
            request.messages, self.continues = self._new, True
        else:
            name = conversation.thread_id if conversation.version == 0 else run_id
            conversation.backend_thread = self._new_thread(name)
        self._thread = request.thread_id = conversation.backend_thread
        request.history = HistoryMode.DELTA

    def fresh_request(self) -> Request | None:
        if not self.continues:
            return None
        self.continues = False
        self._thread, self._conversation.open_interrupts = self._new_thread(self._thread or ""), []
        messages = [*self._conversation.messages, *self._new]
        return _new_conversation(self.request, messages, self.request.resume, self._thread)

    async def _refused(self) -> None:
        """Begin a new conversation at the backend with the next request: it may not remember this one."""
        self._conversation.backend_thread = None
        if self._partial:
            self._conversation.extra[_PARTIAL] = self._partial  # the client may try again
        await self._commit([])

    def _keeps(self, answer: Answer) -> str | None:
        decided = [*self._theirs, *(call for call in self._decided if call)] if self._remembers(answer) else []
        self._conversation.extra[_RAN] = decided[-_MOST_NOTED:]
        self._conversation.extra[_BACKEND] = self._backend_name
        return self._thread_kept(answer, self._thread)


class Trim(Turn):
    """The client sends the whole conversation, the backend remembers it by an id.

    Only the client's messages are stored: the backend has its own answers, and clients return them in shapes of their
    own. For clients without a conversation id the digest of the whole conversation finds it.
    """

    finds_by_digest = True

    async def begin(self, run_id: str) -> None:
        request = self.request
        self._whole = request.messages
        thread = request.thread_id or await self._found() or run_id
        await self._enter(thread)
        stored = self._conversation.messages
        self._ran = [str(i) for i in self._conversation.extra.get(_RAN, ())]
        here = (
            self._conversation.backend_thread is not None
            and self._conversation.extra.get(_BACKEND) == self._backend_name
        )
        position = continues(stored, self._whole, self._ran) if here else None
        if position == len(self._whole) and not request.resume:
            position = None  # nothing new: an answer is to be made again
        self._context = hashlib.sha256(dumps(request.context)).hexdigest() if request.context else ""
        # A backend that gets the client's context as a message remembers it.
        self._tells_context = self._back.request(Feature.CONTEXT) is Support.DROP
        if position is not None and self._tells_context and self._conversation.extra.get(_CONTEXT) == self._context:
            request = replace(request, context=[])
        if position is None:
            # New, edited or regenerated, or not known for sure at the backend: the conversation begins there again.
            self._known, position = 0, 0
            name = thread if self._conversation.version == 0 else run_id
            self._conversation.backend_thread = self._new_thread(name)
            self._conversation.open_interrupts = []
        else:
            self._known, self.continues = len(stored), True
        self._new = self._whole[position:]
        settled = self._settle(self._new)
        # A call that a person agreed or refused to is the backend's from then on. Clients that show no result of it may
        # make one up in later requests.
        resumed = {answer.interrupt_id for answer in settled.resume}
        asked = self._conversation.open_interrupts
        self._decided = [i.call_id for i in asked if i.call_id and i.interrupt_id in resumed]
        digests = [str(d) for d in self._conversation.extra.get(_TOLD, ())]
        known = set(digests)
        before = [m for m in self._whole[:position] if digest([m]) not in known] if self._back.wants_whole else []
        told = {id(m) for m in settled.messages}
        self._digests = digests + [digest([m]) for m in self._new if id(m) not in told]
        self._said_aside = request.resume
        self.request = request = request.copy()
        request.messages, request.resume = [*before, *settled.messages], settled.resume
        request.thread_id = self._conversation.backend_thread
        request.history = HistoryMode.FULL if self._back.wants_whole else HistoryMode.DELTA

    async def _found(self) -> str | None:
        """Return the conversation of which that of the client is the next turn; None if there is none."""
        for state in states_before(self._whole):
            if (thread := await self._store.find(self._owner, self._scope, digest(state))) is not None:
                return thread
        before, half = half_answered(self._whole)
        if not half or not self._back.keeps_canceled:
            return None
        thread = await self._store.find(self._owner, self._scope, digest(before))
        found = await self._store.load(self._owner, self._scope, thread) if thread is not None else None
        return thread if found is not None and str(found.extra.get(_HALF, "")).startswith(half) else None

    def fresh_request(self) -> Request | None:
        lost = self._conversation.backend_thread
        if not self.continues or lost is None:
            return None
        self.continues = False
        thread = self._conversation.backend_thread = self._new_thread(lost)
        self._conversation.open_interrupts = []
        self._known, self._new, self._digests = 0, self._whole, []
        return _new_conversation(self.request, self._whole, self._said_aside, thread)

    async def keep(self, answer: Answer, shown: Answer) -> None:
        """Start over at the backend after a run of which it is unknown what the backend remembers: a failed one, and a
        canceled one of most backends.
        """
        if not self._remembers(answer):
            self._conversation.backend_thread = None
            await self._commit([], keep=self._known)
            return
        self._note_interrupts(answer)
        self._conversation.backend_thread = self._thread_kept(answer, self._conversation.backend_thread)
        self._ran += [*self._decided, *(r.call_id for r in answer.results)]
        self._conversation.extra[_RAN] = self._ran[-_MOST_NOTED:]
        self._conversation.extra[_TOLD] = self._digests[-_MOST_NOTED:]
        if self._tells_context:
            self._conversation.extra[_CONTEXT] = self._context
        if self._backend_name is not None:
            self._conversation.extra[_BACKEND] = self._backend_name
        ran = set(self._ran)
        spoken = [m for m in self._new if not is_answer(m, ran)]
        seen = as_client_sees(shown, self._front)
        self._conversation.extra.pop(_HALF, None)
        if finished(answer):
            state = digest([*self._whole, seen])
        else:
            state, self._conversation.extra[_HALF] = digest(self._whole), squeezed([seen])
        await self._commit(spoken, keep=self._known, name=state)


class Recall(Turn):
    """Both sides agree on the conversation, but the client cannot say which interrupt it answers.

    A client that cannot name its thread either has one at the backend all the same, found by the digest of the
    conversation, as agents keep their state and interrupts by thread. Only that digest, the open interrupts and the
    answer that ended with them are stored: an agent goes on from a call of its own that the client was not shown.
    Requests of one thread wait for each other where the bridge found it; the store is written only if something
    changes.
    """

    finds_by_digest = True

    async def begin(self, run_id: str) -> None:
        request = self.request
        self._whole = request.history is HistoryMode.FULL
        before = up_to_last_answer(request.messages) if self._whole else []
        name = digest(before)
        self._nameless = self._whole and request.thread_id is None
        found = bool(before) and self._nameless and await self._find(name)
        if not found:
            await self._load(request.thread_id or run_id)
            if self._whole and self._conversation.digest != name:
                self._conversation.open_interrupts = []  # the conversation was edited, so that nothing waits in it
        self._had = bool(self._conversation.open_interrupts)
        settled = self._settle(request.messages[len(before) :])
        self._messages = request.messages
        if settled.resume and (answer := self._conversation.extra.get(_ANSWER)):
            said = next((n for n, m in enumerate(reversed(before)) if m.role != "assistant"), len(before))
            before = [*before[: len(before) - said], *map(load_message, answer)]
        self.request = request = request.copy()
        request.messages, request.resume = [*before, *settled.messages], settled.resume
        if found:
            request.thread_id = self._conversation.thread_id

    async def _find(self, name: str) -> bool:
        """Enters the conversation whose last state has this digest; whether there is one."""
        thread = await self._store.find(self._owner, self._scope, name)
        if thread is None:
            return False
        await self._enter(thread)
        if self._conversation.digest == name:
            return True
        await self.close()  # another request went on from here in the meantime: this one is a conversation of its own
        return False

    def _waiting_calls(self) -> list[Event]:
        if not self._front.client_runs_calls:
            return []
        asked = {question.call_id for question in self._unanswered}
        offered = {tool.name for tool in self.request.tools or ()}
        messages = map(load_message, self._conversation.extra.get(_ANSWER) or ())
        calls = [part for message in messages for part in message.parts if isinstance(part, ToolCall)]
        waiting = [call for call in calls if call.call_id in asked and call.name not in offered]
        again = [Message("assistant", [call], id=f"{call.call_id}-again") for call in waiting]
        return unfold(Answer(messages=again))[1:-1]  # without the start and the end of a run

    async def keep(self, answer: Answer, shown: Answer) -> None:
        """After a run that broke off everything stays as it was: the client may try again."""
        if not finished(answer):
            return
        self._note_interrupts(answer)
        if not (self._nameless or self._had or self._conversation.open_interrupts):
            return
        asks = self._whole and self._conversation.open_interrupts
        self._conversation.extra[_ANSWER] = [dump(m) for m in messages_of(answer)] if asks else []
        seen = [*self._messages, as_client_sees(shown, self._front)] if self._whole else None
        await self._commit([], name=digest(seen) if seen else None)


def _new_conversation(request: Request, messages: list[Message], resume: list[Resume], thread: str | None) -> Request:
    """The request with the whole conversation, where the backend has nothing to resume: answers are said as words.

    `thread` is its name at the backend; None if the backend names it.
    """
    request = request.copy()
    told = [Message("user", [Text(words)]) for answer in resume if (words := _words(answer.payload))]
    request.messages, request.resume, request.thread_id = [*messages, *told], [], thread
    return request


def _words(payload: Any) -> str:
    return payload if isinstance(payload, str) else "" if payload is None else dumps(payload).decode()


def needs_turns(front: Capabilities, back: Capabilities) -> bool:
    """Return whether a conversation between these two needs to be stored by the bridge."""
    return _joint(front.history, back) is not None or pair_of(front, back).recalls


def _joint(history: HistoryMode, back: Capabilities) -> type[Turn] | None:
    """Return what joins a client with this history mode and a backend; None where they agree."""
    if history is HistoryMode.FULL:
        return Trim if back.keeps_history else None
    if back.takes_news:
        return Follow if back.names_threads else None
    return Expand


class ConversationTurns:
    """Makes the turns of a bridge on one store of conversations."""

    def __init__(self, store: ConversationStore) -> None:
        self.store = store
        self._pruning: asyncio.Task[None] | None = None

    def start(self, retention: float, files: Attachments | None = None) -> None:
        """From now on conversations that were silent for `retention` seconds are forgotten, with their files."""
        self._pruning = asyncio.get_running_loop().create_task(self._prune(retention, files))

    async def _prune(self, retention: float, files: Attachments | None) -> None:
        pause = _PRUNE_FIRST  # not at once: a start opens no store, and is not kept waiting by one
        while True:
            await asyncio.sleep(pause)
            pause = _PRUNE_EVERY
            try:
                await self.store.prune(retention)
                if files is not None:
                    await self.store.prune_files(retention, files.delete)
            except BridgeError as error:
                log.warning("old conversations and files were not deleted: %s", error.message)

    async def begin(
        self,
        owner: str,
        scope: str,
        request: Request,
        front: Capabilities,
        back: Capabilities,
        run_id: str,
        *,
        backend_name: str | None = None,
    ) -> Turn | None:
        """Return the turn of this request, begun; None if nothing is stored.

        A request without a conversation id, from a client that sends increments, is a conversation of its own; it is
        kept, under the run's id, where the backend has a name for it. `backend_name` is set if others may answer the
        next request.
        """
        delta = request.history is not HistoryMode.FULL
        if delta and request.thread_id is None and not back.names_threads:
            return None
        kind = _joint(request.history, back)
        if kind is None and delta and backend_name is not None:
            kind = Follow
        elif kind is None and pair_of(front, back).recalls:
            kind = Recall
        if kind is None:
            return None
        return await kind(self.store, owner, scope, request, front, back, backend_name).begin_or_close(run_id)

    async def has(
        self, owner: str, scope: str, request: Request, backs: Sequence[Capabilities], *, shared: bool
    ) -> bool:
        """Return False if the conversation of a request would be stored for one of these backends, and is not."""
        assert request.thread_id is not None
        stores = shared or any(_joint(request.history, back) is not None for back in backs)
        return not stores or await self.store.load(owner, scope, request.thread_id) is not None

    async def close(self) -> None:
        if self._pruning is not None:
            self._pruning.cancel()
        await self.store.close()
