"""Translation over your own sockets: an AgentScope request goes to a chat backend, its stream comes back as AgentScope.

    make run                              # in another terminal: something that speaks openai-chat
    python examples/own_sockets.py

BRIDGE_URL names another server than http://127.0.0.1:8080. It reads the backend's bytes in pieces of any size.
"""

import asyncio
import os
import sys

import aiohttp

from bridge import Translator

BACKEND = os.environ.get("BRIDGE_URL", "http://127.0.0.1:8080") + "/v1/chat/completions"
ASKED = b"""{
  "input": [{"role": "user", "type": "message", "content": [{"type": "text", "text": "reasoning"}]}],
  "session_id": "s-1", "model": "demo", "stream": true
}"""


async def main() -> None:
    translator = Translator("openai-chat", "agentscope")
    body = translator.request(ASKED, client="agentscope")
    headers = {"content-type": "application/json"}
    async with aiohttp.ClientSession() as session, session.post(BACKEND, data=body, headers=headers) as response:
        response.raise_for_status()
        async for data in response.content.iter_any():
            sys.stdout.buffer.write(translator.feed(data))
    sys.stdout.buffer.write(translator.close())
    print("lost:", translator.lost, file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(main())
