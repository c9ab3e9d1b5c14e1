"""The file with the URL of the running server's health check, for the health check of its container.

It names address, port and path that are really served, whatever the configuration and the command line say, and after
a reload those of the new configuration.
"""

from __future__ import annotations

import logging
import os
import tempfile

from bridge.engine.config import Config
from bridge.server.host.listeners import url_host

log = logging.getLogger("bridge.server")

VARIABLE = "BRIDGE_HEALTH_FILE"
"""The environment variable with the name of the file; without it, none is written."""


def write_health_file(config: Config, port: int) -> None:
    """Write the URL. A file that cannot be written is a warning: the server serves without it."""
    name = os.environ.get(VARIABLE)
    if not name:
        return
    server = config.server
    try:
        folder = os.path.dirname(name) or "."
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as file:
            file.write(f"http://{url_host(server.host)}:{port}{server.health.live}")
        os.replace(file.name, name)
    except OSError as error:
        log.warning("%s: %s cannot be written: %s", VARIABLE, name, error.strerror)
