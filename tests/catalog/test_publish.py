"""Generations built by tasks, and the publication at the end of the last task."""

from __future__ import annotations

from penstock.catalog.protocol import Catalog
from penstock.catalog.rules import publication
from penstock.catalog.values import (
    Adoption,
    Failure,
    FailureKind,
    GenerationState,
    NewPage,
    OutboxEntryKind,
    Outcome,
    Phase,
    Removal,
    TaskStatus,
)
from tests.catalog.conftest import (
    TRANSIENT,
    VECTOR,
    at,
    begin,
    chunk,
    completed_graph,
    document,
    embed,
    found,
    generation,
    page,
    pages,
    put,
    read,
    settle,
    source,
    sweep,
    take,
    vectors,
)

DAMAGED = Failure("ERR_PARSE", "damaged")


def jobs(catalog: Catalog) -> list[str | None]:
    return [entry.job_id for entry in catalog.outbox(OutboxEntryKind.JOB)]


def test_the_old_generation_is_seen_until_the_new_one_is_whole(catalog: Catalog):
    put(catalog, "/a.pdf", page("old"))
    begin(catalog, "/a.pdf", asked_at=at(1), job_id="job_1")
    assert {"old"} == found(catalog, "old new")

    read(catalog, "new")
    assert {"old"} == found(catalog, "old new")
    assert [] == jobs(catalog)
    embed(catalog)

    assert {"1 new", "2 new"} == found(catalog, "old new")
    assert ["job_1"] == jobs(catalog)
    sweep(catalog)
    assert 2 == vectors(catalog)


def test_pages_read_one_by_one_keep_unchanged_chunks(catalog: Catalog):
    put(catalog, "/a.pdf", page("1 same", "1 gone"), page("2 same", number=2))
    begin(catalog, "/a.pdf", asked_at=at(1))

    read(catalog, "same")

    assert 0 == embed(catalog)
    assert {"1 same", "2 same"} == found(catalog, '"same" gone')


def test_equal_texts_on_several_pages_have_ids_of_their_own(catalog: Catalog):
    document_id = begin(catalog, "/a.pdf", count=3)
    for task in take(catalog, Phase.OCR):
        settle(
            catalog,
            [
                publication.completed_page(
                    task, NewPage(number=task.page_number, chunks=(chunk("same", None),) * 2)
                )
            ],
        )

    tasks = take(catalog, Phase.VECTOR)

    assert 6 == len({task.chunk_id for task in tasks})
    settle(catalog, [publication.completed_vector(task, VECTOR) for task in tasks])
    assert document(catalog, document_id).current


def test_content_at_fault_publishes_the_rest_marked_partial(catalog: Catalog):
    begin(catalog, "/a.pdf", count=3, job_id="job_1")
    bad, *good = take(catalog, Phase.OCR)
    settle(
        catalog,
        [publication.failed(bad, DAMAGED)]
        + [
            publication.completed_page(
                task, NewPage(number=task.page_number, chunks=(chunk(f"page {task.page_number}"),))
            )
            for task in good
        ],
    )

    shown = source(catalog, "/a.pdf")

    assert shown is not None
    assert (True, 3, 2) == (shown.partial, shown.page_count, shown.chunk_count)
    assert {"page 2", "page 3"} == found(catalog, "page")
    assert ["job_1"] == jobs(catalog)


def test_an_outage_keeps_the_old_generation_and_the_job_is_told(catalog: Catalog):
    put(catalog, "/a.pdf", page("old"))
    document_id = begin(catalog, "/a.pdf", asked_at=at(1), job_id="job_1", max_retries=0)
    read(catalog, "new")
    tasks = take(catalog, Phase.VECTOR)
    settle(
        catalog,
        [
            publication.failed_attempt(tasks[0], TRANSIENT, "no route"),
            publication.completed_vector(tasks[1], VECTOR),
        ],
    )

    shown = document(catalog, document_id)

    assert (GenerationState.BUILDING, True, True) == (shown.state, shown.outage, shown.settled)
    assert {"old"} == found(catalog, "old new")
    assert ["job_1"] == jobs(catalog)


def test_a_kept_back_generation_is_adopted_and_only_its_failures_run_again(catalog: Catalog):
    document_id = begin(catalog, "/a.pdf", job_id="job_1", max_retries=0)
    read(catalog, "new")
    first, second = take(catalog, Phase.VECTOR)
    settle(
        catalog,
        [
            publication.failed_attempt(first, TRANSIENT, "no route"),
            publication.completed_vector(second, VECTOR),
        ],
    )

    again = put(catalog, "/a.pdf", *pages(2), asked_at=at(5), job_id="job_2")

    assert (Outcome.BUILDING, document_id, True) == (again.outcome, again.document_id, again.adopted)
    assert 1 == embed(catalog, now=at(6))
    assert document(catalog, document_id).current
    assert ["job_1", "job_2"] == jobs(catalog)


def test_a_job_can_take_over_before_reading_anything(catalog: Catalog):
    document_id = begin(catalog, "/a.pdf", count=1, job_id="job_1", priority=3)
    (task,) = take(catalog, Phase.OCR)
    settle(catalog, [publication.failed(task, DAMAGED)])
    adoption = Adoption(document_id=document_id, asked_at=at(1), read_at=at(1), job_id="job_2", priority=8)

    assert catalog.adopt(adoption)

    (task,) = take(catalog, Phase.OCR)
    settle(catalog, [publication.completed_page(task, page("fine"))])
    assert "job_2" == jobs(catalog)[-1]
    assert not catalog.adopt(adoption)


def test_another_content_drops_what_was_being_built(catalog: Catalog):
    first = begin(catalog, "/a.pdf", count=2)
    (zombie, _) = take(catalog, Phase.OCR)

    second = begin(catalog, "/a.pdf", count=3, asked_at=at(1))

    assert GenerationState.DROPPED == document(catalog, first).state
    assert [None] == settle(catalog, [publication.completed_page(zombie, page("x"))])
    assert {second} == {task.source.document_id for task in take(catalog, Phase.OCR)}
    sweep(catalog)
    with catalog.snapshot() as snapshot:
        assert None is snapshot.document(first)


def test_tasks_of_a_dropped_generation_are_not_claimed(catalog: Catalog):
    dropped = begin(catalog, "/a.pdf", count=50)
    kept = begin(catalog, "/b.pdf", count=1)

    assert catalog.drop(dropped, "cancelled")

    assert [kept] == [task.source.document_id for task in take(catalog, Phase.OCR)]
    assert not catalog.drop(dropped, "cancelled")
    sweep(catalog)
    assert None is source(catalog, "/a.pdf")


def test_a_large_dropped_generation_hides_nothing_from_small_claims(catalog: Catalog):
    dropped = begin(catalog, "/a.pdf", count=3000)
    kept = begin(catalog, "/b.pdf", count=1, priority=0)
    catalog.drop(dropped, "cancelled")

    assert [kept] == [task.source.document_id for task in take(catalog, Phase.OCR, 1)]
    sweep(catalog)


def test_a_whole_generation_overtakes_the_one_being_built(catalog: Catalog):
    building = begin(catalog, "/a.md")

    assert Outcome.PUBLISHED == put(catalog, "/a.md", page("whole"), asked_at=at(1)).outcome

    assert GenerationState.DROPPED == document(catalog, building).state
    sweep(catalog)


def test_a_generation_removed_while_it_was_built_is_dropped(catalog: Catalog):
    document_id = begin(catalog, "/docs/a.pdf", asked_at=at(1), job_id="job_1")
    read(catalog, "new")
    tasks = take(catalog, Phase.VECTOR)

    # Somebody removes the folder; the generation has not been dropped yet when its last task ends.
    catalog.remove(
        Removal(tenant_id="acme", path="/docs", collection="docs", branch="main", asked_at=at(1)), limit=0
    )
    settle(catalog, [publication.completed_vector(task, VECTOR) for task in tasks])

    shown = document(catalog, document_id)
    assert (GenerationState.DROPPED, "removed while indexing") == (shown.state, shown.note)
    assert set() == found(catalog, "new")
    assert ["job_1"] == jobs(catalog)


def test_a_later_reading_published_first_wins(catalog: Catalog):
    document_id = begin(catalog, "/a.pdf", asked_at=at(5))
    read(catalog, "slow")
    tasks = take(catalog, Phase.VECTOR)
    catalog.drop(document_id, "cancelled")
    put(catalog, "/a.pdf", page("fast"), asked_at=at(9))

    assert [None, None] == settle(catalog, [publication.completed_vector(task, VECTOR) for task in tasks])

    assert {"fast"} == found(catalog, "slow fast")


def test_a_retry_in_a_published_document_makes_it_whole(catalog: Catalog):
    document_id = begin(catalog, "/a.pdf", count=2)
    bad, good = take(catalog, Phase.OCR)
    settle(
        catalog, [publication.failed(bad, DAMAGED), publication.completed_page(good, page("two", number=2))]
    )
    with catalog.snapshot() as snapshot:
        before = snapshot.changes("acme").sequence

    assert 1 == catalog.retry(document_id)
    assert {"two"} == found(catalog, "one two")
    (again,) = take(catalog, Phase.OCR)
    settle(catalog, [publication.completed_page(again, page("one"))])

    assert {"one", "two"} == found(catalog, "one two")
    shown = source(catalog, "/a.pdf")
    assert shown is not None
    assert (False, 2) == (shown.partial, shown.chunk_count)
    with catalog.snapshot() as snapshot:
        assert 1 == len(snapshot.changes("acme", before).fresh)


def test_nothing_embedded_is_nothing_to_show(catalog: Catalog):
    put(catalog, "/a.pdf", page("old"))
    put(catalog, "/a.pdf", NewPage(number=1, chunks=(chunk("new", None),)), asked_at=at(1))
    (task,) = take(catalog, Phase.VECTOR)

    settle(catalog, [publication.failed(task, Failure("ERR_X", "refused", FailureKind.CONTENT))])

    assert {"old"} == found(catalog, "old new")


def test_progress_statistics_and_ready_documents(catalog: Catalog):
    document_id = begin(catalog, "/docs/a.pdf", count=3, graph=True)
    with catalog.snapshot() as snapshot:
        assert {("ocr_pages", TaskStatus.PENDING): 3} == snapshot.statistics()
        assert [] == snapshot.ready(Phase.VECTOR)
    read(catalog, "x", "y")
    tasks = take(catalog, Phase.VECTOR, 4)
    settle(catalog, [publication.completed_vector(task, VECTOR) for task in tasks[:3]])
    settle(catalog, [publication.released(tasks[3])])

    with catalog.snapshot() as snapshot:
        progress = snapshot.progress(document_id)
        statistics = snapshot.statistics()
        assert [document_id] == [ready.document_id for ready in snapshot.ready(Phase.VECTOR)]
    assert progress is not None
    assert ("a.pdf", 3, 3, 0, 6, 3, 0) == (
        progress.filename,
        progress.total_pages,
        progress.ocr_completed_pages,
        progress.ocr_failed_pages,
        progress.total_chunks,
        progress.completed_chunks[Phase.VECTOR],
        progress.completed_chunks[Phase.GRAPHRAG],
    )
    assert {
        ("ocr_pages", TaskStatus.COMPLETED): 3,
        ("vector_chunks", TaskStatus.COMPLETED): 3,
        ("vector_chunks", TaskStatus.PENDING): 3,
        ("graphrag_chunks", TaskStatus.PENDING): 6,
    } == statistics
    embed(catalog)
    with catalog.snapshot() as snapshot:
        assert [document_id] == [ready.document_id for ready in snapshot.ready(Phase.GRAPHRAG)]


def test_a_documents_tree_shows_every_page_and_chunk(catalog: Catalog):
    document_id = begin(catalog, "/a.pdf", count=2, graph=True)
    first, second = take(catalog, Phase.OCR)
    kept = NewPage(number=1, chunks=(chunk("x", None), chunk("y", None)), text="x y", file_path="/pages/1.md")
    settle(catalog, [publication.completed_page(first, kept), publication.released(second)])
    bad, good = take(catalog, Phase.VECTOR)
    settle(catalog, [publication.failed(bad, DAMAGED), publication.completed_vector(good, VECTOR)])
    (entities,) = take(catalog, Phase.GRAPHRAG)
    settle(catalog, [completed_graph(entities, 3, 2)])

    with catalog.snapshot() as snapshot:
        one, two = snapshot.pages(document_id)
        failed, done = snapshot.chunks(one.page_id)
        assert [] == snapshot.chunks(two.page_id)
        assert [2] == [page.number for page in snapshot.pages(document_id, after=1)]
    assert (1, 2, TaskStatus.COMPLETED, TaskStatus.PENDING) == (
        one.number,
        one.chunk_count,
        one.phases[Phase.OCR].status,
        two.phases[Phase.OCR].status,
    )
    assert (TaskStatus.FAILED, 3, "gate: vector failed") == (
        failed.phases[Phase.VECTOR].status,
        failed.phases[Phase.VECTOR].retry_count,
        failed.phases[Phase.GRAPHRAG].error,
    )
    assert (TaskStatus.COMPLETED, 3, 2) == (
        done.phases[Phase.GRAPHRAG].status,
        done.entities,
        done.relationships,
    )


def test_generations_are_listed_newest_first(catalog: Catalog):
    stored = put(catalog, "/a.md", page("one"))
    catalog.store([generation("/a.md", page("two"), asked_at=at(1))])

    assert stored.source_id is not None
    with catalog.snapshot() as snapshot:
        newest, oldest = snapshot.generations(stored.source_id)
        assert None is snapshot.get("nobody")
    assert (True, False) == (newest.current, oldest.current)
