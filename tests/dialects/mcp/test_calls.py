"""Calls: arguments, progress, results, conversations, questions, cancellation."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.server.harness import fake_backend

from . import agent
from .client import ACCEPT, FORMS, META, New, Old, config, offering, route, served, until

# ------------------------------------------------------------------ arguments


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ({}, "arguments.prompt"),
        ({"prompt": 5}, "arguments.prompt"),
        ({"prompt": "  "}, "arguments.prompt"),
        ({"prompt": "hi", "images": ["https://a.example/b.png"]}, "arguments.images"),
        ({"prompt": "hi", "conversation": 7}, "arguments.conversation"),
        ({"prompt": "hi", "conversation": "c-1"}, "arguments.conversation"),
        ([], "arguments"),
        ("hi", "arguments"),
    ],
)
async def test_the_model_reads_what_is_wrong_with_its_arguments(
    both: tuple[New, Old], arguments: Any, place: str
) -> None:
    new, old = both
    await old.start()
    params = {"name": "ask_agent", "arguments": arguments}
    for answer in (await new.ask("tools/call", params), await old.ask("tools/call", params)):
        assert (answer.status, answer.result["isError"]) == (200, True)
        assert place in answer.texts[0]


async def test_an_unknown_tool_is_an_error_of_the_client(new: New) -> None:
    answer = await new.call("hi", "nope")
    assert (answer.status, answer.error) == (
        400,
        {"code": -32602, "message": "Unknown tool: nope", "data": {"param": "params.name"}},
    )
    body, headers = new.framed("tools/call", {"arguments": {"prompt": "hi"}})
    assert (await new.send(body, headers)).error["code"] == -32602


async def test_further_arguments_are_options(tmp_path: Path) -> None:
    options = {"arguments": ["images", "files", "system"]}
    setup = config(tmp_path, route(options=options))
    async with served(setup) as (new, _):
        properties = (await new.ask("tools/list")).result["tools"][0]["inputSchema"]["properties"]
        assert list(properties) == ["prompt", "conversation", "images", "files", "system"]
        image = f"data:image/png;base64,{agent.PIXEL}"
        answer = await new.call("look", images=[image], files=["https://a.example/b.pdf"], system="Be brief.")
        assert answer.texts[0] == "look[image: image/png, 70 bytes][b.pdf](https://a.example/b.pdf) ['system', 'user']"
        for wrong in (["nothing"], [7], "x", [""]):
            answer = await new.call("look", images=wrong)
            assert answer.result["isError"]
            assert "arguments.images" in answer.texts[0]


# ------------------------------------------------------------------ results


async def test_an_answer_is_a_text_and_its_conversation(new: New) -> None:
    answer = await new.call("hi")
    assert answer.headers["content-type"] == "application/json"
    result = answer.result
    assert (result["resultType"], result["isError"]) == ("complete", False)
    assert [part["type"] for part in result["content"]] == ["text", "text"]
    assert answer.texts[0] == "hi ['user']"
    assert answer.texts[1].startswith("conversation: ")
    assert "structuredContent" not in result
    assert result["_meta"]["dialect-bridge/finish_reason"] == "stop"
    assert result["_meta"][f"{META}serverInfo"]["name"] == "dialect-bridge"


async def test_texts_of_several_messages_have_a_blank_line_between(new: New) -> None:
    assert (await new.call("messages")).texts[0] == "one\n\ntwo"


async def test_media_are_parts_of_the_result(new: New) -> None:
    content = (await new.call("media")).result["content"]
    assert content[0] == {"type": "text", "text": 'see {"a":1}'} or content[0]["text"].startswith("see ")
    assert '{"a":1}' in content[0]["text"]
    image, audio, file, link = content[1:5]
    assert image == {"type": "image", "data": agent.PIXEL, "mimeType": "image/png"}
    assert audio == {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}
    assert (file["type"], file["resource"]["mimeType"], file["resource"]["blob"]) == (
        "resource",
        "application/pdf",
        "JVBERi0=",
    )
    assert file["resource"]["uri"]
    assert link == {
        "type": "resource_link",
        "uri": "https://files.example/b.pdf",
        "name": "b.pdf",
        "mimeType": "application/pdf",
    }


async def test_an_answer_that_was_cut_says_so(new: New) -> None:
    answer = await new.call("long")
    assert (answer.result["isError"], answer.texts[0]) == (False, "cut")
    assert answer.texts[2] == "The answer was cut off at its limit."


async def test_a_backend_that_fails_is_read_by_the_model(new: New, old: Old) -> None:
    for answer in (await new.call("boom", token=1), await old.call("boom")):
        assert (answer.status, answer.result["isError"]) == (200, True)
        (text,) = answer.texts
        assert text.startswith("backend_error: ")
        assert "half" not in text
        assert "secret" not in text
    answer = await new.call("filter")
    assert (answer.result["isError"], answer.texts[0].partition(":")[0]) == (True, "content_filter")
    assert "no" not in answer.texts[0].split()


async def test_a_backend_that_cannot_be_reached_is_read_by_the_model(tmp_path: Path) -> None:
    setup = config(tmp_path, route(backend="gone"))
    setup["backends"]["gone"] = {
        "dialect": "openai-chat",
        "url": "http://127.0.0.1:9/v1",
        "model": "m",
        "retry": {"attempts": 1},
    }
    async with served(setup) as (new, _):
        answer = await new.call("hi", "ask_gone")
        assert (answer.status, answer.result["isError"]) == (200, True)
        assert answer.texts[0].startswith("backend_unavailable: ")


async def test_a_call_of_a_clients_tool_is_not_for_us(tmp_path: Path) -> None:
    async with fake_backend("openai-chat") as backend:
        call = b'{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]}'
        first = b'data: {"id":"x","choices":[{"index":0,"delta":%b}]}\n\n' % call
        end = b'data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\n'
        backend.streams(first, end, b"data: [DONE]\n\n")
        setup = config(tmp_path, route(backend="llm"))
        setup["backends"]["llm"] = {"dialect": "openai-chat", "url": backend.url, "model": "m"}
        async with served(setup) as (new, _):
            result = await new.call("hi", "ask_llm")
            assert result.result["isError"]
            assert result.texts[0].startswith("unsupported: ")


async def test_structured_content_is_an_option(tmp_path: Path) -> None:
    setup = config(tmp_path, route(options={"structured": True}))
    async with served(setup) as (new, _):
        (tool,) = (await new.ask("tools/list")).result["tools"]
        assert set(tool["outputSchema"]["required"]) == {"answer", "finish_reason"}
        answer = await new.call("hi")
        told = answer.result["structuredContent"]
        assert (told["answer"], told["finish_reason"]) == ("hi ['user']", "stop")
        assert told["conversation"] == answer.conversation
        answer = await new.call("media")
        assert {part["type"] for part in answer.result["content"]} == {"text"}
        assert "b.pdf" in answer.result["structuredContent"]["answer"]
        assert "structuredContent" not in (await new.call("boom")).result


# ------------------------------------------------------------------ progress


@pytest.mark.parametrize("token", [0, 7, "p-1", ""])
async def test_progress_has_the_token_as_it_came(new: New, old: Old, token: Any) -> None:
    for answer in (await new.call("say a b c", token=token), await old.call("say a b c", token=token)):
        assert answer.is_stream
        assert answer.headers["x-accel-buffering"] == "no"
        assert b"id:" not in answer.body.replace(b'"id":', b"")
        assert answer.body.count(b"event: message\n") == len(answer.messages)
        progress = answer.progress
        assert [type(p["progressToken"]) for p in progress] == [type(token)] * len(progress)
        assert {p["progressToken"] for p in progress} == {token}
        counts = [p["progress"] for p in progress]
        assert counts == sorted(set(counts))
        assert "".join(p["message"] for p in progress) == "a b c "
        assert "result" in answer.last, "nothing follows the answer"
        assert answer.texts[0] == "a b c "


async def test_without_a_token_there_is_no_progress(new: New, old: Old) -> None:
    for answer in (await new.call("say a b c"), await old.call("say a b c")):
        assert len(answer.messages) == 1


async def test_pieces_are_joined(new: New) -> None:
    started = asyncio.get_running_loop().time()
    body, headers = new.framed("tools/call", {"name": "ask_agent", "arguments": {"prompt": "slow"}}, token=1)
    count = 0
    async with new.session.post(new.url, json=body, headers={**ACCEPT, **headers}) as response:
        async for line in response.content:
            count += line.startswith(b"data:")
            if count == 5:
                break
    # Of twenty pieces a second, about ten notifications are made.
    assert asyncio.get_running_loop().time() - started > 0.3


async def test_what_an_agent_does_is_an_option(tmp_path: Path) -> None:
    setup = config(tmp_path, route(options={"progress": "all"}), route("/off", options={"progress": "off"}))
    async with served(setup) as (new, _):
        answer = await new.call("work", token=1)
        assert [p["message"] for p in answer.progress] == ["calls search", "done"]
        assert answer.texts[0] == "done"
        new.url = new.url.replace("/mcp", "/off")
        assert (await new.call("say a b", token=1)).progress == []


async def test_of_reasoning_and_calls_nothing_is_told(new: New) -> None:
    answer = await new.call("work", token=1)
    assert [p["message"] for p in answer.progress] == ["done"]
    assert b"thinking" not in answer.body


async def test_a_silent_backend_is_held_open(tmp_path: Path) -> None:
    async with served(config(tmp_path, keepalive="200ms")) as (new, old):
        await old.start()
        answer = await new.call("silent")
        assert answer.is_stream
        assert answer.body.startswith(b":")
        assert (len(answer.messages), answer.texts[0]) == (1, "at last")
        answer = await new.call("silent", token=0)
        assert answer.progress[0].get("message") is None
        assert [p["progress"] for p in answer.progress] == list(range(1, len(answer.progress) + 1))
        body, headers = new.framed("tools/call", {"name": "ask_agent", "arguments": {"prompt": "silent"}})
        plain = await new.send(body, {**headers, "accept": "application/json"})
        assert (plain.headers["content-type"], plain.texts[0]) == ("application/json", "at last")


# ------------------------------------------------------------------ conversations


async def test_a_conversation_goes_on_by_its_id_only(new: New, old: Old) -> None:
    for client in (new, old):
        first = await client.call("one")
        assert first.texts[0] == "one ['user']"
        again = await client.call("again", conversation=first.conversation)
        assert again.texts[0] == "again ['user', 'assistant', 'user']"
        assert again.conversation == first.conversation
        assert (await client.call("three")).texts[0] == "three ['user']", "a session is no conversation"
        assert (await client.call("three", conversation="")).texts[0] == "three ['user']"


async def test_a_conversation_is_of_its_user_and_its_tool(tmp_path: Path) -> None:
    keys = {"keys": [{"name": "me", "key": "key-of-me"}, {"name": "you", "key": "key-of-you"}]}
    setup = config(tmp_path, offering(a="agent", b="agent"), auth=keys)
    async with served(setup, authorization="Bearer key-of-me") as (new, _):
        known = (await new.call("one", "a")).conversation
        answer = await new.call("two", "b", conversation=known)
        assert (answer.result["isError"], answer.texts[0].partition(":")[0]) == (True, "not_found")
        new.headers["authorization"] = "Bearer key-of-you"
        answer = await new.call("two", "a", conversation=known)
        assert (answer.result["isError"], answer.texts[0].partition(":")[0]) == (True, "not_found")


async def test_a_forgotten_conversation_does_not_begin_anew(tmp_path: Path) -> None:
    setup = config(tmp_path)
    setup["server"]["secret"] = "s" * 40
    async with served(json.loads(json.dumps(setup))) as (new, _):
        known = (await new.call("one")).conversation
        assert (await new.call("two", conversation=known)).result["isError"] is False
    (tmp_path / "history.db").unlink()
    async with served(setup) as (new, _):
        begun = len(agent.begun)
        answer = await new.call("three", conversation=known)
        assert (answer.status, answer.result["isError"]) == (200, True)
        assert answer.texts[0].startswith("not_found: ")
        assert len(agent.begun) == begun


async def test_where_nothing_is_remembered_no_conversation_is_offered(tmp_path: Path) -> None:
    setup = config(tmp_path)
    setup["stores"]["history"] = "off"
    async with served(setup) as (new, _):
        (tool,) = (await new.ask("tools/list")).result["tools"]
        assert list(tool["inputSchema"]["properties"]) == ["prompt"]
        assert (await new.call("hi")).texts == ["hi ['user']"]


# ------------------------------------------------------------------ questions


async def test_a_client_without_elicitation_reads_the_question(new: New, old: Old) -> None:
    for client in (new, old):
        answer = await client.call("ask")
        assert answer.result["isError"] is False
        question, how, conversation = answer.texts
        assert question == "Which city?"
        assert "ask_agent" in how
        known = conversation.removeprefix("conversation: ")
        again = await client.call("Paris", conversation=known)
        assert again.texts[0] == "answers: [('q-1', 'resolved', 'Paris')]"


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {"url": {}}}, {"elicitation": None}])
async def test_no_form_is_sent_to_who_did_not_declare_it(new: New, capabilities: Any) -> None:
    assert (await new.call("ask", capabilities=FORMS)).result["resultType"] == "input_required"
    assert (await new.call("ask", capabilities=capabilities)).texts[0] == "Which city?"


async def test_a_call_without_session_ends_with_its_questions(new: New) -> None:
    answer = await new.call("approve", capabilities={"elicitation": {}}, token=1)
    result = answer.result
    assert (result["resultType"], "content" in result) == ("input_required", False)
    assert result["inputRequests"] == {
        "q-1": {
            "method": "elicitation/create",
            "params": {
                "mode": "form",
                "message": "Send the mail?",
                "requestedSchema": {
                    "type": "object",
                    "properties": {"approved": {"type": "boolean", "title": "Approve"}},
                    "required": ["approved"],
                },
            },
        }
    }
    state = result["requestState"]
    for told, meant in (
        ({"action": "accept", "content": {"approved": True}}, "('q-1', 'resolved', {'approved': True})"),
        ({"action": "decline"}, "('q-1', 'cancelled', None)"),
        ({"action": "cancel"}, "('q-1', 'cancelled', None)"),
        ({"action": "accept"}, "('q-1', 'cancelled', None)"),
    ):
        answer = await new.call("approve", capabilities=FORMS)
        state = answer.result["requestState"]
        params = {"requestState": state, "inputResponses": {"q-1": told}}
        again = await new.call("approve", params=params, capabilities=FORMS)
        assert again.texts[0] == f"answers: [{meant}]"


async def test_a_question_is_answered_once_by_its_owner_for_its_call(new: New) -> None:
    state = (await new.call("approve", capabilities=FORMS)).result["requestState"]
    yes = {"q-1": {"action": "accept", "content": {"approved": True}}}
    for wrong in (
        {"requestState": f"{state}x", "inputResponses": yes},
        {"requestState": 7, "inputResponses": yes},
        {"requestState": state, "inputResponses": {}},
        {"requestState": state},
        {"inputResponses": yes},
        {"requestState": state, "inputResponses": {"other": yes["q-1"]}},
    ):
        answer = await new.call("approve", params=wrong, capabilities=FORMS)
        assert (answer.status, answer.error["code"]) == (400, -32602), wrong
    params = {"requestState": state, "inputResponses": yes}
    answer = await new.call("approve of something else", params=params, capabilities=FORMS)
    assert answer.error["code"] == -32602, "the state is bound to the arguments"
    assert (await new.call("approve", params=params, capabilities=FORMS)).texts[0].startswith("answers: ")
    answer = await new.call("approve", params=params, capabilities=FORMS)
    assert (answer.status, answer.result["isError"]) == (200, True)


async def test_the_question_of_an_approval_tells_the_call(new: New) -> None:
    told = 'send_mail({"to":"Ann"})\n\nThe agent asks for approval.'
    result = (await new.call("call", capabilities=FORMS)).result
    asked = result["inputRequests"]["q-1"]["params"]
    assert (asked["message"], list(asked["requestedSchema"]["properties"])) == (told, ["approved"])
    answer = await new.call("call")
    assert (answer.result["isError"], answer.texts[0]) == (False, told)


async def test_several_questions_are_several_keys(new: New) -> None:
    result = (await new.call("two", capabilities=FORMS)).result
    assert list(result["inputRequests"]) == ["q-1", "q-2"]
    assert result["inputRequests"]["q-2"]["params"]["requestedSchema"]["properties"] == {
        "answer": {"type": "string", "title": "Answer"}
    }
    told = {
        "q-1": {"action": "accept", "content": {"approved": False}},
        "q-2": {"action": "accept", "content": {"answer": "Ann"}},
    }
    params = {"requestState": result["requestState"], "inputResponses": told}
    again = await new.call("two", params=params, capabilities=FORMS)
    assert again.texts[0] == "answers: [('q-1', 'resolved', {'approved': False}), ('q-2', 'resolved', 'Ann')]"


async def test_the_form_of_the_agent_is_that_of_the_question(new: New) -> None:
    result = (await new.call("form", capabilities=FORMS)).result
    asked = result["inputRequests"]["q-1"]["params"]
    assert (asked["message"], asked["requestedSchema"]) == ("Where to?", agent.FORM)
    content = {"city": "Paris", "days": 2}
    told = {"q-1": {"action": "accept", "content": content}}
    params = {"requestState": result["requestState"], "inputResponses": told}
    again = await new.call("form", params=params, capabilities=FORMS)
    assert again.texts[0] == f"answers: [('q-1', 'resolved', {content})]"


async def test_a_session_is_asked_on_the_stream_of_its_call(both: tuple[New, Old]) -> None:
    old = both[1]
    await old.start(capabilities={"elicitation": {}})
    async with old.open(old.framed("two", token=0)) as messages:
        for content, question in (({"approved": True}, "Send the mail?"), ({"answer": "Ann"}, "To whom?")):
            asked = await anext(messages)
            assert (asked["method"], asked["params"]["message"]) == ("elicitation/create", question)
            assert asked["params"]["mode"] == "form"
            reply = {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": content}}
            told = await old.send(reply)
            assert (told.status, told.body) == (202, b"")
            assert (await old.send(reply)).status == 400, "it was answered"
        found = [m async for m in messages]
    assert [m["params"]["progress"] for m in found[:-1]] == [1]
    text = found[-1]["result"]["content"][0]["text"]
    assert text == "answers: [('q-1', 'resolved', {'approved': True}), ('q-2', 'resolved', 'Ann')]"


async def test_a_client_that_cannot_answer_has_declined(both: tuple[New, Old]) -> None:
    old = both[1]
    await old.start("2025-06-18", FORMS)
    async with old.open(old.framed("approve")) as messages:
        asked = await anext(messages)
        assert "mode" not in asked["params"]
        await old.send({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -1, "message": "no"}})
        (last,) = [m async for m in messages]
    text = last["result"]["content"][0]["text"]
    assert text == "I will send it.\n\nanswers: [('q-1', 'cancelled', None)]"


async def test_an_answer_of_another_session_is_refused(both: tuple[New, Old]) -> None:
    old = both[1]
    await old.start(capabilities=FORMS)
    async with old.open(old.framed("approve")) as messages:
        asked = await anext(messages)
        other = Old(old.url, old.session)
        await other.start(capabilities=FORMS)
        reply = {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"approved": True}}}
        assert (await other.send(reply)).status == 400
        assert (await old.send(reply)).status == 202
        assert [m async for m in messages]


# ------------------------------------------------------------------ cancellation


async def test_closing_the_response_cancels_a_call_without_session(new: New) -> None:
    agent.ended.clear()
    body, headers = new.framed("tools/call", {"name": "ask_agent", "arguments": {"prompt": "slow new"}}, token=1)
    async with new.session.post(new.url, json=body, headers={**ACCEPT, **headers}) as response:
        await response.content.readline()
        response.close()
    await until(lambda: agent.ended)
    assert agent.ended[0].startswith("slow new")


async def test_a_call_without_session_is_cancelled_before_its_head(new: New) -> None:
    agent.ended.clear()
    body, headers = new.framed("tools/call", {"name": "ask_agent", "arguments": {"prompt": "slow early"}})
    asking = asyncio.create_task(new.send(body, headers))
    await until(lambda: "slow early" in agent.begun)
    asking.cancel()
    await until(lambda: agent.ended)
    assert agent.ended[0].startswith("slow early")


async def test_a_session_cancels_by_a_notification_only(old: Old) -> None:
    agent.ended.clear()
    body = old.framed("slow old", token=1)
    async with old.open(body) as messages:
        await anext(messages)
        other = Old(old.url, old.session)
        await other.start()
        notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": body["id"]}}
        assert (await other.send(notice)).status == 202
        await anext(messages)
        assert agent.ended == [], "another session cancels nothing"
        assert (await old.send(notice)).status == 202
        rest = [m async for m in messages]
    await until(lambda: agent.ended)
    assert not any("id" in m for m in rest), "a cancelled call has no answer"
    assert (await old.send(notice)).status == 202, "some clients cancel what has ended"


async def test_a_session_that_loses_its_connection_cancels_nothing(old: Old) -> None:
    agent.ended.clear()
    async with aiohttp.ClientSession() as session:
        away = Old(old.url, session, dict(old.headers), 500)
        body = away.framed("silent")
        asking = asyncio.create_task(away.send(body))
        await until(lambda: "silent" in agent.begun)
        agent.begun.remove("silent")
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    await asyncio.sleep(1)
    assert agent.ended == []


async def test_an_ended_session_ends_its_calls(old: Old) -> None:
    agent.ended.clear()
    async with old.open(old.framed("slow ended", token=1)) as messages:
        await anext(messages)
        assert (await old.send(b"", method="DELETE")).status == 200
        assert [m async for m in messages] == []
    await until(lambda: agent.ended)


async def test_an_id_is_in_use_while_its_call_is_open(old: Old) -> None:
    body = old.framed("slow twice", token=1)
    async with old.open(body) as messages:
        await anext(messages)
        assert (await old.send(body)).error["code"] == -32600


# ------------------------------------------------------------------ tools of a route


async def test_a_route_has_several_tools(tmp_path: Path) -> None:
    echo = {"backend": ["agent", "demo"], "title": "Echo", "description": "Says it."}
    setup = config(tmp_path, offering(echo=echo, show="demo"))
    async with served(setup) as (new, _):
        assert (await new.ask("server/discover")).result["instructions"] == "Ask them."
        tools = (await new.ask("tools/list")).result["tools"]
        assert [(t["name"], t.get("title"), t["description"]) for t in tools] == [
            ("echo", "Echo", "Says it."),
            ("show", None, "Asks the agent show and returns its answer."),
        ]
        assert (await new.call("hi", "echo")).texts[0] == "hi ['user']"
        assert (await new.call("hi", "show")).texts[0].startswith("You said: hi")


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        (offering(**{"a b": "agent"}), "routes[0]: tools.a b: the name of a tool"),
        (offering(**{"x" * 49: "agent"}), "the name of a tool has 1 to 48"),
        (offering(a="nobody"), 'routes[0].tools.a.backend: unknown backend "nobody"'),
        (offering(a={"backend": "agent", "text": "x"}), "routes[0].tools.a.text: unknown key"),
        (offering(a={"title": "x"}), "routes[0].tools.a.backend: missing"),
        ({"backend": None, "tools": {"a": "agent"}}, "routes[0].tools.a: expected"),
        ({"backend": None, "tools": {}}, "routes[0].tools: "),
        ({"backend": None, "tools": ["agent"]}, "routes[0].tools: expected the name of a backend, or a mapping"),
        (
            {**offering(a="agent"), "backend": "agent"},
            "exactly one of backend, models and tools, got backend and tools",
        ),
        ({**offering(a="agent"), "options": {"tool": "b"}}, "options.tool: a route with tools sets it for each"),
        (
            {"backend": {"a": "agent"}},
            "routes[0].backend: expected the name of a backend, or a list; several tools are",
        ),
        (
            {**offering(a="agent"), "dialect": "ag-ui", "options": {}},
            "routes[0].tools: expected the name of a backend: clients",
        ),
        ({"options": {"tool": "a b"}}, "tool"),
    ],
)
async def test_names_of_tools_are_checked_at_the_start(tmp_path: Path, fields: Any, place: str) -> None:
    from bridge import Bridge
    from bridge.errors import ConfigError

    with pytest.raises(ConfigError) as caught:
        Bridge.from_config(config(tmp_path, route(**fields)))
    assert place in str(caught.value)


# ------------------------------------------------------------------ limits of a key


KEY = {"name": "ann", "key": "key-of-ann-0123456789"}
ANN = {"authorization": "Bearer key-of-ann-0123456789"}


@pytest.mark.parametrize("durable", [False, True])
async def test_the_tokens_of_a_key_count(tmp_path: Path, durable: bool) -> None:
    setup = config(tmp_path, route(backend="demo", durable=durable), auth={"keys": [KEY]})
    setup["server"]["limits"] = {"per_key": {"tokens_per_day": 5}}
    async with served(setup, **ANN) as (new, old):
        await old.start()
        assert (await new.call("hello", "ask_demo")).status == 200
        for client in (new, old):
            refused = await client.call("hello", "ask_demo")
            assert refused.status == 429
            assert refused.error["message"] == "This key has used its 5 tokens of today (UTC)."
            assert (await client.ask("tools/list")).status == 200


async def test_a_key_that_allows_some_models_calls_the_tools_that_use_them(tmp_path: Path) -> None:
    setup = config(tmp_path, offering(small="small", large="large"), auth={"keys": [{**KEY, "models": ["small"]}]})
    setup["backends"] |= {name: {**setup["backends"]["agent"], "model": name} for name in ("small", "large")}
    async with served(setup, **ANN) as (new, _):
        assert (await new.call("hello", "small")).status == 200
        refused = await new.call("hello", "large")
        assert refused.status == 403
        assert refused.error["message"] == "This API key does not allow the model 'large'."
