"""Real workers on documents: cancelled, out of time, and many tenants at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.job import Status
from penstock.worker.shared_state import MOST_MEMBERS
from tests.documents.conftest import IndexedFolder, book
from tests.worker.worker_processes import ROOT, children_of, until

PROCESSES = 2


def environment(desk: IndexedFolder) -> dict[str, str]:
    settings = desk.app.settings
    return os.environ | {
        "PENSTOCK_URL": settings.url,
        "PENSTOCK_CATALOG_URL": settings.catalog_url,
        "PENSTOCK_STATE": str(settings.state_dir),
        "PENSTOCK_EMBEDDER": "hashing",
        "PENSTOCK_SQLITE_SYNCHRONOUS": "NORMAL",
    }


@contextmanager
def worker(desk: IndexedFolder, processes: int = PROCESSES) -> Iterator[None]:
    command = [sys.executable, "-m", "penstock", "worker", "--processes", str(processes)]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment(desk), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        below = children_of(process.pid)
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        for pid in below:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()


def many(desk: IndexedFolder, number: int, folder: str = "many") -> Path:
    for each in range(number):
        desk.put(f"{folder}/{each:05}.md", f"Water drives wheel {each}. " * 20)
    return desk.folder / folder


def published(desk: IndexedFolder) -> int:
    return desk.app.documents.overview().tenants[0].sources


def test_a_running_folder_is_cancelled_with_what_is_in_hand_and_what_is_there_can_be_found(
    desk: IndexedFolder,
):
    folder = many(desk, 2_000)
    desk.put("many/book.md", book(300))
    receipt = desk.app.index(folder)
    with worker(desk):
        until(lambda: desk.found("water", mode="keyword"))
        desk.app.cancel(receipt.job_id)
        then = published(desk)
        until(lambda: desk.app.job(receipt.job_id).ended)
        until(lambda: not desk.open_tasks())
    assert Status.CANCELLED is desk.app.job(receipt.job_id).status
    assert {} == {
        status: n
        for status, n in desk.app.stats().by_status.items()
        if n and status in ("pending", "in_progress")
    }
    # A batch each process has read, and one it had claimed by then.
    assert 0 < published(desk) <= then + 2 * MOST_MEMBERS * PROCESSES
    assert [] == desk.audit()

    with worker(desk):
        again = desk.app.index(folder)
        assert Status.DONE is desk.app.wait(again.job_id, timeout=60).status
    assert 2_001 == desk.app.documents.overview().tenants[0].sources


def test_the_same_command_goes_on_with_what_a_dead_worker_left_waiting(desk: IndexedFolder):
    """The folder waits for its file, the file for its tasks: both look as if somebody had them in hand."""
    desk.put("book.md", book(260))
    desk.app.index(desk.folder)
    with desk.by_hand() as hand:
        hand.run_jobs()
        hand.run_jobs()

    command = [sys.executable, "-m", "penstock", "index", str(desk.folder), "--wait", "--processes", "1"]
    ran = subprocess.run(
        command, cwd=ROOT, env=environment(desk), timeout=60, capture_output=True, check=False
    )

    assert 0 == ran.returncode, ran.stderr
    assert ["book.md"] == desk.found("subject7", mode="keyword")


def test_a_file_that_takes_too_long_ends_with_that_reason_and_others_go_on(desk: IndexedFolder):
    slow = desk.put("slow.md", book(20_000))
    receipt = desk.app.submit(item_type="file", op="ingest", payload={"file_path": str(slow)}, timeout_s=1)
    with worker(desk, 1):
        job = desk.app.wait(receipt.job_id, timeout=30)
        quick = desk.app.index(desk.put("quick.md", "Water."))
        assert Status.DONE is desk.app.wait(quick.job_id, timeout=30).status
        until(lambda: not desk.open_tasks())

    assert (Status.FAILED, "ERR_JOB_TIMEOUT") == (job.status, job.error_code)
    assert [] == desk.found("subject7", mode="keyword")


def test_tenants_take_turns(desk: IndexedFolder):
    """The small folders of four tenants do not wait for the large one that came before them."""
    large = desk.app.index(many(desk, 1_500), tenant_id="large")
    small = [desk.app.index(many(desk, 20, f"small{n}"), tenant_id=f"small{n}") for n in range(4)]
    with worker(desk, 1):
        for receipt in small:
            assert Status.DONE is desk.app.wait(receipt.job_id, timeout=60).status
        assert not desk.app.job(large.job_id).ended
        assert Status.DONE is desk.app.wait(large.job_id, timeout=60).status
    for number in range(4):
        assert 20 == len(desk.found("water", tenant_id=f"small{number}", mode="keyword", limit=50))


def test_a_worker_of_some_lanes_ends_when_these_are_empty(desk: IndexedFolder):
    """Whatever is left in the others: a document's vectors, or another job."""
    receipt = desk.app.index(desk.put("book.md", book(260)))

    until_idle(desk, "jobs")
    assert desk.app.job(receipt.job_id).waiting
    note = desk.app.submit(item_type="content", op="ingest", payload={"content": "Water."})
    until_idle(desk, "ocr")

    assert desk.open_tasks()
    assert Status.PENDING is desk.app.job(note.job_id).status


def until_idle(desk: IndexedFolder, lanes: str) -> None:
    command = [sys.executable, "-m", "penstock", "worker", "--lanes", lanes, "--until-idle"]
    subprocess.run(
        command, cwd=ROOT, env=environment(desk), timeout=60, stdout=subprocess.DEVNULL, check=True
    )
