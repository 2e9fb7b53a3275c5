"""What two things at once, or a crash between two steps, must not break."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from penstock import lifecycle
from penstock.catalog.values import OutboxEntryKind, Phase, TaskRequest
from penstock.job import ClaimRequest, Status
from penstock.pipeline.embed.hash_embedder import HashingEmbedder
from penstock.worker.document_notifier import DocumentNotifier
from tests.documents.conftest import IndexedFolder, book
from tests.documents.killed_worker import POINTS, served
from tests.pipeline.sample_documents import pdf

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@pytest.mark.parametrize("point", [point for point in POINTS if point != "-"])
def test_a_crash_at_a_named_point_is_made_good_by_the_next_worker(desk: IndexedFolder, point: str):
    path = desk.put("book.md", book(300))
    receipt = desk.app.index(path)

    assert -signal.SIGKILL == served(desk.app.settings, receipt.job_id, point)
    assert 0 == served(desk.app.settings, receipt.job_id)

    job = desk.app.job(receipt.job_id)
    assert (Status.DONE, True) == (job.status, job.result["outcome"] in ("indexed", "unchanged"))
    assert ["book.md"] == desk.found("subject277", mode="keyword")
    assert [] == desk.app.documents.catalog.outbox(OutboxEntryKind.JOB)
    assert [] == desk.open_tasks()


def test_a_document_quicker_than_its_jobs_settlement_is_told_of_when_the_job_waits(desk: IndexedFolder):
    with desk.by_hand() as hand:
        desk.app.index(desk.put("book.md", book(300)))
        (claim,) = desk.app.queue.claim(ClaimRequest("w", 1, timedelta(seconds=60)))
        (answer,) = hand.files([claim])
        hand.run_tasks()

        DocumentNotifier(desk.app.queue, hand.catalog).process_outbox()
        assert 1 == len(hand.catalog.outbox(OutboxEntryKind.JOB))

        desk.app.queue.settle([lifecycle.waits(claim, answer.waiting_for)])
        DocumentNotifier(desk.app.queue, hand.catalog).process_outbox()

        assert Status.DONE is desk.app.job(claim.queue_id).status
        assert [] == hand.catalog.outbox(OutboxEntryKind.JOB)


@pytest.mark.parametrize("what", ["changed", "gone"])
def test_a_file_that_changes_before_its_pages_are_read_is_read_anew(desk: IndexedFolder, what: str):
    path = desk.put("paper.pdf", pdf(*(f"Old words of page {number}." for number in range(40))))
    with desk.by_hand() as hand:
        receipt = desk.app.index(path)
        assert Status.IN_PROGRESS is hand.run_jobs()
        if what == "gone":
            path.unlink()
        else:
            path.write_bytes(pdf(*(f"New words of page {number}." for number in range(40))))
        hand.run_tasks()

    job = desk.finish(receipt.job_id)

    if what == "gone":
        assert (Status.FAILED, "ERR_FILE_NOT_FOUND") == (job.status, job.error_code)
        assert [] == desk.found("words", mode="keyword")
    else:
        assert (Status.DONE, 40) == (job.status, job.result["pages"])
        assert [] == desk.found("old", mode="keyword")
        assert ["paper.pdf"] == desk.found("new", mode="keyword")


def test_a_delete_while_its_tasks_run_wins(desk: IndexedFolder):
    path = desk.put("book.md", book(300))
    with desk.by_hand() as hand:
        receipt = desk.app.index(path)
        hand.run_jobs()
        tasks = hand.catalog.claim(TaskRequest(Phase.VECTOR, "w", 64))
        desk.app.submit(item_type="folder", op="delete", payload={"folder_path": str(desk.folder)})
        hand.catalog.settle(hand.phases.run(Phase.VECTOR, tasks[:32]))
        hand.run_jobs()
        late = hand.catalog.settle(hand.phases.run(Phase.VECTOR, tasks[32:]))
        hand.run_tasks()

    job = desk.finish(receipt.job_id)

    assert {None} == set(late)
    assert (Status.DONE, "removed") == (job.status, job.result["outcome"].partition(" ")[0])
    assert [] == desk.found("subject7")


@pytest.mark.parametrize("how", ["cancelled", "out of time"])
def test_a_job_given_up_while_it_waits_takes_its_document_along(desk: IndexedFolder, how: str):
    desk.put("mill.md", "Water drives the wheel.")
    desk.index()
    desk.put("mill.md", book(300))
    with desk.by_hand() as hand:
        receipt = desk.app.index(desk.folder / "mill.md")
        hand.run_jobs()
        if how == "cancelled":
            desk.app.cancel(receipt.job_id)
        else:
            desk.app.queue.settle([lifecycle.timed_out(desk.app.job(receipt.job_id))])
        hand.run_tasks()

        assert desk.app.job(receipt.job_id).ended
        assert [] == desk.open_tasks()
    # What was published before stays.
    assert ["mill.md"] == desk.found("wheel", mode="keyword")
    assert [] == desk.found("subject7", mode="keyword")


class Meanwhile(HashingEmbedder):
    """Does something between reading and storing."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act = act

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        self._act()
        return super().embed(texts)


@pytest.mark.parametrize("what", ["moved", "gone"])
def test_a_file_that_leaves_while_it_is_read_is_not_found_where_it_was(desk: IndexedFolder, what: str):
    old = desk.put("old.md", "Water drives the wheel.")

    def leave() -> None:
        if what == "gone":
            old.unlink(missing_ok=True)
        elif old.exists():
            old.rename(desk.folder / "new.md")
            # Somebody walks right now, and finds nothing to remove.
            desk.index()

    with desk.by_hand(Meanwhile(leave)) as hand:
        receipt = desk.app.index(old)
        hand.run_jobs()

    assert "removed" == desk.app.job(receipt.job_id).result["outcome"]
    assert (["new.md"] if what == "moved" else []) == desk.found("wheel", mode="keyword")
