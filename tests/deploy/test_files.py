"""What stands under deploy/ is well formed by the judgement of its own linters, and fits the program it starts.

None of it is run here: there is no container engine, no cluster and no systemd in a test.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.cli.health_file import VARIABLE
from bridge.cli.parser import _arguments
from bridge.contract import Operation
from bridge.engine.assembly import assemble, store_for
from bridge.engine.config import load
from tests.deploy.tools import lint
from tests.docs.helpers import EXAMPLES, ROOT
from tests.server.harness import ask, post, serving

DEPLOY = ROOT / "deploy"
PRODUCTION = sorted((EXAMPLES / "configs" / "production").glob("*.yaml"))
CONFIGS = [DEPLOY / "container.yaml", DEPLOY / "kubernetes" / "config.yaml", *PRODUCTION]
SECRETS = {
    "BRIDGE_KEY": "key-of-default",
    "BRIDGE_SECRET": "s" * 32,
    "PUBLIC_URL": "https://bridge.example",
    "WEB_KEY": "key-of-web",
    "METRICS_KEY": "key-of-prometheus",
    "HISTORY_URL": "postgresql://bridge@postgres/bridge",
    "RUNS_URL": "postgresql://bridge@postgres/bridge",
    "ATTACHMENTS_URL": "s3://bridge-attachments",
}


def documents(path: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each]


# ---------------------------------------------------------------------- configurations


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_configuration_loads_and_assembles(path: Path) -> None:
    config = load(path, env=SECRETS)
    assert len(assemble(config)) == len(config.routes)


@pytest.mark.parametrize("path", [p for p in CONFIGS if "stores:" in p.read_text()], ids=lambda path: path.stem)
def test_machines_that_share_state_share_all_of_it(path: Path) -> None:
    config = load(path, env=SECRETS)
    assert config.stores.history is not None
    assert config.stores.history.startswith("postgresql://")
    assert config.stores.runs.startswith("postgresql://")
    routes = assemble(config)
    if any(route.serves(Operation.ATTACH) for route in routes):
        assert config.stores.attachments.startswith("s3://")
    assert store_for(routes, config) is not None


async def test_behind_nginx_the_header_names_the_user() -> None:
    path = EXAMPLES / "configs" / "production" / "behind-nginx.yaml"
    text = path.read_text(encoding="utf-8")
    setup = yaml.safe_load(text)
    setup["backends"] = {"llm": {"dialect": "demo"}}
    del setup["server"]["port"], setup["server"]["host"], setup["server"]["public_url"]
    header = setup["server"]["auth"]["trusted_header"]
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    async with serving(setup) as base:
        assert (await post(f"{base}/v1/chat/completions", body)).status == 401
        assert (await post(f"{base}/v1/chat/completions", body, x_user="somebody")).status == 200
        assert (await ask("GET", f"{base}/metrics")).status == 200
    nginx = (DEPLOY / "nginx" / "nginx.conf").read_text(encoding="utf-8")
    assert f"proxy_set_header {header} $remote_user;" in nginx


# ---------------------------------------------------------------------- nginx, systemd


@pytest.mark.interop
@pytest.mark.parametrize("name", ["nginx.conf", "replicas.conf"])
def test_nginx_knows_its_directives(name: str) -> None:
    """Every directive is known, stands where it may and has as many arguments as it takes."""
    parsed = yaml.safe_load(lint("crossplane", "parse", "--strict", str(DEPLOY / "nginx" / name)))
    assert parsed["status"] == "ok", parsed["errors"]


def test_the_unit_is_one_and_starts_what_there_is(tmp_path: Path) -> None:
    unit = DEPLOY / "systemd" / "dialect-bridge.service"
    told = dict(re.findall(r"^(\w+)=(.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE))
    _arguments(shlex.split(told["ExecStart"])[1:])
    if shutil.which("systemd-analyze") is None:
        pytest.skip("SYSTEMD-ANALYZE IS NOT INSTALLED: the unit was not verified")
    # It wants the program to be there: the path is replaced by one that is.
    here = tmp_path / "dialect-bridge.service"
    here.write_text(unit.read_text(encoding="utf-8").replace("/opt/dialect-bridge/bin/dialect-bridge", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(here)], capture_output=True, text=True, check=False, timeout=60
    )
    assert [line for line in done.stderr.splitlines() if "dialect-bridge" in line] == []


# ---------------------------------------------------------------------- containers


@pytest.mark.interop
def test_the_entry_for_editors_is_of_this_version_and_starts_what_there_is() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    entry = json.loads((DEPLOY / "acp-registry" / "agent.json").read_text())
    assert (entry["id"], entry["version"], entry["license"]) == (
        project["name"], project["version"], project["license"],
    )  # fmt: skip
    started = entry["distribution"]["uvx"]
    assert started["package"] == f"{project['name']}@{project['version']}"
    assert _arguments(started["args"]).run


@pytest.mark.interop
def test_the_image_passes_hadolint() -> None:
    assert lint("hadolint", "Dockerfile") == ""


def test_the_image_copies_what_is_there_and_starts_what_there_is() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
            assert f"!{source}" in ignored, f"{source} is not sent to the builder"
    (command,) = re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)
    _arguments(yaml.safe_load(command))
    assert re.search(r"^USER [1-9]\d+$", text, re.MULTILINE), "a number, so that clusters can tell it is not root"
    (check,) = re.findall(r"^HEALTHCHECK .*\\\n +CMD (\[.*\])$", text, re.MULTILINE)
    assert VARIABLE in yaml.safe_load(check)[-1], "it asks the address that the server has written down"
    assert re.search(rf"^ENV .*\b{VARIABLE}=/tmp/", text, re.MULTILINE)
    assert "127.0.0.1" not in text


def test_an_arbitrary_user_of_group_0_can_write_the_data() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(r"chown \w+:0 /data && chmod g=u /data", text)


def test_the_image_has_one_name_and_the_version_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    files = (ROOT / "Dockerfile", *DEPLOY.rglob("*.yaml"))
    named = {
        name
        for file in files
        for name in re.findall(r"(?:image:|build -t|8080:8080) (dialect-bridge\S*)", file.read_text(encoding="utf-8"))
    }
    assert named == {f"dialect-bridge:{version}"}


def test_one_late_answer_takes_no_pod_out_of_service() -> None:
    (deployment,) = (d for d in documents(DEPLOY / "kubernetes" / "bridge.yaml") if d["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    probe = container["readinessProbe"]
    assert probe["failureThreshold"] >= 3
    assert probe["timeoutSeconds"] >= 2


def test_the_image_has_byte_code_of_the_standard_library() -> None:
    """Its base has none, and no user of it may write any."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").rpartition("\nFROM ")[2]
    (line,) = re.findall(r"^RUN .*compile_dir\(sysconfig\.get_path\('stdlib'\).*$", text, re.MULTILINE)
    assert text.index(line) < text.index("PYTHONDONTWRITEBYTECODE") < text.index("USER ")


@pytest.mark.interop
def test_compose_fits_its_specification() -> None:
    lint("check-jsonschema", "--builtin-schema", "vendor.compose-spec", "deploy/compose.yaml")
    (compose,) = documents(DEPLOY / "compose.yaml")
    bridge = compose["services"]["bridge"]
    for volume in bridge["volumes"]:
        source = volume.partition(":")[0]
        assert source in compose["volumes"] or (DEPLOY / source).exists(), volume
    needed = set(re.findall(r"\$\{(\w+)\}", (DEPLOY / "kubernetes" / "config.yaml").read_text(encoding="utf-8")))
    assert needed <= bridge["environment"].keys()


@pytest.mark.interop
def test_kubernetes_takes_the_manifests() -> None:
    manifest = DEPLOY / "kubernetes" / "bridge.yaml"
    lint("kubernetes-validate", "--strict", "-k", "1.33.0", str(manifest))
    found = {each["kind"]: each for each in documents(manifest)}
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    config = load(DEPLOY / "kubernetes" / "config.yaml", env=SECRETS)
    waits = float(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > waits + config.server.drain
    assert container["readinessProbe"]["httpGet"]["path"] == config.server.health.ready
    assert container["livenessProbe"]["httpGet"]["path"] == config.server.health.live
    assert container["ports"][0]["containerPort"] == config.server.port
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert found["Service"]["spec"]["selector"] == labels
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert found["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == found["Deployment"]["metadata"]["name"]
    (custom,) = documents(DEPLOY / "kubernetes" / "kustomization.yaml")
    for name in [*custom["resources"], *custom["configMapGenerator"][0]["files"]]:
        assert (DEPLOY / "kubernetes" / name).exists(), name
    assert custom["configMapGenerator"][0]["name"] == pod["volumes"][0]["configMap"]["name"]
