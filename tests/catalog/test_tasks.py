"""Tasks: claimed in batches across documents, gated, fenced, retried alone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from penstock.catalog.protocol import Catalog
from penstock.catalog.rules import publication
from penstock.catalog.values import Failure, Gate, Phase, TaskRequest, TaskStatus
from penstock.errors import FingerprintMismatch
from tests.catalog.conftest import (
    PERMANENT,
    TASK_LEASE,
    TRANSIENT,
    VECTOR,
    at,
    begin,
    completed_graph,
    document,
    embed,
    found,
    late,
    put,
    read,
    settle,
    take,
)


def test_pages_are_claimed_then_chunks_then_entities(catalog: Catalog):
    document_id = begin(catalog, count=2, graph=True)

    assert [] == take(catalog, Phase.VECTOR)
    read(catalog, "x", "y")
    assert [] == take(catalog, Phase.GRAPHRAG)
    tasks = take(catalog, Phase.VECTOR)
    assert {"1 x", "1 y", "2 x", "2 y"} == {task.text for task in tasks}
    settle(catalog, [publication.completed_vector(task, VECTOR) for task in tasks[:1]])
    (ready,) = take(catalog, Phase.GRAPHRAG)
    assert tasks[0].chunk_id == ready.chunk_id
    settle(catalog, [publication.completed_vector(task, VECTOR) for task in tasks[1:]])
    assert document(catalog, document_id).current
    rest = take(catalog, Phase.GRAPHRAG)
    settle(catalog, [completed_graph(task, 2, 1) for task in [ready, *rest]])
    assert TaskStatus.COMPLETED == document(catalog, document_id).phases[Phase.GRAPHRAG].status


def test_the_page_gate_lets_chunks_of_read_pages_through(catalog: Catalog):
    begin(catalog, count=2)
    first, _ = take(catalog, Phase.OCR)

    settle(catalog, [publication.completed_page(first, late(1))])

    assert 1 == len(take(catalog, Phase.VECTOR))


def test_the_document_gate_waits_for_every_page(catalog: Catalog):
    begin(catalog, count=2, gate=Gate.DOCUMENT, graph=True)
    first, second = take(catalog, Phase.OCR)

    settle(catalog, [publication.completed_page(first, late(2, 1))])
    assert [] == take(catalog, Phase.VECTOR)
    settle(catalog, [publication.failed(second, Failure("ERR_PARSE", "damaged"))])
    one, two = take(catalog, Phase.VECTOR)
    settle(catalog, [publication.completed_vector(one, VECTOR)])
    assert [] == take(catalog, Phase.GRAPHRAG)
    settle(catalog, [publication.completed_vector(two, VECTOR)])
    assert 2 == len(take(catalog, Phase.GRAPHRAG))


def test_a_claim_crosses_documents_and_highest_priority_is_first(catalog: Catalog):
    put(catalog, "/low.md", late(2), priority=1)
    put(catalog, "/high.md", late(2), priority=9)

    assert ["/high.md", "/high.md", "/low.md", "/low.md"] == [
        task.source.path for task in take(catalog, Phase.VECTOR)
    ]


def test_a_note_does_not_wait_behind_a_large_document(catalog: Catalog):
    put(catalog, "/large.pdf", late(200))
    take(catalog, Phase.VECTOR, 10)
    put(catalog, "/note.md", late(1))

    order = [task.source.path for task in take(catalog, Phase.VECTOR)]

    assert order.index("/note.md") <= 32


def test_pages_take_turns_like_chunks(catalog: Catalog):
    begin(catalog, "/large.pdf", count=100)
    begin(catalog, "/small.pdf", count=1)

    assert 32 == [task.source.path for task in take(catalog, Phase.OCR)].index("/small.pdf")


def test_chunks_that_come_in_pieces_do_not_overtake(catalog: Catalog):
    begin(catalog, "/large.pdf", count=40)
    read(catalog, "one", "two")
    put(catalog, "/a.md", late(1))
    put(catalog, "/b.md", late(1))

    order = [task.source.path for task in take(catalog, Phase.VECTOR)]
    assert {"/a.md", "/b.md"} == set(order[32:34])


def test_a_failed_chunk_is_retried_alone(catalog: Catalog):
    put(catalog, "/a.md", late(3))
    bad, *good = take(catalog, Phase.VECTOR)

    settle(
        catalog,
        [publication.failed_attempt(bad, TRANSIENT, "no route")]
        + [publication.completed_vector(task, VECTOR) for task in good],
    )

    assert [] == take(catalog, Phase.VECTOR, now=at(4))
    (again,) = take(catalog, Phase.VECTOR, now=at(6))
    assert (bad.task_id, 1) == (again.task_id, again.retry_count)
    settle(catalog, [publication.completed_vector(again, VECTOR)], now=at(6))
    assert 3 == len(found(catalog, "1"))


def test_due_retries_come_before_new_work_of_any_priority(catalog: Catalog):
    put(catalog, "/a.md", late(1), priority=0)
    (task,) = take(catalog, Phase.VECTOR)
    settle(catalog, [publication.failed_attempt(task, TRANSIENT, "no route")])
    put(catalog, "/b.md", late(1), priority=10)

    (first,) = take(catalog, Phase.VECTOR, 1, now=at(60))

    assert "/a.md" == first.source.path


def test_retries_run_out(catalog: Catalog):
    stored = put(catalog, "/a.md", late(2), max_retries=2)
    good, bad = take(catalog, Phase.VECTOR)
    settle(catalog, [publication.completed_vector(good, VECTOR)])

    for attempt in range(3):
        assert attempt == bad.retry_count
        settle(catalog, [publication.failed_attempt(bad, TRANSIENT, "no route")], now=at(100 * attempt))
        again = take(catalog, Phase.VECTOR, now=at(100 * attempt + 99))
        if attempt < 2:
            (bad,) = again
    assert [] == again
    assert stored.document_id is not None
    shown = document(catalog, stored.document_id)
    assert (TaskStatus.FAILED, True, False) == (
        shown.phases[Phase.VECTOR].status,
        shown.outage,
        shown.current,
    )


def test_a_permanent_failure_spends_all_retries_at_once(catalog: Catalog):
    put(catalog, "/a.md", late(2), graph=True)
    bad, good = take(catalog, Phase.VECTOR)

    settle(
        catalog,
        [publication.failed_attempt(bad, PERMANENT, "too long"), publication.completed_vector(good, VECTOR)],
    )

    assert [] == take(catalog, Phase.VECTOR, now=at(10_000))
    with catalog.snapshot() as snapshot:
        assert 1 == snapshot.statistics()["vector_chunks", TaskStatus.FAILED]
        assert 1 == snapshot.statistics()["graphrag_chunks", TaskStatus.SKIPPED]


def test_the_second_of_two_outcomes_finds_the_claim_lost(catalog: Catalog):
    put(catalog, "/a.md", late(1))
    (task,) = take(catalog, Phase.VECTOR)
    done = publication.completed_vector(task, VECTOR)

    assert [TaskStatus.COMPLETED, None] == settle(catalog, [done, done])
    assert [None] == settle(catalog, [publication.failed(task, Failure("ERR_X", "late"))])


def test_a_zombie_cannot_settle_what_somebody_else_claimed(catalog: Catalog):
    put(catalog, "/a.md", late(1))
    (zombie,) = take(catalog, Phase.VECTOR)
    settle(
        catalog,
        [publication.lost(claim) for claim in catalog.expired(lease=TASK_LEASE, now=at(121))],
        now=at(121),
    )
    (owner,) = take(catalog, Phase.VECTOR, now=at(122), worker="w2")

    assert [None] == settle(catalog, [publication.completed_vector(zombie, VECTOR)], now=at(123))
    assert [False, True] == catalog.renew([zombie, owner], now=at(123))
    assert [TaskStatus.COMPLETED] == settle(
        catalog, [publication.completed_vector(owner, VECTOR)], now=at(124)
    )


def test_given_back_and_claimed_again_is_another_claim(catalog: Catalog):
    put(catalog, "/a.md", late(1))
    (before,) = take(catalog, Phase.VECTOR)
    settle(catalog, [publication.released(before)])
    (after,) = take(catalog, Phase.VECTOR)

    assert (0, 0) == (before.retry_count, after.retry_count)
    assert [None] == settle(catalog, [publication.completed_vector(before, VECTOR)])
    assert [TaskStatus.PENDING] == settle(catalog, [publication.released(after)])


def test_a_retry_given_back_is_unspent(catalog: Catalog):
    put(catalog, "/a.md", late(1))
    (task,) = take(catalog, Phase.VECTOR)
    settle(catalog, [publication.failed_attempt(task, TRANSIENT, "no route")])
    (again,) = take(catalog, Phase.VECTOR, now=at(60))

    settle(catalog, [publication.released(again)], now=at(61))

    (third,) = take(catalog, Phase.VECTOR, now=at(61))
    assert (1, 1) == (again.retry_count, third.retry_count)


@pytest.mark.parametrize("lane", [Phase.OCR, Phase.VECTOR, Phase.GRAPHRAG])
def test_tasks_of_a_lost_worker_come_back_alone(catalog: Catalog, lane: Phase):
    begin(catalog, "/a.pdf", count=3, graph=True)
    if lane is not Phase.OCR:
        read(catalog, "x")
    if lane is Phase.GRAPHRAG:
        embed(catalog)
    assert 3 == len(take(catalog, lane, worker="dead"))
    claims = catalog.held("dead")

    settle(catalog, [publication.lost(claim) for claim in claims], now=at(1))

    for _ in range(3):
        (alone,) = take(catalog, lane, now=at(2))
        assert (True, 1) == (alone.suspect, alone.retry_count)


def test_a_task_that_kills_every_worker_is_its_contents_fault(catalog: Catalog):
    stored = put(catalog, "/a.md", late(2), max_retries=1)
    _, good = take(catalog, Phase.VECTOR)
    settle(catalog, [publication.completed_vector(good, VECTOR)])

    for second in (200, 400):
        settle(
            catalog,
            [publication.lost(claim) for claim in catalog.expired(lease=TASK_LEASE, now=at(second))],
            now=at(second),
        )
        take(catalog, Phase.VECTOR, now=at(second + 1))

    assert stored.document_id is not None
    shown = document(catalog, stored.document_id)
    assert (True, True, False) == (shown.current, shown.partial, shown.outage)


def test_signs_of_life_keep_a_claim(catalog: Catalog):
    put(catalog, "/a.md", late(1))
    (task,) = take(catalog, Phase.VECTOR)

    assert [True] == catalog.renew([task], now=at(100))

    assert [] == catalog.expired(lease=TASK_LEASE, now=at(200))
    assert 1 == len(catalog.expired(now=at(200), lease=timedelta(seconds=60)))
    assert [] == catalog.held("somebody else")


def test_one_bad_chunk_does_not_hold_up_its_batch(catalog: Catalog):
    stored = put(catalog, "/a.md", late(10))
    tasks = take(catalog, Phase.VECTOR)

    settle(
        catalog,
        [publication.failed(tasks[4], Failure("ERR_X", "bad"))]
        + [publication.completed_vector(task, VECTOR) for task in tasks if task is not tasks[4]],
    )

    assert stored.document_id is not None
    assert (True, 1) == (
        document(catalog, stored.document_id).partial,
        document(catalog, stored.document_id).failed_count,
    )
    with catalog.snapshot() as snapshot:
        (missing,) = snapshot.missing(stored.document_id)
    assert (Phase.VECTOR, 1, 4) == (missing.phase, missing.page_number, missing.chunk_index)


def test_an_idle_worker_is_woken_by_another_opener(opened: Callable[[], Catalog]):
    worker, other = opened(), opened()
    while worker.wait(0):
        pass

    put(other, "/a.md", late(1))

    assert worker.wait(120)
    assert 1 == len(take(worker, Phase.VECTOR))


def test_two_workers_never_get_the_same_task(opened: Callable[[], Catalog]):
    one, other = opened(), opened()
    put(one, "/a.md", late(20))

    tasks = [task for _ in range(10) for catalog in (one, other) for task in take(catalog, Phase.VECTOR, 1)]

    assert 20 == len({task.task_id for task in tasks})


def test_a_worker_with_another_fingerprint_is_refused(catalog: Catalog):
    put(catalog, "/a.md", late(1))
    catalog.set_fingerprints({Phase.VECTOR: "static-1"})

    with pytest.raises(FingerprintMismatch):
        catalog.claim(TaskRequest(Phase.VECTOR, "w1", fingerprint="static-2"))
    with pytest.raises(FingerprintMismatch):
        catalog.set_fingerprints({Phase.VECTOR: "static-2"})
    assert 1 == len(catalog.claim(TaskRequest(Phase.VECTOR, "w1", fingerprint="static-1")))
    catalog.set_fingerprints({Phase.VECTOR: "static-2"}, replace=True)
    with catalog.snapshot() as snapshot:
        assert {Phase.VECTOR: "static-2"} == snapshot.fingerprints()


def test_a_skipped_task_counts_as_done(catalog: Catalog):
    stored = put(catalog, "/a.md", late(2))
    first, second = take(catalog, Phase.VECTOR)

    settle(catalog, [publication.skipped(first, "too short"), publication.completed_vector(second, VECTOR)])

    assert stored.document_id is not None
    shown = document(catalog, stored.document_id)
    assert (TaskStatus.COMPLETED, True, False) == (
        shown.phases[Phase.VECTOR].status,
        shown.current,
        shown.partial,
    )


def test_a_message_that_no_store_keeps_as_it_is_ends_a_task_all_the_same(catalog: Catalog):
    stored = put(catalog, "/a.md", late(2))
    bad, good = take(catalog, Phase.VECTOR)

    ended = [
        publication.failed(bad, Failure("ERR_X", "at \0 and \udc80")),
        publication.completed_vector(good, VECTOR),
    ]
    assert [TaskStatus.FAILED, TaskStatus.COMPLETED] == settle(catalog, ended)

    assert stored.document_id is not None
    with catalog.snapshot() as snapshot:
        (missing,) = snapshot.missing(stored.document_id)
    assert "ERR_X: at \ufffd and ?" == missing.error


def test_open_tasks_are_counted_for_those_who_add_more(catalog: Catalog):
    begin(catalog, count=3)

    with catalog.snapshot() as snapshot:
        assert (3, 0) == (snapshot.open_tasks(Phase.OCR), snapshot.open_tasks(Phase.VECTOR))
    read(catalog, "x")
    take(catalog, Phase.VECTOR, 1)
    with catalog.snapshot() as snapshot:
        assert (0, 3) == (snapshot.open_tasks(Phase.OCR), snapshot.open_tasks(Phase.VECTOR))
