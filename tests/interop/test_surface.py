"""Schemathesis over our whole HTTP surface, by the OpenAPI description that the bridge makes: nothing breaks it."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.contract import registry
from tests.docs.helpers import bridge, serve

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

SCHEMATHESIS = Path(sys.prefix) / "schemathesis" / "bin" / "schemathesis"
EXAMPLES = 4
"""Requests for each endpoint and phase: several hundred in all."""


def nearly(schema: Any) -> Any:
    """The description for a fuzzer: words are often those of the dialect, so that more than the first check is met."""
    if isinstance(schema, list):
        return [nearly(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "string" and "examples" in schema:
        return {"anyOf": [{"const": schema["examples"][0]}, schema]}
    return {name: nearly(value) for name, value in schema.items()}


def configuration(folder: Path) -> Path:
    http = registry.over_http()
    file = folder / "config.yaml"
    routes: list[dict[str, Any]] = [{"dialect": name, "path": f"/{name}", "backend": "demo"} for name in http]
    for name in ("openai-chat", "agentscope"):
        routes.append({"dialect": name, "path": f"/durable/{name}", "backend": "demo", "durable": True})
    file.write_text(yaml.safe_dump({"backends": {"demo": {"dialect": "demo"}}, "routes": routes}), encoding="utf-8")
    return file


def test_nothing_on_the_surface_breaks(tmp_path: Path) -> None:
    assert SCHEMATHESIS.exists(), "Schemathesis is not installed: make interop"
    config = configuration(tmp_path)
    code, out, err = bridge("openapi", str(config))
    assert (code, err) == (0, "")
    described = tmp_path / "openapi.json"
    described.write_text(json.dumps(nearly(json.loads(out))), encoding="utf-8")
    with serve(tmp_path, config) as running:
        done = subprocess.run(
            [
                SCHEMATHESIS, "run", described, "--url", running.url, "--checks", "not_a_server_error", "--seed", "1",
                "--phases", "examples,coverage,fuzzing", "--max-examples", str(EXAMPLES), "--continue-on-failure",
                # Without `speech` in the configuration that endpoint answers 503, as it should; the management of
                # models and embeddings, which the backend has not, answer 501.
                "--exclude-path-regex", "transcribe|/ollama/api/(push|create|copy|delete|blobs|embed)",
                "--request-timeout", "30", "--generation-database", "none",
            ],
            cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        with urllib.request.urlopen(f"{running.url}/readyz", timeout=10) as ready:
            assert ready.status == 200
        log = running.err
    assert "Traceback" not in log
    assert " ERROR " not in log
