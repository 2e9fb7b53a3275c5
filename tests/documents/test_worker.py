"""Real workers on documents: cancelled, out of time, and many tenants at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from penstock.queue.job import Status
from penstock.worker.shared_state import MOST_MEMBERS
from tests.documents.conftest import QUEUES, IndexedFolder, book
from tests.servers.stores import others_later
from tests.worker.worker_processes import PATIENCE_S, ROOT, children_of, until

pytestmark = pytest.mark.parametrize("docs", others_later(QUEUES, ["sqlite"]), indirect=True)

PROCESSES = 2
FORKED = ("--start-method", "fork")
"""Half the price of a child that imports all again, as those of `penstock index` do."""
FILES = 1_200
"""Three times as many as may be indexed after the cancel."""


def environment(docs: IndexedFolder) -> dict[str, str]:
    settings = docs.app.settings
    return os.environ | {
        "PENSTOCK_URL": settings.url,
        "PENSTOCK_CATALOG_URL": settings.catalog_url,
        "PENSTOCK_STATE": str(settings.state_dir),
        "PENSTOCK_EMBEDDER": "hashing",
        "PENSTOCK_SQLITE_SYNCHRONOUS": "NORMAL",
    }


@contextmanager
def worker(docs: IndexedFolder, processes: int = PROCESSES) -> Iterator[None]:
    command = [sys.executable, "-m", "penstock", "worker", "--processes", str(processes), *FORKED]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment(docs), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        below = children_of(process.pid)
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(60)
        for pid in below:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()


def many(docs: IndexedFolder, number: int, folder: str = "many") -> Path:
    for each in range(number):
        docs.put(f"{folder}/{each:05}.md", f"Water drives wheel {each}. " * 20)
    return docs.folder / folder


def published(docs: IndexedFolder) -> int:
    return docs.app.documents.overview().tenants[0].sources


def test_a_running_folder_is_cancelled_with_what_is_in_hand_and_what_is_there_can_be_found(
    docs: IndexedFolder,
):
    folder = many(docs, FILES)
    docs.put("many/book.md", book(300))
    receipt = docs.app.index(folder)
    with worker(docs):
        until(lambda: docs.found("water", mode="keyword"))
        docs.app.cancel(receipt.job_id)
        then = published(docs)
        until(lambda: docs.app.job(receipt.job_id).ended)
        until(lambda: not docs.open_tasks())
    assert Status.CANCELLED is docs.app.job(receipt.job_id).status
    assert {} == {
        status: n
        for status, n in docs.app.stats().by_status.items()
        if n and status in ("pending", "in_progress")
    }
    # Per process, one batch read and one claimed.
    assert 0 < published(docs) <= then + 2 * MOST_MEMBERS * PROCESSES
    assert [] == docs.audit()

    with worker(docs):
        again = docs.app.index(folder)
        assert Status.DONE is docs.app.wait(again.job_id, timeout=PATIENCE_S).status
    assert FILES + 1 == docs.app.documents.overview().tenants[0].sources


def test_the_same_command_goes_on_with_what_a_dead_worker_left_waiting(docs: IndexedFolder):
    """The folder waits for its file, and the file for its tasks: both appear to be in progress."""
    docs.put("book.md", book(260))
    docs.app.index(docs.folder)
    with docs.manual_worker() as worker:
        worker.run_jobs()
        worker.run_jobs()

    command = [sys.executable, "-m", "penstock", "index", str(docs.folder), "--wait", "--processes", "1"]
    ran = subprocess.run(
        command, cwd=ROOT, env=environment(docs), timeout=PATIENCE_S, capture_output=True, check=False
    )

    assert 0 == ran.returncode, ran.stderr
    assert ["book.md"] == docs.found("subject7", mode="keyword")


def test_a_file_that_takes_too_long_ends_with_that_reason_and_others_go_on(docs: IndexedFolder):
    slow = docs.put("slow.md", book(20_000))
    receipt = docs.app.submit(item_type="file", op="ingest", payload={"file_path": str(slow)}, timeout_s=1)
    with worker(docs, 1):
        job = docs.app.wait(receipt.job_id, timeout=PATIENCE_S)
        quick = docs.app.index(docs.put("quick.md", "Water."))
        assert Status.DONE is docs.app.wait(quick.job_id, timeout=PATIENCE_S).status
        until(lambda: not docs.open_tasks())

    assert (Status.FAILED, "ERR_JOB_TIMEOUT") == (job.status, job.error_code)
    assert [] == docs.found("subject7", mode="keyword")


def test_tenants_take_turns(docs: IndexedFolder):
    """The small folders of four tenants do not wait for the large one before them."""
    large = docs.app.index(many(docs, 5 * MOST_MEMBERS), tenant_id="large")
    small = [docs.app.index(many(docs, 20, f"small{n}"), tenant_id=f"small{n}") for n in range(4)]
    with worker(docs, 1):
        ended = [docs.app.wait(receipt.job_id, timeout=PATIENCE_S) for receipt in (*small, large)]
    assert {Status.DONE} == {job.status for job in ended}
    last = max(ended, key=lambda job: job.finished_at or job.updated_at)
    assert large.job_id == last.queue_id
    for number in range(4):
        assert 20 == len(docs.found("water", tenant_id=f"small{number}", mode="keyword", limit=50))


def test_a_worker_of_some_lanes_ends_when_these_are_empty(docs: IndexedFolder):
    """The other lanes still have work: vectors of a document, or another job."""
    receipt = docs.app.index(docs.put("book.md", book(260)))

    until_idle(docs, "jobs")
    assert docs.app.job(receipt.job_id).waiting
    note = docs.app.submit(item_type="content", op="ingest", payload={"content": "Water."})
    until_idle(docs, "ocr")

    assert docs.open_tasks()
    assert Status.PENDING is docs.app.job(note.job_id).status


def until_idle(docs: IndexedFolder, lanes: str) -> None:
    command = [sys.executable, "-m", "penstock", "worker", "--lanes", lanes, "--until-idle", *FORKED]
    subprocess.run(
        command, cwd=ROOT, env=environment(docs), timeout=PATIENCE_S, stdout=subprocess.DEVNULL, check=True
    )
