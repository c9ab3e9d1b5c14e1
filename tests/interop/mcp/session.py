"""One client with the Python SDK of MCP: `session.py MODE URL`, or `session.py MODE COMMAND ARGUMENTS...`.

It prints what it saw as JSON: the tools, an answer with its progress, a question with its answer, a conversation that
goes on, a backend that fails, an unknown tool; and it cancels a call at its end.
"""

import asyncio
import json
import sys

from mcp import Client, MCPError, StdioServerParameters, types


def texts(result):
    return [part.text for part in result.content if part.type == "text"]


async def session(mode, target):
    seen = {"asked": []}

    async def answer(context, params):
        seen["asked"].append(params.message)
        return types.ElicitResult(action="accept", content={"approved": True})

    async with Client(target, mode=mode, elicitation_callback=answer) as client:
        seen["revision"] = str(client.protocol_version)
        seen["tools"] = [tool.name for tool in (await client.list_tools()).tools]
        pieces = []

        async def progress(count, total, message):
            pieces.append(message)

        result = await client.call_tool("ask_agent", {"prompt": "say one two"}, progress_callback=progress)
        seen["answer"] = [result.is_error, texts(result)[0], "".join(pieces)]
        seen["answered"] = texts(await client.call_tool("ask_agent", {"prompt": "approve"}))[0]
        known = texts(await client.call_tool("ask_agent", {"prompt": "first"}))[1].removeprefix("conversation: ")
        seen["again"] = texts(await client.call_tool("ask_agent", {"prompt": "again", "conversation": known}))[0]
        failed = await client.call_tool("ask_agent", {"prompt": "boom"})
        seen["failed"] = [failed.is_error, texts(failed)[0].partition(":")[0]]
        media = await client.call_tool("ask_agent", {"prompt": "media"})
        seen["media"] = [part.type for part in media.content]
        try:
            await client.call_tool("nope", {})
        except MCPError as error:
            seen["unknown"] = str(error)
        slow = asyncio.create_task(client.call_tool("ask_agent", {"prompt": "slow sdk"}))
        await asyncio.sleep(0.3)
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)
    return seen


mode, first, *rest = sys.argv[1:]
target = StdioServerParameters(command=first, args=rest) if rest else first
sys.stdout.write(json.dumps(asyncio.run(session(mode, target))))
