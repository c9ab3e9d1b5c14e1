"""Sounds, pictures and files on their way from one protocol to another."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bridge.contract import Context, registry
from bridge.dialects.openai_chat import dialect as chat
from bridge.dialects.openai_chat.options import FrontOptions
from bridge.model import Answer, Inline, Media, MediaKind, Message, Part, Request, Text, fold
from bridge.testing.wires import context, decode, encode
from bridge.translation.library import Translator
from tests.server.harness import ask, fake_backend, free_port, post, serving

SPOKEN = (Path(__file__).parents[1] / "captures" / "openai-chat" / "openai-audio.sse").read_bytes()
WAV = "UklGRiQAAABXQVZFZm10IA=="
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
PDF = "JVBERi0xLjQKJeLjz9MKMSAwIG9iago="
TEXT_ONLY = ["openai-responses", "anthropic-messages", "ag-kit", "ag-ui"]


def events_of(*parts: Part) -> list[Any]:
    builder = context(None).builder()
    for part in parts:
        builder.add(0, part)
    builder.finish()
    builder.end()
    return builder.take()


def arrived(back: str, front: str, wire: bytes) -> tuple[Answer, list[str]]:
    translator = Translator(back, front, run_id="run1", created_at=1_700_000_000.0)
    out = translator.feed(wire) + translator.close()
    return fold(decode(registry.get(front), [out])), translator.lost


@pytest.mark.parametrize("front", TEXT_ONLY)
def test_the_words_of_a_sound_are_the_text_where_there_is_no_sound(front: str) -> None:
    answer, lost = arrived("openai-chat", front, SPOKEN)
    assert answer.text == "Hi there"
    assert "audio" in lost


def test_agentscope_gets_the_words_and_the_sound() -> None:
    sound = json.dumps({"audio": {"id": "a", "data": WAV, "transcript": "Hi"}})
    wire = b'data: {"choices":[{"index":0,"delta":%b}]}\n\ndata: [DONE]\n\n' % sound.encode()
    answer, lost = arrived("openai-chat", "agentscope", wire)
    assert answer.text == "Hi"
    assert [(m.kind, m.source, m.mime) for m in answer.media] == [(MediaKind.AUDIO, Inline(WAV), "audio/wav")]
    assert "audio" not in lost
    assert arrived("openai-chat", "aip", wire)[0].text == "Hi"


def test_words_stream_as_they_come() -> None:
    translator = Translator("openai-chat", "ag-ui", run_id="run1")
    first = b'data: {"choices":[{"index":0,"delta":{"audio":{"id":"a","transcript":"Hi "}}}]}\n\n'
    assert b'"delta":"Hi "' in translator.feed(first)


@pytest.mark.parametrize(("word", "mime"), [("mp3", "audio/mpeg"), ("pcm16", "audio/pcm"), ("opus", "audio/opus")])
def test_a_sound_has_the_type_that_was_asked_for(word: str, mime: str) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "audio": {"voice": "a", "format": word}}
    translator = Translator("openai-chat", "openai-chat", run_id="run1")
    translator.request(json.dumps(body).encode())
    request = Request([], extras={"openai-chat": {"audio": {"format": word}}})
    decoder = chat.decoder(Context("run1", request=request))
    answer = fold(decoder.feed([b'{"choices":[{"index":0,"delta":{"audio":{"data":"AAAA"}}}]}']) + decoder.close())
    assert [m.mime for m in answer.media] == [mime]


def test_a_chat_client_gets_the_sound_as_it_came() -> None:
    translator = Translator("openai-chat", "openai-chat", run_id="run1")
    out = translator.feed(SPOKEN) + translator.close()
    answer, sent = [_audio_in(wire) for wire in (out, SPOKEN)]
    assert answer == sent == ["audio_1", "Hi ", "there", "UklGRg==", 1763715600]
    assert b'"content":"Hi' not in out
    assert "audio" not in translator.lost


def _audio_in(wire: bytes) -> list[Any]:
    chunks = [json.loads(line[6:]) for line in wire.splitlines() if line.startswith(b"data: {")]
    deltas = [choice["delta"].get("audio") or {} for chunk in chunks for choice in chunk["choices"]]
    return [value for delta in deltas for value in delta.values()]


def test_a_completion_with_a_sound_in_one_piece() -> None:
    audio = {"id": "a", "data": WAV, "transcript": "Hi", "expires_at": 5}
    message = {"role": "assistant", "content": None, "audio": audio}
    body = {"id": "c", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    for front, text in (("openai-responses", "Hi"), ("anthropic-messages", "Hi"), ("openai-chat", "")):
        whole = Translator("openai-chat", front, run_id="run1").response(json.dumps(body).encode())
        assert fold(_whole(front, whole)).text.strip() in (text, "Hi")
        assert WAV.encode() not in whole or front == "openai-chat"
    again = json.loads(Translator("openai-chat", "openai-chat", run_id="run1").response(json.dumps(body).encode()))
    assert again["choices"][0]["message"]["audio"] == audio
    assert again["choices"][0]["message"]["content"] is None


def _whole(front: str, body: bytes) -> Any:
    from bridge.testing.pairs import WireResponse, decode_whole

    return decode_whole(registry.get(front), WireResponse(200, {"content-type": "application/json"}, body))


SOUND = Media(MediaKind.AUDIO, Inline(WAV), "audio/wav")


def test_a_chat_client_gets_sounds_of_other_backends_in_audio() -> None:
    translator = Translator("agentscope", "openai-chat", run_id="run1", created_at=1_700_000_000.0)
    wire = encode(registry.get("agentscope"), events_of(Text("Listen"), SOUND))
    out = translator.feed(wire) + translator.close()
    assert _audio_in(out) == ["audio_run1", 1_700_000_000, "", WAV]
    assert "audio" not in translator.lost
    second = encode(registry.get("agentscope"), events_of(SOUND, SOUND))
    translator = Translator("agentscope", "openai-chat", run_id="run1", created_at=1_700_000_000.0)
    out = translator.feed(second) + translator.close()
    assert (out.count(WAV.encode()), out.count(b"[audio: audio/wav, 16 bytes]")) == (1, 1)
    assert "audio" in translator.lost


def test_a_chat_client_gets_pictures_in_images_by_option() -> None:
    picture = Media(MediaKind.IMAGE, Inline(PNG))
    entry = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    options = Context("run1", options=FrontOptions(media="images"))
    encoder = chat.encoder(options)
    wires = [
        json.loads(f) for f in encoder.encode(events_of(picture, picture)) if isinstance(f, bytes) and f[:1] == b"{"
    ]
    found = [i for wire in wires for c in wire["choices"] for i in c["delta"].get("images", ())]
    assert found == [{**entry, "index": 0}, {**entry, "index": 1}]
    assert not options.lost.names
    message = json.loads(chat.assemble(events_of(picture), options).body)["choices"][0]["message"]
    assert (message["images"], message["content"]) == ([entry], "")


@pytest.mark.parametrize("front", [*TEXT_ONLY, "openai-chat"])
@pytest.mark.parametrize(
    ("media", "note"),
    [
        (Media(MediaKind.FILE, Inline(PDF), None, "plan.pdf"), "[plan.pdf: application/pdf, 23 bytes]"),
        (Media(MediaKind.VIDEO, Inline("AAAAIGZ0eXBpc29t")), "[video: video/mp4, 12 bytes]"),
        (Media(MediaKind.IMAGE, Inline("A" * 6_000_000), "image/png"), "[image: image/png, 4.5 MB]"),
    ],
)
def test_bytes_are_a_note_in_a_text(front: str, media: Media, note: str) -> None:
    answer, lost = arrived("agentscope", front, encode(registry.get("agentscope"), events_of(media)))
    assert answer.text == note
    assert str(media.kind) in lost


@pytest.mark.parametrize("front", [*TEXT_ONLY, "openai-chat"])
def test_a_picture_is_shown_in_a_text(front: str) -> None:
    picture = events_of(Media(MediaKind.IMAGE, Inline(PNG)))
    answer, lost = arrived("agentscope", front, encode(registry.get("agentscope"), picture))
    assert answer.text == f"![image](data:image/png;base64,{PNG})"
    assert "image" in lost


def test_a_picture_in_a_result_is_a_note_and_a_loss() -> None:
    content = [{"type": "image", "source": {"type": "data", "value": PNG, "mimeType": "image/png"}}]
    events = [
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
        {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "draw"},
        {"type": "TOOL_CALL_END", "toolCallId": "c"},
        {"type": "TOOL_CALL_RESULT", "messageId": "m", "toolCallId": "c", "content": content},
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
    ]
    wire = b"".join(b"data: %b\n\n" % json.dumps(e).encode() for e in events)
    for front in ("ag-kit", "agentscope"):
        translator = Translator("ag-ui", front, run_id="run1")
        out = translator.feed(wire) + translator.close()
        assert PNG.encode() not in out
        assert b"[image: image/png, 33 bytes]" in out
        assert "image" in translator.lost


# ------------------------------------------------------------------ requests


def sent(back: str, front: str, *content: dict[str, Any]) -> Any:
    body = {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "see"}, *content]}]}
    return json.loads(Translator(back, front, model="m").request(json.dumps(body).encode(), client=front))


def test_base64_without_a_prefix_is_a_picture() -> None:
    for value in (PNG, {"url": PNG}):
        wire = sent("openai-chat", "openai-chat", {"type": "image_url", "image_url": value})
        assert wire["messages"][0]["content"][1]["image_url"]["url"] == f"data:image/png;base64,{PNG}"
        wire = sent("anthropic-messages", "openai-chat", {"type": "image_url", "image_url": value})
        source = {"type": "base64", "media_type": "image/png", "data": PNG}
        assert wire["messages"][0]["content"][1]["source"] == source
    asked = {"input": [{"role": "user", "content": [{"type": "image", "image_url": PNG}]}], "session_id": "s"}
    wire = json.loads(Translator("openai-chat", "agentscope", model="m").request(json.dumps(asked).encode()))
    assert wire["messages"][-1]["content"][0]["image_url"]["url"] == f"data:image/png;base64,{PNG}"


@pytest.mark.parametrize(
    ("name", "data", "mime"),
    [("a.pdf", PDF, "application/pdf"), (None, PDF, "application/pdf"), ("a.csv", "YSxi", "text/csv")],
)
def test_a_file_without_a_prefix_has_the_type_of_its_name_or_its_bytes(name: str | None, data: str, mime: str) -> None:
    file = {"file_data": data, **({"filename": name} if name else {})}
    wire = sent("openai-chat", "openai-chat", {"type": "file", "file": file})
    assert wire["messages"][0]["content"][1]["file"]["file_data"] == f"data:{mime};base64,{data}"
    wire = sent("agentscope", "openai-chat", {"type": "file", "file": file})
    assert wire["input"][-1]["content"][1]["file_url"] == f"data:{mime};base64,{data}"


def test_words_of_an_earlier_sound_are_told_once() -> None:
    audio = {"id": "a", "transcript": "Hi"}
    body = {"model": "m", "messages": [{"role": "assistant", "audio": audio}, {"role": "user", "content": "x"}]}
    chat_body = json.loads(Translator("openai-chat", "openai-chat").request(json.dumps(body).encode()))
    assert chat_body["messages"][0] == {"role": "assistant", "content": None, "audio": audio}
    other = json.loads(Translator("anthropic-messages", "openai-chat").request(json.dumps(body).encode()))
    assert other["messages"][0] == {"role": "assistant", "content": "Hi"}
    kept = Message("assistant", [Text("Hi"), Media(MediaKind.AUDIO, Inline(WAV), transcript="Hi")])
    request = Request([kept, Message("user", [Text("x")])], model="m")
    wire = json.loads(chat.encode_request(request, Context("run1")).body)
    assert wire["messages"][0] == {"role": "assistant", "content": "Hi"}


# ------------------------------------------------------------------ links


def keeping(tmp_path: Path, backend: str, port: int, **more: Any) -> dict[str, Any]:
    return {
        "server": {"port": port, "public_url": f"http://127.0.0.1:{port}", "secret": "s"},
        "stores": {"attachments": f"file:///{tmp_path}/files", "history": f"sqlite:///{tmp_path}/talks.db"},
        "backends": {"it": {"dialect": "agentscope", "url": backend}},
        "routes": [
            {"dialect": "openai-chat", "path": "/v1", "backend": "it", **more},
            {"dialect": "agent-runs", "path": "/agent", "backend": "it"},
        ],
    }


HELLO = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
FILM = Media(MediaKind.VIDEO, Inline("AAAAIGZ0eXBpc29t"))
PICTURE = Media(MediaKind.IMAGE, Inline(PNG))


async def test_media_become_links_where_files_are_kept(tmp_path: Path) -> None:
    port = free_port()
    async with fake_backend() as backend, serving(keeping(tmp_path, backend.url, port)) as base:
        backend.streams(encode(registry.get("agentscope"), events_of(FILM, PICTURE)))
        asked = {"model": "m", "messages": [{"role": "user", "content": "x"}], "user": "u"}
        reply = await post(f"{base}/v1/chat/completions", asked)
        text = reply.json["choices"][0]["message"]["content"]
        links = re.findall(r"(!?)\[(video|image)\]\((http://[^)]*)\)", text)
        assert [(mark, name) for mark, name, _ in links] == [("", "video"), ("!", "image")]
        assert "base64" not in text
        assert {"video", "image"} <= set(reply.headers["x-bridge-lost"].split(","))
        film, picture = [await ask("GET", url) for _, _, url in links]
        assert (film.status, film.headers["content-type"], film.body) == (200, "video/mp4", FILM.source.bytes)  # type: ignore[union-attr]
        assert (picture.status, picture.headers["content-type"]) == (200, "image/png")
        assert (await ask("GET", links[0][2].replace("sig=", "sig=0"))).status == 403


async def test_pictures_are_links_in_images_too(tmp_path: Path) -> None:
    port = free_port()
    async with (
        fake_backend() as backend,
        serving(keeping(tmp_path, backend.url, port, options={"media": "images"})) as base,
    ):
        backend.streams(encode(registry.get("agentscope"), events_of(PICTURE)))
        reply = await post(
            f"{base}/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "x"}]}
        )
        (image,) = reply.json["choices"][0]["message"]["images"]
        assert image["image_url"]["url"].startswith(f"http://127.0.0.1:{port}/agent/attachments/content/")


async def test_an_answer_does_not_fail_with_the_store_of_files(tmp_path: Path) -> None:
    port = free_port()
    async with fake_backend() as backend, serving(keeping(tmp_path, backend.url, port)) as base:
        (tmp_path / "files").rename(tmp_path / "gone")
        (tmp_path / "files").write_text("no folder")
        backend.streams(encode(registry.get("agentscope"), events_of(FILM)))
        reply = await post(
            f"{base}/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "x"}]}
        )
        assert reply.json["choices"][0]["message"]["content"] == "[video: video/mp4, 12 bytes]"
