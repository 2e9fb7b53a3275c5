"""The table by type and outcome at the end of ``penstock index``, and the run that reads nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.handlers.reindex import MOST_TYPES, TypeCounts
from tests.cli.conftest import Run
from tests.pipeline.mail_samples import mail


@pytest.fixture
def state(state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_EMBEDDER", "hashing")
    monkeypatch.setenv("COLUMNS", "100")
    return state


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "docs"
    made.mkdir()
    for name in ("a.md", "b.md", "c.txt", "README"):
        (made / name).write_text(f"Water drives the wheel of {name}.")
    (made / "liar.txt").write_bytes(b"\x7fELF" + bytes(range(256)))
    (made / "tool.py").write_text("print('mill')")
    return made


def test_files_are_counted_by_type_and_outcome(run: Run, ask: Callable[..., Any], folder: Path):
    shown = run("index", str(folder), code=1).stdout

    lines = shown.splitlines()
    start = lines.index("type       indexed  skipped  failed")
    assert [
        ["md", "2"],
        ["txt", "1", "1"],
        ["no", "suffix", "1"],
        ["py", "1"],
    ] == [line.split() for line in lines[start + 1 : start + 5]]

    (folder / "c.txt").write_text("Wind.")
    types = {one.pop("suffix"): one for one in ask("index", str(folder))["types"]}
    nothing = {"indexed": 0, "unchanged": 0, "skipped": 0, "failed": 0}
    assert {
        "md": nothing | {"unchanged": 2},
        "txt": nothing | {"indexed": 1, "failed": 1},
        "": nothing | {"unchanged": 1},
        "py": nothing | {"skipped": 1},
    } == types


def test_a_second_run_says_that_it_reads_nothing(run: Run, folder: Path):
    first = run("index", str(folder), code=1).stdout
    second = run("index", str(folder)).stdout

    assert "No file was read." not in first
    assert "0 files indexed, 4 unchanged, 1 cannot be read (unchanged) in" in second
    assert "\nNo file was read.\n" in second
    assert "type " not in second


def test_files_of_one_type_need_no_table(run: Run, tmp_path: Path):
    (tmp_path / "one").mkdir()
    for name in ("a.md", "b.md"):
        (tmp_path / "one" / name).write_text("Water.")

    assert "type " not in run("index", str(tmp_path / "one")).stdout


def test_rare_types_are_counted_together():
    counts = TypeCounts()
    for number in range(3 * MOST_TYPES):
        for _ in range(1 + (number < 5)):
            counts.add(f"/a.x{number}", "read")

    kept = counts.as_dict()

    assert (MOST_TYPES + 1, {"read": 2 * MOST_TYPES}) == (len(kept), kept["*"])
    assert 3 * MOST_TYPES + 5 == sum(one["read"] for one in kept.values())


def test_files_inside_others_are_counted_apart(run: Run, ask: Callable[..., Any], tmp_path: Path):
    folder = tmp_path / "inbox"
    folder.mkdir()
    (folder / "a.eml").write_bytes(mail(good__md=b"Flour.", more__md=b"Bran.", bad__pdf=b"%PDF-1.4 broken"))
    (folder / "b.md").write_text("Water.")
    (folder / "c.pdf").write_bytes(b"%PDF-1.4 broken")

    shown = run("index", str(folder), code=1).stdout
    assert shown.startswith("2 files indexed, 2 files inside them, 4 chunks, 2 failed in ")
    assert "\n2 failed:\n" in shown
    lines = shown.splitlines()
    start = lines.index("type  indexed  failed")
    assert [["md", "3"], ["pdf", "2"], ["eml", "1"]] == [
        line.split() for line in lines[start + 1 : start + 4]
    ]

    again = run("index", str(folder)).stdout
    assert again.startswith("0 files indexed, 2 unchanged, 2 cannot be read (unchanged) in ")
    assert "\n2 cannot be read (unchanged since" in again

    counts = ask("index", "--force", str(folder), code=1)["counts"]
    names = ("indexed", "failed", "inside_indexed", "inside_failed")
    assert [2, 1, 2, 1] == [counts[name] for name in names]


def test_a_mail_alone_names_what_is_inside(run: Run, tmp_path: Path):
    path = tmp_path / "a.eml"
    path.write_bytes(mail(good__md=b"Flour.", bad__pdf=b"%PDF-1.4 broken"))
    shown = run("index", str(path), code=1).stdout
    assert shown.startswith("Indexed: 1 chunk, 1 embedded, 1 file inside it, 1 failed in ")
