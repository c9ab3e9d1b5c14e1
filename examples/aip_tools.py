"""A Python function as an AIP tool, called by the model behind an OpenAI chat client and behind an AIP client.

    pip install 'dialect-bridge[aip]' openai
    python examples/aip_tools.py                             # everything in one process, with a scripted model

Or with a model of yours (OPENAI_BASE_URL, OPENAI_API_KEY), in three terminals:

    dialect-bridge serve examples/configs/aip-tools.yaml     # the bridge, with a gateway at 127.0.0.1:50051
    python examples/aip_tools.py tool                        # the tool registers there
    python examples/aip_tools.py ask                         # both clients ask

AIP_LISTEN names another address of the gateway, BRIDGE_URL another server than http://127.0.0.1:8080.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from bridge import Bridge, Request, Text, ToolCall, ToolResult
from bridge.sdk.aip import Agent, Tool
from bridge.server import running
from bridge.testing import free_port

QUESTION = "What is 17 + 25?"


def add(a: int, b: int) -> int:
    """Adds two whole numbers.

    Args:
        a: the first number
        b: the second number
    """
    print(f"the tool adds {a} and {b}", flush=True)
    return a + b


@contextlib.asynccontextmanager
async def the_tool(gateway: str) -> AsyncIterator[Tool]:
    """The function, served on a port of its own and registered at the gateway."""
    async with Tool.create_function_tool(add, f"127.0.0.1:{free_port()}", "adder") as tool:
        await tool.register_to_gateway(gateway)
        yield tool


async def ask(url: str, gateway: str) -> None:
    """Ask one question with two clients, neither of which knows the tool."""
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="unused") as client:
        question: ChatCompletionMessageParam = {"role": "user", "content": QUESTION}
        answer = await client.chat.completions.create(model="any", messages=[question])
        print("chat client:", answer.choices[0].message.content)

    async with Agent(f"127.0.0.1:{free_port()}", "asker") as agent:
        await agent.register_to_gateway(gateway)
        session = await agent.create_agent_client("bridge")
        await agent.submit_inquiry(session, "bridge", QUESTION)
        print("AIP client:", (await agent.receive_feedback(session, "bridge")).text)
        await agent.close_agent_client(session, "bridge")


async def model(request: Request) -> AsyncIterator[ToolCall | str]:
    """A model that calls the offered tool and reports the result."""
    result = request.messages[-1].parts[0]
    if isinstance(result, ToolResult):
        yield f"It is {''.join(part.text for part in result.parts if isinstance(part, Text))}."
    else:
        names = [tool.name for tool in request.tools or ()]
        print("the model is offered:", names)
        yield ToolCall("call_1", names[0], '{"a": 17, "b": 25}')


async def everything() -> None:
    gateway, port = f"127.0.0.1:{free_port()}", free_port()
    config = {
        "server": {"port": port},
        "backends": {
            "llm": {"dialect": "python", "target": f"{__name__}:model"},
            "gateway": {"dialect": "aip", "url": gateway},
        },
        "routes": [
            {"dialect": "aip", "listen": gateway, "agent_id": "bridge", "backend": "llm"},
            {"dialect": "openai-chat", "path": "/v1", "backend": "llm", "tools": "gateway"},
        ],
        "stores": {"history": "off"},
    }
    async with running(Bridge.from_config(config)), the_tool(gateway):
        await ask(f"http://127.0.0.1:{port}", gateway)


async def only_the_tool(gateway: str) -> None:
    async with the_tool(gateway):
        print(f"registered at {gateway}; Ctrl-C ends it", flush=True)
        await asyncio.Event().wait()


def main() -> None:
    gateway = os.environ.get("AIP_LISTEN", "127.0.0.1:50051")
    match sys.argv[1:]:
        case ["tool"]:
            with contextlib.suppress(KeyboardInterrupt):
                asyncio.run(only_the_tool(gateway))
        case ["ask"]:
            asyncio.run(ask(os.environ.get("BRIDGE_URL", "http://127.0.0.1:8080"), gateway))
        case _:
            asyncio.run(everything())


if __name__ == "__main__":
    main()
