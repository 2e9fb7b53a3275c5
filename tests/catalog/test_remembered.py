"""Failed files in the catalog: documents of their own, remembered with file and parser."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.catalog.protocol import Catalog
from penstock.catalog.rules import publication
from penstock.catalog.rules.publication import (
    FailedReading,
    ReadFile,
    failed_generation,
    fails_again,
)
from penstock.catalog.values import (
    Failure,
    KnownSource,
    LedgerEntry,
    LedgerKind,
    Outcome,
    Phase,
    Removal,
    Rename,
    Source,
    StoreResult,
    TaskStatus,
    Touch,
)
from tests.catalog.conftest import (
    DOCS,
    T0,
    TRANSIENT,
    at,
    begin,
    document,
    found,
    page,
    put,
    settle,
    source,
    sweep,
    take,
)

FILE = ReadFile(size=10, mtime_ns=20, read_with="parser 1", content_hash="abc")


def fail(
    catalog: Catalog, path: str = "/a.pdf", seconds: float = 0, code: str = "ERR_PARSE", **fields: Any
) -> StoreResult:
    given: dict[str, Any] = {"file": FILE, "job_id": "job_1"} | fields
    reading = FailedReading(
        place=DOCS,
        path=path,
        code=code,
        message="damaged",
        asked_at=at(seconds),
        read_at=at(seconds),
        **given,
    )
    (stored,) = catalog.store([failed_generation(reading)], now=at(seconds))
    return stored


def known(catalog: Catalog, path: str = "/a.pdf") -> KnownSource:
    with catalog.snapshot() as snapshot:
        (one,) = snapshot.known(DOCS, path)
    return one


def remembered(catalog: Catalog, path: str = "/a.pdf") -> bool:
    """Both lookups, of a walk and of a job for a file, remember the failure."""
    seen = source(catalog, path)
    assert seen is not None
    by_walk = fails_again(known(catalog, path).failure, FILE.size, FILE.mtime_ns, FILE.read_with)
    by_job = fails_again(seen.failure, FILE.size, FILE.mtime_ns, FILE.read_with)
    assert by_walk == by_job
    return by_walk


def seen(catalog: Catalog, path: str = "/a.pdf") -> Source:
    one = source(catalog, path)
    assert one is not None
    return one


def test_a_failed_file_is_a_failed_document_that_search_never_sees(catalog: Catalog):
    stored = fail(catalog)

    assert Outcome.KEPT_BACK == stored.outcome
    assert stored.document_id is not None
    row = document(catalog, stored.document_id)
    assert (TaskStatus.FAILED, "ERR_PARSE: damaged") == (
        row.phases[Phase.OCR].status,
        row.phases[Phase.OCR].error,
    )
    assert (TaskStatus.SKIPPED, "gate: ocr failed") == (
        row.phases[Phase.VECTOR].status,
        row.phases[Phase.VECTOR].error,
    )
    assert ("abc", "job_1", 0) == (row.content_hash, row.job_id, row.page_count)
    assert row.settled
    failure = seen(catalog).failure
    assert ("abc", "ERR_PARSE: damaged", "job_1") == (failure.content_hash, failure.error, failure.job_id)
    assert seen(catalog).failed
    assert seen(catalog).published_id is None
    assert set() == found(catalog, "damaged")
    with catalog.snapshot() as snapshot:
        assert [(0, 1, 0)] == [(one.sources, one.failed, one.chunks) for one in snapshot.tenants()]


def test_the_same_file_fails_again_until_file_or_parser_change(catalog: Catalog):
    fail(catalog)

    failure = known(catalog).failure
    assert fails_again(failure, 10, 20, "parser 1")
    assert not fails_again(failure, 11, 20, "parser 1")
    assert not fails_again(failure, 10, 21, "parser 1")
    assert not fails_again(failure, 10, 20, "parser 2")


def test_a_failure_outside_the_content_is_shown_but_not_remembered(catalog: Catalog):
    stored = fail(catalog, code="ERR_PERMISSION")

    assert TaskStatus.FAILED == document(catalog, stored.document_id or 0).phases[Phase.OCR].status
    assert not remembered(catalog)


def test_readable_content_replaces_the_failure(catalog: Catalog):
    failed = fail(catalog)

    put(catalog, "/a.pdf", page("mended text"), asked_at=at(1))
    sweep(catalog)

    assert {"mended text"} == found(catalog, "mended")
    assert not remembered(catalog)
    assert not seen(catalog).failed
    with catalog.snapshot() as snapshot:
        assert snapshot.document(failed.document_id or 0) is None
        assert [(1, 0)] == [(one.sources, one.failed) for one in snapshot.tenants()]


def test_a_long_document_replaces_the_failure_when_its_tasks_begin(catalog: Catalog):
    fail(catalog, file=msgspec.structs.replace(FILE, content_hash="long"))

    # Of the same content, which a generation with pages would be adopted for.
    building = begin(catalog, "/a.pdf", asked_at=at(1), content_hash="long")

    assert not remembered(catalog)
    assert building == seen(catalog).building_id
    assert 2 == len(take(catalog, Phase.OCR))


def test_a_failure_keeps_the_former_version_and_says_so(catalog: Catalog):
    put(catalog, "/a.pdf", page("former text"))

    fail(catalog, seconds=1)

    assert {"former text"} == found(catalog, "former")
    assert seen(catalog).failed
    assert remembered(catalog)
    with catalog.snapshot() as snapshot:
        assert [(1, 1)] == [(one.sources, one.failed) for one in snapshot.tenants()]


def test_a_failure_of_an_earlier_reading_changes_nothing(catalog: Catalog):
    put(catalog, "/a.pdf", page("newer text"), asked_at=at(5))

    assert Outcome.SUPERSEDED == fail(catalog, seconds=1).outcome

    assert not seen(catalog).failed


def test_a_failure_stops_a_generation_of_former_content(catalog: Catalog):
    begun = begin(catalog, "/a.pdf")

    fail(catalog, seconds=1)

    assert "dropped" == document(catalog, begun).state
    assert remembered(catalog)


def test_a_second_failure_replaces_the_first(catalog: Catalog):
    first = fail(catalog)
    second = fail(catalog, seconds=1, file=msgspec.structs.replace(FILE, size=11))
    sweep(catalog)

    with catalog.snapshot() as snapshot:
        rows = snapshot.generations(seen(catalog).source_id)
    assert [second.document_id] == [row.document_id for row in rows]
    assert first.document_id != second.document_id
    assert (11, 20) == (known(catalog).failed_size, known(catalog).failed_mtime_ns)


def test_a_failed_file_is_removed_renamed_and_touched_like_a_document(catalog: Catalog):
    fail(catalog)
    fail(catalog, "/b.pdf")
    fail(catalog, "/c.pdf")

    catalog.remove(Removal(tenant_id="acme", path="/b.pdf", asked_at=at(1)), now=at(1))
    catalog.rename(Rename(place=DOCS, old="/c.pdf", new="/d.pdf", asked_at=at(1)), now=at(1))
    catalog.touch([Touch(seen(catalog).source_id, 10, 99, failed=True)])
    sweep(catalog)

    assert (None, None) == (source(catalog, "/b.pdf"), source(catalog, "/c.pdf"))
    assert remembered(catalog, "/d.pdf")
    assert (10, 99) == (known(catalog).failed_size, known(catalog).failed_mtime_ns)


def test_a_removed_file_that_fails_later_leaves_no_row(catalog: Catalog):
    catalog.remove(Removal(tenant_id="acme", path="/a.pdf", asked_at=at(5)), now=at(5))

    assert Outcome.REMOVED == fail(catalog, seconds=1).outcome

    assert source(catalog, "/a.pdf") is None


def test_a_document_whose_pages_all_failed_is_remembered_once_the_last_has_ended(catalog: Catalog):
    begin(catalog, "/a.pdf", size=10, mtime_ns=20, read_with="parser 1")
    first, second = take(catalog, Phase.OCR)
    no_text = Failure("ERR_NO_TEXT", "no text layer")

    settle(catalog, [publication.failed(first, no_text)])
    assert not remembered(catalog)
    settle(catalog, [publication.failed(second, no_text)])

    assert remembered(catalog)
    assert "ERR_NO_TEXT: no text layer" == seen(catalog).failure.error


def test_failed_parts_of_a_published_document_are_remembered(catalog: Catalog):
    begin(catalog, "/a.pdf", size=10, mtime_ns=20, read_with="parser 1", space=None)
    first, second = take(catalog, Phase.OCR)

    settle(catalog, [publication.failed(first, Failure("ERR_NO_TEXT", "no text layer"))])
    settle(catalog, [publication.completed_page(second, page("a page", number=2))])

    assert (True, False) == (seen(catalog).partial, seen(catalog).failed)
    assert remembered(catalog)


def test_parts_that_failed_by_an_outage_are_not_remembered(catalog: Catalog):
    begin(catalog, "/a.pdf", size=10, mtime_ns=20, read_with="parser 1", max_retries=0)
    settle(
        catalog,
        [
            publication.failed_attempt(task, TRANSIENT, "no network", jitter=0)
            for task in take(catalog, Phase.OCR)
        ],
    )

    assert TaskStatus.FAILED == document(catalog, seen(catalog).building_id or 0).phases[Phase.OCR].status
    assert not remembered(catalog)


def test_failures_are_listed_without_the_paths_that_rules_left_out(catalog: Catalog):
    def entry(path: str, kind: LedgerKind) -> LedgerEntry:
        return LedgerEntry(place=DOCS, path=path, kind=kind, rule="r", cause="c")

    paths = ["/a/1", "/a/2", "/a/3", "/b"]
    failed = [entry(path, LedgerKind.FAILED) for path in paths if path != "/a/2"]
    catalog.note([entry("/a/2", LedgerKind.SKIPPED), *failed], now=T0)

    with catalog.snapshot() as snapshot:
        assert ["/a/1", "/a/3"] == [one.path for one in snapshot.failures(DOCS, "/a")]
        assert ["/a/3", "/b"] == [one.path for one in snapshot.failures(DOCS, after="/a/1")]
