"""A forked program is what a started one is, but for its imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.forkserver import ForkedProcess, children, run

KINDS = ["code", "module", "script"]


def program(kind: str, code: str, folder: Path) -> list[str]:
    """The command of a program in the folder."""
    (folder / "it.py").write_text(code)
    return [sys.executable, *{"code": ["-c", code], "module": ["-m", "it"], "script": [str(folder / "it.py")]}[kind]]


def variables(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": "", **more}


def both(command: list[str], folder: Path, **more: Any) -> list[tuple[int, bytes, bytes]]:
    """What the program gives when it is forked, and when it is started."""
    settings: dict[str, Any] = {"input": b"", "cwd": folder, "env": variables(), "timeout": 60} | more
    done = run(command, **settings), subprocess.run(command, capture_output=True, check=False, **settings)
    return [(each.returncode, each.stdout, each.stderr) for each in done]


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_environment_folder_and_streams(kind: str, tmp_path: Path) -> None:
    code = (
        "import json, os, sys\n"
        "if __name__ == '__main__':\n"
        "    print(json.dumps([sys.argv, sys.path, os.getcwd(), dict(os.environ), sys.stdin.read(), sys.flags[:]]))\n"
        "    print(sys.stdout.encoding, __import__('__main__').json is json, os.listdir('/proc/self/fd')[:-1])\n"
        "    sys.stderr.write('warned')\n"
        "    sys.exit(3)\n"
    )
    command = [*program(kind, code, tmp_path), "one", "--two"]
    env = variables(PYTHONPATH=f"{tmp_path}/a:{tmp_path}/b", PYTHONIOENCODING="utf-8", MINE="ä")
    forked, started = both(command, tmp_path, input=b"x" * 200_000, env=env)
    assert forked == started
    assert forked[0] == 3
    assert json.loads(forked[1].splitlines()[0])[3]["MINE"] == "ä"


def test_a_system_without_forks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.forkserver._HAS_FORKS", False)
    code = "import os, sys, time; print(os.getppid(), sys.stdin.read(), flush=True); time.sleep(60)"
    with pytest.raises(subprocess.TimeoutExpired):
        run(program("code", code, tmp_path), cwd=tmp_path, env=variables(), timeout=0.2)
    done = run(
        program("code", code[: code.rindex(";")], tmp_path), cwd=tmp_path, env=variables(), input=b"x", timeout=60
    )
    assert (done.returncode, done.stdout.split()) == (0, [b"%d" % os.getpid(), b"x"])


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("pass", 0),
        ("raise SystemExit('why')", 1),
        ("import os; os._exit(4)", 4),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9),
        ("import atexit; atexit.register(print, 'last')", 0),
        ("import threading; threading.Timer(0.1, print, ['later']).start()", 0),
        ("import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', 'print(1)'], check=True)", 0),
    ],
)
def test_ends(code: str, exit_code: int, tmp_path: Path) -> None:
    forked, started = both([sys.executable, "-c", code], tmp_path)
    assert forked == started
    assert forked[0] == exit_code


def test_an_exception_is_shown(tmp_path: Path) -> None:
    done = run([sys.executable, "-c", "1 / 0"], cwd=tmp_path, env=variables(), timeout=60)
    assert done.returncode == 1
    assert done.stderr.endswith(b"ZeroDivisionError: division by zero\n")


def test_warnings_are_errors_for_who_wants_it(tmp_path: Path) -> None:
    code = "import warnings; warnings.warn('old', stacklevel=1)"
    forked, started = both([sys.executable, "-W", "error", "-c", code], tmp_path)
    assert forked[0] == started[0] == 1
    assert b"UserWarning: old" in forked[2]


def test_modules_are_there_already_and_nothing_of_another_fork(tmp_path: Path) -> None:
    code = "import sys; print('aiohttp' in sys.modules, sys.modules.get('mine')); sys.modules['mine'] = 1"
    for _ in range(2):
        done = run([sys.executable, "-c", code], cwd=tmp_path, env=variables(), timeout=60)
        assert done.stdout == b"True None\n"


def test_what_is_read_while_python_starts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="PYTHONHASHSEED"):
        run([sys.executable, "-c", ""], cwd=tmp_path, env=variables(PYTHONHASHSEED="3"), timeout=60)


def test_a_program_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    code = "import os, time; print(os.getpid(), flush=True); open('pid', 'w').write(str(os.getpid())); time.sleep(100)"
    with pytest.raises(subprocess.TimeoutExpired):
        run([sys.executable, "-c", code], cwd=tmp_path, env=variables(), timeout=2)
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()


def test_a_process_takes_signals_and_has_its_own_session(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "print(os.getpid(), os.getsid(0), flush=True)\n"
        "time.sleep(100)\n"
    )
    out = tmp_path / "out"
    with open(os.devnull, "r+b") as null, out.open("wb") as stdout:
        streams = {"stdin": null, "stdout": stdout, "stderr": null}
        command = (sys.executable, "-c", code)
        process = ForkedProcess(command, cwd=tmp_path, env=variables(), start_new_session=True, **streams)
    while not out.read_text().endswith("\n"):
        assert process.poll() is None
        time.sleep(0.01)
    assert out.read_text().split() == [str(process.pid)] * 2
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.terminate()
    assert process.wait(60) == 5
    assert process.poll() == process.returncode == 5
    process.kill()  # it has ended: nobody else gets the signal


WORKERS = """
import asyncio, json, os, signal, sys
told, saying = map(os.dup2, os.pipe(), (300, 301))
async def worker(code):
    command = ["-P", "-c", code, "one", str(saying)]
    return await asyncio.create_subprocess_exec(
        sys.executable, *command, env={**os.environ, "MINE": "2"}, pass_fds=[saying], process_group=0
    )
async def main():
    about = (
        "import json, os, signal, sys; assert os.getpgid(0) == os.getpid() != os.getsid(0);"
        "assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == "
        "[signal.default_int_handler, signal.SIG_DFL]; files = sorted(os.listdir('/proc/self/fd'), key=int)[:-1];"
        "told = [sys.argv, sys.path, os.getcwd(), dict(os.environ), files, 'main' in sys.modules];"
        "os.write(int(sys.argv[2]), json.dumps([os.getppid(), told]).encode()); print('worker'); sys.exit(3)"
    )
    for _ in range(2):
        process = await worker(about)
        assert process.returncode is None
        assert await process.wait() == process.returncode == 3
        parent, what = json.loads(os.read(told, 65536))
        assert parent == os.getpid()
        print(what)
    hanging = await worker("import time; time.sleep(100)")
    os.kill(hanging.pid, signal.SIGTERM)
    print(await hanging.wait())
sys.modules["main"] = asyncio
asyncio.run(main())
"""


def test_workers_of_a_server_are_what_it_would_start(tmp_path: Path) -> None:
    (tmp_path / "it.py").write_text(WORKERS)
    forked, started = both([sys.executable, str(tmp_path / "it.py"), "serve"], tmp_path)
    assert started[0] == 0, started[2].decode()
    assert forked == started
    assert forked[1].endswith(b"-15\n")


def test_children_are_those_that_a_server_has_started(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, sys; child = subprocess.Popen(['sleep', '100']);"
        "print(child.pid, flush=True); sys.stdin.read(); child.kill(); child.wait()"
    )
    (stdin, held), out = os.pipe(), tmp_path / "out"
    with open(os.devnull, "r+b") as null, out.open("wb") as stdout:
        streams = {"stdin": stdin, "stdout": stdout, "stderr": null}
        process = ForkedProcess([sys.executable, "-c", code, "serve"], cwd=tmp_path, env=variables(), **streams)
    os.close(stdin)
    while not (printed := out.read_text()):
        assert process.poll() is None
        time.sleep(0.01)
    spares = [child for child in psutil.Process(process.pid).children() if child.name() == "spare"]
    assert children(process.pid) == {int(printed)}
    os.close(held)
    assert process.wait(60) == 0
    psutil.wait_procs(spares, 60)
    assert [spare for spare in spares if spare.is_running() and spare.status() != psutil.STATUS_ZOMBIE] == []
    assert len(spares) == 1
