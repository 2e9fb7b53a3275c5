"""Commands in an untrusted folder: no file of the folder is imported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.interpreter import RESERVED, run_pip
from tests.pipeline import sample_documents
from tests.servers.redis import server_url
from tests.servers.stores import others_later
from tests.syntax_trees import MODULES, module_name, names_used, nodes

MODULE = """\
import posix
posix.close(posix.open({mark!r}, posix.O_CREAT | posix.O_WRONLY))
raise RuntimeError("imported from the working directory")
"""
GIT_CONFIG = """\
[core]
    fsmonitor = touch {marks}/fsmonitor
    hooksPath = {folder}/hooks
    sshCommand = touch {marks}/ssh
[diff]
    external = touch {marks}/diff
[filter "mark"]
    clean = touch {marks}/filter
    smudge = touch {marks}/filter
[remote "origin"]
    url = ext::touch {marks}/remote
"""
SCRIPT = str(Path(sys.executable).parent / "penstock")
STARTS = {
    "command": [SCRIPT],
    "safe module": [sys.executable, "-P", "-m", "penstock"],
    "module": [sys.executable, "-m", "penstock"],
}


class Trap:
    """A folder with documents, in which every importable file and every setting of git leaves a mark."""

    def __init__(self, place: Path, without: set[str]) -> None:
        self.marks = place / "marks"
        self.folder = place / "folder"
        self.place = place
        self.marks.mkdir()
        (self.folder / ".git" / "hooks").mkdir(parents=True)
        names = (sys.stdlib_module_names | RESERVED | {"sitecustomize", "usercustomize"}) - {"penstock"}
        for name in names - without:
            module = MODULE.format(mark=str(self.marks / name))
            (self.folder / f"{name}.py").write_text(module)
        (self.folder / "src").mkdir()
        (self.folder / "src" / "usercustomize.py").write_text(MODULE.format(mark=str(self.marks / "below")))
        (self.folder / "mill.md").write_text("# Mill\n\nThe sluice feeds the wheel.\n")
        (self.folder / "mill.pdf").write_bytes(sample_documents.pdf("The miller opens the penstock."))
        (self.folder / "mill.docx").write_bytes(
            sample_documents.docx(sample_documents.paragraph("The stones grind."))
        )
        self._add_git()

    def _add_git(self) -> None:
        git = self.folder / ".git"
        (git / "HEAD").write_text("ref: refs/heads/main\n")
        (git / "config").write_text(GIT_CONFIG.format(marks=self.marks, folder=git))
        (self.folder / ".gitattributes").write_text("* filter=mark\n")
        for hook in ("post-checkout", "fsmonitor-watchman", "pre-commit"):
            (git / "hooks" / hook).write_text(f"#!/bin/sh\ntouch {self.marks}/{hook}\n")
            (git / "hooks" / hook).chmod(0o755)

    def environment(self, **more: str) -> dict[str, str]:
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PENSTOCK_", "AGENT_BRAIN_", "PYTHON"))
        }
        return clean | {"PENSTOCK_STATE": str(self.place / "state"), **more}

    def run(self, start: list[str], *arguments: str, **more: str) -> str:
        done = subprocess.run(
            [*start, *arguments],
            cwd=self.folder,
            env=self.environment(**more),
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert (0, []) == (done.returncode, self.left()), done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout

    def left(self) -> list[str]:
        return sorted(path.name for path in self.marks.iterdir())


def loaded_by_python(code: str) -> set[str]:
    """Modules loaded by the interpreter itself, before any module of Penstock."""
    code += "; import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    command = [sys.executable, "-c", code]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


@pytest.fixture(params=others_later(STARTS, ["command"]))
def start(request: pytest.FixtureRequest) -> list[str]:
    return STARTS[request.param]


@pytest.fixture
def trap(tmp_path: Path, start: list[str]) -> Trap:
    # `python -m` imports runpy from the working directory first; only -P prevents this.
    return Trap(tmp_path, loaded_by_python("import runpy") if start == STARTS["module"] else set())


def test_no_command_runs_code_of_the_folder_it_stands_in(trap: Trap, start: list[str]):
    report = json.loads(
        trap.run(start, "index", ".", "--processes", "1", "--project", "--include", "mill.*", "--json")
    )
    assert "done" == report["status"], report
    assert "mill.md" in trap.run(start, "search", "sluice wheel")
    trap.run(start, "note", "The gate sticks when it freezes.")
    trap.run(start, "worker", "--processes", "1", "--until-idle")
    assert "done" in trap.run(start, "status")


def test_no_gateway_runs_code_of_the_folder_it_stands_in(trap: Trap, start: list[str]):
    (trap.folder / "rags.yaml").write_text("sources: sources\nrags: {mill_rag: {}}\n")
    with subprocess.Popen(
        [*start, "gateway", server_url(), "--config", "rags.yaml"],
        cwd=trap.folder,
        env=trap.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as gateway:
        assert gateway.stdout is not None
        assert gateway.stdout.readline().startswith("Taking messages for mill_rag")
        gateway.send_signal(signal.SIGTERM)
        assert 0 == gateway.wait(60)
    assert [] == trap.left()


@pytest.mark.parametrize("entries", [":", "src:."])
def test_relative_entries_of_pythonpath_do_not_count(tmp_path: Path, entries: str):
    # Modules loaded at the interpreter's own start cannot be protected by a program.
    trap = Trap(tmp_path, loaded_by_python("import re") | {"sitecustomize", "usercustomize"})
    (trap.folder / "src" / "usercustomize.py").unlink()
    (trap.folder / "src" / "numpy.py").write_text(MODULE.format(mark=str(trap.marks / "below")))

    trap.run([SCRIPT], "index", "mill.md", PYTHONPATH=entries)


APPLICATION = """
import multiprocessing, os, subprocess, sys
import beside
from penstock import Penstock

app = Penstock({url!r}, state_dir={state!r})

def beside_in_a_child(results):
    results.put(beside.NAME)

@app.function("look")
def look(payload):
    import calendar
    spawn = multiprocessing.get_context("spawn")
    results = spawn.SimpleQueue()
    child = spawn.Process(target=beside_in_a_child, args=(results,))
    child.start()
    child.join()
    return [beside.NAME, results.get(), calendar.__file__, os.environ.get("PYTHONPATH")]
"""


@pytest.fixture
def application(tmp_path: Path) -> Path:
    folder = tmp_path / "application"
    (folder / "src").mkdir(parents=True)
    url, state = f"sqlite:///{tmp_path}/queue.db", str(tmp_path / "state")
    (folder / "src" / "tasks.py").write_text(APPLICATION.format(url=url, state=state))
    (folder / "beside.py").write_text("NAME = 'found'\n")
    for name in ("calendar", "numpy", "selectors"):
        (folder / f"{name}.py").write_text("raise RuntimeError('in the way')\n")
    return folder


def test_a_named_application_finds_its_modules_and_is_not_in_the_way_of_others(application: Path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("P")}
    environment["PYTHONPATH"] = "src"
    place = application.parent
    with Penstock(f"sqlite:///{place}/queue.db", state_dir=place / "state") as app:
        app.function("look")(lambda payload: None)
        receipt = app.call("look")

        command = [SCRIPT, "worker", "--app", "tasks:app", "--until-idle"]
        subprocess.run(command, cwd=application, env=environment, check=True)

        found, in_a_child, calendar, path = app.job(receipt.job_id).result
    assert ("found", "found", "src") == (found, in_a_child, path)
    assert str(application) not in calendar


ABSENT_MODULES = ("msvcrt", "_winapi", "winreg")
"""Modules that the standard library tries on every platform, and that only Windows has."""


def test_a_named_application_is_not_in_the_way_of_modules_that_the_platform_lacks(tmp_path: Path):
    for name in ABSENT_MODULES:
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('in the way')\n")
    (tmp_path / "tasks.py").write_text(
        "from penstock import Penstock\n"
        f"app = Penstock({f'sqlite:///{tmp_path}/queue.db'!r})\n"
        "app.function('add')(lambda payload: payload['a'] + 1)\n"
    )
    with Penstock(f"sqlite:///{tmp_path}/queue.db") as app:
        app.function("add")(lambda payload: None)
        receipt = app.call("add", {"a": 1})
        command = [SCRIPT, "worker", "--app", "tasks:app", "--until-idle"]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)

        assert 0 == ran.returncode, ran.stderr
        assert 2 == app.job(receipt.job_id).result


def test_pip_is_that_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("pip", "typing"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('of the working directory')\n")
    monkeypatch.chdir(tmp_path)

    ran = run_pip("--version", timeout_s=120)

    assert (0, "") == (ran.returncode, ran.stderr)
    assert ran.stdout.startswith("pip ")


STARTERS = {"sys.executable", "multiprocessing.get_context", "multiprocessing.Process", "subprocess.run"}


def test_only_two_modules_start_python():
    found = {
        module_name(path)
        for path in MODULES
        for _, name in names_used(nodes(path.read_text(encoding="utf-8")))
        if name in STARTERS
    }

    assert {"interpreter", "worker.pool"} == found


def test_names_that_penstock_imports_are_reserved():
    """No command imports adapters and contracts: only programs do, which have loaded their framework."""
    code = (
        "import importlib, pkgutil, sys, penstock\n"
        "for module in pkgutil.walk_packages(penstock.__path__, 'penstock.'):\n"
        "    own = not module.name.startswith(('penstock.adapters.', 'penstock.testing'))\n"
        "    if own and not module.name.endswith('__main__'):\n"
        "        importlib.import_module(module.name)\n"
        "import chardet, pypdfium2, usearch.index, olefile, python_calamine\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    command = [sys.executable, "-P", "-c", code]
    loaded = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())

    unknown = {name for name in loaded - RESERVED - sys.stdlib_module_names if not name.startswith("_")}
    # The library of a package compiled by mypyc is named by a hash, which no file has by chance.
    unknown = {name for name in unknown if not name.endswith("__mypyc")}
    assert set() == unknown - {"__main__", "cython_runtime", "sitecustomize"}
