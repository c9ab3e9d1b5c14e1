"""What answers hold beside their text arrives at every frontend that has a place for it, streamed and whole: log
probabilities, citations of web pages, the explanation of a refusal.
"""

from __future__ import annotations

import json
from typing import Any

import anthropic.types as messages_types
import openai.types.chat as chat_types
import openai.types.responses as responses_types
import pytest

from bridge.translation.library import Translator
from tests.pairs.test_asked_for import CHAT, GEMINI, MESSAGES, RESPONSES

Json = dict[str, Any]
FOUR = [CHAT, RESPONSES, MESSAGES, GEMINI]


# ---------------------------------------------------------------------- backends


def sse(*events: Json, done: bool = False) -> bytes:
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return "".join([*lines, *(["data: [DONE]\n\n"] if done else [])]).encode()


def chat_whole(message: Json, finish: str = "stop", **choice: Any) -> Json:
    said = {"role": "assistant", "content": None, **message}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [
        {"index": 0, "message": said, "finish_reason": finish, **choice}]}  # fmt: skip


def chat_stream(*deltas: Json, finish: str = "stop", **choice: Any) -> bytes:
    """`choice`: fields beside the first delta."""
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    said = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    said[0].update(choice)
    last = {"index": 0, "delta": {}, "finish_reason": finish}
    return sse(*({**head, "choices": [each]} for each in [*said, last]), done=True)


def response_whole(*content: Json, **fields: Any) -> Json:
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": list(content)}
    return {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed",
            "output": [item], **fields}  # fmt: skip


def response_stream(*content: Json, **fields: Any) -> bytes:
    """Each part comes with its deltas; what stands beside the text comes at its end."""
    whole = response_whole(*content, **fields)
    item, place = whole["output"][0], {"item_id": "msg_1", "output_index": 0}
    events: list[Json] = [
        {"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
    ]
    for index, part in enumerate(content):
        kind = "refusal" if part["type"] == "refusal" else "output_text"
        text = part.get("refusal") or part["text"]
        events.append({"type": f"response.{kind}.delta", **place, "content_index": index, "delta": text,
                       "logprobs": part.get("logprobs", [])})  # fmt: skip
        events.append({"type": "response.content_part.done", **place, "content_index": index, "part": part})
    events.append({"type": "response.output_item.done", "output_index": 0, "item": item})
    return sse(*events, {"type": f"response.{whole['status']}", "response": whole})


def message_whole(*content: Json, stop: str = "end_turn", **fields: Any) -> Json:
    usage = {"input_tokens": 5, "output_tokens": 7}
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": list(content),
            "stop_reason": stop, "stop_sequence": None, "usage": usage, **fields}  # fmt: skip


def message_stream(*content: Json, stop: str = "end_turn", **fields: Any) -> bytes:
    """Each block comes in one piece, or in `pieces`."""
    head = message_whole(stop="")
    events: list[Json] = [{"type": "message_start", "message": {**head, "stop_reason": None}}]
    for index, block in enumerate(content):
        start = {"type": "text", "text": "", "citations": []}
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        for piece in block.get("pieces") or [block["text"]]:
            delta: Json = {"type": "text_delta", "text": piece}
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
        for citation in block.get("citations", ()):
            delta = {"type": "citations_delta", "citation": citation}
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": stop, "stop_sequence": None, **fields}
    events.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": 7}})
    return sse(*events, {"type": "message_stop"})


def candidate(text: str, finish: str | None = "STOP", **fields: Any) -> Json:
    parts = [{"text": text}] if text else []
    ended = {"finishReason": finish} if finish else {}
    return {"candidates": [{"index": 0, "content": {"role": "model", "parts": parts}, **ended, **fields}],
            "modelVersion": "m", "responseId": "r"}  # fmt: skip


# ---------------------------------------------------------------------- frontends


def whole(back: str, front: str, answer: Json, client_options: Any = None) -> tuple[Json, list[str]]:
    translator = Translator(back, front, client_options=client_options)
    body = json.loads(translator.response(json.dumps(answer).encode()))
    judge(front, body)
    return body, translator.lost


def streamed(back: str, front: str, wire: bytes) -> tuple[list[Json], list[str]]:
    translator = Translator(back, front)
    out = (translator.feed(wire) + translator.close()).decode()
    lines = [line[6:] for line in out.splitlines() if line.startswith("data: ") and line != "data: [DONE]"]
    return [json.loads(line) for line in lines], translator.lost


def judge(front: str, body: Json) -> None:
    """The SDK's type accepts a whole answer."""
    types: dict[str, Any] = {
        CHAT: chat_types.ChatCompletion, RESPONSES: responses_types.Response, MESSAGES: messages_types.Message,
    }  # fmt: skip
    if front in types:
        types[front].model_validate(body)


def text_parts(front: str, body: Json) -> list[Json]:
    """The text parts of a whole answer, each with its text and its citations as flat objects."""
    if front == CHAT:
        message = body["choices"][0]["message"]
        return [{"text": message["content"], "cited": [each["url_citation"] for each in message["annotations"]]}]
    if front == RESPONSES:
        parts = [part for item in body["output"] if item["type"] == "message" for part in item["content"]]
        return [{"text": part["text"], "cited": part["annotations"]} for part in parts if part["type"] == "output_text"]
    if front == MESSAGES:
        return [{"text": block["text"], "cited": block["citations"]} for block in body["content"]]
    found = body["candidates"][0]
    grounding = found.get("groundingMetadata", {})
    pages = grounding.get("groundingChunks", [])
    cited = [
        {"url": pages[index]["web"]["uri"], "title": pages[index]["web"]["title"], **support["segment"]}
        for support in grounding.get("groundingSupports", ())
        for index in support["groundingChunkIndices"]
    ]
    return [{"text": "".join(part["text"] for part in found["content"]["parts"]), "cited": cited}]


def joined(front: str, events: list[Json]) -> Json:
    """The whole answer that a stream amounts to, as far as these tests look at it."""
    if front == CHAT:
        message: Json = {"content": "", "annotations": [], "refusal": ""}
        logprobs: list[Any] = []
        for choice in (choice for event in events for choice in event["choices"]):
            for name in message:
                message[name] += choice["delta"].get(name) or type(message[name])()
            logprobs += (choice["logprobs"] or {}).get("content", [])
        finish = [choice["finish_reason"] for event in events for choice in event["choices"]][-1]
        return {"choices": [{"message": message, "logprobs": {"content": logprobs}, "finish_reason": finish}]}
    if front == RESPONSES:
        return dict(events[-1]["response"])
    if front == MESSAGES:
        blocks: list[Json] = []
        for event in events:
            if event["type"] == "content_block_start":
                blocks.append({**event["content_block"], "citations": []})
            elif event["type"] == "content_block_delta":
                blocks[-1]["text"] += event["delta"].get("text", "")
                blocks[-1]["citations"] += [event["delta"]["citation"]] if "citation" in event["delta"] else []
        return {"content": blocks, **events[-2]["delta"]}
    parts = [part for event in events for part in event["candidates"][0]["content"]["parts"]]
    return {"candidates": [{**events[-1]["candidates"][0], "content": {"parts": parts}}]}


# ---------------------------------------------------------------------- citations

TEXT = "Größe: Paris."
PAGE = {"url": "https://example.org/a", "title": "A"}
SPAN = {"start_index": 7, "end_index": 12}
BYTES = {"startIndex": 9, "endIndex": 14}


def cited_by(back: str) -> tuple[Json, bytes]:
    """An answer with one citation: of "Paris", or of the whole text where the dialect has no places."""
    if back == CHAT:
        annotations = [{"type": "url_citation", "url_citation": {**PAGE, **SPAN}}]
        stream = chat_stream({"content": TEXT[:3]}, {"content": TEXT[3:]}, {"annotations": annotations})
        return chat_whole({"content": TEXT, "annotations": annotations}), stream
    if back == RESPONSES:
        part = {"type": "output_text", "text": TEXT, "annotations": [{"type": "url_citation", **PAGE, **SPAN}]}
        return response_whole(part), response_stream(part)
    if back == MESSAGES:
        found = {"type": "web_search_result_location", **PAGE, "cited_text": "x", "encrypted_index": "e"}
        block = {"type": "text", "text": TEXT, "citations": [found]}
        return message_whole(block), message_stream(block)
    grounding = {
        "groundingChunks": [{"web": {"uri": PAGE["url"], "title": PAGE["title"]}}],
        "groundingSupports": [{"segment": {**BYTES, "text": "Paris"}, "groundingChunkIndices": [0]}],
    }
    stream = sse(candidate(TEXT[:3], None), candidate(TEXT[3:], None), candidate("", groundingMetadata=grounding))
    return candidate(TEXT, groundingMetadata=grounding), stream


def citation_at(front: str, back: str) -> Json:
    whole_text = back == MESSAGES
    if front == MESSAGES:
        return dict(PAGE)
    if front == GEMINI:
        return {**PAGE, **({"startIndex": 0, "endIndex": len(TEXT.encode())} if whole_text else BYTES)}
    return {**PAGE, **({"start_index": 0, "end_index": len(TEXT)} if whole_text else SPAN)}


@pytest.mark.parametrize("front", FOUR)
@pytest.mark.parametrize("back", FOUR)
def test_citations_of_web_pages(back: str, front: str) -> None:
    answer, stream = cited_by(back)
    events, lost_of_stream = streamed(back, front, stream)
    body, lost = whole(back, front, answer)
    for found in (body, joined(front, events)):
        (part,) = text_parts(front, found)
        assert part["text"] == TEXT
        (citation,) = part["cited"]
        assert citation_at(front, back).items() <= citation.items()
    assert "raw" not in [*lost, *lost_of_stream]


@pytest.mark.parametrize("front", [CHAT, RESPONSES, MESSAGES, GEMINI])
def test_places_count_in_the_text_that_a_client_has(front: str) -> None:
    """Each cited block is a part of its own for some clients, and the end of one text for others."""
    found = {"type": "web_search_result_location", **PAGE, "cited_text": "x", "encrypted_index": "e"}
    blocks: list[Any] = [{"type": "text", "text": "Größe: "}, {"type": "text", "text": "Paris", "citations": [found]}]
    for body in (
        whole(MESSAGES, front, message_whole(*blocks))[0],
        joined(front, streamed(MESSAGES, front, message_stream(*blocks))[0]),
    ):
        last = text_parts(front, body)[-1]
        (citation,) = last["cited"]
        if front == MESSAGES:
            assert citation == found
        elif front == GEMINI:
            assert last["text"].encode()[citation["startIndex"] : citation["endIndex"]] == b"Paris"
        else:
            assert last["text"][citation["start_index"] : citation["end_index"]] == "Paris"


@pytest.mark.parametrize("front", [CHAT, RESPONSES, GEMINI])
def test_citations_of_documents_are_named_as_lost(front: str) -> None:
    place = {"type": "char_location", "cited_text": "x", "document_index": 0, "document_title": "D",
             "start_char_index": 0, "end_char_index": 1, "file_id": None}  # fmt: skip
    body, lost = whole(MESSAGES, front, message_whole({"type": "text", "text": "Hi", "citations": [place]}))
    assert text_parts(front, body)[0]["cited"] == []
    assert "raw" in lost


def test_made_citations_do_not_go_to_anthropic() -> None:
    body, _ = whole(CHAT, MESSAGES, cited_by(CHAT)[0])
    turn = {"role": "assistant", "content": body["content"]}
    user = {"role": "user", "content": "hi"}
    asked = {"model": "m", "max_tokens": 9, "messages": [user, turn, user]}
    sent = json.loads(Translator(MESSAGES, MESSAGES).request(json.dumps(asked).encode(), client=MESSAGES))
    assert "citations" not in json.dumps(sent)


def test_an_answer_in_the_history_has_no_citations_for_a_chat_backend() -> None:
    from bridge.contract import Context
    from bridge.dialects.openai_chat.options import BackOptions
    from bridge.dialects.openai_chat.write_messages import MessageWriter
    from bridge.model import Message, Text

    extras = {"shared": {"annotations": [{"type": "url_citation", "url_citation": PAGE}], "logprobs": {"content": []}}}
    (sent,) = MessageWriter(Context("run1"), BackOptions(), [Message("assistant", [Text("Hi", extras)])]).write()
    assert sent == {"role": "assistant", "content": "Hi"}


# ---------------------------------------------------------------------- log probabilities

ENTRY = {"token": "Hé", "logprob": -0.5, "bytes": [72, 195, 169],
         "top_logprobs": [{"token": "Hi", "logprob": -1.5, "bytes": [72, 105]}]}  # fmt: skip


def likely_by(back: str) -> tuple[Json, bytes]:
    """An answer of one token, with its log probability."""
    if back == CHAT:
        logprobs = {"content": [ENTRY], "refusal": None}
        stream = chat_stream({"role": "assistant", "content": "Hé"}, logprobs=logprobs)
        return chat_whole({"content": "Hé"}, logprobs=logprobs), stream
    if back == RESPONSES:
        part = {"type": "output_text", "text": "Hé", "annotations": [], "logprobs": [ENTRY]}
        return response_whole(part), response_stream(part)
    result = {
        "chosenCandidates": [{"token": "Hé", "tokenId": 7, "logProbability": -0.5}],
        "topCandidates": [{"candidates": [{"token": "Hi", "tokenId": 8, "logProbability": -1.5}]}],
    }
    return candidate("Hé", logprobsResult=result), sse(candidate("Hé", None, logprobsResult=result), candidate(""))


def logprobs_at(front: str, body: Json) -> Any:
    if front == CHAT:
        return body["choices"][0]["logprobs"]["content"]
    if front == RESPONSES:
        return body["output"][0]["content"][0]["logprobs"]
    result = body["candidates"][0]["logprobsResult"]
    return [
        {"token": chosen["token"], "logprob": chosen["logProbability"],
         "top": [(each["token"], each["logProbability"]) for each in top["candidates"]]}
        for chosen, top in zip(result["chosenCandidates"], result["topCandidates"], strict=True)
    ]  # fmt: skip


@pytest.mark.parametrize("front", [CHAT, RESPONSES, GEMINI])
@pytest.mark.parametrize("back", [CHAT, RESPONSES, GEMINI])
def test_log_probabilities(back: str, front: str) -> None:
    answer, stream = likely_by(back)
    wanted = [{"token": "Hé", "logprob": -0.5, "top": [("Hi", -1.5)]}] if front == GEMINI else [ENTRY]
    assert logprobs_at(front, whole(back, front, answer)[0]) == wanted
    assert logprobs_at(front, joined(front, streamed(back, front, stream)[0])) == wanted


def test_log_probabilities_of_all_chunks_of_a_gemini_stream() -> None:
    def result(token: str) -> Json:
        return {"chosenCandidates": [{"token": token, "tokenId": 1, "logProbability": -0.25}]}

    wire = sse(*(candidate(token, None, logprobsResult=result(token)) for token in "aa"), candidate(""))
    for front in (CHAT, RESPONSES):
        found = logprobs_at(front, joined(front, streamed(GEMINI, front, wire)[0]))
        assert [each["token"] for each in found] == ["a", "a"]
    last = streamed(GEMINI, GEMINI, wire)[0][-1]["candidates"][0]
    assert [each["tokenId"] for each in last["logprobsResult"]["chosenCandidates"]] == [1, 1]


# ---------------------------------------------------------------------- explained refusals

WHY = "This was refused because of X."


def refused_by(back: str) -> tuple[Json, bytes]:
    """An answer without text that was refused, with the reason in words."""
    if back == CHAT:
        refusal = {"refusal": WHY}
        return chat_whole(refusal, "content_filter"), chat_stream(refusal, finish="content_filter")
    if back == RESPONSES:
        part = {"type": "refusal", "refusal": WHY}
        cut = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
        return response_whole(part, **cut), response_stream(part, **cut)
    if back == MESSAGES:
        details = {"type": "refusal", "category": "cyber", "explanation": WHY}
        fields: Json = {"stop": "refusal", "stop_details": details}
        return message_whole(**fields), message_stream(**fields)
    answer = candidate("", "SAFETY", finishMessage=WHY)
    return answer, sse(answer)


def explained_at(front: str, body: Json) -> tuple[Any, Any]:
    """How the answer ended, and why."""
    if front == CHAT:
        choice = body["choices"][0]
        return choice["finish_reason"], choice["message"]["refusal"]
    if front == RESPONSES:
        (part,) = body["output"][0]["content"]
        return body["incomplete_details"]["reason"], part["refusal"]
    if front == MESSAGES:
        return body["stop_reason"], body["stop_details"]["explanation"]
    found = body["candidates"][0]
    return found["finishReason"], found["finishMessage"]


WORDS = {CHAT: "content_filter", RESPONSES: "content_filter", MESSAGES: "refusal", GEMINI: "SAFETY"}


@pytest.mark.parametrize("front", FOUR)
@pytest.mark.parametrize("back", FOUR)
def test_an_explained_refusal(back: str, front: str) -> None:
    answer, stream = refused_by(back)
    body, lost = whole(back, front, answer)
    events, _ = streamed(back, front, stream)
    assert explained_at(front, body) == explained_at(front, joined(front, events)) == (WORDS[front], WHY)
    if back == front == MESSAGES:
        assert body["stop_details"]["category"] == "cyber"
        assert body["content"] == []
    if back == front:
        assert set(lost) <= {"usage"}
    if front in (MESSAGES, GEMINI) and back != front:
        # The text is shown as well, to clients that do not know the field.
        assert ("refusal" in lost) == (WHY in text_parts(front, body)[0]["text"])


def test_a_refusal_after_a_text_that_was_cut() -> None:
    details = {"type": "refusal", "category": None, "explanation": WHY}
    events, _ = streamed(MESSAGES, CHAT, message_stream({"text": "I will"}, stop="refusal", stop_details=details))
    message = joined(CHAT, events)["choices"][0]["message"]
    assert (message["content"], message["refusal"]) == ("I will", WHY)


HELD = {
    "whole": [WHY],
    "letters": list(WHY),
    "beside others": ["Well. ", *WHY.partition(" because ")[:2], WHY.partition(" because ")[2], " Bye."],
}


@pytest.mark.parametrize("back", [MESSAGES, GEMINI])
@pytest.mark.parametrize("pieces", HELD.values(), ids=HELD)
def test_an_explanation_that_the_text_holds_is_not_repeated(back: str, pieces: list[str]) -> None:
    """As bridges write it, for clients that do not know the field."""
    text = "".join(pieces)
    assert WHY in text
    if back == MESSAGES:
        fields: Json = {"stop": "refusal", "stop_details": {"type": "refusal", "category": None, "explanation": WHY}}
        answer, stream = (
            message_whole({"type": "text", "text": text}, **fields),
            message_stream({"pieces": pieces}, **fields),
        )
    else:
        answer = candidate(text, "SAFETY", finishMessage=WHY)
        chunks = [candidate(piece, None) for piece in pieces[:-1]]
        stream = sse(*chunks, candidate(pieces[-1], "SAFETY", finishMessage=WHY))
    body, _ = whole(back, CHAT, answer)
    events, _ = streamed(back, CHAT, stream)
    for message in (body["choices"][0]["message"], joined(CHAT, events)["choices"][0]["message"]):
        assert (message["content"], message.get("refusal") or None) == (text, None)


def test_an_explanation_of_a_long_answer_is_found_at_its_end() -> None:
    pieces = [f"{n} " for n in range(20_000)]
    held, other = "".join(pieces[-100:]), "".join(pieces[:100])
    for why, refusal in ((held, None), (other, other)):
        chunks = [candidate(piece, None) for piece in pieces]
        events, _ = streamed(GEMINI, CHAT, sse(*chunks, candidate("", "SAFETY", finishMessage=why)))
        message = joined(CHAT, events)["choices"][0]["message"]
        assert (message["content"], message.get("refusal") or None) == ("".join(pieces), refusal)


def test_of_two_refusals_the_last_one_is_the_explanation() -> None:
    between = {"type": "output_text", "text": " But: ", "annotations": []}
    content: list[Json] = [{"type": "refusal", "refusal": "No."}, between, {"type": "refusal", "refusal": WHY}]
    cut = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
    for front in (MESSAGES, GEMINI):
        body, _ = whole(RESPONSES, front, response_whole(*content, **cut))
        assert explained_at(front, body) == (WORDS[front], WHY)
        again, _ = whole(front, CHAT, body)
        message = again["choices"][0]["message"]
        assert (message["content"], message["refusal"]) == (f"No. But: {WHY}", None)


def test_no_explanation_is_made_up() -> None:
    for details in (None, {"type": "refusal", "category": "bio", "explanation": None}):
        body, _ = whole(MESSAGES, CHAT, message_whole(stop="refusal", stop_details=details))
        assert body["choices"][0]["message"]["refusal"] is None
    body, _ = whole(CHAT, MESSAGES, chat_whole({"refusal": WHY}))
    assert (body["stop_reason"], body["stop_details"], body["content"][0]["text"]) == ("end_turn", None, WHY)


@pytest.mark.parametrize("front", FOUR)
def test_a_blocked_prompt_says_why(front: str) -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": WHY}, "modelVersion": "m"}
    body, _ = whole(GEMINI, front, blocked)
    if front == GEMINI:
        assert body["promptFeedback"] == blocked["promptFeedback"]
        assert "candidates" not in body
    else:
        assert explained_at(front, body) == (WORDS[front], WHY)


@pytest.mark.parametrize("back", FOUR)
def test_cited_pages_are_sources_of_the_ai_sdk(back: str) -> None:
    events, lost = streamed(back, "ai-sdk-ui", cited_by(back)[1])
    sources = [event for event in events if event.get("type") == "source-url"]
    assert [{k: v for k, v in each.items() if k != "sourceId"} for each in sources] == [{"type": "source-url", **PAGE}]
    assert "raw" not in lost


@pytest.mark.parametrize("front", ["ag-ui", "a2a"])
@pytest.mark.parametrize("back", FOUR)
def test_citations_are_named_where_clients_have_no_place_for_them(back: str, front: str) -> None:
    _, lost = streamed(back, front, cited_by(back)[1])
    assert "raw" in lost
