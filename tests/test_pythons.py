"""Other versions of Python that are on this machine: an empty environment for each, warnings as errors."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.library.conftest import ROOT
from tests.test_first_run import OFFLINE, PATIENCE_S, clean_environment

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SUPPORTED = sorted(
    int(name.rpartition(".")[2])
    for name in PROJECT["classifiers"]
    if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", name)
)
"""Minor versions that the package names."""
OLDER = SUPPORTED[0] - 1
TESTED = [minor for minor in SUPPORTED if minor != sys.version_info.minor]

SMOKE = """
import sys
import penstock

with penstock.Penstock() as app, app.worker_thread():
    app.wait(app.index("docs").job_id, timeout=120)
    assert [hit.path.rsplit("/")[-1] for hit in app.search("copper")] == ["mill.md"]
print("found", sys.version_info[:3])
"""


@cache
def interpreter(minor: int) -> Path | None:
    """An interpreter of a version that starts: on the PATH, or in pyenv, where the oldest one is taken."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    kept = sorted(root.glob(f"versions/3.{minor}.*/bin/python"), key=_patch)
    found = shutil.which(f"python3.{minor}")
    for path in (*kept, *([Path(found)] if found else [])):
        asked = [str(path), "-c", "import sys, venv, ensurepip; print(sys.version_info.minor)"]
        ran = subprocess.run(asked, capture_output=True, text=True, check=False)
        if ran.returncode == 0 and ran.stdout.strip() == str(minor):
            return path
    return None


def _patch(python: Path) -> int:
    return int(re.findall(r"\d+", python.parents[1].name)[2])


def install(python: Path, folder: Path, *wanted: str) -> subprocess.CompletedProcess[str]:
    subprocess.run([python, "-m", "venv", folder], check=True, capture_output=True, env=clean_environment())
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check"]
    ran = subprocess.run(
        [*pip, "-c", str(ROOT / "constraints.txt"), *wanted],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if ran.returncode and OFFLINE.search(ran.stdout + ran.stderr):
        pytest.skip("no package index can be reached")
    return ran


def installed(minor: int) -> Path:
    found = interpreter(minor)
    if found is None:
        pytest.skip(f"no Python 3.{minor} on this machine")
    return found


@pytest.mark.long
@pytest.mark.parametrize("minor", TESTED, ids=lambda minor: f"3.{minor}")
def test_another_python_indexes_searches_and_passes_the_tests_of_the_queue(minor: int, tmp_path: Path):
    python = installed(minor)
    extras = f"{ROOT}[postgres,redis,serve]"
    ran = install(python, tmp_path / "venv", extras, "pytest", "pytest-randomly", "hypothesis")
    assert 0 == ran.returncode, ran.stdout + ran.stderr
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "mill.md").write_text("# The mill\n\nIts roof is of copper.\n")
    environment = clean_environment(
        PYTHONWARNINGS="error", PYTHONDONTWRITEBYTECODE="1", HOME=str(tmp_path), PENSTOCK_STATE="state"
    )

    def run(*command: object, cwd: Path = tmp_path) -> str:
        there = [str(tmp_path / "venv" / "bin" / "python"), *map(str, command)]
        ran = subprocess.run(
            there, cwd=cwd, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert 0 == ran.returncode, f"{command}\n{ran.stdout}{ran.stderr}"
        assert "Warning" not in ran.stderr
        return ran.stdout

    assert run("-c", SMOKE).startswith(f"found (3, {minor},")
    for command in ("index docs", "search noon", "jobs", "queue stats", "why docs/mill.md", "verify"):
        run("-m", "penstock", *command.split())
    run("-m", "penstock", "backup", "kept.tar")
    # Warnings are errors in them. The installed package is tested, as the source is not on the path.
    run(
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        "sqlite and not redis",
        "tests/conformance",
        cwd=ROOT,
    )


@pytest.mark.long
def test_an_older_python_is_told_which_one_is_needed(tmp_path: Path):
    python = installed(OLDER)

    ran = install(python, tmp_path / "venv", str(ROOT))

    assert 0 != ran.returncode
    said = ran.stdout + ran.stderr
    assert f"Penstock needs Python 3.{SUPPORTED[0]} or newer; this is 3.{OLDER}." in said
    assert "Traceback" not in said


def test_the_package_its_checks_and_its_settings_name_the_same_versions():
    workflow = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    tried = re.findall(r"3\.(\d+)", re.findall(r"python: \[(.+)\]", workflow)[0])
    hook = (ROOT / "hatch_build.py").read_text(encoding="utf-8")

    assert f">=3.{SUPPORTED[0]}" == PROJECT["requires-python"]
    assert SUPPORTED == [int(minor) for minor in tried]
    assert f"sys.version_info < (3, {SUPPORTED[0]})" in hook
    assert f"Python 3.{SUPPORTED[0]} or newer" in (ROOT / "README.md").read_text(encoding="utf-8")
