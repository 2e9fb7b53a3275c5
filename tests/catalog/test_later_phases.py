"""Phases behind another one: gates, skips and their reasons, and retries."""

from __future__ import annotations

from penstock.catalog.protocol import Catalog
from penstock.catalog.rules import publication
from penstock.catalog.values import Failure, Phase, TaskStatus
from tests.catalog.conftest import VECTOR, begin, document, embed, late, put, read, settle, take


def test_a_failed_gate_skips_what_follows_and_its_retry_brings_it_back(catalog: Catalog):
    document_id = begin(catalog, count=2, graph=True)
    first, second = take(catalog, Phase.OCR)
    settle(
        catalog,
        [
            publication.failed(first, Failure("ERR_PARSE", "damaged")),
            publication.completed_page(second, late(1, 2)),
        ],
    )
    with catalog.snapshot() as snapshot:
        failed, _ = snapshot.pages(document_id)
    assert (TaskStatus.SKIPPED, "gate: ocr failed") == (
        failed.phases[Phase.VECTOR].status,
        failed.phases[Phase.VECTOR].error,
    )

    assert 1 == catalog.retry(document_id)

    with catalog.snapshot() as snapshot:
        failed, _ = snapshot.pages(document_id)
    assert (TaskStatus.PENDING, TaskStatus.PENDING) == (
        failed.phases[Phase.OCR].status,
        failed.phases[Phase.VECTOR].status,
    )
    (again,) = take(catalog, Phase.OCR)
    assert (first.task_id, 0) == (again.task_id, again.retry_count)
    settle(catalog, [publication.completed_page(again, late(1, 1))])
    assert 2 == embed(catalog)
    assert document(catalog, document_id).current


def test_a_page_skipped_by_its_worker_says_why(catalog: Catalog):
    document_id = begin(catalog, count=1, graph=True)
    read(catalog, "one", "two")
    embed(catalog)

    settle(
        catalog, [publication.skipped(task, "no extractor here") for task in take(catalog, Phase.GRAPHRAG)]
    )

    with catalog.snapshot() as snapshot:
        (page,) = snapshot.pages(document_id)
    skipped = page.phases[Phase.GRAPHRAG]
    assert (TaskStatus.SKIPPED, "no extractor here") == (skipped.status, skipped.error)


def test_a_document_without_vectors_waits_for_no_phase_behind_them(catalog: Catalog):
    stored = put(catalog, "/a.md", late(2), graph=True, space=None)

    assert stored.document_id is not None
    assert TaskStatus.SKIPPED is document(catalog, stored.document_id).phases[Phase.GRAPHRAG].status


def test_retry_brings_back_a_chunk_and_the_entities_behind_it(catalog: Catalog):
    stored = put(catalog, "/a.md", late(2), graph=True)
    bad, good = take(catalog, Phase.VECTOR)
    settle(
        catalog, [publication.failed(bad, Failure("ERR_X", "no")), publication.completed_vector(good, VECTOR)]
    )
    assert stored.document_id is not None
    assert document(catalog, stored.document_id).partial

    assert 1 == catalog.retry(stored.document_id)
    assert 1 == embed(catalog)

    assert not document(catalog, stored.document_id).partial
    assert 2 == len(take(catalog, Phase.GRAPHRAG))
    assert 0 == catalog.retry(stored.document_id)
