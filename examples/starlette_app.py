"""A whole bridge inside a Starlette or FastAPI application, beside your own routes.

    pip install starlette uvicorn
    python examples/starlette_app.py
    dialect-bridge chat http://127.0.0.1:8090/llm/v1 reasoning --dialect openai-chat

PORT names another port than 8090. FastAPI takes the same two lines: `FastAPI(lifespan=...)` and `app.mount(...)`.
"""

import os

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from bridge import Bridge, asgi

CONFIG = {
    "backends": {"demo": {"dialect": "demo"}},
    "routes": [
        {"dialect": "openai-chat", "path": "/v1", "backend": "demo"},
        {"dialect": "agentscope", "path": "/agentscope", "backend": "demo"},
    ],
}


async def home(request: Request) -> PlainTextResponse:
    return PlainTextResponse("My own page.\n")


bridge_app = asgi.app(Bridge.from_config(CONFIG))
# Frameworks do not run the lifespan of what they mount: it has to be theirs, or part of theirs.
app = Starlette(routes=[Route("/", home), Mount("/llm", bridge_app)], lifespan=bridge_app.lifespan)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8090")), log_level="warning")
