"""The suites are for third parties: three lines are enough, what conforms passes, and what does not goes red."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"

SUITE = """
from dialect_toy import dialect
from bridge.testing import DialectConformance, PairConformance

class TestMine(DialectConformance):
    dialects = [dialect]

class TestMineBesideOthers(PairConformance):
    dialects = [dialect]
    others = ["openai-chat"]
"""

OF_ANY_TYPE = "body_of(type(wire)(body=wire.body))"
ALWAYS_ENDS_WELL = """from bridge.toolkit.objects import ObjectDecoder

class Hasty(Toy):
    def decoder(self, context):
        decoder = ObjectDecoder(self.decode_object, context)
        builder = decoder.builder
        decoder.close = lambda failure=None: (builder.finish(), builder.end(), builder.take())[-1]
        return decoder

dialect = Hasty()"""
ERRORS_ARE_FINE = """class Fine(Toy):
    def encode_error(self, failure):
        response = super().encode_error(failure)
        response.status = 200
        return response

dialect = Fine()"""
NEVER_AGAIN = """class Never(Toy):
    def decode_error(self, wire):
        return Failure(ErrorCode.BACKEND_ERROR, "It failed.")

dialect = Never()"""

# Finding a counterexample is enough here; making it small takes most of the time.
PROFILE = """
from hypothesis import Phase, settings

settings.register_profile("found", phases=[Phase.generate], derandomize=True)
settings.load_profile("found")


def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if getattr(item.module, "WANTED", "") in item.name]
"""

BROKEN = {
    "what_is_written_is_read": ('return {"say": event.text}', "return None"),
    "no_bytes_raise": ('node.string("say")', 'node.value["say"]'),
    "a_body_that_says_it_is_something_else": ("body_of(wire)", OF_ANY_TYPE),
    "every_prefix_ends_well": ("dialect = Toy()", ALWAYS_ENDS_WELL),
    "every_failure_has_a_response": ("dialect = Toy()", ERRORS_ARE_FINE),
    "its_example_is_a_request": ('body.boolean("stream") is not False', "False"),
    "a_failure_in_a_stream_tells_no_key": ('masked(node.need_string("wrong"))', 'node.need_string("wrong")'),
    "an_error_of_the_backend_says_when_to_try_again": ("dialect = Toy()", NEVER_AGAIN),
}
"""For each test what is right in the module, and something wrong that it finds."""


@pytest.fixture
def package(tmp_path: Path) -> Iterator[Path]:
    """A third party's package: the module of a dialect, and its tests."""
    source = (EXAMPLES / "dialect_toy.py").read_text(encoding="utf-8")
    (tmp_path / "dialect_toy.py").write_text(source, encoding="utf-8")
    (tmp_path / "test_mine.py").write_text(SUITE, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(PROFILE, encoding="utf-8")
    return tmp_path


def tried(package: Path) -> tuple[int, str]:
    """Exit code and report of `pytest` in the package, as its owner would call it."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=package, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout


def test_a_dialect_that_conforms_passes(package: Path) -> None:
    code, report = tried(package)
    assert code == 0, report
    passed = re.search(r"(\d+) passed", report)
    assert passed is not None
    assert int(passed[1]) > 40
    assert "skipped" not in report


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report about packages that are broken, each of which has the suite's test for it only."""
    folder = tmp_path_factory.mktemp("broken")
    source = (EXAMPLES / "dialect_toy.py").read_text(encoding="utf-8")
    for test, (right, wrong) in BROKEN.items():
        assert source.count(right) == 1
        (folder / f"toy_{test}.py").write_text(source.replace(right, wrong), encoding="utf-8")
        suite = SUITE.replace("dialect_toy", f"toy_{test}") + f"\nWANTED = {test!r}\n"
        (folder / f"test_that_{test}.py").write_text(suite, encoding="utf-8")
    (folder / "conftest.py").write_text(PROFILE, encoding="utf-8")
    code, report = tried(folder)
    assert code == 1, report
    return report


@pytest.mark.parametrize("test", BROKEN)
def test_a_dialect_that_does_not_goes_red(reported: str, test: str) -> None:
    assert re.search(rf"^FAILED test_that_{test}\.py::\w+::test_{test}", reported, re.MULTILINE), reported


def test_its_assertions_are_explained(reported: str) -> None:
    assert "assert 400 <= 200" in reported


def test_a_suite_without_a_dialect_is_no_success(package: Path) -> None:
    (package / "test_mine.py").write_text(SUITE.replace("dialects = [dialect]", "pass"), encoding="utf-8")
    code, report = tried(package)
    assert code != 0
    assert "TestMine.dialects: expected at least one dialect, got none" in report


def test_a_missing_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['hypothesis'] = None\n"
        "try:\n    from bridge.testing import DialectConformance\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "bridge.testing.DialectConformance needs the extra testing: pip install 'dialect-bridge[testing]'\n"
    )
