"""Races: two actions at once, or a crash between two steps."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from penstock.catalog.values import OutboxEntryKind, Phase, Place, TaskRequest
from penstock.pipeline.embed.static import HashingEmbedder
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, Status
from penstock.worker.lanes import DocumentNotifier
from tests.documents.conftest import IndexedFolder, book
from tests.documents.killed_worker import POINTS, served
from tests.pipeline.sample_documents import pdf

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@pytest.mark.parametrize("point", [point for point in POINTS if point != "-" and "recogni" not in point])
def test_a_crash_at_a_named_point_is_made_good_by_the_next_worker(docs: IndexedFolder, point: str):
    path = docs.put("book.md", book(300))
    receipt = docs.app.index(path)

    assert -signal.SIGKILL == served(docs.app.settings, receipt.job_id, point)
    assert 0 == served(docs.app.settings, receipt.job_id)

    job = docs.app.job(receipt.job_id)
    assert (Status.DONE, True) == (job.status, job.result["outcome"] in ("indexed", "unchanged"))
    assert ["book.md"] == docs.found("subject277", mode="keyword")
    assert [] == docs.app.documents.catalog.outbox(OutboxEntryKind.JOB)
    assert [] == docs.open_tasks()


def test_a_document_quicker_than_its_jobs_settlement_is_told_of_when_the_job_waits(docs: IndexedFolder):
    with docs.manual_worker() as worker:
        docs.app.index(docs.put("book.md", book(300)))
        (claim,) = docs.app.queue.claim(ClaimRequest("w", 1, timedelta(seconds=60)))
        (answer,) = worker.files([claim])
        worker.run_tasks()

        DocumentNotifier(docs.app.queue, worker.catalog).process_outbox()
        assert 1 == len(worker.catalog.outbox(OutboxEntryKind.JOB))

        docs.app.queue.settle([transitions.waits(claim, answer.waiting_for)])
        DocumentNotifier(docs.app.queue, worker.catalog).process_outbox()

        assert Status.DONE is docs.app.job(claim.queue_id).status
        assert [] == worker.catalog.outbox(OutboxEntryKind.JOB)


@pytest.mark.parametrize("what", ["changed", "gone"])
def test_a_file_that_changes_before_its_pages_are_read_is_read_anew(docs: IndexedFolder, what: str):
    path = docs.put("paper.pdf", pdf(*(f"Old words of page {number}." for number in range(40))))
    with docs.manual_worker() as worker:
        receipt = docs.app.index(path)
        assert Status.IN_PROGRESS is worker.run_jobs()
        if what == "gone":
            path.unlink()
        else:
            path.write_bytes(pdf(*(f"New words of page {number}." for number in range(40))))
        worker.run_tasks()

    job = docs.finish(receipt.job_id)

    if what == "gone":
        assert (Status.FAILED, "ERR_FILE_NOT_FOUND") == (job.status, job.error_code)
        assert [] == docs.found("words", mode="keyword")
    else:
        assert (Status.DONE, 40) == (job.status, job.result["pages"])
        assert [] == docs.found("old", mode="keyword")
        assert ["paper.pdf"] == docs.found("new", mode="keyword")


def test_a_delete_while_its_tasks_run_wins(docs: IndexedFolder):
    path = docs.put("book.md", book(300))
    with docs.manual_worker() as worker:
        receipt = docs.app.index(path)
        worker.run_jobs()
        tasks = worker.catalog.claim(TaskRequest(Phase.VECTOR, "w", 64))
        docs.app.submit(item_type="folder", op="delete", payload={"folder_path": str(docs.folder)})
        worker.catalog.settle(worker.phases.run(Phase.VECTOR, tasks[:32]))
        worker.run_jobs()
        late = worker.catalog.settle(worker.phases.run(Phase.VECTOR, tasks[32:]))
        worker.run_tasks()

    job = docs.finish(receipt.job_id)

    assert {None} == set(late)
    assert (Status.DONE, "removed") == (job.status, job.result["outcome"].partition(" ")[0])
    assert [] == docs.found("subject7")


@pytest.mark.parametrize("how", ["cancelled", "out of time"])
def test_a_job_given_up_while_it_waits_takes_its_document_along(docs: IndexedFolder, how: str):
    docs.put("mill.md", "Water drives the wheel.")
    docs.index()
    docs.put("mill.md", book(300))
    with docs.manual_worker() as worker:
        receipt = docs.app.index(docs.folder / "mill.md")
        worker.run_jobs()
        if how == "cancelled":
            docs.app.cancel(receipt.job_id)
        else:
            docs.app.queue.settle([transitions.timed_out(docs.app.job(receipt.job_id))])
        worker.run_tasks()

        assert docs.app.job(receipt.job_id).ended
        assert [] == docs.open_tasks()
    # The published generation stays.
    assert ["mill.md"] == docs.found("wheel", mode="keyword")
    assert [] == docs.found("subject7", mode="keyword")


class Meanwhile(HashingEmbedder):
    """Run an action between reading and storing."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act = act

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        self._act()
        return super().embed(texts)


@pytest.mark.parametrize("what", ["moved", "gone"])
def test_a_file_that_leaves_while_it_is_read_is_not_found_where_it_was(docs: IndexedFolder, what: str):
    old = docs.put("old.md", "Water drives the wheel.")

    def leave() -> None:
        if what == "gone":
            old.unlink(missing_ok=True)
        elif old.exists():
            old.rename(docs.folder / "new.md")
            # A walk at this moment finds nothing to remove.
            docs.index()

    with docs.manual_worker(Meanwhile(leave)) as worker:
        receipt = docs.app.index(old)
        worker.run_jobs()

    assert "removed" == docs.app.job(receipt.job_id).result["outcome"]
    assert (["new.md"] if what == "moved" else []) == docs.found("wheel", mode="keyword")


@pytest.mark.parametrize("swapped", ["", "inner"])
def test_a_root_that_became_a_link_is_refused_and_tells_no_names(docs: IndexedFolder, swapped: str):
    """The folder was checked when it was named; what stands in its place now was not."""
    docs.put("root/inner/mill.md", "the wheel turns")
    docs.put("root/inner/tune.mp3", "x")
    secret = docs.put("secret/inner/letter-to-ada.mp3", "x").parents[1]
    root = docs.folder / "root" / "inner"
    assert Status.DONE is docs.index(root).status
    receipt = docs.app.index(root, force=True)
    place = docs.folder / "root" / swapped
    place.rename(docs.folder / "away")
    place.symlink_to(secret / swapped)

    job = docs.finish(receipt.job_id)

    assert (Status.FAILED, "ERR_UNSUPPORTED_TYPE") == (job.status, job.error_code)
    assert "link" in str(job.error_message)
    assert ["mill.md"] == docs.found("wheel")
    with docs.app.documents.catalog.snapshot() as snapshot:
        skipped = [entry.path for entry in snapshot.ledger(Place("default", "default"))]
    assert [str(root / "tune.mp3")] == skipped
