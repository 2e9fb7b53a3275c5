"""Hits as a person reads them: on terminals of several widths, without colours, in a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Penstock, config
from penstock.cli.output import cells_wide

STYLE = re.compile(r"\x1b\[[\d;]*m")
WORDS = "The wheel of the mill turns in the river, and the miller opens the gate in the morning. "
HOSTILE = "Wheel \x1b[2J\x1b]0;owned\x07 \x9b31m \u202eright to left \x08\x08 of the mill\n"
OTHERS = {
    "tax.txt": "Interest is charged on late payments.",
    "post.txt": "Letters are sorted before noon.",
    "council.txt": "The council met on Tuesday.",
    "choir.txt": "The choir sings in spring.",
    "trains.txt": "Trains leave from platform nine.",
}
Shown = Callable[..., str]


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("page").resolve()
    folder = base / "my docs"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "mill.md").write_text(f"# {'The mill and its wheel ' * 6}\n\n{WORDS * 4}\n")
    (folder / "copy.txt").write_text("A wheel, twice.\n")
    (folder / "deep" / "copy.txt").write_text("A wheel, twice.\n")
    (folder / "east.md").write_text("# 水車\n\nwheel " + "水車小屋は川のほとりにあります。" * 12)
    (folder / "hostile.txt").write_text(HOSTILE)
    for name, text in OTHERS.items():
        (folder / name).write_text(text)
    with Penstock(settings=config.load({}, state_dir=base / "state")) as app, app.worker_thread():
        app.wait(app.index(folder).job_id, timeout=60)
    return base


@pytest.fixture
def shown(indexed: Path) -> Shown:
    """Run a search on a terminal of ``columns`` columns (None: in a pipe); return what was printed."""

    def run(*arguments: str, columns: int | None = None, cwd: Path | None = None, **more: str) -> str:
        unwanted = ("COLUMNS", "NO_COLOR", "PENSTOCK_URL")
        environment = {name: value for name, value in os.environ.items() if name not in unwanted}
        environment |= {"PENSTOCK_STATE": str(indexed / "state"), "TERM": "xterm"} | more
        command = [sys.executable, "-m", "penstock", "search", *arguments]
        there = cwd or indexed
        if columns is None:
            return subprocess.run(
                command, env=environment, cwd=there, check=True, text=True, capture_output=True, timeout=60
            ).stdout
        return _on_terminal(command, environment, there, columns)

    return run


def _on_terminal(command: list[str], environment: dict[str, str], there: Path, columns: int) -> str:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    with subprocess.Popen(command, env=environment, cwd=there, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        read = b""
        while piece := _piece(ours):
            read += piece
        assert 0 == process.wait(60)
    os.close(ours)
    return read.decode().replace("\r\n", "\n")


def _piece(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:
        # The last writer has closed its end.
        return b""


@pytest.mark.parametrize("columns", [60, 100, 200])
def test_lines_fit_the_terminal(shown: Shown, columns: int):
    page = shown("mill", "wheel", "--weak", "--explain", columns=columns)

    lines = [STYLE.sub("", line) for line in page.splitlines()]
    assert [] == [line for line in lines if cells_wide(line) > columns]
    assert max(cells_wide(line) for line in lines) > columns - 30
    assert "\x1b[33m\x1b[1mwheel" in page
    assert "水車" in page


def test_nothing_of_a_document_drives_the_terminal(shown: Shown):
    page = shown("hostile", "wheel", "owned", "--path", "*hostile*", columns=100)

    assert STYLE.sub("", page).replace("\n", "").isprintable()
    assert "of the mill" in STYLE.sub("", page)


@pytest.mark.parametrize("setting", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colour_where_none_is_wanted(shown: Shown, setting: dict[str, str]):
    page = shown("wheel", columns=60, **setting)

    assert "deep/mill.md:1\n" in page
    assert "\x1b" not in page


def test_an_empty_no_color_changes_nothing(shown: Shown):
    assert "\x1b[1m" in shown("wheel", "--limit", "1", columns=60, NO_COLOR="")


def test_paths_below_the_current_directory_are_relative(shown: Shown, indexed: Path):
    inside = shown("mill", "river", "--limit", "1")
    deeper = shown("mill", "river", "--limit", "1", cwd=indexed / "my docs" / "deep")
    outside = shown("mill", "river", "--limit", "1", cwd=indexed / "state")

    assert " 1. my docs/deep/mill.md:1\n" == inside.splitlines(True)[0]
    assert " 1. mill.md:1\n" == deeper.splitlines(True)[0]
    assert f" 1. {indexed}/my docs/deep/mill.md:1\n" == outside.splitlines(True)[0]


def test_in_a_pipe_lines_are_whole_and_copies_are_one_hit(shown: Shown):
    page = shown("wheel", "twice", "--limit", "2")

    assert "\x1b" not in page
    first = page.split("\n\n")[0].splitlines()
    assert {" 1. my docs/copy.txt:1", " 1. my docs/deep/copy.txt:1"} & {first[0]}
    assert re.fullmatch(r"    also in my docs/(deep/)?copy\.txt:1", first[2])


def test_weak_matches_stand_apart(shown: Shown):
    some = shown("mill wheel due on time")
    every = shown("mill wheel due on time", "--weak")
    none = shown("school holiday calendar")

    assert re.search(r"\n\n\d weak match(es)? not shown; --weak shows (it|them)\.\n$", some)
    assert "tax.txt" not in some
    heading = "Weak matches: they share few words with the query and are far from it in meaning.\n\n"
    assert "tax.txt" in every.partition(heading)[2]
    assert none.startswith(f"Only w{heading[1:]} 1. ")
    assert 3 == len(re.findall(r"^ \d\. ", none, re.MULTILINE))
    assert re.search(r"\n\n\d more weak match(es)? not shown; --weak shows (it|them)\.\n$", none)


def test_scores_are_shown_on_request(shown: Shown):
    plain = shown("wheel", "twice", "--limit", "1")
    explained = shown("wheel", "twice", "--limit", "1", "--explain")

    assert "score" not in plain
    ranks = r"keyword rank 1; vector rank \d, similarity \d\.\d\d"
    assert re.search(rf"    score \d\.\d{{4}}: {ranks}; 2 of 2 words \(wheel, twice\)\n", explained)
