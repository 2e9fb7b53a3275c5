"""``index``, ``search``, ``jobs``, ``status``, ``why``, ``documents``, ``note`` and ``retry``."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, clock
from penstock.queue.payloads import LARGEST_CHUNK, SMALLEST_CHUNK
from tests.cli.conftest import Run
from tests.pipeline.sample_documents import PIXEL, pdf
from tests.signals import hear
from tests.worker.worker_processes import alive, children_of, until

Ask = Callable[..., Any]


@pytest.fixture
def state(state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_EMBEDDER", "hashing")
    monkeypatch.setenv("PENSTOCK_SQLITE_SYNCHRONOUS", "NORMAL")
    monkeypatch.setenv("COLUMNS", "160")
    return state


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "docs"
    (made / "deep").mkdir(parents=True)
    (made / "mill.md").write_text("# The mill\n\nWater drives the wheel.")
    (made / "deep" / "gate.txt").write_text("The gate holds the water back.")
    return made


@pytest.fixture
def troubled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_OCR", "false")
    (folder / "liar.txt").write_bytes(b"\x7fELF" + bytes(range(256)))
    (folder / "tool.py").write_text("print('mill')")
    (folder / "paper.pdf").write_bytes(pdf("Words of page one.", PIXEL, "Words of page three."))
    return folder


def test_index_works_here_and_search_finds(run: Run, ask: Ask, folder: Path):
    done = run("index", str(folder))

    assert re.fullmatch(r"2 files indexed, 2 chunks in \d+\.\d s\.\n", done.stdout)
    assert ["Job queued!", "Job ID:", "Queue Position: 1 of 1"] == [
        line[: len(start)]
        for line, start in zip(
            done.stderr.splitlines(), ["Job queued!", "Job ID:", "Queue Position: 1 of 1"], strict=True
        )
    ]
    shown = run("search", "wheel", "--mode", "keyword").stdout
    assert f" 1. {folder}/mill.md:1\n    The mill\n" in shown
    assert "Water drives the wheel." in shown
    (hit,) = ask("search", "wheel", "--mode", "keyword")["hits"]
    assert (str(folder / "mill.md"), 1, "Water drives the **wheel**.") == (
        hit["path"],
        hit["first_line"],
        hit["snippet"].splitlines()[-1],
    )
    assert "Nothing found.\n" == run("search", "zebra", "--mode", "keyword").stdout
    part = {"tenant_id": "default", "project": None, "branch": None, "notes_only": False}
    covered = {"parts": [part], "everything": False}
    nothing = {"hits": [], "words": ["zebra"], "corrections": [], "notes": [], "covered": covered}
    assert nothing == ask("search", "zebra", "--mode", "keyword")


def test_the_second_time_and_what_changed_meanwhile(run: Run, folder: Path):
    run("index", str(folder))
    (folder / "mill.md").write_text("Wind.")
    (folder / "deep" / "gate.txt").unlink()

    assert "1 file indexed, 1 chunk, 1 vanished in" in run("index", str(folder)).stdout
    assert "0 files indexed, 1 unchanged in" in run("index", str(folder)).stdout


def test_one_result_document_at_the_end(ask: Ask, troubled: Path):
    result = ask("index", str(troubled), "--wait", code=1)

    assert ("failed", 1) == (result["status"], result["counts"]["failed"])
    assert (4, 4, 1) == tuple(result["counts"][name] for name in ("added", "seen", "skipped"))
    (failure,) = result["failures"]
    assert (str(troubled / "liar.txt"), "ERR_UNSUPPORTED_TYPE") == (failure["path"], failure["code"])


def test_failures_are_named_with_their_cause(run: Run, troubled: Path):
    done = run("index", str(troubled), code=1)

    assert "3 files indexed, 4 chunks, 1 failed in" in done.stdout
    assert "\n1 source file left out (--include-code).\n" in done.stdout
    assert (
        "\n1 failed:\n  ERR_UNSUPPORTED_TYPE, 1 file: Convert the file to a supported type, or leave it out; "
        "docs/guides/documents.md lists them.\n    liar.txt: 'liar.txt' holds an ELF program, not text\n"
    ) in done.stdout
    assert "penstock retry" not in done.stdout
    assert "--retry-failed" in done.stdout


def test_failures_of_an_earlier_run_are_told_apart_and_end_with_other_codes(
    run: Run, ask: Ask, troubled: Path
):
    run("index", str(troubled), code=1)

    again = run("index", str(troubled))

    assert "0 files indexed, 3 unchanged, 1 cannot be read (unchanged) in" in again.stdout
    assert re.search(r"\n1 cannot be read \(unchanged since \d{4}-\d\d-\d\d \d\d:\d\d UTC\):\n", again.stdout)
    assert "liar.txt: 'liar.txt' holds an ELF program, not text" in again.stdout
    told = ask("index", str(troubled))
    assert ([], ["ERR_UNSUPPORTED_TYPE"]) == (
        told["failures"],
        [one["code"] for one in told["failed_before"]],
    )
    assert "1 failed before" in run("index", str(troubled), "--dry-run").stdout
    verified = run("verify").stdout
    assert "Everything matches." in verified
    assert "1 file cannot be read:\n  ERR_UNSUPPORTED_TYPE, 1 file: " in verified
    assert re.search(r"liar\.txt +0 +0 +failed ", run("documents", "list").stdout)
    assert "Failed    ERR_UNSUPPORTED_TYPE: " in run("documents", "show", str(troubled / "liar.txt")).stdout
    assert "not read again" in run("index", str(troubled / "liar.txt"), code=8).stdout
    (troubled / "torn.pdf").write_bytes(b"%PDF-1.4")
    both = run("index", str(troubled), code=1).stdout
    assert ("\n1 failed:\n" in both, "\n1 cannot be read (unchanged since" in both) == (True, True)
    assert "\n2 failed:\n" in run("index", str(troubled), "--retry-failed", code=1).stdout


def test_why_tells_of_a_path_and_of_all_below_a_folder(run: Run, ask: Ask, troubled: Path):
    run("index", str(troubled), code=1)

    whole = ask("why", str(troubled))
    assert ("folder", {"indexed": 2, "partial": 1, "failed": 1, "skipped": 1}) == (
        whole["verdict"],
        whole["counts"],
    )
    assert ["liar.txt", "paper.pdf", "tool.py"] == [Path(one["path"]).name for one in whole["below"]]
    shown = run("why", str(troubled)).stdout
    assert "2 indexed, 1 partial, 1 failed, 1 skipped" in shown
    assert "skipped  tool.py" in shown
    partial = run("why", str(troubled / "paper.pdf")).stdout
    assert "page 2: ERR_NO_TEXT: no text, OCR needed" in partial
    verdicts = {
        name: ask("why", str(troubled / name))["verdict"] for name in ("mill.md", "liar.txt", "no.md")
    }
    assert {"mill.md": "indexed", "liar.txt": "failed", "no.md": "unknown"} == verdicts


def test_documents_listed_shown_and_taken_apart(
    run: Run, ask: Ask, troubled: Path, monkeypatch: pytest.MonkeyPatch
):
    run("index", str(troubled), code=1)
    paper = str(troubled / "paper.pdf")

    with monkeypatch.context() as patched:
        # Both tell how long ago each was indexed.
        moment = clock.now()
        patched.setattr(clock, "now", lambda: moment)
        assert run("documents").stdout == run("documents", "list").stdout
    assert f"{paper} (partial)" in run("documents", "list").stdout
    listed = ask("documents", "list", "--limit", "2")
    assert 2 == len(listed["documents"])
    rest = ask("documents", "list", "--after", listed["next"])
    # Three in search, and one that cannot be read.
    assert (2, None) == (len(rest["documents"]), rest["next"])
    assert "3 pages, 2 chunks" in run("documents", "show", paper).stdout
    shown = ask("documents", "show", paper)
    assert ("published", True) == (shown["generations"][0]["state"], shown["document"]["partial"])
    assert shown == ask("documents", "show", shown["document"]["source_id"])
    assert re.search(r"2 +0 +failed +skipped +skipped +ERR_NO_TEXT", run("documents", "tree", paper).stdout)
    tree = ask("documents", "tree", paper)
    assert ["completed", "failed", "completed"] == [page["phases"]["ocr"]["status"] for page in tree["pages"]]
    assert "ERR_UNKNOWN_DOCUMENT" == ask("documents", "show", "nobody", code=4)["error"]["code"]


def test_jobs_and_status(run: Run, ask: Ask, app: Penstock, troubled: Path):
    result = ask("index", str(troubled), "--wait", code=1)

    assert [result["job_id"]] == [job["job_id"] for job in ask("jobs")["jobs"]]
    assert f"folder ingest {troubled}" in run("jobs").stdout
    assert result["job_id"] in run("jobs", result["job_id"], "--watch").stdout
    status = ask("status")
    # The worker of the command has ended, and left no report.
    assert [] == status["queue"]["workers"]
    assert [] == app.queue.workers()
    (counts,) = status["documents"]["tenants"]
    assert (3, 1, 1) == tuple(counts[name] for name in ("sources", "partial", "failed"))
    assert re.search(r"default +default +main +3 +4 +1 +1\n", run("status").stdout)


def test_notes_are_shown_by_their_title(run: Run, ask: Ask):
    run("note", "The gate sticks when it freezes.", "--tag", "mill/gate")
    assert "done" == ask("note", "The oven smokes.")["status"]

    shown = run("search", "freezes", "--mode", "keyword").stdout
    assert " 1. note: The gate sticks when it freezes. (mill/gate)\n" in shown
    assert "note:" not in run("documents", "list").stdout
    assert 1 == len(ask("search", "smokes", "--mode", "keyword")["hits"])
    assert "Note removed.\n" == run("note", "The oven smokes.", "--delete").stdout
    assert "ERR_UNKNOWN_DOCUMENT" in run("note", "Never kept.", "--delete", code=1).stdout

    (note,) = ask("documents", "list")["documents"]
    replaced = run("note", "The gate runs.", "--update", note["source_id"]).stdout
    assert f"Note replaced: {note['source_id']}\n" == replaced
    assert "no note nobody in collection" in run("note", "More.", "--update", "nobody", code=1).stdout
    assert ["indexed", "renamed", "updated"] == [
        entry["what"] for entry in ask("documents", "history", note["source_id"])["history"]
    ]
    assert "Note removed: " in run("note", note["source_id"], "--delete").stdout
    assert "removed" in run("documents", "history", note["source_id"]).stdout
    assert "ERR_UNKNOWN_DOCUMENT" in run("documents", "history", "nobody", code=4).stderr


def test_retry_reads_only_what_failed(run: Run, ask: Ask, troubled: Path):
    job = ask("index", str(troubled), "--wait", code=1)["job_id"]
    (troubled / "liar.txt").write_text("Nothing but the truth.")

    assert f"{job}: queued again\n" == run("retry", job).stdout
    again = ask("index", str(troubled), "--wait")

    assert (job, "done", 0) == (again["job_id"], again["status"], again["counts"]["failed"])
    assert 1 == len(ask("search", "truth", "--mode", "keyword")["hits"])


def test_what_cannot_be_indexed_says_so(run: Run, ask: Ask, folder: Path, tmp_path: Path):
    missing = run("index", str(folder / "nowhere"), code=1).stderr
    assert "No such file or directory (ERR_PATH_NOT_FOUND)" in missing
    assert "ERR_PATH_NOT_FOUND" == ask("index", "/dev/null", code=1)["error"]["code"]
    empty = tmp_path / "empty"
    empty.mkdir()
    refused = run("index", str(empty), code=1).stdout
    assert "the folder holds nothing to index (ERR_NOTHING_TO_INDEX) in" in refused
    assert "NothingToIndex" not in refused
    run("index", str(empty), "--allow-empty")
    assert "is empty (ERR_INVALID_REQUEST)" in run("search", " ", code=1).stderr
    run("index", str(folder), "--depth", "0", code=2)
    before = ask("jobs")
    for size in (SMALLEST_CHUNK - 1, LARGEST_CHUNK + 1, 3):
        refused = run("index", str(folder), "--chunk-size", str(size), code=2).stderr
        assert f"'--chunk-size': {size} is not in the range 16<=x<=8192" in refused
    for sizes in (["257"], ["9", "--chunk-size", "16"]):
        refused = run("index", str(folder), "--chunk-overlap", *sizes, code=2).stderr
        assert f"--chunk-overlap {sizes[0]} is more than half of --chunk-size" in refused
    assert before == ask("jobs")


def test_a_preview_writes_nothing(run: Run, ask: Ask, troubled: Path):
    assert (4, 4, {"code": 1}) == tuple(
        ask("index", str(troubled), "--dry-run")[name] for name in ("files", "new", "skipped")
    )
    assert "4 files" in run("index", str(troubled), "--dry-run").stdout
    assert [] == ask("jobs")["jobs"]


def test_only_queued(run: Run, ask: Ask, folder: Path):
    first = ask("index", str(folder), "--no-wait")
    second = ask("index", str(folder), "--no-wait")

    assert ("pending", False, True) == (first["status"], first["dedupe_hit"], second["dedupe_hit"])
    assert "Duplicate: job" in run("index", str(folder), "--no-wait").stderr
    assert "The same job was queued before; it runs now." in run("index", str(folder)).stderr
    assert "done" == ask("jobs", first["job_id"])["status"]


def _take_terminal() -> None:
    hear()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A command on a pseudo-terminal, with simulated key presses."""

    def __init__(self, state: Path, *arguments: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, b"\x18\x00\xa0\x00\x00\x00\x00\x00")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "--state", str(state), *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=os.environ | {"TERM": "xterm"},
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(slave)
        os.set_blocking(self._master, False)
        self._seen = b""

    def seen(self) -> str:
        try:
            while piece := os.read(self._master, 65536):
                self._seen += piece
        except OSError:
            pass
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self._seen.decode(errors="replace"))

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def ended(self) -> int:
        until(lambda: (self.seen(), self.process.poll() is not None)[1])
        self.seen()
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self._master)


def test_a_terminal_shows_how_far_it_is_and_ctrl_c_leaves_work_to_the_next_run(
    run: Run, ask: Ask, state: Path, tmp_path: Path
):
    total = 5_000  # so that a loaded machine does not index all while the test looks at the terminal
    many = tmp_path / "many"
    many.mkdir()
    for number in range(total):
        (many / f"{number}.md").write_text(f"Water drives wheel {number}. " * 20)
    terminal = Terminal(state, "index", str(many))
    try:
        until(lambda: re.search(rf"[1-9][\d,]* of {total:,} files.* chunks", terminal.seen()))
        below = children_of(terminal.process.pid)
        terminal.type(b"\x03")

        assert 130 == terminal.ended()
    finally:
        terminal.close()
    assert "Stopped. The same command continues" in terminal.seen()
    assert "Traceback" not in terminal.seen()
    until(lambda: not alive(below))
    (job,) = ask("jobs")["jobs"]
    assert "running" == job["status"]
    before = ask("status")["documents"]["tenants"][0]["sources"]
    assert 0 < job["progress"]["files_processed"] <= before

    again = ask("index", str(many), "--wait")

    # Submitted again during the run: one more run follows, and reports what both did since.
    assert (job["job_id"], "done", True) == (again["job_id"], again["status"], again["resumed"])
    assert (total - before, again["counts"]["resumed"]) == (again["counts"]["indexed"], total - before)
    assert total == ask("status")["documents"]["tenants"][0]["sources"]
    assert json.loads(run("--json", "search", "1999", "--mode", "keyword").stdout)["hits"]


def test_an_index_that_is_cancelled_meanwhile_says_so(run: Run, ask: Ask, state: Path, folder: Path):
    run("queue", "pause", "--all")
    terminal = Terminal(state, "index", str(folder))
    try:
        job = until(lambda: ask("jobs")["jobs"])[0]
        run("cancel", job["job_id"])
        assert 1 == terminal.ended()
    finally:
        terminal.close()
    assert "Cancelled after" in terminal.seen()
    assert "indexed in" not in terminal.seen()


def test_watching_ends_with_ctrl_c(run: Run, state: Path, folder: Path):
    run("index", str(folder))
    terminal = Terminal(state, "jobs", "--watch")
    try:
        until(lambda: f"folder ingest {folder}" in terminal.seen())
        terminal.type(b"\x03")
        assert 130 == terminal.ended()
    finally:
        terminal.close()
    assert "Traceback" not in terminal.seen()


@pytest.mark.parametrize(
    "command",
    [
        ["documents", "show", "a\udcffb"],
        ["documents", "history", "a\udcffb"],
        ["search", "x", "--tenant", "\udcff"],
        ["documents", "list", "--path", "\udcff"],
        ["delete", "\udcff"],
    ],
)
def test_a_name_that_is_no_text_is_refused_in_one_line(run: Run, command: list[str]):
    refused = run(*command, code=1)

    assert refused.stderr.startswith("error: ")
    assert refused.stderr.count("\n") == 1


def test_a_note_is_replaced_or_forgotten_but_not_both(run: Run):
    assert "--update and --delete" in run("note", "Text.", "--update", "x", "--delete", code=2).stderr


def test_a_document_is_named_by_either_of_its_ids(run: Run, ask: Ask, folder: Path, app: Penstock):
    run("index", str(folder))
    (mill,) = (one for one in ask("documents", "list")["documents"] if one["path"].endswith("mill.md"))
    number = str(mill["published_id"])

    for document in (mill["source_id"], number):
        assert "Water drives the wheel." in run("documents", "show", document, "--page", "1").stdout
        assert "indexed" in run("documents", "history", document).stdout
        assert mill["source_id"] == app.documents.removal(document)["payload"]["document_id"]
    assert "no document '999999'" in run("documents", "show", "999999", code=4).stderr
    run("delete", number)
    assert "no document" in run("documents", "show", number, code=4).stderr


def test_a_file_called_like_a_number_is_meant_by_its_name(
    run: Run, folder: Path, app: Penstock, monkeypatch: pytest.MonkeyPatch
):
    (folder / "1").write_text("The first sack.")
    run("index", str(folder))
    monkeypatch.chdir(folder)

    assert str(folder / "1") == app.documents.removal("1")["payload"]["document_id"]
