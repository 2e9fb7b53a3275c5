"""``penstock note``: ids, ``list``, ``show``, standard input and hostile texts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from penstock import Penstock
from tests.cli.conftest import Run

Ask = Callable[..., Any]


@pytest.fixture
def state(state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_EMBEDDER", "hashing")
    monkeypatch.setenv("PENSTOCK_SQLITE_SYNCHRONOUS", "NORMAL")
    return state


@pytest.fixture
def quick(state: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Result]]:
    """Run a command that queues a job, and then the job in a thread of this process."""
    with Penstock(state_dir=state) as app:

        def quick(*arguments: str, **more: Any) -> Result:
            with monkeypatch.context() as stopped:
                stopped.setenv("PENSTOCK_QUEUE_ENABLED", "false")
                result = run("--json", "note", *arguments, **more)
            if not result.exit_code:
                with app.worker_thread():
                    app.wait(json.loads(result.stdout)["job_id"], timeout=120)
            return result

        yield quick


def listed(ask: Ask, *options: str) -> list[dict[str, Any]]:
    notes: list[dict[str, Any]] = ask("note", "list", *options)["notes"]
    return notes


def test_the_id_is_printed_and_shows_lists_and_replaces_the_note(run: Run, ask: Ask):
    added = run("note", "The gate sticks.", "--tag", "mill/gate").stdout
    match = re.fullmatch(r"Note added: (\S+)\n", added)
    assert match, added
    note_id = match[1]

    assert note_id in run("note", "list").stdout
    shown = run("note", "show", note_id).stdout
    assert "mill/gate" in shown
    assert shown.endswith("\nThe gate sticks.\n")
    replaced = ask("note", "The gate runs.", "--update", note_id)
    assert (note_id, "done") == (replaced["note_id"], replaced["status"])
    (note,) = listed(ask)
    assert (note_id, "The gate runs.", ["mill/gate"]) == (note["note_id"], note["title"], note["tags"])


def test_an_update_keeps_the_tags_unless_told_otherwise(run: Run, ask: Ask, quick: Run):
    quick("Oil the axle.", "--tag", "mill/winter")
    (note,) = listed(ask)

    for options, tags in (([], ["mill/winter"]), (["--tag", "axle"], ["axle"]), (["--no-tag"], [])):
        quick("Grease the axle.", "--update", note["note_id"], *options)
        assert tags == ask("note", "show", note["note_id"])["tags"], options
    for options in (["--no-tag"], ["--no-tag", "--tag", "a", "--update", note["note_id"]]):
        assert "--no-tag" in run("note", "Text.", *options, code=2).stderr


def test_standard_input_is_the_text(ask: Ask, quick: Run):
    quick("-", stdin="First line.\nSecond line.\n")
    quick("First line.\nSecond line.")

    (note,) = listed(ask)
    assert "First line.\nSecond line." == ask("note", "show", note["note_id"])["text"]


@pytest.mark.parametrize(
    ("stdin", "code", "message"),
    [
        (b"", "ERR_INVALID_REQUEST", "empty"),
        (b" \n\n", "ERR_INVALID_REQUEST", "empty"),
        (b"\x89PNG\r\n\x1a\n\xff", "ERR_INVALID_REQUEST", "not UTF-8"),
        (b"a\x00b", "ERR_INVALID_TEXT", "NUL"),
        (b"a" * 2_000, "ERR_PAYLOAD_TOO_LARGE", "1,024 bytes"),
    ],
)
def test_standard_input_that_is_no_text_is_refused(
    run: Run, ask: Ask, monkeypatch: pytest.MonkeyPatch, stdin: bytes, code: str, message: str
):
    monkeypatch.setenv("PENSTOCK_MAX_PAYLOAD_BYTES", "1024")
    refused = run("note", "-", stdin=stdin, code=1)

    assert code in refused.stderr
    assert message in refused.stderr
    assert [] == ask("jobs")["jobs"]


def test_words_of_commands_can_be_texts(run: Run, ask: Ask, quick: Run):
    assert "Missing argument 'ID'" in run("note", "show", code=2).stderr
    for arguments in (["add", "list"], ["--", "show"], ["list of parts"], ["--tag", "a", "add"]):
        quick(*arguments)

    assert ["add", "list of parts", "show", "list"] == [note["title"] for note in listed(ask)]
    assert ["add"] == [note["title"] for note in listed(ask, "--tag", "a")]


def test_notes_of_another_tenant_are_not_shown_changed_or_removed(run: Run, ask: Ask, quick: Run):
    quick("The gate sticks.", "--tenant", "acme")
    assert [] == listed(ask)
    (note,) = listed(ask, "--tenant", "acme")

    assert "ERR_UNKNOWN_DOCUMENT" in run("note", "show", note["note_id"], code=4).stderr
    quick("Stolen.", "--update", note["note_id"])
    quick(note["note_id"], "--delete")

    assert ["failed", "failed"] == [job["status"] for job in ask("jobs", "--limit", "2")["jobs"]]
    assert "The gate sticks." == ask("note", "show", note["note_id"], "--tenant", "acme")["text"]


def test_pages_of_notes_are_newest_first(ask: Ask, quick: Run):
    for text in ("one", "two", "three"):
        quick(text)

    page = ask("note", "list", "--limit", "2")
    assert ["three", "two"] == [note["title"] for note in page["notes"]]
    rest = ask("note", "list", "--after", page["next"])
    assert (["one"], None) == ([note["title"] for note in rest["notes"]], rest["next"])


@pytest.mark.parametrize(
    ("width", "header"), [(60, "id note"), (70, "id changed note"), (90, "id changed tags note")]
)
def test_an_id_is_never_cut_on_a_narrow_terminal(
    run: Run, quick: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, width: int, header: str
):
    quick("The gate sticks when it freezes, and the wheel stands still.", "--tag", "mill/winter")
    for name, value in (("FORCE_COLOR", "1"), ("NO_COLOR", "1"), ("COLUMNS", str(width))):
        monkeypatch.setenv(name, value)

    first, line = run("note", "list").stdout.splitlines()

    assert header.split() == first.split()
    assert re.match(r"[0-9a-f-]{36}  ", line)
    assert "The gate sticks w" in line
    assert len(line) <= width


def test_a_narrow_terminal_shows_the_beginning_of_a_note(
    run: Run, quick: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
):
    quick("The gate sticks when it freezes, and the wheel stands still.", "--tag", "mill/winter")
    for name, value in (("FORCE_COLOR", "1"), ("NO_COLOR", "1"), ("COLUMNS", "60")):
        monkeypatch.setenv(name, value)

    assert re.search("  The gate.*…$", run("jobs").stdout.splitlines()[1])
    found = run("search", "gate").stdout.splitlines()
    assert " 1. note: The gate sticks when it freezes, and the wheel" == found[0]
    assert max(map(len, found)) <= 60


def test_a_note_left_by_the_worker_of_another_command_is_done_here(run: Run, monkeypatch: pytest.MonkeyPatch):
    """A worker lives when the note is given, and has ended when the wait for it is over."""
    alive = iter([True, False])
    monkeypatch.setattr("penstock.worker.liveness_lock.any_worker_alive", lambda _: next(alive))
    monkeypatch.setattr("penstock.cli.notes.WAIT_S", 0.0)

    assert run("note", "The gate sticks.").stdout.startswith("Note added: ")
