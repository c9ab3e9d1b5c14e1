"""The `demo` backend: a scripted agent that shows every feature a dialect may carry.

It needs no key and no network. The user's message names the scene; `help` lists them. The answers are fixed, so that
documentation can quote them and tests can rely on them. A message in Chinese is answered in Chinese.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable

from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Custom,
    Data,
    FinishReason,
    Inline,
    Interrupted,
    Media,
    MediaKind,
    Origin,
    Reasoning,
    Refusal,
    Request,
    RunFailed,
    RunFinished,
    StateChanged,
    StateOp,
    StepEnded,
    StepStarted,
    Text,
    ToolCall,
    ToolResult,
    Url,
    UsageReported,
    result_text,
)
from bridge.run.backends.local_backend import Yielded

# An 8x8 picture, one colour; small enough to print.
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAFUlEQVR4nGPQT3mAFTEMLYkUfAhzMQAOz4cBwsHXGgAAAABJRU5ErkJggg=="
# 8 kHz, 8 bit, mono: a WAV file with two samples of silence.
SOUND = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQIAAACAgA=="

_USAGE = UsageReported(input=12, output=34, total=46, cached=2, reasoning=5)

Scene = Callable[[Request], AsyncIterator[Yielded]]


_HAN = re.compile("[\u4e00-\u9fff]")
_PIECE = re.compile("[\u3000-\u9fff\uff00-\uffef]{1,2}| ?[^ \u3000-\u9fff\uff00-\uffef]+| ")


def _words(text: str) -> list[str]:
    """The text in pieces such as a model sends: a word with the space before it, or two Chinese characters."""
    return _PIECE.findall(text)


def _in_language(request: Request, english: str, chinese: str) -> str:
    """Return the text in the language of the last user message."""
    return chinese if _HAN.search(_question(request)) else english


async def _say(text: str) -> AsyncIterator[Yielded]:
    for word in _words(text):
        yield word


async def _hello(request: Request) -> AsyncIterator[Yielded]:
    """a greeting, streamed word by word"""
    question = _question(request)
    async for word in _say(
        _in_language(request, f"You said: {question}" if question else "Hello!", f"你说的是：{question}")
    ):
        yield word
    yield _in_language(request, " Write help to see what else I can show.", " 输入“帮助”，查看其他演示。")
    yield _USAGE


async def _text(request: Request) -> AsyncIterator[Yielded]:
    """plain text with accents, Chinese, an emoji and a line separator"""
    async for word in _say("Plain text: café, 你好, 👩‍👩‍👧, and a line\u2028separator."):
        yield word
    yield _USAGE


async def _reasoning(request: Request) -> AsyncIterator[Yielded]:
    """reasoning before the answer"""
    thought = "The user wants to see me think. Six times seven is forty-two."
    yield Reasoning(_in_language(request, thought, "用户想看我如何推理。六乘以七等于四十二。"))
    async for word in _say(_in_language(request, "The answer is 42.", "答案是 42。")):
        yield word
    yield _USAGE


async def _tool(request: Request) -> AsyncIterator[Yielded]:
    """a call of a tool that the client runs; answer it and I go on"""
    yield _in_language(request, "Let me look.", "我来查一下。")
    yield ToolCall("call_demo_1", _tool_name(request, "get_weather"), '{"city": "Paris"}')
    yield _USAGE


async def _tools(request: Request) -> AsyncIterator[Yielded]:
    """two calls at once that the client runs"""
    name = _tool_name(request, "get_weather")
    yield ToolCall("call_demo_1", name, '{"city": "Paris"}')
    yield ToolCall("call_demo_2", name, '{"city": "Rome"}')
    yield _USAGE


async def _server_tool(request: Request) -> AsyncIterator[Yielded]:
    """a call of a tool that I run myself, with its result"""
    yield ToolCall("call_demo_1", "get_weather", '{"city": "Paris"}', Origin.PLUGIN)
    yield ToolResult("call_demo_1", [Text(_in_language(request, "sunny, 21 C", "晴，21 ℃"))], "get_weather")
    async for word in _say(_in_language(request, "It is sunny in Paris, 21 C.", "巴黎今天晴，21 ℃。")):
        yield word
    yield _USAGE


async def _image(request: Request) -> AsyncIterator[Yielded]:
    """a picture, as bytes and by address"""
    yield _in_language(request, "Here is a picture:", "图片如下：")
    yield Media(MediaKind.IMAGE, Inline(PICTURE), "image/png", "square.png")
    yield Media(MediaKind.IMAGE, Url("https://example.com/square.png"), "image/png")


async def _audio(request: Request) -> AsyncIterator[Yielded]:
    """a sound, as bytes"""
    yield _in_language(request, "Here is a sound:", "音频如下：")
    yield Media(MediaKind.AUDIO, Inline(SOUND), "audio/wav", "silence.wav")


async def _video(request: Request) -> AsyncIterator[Yielded]:
    """a film, by address"""
    yield _in_language(request, "Here is a film:", "视频如下：")
    yield Media(MediaKind.VIDEO, Url("https://example.com/film.mp4"), "video/mp4")


async def _file(request: Request) -> AsyncIterator[Yielded]:
    """a file, by address"""
    yield _in_language(request, "Here is a file:", "文件如下：")
    yield Media(MediaKind.FILE, Url("https://example.com/report.pdf"), "application/pdf", "report.pdf")


async def _data(request: Request) -> AsyncIterator[Yielded]:
    """a piece of data"""
    yield _in_language(request, "Here is a record:", "数据如下：")
    yield Data({"city": "Paris", "temperature": 21, "sunny": True})


async def _refusal(request: Request) -> AsyncIterator[Yielded]:
    """a refusal"""
    yield Refusal(_in_language(request, "I cannot help with that.", "这件事我帮不了你。"))


async def _length(request: Request) -> AsyncIterator[Yielded]:
    """an answer cut by the token limit"""
    yield _in_language(request, "This answer is cut in the mid", "这个回答在中途被截")
    yield _USAGE
    yield RunFinished(FinishReason.LENGTH)


async def _filter(request: Request) -> AsyncIterator[Yielded]:
    """an answer stopped by a content filter"""
    yield _in_language(request, "This answer is", "这个回答")
    yield RunFinished(FinishReason.CONTENT_FILTER)


async def _steps(request: Request) -> AsyncIterator[Yielded]:
    """steps, shared state and a custom event"""
    yield StepStarted("look")
    yield StateChanged(StateOp.SNAPSHOT, {"progress": 0})
    yield _in_language(request, "Looking. ", "正在查找。")
    yield StateChanged(StateOp.PATCH, [{"op": "replace", "path": "/progress", "value": 1}])
    yield StepEnded("look")
    yield Custom("demo", {"found": 3})
    yield _in_language(request, "Found 3.", "找到 3 项。")


async def _interrupt(request: Request) -> AsyncIterator[Yielded]:
    """a question to a person before I go on"""
    yield _in_language(request, "May I delete a.txt?", "可以删除 a.txt 吗？")
    payload = {"name": "delete_file", "arguments": '{"path": "a.txt"}'}
    if word := _in_language(request, "", "请确认"):  # the reason is an English word, shown where there is no message
        payload["message"] = word
    yield Interrupted("int_demo_1", "confirmation", payload)


async def _error(request: Request) -> AsyncIterator[Yielded]:
    """a failure before anything was said"""
    message = _in_language(request, "The demo agent failed, as you asked.", "演示智能体按你的要求失败了。")
    yield RunFailed(Failure(ErrorCode.BACKEND_ERROR, message))


async def _error_late(request: Request) -> AsyncIterator[Yielded]:
    """a failure in the middle of the answer"""
    yield _in_language(request, "Half an ans", "回答到一")
    message = _in_language(
        request, "The demo agent failed in the middle, as you asked.", "演示智能体按你的要求在回答中途失败了。"
    )
    yield RunFailed(Failure(ErrorCode.BACKEND_ERROR, message))


async def _limited(request: Request) -> AsyncIterator[Yielded]:
    """a refusal by rate limit, with Retry-After"""
    message = _in_language(request, "The demo agent is limited, as you asked.", "演示智能体按你的要求限流了。")
    yield RunFailed(Failure(ErrorCode.RATE_LIMITED, message, headers={"retry-after": "7"}))


async def _slow(request: Request) -> AsyncIterator[Yielded]:
    """ten words, half a second apart"""
    for number in range(1, 11):
        yield f"{number} "
        await asyncio.sleep(0.5)


_SCENES = (
    _text, _reasoning, _tool, _tools, _server_tool, _image, _audio, _video, _file, _data, _refusal, _length, _filter,
    _steps, _interrupt, _error, _error_late, _limited, _slow,
)  # fmt: skip
SCENES: dict[str, Scene] = {scene.__name__[1:].replace("_", " "): scene for scene in _SCENES}

CHINESE: dict[str, tuple[str, str]] = {
    "help": ("帮助", "显示本列表"),
    "text": ("文本", "纯文本，含重音字母、中文、表情符号和行分隔符"),
    "reasoning": ("推理", "先推理，再回答"),
    "tool": ("工具", "由客户端执行的工具调用；返回结果后我会继续"),
    "tools": ("多个工具", "同时两个由客户端执行的工具调用"),
    "server tool": ("服务端工具", "我自己执行的工具调用及其结果"),
    "image": ("图片", "图片，一张内联，一张给出 URL"),
    "audio": ("音频", "内联音频"),
    "video": ("视频", "视频 URL"),
    "file": ("文件", "文件 URL"),
    "data": ("数据", "一条结构化数据"),
    "refusal": ("拒绝", "拒绝回答"),
    "length": ("长度限制", "因 token 上限而截断的回答"),
    "filter": ("内容过滤", "被内容过滤器中止的回答"),
    "steps": ("步骤", "步骤、共享状态和自定义事件"),
    "interrupt": ("确认", "继续之前请人确认"),
    "error": ("错误", "开始回答之前失败"),
    "error late": ("中途错误", "回答中途失败"),
    "limited": ("限流", "因限流被拒绝，带 Retry-After"),
    "slow": ("慢速", "十个数字，间隔半秒"),
}
"""The Chinese name and description of each scene."""
_DECISIONS = {"resolved": "同意", "refused": "拒绝", "cancelled": "取消"}
_BY_CHINESE = {chinese: name for name, (chinese, _) in CHINESE.items()}


async def _help(request: Request) -> AsyncIterator[Yielded]:
    """this list"""
    yield _in_language(request, "I am the demo agent. Write one of these:\n", "我是演示智能体。可以输入：\n")
    for name, scene in SCENES.items():
        yield _in_language(request, f"- {name}: {scene.__doc__}\n", "- {}：{}\n".format(*CHINESE[name]))
    yield _in_language(request, "I repeat anything else.", "输入其他内容，我会复述一遍。")


async def run(request: Request) -> AsyncIterator[Yielded]:
    """The agent: plays the scene that the last user message names."""
    results = _results(request)
    if results:
        async for word in _say(
            _in_language(request, f"The tool said: {'; '.join(results)}.", f"工具返回：{'；'.join(results)}。")
        ):
            yield word
        yield _USAGE
        return
    if request.resume:
        answer = request.resume[0]
        decision = "refused" if answer.decision == "resolved" and not answer.agrees else answer.decision
        yield _in_language(request, f"You decided: {decision}.", f"你的决定：{_DECISIONS[decision]}。")
        return
    written = _question(request).strip().lower()
    name = _BY_CHINESE.get(written, written)
    scene = _help if name == "help" else SCENES.get(name, _hello)
    async for item in scene(request):
        yield item


def _question(request: Request) -> str:
    """The text of the last user message."""
    for message in reversed(request.messages):
        if message.role == "user":
            return "".join(p.text for p in message.parts if isinstance(p, Text))
    return ""


def _results(request: Request) -> list[str]:
    """Return the tool results that end the conversation."""
    texts: list[str] = []
    for message in reversed(request.messages):
        found = [p for p in message.parts if isinstance(p, ToolResult)]
        if not found:
            break
        texts[:0] = [result_text(r.parts) for r in found]
    return texts


def _tool_name(request: Request, fallback: str) -> str:
    """The first tool that the client offers."""
    return request.tools[0].name if request.tools else fallback
