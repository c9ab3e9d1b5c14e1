"""The server as the operating system sees it: descriptors, signals, output, ports, working directory, workers."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.operations.processes import SECONDS, demo_config, started, until

pytestmark = pytest.mark.slow

WORKERS = pytest.mark.parametrize("workers", [1, 2])


@pytest.mark.parametrize("closed", ["1>&-", "0<&- 2>&-", "0<&- 1>&- 2>&-"])
def test_closed_standard_descriptors(tmp_path: Path, closed: str) -> None:
    with started(tmp_path, demo_config(), shell=closed) as it:
        it.until_served()
        opened = {number: os.readlink(f"/proc/{it.process.pid}/fd/{number}") for number in range(3)}
        assert not any(target.startswith("socket:") for target in opened.values())
        assert it.stopped() == 0


FULL = "/dev/full"


@pytest.mark.parametrize(
    ("workers", "outputs"), [(1, {"stdout": FULL}), (2, {"stderr": FULL}), (2, {"stdout": FULL, "stderr": FULL})]
)
def test_output_to_a_full_disk(tmp_path: Path, workers: int, outputs: dict[str, str]) -> None:
    with started(tmp_path, demo_config(workers=workers), forked=True, **outputs) as it:
        it.until_served()
        assert it.stopped() == 0


def test_output_that_nobody_reads(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with started(tmp_path, demo_config(), forked=True, stdout=write, stderr=os.dup(write)) as it:
        it.until_served()
        assert it.stopped() == 0


@WORKERS
def test_signals_that_do_not_stop_a_server(tmp_path: Path, workers: int) -> None:
    names = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
    with started(tmp_path, demo_config(workers=workers), forked=workers > 1) as it:
        # As soon as it handles any: before that, it is Python that starts.
        until(lambda: _handles(it.process.pid, signal.SIGTERM) or it.process.poll() is not None)
        for name in names:
            it.process.send_signal(name)
        it.until_served()
        for name in names:
            it.process.send_signal(name)
            it.until_served()
        assert it.stopped() == 0


def _handles(pid: int, name: signal.Signals) -> bool:
    caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (name - 1) & 1)


def test_a_server_that_starts_can_be_stopped(tmp_path: Path) -> None:
    """Also as the first process of a container, for which the system drops signals without a handler."""
    (tmp_path / "slow_stage.py").write_text("import time\ntime.sleep(60)\n")
    config = demo_config()
    config["routes"][0]["stages"] = ["slow_stage:make"]
    with started(tmp_path, config, forked=True) as it:
        until(lambda: _handles(it.process.pid, signal.SIGTERM))
        assert it.stopped() == 0


def test_a_second_server_on_the_port_is_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with started(tmp_path / "one", demo_config(), forked=True) as first:
        first.until_served()
        for workers in (1, 2):
            with started(tmp_path / "two", demo_config(workers=workers), port=first.port, forked=True) as second:
                assert second.process.wait(SECONDS) == 1
                assert "Address already in use" in second.log
        assert first.get()[0] == 200


@WORKERS
def test_a_stop_during_a_reload(tmp_path: Path, workers: int) -> None:
    stage = tmp_path / "a_stage.py"
    stage.write_text("def make(context): return None\n")
    config = demo_config(workers=workers)
    config["routes"][0]["stages"] = ["a_stage:make"]
    with started(tmp_path, config, forked=True) as it:
        it.until_served()
        (tmp_path / "slow_stage.py").write_text("import pathlib, time\npathlib.Path('began').touch()\ntime.sleep(90)\n")
        text = (tmp_path / "config.yaml").read_text()
        (tmp_path / "config.yaml").write_text(text.replace("a_stage", "slow_stage"))
        it.process.send_signal(signal.SIGHUP)
        until((tmp_path / "began").exists)
        it.process.terminate()
        assert it.process.wait(SECONDS) == 0


@WORKERS
def test_modules_of_the_working_directory_are_imported_for_the_configuration_only(tmp_path: Path, workers: int) -> None:
    for name in ("yaml.py", "platform.py", "uvloop.py", "bridge/__init__.py"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"open({str(tmp_path / 'executed')!r}, 'a').write({name!r})\n")
    (tmp_path / "my_stage.py").write_text("from my_words import make\n")
    (tmp_path / "my_words.py").write_text("open('named', 'w')\ndef make(context): return None\n")
    config = demo_config(workers=workers)
    config["routes"][0]["stages"] = ["my_stage:make"]
    with started(tmp_path, config) as it:
        it.until_served()
    assert not (tmp_path / "executed").exists(), (tmp_path / "executed").read_text()
    assert (tmp_path / "named").exists()


@pytest.mark.parametrize("module", ["bridge", "bridge.cli"])
def test_files_of_the_working_directory_are_not_imported_by_a_module_run(tmp_path: Path, module: str) -> None:
    (tmp_path / "yaml.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\n")
    with started(tmp_path, demo_config(), command=(sys.executable, "-m", module)) as it:
        it.until_served()
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(("host", "answers"), [("::", 2), ("localhost", 2), ("0.0.0.0", 1), ("::1", 1)])
def test_the_addresses_of_a_host(tmp_path: Path, host: str, answers: int) -> None:
    with started(tmp_path, demo_config(host=host, auth="none"), forked=True) as it:
        printed = tmp_path / "out"
        until(lambda: "serving on" in printed.read_text(), lambda: it.log)
        address = printed.read_text().splitlines()[0].partition("http://")[2].rpartition(":")[0]
        assert it.get(host=address)[0] == 200
        assert sum(it.get(host=each)[0] == 200 for each in ("127.0.0.1", "[::1]")) == answers


def test_a_worker_that_was_suspended_continues(tmp_path: Path) -> None:
    with started(tmp_path, demo_config(workers=2), forked=True) as it:
        it.until_served()
        until(lambda: it.get("/readyz")[0] == 200)
        before = it.children
        os.kill(max(before), signal.SIGSTOP)
        until(lambda: it.get("/readyz", seconds=0.5)[0] == 503)
        until(lambda: it.get("/readyz", seconds=0.5)[0] == 200)
        assert it.children == before
        assert "is killed" not in it.log


def test_a_worker_that_hangs_is_replaced(tmp_path: Path) -> None:
    """It is told by the other one meanwhile, and connections do not wait for it for ever."""
    stage = "import os, pathlib, time\n\ndef make(context):\n    {}\n    time.sleep(300)\n"
    (tmp_path / "blocking_stage.py").write_text(stage.format("pathlib.Path('hung').write_text(str(os.getpid()))"))
    config = demo_config(workers=2)
    config["routes"][0]["stages"] = ["blocking_stage:make"]
    with started(tmp_path, config, forked=True) as it:
        it.until_served()
        until(lambda: it.get("/readyz")[0] == 200)
        before = it.children
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
        asked = urllib.request.Request(f"http://127.0.0.1:{it.port}/v1/chat/completions", body)
        asked.add_header("content-type", "application/json")
        with pytest.raises(OSError, match="timed out"):
            urllib.request.urlopen(asked, timeout=2)
        hung = int((tmp_path / "hung").read_text())
        until(lambda: it.get("/readyz", seconds=0.5) == (503, {"status": "workers do not answer", "silent_workers": 1}))
        until(lambda: hung not in it.children and len(it.children) == 2, lambda: it.log)
        assert "does not answer" in it.log
        until(lambda: it.get("/readyz", seconds=0.5)[0] == 200)
        assert {it.get(seconds=5)[0] for _ in range(20)} == {200}
        assert before - {hung} < it.children
        assert it.stopped() == 0


def test_a_server_that_was_stopped_as_a_whole_kills_no_worker(tmp_path: Path) -> None:
    """`docker pause`, a suspended machine: the parent has heard nobody, but it did not run either."""
    with started(tmp_path, demo_config(workers=2), forked=True) as it:
        it.until_served()
        before = it.children
        for name in (signal.SIGSTOP, signal.SIGCONT):
            for pid in (*before, it.process.pid)[:: 1 if name is signal.SIGSTOP else -1]:
                os.kill(pid, name)
            if name is signal.SIGSTOP:
                time.sleep(12)
        time.sleep(3)
        assert it.children == before
        assert "does not answer" not in it.log
