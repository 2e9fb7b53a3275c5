"""Start-up of short commands: what they load, and the processes they start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from penstock import Penstock, config
from penstock.assembly import Assembly
from penstock.errors import TimeBudgetExceeded
from penstock.handlers.context import Registry
from penstock.queue.job import Status
from penstock.worker.in_process import SMALL_BYTES, is_small, run_small_job
from penstock.worker.launch import small_job_options

COUNTED = """
import _posixsubprocess, os, sys
started = []
def counted(function):
    def call(*arguments, **more):
        started.append(1)
        return function(*arguments, **more)
    return call
_posixsubprocess.fork_exec = counted(_posixsubprocess.fork_exec)
os.fork, os.posix_spawn = counted(os.fork), counted(os.posix_spawn)
from penstock.__main__ import main
code = 0
try:
    main()
except SystemExit as end:
    code = end.code or 0
import json
print(json.dumps([code, len(started), sorted(sys.modules)]), file=sys.stderr)
"""

KILLED = """
import os, signal
from penstock.__main__ import main
from penstock.worker.executor import Executor
run = Executor.run
def killed_with_a_file(executor, claims, context):
    if claims[0].item_type == "file":
        os.kill(os.getpid(), signal.SIGKILL)
    return run(executor, claims, context)
Executor.run = killed_with_a_file
main()
"""

HEAVY = frozenset(
    "asyncio concurrent.futures importlib.resources multiprocessing rich selectolax pypdfium2 tokenizers "
    "tree_sitter chardet wordllama requests penstock.worker.supervisor".split()
)

OF_CHANGED_FILES = frozenset(
    "penstock.handlers.files penstock.handlers.phases penstock.handlers.generations "
    "penstock.pipeline.extract.sandbox.sandbox penstock.worker.process_guard "
    "penstock.catalog.sql.chunks penstock.catalog.sql.removals penstock.catalog.sql.store "
    "penstock.catalog.rules.graph penstock.pipeline.vectors.cache "
    "penstock.pipeline.embed.fastembed penstock.queue.jsonl penstock.service.libraries "
    "penstock.service.pages shutil socket subprocess tempfile".split()
)
"""Modules that a walk does not need while no file has changed."""


class Ran(NamedTuple):
    code: int
    processes: int
    modules: frozenset[str]
    output: str


class Place(NamedTuple):
    """A folder with one indexed file, and its state."""

    folder: Path
    state: Path

    def run(self, *arguments: str, **variables: str) -> Ran:
        done = self._run(COUNTED, arguments, variables)
        *said, report = done.stderr.splitlines()
        code, processes, modules = json.loads(report)
        return Ran(code, processes, frozenset(modules), done.stdout + "\n".join(said))

    def kill(self, *arguments: str) -> None:
        """Run a command that is killed once it has begun with a file."""
        assert -signal.SIGKILL == self._run(KILLED, arguments, {}).returncode

    def _run(
        self, script: str, arguments: Sequence[str], variables: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PENSTOCK_", "AGENT_BRAIN_"))
        }
        environment |= {"PENSTOCK_STATE": str(self.state), **variables}
        command = [sys.executable, "-c", script, *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "mill.md").write_text("# Mill\n\nThe mill takes in water through the gate.\n")
    return Place(tmp_path / "docs", tmp_path / "state")


def test_short_commands_load_little_and_start_no_process(place: Place):
    first = place.run("index", "mill.md")
    assert (0, 0) == (first.code, first.processes), first.output

    ran = {
        "status": place.run("status"),
        "search": place.run("search", "water"),
        "note": place.run("note", "The gate sticks when it freezes."),
        "index": place.run("index", "mill.md"),
    }

    assert dict.fromkeys(ran, (0, 0)) == {name: (one.code, one.processes) for name, one in ran.items()}
    assert [] == sorted(HEAVY & frozenset().union(*(one.modules for one in ran.values())))
    without_vectors = ("status", "index")
    assert [] == [name for name in without_vectors if "numpy" in ran[name].modules]
    assert "penstock.worker.executor" not in ran["status"].modules | ran["search"].modules
    assert "1 chunk" in first.output
    assert "Unchanged" in ran["index"].output
    assert "mill.md" in ran["search"].output


def test_a_short_command_collects_no_garbage(place: Place):
    place.run("index", ".")
    counted = """
import gc, json, sys
from penstock.__main__ import main
gc.collect()
collected = []
gc.callbacks.append(lambda phase, info: collected.append(phase))
try:
    main()
except SystemExit:
    pass
print(json.dumps([len(collected), len(gc.get_objects())]))
"""
    environment = os.environ | {"PENSTOCK_STATE": str(place.state)}

    done = subprocess.run(
        [sys.executable, "-c", counted, "index", "."],
        cwd=place.folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )

    collections, objects = json.loads(done.stdout.splitlines()[-1])
    assert 0 == collections
    # Those that are left would be visited at the end of the process.
    assert objects < 1_000


def test_a_small_folder_is_indexed_in_the_command(place: Place):
    first = place.run("index", ".")
    unchanged = place.run("index", ".")
    (place.folder / "wheel.md").write_text("The wheel turns.\n")
    added = place.run("index", ".")
    (place.folder / "wheel.md").unlink()
    deleted = place.run("index", ".")

    ran = (first, unchanged, added, deleted)
    assert [(0, 0)] * 4 == [(one.code, one.processes) for one in ran], [one.output for one in ran]
    assert [] == sorted(HEAVY & frozenset().union(*(one.modules for one in ran)))
    assert "numpy" not in unchanged.modules | deleted.modules
    assert [] == sorted(OF_CHANGED_FILES & unchanged.modules)
    assert "1 file indexed" in first.output
    assert "1 unchanged" in unchanged.output
    assert "1 file indexed" in added.output
    assert "wheel" not in place.run("search", "wheel").output
    assert [] == list((place.state / "workers").glob("*/*.worker"))


def test_a_file_named_like_a_suffix_is_unchanged_beside_files_with_it(place: Place):
    (place.folder / "md").write_text("Without a suffix.\n")
    (place.folder / "zero.md").write_text("With a suffix.\n")
    place.run("index", ".")

    assert "3 unchanged" in place.run("index", ".").output


def test_native_parsers_of_a_small_file_run_in_the_sandbox(place: Place):
    (place.folder / "page.html").write_text("<h1>Wheel</h1><p>The wheel turns.")
    (place.folder / "wheel.py").write_text("def turn():\n    return 1\n")
    (place.folder / "legacy.txt").write_bytes("Größe der Mühle: fünf Räder, süß und müde".encode("latin-1"))

    ran = {name: place.run("index", name) for name in ("page.html", "wheel.py", "legacy.txt")}
    for copied in ("page.html", "wheel.py", "legacy.txt"):
        (place.folder / f"second-{copied}").write_bytes((place.folder / copied).read_bytes() + b" ")
    ran["folder"] = place.run("index", ".", "--include-code")

    assert dict.fromkeys(ran, (0, 1)) == {name: (one.code, one.processes) for name, one in ran.items()}
    assert [] == sorted(HEAVY & frozenset().union(*(one.modules for one in ran.values())))


def test_a_file_over_its_budget_fails_in_the_command_and_is_explained(place: Place):
    # A single long line takes ten times the budget and more.
    (place.folder / "slow.md").write_text("# Wheel\n\n" + "a b " * 55_000)

    ran = place.run("index", "slow.md", PENSTOCK_FILE_TIME_S="0.01")

    assert (1, 0) == (ran.code, ran.processes), ran.output
    assert TimeBudgetExceeded.code in ran.output
    assert "failed" in place.run("why", "slow.md").output


@pytest.mark.parametrize("leftover", ["a dead worker", "no upkeep for a day"])
def test_a_worker_is_started_where_it_has_more_to_do(place: Place, leftover: str):
    assert 0 == place.run("note", "The first note.").processes
    directory, upkeep = sorted((place.state / "workers").iterdir())
    if leftover == "a dead worker":
        (directory / "elsewhere-1-1.worker").touch()
    else:
        os.utime(upkeep, (1_000_000_000, 1_000_000_000))

    second, third = place.run("note", "The second note."), place.run("note", "The third note.")

    assert (0, True, 0) == (second.code, second.processes > 0, third.processes)
    assert [] == list(directory.glob("*.worker"))


def test_the_next_command_runs_the_note_of_a_killed_one(place: Place):
    with Penstock(state_dir=place.state) as app:
        left = app.documents.note("A note whose command was killed before its job began.").job_id

        second = place.run("note", "The second note.")

        assert (0, True) == (second.code, second.processes > 0), second.output
        assert Status.DONE == app.job(left).status


@pytest.mark.parametrize("path", [".", "mill.md"])
def test_the_next_command_goes_on_after_a_killed_one(place: Place, path: str):
    (place.folder / "wheel.md").write_text("The wheel turns.\n")
    place.kill("index", path)

    again = place.run("index", path)

    assert (0, 0) == (again.code, again.processes), again.output
    assert "mill.md" in place.run("search", "gate").output
    assert [] == list((place.state / "workers").glob("*/*.worker"))


@pytest.mark.parametrize("path", [".", "mill.md"])
def test_a_file_that_ends_two_commands_is_left_to_a_worker(place: Place, path: str):
    place.kill("index", path)
    place.kill("index", path)

    third = place.run("index", path)

    assert (0, True) == (third.code, third.processes > 0), third.output


def test_a_command_is_no_worker_for_the_jobs_of_others(place: Place):
    seen = []

    def register(registry: Registry) -> Callable[[], None]:
        registry.register("content", "ingest", lambda _: seen.append(assembly.worker_alive()))
        return lambda: None

    assembly = Assembly(config.load({}, state_dir=place.state))
    with closing(assembly):
        job_id = assembly.documents.note("A note.").job_id
        options = small_job_options(assembly)
        assert options is not None
        assert run_small_job(job_id, msgspec.structs.replace(options, register=register))

    # A note given meanwhile must not wait for this process.
    assert [False] == seen


def test_a_file_that_is_not_small_runs_in_a_child(place: Place):
    (place.folder / "large.md").write_text("The wheel turns.\n" * 20_000)

    large = place.run("index", "large.md")

    assert (0, True) == (large.code, large.processes > 0), large.output


def test_only_new_notes_and_small_files_are_small(place: Place):
    with Penstock(state_dir=place.state) as app:
        note = app.job(app.documents.note("A note.").job_id)
        file = app.job(app.index(place.folder / "mill.md").job_id)
        folder = app.job(app.index(place.folder).job_id)

    assert [True, True, False] == [is_small(job) for job in (note, file, folder)]
    # A job that was lost twice may have crashed its process.
    assert not is_small(msgspec.structs.replace(note, lost_count=2))
    assert not is_small(msgspec.structs.replace(note, status=Status.IN_PROGRESS))
    assert not is_small(msgspec.structs.replace(note, payload_json=f'{{"content": "{"x" * SMALL_BYTES}"}}'))
