"""The second run of failed tests: it passes what fails once, and fails what fails twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts import rerun

ROOT = Path(__file__).parents[1]
SAMPLE = """
from pathlib import Path
import pytest

def test_once():
    seen = Path("seen")
    first = not seen.exists()
    seen.touch()
    assert not first

@pytest.mark.parametrize("number", range(FAILURES))
def test_always(number):
    assert not number

def test_never():
    assert True
"""


@pytest.mark.parametrize(
    ("failures", "code", "said"), [(1, 0, "unsteady"), (2, 1, ""), (20, 1, "not run again")]
)
def test_only_a_repeated_failure_fails_the_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    failures: int,
    code: int,
    said: str,
):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_sample.py").write_text(SAMPLE.replace("FAILURES", str(failures)))
    monkeypatch.chdir(tmp_path)
    # The other plugins of the environment take ten times as long to load.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p xdist.plugin")
    first = subprocess.run([sys.executable, "-m", "pytest", "-q"], capture_output=True, check=False)
    assert 1 == first.returncode

    assert code == rerun.main([])
    assert said in "".join(capfd.readouterr())


def test_a_run_that_broke_off_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    assert 1 == rerun.main([])
