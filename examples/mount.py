"""The bridge inside your own aiohttp application, next to your own handlers.

    python examples/mount.py
    dialect-bridge chat http://127.0.0.1:8080/llm/v1 Hello --dialect openai-chat

PORT names another port than 8080.
"""

import os

from aiohttp import web

from bridge import Bridge
from bridge.server import make_app

CONFIG = {
    "backends": {"demo": {"dialect": "demo"}},
    "routes": [
        {"dialect": "openai-chat", "path": "/v1", "backend": "demo"},
        {"dialect": "agentscope", "path": "/agentscope", "backend": "demo"},
    ],
}


async def home(request: web.Request) -> web.Response:
    return web.Response(text="My own page.\n")


def main() -> None:
    app = web.Application()
    app.router.add_get("/", home)
    # It opens its connections when your application starts and closes them when it stops.
    app.add_subapp("/llm/", make_app(Bridge.from_config(CONFIG)))
    web.run_app(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8080")))


if __name__ == "__main__":
    main()
