"""A translation inside a Starlette or FastAPI application: AgentScope clients, a backend that speaks openai-chat.

    pip install starlette uvicorn
    make run                                     # in another terminal: something that speaks openai-chat
    python examples/starlette_app.py
    dialect-bridge chat http://127.0.0.1:8090 reasoning --dialect agentscope

BRIDGE_URL names another backend than http://127.0.0.1:8080/v1, PORT another port than 8090.
"""

import contextlib
import os
from collections.abc import AsyncIterator

import aiohttp
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from bridge import BridgeError, Translator

BACKEND = os.environ.get("BRIDGE_URL", "http://127.0.0.1:8080") + "/v1"


async def process(request: Request) -> Response:
    translator = Translator("openai-chat", "agentscope", model="demo")
    try:
        body = translator.request(await request.body(), client="agentscope", headers=request.headers)
        sent = translator.sent
        # No timeout of the whole: an answer may take long. Yours to add: the backend's key, limits, tries.
        reply = await request.app.state.http.request(sent.method, BACKEND + sent.path, data=body, headers=sent.headers)
        if reply.status >= 400:
            raise translator.decode_error(reply.status, await reply.read(), reply.headers)
        if not translator.client_request.stream:
            return Response(translator.response(await reply.read()), media_type="application/json")
    except (BridgeError, aiohttp.ClientError, TimeoutError) as error:
        told = translator.encode_error(error)
        return Response(told.body, told.status, told.headers)
    return StreamingResponse(answer(translator, reply), media_type="text/event-stream")


async def answer(translator: Translator, reply: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """One piece for each read. When the client goes away, leaving the block closes the backend's connection."""
    async with reply:
        yield translator.start()
        try:
            async for data in reply.content.iter_any():
                yield translator.feed(data)
        except (aiohttp.ClientError, TimeoutError) as error:
            yield translator.close(error)
        yield translator.close()
    print("lost:", translator.lost)


@contextlib.asynccontextmanager
async def life(app: Starlette) -> AsyncIterator[None]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_read=60)) as app.state.http:
        yield


app = Starlette(routes=[Route("/process", process, methods=["POST"])], lifespan=life)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8090")), log_level="warning")
