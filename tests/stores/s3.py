"""An S3 for the tests: moto's server, in a thread of this process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from urllib.parse import quote

import aiohttp
import pytest
from moto.server import ThreadedMotoServer

from tests.server.harness import free_port

SECRET = "s3cr3t-pa55word"


@pytest.fixture(scope="module")
def s3_url() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=free_port(), verbose=False)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


async def bucket(server: str, name: str) -> str:
    """The URL of a bucket, as a configuration says it; it is made when it is not there."""
    async with aiohttp.ClientSession() as session, session.put(f"{server}/{name}") as answer:
        assert answer.status in (200, 409)
    return f"s3://{name}?endpoint={server}&region=us-east-1&access_key_id=ab%2Bc&secret_access_key={quote(SECRET)}"
