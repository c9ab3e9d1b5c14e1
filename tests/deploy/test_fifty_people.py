"""The recipe "Fifty people", from keys to what the dashboard asks for."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.helpers import EXAMPLES, ROOT, bridge, serve
from tests.server.harness import Reply, ask, fake_backend, post

pytestmark = pytest.mark.slow

RECIPE = EXAMPLES / "configs" / "production" / "fifty-people.yaml"
NAMES = [f"person-{number:02}" for number in range(50)]
ANSWER = json.dumps(
    {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 2,
            "total_tokens": 12,
            "prompt_tokens_details": {"cached_tokens": 4},
        },
    }
).encode()
METRICS = {"authorization": "Bearer key-of-prometheus"}


async def test_from_keys_to_the_dashboard(tmp_path: Path) -> None:
    code, lines, told = bridge("key", *NAMES, cwd=tmp_path)
    assert code == 0
    keys = dict(zip(NAMES, told.splitlines()[1::2], strict=True))
    recipe = yaml.safe_load(RECIPE.read_text(encoding="utf-8"))
    (prometheus,) = recipe["server"]["auth"]["keys"]
    file = tmp_path / "people.yaml"

    def write(people: list[dict[str, Any]]) -> None:
        recipe["server"]["auth"]["keys"] = [prometheus, *people]
        file.write_text(yaml.safe_dump(recipe), encoding="utf-8")

    write(yaml.safe_load(lines))
    async with fake_backend("openai-chat") as backend:
        backend.answers(200, ANSWER)
        variables = {
            "METRICS_KEY": "key-of-prometheus",
            "HISTORY_URL": f"sqlite:///{tmp_path}/bridge.db",
            "RUNS_URL": f"sqlite:///{tmp_path}/bridge.db",
            "OPENAI_BASE_URL": backend.url,
            "OPENAI_MODEL": "m",
        }
        with serve(tmp_path, file, "--host", "127.0.0.1", **variables) as served:

            async def say(name: str, model: str = "m") -> Reply:
                asked = {"model": model, "messages": [{"role": "user", "content": "Hi"}]}
                return await post(f"{served.url}/v1/chat/completions", asked, authorization=f"Bearer {keys[name]}")

            assert [reply.status for reply in await asyncio.gather(*map(say, NAMES))] == [200] * 50

            # One person gets limits, one is locked out; nobody else notices, and nothing is restarted.
            entries = yaml.safe_load(lines)
            entries[0] |= {"limits": {"requests_per_day": 1}}
            entries[1] |= {"models": ["other"]}
            write(entries[:-1])
            served.process.send_signal(signal.SIGHUP)
            for _ in range(100):
                if (await say(NAMES[-1])).status == 401:
                    break
                await asyncio.sleep(0.1)
            statuses = [(await say(name)).status for name in (NAMES[0], NAMES[0], NAMES[1], NAMES[2], NAMES[-1])]
            assert statuses == [200, 429, 403, 200, 401], served.err
            assert (await say(NAMES[1], "other")).status == 200

            assert (await ask("GET", f"{served.url}/metrics")).status == 401
            assert set(re.findall(r" INFO run .* user=(\S+) ", served.err)) == set(NAMES), served.err
            scraped = (await ask("GET", f"{served.url}/metrics", headers=METRICS)).body.decode()
    assert f'bridge_user_tokens_in_cached_total{{model="m",user="{NAMES[2]}"}} 8.0' in scraped
    counted = dict(re.findall(r'^bridge_user_runs_total\{model="m",user="([\w-]+)"\} (\S+)$', scraped, re.MULTILINE))
    assert counted == {name: "2.0" if name in (NAMES[0], NAMES[2]) else "1.0" for name in NAMES[:-1]} | {
        NAMES[-1]: counted[NAMES[-1]]
    }
    board = json.loads((ROOT / "deploy" / "grafana" / "dialect-bridge.json").read_text(encoding="utf-8"))
    asked = set(re.findall(r"bridge_user_\w+", json.dumps(board)))
    assert asked == set(re.findall(r"^(bridge_user_\w+_total)\{", scraped, re.MULTILINE))


def test_prometheus_reads_the_metrics_with_the_key_of_the_recipe() -> None:
    told = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yaml").read_text(encoding="utf-8"))
    assert [(ROOT / "deploy" / "prometheus" / name).exists() for name in told["rule_files"]] == [True]
    (job,) = told["scrape_configs"]
    assert job["authorization"] == {"credentials_file": "metrics.key"}
    assert job.get("metrics_path", "/metrics") == "/metrics"
    assert job["static_configs"] == [{"targets": ["127.0.0.1:8080"]}]
