"""The first minutes with a clone: the demo, the README, and a wheel in an empty environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.extensions import install_command
from tests.library.conftest import ROOT

PATIENCE_S = 900
"""Time for pip on a busy machine; a quiet one needs half a minute."""
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
OFFLINE = re.compile(r"NewConnectionError|NameResolutionError|Failed to establish a new connection")


def section(title: str) -> list[tuple[str, str]]:
    """Language and text of the code blocks in a section of the README."""
    return BLOCK.findall(README.partition(f"\n## {title}\n")[2].partition("\n## ")[0])


def clean_environment(**more: str) -> dict[str, str]:
    unwanted = ("PENSTOCK_", "PYTHON", "VIRTUAL_ENV", "MAKE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    return kept | {"COLUMNS": "200"} | more


def demo(folder: str, *, code: int = 0) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo_documents.py", folder],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert code == ran.returncode, ran.stderr
    return ran


def test_the_demo_survives_files_that_cannot_be_read(tmp_path: Path):
    folder = tmp_path / "my 'notes'"
    folder.mkdir()
    (folder / "mill.md").write_text("# How the mill works\n\nWater drives the wheel.\n")
    (folder / "torn.pdf").write_bytes(b"%PDF-1.4 torn")

    shown = demo(str(folder)).stdout

    assert "$ penstock search How the mill works --limit 3 --explain\n" in shown
    assert f" 1. {folder}/mill.md:1\n" in shown
    assert "Some files cannot be read. The next command lists them and says why.\n\n$ penstock why" in shown
    assert re.search(r"^failed +torn\.pdf", shown, re.MULTILINE)
    assert "A second run reads only what has changed." in shown


def test_the_demo_of_an_empty_folder_says_that_there_is_nothing(tmp_path: Path):
    shown = demo(str(tmp_path)).stdout

    assert shown.endswith(f"\nNo file in {tmp_path} was indexed, so there is nothing to search.\n")


@pytest.mark.parametrize(("name", "fault"), [("gone", "does not exist"), ("file", "is not a folder")])
def test_the_demo_refuses_what_is_no_folder(tmp_path: Path, name: str, fault: str):
    (tmp_path / "file").write_text("The mill.")

    told = demo(str(tmp_path / name), code=1).stderr

    assert f"{tmp_path / name} {fault}. Name another one: make demo DIR=/path/to/folder\n" == told


def make(clone: Path, *arguments: str) -> str:
    ran = subprocess.run(
        ["make", "-C", str(clone), "--no-print-directory", *arguments],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return ran.stdout


@pytest.fixture
def bare_clone(tmp_path: Path) -> Path:
    """A clone with nothing but the files that make looks at, and no environment."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("target", "tools"), [("demo", False), ("tour", False), ("test", True), ("lint", True)]
)
def test_only_targets_for_development_install_its_tools(bare_clone: Path, target: str, tools: bool):
    planned = make(bare_clone, "--dry-run", target)

    assert ["hatchling editables", "-e '.[dev,redis,servers]'" if tools else "-e ."] == [
        command.removeprefix("--no-build-isolation ")
        for command in re.findall(r"install\.py -c constraints\.txt (.+)", planned)
    ]


def test_the_demo_needs_no_second_installation_after_setup(bare_clone: Path):
    named = re.findall(r"touch (\S+) (\S+)", make(bare_clone, "--dry-run", "setup"))
    (bare_clone / ".venv").mkdir()
    for stamp in named[0]:
        (bare_clone / stamp).touch()

    assert "install.py" not in make(bare_clone, "--dry-run", "demo", "lint")


def test_a_folder_of_the_demo_may_have_spaces_and_quotes(bare_clone: Path):
    """The recipe runs with a Python that prints its arguments."""
    for stamp in re.findall(r"touch (\S+)", make(bare_clone, "--dry-run", "demo")):
        (bare_clone / stamp).parent.mkdir(exist_ok=True)
        (bare_clone / stamp).touch()
    printer = bare_clone / "printer"
    printer.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    printer.chmod(0o755)

    name = """~/my "notes" 'here'"""

    assert f"examples/demo_documents.py\n{name}\n" == make(bare_clone, f"PY={printer}", "demo", f"DIR={name}")


def test_a_failed_installation_shows_what_pip_says(tmp_path: Path):
    ran = subprocess.run(
        [sys.executable, ROOT / "scripts/install.py", "--no-index", tmp_path / "gone.whl"],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

    assert 1 == ran.returncode
    assert "gone.whl" in ran.stderr
    assert "installed" not in ran.stdout


@pytest.mark.parametrize("extra", ["postgres", "redis", "usearch"])
def test_the_readme_lists_every_extra_and_its_command_names_its_packages(extra: str):
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    needed = re.findall(rf"^{extra} = \[(.+)\]$", project, re.MULTILINE)[0]

    assert f"\n| `{extra}` | " in README
    command = install_command(extra)
    assert command.startswith("pip install ")
    assert [] == [name for name in re.findall(r'"([a-z]+)', needed) if name not in command]


@pytest.fixture(scope="module")
def wheel_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with nothing but the wheel of this checkout and what it requires."""
    base = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(base), str(ROOT)]
    subprocess.run([*pip, *build], check=True, capture_output=True, text=True, timeout=PATIENCE_S)
    (wheel,) = base.glob("penstock-*.whl")
    environment = base / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    # The new environment has no pip of its own, and bytecode would take as long as the rest.
    there = ["--python", str(environment / "bin" / "python")]
    install = ["install", "--no-compile", "-c", str(ROOT / "constraints.txt"), str(wheel)]
    ran = subprocess.run(
        [*pip, *there, *install], check=False, capture_output=True, text=True, timeout=PATIENCE_S
    )
    if ran.returncode and OFFLINE.search(ran.stderr):
        pytest.skip("no package index can be reached")
    assert 0 == ran.returncode, ran.stderr
    return environment


@pytest.mark.long
def test_the_quick_start_runs_from_a_wheel_in_an_empty_environment(wheel_environment: Path, tmp_path: Path):
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    environment = clean_environment(
        PATH=f"{wheel_environment / 'bin'}:{os.environ['PATH']}", PENSTOCK_STATE=str(tmp_path / "state")
    )

    def run(command: list[str] | str) -> tuple[str, str]:
        ran = subprocess.run(
            command,
            shell=isinstance(command, str),
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert 0 == ran.returncode, f"$ {command}\n{ran.stdout}{ran.stderr}"
        return ran.stdout, ran.stderr

    (_, indexed), (_, searched), (_, more) = section("Quick start")
    typed, _, shown = indexed.removeprefix("$ ").partition("\n")
    assert alike(shown) == alike(run(typed)[0])
    typed, _, shown = searched.removeprefix("$ ").partition("\n")
    # What was searched is said on standard error, below the hits.
    assert alike(shown) == alike("".join(run(typed)))
    commands = [line for line in more.splitlines() if not line.startswith("penstock worker")]
    assert 5 == len([run(command) for command in commands])
    ((language, program),) = section("From Python")
    assert "python" == language
    run([str(wheel_environment / "bin" / "python"), "-c", program])


def alike(output: str) -> str:
    """Output without numbers and names, which change with the documentation, the machine and the folder."""
    named = re.sub(r"\b([Pp])roject \S+ \(branch \S+\)", r"\1roject P (branch B)", output)
    return re.sub(r"\d+(\.\d+)?", "N", named).strip()
