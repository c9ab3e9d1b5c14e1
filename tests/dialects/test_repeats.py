"""What dialects read by the text alone says what reading each event in full says, whatever comes in between."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract import Context, Frame, FrameLike, Losses, registry
from bridge.model import ArgsDelta, Event, ReasoningDelta, TextDelta
from bridge.toolkit.repeat import Repeat

# Of each wire: how it begins; events with a text for <text>, perhaps <n> and <pad>; what may come in between.
_CHUNK = '{"id":"c","model":"m","choices":[{"index":%d,"delta":{%s},"finish_reason":%s}]%s}'
_RESPONSE = '{"type":"response.%s","sequence_number":<n>,"item_id":"%s","output_index":%d,%s"delta":<text>%s}'
_ITEM = '{"type":"response.output_item.%s","output_index":%d,"item":{"type":"%s","id":"%s","name":"f","call_id":"k"}}'
_CONTENT = '{"%s":<n>,"object":"content","type":"text","index":%d,"delta":true,"%s":"%s","text":<text>}'
_MESSAGE = '{"object":"message","status":"%s","id":"%s","type":"%s","role":"assistant"}'
_BLOCK = '{"type":"content_block_start","index":%d,"content_block":{"type":"%s","id":"t","name":"f"}}'
_PARTS = '{"candidates":[{"content":{"parts":[%s],"role":"model"}%s}],"modelVersion":"m"}'
_DELTA = '{"type":"content_block_delta","index":%d,"delta":{"type":"%s_delta","%s":<text>}}'
_RPC = '{"jsonrpc":"2.0","id":"1","result":{%s}}'
_ARTIFACT = '"artifactUpdate":{"taskId":"t","contextId":"c","artifact":{"artifactId":"%s","parts":[%s]}%s}'
_STATUS = (
    '"statusUpdate":{"taskId":"t","status":{"state":"TASK_STATE_%s","message":{"messageId":"m%s","role":"ROLE_AGENT",'
    '"parts":[{"text":%s}]}},"metadata":%s}'
)

WIRES: dict[str, tuple[list[str], list[str], list[str]]] = {
    "openai-chat": (
        [_CHUNK % (0, '"role":"assistant","content":""', "null", "")],
        [
            _CHUNK % (0, '"content":<text>', "null", ""),
            _CHUNK % (1, '"content":<text>', "null", ',"obfuscation":<pad>'),
            _CHUNK % (0, '"content":null,"reasoning_content":<text>', "null", ""),
            _CHUNK % (0, '"reasoning":<text>,"x":0', "null", ""),
            _CHUNK % (0, '"content":<text>', '"stop"', ',"usage":null'),
            _CHUNK % (0, '"tool_calls":[{"index":0,"id":"k","function":{"name":"f","arguments":<text>}}]', "null", ""),
            '{"choices":[{"message":{"content":<text>}}],"note":<n>}',
            '{"choices":[{"index":0,"delta":{"content":<text>}},{"index":1,"delta":{"content":"z"}}]}',
        ],
        [_CHUNK % (0, '"content":""', "null", ',"usage":{"prompt_tokens":1}'), "[]", '{"error":{"message":"x"}}'],
    ),
    "openai-responses": (
        [_ITEM % ("added", 0, "message", "a"), _ITEM % ("added", 1, "function_call", "b")],
        [
            _RESPONSE % ("output_text.delta", "a", 0, '"content_index":0,', ',"logprobs":[],"obfuscation":<pad>'),
            _RESPONSE % ("output_text.delta", "a", 0, '"content_index":1,', ',"logprobs":[]'),
            _RESPONSE % ("output_text.delta", "a", 0, '"content_index":0,', ',"logprobs":[{"token":"x"}]'),
            '{"content_index":0,"delta":<text>,"item_id":"a","sequence_number":<n>,"type":"response.output_text.delta"}',
            _RESPONSE % ("function_call_arguments.delta", "b", 1, "", ',"obfuscation":<pad>'),
            _RESPONSE % ("reasoning_text.delta", "c", 2, '"content_index":0,', ""),
            _RESPONSE % ("reasoning_summary_text.delta", "c", 2, '"summary_index":0,', ""),
            '{"delta":<text>,"item_id":"a"}',
        ],
        [_ITEM % ("done", 0, "message", "a"), _ITEM % ("done", 1, "function_call", "b"), '{"type":"keepalive"}',
         _ITEM % ("added", 0, "message", "d"), _ITEM % ("added", 2, "function_call", "e"), "null", '{"error":"x"}'],
    ),
    "anthropic-messages": (
        ['{"type":"message_start","message":{"id":"m"}}',
         _BLOCK % (0, "text"), _BLOCK % (1, "tool_use"), _BLOCK % (2, "thinking")],
        [
            _DELTA % (0, "text", "text"), _DELTA % (2, "thinking", "thinking"),
            _DELTA % (1, "input_json", "partial_json"),
            '{"delta":{"text":<text>,"type":"text_delta"},"type":"content_block_delta"}', _DELTA % (0, "odd", "text"),
        ],
        ['{"type":"content_block_stop","index":0}', '{"type":"ping"}', _BLOCK % (0, "thinking"), _BLOCK % (0, "text"),
         '{"type":"content_block_stop","index":1}', "7", '{"type":"message_stop"}'],
    ),
    "gemini": (
        ['{"candidates":[{"content":{"parts":[{"text":"a"}],"role":"model"},"index":0}],"modelVersion":"m"}'],
        [
            _PARTS % ('{"text":<text>}', ',"index":0'),
            _PARTS % ('{"text":<text>,"thought":true}', ',"index":0'),
            _PARTS % ('{"text":<text>}', '},{"content":{"parts":[{"text":"z"}]},"index":1'),
            _PARTS % ('{"text":<text>,"thoughtSignature":"c2ln"}', ""),
            _PARTS % ('{"text":<text>}', ',"finishReason":"STOP"'),
            _PARTS % ('{"text":<text>},{"text":"b"}', ',"index":1'),
            _PARTS % ('{"functionCall":{"name":"f","args":{"text":<text>}}}', ""),
        ],
        [_PARTS % ('{"text":""}', ""), _PARTS % ('{"text":"","thoughtSignature":"c2ln"}', ""), "{}",
         '{"usageMetadata":{"promptTokenCount":7}}', _PARTS % ('{"functionCall":{"name":"f"}}', "")],
    ),
    "ag-ui": (
        ['{"type":"RUN_STARTED","threadId":"t","runId":"r"}', '{"type":"TEXT_MESSAGE_START","messageId":"a"}',
         '{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"f"}'],
        [
            '{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":<text>}',
            '{"type":"TEXT_MESSAGE_CONTENT","timestamp":<n>,"messageId":"b","delta":<text>}',
            '{"type":"REASONING_MESSAGE_CONTENT","messageId":"a","delta":<text>,"timestamp":<n>}',
            '{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":<text>}',
            '{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","delta":<text>}',
        ],
        ['{"type":"TEXT_MESSAGE_END","messageId":"a"}', '{"type":"REASONING_MESSAGE_END","messageId":"a"}',
         '{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"f"}', '{"type":"TOOL_CALL_END","toolCallId":"c"}',
         '{"type":"TEXT_MESSAGE_START","messageId":"a","role":"user"}', '{"type":"RUN_FINISHED"}', "{}"],
    ),
    "agentscope": (
        [_MESSAGE % ("in_progress", "a", "message")],
        [
            _CONTENT % ("sequence_number", 0, "msg_id", "a"), _CONTENT % ("sequenceNumber", 0, "msgId", "a"),
            _CONTENT % ("sequence_number", 1, "msg_id", "a"), _CONTENT % ("sequence_number", 0, "msg_id", "r"),
            '{"delta":true,"index":0,"msg_id":"a","object":"content","text":<text>,"type":"text","sequence_number":<n>}',
            '{"sequence_number":<n>,"object":"content","status":"completed","type":"text","msg_id":"a","text":<text>}',
        ],
        [_MESSAGE % ("completed", "a", "message"), _MESSAGE % ("in_progress", "r", "reasoning"), "[1]",
         _MESSAGE % ("in_progress", "h", "heartbeat"), _MESSAGE % ("completed", "r", "reasoning"), '{"error":"x"}'],
    ),
    "a2a": (
        [_RPC % '"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}',
         _RPC % (_ARTIFACT % ("a", '{"text":"x"}', ""))],
        [
            _RPC % (_ARTIFACT % ("a", '{"text":<text>}', ',"append":true')),
            "{" + _ARTIFACT % ("a", '{"text":<text>}', ',"append":true,"lastChunk":false') + "}",
            '{"kind":"artifact-update","append":true,"taskId":"t","artifact":{"parts":[{"kind":"text","text":<text>}],'
            '"artifactId":"a"}}',
            _RPC % (_ARTIFACT % ("a", '{"text":<text>,"metadata":{"adk_thought":true}}', ',"append":true')),
            _RPC % (_ARTIFACT % ("a", '{"text":<text>},{"text":"z"}', ',"append":true')),
            _RPC % (_ARTIFACT % ("a", '{"text":<text>}', ',"append":true,"lastChunk":true')),
            _RPC % (_ARTIFACT % ("b", '{"text":<text>}', "")),
            _RPC % (_ARTIFACT % ("a", '{"data":{"text":<text>}}', ',"append":true')),
            '{"artifact_update":{"task_id":"t","artifact":{"artifact_id":"a","parts":[{"text":<text>}]},"append":true}}',
            _RPC % (_STATUS % ("WORKING", "<n>", "<text>", '{"adk_x":1}')),
        ],
        [_RPC % (_ARTIFACT % ("a", '{"data":{}}', ',"append":true')), _RPC % (_STATUS % ("WORKING", 7, '"t1"', "{}")),
         _RPC % (_ARTIFACT % ("a", '{"text":"x"}', "")), _RPC % (_STATUS % ("COMPLETED", 8, '"x"', "{}")), "[1]",
         '{"error":{"message":"x"}}', _RPC % (_ARTIFACT % ("a", '7', ',"append":true'))],
    ),
}  # fmt: skip
WIRES["agentscope-java"] = WIRES["agentscope"]

words = st.text(st.characters(exclude_categories=()), max_size=4)
strings = words.map(json.dumps) | st.text(max_size=4).map(lambda text: json.dumps(text, ensure_ascii=False))
texts = (
    strings
    | strings
    | strings
    | st.sampled_from(
        ['"a","delta":"b"', '"\\"delta\\":\\"b\\""', '"\\ud83d"', '"\\ude00"', '""', "null", '["a"]', '"a', "", '"\t"']
    )
)
numbers = st.integers(1, 1200).map(str) | st.sampled_from(
    ["0", "01", "007", "-7", "1.5", "1e2", "9" * 30, "null", '"8"', ""]
)
paddings = st.sampled_from(['"a"', '"bC3"', '""', '"a\\"b"', '"_"', '"a","delta":"q"', "5", ""])


def decode(name: str, reads: list[list[FrameLike]]) -> list[list[Event]]:
    dialect = registry.get(name)
    decoder = dialect.decoder(Context("run", "thread", 1.0, dialect.back_options(), "m", None, Losses()))
    return [*map(decoder.feed, reads), decoder.close()]


def _filled(piece: str, text: str, number: str, padding: str) -> str:
    return piece.replace("<n>", number).replace("<pad>", padding).replace("<text>", text)


@st.composite
def streams(draw: st.DrawFn, name: str) -> list[FrameLike]:
    """Runs of like events, now and then another one, a changed byte, or the same bytes under another name."""
    begin, pieces, between = WIRES[name]
    wire = [*begin]
    for _ in range(draw(st.integers(1, 5))):
        piece = draw(st.sampled_from(pieces))
        for _ in range(draw(st.integers(1, 5))):
            wire.append(_filled(piece, draw(texts), draw(numbers), draw(paddings)))
        wire += draw(st.lists(st.sampled_from(between), max_size=1))
    frames: list[FrameLike] = []
    for text in wire:
        data = text.encode("utf-8", "surrogatepass")
        if not draw(st.integers(0, 30)):
            place = draw(st.integers(0, len(data)))
            data = data[:place] + draw(st.sampled_from([b"", b'"', b"0", b"}"])) + data[place + 1 :]
        event = draw(st.sampled_from([None, None, None, None, "error", "response.output_text.delta"]))
        frames.append(Frame(data, event) if event else data)
    return frames


@pytest.mark.parametrize("name", WIRES)
def test_reading_by_the_text_alone_changes_nothing(name: str) -> None:
    @given(streams(name), st.integers(1, 9))
    def check(frames: list[FrameLike], size: int) -> None:
        reads = [frames[start : start + size] for start in range(0, len(frames), size)]
        seen = decode(name, reads)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Repeat, "learn", lambda *_, **__: None)
            assert seen == decode(name, reads)

    check()


def _told(shape: str, n: int) -> bytes:
    return _filled(shape, json.dumps(f"t{n}\n"), str(1000 + n), f'"{"z" * n}"').encode()


LEARNED: dict[str, tuple[int, ...]] = {
    "openai-chat": (0, 1, 2),
    "openai-responses": (0, 1, 3, 4, 5, 6),
    "anthropic-messages": (0, 1, 2),
    "gemini": (0, 1, 4),
    "ag-ui": (0, 1, 2, 3),
    "agentscope": (0, 1, 3, 4),
    "agentscope-java": (0, 1, 3, 4),
    "a2a": (0, 1, 2),
}
"""The pieces above that begin as a text, a reasoning or a call goes on."""


@pytest.mark.parametrize(("name", "shape"), [(name, WIRES[name][1][n]) for name, ns in LEARNED.items() for n in ns])
def test_which_pieces_are_read_by_their_text(name: str, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dialect = registry.get(name)
    decoder: Any = dialect.decoder(Context("run", "thread", 1.0, dialect.back_options(), "m", None, Losses()))
    decoder.feed([line.encode() for line in WIRES[name][0]])
    decoder.feed([_told(shape, n) for n in range(4)])
    monkeypatch.setattr(type(decoder), "payload", None)
    events = decoder.feed([_told(shape, n) for n in range(4, 8)])
    texts = [e.text for e in events if isinstance(e, TextDelta | ReasoningDelta | ArgsDelta)]
    assert texts == [f"t{n}\n" for n in range(4, 8)]
