"""The page in a real browser: a talk in every dialect, what it shows of a run, and for whom it can be used."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page

from bridge.cli.explain import Explanation
from bridge.contract import Feature, Support, registry
from bridge.engine.bridge import Bridge
from bridge.engine.config import load
from bridge.server import running
from tests.page.conftest import DIALECTS, PROGRAMS, SCREENSHOTS, Tab
from tests.server.harness import ask, free_port, serving

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

ROOT = Path(__file__).parents[2]
ASKS = """
import json

from bridge import Interrupted, Request, ToolCall

SCHEMA = {
    "type": "object",
    "required": ["seats"],
    "properties": {
        "seats": {"type": "integer"},
        "where": {"enum": ["outside", "inside"]},
        "window": {"type": "boolean"},
        "name": {"type": "string"},
    },
}


async def run(request: Request):
    if request.resume:
        yield json.dumps(request.resume[0].payload)
    else:
        yield Interrupted("one", "input_required", {"message": "Which table?", "responseSchema": SCHEMA})


async def delete(request: Request):
    if request.resume:
        yield "yes" if request.resume[0].agrees else "no"
    else:
        yield ToolCall("call_1", "delete_file", '{"path": "a.txt"}')
        yield Interrupted("one", "tool_call", None, "call_1")
"""
THOUGHT = "The user wants to see me think."


@pytest.fixture
def ended() -> Iterator[asyncio.Queue[str]]:
    """How runs ended, from the log."""
    queue: asyncio.Queue[str] = asyncio.Queue()
    handler = logging.Handler()
    handler.emit = lambda record: queue.put_nowait(record.facts["status"])  # type: ignore[attr-defined, method-assign]
    log = logging.getLogger("bridge.access")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield queue
    log.removeHandler(handler)
    log.setLevel(level)


# ---------------------------------------------------------------------- talks


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_route_for_programs_shows_what_to_paste(tab: Tab, name: str) -> None:
    page = tab.page
    await tab.choose(f"/{name}")
    assert "Programs use this route" in await page.locator("#log").inner_text()
    assert [await page.locator(field).is_disabled() for field in ("#say", "#send")] == [True, True]
    assert await page.locator("#hints").inner_text() == ""
    await page.locator("#connect-open").click()
    pasted = "".join(await page.locator("#snippets pre").all_inner_texts())
    assert (f"{tab.base}/mcp" if name == "mcp" else '"--route", "/acp"') in pasted
    await page.locator("#connect-dialog").get_by_role("button", name="Close").click()
    await tab.choose("/openai-chat")
    assert "Choose a route" in await page.locator("#log").inner_text()
    assert await page.locator("#say").is_enabled()
    assert "42" in await (await tab.ask("reasoning")).inner_text()


@pytest.mark.parametrize("name", DIALECTS)
async def test_a_talk_in_every_dialect(tab: Tab, name: str) -> None:
    await tab.choose(f"/{name}")
    answer = await tab.ask("reasoning")
    assert "The answer is 42." in await answer.inner_text()
    thinks = registry.get(name).capabilities.answers[Feature.REASONING].support is Support.EXACT
    assert (await answer.locator(".reasoning").count() == 1) is thinks
    assert (THOUGHT in await answer.inner_text()) is thinks
    answer = await tab.ask("tool")
    assert await answer.locator(".text").all_inner_texts() == ["Let me look."]
    capabilities = registry.get(name).capabilities
    arguments = '{"city": "Paris"}' if capabilities.exact_arguments else '{"city":"Paris"}'
    calls = [text.split("\n") for text in await answer.locator(".call").all_inner_texts()]
    tells_calls = capabilities.answers[Feature.TOOL_CALL].support is Support.EXACT or capabilities.awaits_results
    assert calls == ([["Tool call", "get_weather", arguments]] if tells_calls else [])
    assert f"POST /{name}" in await tab.column("front")
    names = registry.get(name).requires_model
    assert await tab.page.get_by_label("Model").is_visible() is names
    assert "ArgsDelta" in await tab.column("events")
    assert "POST " in await tab.column("back"), "the demo answers over a wire"
    answer = await tab.ask("error late", "failed")
    assert await tab.page.locator("#lost").inner_text() != "Nothing was lost."
    assert "Half an ans" in await answer.inner_text()
    assert "in the middle, as you asked." in await answer.locator(".error").inner_text()


FORMS = (
    ("ag-kit", "generation 1", "conversationId", "tool-call-start"),
    ("ag-kit", "generation 2", "threadId", "TOOL_CALL_START"),
    ("ag-ui", "1.0", '"protocolVersion": "1.0"', '"outcome"'),
    ("ag-ui", "0.x", "threadId", "REASONING_MESSAGE_CONTENT"),
)


@pytest.mark.parametrize(
    ("name", "form", "asked", "answered"), FORMS, ids=[f"{name}-{form}" for name, form, *_ in FORMS]
)
async def test_every_form_that_an_address_takes(tab: Tab, name: str, form: str, asked: str, answered: str) -> None:
    await tab.choose(f"/{name}")
    chosen = tab.page.get_by_label("Version")
    await chosen.locator("option").first.wait_for(state="attached")
    assert await chosen.locator("option").all_inner_texts() == [label for which, label, *_ in FORMS if which == name]
    await chosen.select_option(form)
    answer = await tab.ask("reasoning")
    assert "The answer is 42." in await answer.inner_text()
    # Generation 1 has no word for it.
    assert (THOUGHT in await answer.inner_text()) is (form != "generation 1")
    seen = await tab.column("front")
    answer = await tab.ask("server tool")
    assert (await answer.locator(".result").inner_text()).split("\n") == ["Result", "sunny, 21 C"]
    seen += await tab.column("front")
    assert asked in seen
    assert answered in seen
    await tab.choose("/openai-chat")
    assert await chosen.is_hidden()


@pytest.mark.parametrize("name", ["agentscope", "ag-ui", "ag-kit", "agent-runs"])
async def test_results_of_tools_that_ran_on_the_other_side(tab: Tab, name: str) -> None:
    await tab.choose(f"/{name}")
    answer = await tab.ask("server tool")
    assert (await answer.locator(".result").inner_text()).split("\n") == ["Result", "sunny, 21 C"]


async def test_the_next_message_carries_the_talk(tab: Tab) -> None:
    await tab.choose("/openai-chat")
    await tab.ask("text")
    await tab.ask("and now?")
    sent = json.loads((await tab.page.locator(".column").first.locator("pre").first.text_content()) or "")
    assert [m["role"] for m in sent["messages"]] == ["user", "assistant", "user"]
    assert sent["messages"][1]["content"].startswith("Plain text: café, 你好")
    await tab.page.get_by_role("button", name="New chat").click()
    assert await tab.page.locator(".turn").count() == 0


async def test_what_a_model_writes_is_text(tab: Tab) -> None:
    evil = "<img src=x onerror=\"document.title='hurt'\"><script>document.title='hurt'</script>"
    await tab.choose("/openai-chat")
    answer = await tab.ask(evil)
    assert evil in await answer.inner_text()
    assert await tab.page.locator("#log :is(img, script)").count() == 0
    assert "onerror" in await tab.column("front")
    assert await tab.page.locator("#columns :is(img, script)").count() == 0
    assert await tab.page.title() == "dialect-bridge"


async def test_a_long_answer_is_followed_to_its_end_unless_somebody_reads_further_up(tab: Tab) -> None:
    await tab.choose("/openai-chat")
    await tab.ask("word " * 1500)
    await tab.column("front")
    log, left = tab.page.locator("#log"), "(log) => log.scrollHeight - log.scrollTop - log.clientHeight"
    assert await log.evaluate("(log) => log.scrollHeight - log.clientHeight") > 400
    assert await log.evaluate(left) < 40
    answer = await tab.say("slow")
    await answer.get_by_text("1").wait_for()
    await log.evaluate("(log) => log.scrollTo(0, 0)")
    await answer.get_by_text("1 2").wait_for()
    assert await log.evaluate("(log) => log.scrollTop") == 0
    await tab.page.keyboard.press("Escape")
    await tab.page.locator(".answer[data-state=stopped]").wait_for()


async def test_a_picture_is_shown_when_it_comes_along_and_only_named_when_it_is_elsewhere(tab: Tab) -> None:
    await tab.choose("/agentscope-java")
    answer = await tab.ask("image")
    assert await answer.locator("img").count() == 1
    assert await answer.locator("img").evaluate("(img) => img.decode().then(() => img.naturalWidth)") == 8
    assert "https://example.com/square.png" in await answer.inner_text()


# ---------------------------------------------------------------------- the run


async def test_three_columns_fill_while_the_run_goes_on(tab: Tab) -> None:
    await tab.choose("/v1")
    answer = await tab.ask("weather?")
    assert "Let me look." in await answer.inner_text()
    front, events, back = [await tab.column(name) for name in ("front", "events", "back")]
    assert "POST /v1/chat/completions" in front
    assert "chat.completion.chunk" in front
    assert "ReasoningDelta" in events
    shown = await tab.page.locator(".column").nth(1).locator("summary span").all_text_contents()
    assert [facts for facts in shown if "thread_id=" in facts] == [], "ids are left to the opened line"
    assert "POST /process" in back
    assert '"object": "content"' in back
    times = await tab.page.locator(".column time").all_inner_texts()
    assert all(time.startswith("+") and time.endswith(("ms", "s")) for time in times)
    assert len(times) > 12
    assert "first token" in await tab.page.locator("#facts").inner_text()
    label = await tab.page.get_by_role("img").get_attribute("aria-label")
    assert label is not None
    assert "first token" in label
    assert "Tools 2" in label  # the call, and its arguments
    assert await tab.page.locator("#picture .piece.call").count() == 1


async def test_each_frame_is_a_line_that_opens(tab: Tab) -> None:
    await tab.choose("/v1")
    await tab.ask("weather?")
    front = tab.page.locator(".column").first
    lines = front.locator("summary")
    line = lines.nth(3)
    box = await line.bounding_box()
    assert box is not None
    assert box["height"] < 32
    assert "chunk" in await line.inner_text()
    assert await front.locator("pre").nth(3).is_hidden()
    await line.click()
    opened = front.locator("pre").nth(3)
    assert await opened.is_visible()
    assert await opened.locator(".name").first.inner_text() == '"id"'
    assert await opened.evaluate("(pre) => getComputedStyle(pre).wordBreak + getComputedStyle(pre).overflowWrap") == (
        "normalnormal"
    )
    assert json.loads(await opened.inner_text())["object"] == "chat.completion.chunk"


async def test_frames_without_a_type_are_named_by_what_they_hold(tab: Tab) -> None:
    await tab.choose("/a2a")
    await tab.ask("text")
    front = await tab.column("front")
    assert "artifactUpdate" in front
    assert "{ }" not in front


async def test_what_belongs_together_lights_up(tab: Tab) -> None:
    """Pointing at an event shows what it came from, and what it became."""
    await tab.choose("/v1")
    await tab.ask("weather?")
    columns = tab.page.locator(".column")
    event = columns.nth(1).locator("li", has_text="TextDelta").nth(1)
    await event.hover()
    said = (await event.text_content() or "").split("'")[-2]
    lit = [await columns.nth(n).locator("li.lit").all_text_contents() for n in range(3)]
    assert all(lit), lit
    for n in (0, 2):
        assert any(said in line for line in lit[n]), lit[n]
        assert len(lit[n]) < await columns.nth(n).locator("li").count()
    await tab.page.locator("#say").hover()
    assert await tab.page.locator("li.lit").count() == 0
    await columns.nth(2).locator("summary").nth(2).focus()
    assert await columns.nth(1).locator("li.lit").count() > 0, "the keyboard is enough for it"


async def test_a_run_can_be_shared(tab: Tab) -> None:
    await tab.choose("/v1")
    await tab.ask("weather's fine?")
    page = tab.page
    copied = []
    for name in ("Copy curl", "Copy capture"):
        button = page.get_by_role("button", name=name)
        await button.click()
        await page.get_by_role("button", name="Copied").first.wait_for()
        copied.append(await page.evaluate("navigator.clipboard.readText()"))
    words = shlex.split(copied[0])
    assert words[:3] == ["curl", "-N", f"{tab.base}/v1/chat/completions"]
    assert json.loads(words[-1])["messages"][0]["content"] == "weather's fine?"
    assert "translate --from agentscope --to openai-chat --explain" in copied[1]
    explained = Explanation(copied[1].encode(), "agentscope", "openai-chat", "stream").text(200)
    assert "ReasoningDelta" in explained
    assert "RunFinished" in explained


async def test_an_earlier_run_can_be_looked_at_again(tab: Tab) -> None:
    await tab.choose("/ag-ui")
    answer = await tab.ask("text")
    await tab.ask("tool")
    assert "TOOL_CALL_START" in await tab.column("front")
    await answer.get_by_role("button", name="Show this run").click()
    front = await tab.column("front")
    assert "TOOL_CALL_START" not in front
    assert "Plain" in front


async def test_losses_are_named(tab: Tab) -> None:
    await tab.choose("/openai-chat")
    await tab.ask("server tool")
    lost = await tab.page.locator("#lost").inner_text()
    assert "tool_result" in lost
    assert "tools run by the backend are not shown as calls" in lost
    await tab.choose("/ag-kit")
    await tab.ask("steps")
    lost = await tab.page.locator("#lost").inner_text()
    assert "step: the protocol has no event for it" in lost, "the reason on the card, where the codec gives no detail"
    await tab.choose("/ag-ui")
    await tab.ask("limited", "failed")
    assert await tab.page.locator("#lost").inner_text() != "Nothing was lost.", "of an answer that failed"
    await tab.choose("/agentscope")
    await tab.ask("text")
    assert await tab.page.locator("#status").inner_text() == "Done"
    tab.problems.clear()


async def test_a_backend_that_is_not_there(tab: Tab) -> None:
    row = tab.page.locator("#backend-llm")
    await row.locator(".dot.failing").wait_for()
    assert "the connection was refused" in await row.inner_text()
    assert "available" in await tab.page.locator("#backend-demo").inner_text()
    await tab.choose("/down")
    answer = await tab.ask("hi", "failed")
    assert "UPSTREAM_UNAVAILABLE: The backend is not available" in await answer.locator(".error").inner_text()
    assert "backend_unavailable" in await tab.column("back")
    steps = json.loads((ROOT / "bridge" / "server" / "page" / "files" / "steps.json").read_text(encoding="utf-8"))
    told = [step.replace("`", "") for step in steps["backend_unavailable"]["en"]]
    assert await answer.locator(".steps li").all_inner_texts() == told
    assert await answer.locator(".steps code").all_inner_texts() == ["url", "localhost"]
    link = answer.locator(".steps > a")
    assert await link.inner_text() == "More about backend_unavailable"
    address = await link.get_attribute("href") or ""
    assert address == "/_page/errors/backend_unavailable"


QUESTIONS = (
    ("/ag-ui", None),
    ("/a2a", None),
    ("/ag-kit", "generation 1"),
    ("/ag-kit", "generation 2"),
    ("/ai-sdk-ui", None),
    ("/agentscope", None),
    ("/agentscope-java", None),
)


@pytest.mark.turns(2)
@pytest.mark.parametrize(("path", "form"), QUESTIONS)
@pytest.mark.parametrize("button", ["Yes", "No"])
async def test_a_question_is_answered_with_a_button(tab: Tab, path: str, form: str | None, button: str) -> None:
    await tab.choose(path)
    if form:
        await tab.page.get_by_label("Version").select_option(form)
    answer = await tab.ask("interrupt")
    shown = await answer.locator(".question").inner_text()
    assert "delete_file\npath: a.txt" in shown
    assert "{" not in shown, "no JSON"
    await answer.get_by_role("button", name=button, exact=True).click()
    told = tab.page.locator(".answer[data-state]").nth(1)
    await told.wait_for()
    decided = {"Yes": "resolved", "No": "cancelled"}[button]
    assert f"You decided: {decided}." in await told.inner_text()
    assert await tab.page.locator(".you").last.inner_text() == button
    assert await answer.get_by_role("button", name=button, exact=True).is_disabled()


@asynccontextmanager
async def asking(browser: Browser, folder: Path, dialect: str, target: str) -> AsyncIterator[Tab]:
    """The page in front of an agent of `ASKS`."""
    (folder / "asks.py").write_text(ASKS, encoding="utf-8")
    (folder / "config.yaml").write_text(
        f"backends: {{it: {{dialect: python, target: 'asks:{target}'}}}}\n"
        f"routes: [{{dialect: {dialect}, path: /{dialect}, backend: it}}]\n"
        f"stores: {{history: 'sqlite:///{folder}/h.db', runs: 'sqlite:///{folder}/r.db'}}\n",
        encoding="utf-8",
    )
    config = load(folder / "config.yaml", server={"host": "127.0.0.1", "port": free_port()})
    async with running(Bridge.of(config)) as port:
        page = await browser.new_page(locale="en-US")
        tab = Tab(page, f"http://127.0.0.1:{port}")
        await tab.open()
        yield tab
        assert tab.problems == []
        await page.close()


@pytest.mark.parametrize(("button", "said"), [("Yes", "yes"), ("No", "no")])
async def test_an_approval_of_a_call_is_sent_with_the_call(
    browser: Browser, tmp_path: Path, button: str, said: str
) -> None:
    async with asking(browser, tmp_path, "ai-sdk-ui", "delete") as tab:
        answer = await tab.ask("Delete it")
        assert "delete_file\npath: a.txt" in await answer.locator(".question").inner_text()
        await answer.get_by_role("button", name=button, exact=True).click()
        told = tab.page.locator(".answer[data-state]").nth(1)
        await told.wait_for()
        assert await told.locator(".text").inner_text() == said


@pytest.mark.parametrize("dialect", ["ag-ui", "ai-sdk-ui", "agentscope"])
async def test_a_question_shows_the_fields_of_its_schema(browser: Browser, tmp_path: Path, dialect: str) -> None:
    async with asking(browser, tmp_path, dialect, "run") as tab:
        page = tab.page
        answer = await tab.ask("Book it")
        assert (await answer.locator(".question").inner_text()).startswith("Waiting for you\n\nWhich table?")
        await answer.get_by_label("seats").fill("4")
        await answer.get_by_label("where").select_option("inside")
        await answer.get_by_label("window").check()
        await answer.get_by_role("button", name="Send the answer").click()
        told = page.locator(".answer[data-state]").nth(1)
        await told.wait_for()
        said = json.loads(await told.locator(".text").inner_text())
        assert said.items() >= {"seats": 4, "where": "inside", "window": True}.items()


async def test_what_only_the_way_of_the_page_loses_is_not_told(tab: Tab) -> None:
    await tab.choose("/ag-ui")
    await tab.ask("reasoning")
    assert await tab.page.locator("#lost").inner_text() == "Nothing was lost."


async def test_a_backend_that_answered_has_the_right_address(tab: Tab) -> None:
    await tab.choose("/openai-chat")
    answer = await tab.ask("error late", "failed")
    assert "The log has its status" in await answer.locator(".steps").inner_text()
    assert "is wrong" not in await answer.locator(".steps").inner_text()


async def test_the_documentation_of_the_dialect_is_one_click_away(tab: Tab) -> None:
    for path, about in (("/ag-ui", "# ag-ui\n"), ("/agentscope-java", "# `agentscope`, `agentscope-java`\n")):
        await tab.choose(path)
        link = tab.page.get_by_role("link", name=f"Docs: {path[1:]}")
        async with tab.page.context.expect_page() as opened:
            await link.click()
        text = await (await opened.value).locator("body").inner_text()
        await (await opened.value).close()
        assert text.startswith(about)
        assert "](" not in text.replace("`", "")[:2000]
    assert (await ask("GET", f"{tab.base}/_page/documents/nothing")).status == 404


async def test_a_refused_request(tab: Tab) -> None:
    await tab.choose("/openai-chat")
    answer = await tab.ask("limited", "failed")
    assert "HTTP 429: The demo agent is limited, as you asked." in await answer.locator(".error").inner_text()
    assert "Wait for the time in Retry-After." in await answer.locator(".steps").inner_text()
    # Of an answer with such a status the browser itself complains.
    assert [problem for problem in tab.problems if "429" not in problem] == []
    tab.problems.clear()


@pytest.mark.parametrize(
    ("path", "how"),
    [("/openai-chat", "button"), ("/ag-ui", "Escape"), ("/agentscope", "button"), ("/agent-runs", "button")],
)
async def test_stopping_cancels_the_run(tab: Tab, ended: asyncio.Queue[str], path: str, how: str) -> None:
    await tab.choose(path)
    answer = await tab.say("slow")
    await answer.get_by_text("1").wait_for()
    if how == "button":
        await tab.page.get_by_role("button", name="Stop").click()
    else:
        await tab.page.keyboard.press(how)
    await tab.page.locator(".answer[data-state=stopped]").wait_for()
    assert "Stopped" in await answer.inner_text()
    told = [await ended.get()]
    while told[-1] in ("queued", "noted"):
        told.append(await ended.get())
    assert told[-1] in ("canceled", "left")
    assert ("noted" in told) is (path == "/agent-runs")


# ---------------------------------------------------------------------- for everybody


async def test_the_keyboard_is_enough(tab: Tab) -> None:
    page = tab.page
    assert await page.evaluate("document.activeElement.id") == "say"
    await _press(page, "Shift+Tab", until="route-")
    chosen = await page.locator("#routes input:checked").get_attribute("id")
    await page.keyboard.press("ArrowDown")
    assert await page.locator("#routes input:checked").get_attribute("id") != chosen
    await _press(page, "Tab", until="say")
    await page.keyboard.type("one")
    await page.keyboard.press("Shift+Enter")
    await page.keyboard.type("two")
    await page.evaluate(
        "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', isComposing: true}))"
    )
    assert await page.locator(".turn").count() == 0
    await page.keyboard.press("Enter")
    await page.locator(".answer[data-state=done]").wait_for()
    assert await page.locator(".you .text").inner_text() == "one\ntwo"


async def _press(page: Page, key: str, until: str) -> None:
    """Until something whose id begins so has the focus; it is never further away than this."""
    for _ in range(40):
        await page.keyboard.press(key)
        if (await page.evaluate("document.activeElement.id")).startswith(until):
            return
    pytest.fail(f"{key} does not come to {until}")


async def test_names_for_those_who_listen(tab: Tab) -> None:
    await tab.choose("/openai-chat")
    await tab.ask("text")
    heard = await tab.page.locator("body").aria_snapshot()
    for line in (
        'radiogroup "Routes"',
        'radio "openai-chat /openai-chat → demo" [checked]',
        'log "Chat"',
        'textbox "Message"',
        'combobox "Model"',
        'button "Send"',
        "status: Done",
        'article "Answer"',
        'list "Backend wire"',
        'img "The run over time',
    ):
        assert f"- {line}" in heard
    assert await tab.page.locator("#log").get_attribute("aria-live") == "polite"
    assert await tab.page.locator("#log").get_attribute("aria-busy") == "false"
    # The first field that takes text is the chat.
    assert await tab.page.locator("input[type=text], textarea").first.get_attribute("id") == "say"


@pytest.mark.parametrize(("query", "locale"), [("?lang=zh", "en-US"), ("", "zh-CN")])
async def test_chinese(browser: Browser, base: str, query: str, locale: str) -> None:
    context = await browser.new_context(locale=locale)
    tab = Tab(await context.new_page(), base)
    await tab.open(query)
    await tab.choose("/openai-chat")
    answer = await tab.ask("服务端工具")
    assert "巴黎今天晴，21 ℃。" in await answer.inner_text()
    page = tab.page
    assert await page.evaluate("document.documentElement.lang") == "zh-Hans"
    assert await page.get_by_role("button", name="发送").count() == 1
    assert await page.get_by_role("textbox", name="消息").count() == 1
    lost = await page.locator("#lost").inner_text()
    assert lost.startswith("转换中丢失")
    assert "tool_result（工具结果）：后端执行的工具不显示为工具调用" in lost
    assert await page.locator("#status").inner_text() == "已完成"
    english = await page.evaluate("() => import('./_page/words.js').then((words) => words.missing())")
    assert english == []
    statement = "the protocol has no event for it; option x: y"
    reason = f"() => import('./_page/words.js').then((words) => words.reason('{statement}'))"
    assert await page.evaluate(reason) == "协议中没有对应的事件；选项 x: y"
    assert await page.locator(".hint").first.inner_text() == "帮助"
    await page.locator("#backend-llm .dot.failing").wait_for()
    assert "无法连接后端。" in await page.locator("#backend-llm").inner_text()
    assert tab.problems == []
    answer = await tab.ask("错误", "failed")
    assert "演示智能体按你的要求失败了。" in await answer.locator(".error").inner_text()
    steps = await answer.locator(".steps").inner_text()
    for told in ("后端返回错误。", "排查方法", "日志记录了它的状态码和响应的开头。", "详细说明（英文） backend_error"):
        assert told in steps
    await context.close()


SIZES = {"desk": (1440, 900), "tablet": (1024, 768), "phone": (390, 844)}


@pytest.mark.parametrize(
    ("size", "scheme", "lang"),
    [
        ("desk", "light", "en"),
        ("desk", "dark", "zh"),
        ("tablet", "light", "en"),
        ("phone", "light", "en"),
        ("phone", "dark", "zh"),
    ],
)
async def test_how_it_looks(browser: Browser, base: str, size: str, scheme: str, lang: str) -> None:
    """Nothing is wider than the screen, the way to send is on it; and pictures for people to look at."""
    width, height = SIZES[size]
    context = await browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        has_touch=size == "phone",  # type: ignore[arg-type]
    )
    tab = Tab(await context.new_page(), base)
    await tab.open(f"?lang={lang}")
    await tab.choose("/v1")
    await tab.ask("Will I need an umbrella?" if lang == "en" else "今天要带伞吗？")
    await tab.column("front")
    page = tab.page
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    box = await page.locator("#send").bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= width
    assert box["y"] + box["height"] <= height
    columns = await page.locator(".column li").first.bounding_box()
    assert columns is not None
    assert (columns["y"] + columns["height"] <= height) is (size != "phone"), "the run is in sight beside the chat"
    paper = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, paper.removeprefix("rgb(").removesuffix(")").split(","))) < 200) is (scheme == "dark")
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=SCREENSHOTS / f"{size}-{scheme}-{lang}.png")
    if size == "phone":
        await page.locator("#run").scroll_into_view_if_needed()
        await page.evaluate("document.getElementById('run').scrollIntoView()")
        await page.screenshot(path=SCREENSHOTS / f"{size}-{scheme}-{lang}-run.png")
    assert tab.problems == []
    await context.close()


OVERLAPS = """() => {
  const boxes = [...document.querySelectorAll("header > *, .head > *, .row > *, #hints > *, .card, .column h3")]
    .filter((node) => node.offsetParent && node.tagName !== "DATALIST" && !node.closest("dialog"))
    .map((node) => [node, node.getBoundingClientRect()]).filter(([, box]) => box.width && box.height);
  const within = (a, b, low, high) => a[low] < b[high] - 1 && b[low] < a[high] - 1;
  const clash = ([a, one], [b, other]) => a.parentElement === b.parentElement &&
    within(one, other, "left", "right") && within(one, other, "top", "bottom");
  const found = boxes.flatMap((one, n) => boxes.slice(n + 1).filter((other) => clash(one, other))
    .map(([node]) => `${one[0].outerHTML.slice(0, 60)} / ${node.outerHTML.slice(0, 60)}`));
  const small = [...document.querySelectorAll(".model input")].filter((node) => node.offsetParent)
    .filter((node) => node.getBoundingClientRect().width < 60).map((node) => node.outerHTML);
  return [...found, ...small];
}"""


ROWS = """() => import("./_page/words.js").then(({ t }) => {
  const row = document.querySelector("#form .row");
  return ["waiting", "streaming", "done", "stopped", "failed"].map((state) => {
    document.getElementById("status").textContent = t(state);
    return [state, row.getBoundingClientRect().height, row.scrollWidth - row.clientWidth];
  });
})"""
"""The height of the row below the message, and what does not fit into it, in every state of a run."""


@pytest.mark.parametrize(
    ("lang", "path"), [("en", "/openai-chat"), ("zh", "/openai-chat"), ("en", "/ag-kit")], ids=["en", "zh", "versions"]
)
async def test_nothing_overlaps_at_any_width(browser: Browser, base: str, lang: str, path: str) -> None:
    context = await browser.new_context()
    tab = Tab(await context.new_page(), base)
    await tab.open(f"?lang={lang}")
    await tab.choose(path)
    await (await tab.ask("limited", "failed")).locator(".steps").wait_for()
    await tab.say("slow")
    await tab.page.locator(".answer .text").wait_for()
    for width in (320, 390, 600, 768, 960, 961, 1024, 1200, 1201, 1280, 1440, 1920, 2560):
        await tab.page.set_viewport_size({"width": width, "height": 900})
        await tab.drawn()
        assert await tab.page.evaluate("document.documentElement.scrollWidth") <= width, width
        assert (
            await tab.page.evaluate("(log => log.scrollWidth - log.clientWidth)(document.getElementById('log'))") <= 0
        )
        assert await tab.page.evaluate(OVERLAPS) == [], width
        for state, height, hidden in await tab.page.evaluate(ROWS):
            assert height < 60, f"one line at {width}: {state}"
            assert hidden <= 0, f"wider than its place at {width}: {state}"
    await tab.page.keyboard.press("Escape")
    await context.close()


async def test_an_error_is_in_sight_above_its_long_steps(browser: Browser, base: str) -> None:
    context = await browser.new_context(viewport={"width": 320, "height": 600}, has_touch=True)
    tab = Tab(await context.new_page(), base)
    await tab.open()
    await tab.choose("/down")
    answer = await tab.ask("hi", "failed")
    await answer.locator(".steps").wait_for()
    await tab.drawn()
    log, error, end = [
        await tab.page.locator(f"#log{inner}").bounding_box() for inner in ("", " .error", " .answer > .show")
    ]
    assert log is not None
    assert error is not None
    assert end is not None
    assert end["y"] > log["y"] + log["height"], "the steps are longer than the log"
    assert log["y"] - 1 <= error["y"] < log["y"] + log["height"] / 2
    await context.close()


async def test_time_without_a_token_is_drawn_as_waiting(tab: Tab) -> None:
    draw = """() => import("./_page/picture.js").then(({ draw }) => {
      const root = document.body.appendChild(document.createElement("div"));
      draw(root, { marks: [], open: true, now: 700 });
      root.remove();
      return root.querySelector(".wait").getAttribute("width");
    })"""
    assert float(await tab.page.evaluate(draw)) > 100


async def test_on_a_phone_the_button_goes_to_the_run(browser: Browser, base: str) -> None:
    context = await browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True)
    tab = Tab(await context.new_page(), base)
    await tab.open()
    await tab.choose("/openai-chat")
    answer = await tab.ask("text")
    assert (await tab.page.locator("#run").bounding_box() or {"y": 0})["y"] > 500
    await answer.get_by_role("button", name="Show this run").click()
    assert abs((await tab.page.locator("#run").bounding_box() or {"y": 999})["y"]) < 200
    await context.close()


AXE = ROOT / "tests" / "interop" / "axe" / "node_modules" / "axe-core" / "axe.min.js"


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 1440), ("light", 320)])
async def test_axe_finds_nothing(browser: Browser, base: str, scheme: str, width: int) -> None:
    """WCAG 2.2 AA, by axe-core."""
    if not AXE.exists() and not os.environ.get("CI"):
        pytest.skip("NPM IS NOT INSTALLED: the page was not tried with axe-core")
    context = await browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})  # type: ignore[arg-type]
    tab = Tab(await context.new_page(), base)
    await tab.open()
    await tab.choose("/v1")
    await tab.ask("weather?")
    await tab.page.locator(".column summary").nth(2).click()
    await tab.choose("/down")
    await tab.ask("hi", "failed")
    await tab.page.locator(".column summary").first.click()
    await tab.page.evaluate(AXE.read_text(encoding="utf-8"))
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
    found = await tab.page.evaluate("(tags) => axe.run({runOnly: tags}).then((said) => said.violations)", tags)
    assert [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found] == []
    await context.close()


# ---------------------------------------------------------------------- keys


async def test_a_key_is_asked_for_and_used(browser: Browser) -> None:
    config = {
        "server": {"auth": {"keys": [{"name": "web", "key": "key-of-web"}]}, "page_key": "key-of-the-page"},
        "backends": {"demo": {"dialect": "demo"}},
        "routes": [{"dialect": "ag-ui", "path": "/ag-ui", "backend": "demo"}],
    }
    context = await browser.new_context()
    async with serving(config) as base:
        tab = Tab(await context.new_page(), base)
        page = tab.page
        await page.goto(f"{base}/?lang=en")
        field = page.locator("#key")
        await field.fill("key-of-web")
        await field.press("Enter")
        await page.get_by_text("This key does not open the page.").wait_for()
        await field.fill("key-of-the-page")
        await field.press("Enter")
        await page.locator("#routes input:checked").wait_for(state="attached")
        await page.locator(".answer[data-state=done]").wait_for()
        for name in ("front", "events", "back"):
            assert len((await tab.column(name)).split("\n")) > 3, "a run plays by itself, and all columns show it"
        await tab.anew()
        answer = await tab.ask("text")
        assert "Plain text" in await answer.inner_text()
        assert "TextDelta" in await tab.column("events")
        assert "key-of" not in page.url
    assert [problem for problem in tab.problems if "401" not in problem] == []
    await context.close()
