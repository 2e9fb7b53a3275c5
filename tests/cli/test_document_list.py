"""``penstock documents list`` on terminals of several widths, and documents by their id."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock
from tests.cli.conftest import Run

NAMES = ("mill.md", "a folder with a long name/and another one below it/the last file.md", "水车.md")


@pytest.fixture
def state(state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_EMBEDDER", "hashing")
    return state


@pytest.fixture
def folder(app: Penstock, tmp_path: Path) -> Path:
    """Three files, indexed in a thread of this process."""
    below = tmp_path / "files"
    for name in NAMES:
        (below / name).parent.mkdir(parents=True, exist_ok=True)
        (below / name).write_text("The gate sticks.\n")
    with app.worker_thread():
        app.wait(app.index(below).job_id, timeout=60)
    return below


@pytest.mark.parametrize("width", [60, 100, 400])
def test_the_path_comes_first_and_lines_fit_the_terminal(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, width: int
):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))

    header, *lines = (line.rstrip() for line in run("documents", "list").stdout.splitlines())

    assert header.split() == ["path", "pages", "chunks", "indexed", *(["id"] if width > 110 else [])]
    assert 3 == len(lines)
    assert width >= max(len(line) + line.count("水") + line.count("车") for line in (header, *lines))
    for line in lines:
        assert line.startswith(str(folder)[:8])
        assert ".md  " in line


def test_programs_get_whole_paths_and_ids(run: Run, folder: Path):
    header, *lines = run("documents", "list").stdout.splitlines()

    assert header.endswith("id")
    assert {str(folder / name) for name in NAMES} == {line.split("  ")[0] for line in lines}


def test_paths_on_a_terminal_begin_at_the_current_directory(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(folder.parent)
    for name, value in (("FORCE_COLOR", "1"), ("NO_COLOR", "1"), ("COLUMNS", "200")):
        monkeypatch.setenv(name, value)

    _, *lines = run("documents", "list").stdout.splitlines()

    assert {f"files/{name}" for name in NAMES} == {line.split("  ")[0] for line in lines}


def test_the_counts_of_status_fit_a_narrow_terminal(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch):
    for name, value in (("FORCE_COLOR", "1"), ("NO_COLOR", "1"), ("COLUMNS", "60")):
        monkeypatch.setenv(name, value)

    shown = run("status").stdout

    assert (
        "tenant   collection  branch  documents  chunks\ndefault  default     main            3       3\n"
        in shown
    )


def test_the_id_of_another_tenants_document_is_unknown(run: Run, ask: Callable[..., Any], tmp_path: Path):
    path = str(tmp_path / "mill.md")
    Path(path).write_text("The mill runs.")
    run("index", path, "--tenant", "acme")
    (listed,) = ask("documents", "list", "--tenant", "acme")["documents"]
    source_id = listed["source_id"]

    def codes() -> set[str]:
        return {
            ask("documents", name, source_id, code=4)["error"]["code"] for name in ("show", "tree", "history")
        }

    assert {"ERR_UNKNOWN_DOCUMENT"} == codes()
    assert path == ask("documents", "show", source_id, "--tenant", "acme")["document"]["path"]
    assert ask("documents", "history", source_id, "--tenant", "acme")

    run("delete", path, "--tenant", "acme")

    assert "removed" in run("documents", "history", source_id, "--tenant", "acme").stdout
    assert {"ERR_UNKNOWN_DOCUMENT"} == codes()
