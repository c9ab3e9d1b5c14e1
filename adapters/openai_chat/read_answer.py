"""Chunks of a backend -> events. Accepts the deviations of real servers and never raises on wire data.

The terminal event waits for `[DONE]` or the end of the input, because usage may follow the finish reason. Either of
the two is a clean end, neither is truncation.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from bridge.contract import Context
from bridge.dialects.openai.errors import ERRORS
from bridge.dialects.openai_chat.audio import TRANSCRIPT, audio_from, joined
from bridge.dialects.openai_chat.calls import Calls
from bridge.dialects.openai_chat.options import BackOptions
from bridge.dialects.openai_chat.think import ThinkSplitter
from bridge.dialects.openai_chat.wire import (
    BLOCK,
    NAME,
    REASONING_FIELDS,
    noted,
    own,
    read_usage,
    shared,
    without_empty,
)
from bridge.errors import Failure
from bridge.model import SHARED, Event, Extras, FinishReason, Media, MediaKind, PartKind, Raw, Reasoning, source_of
from bridge.model.events import STOP_SEQUENCE
from bridge.model.jsontext import dict_of, is_number, text_of
from bridge.toolkit.citations import with_citations
from bridge.toolkit.decoder import JsonDecoder
from bridge.toolkit.errors import error_in
from bridge.toolkit.words import end_of

_CHUNK_KEYS = frozenset({"id", "object", "created", "model", "choices", "usage", "obfuscation"})
_TOLD_KEYS = _CHUNK_KEYS | {"error"}
# The same on every chunk of OpenAI: read once, at the head.
_USUAL_KEYS = _CHUNK_KEYS | {"system_fingerprint", "service_tier"}
_CHOICE_KEYS = frozenset({"index", "delta", "message", "finish_reason", "usage"})
_SHARED_OF_TEXT = frozenset({"logprobs"})
_SHARED_OF_RUN = frozenset({"service_tier", "system_fingerprint"})
_USUAL_CHOICE_KEYS = _CHOICE_KEYS | {"logprobs"}
_TEXT, _STOP = (
    PartKind.TEXT,
    FinishReason.STOP,
)  # read once: a member of an enumeration is slow to look up in Python 3.11
_PLAIN = frozenset({"content", "role"})
_DELTA_KEYS = frozenset(
    {"content", "role", "refusal", "tool_calls", "function_call", "reasoning_content", "reasoning", "audio", "images"}
)
_PARTS = {"text": PartKind.TEXT, "output_text": PartKind.TEXT, "thinking": PartKind.REASONING}


_STOPS = ("stop_reason", "matched_stop", "stopping_word")
"""Fields of a choice with the stop sequence that ended it: vLLM (vllm-project/vllm#45807), SGLang
(sgl-project/sglang#33153), llama.cpp.
"""


class _Lane:
    """The state of one choice. `calls`, `annotations` and `audio` are None until there is one."""

    __slots__ = ("annotations", "audio", "calls", "finished", "stop", "think")

    def __init__(self, think: ThinkSplitter | None) -> None:
        self.calls: Calls | None = None
        self.think = think
        self.annotations: list[Any] | None = None
        self.audio: list[dict[str, Any]] | None = None
        self.finished: FinishReason | None = None
        self.stop: str | None = None


_finished = attrgetter("finished")


class ChatDecoder(JsonDecoder):
    """One per run. `streamed` is False for a completion in one piece, whose audio then comes once."""

    __slots__ = (
        "_bad_end", "_known", "_lanes", "_messages", "_plain", "_request", "_run_fields", "_split_think", "_started",
        "_stops", "_streamed",
    )  # fmt: skip

    def __init__(self, context: Context, options: BackOptions, *, streamed: bool = True) -> None:
        super().__init__(context)
        self._request = context.request
        self._stops = context.request.sampling.stop if context.request is not None else None
        self._split_think = options.think_tags == "reasoning"
        self._streamed = streamed
        self._lanes: dict[int, _Lane] = {}
        self._messages: dict[int, dict[str, Any]] = {}  # the choices whose pieces are messages: the last whole ones
        self._started = False
        self._bad_end: Failure | None = None
        self._plain: tuple[str, int] | None = None
        self._known: dict[str, Any] = {}  # of the run, before it begins
        self._run_fields: dict[str, Any] = {}

    def whole(self, completion: dict[str, Any]) -> list[Event]:
        """Return the events of a whole completion, which is complete even without a finish reason."""
        self.read(completion, None)
        self.end_mark()
        return self.builder.take()

    # -------------------------------------------------------------- frames

    def read(self, event: dict[str, Any], name: str | None) -> None:
        if name == "error":
            self.fail(ERRORS.failure(error_in(event) or event))
            return
        self._plain = None
        if not self._started:
            self._head(event)
        choices = event.get("choices")
        if type(choices) is list:
            for choice in choices:
                if type(choice) is dict:
                    self._choice(choice, event)
        usage = event.get("usage") or dict_of(event.get("x_groq")).get("usage")
        if type(usage) is dict and usage:
            self._usage(usage)
        if not _USUAL_KEYS.issuperset(event):
            self._rest(event, choices)
        elif self._streamed:
            self._learn(event)
        if self._bad_end is not None:
            self.fail(self._bad_end)

    def _learn(self, chunk: dict[str, Any]) -> None:
        """Let the next chunk be read by its text alone, if this one contained one text and nothing else."""
        if self._plain is not None and len(chunk["choices"]) == 1 and not chunk.get("usage"):
            name, index = self._plain
            field = "delta" if type(chunk["choices"][0].get("delta")) is dict else "message"
            part = self.builder.flowing(index)
            self.repeat.learn(chunk, ("choices", 0, field, name), part, padding="obfuscation")

    def read_error(self, value: Any) -> bool:
        self.fail(ERRORS.failure(error_in(value) or {"message": value}))
        return True

    def read_value(self, value: Any, name: str | None) -> None:
        """An error may come in a list (Gemini's gateway)."""
        if (error := error_in(value)) is not None:
            self.fail(ERRORS.failure(error))

    def _head(self, chunk: dict[str, Any]) -> None:
        """Id, model and time from the first chunk that has them: Azure's first has none (capture azure-empty-first)."""
        known = self._known
        if "id" not in known and isinstance(value := chunk.get("id"), str) and value:
            known["id"] = value
        if "model" not in known and isinstance(value := chunk.get("model"), str) and value:
            known["model"] = value
        if "created" not in known and is_number(value := chunk.get("created")) and value > 0:
            known["created"] = float(value)
        if "choices" in chunk:
            self._run_fields.update(_unknown(chunk))
        else:
            self.saw_unknown = True

    def _begin(self) -> None:
        """Begin the run at the first fact, with what is known of it."""
        self._started = True
        extras = {"id": self._known["id"], **self._run_fields} if "id" in self._known else dict(self._run_fields)
        self.builder.begin(
            model=self._known.get("model"), created_at=self._known.get("created"), extras=shared(extras, _SHARED_OF_RUN)
        )
        del self._known

    def _usage(self, usage: dict[str, Any]) -> None:
        """Running totals on every chunk are seen (capture vllm-usage-every-chunk): the last one counts."""
        report = read_usage(usage)
        if report is not None:
            self.builder.usage(report)

    def _rest(self, chunk: dict[str, Any], choices: Any) -> None:
        """Read errors, which may be beside choices (capture openrouter-error-midstream), and unknown fields."""
        error = error_in(chunk)
        if error is not None:
            self.fail(ERRORS.failure(error))
            return
        changed = {k: v for k, v in _unknown(chunk).items() if k not in _USUAL_KEYS and self._run_fields.get(k) != v}
        if choices is None and changed.keys() <= {"type"}:
            return  # pings, which say nothing
        if changed and self._started:
            self._run_fields.update(changed)
            self.builder.emit(Raw(NAME, {"chunk": changed}))

    # -------------------------------------------------------------- choices

    def _choice(self, choice: dict[str, Any], chunk: dict[str, Any]) -> None:
        index = choice.get("index")
        if type(index) is not int or index < 0:
            index = 0
        delta = choice.get("delta")
        if type(delta) is not dict:
            delta = choice.get("message")
            if self._streamed:
                delta = self._message(index, delta, chunk.get("object") == "chat.completion")
        extras = None
        if choice.get("logprobs") is not None or not _USUAL_CHOICE_KEYS.issuperset(choice):
            extras = _choice_extras(choice)
        if type(delta) is dict:
            content = delta.get("content")
            plain = len(delta) == 1 or _PLAIN.issuperset(delta)
            if type(content) is str and plain and not self._split_think:
                if content:  # the first one contains only the role
                    lane = self._lanes.get(index) or self._open(index)
                    if lane.calls is not None and lane.calls.open:
                        lane.calls.settle()
                    self.builder.flow(index, _TEXT, content, extras)
                    if extras is None:
                        self._plain = "content", index
                    extras = None
            elif delta:
                extras = self._delta(index, delta, extras)
        if extras is not None:
            self._open(index)
            beside = own(extras)
            empty = not any(any(v.values()) if isinstance(v, dict) else v for v in beside.values())
            self.builder.emit(Raw(NAME, {"index": index, "choice": beside}, repeated=empty))
        if type(choice.get("usage")) is dict:  # Moonshot
            self._usage(choice["usage"])
        finish = choice.get("finish_reason")
        if finish and type(finish) is str:
            self._end_choice(index, finish, choice)

    def _message(self, index: int, message: Any, is_whole: bool) -> Any:
        """Return what is new in a `message` in place of a delta: all of it, unless it repeats deltas before it.

        `is_whole` says that its object is a whole completion: such objects of one stream grow, so that each has the
        texts and calls of those before it. Messages in chunks are pieces.
        """
        if type(message) is not dict:
            return message
        lane = self._lanes.get(index)
        if lane is None:
            self._messages[index] = {}
        if is_whole and index in self._messages:
            return self._grown(index, message)
        if lane is None:
            return message
        if index not in self._messages:
            told = {"content", "refusal", *REASONING_FIELDS}
            if lane.calls is not None and lane.calls.any:
                told.add("tool_calls")
            return {name: value for name, value in message.items() if name not in told}
        return message

    def _grown(self, index: int, message: dict[str, Any]) -> dict[str, Any]:
        """Return a whole message without what the whole message of the choice before it had."""
        known, self._messages[index] = self._messages[index], message
        out = dict(message)
        for name in ("content", "refusal", *REASONING_FIELDS):
            text, before = message.get(name), known.get(name)
            if type(text) is str and type(before) is str and text.startswith(before):
                out[name] = text[len(before) :]
        if message.get("tool_calls") == known.get("tool_calls"):
            out.pop("tool_calls", None)
        return out

    def _open(self, index: int) -> _Lane:
        lane = self._lanes.get(index)
        if lane is None:
            if not self._started:
                self._begin()
            self.builder.message(index, choice=index)
            lane = self._lanes[index] = _Lane(ThinkSplitter() if self._split_think else None)
        return lane

    def _delta(self, index: int, delta: dict[str, Any], extras: Extras | None) -> Extras | None:
        """Read a delta with more than plain text, in the required order. Return unknown fields."""
        blocks = delta.get("thinking_blocks")
        if type(blocks) is list and self._thinking(index, blocks, delta):
            delta = {name: value for name, value in delta.items() if name not in REASONING_FIELDS}
        for name in REASONING_FIELDS:
            reasoning = delta.get(name)
            if type(reasoning) is str and reasoning:
                self._flow(index, PartKind.REASONING, reasoning)
                alone = _DELTA_KEYS.issuperset(delta) and not any(delta[k] for k in delta if k not in (name, "role"))
                if alone and extras is None:
                    self._plain = name, index
                break
        content = delta.get("content")
        if type(content) is str and content:
            extras = self._text(index, content, extras)
        elif type(content) is list:
            for part in content:
                extras = self._content_part(index, part, extras)
        refusal = delta.get("refusal")
        if type(refusal) is str and refusal:
            self._flow(index, PartKind.REFUSAL, refusal, extras)
            extras = None
        rest = {} if _DELTA_KEYS.issuperset(delta) else {k: v for k, v in delta.items() if k not in _DELTA_KEYS}
        if isinstance(annotations := rest.get("annotations"), list):
            del rest["annotations"]
            lane = self._open(index)
            lane.annotations = lane.annotations or []
            lane.annotations += annotations
        self._whole_parts(index, delta)
        self._calls(index, delta)
        self._raw(index, without_empty(rest))
        return extras

    def _thinking(self, index: int, blocks: list[Any], delta: dict[str, Any]) -> bool:
        """Read LiteLLM's signed reasoning (open-webui/open-webui#29860): what was said of it in other fields, or in
        these blocks, then the signature of each. Return whether the other fields are read.
        """
        found = [block for block in blocks if isinstance(block, dict)]
        said = next((each for name in REASONING_FIELDS if (each := text_of(delta.get(name)))), "")
        repeats = said in ("", "".join(text_of(block.get("thinking")) for block in found))
        if not repeats:
            self._flow(index, PartKind.REASONING, said)
        for block in found:
            text, signature = text_of(block.get("thinking")) if repeats else "", text_of(block.get("signature"))
            if text:
                self._flow(index, PartKind.REASONING, text)
            if signature:
                self._sign(index, BLOCK + signature)
            elif data := text_of(block.get("data")):
                self._open(index)
                self.builder.add(index, Reasoning("", redacted=BLOCK + data))
        return True

    def _sign(self, index: int, signature: str) -> None:
        self._open(index)
        flowing = self.builder.flowing(index)
        if flowing is not None and flowing.kind is PartKind.REASONING:
            self.builder.end_flow(index, signature=signature)
        else:
            self.builder.add(index, Reasoning("", signature))

    def _flow(self, index: int, kind: PartKind, text: str, extras: Extras | None = None) -> None:
        lane = self._open(index)
        if lane.calls is not None and lane.calls.open:
            lane.calls.settle()
        self.builder.flow(index, kind, text, extras)

    def _text(self, index: int, text: str, extras: Extras | None) -> Extras | None:
        """Content, which may hold think tags; returns extras that no text took."""
        think = self._open(index).think
        if think is None:
            self._flow(index, PartKind.TEXT, text, extras)
            return None
        for kind, piece in think.feed(text):
            self._flow(index, kind, piece, extras)
            extras = None
        return extras

    def _content_part(self, index: int, part: Any, extras: Extras | None) -> Extras | None:
        """A part of a content list (capture mistral-content-parts); `thinking` holds a text or a list of texts."""
        if not isinstance(part, dict):
            return self._text(index, part, extras) if isinstance(part, str) and part else extras
        name = part.get("type")
        kind = _PARTS.get(name) if isinstance(name, str) else None
        if kind is None:
            if not self._image(index, part):
                # Not under `content`, which is a string for clients and holds the text
                self._raw(index, {"content_parts": [part]})
            return extras
        inner = part.get("text") if kind is PartKind.TEXT else part.get("thinking")
        for text in inner if isinstance(inner, list) else [inner]:
            text = text.get("text") if isinstance(text, dict) else text
            if not isinstance(text, str) or not text:
                continue
            if kind is PartKind.TEXT:
                extras = self._text(index, text, extras)
            else:
                self._flow(index, kind, text)
        return extras

    def _calls(self, index: int, delta: dict[str, Any]) -> None:
        fragments, old = delta.get("tool_calls"), delta.get("function_call")
        if not fragments and not old:
            return
        lane = self._open(index)
        if lane.annotations:
            self._cite(index, lane)
        if lane.calls is None:
            lane.calls = Calls(self.builder, index)
        if type(fragments) is list and fragments:
            lane.calls.feed(fragments)
        if type(old) is dict and old:
            lane.calls.feed_old(old)

    def _cite(self, index: int, lane: _Lane) -> None:
        """End the text with its citations, which come after it; without a text they are for chat clients only."""
        annotations, lane.annotations = lane.annotations or [], None
        flowing = self.builder.flowing(index)
        if flowing is not None and flowing.kind is _TEXT:
            self.builder.end_flow(index, extras=with_citations({NAME: {"annotations": annotations}}, annotations))
        else:
            extras = with_citations(None, annotations)
            self.builder.emit(Raw(NAME, {"index": index, "delta": {"annotations": annotations}}, extras))

    def _whole_parts(self, index: int, delta: dict[str, Any]) -> None:
        audio, images = delta.get("audio"), delta.get("images")
        if type(audio) is dict and audio:
            lane = self._open(index)
            lane.audio = lane.audio or []
            lane.audio.append(audio)
            if self._streamed:
                self.builder.emit(Raw(NAME, {"index": index, "delta": {"audio": audio}}, repeated=True))
            words = audio.get("transcript")
            if type(words) is str and words:
                key = TRANSCRIPT, index
                self.builder.open_part(key, index, PartKind.TEXT, extras={TRANSCRIPT: {}})
                self.builder.delta(key, words)
        for image in images if type(images) is list else ():
            if not self._image(index, image):
                self._raw(index, {"images": [image]})

    def _image(self, index: int, part: Any) -> bool:
        """A picture that the model made (OpenRouter's `images`); other dialects get the picture, chat the entry."""
        holder = part.get("image_url") if isinstance(part, dict) else None
        url = holder.get("url") if isinstance(holder, dict) else holder
        if not isinstance(url, str) or not url:
            return False
        source, mime = source_of(url)
        self._open(index)
        self.builder.add(index, Media(MediaKind.IMAGE, source, mime, extras=noted({"image": part})))
        return True

    def _raw(self, index: int, delta: dict[str, Any]) -> None:
        if delta:
            self._open(index)
            self.builder.emit(Raw(NAME, {"index": index, "delta": delta}))

    # -------------------------------------------------------------- the end

    def _end_choice(self, index: int, word: str, choice: dict[str, Any]) -> None:
        """The first finish word counts. Calls stay open: some servers send more after it."""
        end = end_of(word, answered=self.builder.answered)
        if isinstance(end, Failure):
            error = error_in(choice)
            self._bad_end = end if error is None else ERRORS.failure(error)  # an error beside the choices says more
        elif end is not None and (lane := self._lanes.get(index) or self._open(index)).finished is None:
            lane.finished = end
            lane.stop = self._stop_in(choice, self._stops) if end is _STOP and self._stops else None
            self.builder.end_reason(index, end)

    def _stop_in(self, choice: dict[str, Any], wanted: list[str]) -> str | None:
        """Return the stop sequence that ended the choice, which the request asked for. A number is a token."""
        return next((value for name in _STOPS if isinstance(value := choice.get(name), str) and value in wanted), None)

    def end_mark(self) -> None:
        if not self.builder.done:
            if self._streamed and not self._started:
                self.finish()
            self.flush()
            if not self.builder.finishing:
                self._finish()
            self.builder.end()

    def _finish(self) -> None:
        """A run ends as its first choice does."""
        if not self._started:
            self._begin()
        lane = self._lanes[min(self._lanes)] if self._lanes else None
        extras: Extras | None = {SHARED: {STOP_SEQUENCE: lane.stop}} if lane is not None and lane.stop else None
        self.builder.finish((lane.finished if lane is not None else None) or FinishReason.STOP, extras)

    def flush(self) -> None:
        """Gives out what was kept back: half a tag, calls without a name, the audio as one medium."""
        if not self._started:
            self._begin()
        if self._lanes and None not in map(_finished, self._lanes.values()):
            self._finish()
        for index, lane in self._lanes.items():
            for kind, piece in lane.think.close() if lane.think else ():
                self.builder.flow(index, kind, piece)
            if lane.annotations:
                self._cite(index, lane)
            if lane.calls is not None:
                lane.calls.close()
            if lane.audio:
                self._sound(index, joined(lane.audio))

    def _sound(self, index: int, audio: dict[str, Any]) -> None:
        """Add one whole audio, after its transcript."""
        self.builder.end_part((TRANSCRIPT, index))
        if audio.get("data"):
            asked = self._request.extra(NAME).get("audio") if self._request is not None else None
            wanted = asked.get("format") if isinstance(asked, dict) else None
            self.builder.add(index, audio_from(audio, wanted, self._streamed))
        elif not self._streamed:
            self._raw(index, {"audio": audio})


def _unknown(chunk: dict[str, Any]) -> dict[str, Any]:
    if _CHUNK_KEYS.issuperset(chunk):
        return {}
    return without_empty({k: v for k, v in chunk.items() if k not in _TOLD_KEYS})


def _choice_extras(choice: dict[str, Any]) -> Extras | None:
    """Fields beside the delta (logprobs, vLLM's stop_reason): they travel on the text they came with."""
    more = without_empty({k: v for k, v in choice.items() if k not in _CHOICE_KEYS and k != "error"})
    return shared(more, _SHARED_OF_TEXT) if isinstance(more.get("logprobs"), dict) else noted(more)
