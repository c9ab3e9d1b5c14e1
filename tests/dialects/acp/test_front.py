"""The bridge as an agent, as an editor sees it."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from bridge.dialects.acp import dialect
from bridge.errors import ErrorCode
from bridge.jsonrpc import RpcError
from bridge.model import Data, Inline, Media, MediaKind, MessageStarted, PartKind, PartStarted, Text, TextDelta
from bridge.server.sessions.session_store import SessionStore
from bridge.testing.wires import context
from tests.dialects.acp import agents
from tests.dialects.acp.helpers import ALL, chosen, configuration, editing, prompt_of, raw, reject

UUID = re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}")
RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00")


# ------------------------------------------------------------------ initialize


@pytest.mark.parametrize("asked", [0, 1, 2, 65535])
async def test_any_version_is_answered_with_the_one_that_is_spoken(asked: int) -> None:
    async with editing() as editor:
        answer = await editor.call("initialize", {"protocolVersion": asked, "capabilities": {}, "info": {"name": "v2"}})
        assert answer["protocolVersion"] == 1


@pytest.mark.parametrize("params", [{}, {"protocolVersion": "1"}, {"protocolVersion": True}, {"protocolVersion": None}])
async def test_a_version_that_is_none_is_refused(params: Any) -> None:
    async with editing() as editor:
        error = await editor.error("initialize", params)
        assert (error.code, error.data["param"]) == (-32602, "protocolVersion")


async def test_what_the_agent_promises(tmp_path: Path) -> None:
    async with editing(tmp_path) as editor:
        answer = await editor.greet(**ALL)
        able = answer["agentCapabilities"]
        assert able["loadSession"] is True
        assert able["promptCapabilities"] == {"image": True, "audio": True, "embeddedContext": True}
        assert able["mcpCapabilities"] == {"http": False, "sse": False}
        assert able["sessionCapabilities"] == {"close": {}, "list": {}, "resume": {}, "delete": {}}
        assert answer["authMethods"] == []
        assert answer["agentInfo"].keys() >= {"name", "version"}
    async with editing() as editor:
        able = (await editor.greet())["agentCapabilities"]
        assert (able["loadSession"], able["sessionCapabilities"]) == (False, {"close": {}})


async def test_media_are_promised_only_where_the_backend_takes_them() -> None:
    config = configuration(None)
    config["backends"]["it"] = {"dialect": "ag-kit", "url": "http://127.0.0.1:9"}
    async with editing(config=config) as editor:
        promised = (await editor.greet())["agentCapabilities"]["promptCapabilities"]
        assert (promised["image"], promised["audio"]) == (False, False)
        session = await editor.new()
        picture = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
        error = await editor.error("session/prompt", prompt_of(session, "look", picture))
        assert (error.code, error.data["param"]) == (-32602, "prompt[1]")


async def test_the_first_call_is_answered_before_the_backends_exist() -> None:
    config = configuration(None)
    config["backends"]["it"]["target"] = "tests.dialects.acp.no_such_module:agent"
    async with editing(config=config) as editor:
        error = await editor.error("session/new", {"cwd": "/", "mcpServers": []})
        assert error.code == -32602
        assert "no_such_module" in error.message


async def test_there_is_nothing_to_authenticate_and_no_mode() -> None:
    async with editing() as editor:
        assert (await editor.error("authenticate", {"methodId": "key"})).code == -32602
        session = await editor.new()
        assert (await editor.error("session/set_mode", {"sessionId": session, "modeId": "plan"})).code == -32602
        assert (await editor.error("logout")).code == -32601


# ------------------------------------------------------------------ sessions


async def test_the_ids_of_sessions_are_not_to_be_guessed() -> None:
    async with editing() as editor:
        ids = {await editor.new() for _ in range(3)}
        assert len(ids) == 3
        assert all(len(each) >= 32 for each in ids)


@pytest.mark.parametrize(
    ("params", "place"),
    [
        ({"mcpServers": []}, "cwd"),
        ({"cwd": "project", "mcpServers": []}, "cwd"),
        ({"cwd": 1, "mcpServers": []}, "cwd"),
        ({"cwd": "/a", "mcpServers": {}}, "mcpServers"),
        ({"cwd": "/a", "mcpServers": ["x"]}, "mcpServers[0]"),
        ({"cwd": "/a", "mcpServers": [], "additionalDirectories": ["b"]}, "additionalDirectories[0]"),
    ],
)
async def test_a_session_needs_an_absolute_folder(params: Any, place: str) -> None:
    async with editing() as editor:
        error = await editor.error("session/new", params)
        assert (error.code, error.data["param"]) == (-32602, place)


@pytest.mark.parametrize("folder", ["/a", "C:\\a", "c:/a", "\\\\server\\a"])
async def test_folders_of_any_system(folder: str) -> None:
    async with editing() as editor:
        assert await editor.new(folder)


async def test_mcp_servers_are_accepted_and_not_started(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    mark = tmp_path / "started"
    server = {"name": "mine", "command": "/usr/bin/touch", "args": [str(mark)], "env": []}
    async with editing() as editor:
        created = await editor.call("session/new", {"cwd": "/a", "mcpServers": [server]})
        assert created["_meta"] == {"dialectBridge": {"mcpServers": "ignored"}}
        await editor.prompt(created["sessionId"], "hello")
    assert not mark.exists()
    assert "MCP servers are not started and not used: mine" in caplog.text


async def test_mcp_servers_are_refused_by_option() -> None:
    async with editing(config=configuration(None, options={"mcp_servers": "refuse"})) as editor:
        servers = [{"name": "mine", "type": "http", "url": "http://x", "headers": []}]
        error = await editor.error("session/new", {"cwd": "/a", "mcpServers": servers})
        assert (error.code, error.data["param"]) == (-32602, "mcpServers")
        assert await editor.new()


async def test_a_session_is_a_conversation(tmp_path: Path) -> None:
    async with editing(tmp_path) as editor:
        one, two = await editor.new(), await editor.new()
        await editor.prompt(one, "first")
        await editor.prompt(two, "other")
        await editor.prompt(one, "second")
        assert editor.said() == "3: second"
        assert {params["sessionId"] for params in editor.updates} == {one}


async def test_a_session_goes_on_in_another_connection(tmp_path: Path) -> None:
    async with editing(tmp_path) as editor:
        session = await editor.new()
        await editor.prompt(session, "think")
        await editor.prompt(session, "tool")
    async with editing(tmp_path) as editor:
        assert (await editor.error("session/prompt", prompt_of(session, "early"))).code == -32002
        assert await editor.call("session/load", {"sessionId": session, "cwd": "/b", "mcpServers": []}) == {}
        kinds = [u["sessionUpdate"] for u in editor.told()]
        assert kinds == [
            "user_message_chunk", "agent_thought_chunk", "agent_message_chunk",
            "user_message_chunk", "tool_call", "tool_call_update", "agent_message_chunk",
        ]  # fmt: skip
        assert editor.said("user_message_chunk") == "thinktool"
        assert editor.said("agent_thought_chunk") == "Let me think."
        assert editor.said() == "42It has three lines."
        assert editor.calls()[1]["status"] == "completed"
        await editor.prompt(session, "next")
        assert editor.said() == "6: next"


async def test_a_session_is_resumed_without_its_history(tmp_path: Path) -> None:
    async with editing(tmp_path) as editor:
        session = await editor.new()
        await editor.prompt(session, "hello")
    async with editing(tmp_path) as editor:
        assert await editor.call("session/resume", {"sessionId": session, "cwd": "/b"}) == {}
        assert editor.updates == []
        await editor.prompt(session, "next")
        assert editor.said() == "3: next"


@pytest.mark.parametrize("method", ["session/load", "session/resume", "session/close", "session/prompt"])
async def test_an_unknown_session(method: str, tmp_path: Path) -> None:
    async with editing(tmp_path) as editor:
        params = {**prompt_of("nobody", "x"), "cwd": "/", "mcpServers": []}
        error = await editor.error(method, params)
        assert (error.code, error.data["sessionId"]) == (-32002, "nobody")
        assert error.message.endswith(".")


async def test_sessions_are_listed_newest_first_by_folder(tmp_path: Path) -> None:
    async with editing(tmp_path) as editor:
        one, two, three = await editor.new("/a"), await editor.new("/b"), await editor.new("/a")
        await editor.prompt(one, "tell me\n  about " + "x" * 200)
        found = (await editor.call("session/list", {}))["sessions"]
        assert [row["sessionId"] for row in found] == [one, three, two]
        assert found[0]["title"].startswith("tell me about xxx")
        assert len(found[0]["title"]) <= 80
        assert all(RFC3339.fullmatch(row["updatedAt"]) for row in found)
        of_a = (await editor.call("session/list", {"cwd": "/a"}))["sessions"]
        assert [(row["sessionId"], row["cwd"]) for row in of_a] == [(one, "/a"), (three, "/a")]
    async with editing(tmp_path) as editor:
        assert len((await editor.call("session/list"))["sessions"]) == 3


async def test_long_lists_have_pages(tmp_path: Path) -> None:
    async with editing(tmp_path) as editor:
        made = [await editor.new() for _ in range(55)]
        first = await editor.call("session/list", {})
        second = await editor.call("session/list", {"cursor": first["nextCursor"]})
        assert [row["sessionId"] for page in (first, second) for row in page["sessions"]] == made[::-1]
        assert "nextCursor" not in second
        error = await editor.error("session/list", {"cursor": "x"})
        assert (error.code, error.data["param"]) == (-32602, "cursor")


async def test_a_session_is_closed_and_deleted(tmp_path: Path) -> None:
    async with editing(tmp_path) as editor:
        session = await editor.new()
        await editor.prompt(session, "hello")
        assert await editor.call("session/close", {"sessionId": session}) == {}
        assert (await editor.error("session/prompt", prompt_of(session, "x"))).code == -32002
        opened = {"sessionId": session, "cwd": "/", "mcpServers": []}
        await editor.call("session/load", opened)
        assert await editor.call("session/delete", {"sessionId": session}) == {}
        assert await editor.call("session/delete", {"sessionId": session}) == {}
        assert await editor.call("session/delete", {"sessionId": "nobody"}) == {}
        assert (await editor.error("session/load", opened)).code == -32002
        assert (await editor.call("session/list", {}))["sessions"] == []


async def test_closing_a_session_cancels_its_prompt(tmp_path: Path) -> None:
    async with editing(tmp_path) as editor:
        session = await editor.new()
        prompt = asyncio.create_task(editor.prompt(session, "slow"))
        await begun()
        assert await editor.call("session/close", {"sessionId": session}) == {}
        assert (await prompt)["stopReason"] == "cancelled"


# ------------------------------------------------------------------ the answer


async def test_text_and_thoughts(tmp_path: Path) -> None:
    async with editing() as editor:
        result = await editor.prompt(await editor.new(), "think")
        assert result["stopReason"] == "end_turn"
        assert [u["sessionUpdate"] for u in editor.told()] == ["agent_thought_chunk", "agent_message_chunk"]
        ids = [u["messageId"] for u in editor.told()]
        assert len(set(ids)) == 2
        assert all(map(UUID.fullmatch, ids))
        assert "secret" not in json.dumps(editor.updates)
        assert result["usage"] == {
            "inputTokens": 10,
            "outputTokens": 4,
            "totalTokens": 14,
            "cachedReadTokens": 2,
            "thoughtTokens": 1,
        }


def test_empty_pieces_are_left_out() -> None:
    turn = dialect.turn("s", None)
    turn.begin(context(None))
    begun = [MessageStarted("m"), PartStarted("p", "m", PartKind.TEXT)]
    notes = turn.encode([*begun, TextDelta("p", ""), TextDelta("p", "Hello"), TextDelta("p", "")])
    assert [params["update"]["content"]["text"] for _, params in notes] == ["Hello"]


@pytest.mark.parametrize(("word", "state"), [("tool", "completed"), ("toolfail", "failed")])
async def test_a_call_of_the_backend(word: str, state: str) -> None:
    async with editing() as editor:
        await editor.prompt(await editor.new(), word)
        begins, ends = editor.calls()
        assert begins == {
            "sessionUpdate": "tool_call",
            "toolCallId": "c1",
            "title": "read_file",
            "name": "read_file",
            "kind": "read",
            "status": "in_progress",
            "rawInput": {"path": "a.txt"},
        }
        assert ends == {
            "sessionUpdate": "tool_call_update",
            "toolCallId": "c1",
            "status": state,
            "content": [{"type": "content", "content": {"type": "text", "text": '{"lines":3}'}}],
            "rawOutput": {"lines": 3},
        }


@pytest.mark.parametrize(("word", "state"), [("untold", "completed"), ("leftcall", "failed")])
async def test_no_call_is_left_running(word: str, state: str) -> None:
    async with editing() as editor:
        assert (await editor.prompt(await editor.new(), word))["stopReason"] == "end_turn"
        assert editor.calls()[-1] == {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": state}


async def test_media_links_and_data() -> None:
    async with editing() as editor:
        await editor.prompt(await editor.new(), "media")
        assert [u["content"] for u in editor.told()] == [
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {
                "type": "resource_link",
                "uri": "https://example.test/a.pdf",
                "name": "a.pdf",
                "mimeType": "application/pdf",
            },
            {"type": "text", "text": '{"a":1}'},
        ]
        assert {u["sessionUpdate"] for u in editor.told()} == {"agent_message_chunk"}


async def test_what_the_protocol_has_no_update_for_is_left_out() -> None:
    async with editing() as editor:
        await editor.prompt(await editor.new(), "state")
        assert [u["content"]["text"] for u in editor.told()] == ["ok"]


async def test_what_only_agents_of_the_protocol_say() -> None:
    async with editing() as editor:
        await editor.prompt(await editor.new(), "like an agent")
        plan, _, result = editor.told()
        assert plan == {"sessionUpdate": "plan", "entries": [{"content": "Look", "status": "pending"}]}
        assert result["content"] == [{"type": "diff", "path": "/a.txt", "oldText": None, "newText": "x"}]


@pytest.mark.parametrize(
    ("reason", "word"),
    [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "refusal"), ("canceled", "cancelled")],
)
async def test_how_a_turn_ends(reason: str, word: str) -> None:
    async with editing() as editor:
        assert await editor.prompt(await editor.new(), f"end {reason}") == {"stopReason": word}


@pytest.mark.parametrize(
    ("code", "number"),
    [
        (ErrorCode.UNAUTHORIZED, -32000),
        (ErrorCode.FORBIDDEN, -32000),
        (ErrorCode.NOT_FOUND, -32002),
        (ErrorCode.INVALID_REQUEST, -32602),
        (ErrorCode.UNSUPPORTED, -32602),
        (ErrorCode.RATE_LIMITED, -32603),
        (ErrorCode.BACKEND_AUTH, -32603),
        (ErrorCode.BACKEND_ERROR, -32603),
    ],
)
async def test_a_run_that_fails_is_an_error(code: ErrorCode, number: int) -> None:
    async with editing() as editor:
        session = await editor.new()
        error = await editor.error("session/prompt", prompt_of(session, f"fail {code}"))
        assert (error.code, error.data["code"]) == (number, str(code))
        assert error.message
        assert "sk-secret" not in error.message
        assert editor.calls()[-1]["status"] == "failed"
        assert (await editor.prompt(session, "hello"))["stopReason"] == "end_turn"


# ------------------------------------------------------------------ the prompt


async def test_blocks_reach_the_agent() -> None:
    async with editing() as editor:
        blocks = [
            {"type": "text", "text": "look"},
            {"type": "resource_link", "uri": "file:///a/b.py", "name": "b.py", "size": 3},
            {"type": "resource", "resource": {"uri": "file:///a/c.py", "text": "x = 1\n", "mimeType": "text/x-python"}},
            {"type": "resource", "resource": {"uri": "file:///a/d.pdf", "blob": "aGk=", "mimeType": "application/pdf"}},
            {"type": "image", "data": "aGk=", "mimeType": "image/png", "uri": None},
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav", "annotations": {"priority": 1}},
        ]
        await editor.prompt(await editor.new(), *blocks)
        look, link, text, blob, image, audio = agents.SEEN[-1].messages[-1].parts
        assert (look, link) == (Text("look"), Text("[b.py](file:///a/b.py)", link.extras))
        assert isinstance(text, Text)
        assert text.text == "file:///a/c.py\n```\nx = 1\n```"
        assert isinstance(blob, Media)
        assert (blob.kind, blob.source, blob.mime) == (MediaKind.FILE, Inline("aGk="), "application/pdf")
        assert isinstance(image, Media)
        assert isinstance(audio, Media)
        assert (image.kind, audio.kind) == (MediaKind.IMAGE, MediaKind.AUDIO)
        assert not any(isinstance(part, Data) for part in agents.SEEN[-1].messages[-1].parts)


async def test_files_of_the_editor_come_back_as_they_were(tmp_path: Path) -> None:
    link = {"type": "resource_link", "uri": "file:///a/b.py", "name": "b.py"}
    text = {"type": "resource", "resource": {"uri": "file:///a/c.py", "text": "x = 1"}}
    async with editing(tmp_path) as editor:
        session = await editor.new()
        await editor.prompt(session, "look", link, text)
        editor.updates.clear()
        await editor.call("session/load", {"sessionId": session, "cwd": "/", "mcpServers": []})
        sent = [u["content"] for u in editor.told() if u["sessionUpdate"] == "user_message_chunk"]
        assert sent == [{"type": "text", "text": "look"}, link, text]


@pytest.mark.parametrize(
    ("blocks", "place"),
    [
        ([], "prompt"),
        ("hello", "prompt"),
        (["hello"], "prompt[0]"),
        ([{"type": "text"}], "prompt[0].text"),
        ([{"type": "video", "data": ""}], "prompt[0].type"),
        ([{"text": "x"}], "prompt[0].type"),
        ([{"type": "image", "data": "aGk="}], "prompt[0].mimeType"),
        ([{"type": "resource", "resource": {"text": "x"}}], "prompt[0].resource.uri"),
        ([{"type": "resource", "resource": {"uri": "x"}}], "prompt[0].resource.blob"),
        ([{"type": "resource_link", "uri": "x"}], "prompt[0].name"),
    ],
)
async def test_a_prompt_that_is_wrong_is_refused_with_its_place(blocks: Any, place: str) -> None:
    async with editing() as editor:
        session = await editor.new()
        error = await editor.error("session/prompt", {"sessionId": session, "prompt": blocks})
        assert (error.code, error.data["param"]) == (-32602, place)
        assert place in error.message


async def test_a_slash_is_text_and_nothing_of_the_editor_is_a_tool() -> None:
    async with editing(**ALL) as editor:
        await editor.prompt(await editor.new(), "/help me")
        assert editor.said() == "1: /help me"
        assert not agents.SEEN[-1].tools
        assert not any("available_commands" in u["sessionUpdate"] for u in editor.told())


async def test_the_model_is_an_option(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    del config["routes"][0]["backend"]
    config["routes"][0]["models"] = {"small": "it", "large": "it"}
    async with editing(config=config) as editor:
        created = await editor.call("session/new", {"cwd": "/", "mcpServers": []})
        (option,) = created["configOptions"]
        assert (option["id"], option["category"], option["type"]) == ("model", "model", "select")
        assert option["currentValue"] == "small"
        assert option["options"] == [{"value": "small", "name": "small"}, {"value": "large", "name": "large"}]
        session = created["sessionId"]
        choice = {"sessionId": session, "configId": "model", "value": "large"}
        assert (await editor.call("session/set_config_option", choice))["configOptions"][0]["currentValue"] == "large"
        await editor.prompt(session, "hello")
        assert agents.SEEN[-1].model == "large"
        for field, wrong in (("value", "huge"), ("configId", "mode"), ("value", True)):
            error = await editor.error("session/set_config_option", {**choice, field: wrong})
            assert (error.code, error.data["param"]) == (-32602, field)
        loaded = await editor.call("session/load", {"sessionId": session, "cwd": "/", "mcpServers": []})
        assert loaded["configOptions"][0]["currentValue"] == "large"


async def test_the_model_for_clients_from_before_options(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    del config["routes"][0]["backend"]
    config["routes"][0]["models"] = {"small": "it", "large": "it"}
    async with editing(config=config) as editor:
        created = await editor.call("session/new", {"cwd": "/", "mcpServers": []})
        named = [{"modelId": name, "name": name} for name in ("small", "large")]
        assert created["models"] == {"currentModelId": "small", "availableModels": named}
        choice = {"sessionId": created["sessionId"], "modelId": "large"}
        await editor.call("session/set_model", choice)
        await editor.prompt(created["sessionId"], "hello")
        assert agents.SEEN[-1].model == "large"
        for wrong in ("huge", 1):
            error = await editor.error("session/set_model", {**choice, "modelId": wrong})
            assert (error.code, error.data["param"]) == (-32602, "modelId")
        resumed = await editor.call("session/resume", {"sessionId": created["sessionId"], "cwd": "/"})
        assert resumed["models"]["currentModelId"] == "large"


# ------------------------------------------------------------------ permissions and questions


async def test_a_permission_within_the_prompt(tmp_path: Path) -> None:
    async with editing(tmp_path) as editor:
        session = await editor.new()
        result = await editor.prompt(session, "ask approve")
        ((method, params),) = editor.asked
        assert method == "session/request_permission"
        assert params["sessionId"] == session
        assert params["toolCall"]["toolCallId"] == "c1"
        assert params["toolCall"]["title"] == "write_file"
        assert params["toolCall"]["rawInput"] == {"path": "a.txt"}
        assert params["toolCall"]["content"][0]["content"]["text"] == "May I write?"
        assert [(o["kind"], o["name"]) for o in params["options"]] == [
            ("allow_once", "Allow"),
            ("reject_once", "Reject"),
        ]
        assert [u["status"] for u in editor.calls()] == ["in_progress", "pending", "in_progress", "completed"]
        assert editor.said() == "resolved {'approved': True}"
        assert (result["stopReason"], result["usage"]["totalTokens"]) == ("end_turn", 8)


async def test_a_permission_that_is_refused(tmp_path: Path) -> None:
    async with editing(tmp_path) as editor:
        editor.answers = reject
        assert (await editor.prompt(await editor.new(), "ask approve"))["stopReason"] == "end_turn"
        assert [u["status"] for u in editor.calls()] == ["in_progress", "pending", "failed"]
        assert editor.said() == "resolved {'approved': False}"


@pytest.mark.parametrize("option", ["always", "once", "no"])
async def test_options_of_the_question_are_those_of_the_permission(option: str, tmp_path: Path) -> None:
    async with editing(tmp_path) as editor:
        editor.answers = lambda method, params: chosen(option)
        await editor.prompt(await editor.new(), "ask own")
        ((_, params),) = editor.asked
        assert [o["optionId"] for o in params["options"]] == ["always", "once", "no"]
        assert editor.said() == f"resolved {{'optionId': '{option}'}}"


@pytest.mark.parametrize("answer", [chosen("nothing"), {}, None, {"outcome": "selected"}, []])
@pytest.mark.parametrize("kind", ["approve", "own"])
async def test_an_answer_that_is_none_allows_nothing(kind: str, answer: Any, tmp_path: Path) -> None:
    async with editing(tmp_path) as editor:
        editor.answers = lambda method, params: answer
        await editor.prompt(await editor.new(), f"ask {kind}")
        assert editor.said() in ("resolved {'approved': False}", "resolved {'optionId': 'no'}")
        assert editor.calls()[-1]["status"] == "failed"


async def test_an_editor_that_cannot_be_asked_allows_nothing(tmp_path: Path) -> None:
    def refuse(method: str, params: Any) -> Any:
        raise RpcError(-32601, "Method not found")

    async with editing(tmp_path) as editor:
        editor.answers = refuse
        assert (await editor.prompt(await editor.new(), "ask approve"))["stopReason"] == "end_turn"
        assert editor.said() == "resolved {'approved': False}"


async def test_several_questions_are_asked_before_the_run_goes_on(tmp_path: Path) -> None:
    async with editing(tmp_path) as editor:
        await editor.prompt(await editor.new(), "twice")
        assert [p["toolCall"]["title"] for _, p in editor.asked] == ["First?", "Second?"]
        assert [r.interrupt_id for r in agents.SEEN[-1].resume] == ["q1", "q2"]
        assert all(r.agrees for r in agents.SEEN[-1].resume)


async def test_a_question_with_a_form(tmp_path: Path) -> None:
    async with editing(tmp_path, **ALL) as editor:
        editor.answers = lambda method, params: {"action": "accept", "content": {"city": "Paris", "days": 2}}
        await editor.prompt(await editor.new(), "ask form")
        ((method, params),) = editor.asked
        assert (method, params["mode"], params["message"]) == ("elicitation/create", "form", "Where to?")
        assert params["requestedSchema"]["required"] == ["city", "days"]
        assert editor.said() == "resolved {'city': 'Paris', 'days': 2}"
        assert editor.calls() == []


async def test_a_free_question_is_a_form_of_one_field(tmp_path: Path) -> None:
    async with editing(tmp_path, **ALL) as editor:
        editor.answers = lambda method, params: {"action": "accept", "content": {"answer": "red"}}
        await editor.prompt(await editor.new(), "ask free")
        ((_, params),) = editor.asked
        assert params["requestedSchema"]["properties"] == {"answer": {"type": "string"}}
        assert editor.said() == "resolved red"


@pytest.mark.parametrize("action", ["decline", "cancel", "sing"])
async def test_a_form_that_is_declined(action: str, tmp_path: Path) -> None:
    async with editing(tmp_path, **ALL) as editor:
        editor.answers = lambda method, params: {"action": action}
        await editor.prompt(await editor.new(), "ask form")
        assert agents.SEEN[-1].resume[0].decision == "cancelled"


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {}}, {"elicitation": {"url": {}}}, {"elicitation": None}])
@pytest.mark.parametrize("kind", ["free", "form"])
async def test_without_forms_the_next_prompt_answers(kind: str, capabilities: Any, tmp_path: Path) -> None:
    async with editing(tmp_path, **capabilities) as editor:
        session = await editor.new()
        assert (await editor.prompt(session, f"ask {kind}"))["stopReason"] == "end_turn"
        assert editor.said() == {"free": "Which colour?", "form": "Where to?"}[kind]
        assert editor.asked == []
        await editor.prompt(session, "red")
        assert editor.said() == "resolved red"


async def test_a_question_that_fits_no_form_is_told(tmp_path: Path) -> None:
    async with editing(tmp_path, **ALL) as editor:
        session = await editor.new()
        await editor.prompt(session, "ask deep")
        assert (editor.said(), editor.asked) == ("Tell me all.", [])
        await editor.prompt(session, '{"a":{}}')
        assert agents.SEEN[-1].resume[0].payload == {"a": {}}


@pytest.mark.parametrize("capabilities", [{}, ALL])
async def test_yes_or_no_is_a_permission(capabilities: Any, tmp_path: Path) -> None:
    async with editing(tmp_path, **capabilities) as editor:
        await editor.prompt(await editor.new(), "ask yesno")
        ((method, params),) = editor.asked
        assert (method, params["toolCall"]["title"]) == ("session/request_permission", "Sure?")
        assert editor.said() == "resolved True"
        assert [u["status"] for u in editor.calls()] == ["pending", "completed"]


# ------------------------------------------------------------------ cancel


async def begun() -> None:
    await asyncio.wait_for(agents.GATE.setdefault("begun", asyncio.Event()).wait(), 20)


async def test_a_prompt_is_canceled(tmp_path: Path) -> None:
    async with editing(tmp_path) as editor:
        session = await editor.new()
        prompt = asyncio.create_task(editor.prompt(session, "slow"))
        await begun()
        await editor.connection.notify("session/cancel", {"sessionId": session})
        assert await prompt == {"stopReason": "cancelled"}
        assert editor.said() == "first"
        assert editor.calls()[-1]["status"] == "failed"
        await editor.prompt(session, "next")
        assert editor.said().endswith("next")


async def test_a_cancel_without_a_prompt_does_not_hit_the_next_one() -> None:
    async with editing() as editor:
        session = await editor.new()
        await editor.connection.notify("session/cancel", {"sessionId": session})
        await editor.connection.notify("session/cancel", {"sessionId": "nobody"})
        await editor.connection.notify("session/cancel", {})
        assert (await editor.prompt(session, "hello"))["stopReason"] == "end_turn"


async def test_a_prompt_right_after_a_cancel_is_answered(tmp_path: Path) -> None:
    async with editing(tmp_path) as editor:
        session = await editor.new()
        first = asyncio.create_task(editor.call("session/prompt", prompt_of(session, "slow")))
        await begun()
        await editor.connection.notify("session/cancel", {"sessionId": session})
        second = await editor.call("session/prompt", prompt_of(session, "next"))
        assert ((await first)["stopReason"], second["stopReason"]) == ("cancelled", "end_turn")


async def test_a_cancel_withdraws_the_question(tmp_path: Path) -> None:
    async with editing(tmp_path) as editor:
        session = await editor.new()
        came = asyncio.Event()

        async def wait(method: str, params: Any) -> Any:
            came.set()
            await asyncio.Event().wait()

        editor.answers = wait
        prompt = asyncio.create_task(editor.prompt(session, "ask approve"))
        await asyncio.wait_for(came.wait(), 20)
        await editor.connection.notify("session/cancel", {"sessionId": session})
        assert await prompt == {"stopReason": "cancelled"}
        assert editor.withdrawn == [0]
        assert editor.calls()[-1]["status"] == "failed"
        # The next prompt tells the agent that nobody answered, and is not an answer itself.
        await editor.prompt(session, "hello")
        assert editor.said() == "withdrawn, then hello"


async def test_an_editor_that_answers_with_cancelled(tmp_path: Path) -> None:
    async with editing(tmp_path) as editor:
        editor.answers = lambda method, params: {"outcome": {"outcome": "cancelled"}}
        assert await editor.prompt(await editor.new(), "ask approve") == {"stopReason": "cancelled"}
        assert editor.calls()[-1]["status"] == "failed"


async def test_an_editor_that_cancels_the_question(tmp_path: Path) -> None:
    def cancel(method: str, params: Any) -> Any:
        raise RpcError(-32800, "Request cancelled")

    async with editing(tmp_path) as editor:
        editor.answers = cancel
        assert await editor.prompt(await editor.new(), "ask approve") == {"stopReason": "cancelled"}
        assert len(agents.SEEN) == 1


async def test_a_question_is_open_after_the_editor_has_left(tmp_path: Path) -> None:
    async with editing(tmp_path) as editor:
        session, came = await editor.new(), asyncio.Event()

        async def wait(method: str, params: Any) -> Any:
            came.set()
            await asyncio.Event().wait()

        editor.answers = wait
        left = asyncio.create_task(editor.prompt(session, "ask approve"))
        await asyncio.wait_for(came.wait(), 20)
    assert isinstance((await asyncio.gather(left, return_exceptions=True))[0], ConnectionError)
    async with editing(tmp_path) as editor:
        await editor.call("session/load", {"sessionId": session, "cwd": "/", "mcpServers": []})
        assert editor.calls()[-1]["status"] == "failed"
        await editor.prompt(session, "hello")
        assert editor.said() == "withdrawn, then hello"


async def test_what_an_editor_saw_is_stored_though_it_leaves(tmp_path: Path) -> None:
    """It leaves in the middle of an answer."""
    async with editing(tmp_path) as editor:
        session = await editor.new()
        left = asyncio.create_task(editor.prompt(session, "slow"))
        await begun()
        while not editor.updates or "first" not in editor.said():
            await asyncio.sleep(0)
    await asyncio.gather(left, return_exceptions=True)
    async with editing(tmp_path) as editor:
        await editor.call("session/load", {"sessionId": session, "cwd": "/", "mcpServers": []})
        assert (editor.said("user_message_chunk"), editor.said()) == ("slow", "first")


async def test_an_editor_that_leaves_does_not_stop_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves after the answer, while that is being stored."""
    storing, append = asyncio.Event(), SessionStore.append

    async def slowly(*args: Any) -> None:
        storing.set()
        await asyncio.sleep(0.05)
        await append(*args)

    async with editing(tmp_path) as editor:
        session = await editor.new()
        monkeypatch.setattr(SessionStore, "append", slowly)
        left = asyncio.create_task(editor.prompt(session, "hello"))
        await asyncio.wait_for(storing.wait(), 20)
    await asyncio.gather(left, return_exceptions=True)
    async with editing(tmp_path) as editor:
        await editor.call("session/load", {"sessionId": session, "cwd": "/", "mcpServers": []})
        assert (editor.said("user_message_chunk"), editor.said()) == ("hello", "1: hello")


async def test_a_request_is_canceled_by_its_id() -> None:
    async with raw() as (carrier, read):
        await carrier.send([line(0, "session/new", cwd="/", mcpServers=[])])
        session = (await read())["result"]["sessionId"]
        await carrier.send([line("mine", "session/prompt", **prompt_of(session, "slow"))])
        await begun()
        await carrier.send(
            [line(None, "$/cancel_request", requestId=7), line(None, "$/cancel_request", requestId="mine")]
        )
        while (answer := await read()).get("id") != "mine":
            pass
        assert answer["result"] == {"stopReason": "cancelled"}


# ------------------------------------------------------------------ bad input


def line(call_id: Any, method: str, **params: Any) -> bytes:
    head = {"jsonrpc": "2.0"} if call_id is None else {"jsonrpc": "2.0", "id": call_id}
    return json.dumps({**head, "method": method, "params": params}).encode()


async def test_two_prompts_at_once() -> None:
    async with editing() as editor:
        session, other = await editor.new(), await editor.new()
        first = asyncio.create_task(editor.call("session/prompt", prompt_of(session, "slow")))
        await begun()
        error = await editor.error("session/prompt", prompt_of(session, "more"))
        assert error.code == -32600
        assert "busy" in error.message
        assert (await editor.call("session/prompt", prompt_of(other, "hello")))["stopReason"] == "end_turn"
        agents.GATE["go"].set()
        assert (await first)["stopReason"] == "end_turn"


async def test_garbage_is_answered_and_the_connection_goes_on() -> None:
    async with raw() as (carrier, read):
        for frame, code in (
            (b"garbage", -32700),
            (b"[]", -32600),
            (b"null", -32600),
            (b"7", -32600),
            (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
            (b'{"id":1,"method":"initialize"}', -32600),
            (b'{"jsonrpc":"2.0","id":1,"method":"nonsense"}', -32601),
            (b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":[1]}', -32602),
        ):
            await carrier.send([frame])
            assert (await read())["error"]["code"] == code
        await carrier.send([b'{"jsonrpc":"2.0","id":9,"result":{}}', b'{"jsonrpc":"2.0","method":"_own/note"}'])
        await carrier.send([line(0, "initialize", protocolVersion=1)])
        assert (await read())["result"]["protocolVersion"] == 1


async def test_a_line_of_600_kilobytes() -> None:
    async with raw() as (carrier, read):
        await carrier.send([line(0, "session/new", cwd="/", mcpServers=[])])
        session = (await read())["result"]["sessionId"]
        await carrier.send([line(1, "session/prompt", **prompt_of(session, "x" * 600_000))])
        assert len((await read())["params"]["update"]["content"]["text"]) > 600_000
        assert (await read())["result"]["stopReason"] == "end_turn"


async def test_ids_are_those_of_each_side(tmp_path: Path) -> None:
    """The client's open prompt and the agent's question have the same id; an id in use is refused."""
    async with raw(tmp_path) as (carrier, read):
        await carrier.send([line(0, "session/new", cwd="/", mcpServers=[])])
        session = (await read())["result"]["sessionId"]
        await carrier.send([line(0, "session/prompt", **prompt_of(session, "ask approve"))])
        while (asked := await read()).get("method") != "session/request_permission":
            pass
        assert asked["id"] == 0
        await carrier.send([line(0, "session/list")])
        assert (await read())["error"]["code"] == -32600
        allowed = {"jsonrpc": "2.0", "id": 0, "result": chosen("allow")}
        await carrier.send([json.dumps(allowed).encode()])
        while "result" not in (answer := await read()):
            pass
        assert (answer["id"], answer["result"]["stopReason"]) == (0, "end_turn")


async def test_updates_come_before_the_answer_and_after_that_of_a_new_session() -> None:
    async with raw() as (carrier, read):
        await carrier.send([line(0, "session/new", cwd="/", mcpServers=[])])
        created = await read()
        assert created["id"] == 0
        await carrier.send([line(1, "session/prompt", **prompt_of(created["result"]["sessionId"], "think"))])
        order = [await read() for _ in range(3)]
        assert ["method" in each for each in order] == [True, True, False]
        assert all(each["jsonrpc"] == "2.0" for each in order)


async def test_too_many_sessions() -> None:
    async with editing() as editor:
        for _ in range(200):
            await editor.new()
        error = await editor.error("session/new", {"cwd": "/", "mcpServers": []})
        assert "200 open sessions" in error.message


async def test_a_client_that_leaves_cancels_the_run() -> None:
    async with editing() as editor:
        session = await editor.new()
        prompt = asyncio.create_task(editor.prompt(session, "slow"))
        await begun()
    assert isinstance((await asyncio.gather(prompt, return_exceptions=True))[0], ConnectionError)
