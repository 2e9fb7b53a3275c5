"""Whole generations: written and published by one call."""

from __future__ import annotations

import uuid

import pytest

from penstock.catalog.protocol import Catalog
from penstock.catalog.rules.identity import ChunkIds, text_hash
from penstock.catalog.sql.postgres import PostgresCatalog
from penstock.catalog.values import (
    Failure,
    Fingerprints,
    NewPage,
    Outcome,
    Phase,
    Place,
    TaskStatus,
    Touch,
)
from penstock.errors import InvalidVector
from tests.catalog.conftest import (
    DOCS,
    VECTOR,
    at,
    begin,
    chunk,
    document,
    found,
    generation,
    page,
    put,
    source,
    sweep,
    take,
    vectors,
)


def chunk_ids(catalog: Catalog, words: str) -> dict[str, str]:
    from penstock.catalog.values import Filters

    with catalog.snapshot() as snapshot:
        hits = snapshot.keyword(words, Filters(tenant_id="acme"), limit=100)
        views = snapshot.hydrate([hit.content_id for hit in hits])
    return {view.text: view.chunk_id for view in views if view}


def test_a_whole_generation_is_published_at_once(catalog: Catalog):
    stored = put(catalog, "/a.md", page("alpha", "beta"), page("gamma", number=2))

    assert (Outcome.PUBLISHED, 3, 0) == (stored.outcome, stored.chunks, stored.kept)
    assert {"alpha", "gamma"} == found(catalog, "alpha gamma")
    assert 3 == vectors(catalog)
    assert stored.document_id is not None
    shown = document(catalog, stored.document_id)
    assert shown.current
    assert (TaskStatus.COMPLETED, TaskStatus.COMPLETED) == (
        shown.phases[Phase.OCR].status,
        shown.phases[Phase.VECTOR].status,
    )
    assert (TaskStatus.SKIPPED, "no extractor configured") == (
        shown.phases[Phase.GRAPHRAG].status,
        shown.phases[Phase.GRAPHRAG].error,
    )


def test_many_sources_are_found_by_their_paths_at_once(catalog: Catalog):
    put(catalog, "/a.md", page("alpha"))
    put(catalog, "/b.md", page("beta"))

    with catalog.snapshot() as snapshot:
        seen = snapshot.find_all(DOCS, ["/b.md", "/none.md", "/a.md"])
        elsewhere = snapshot.find_all(Place("acme", "elsewhere"), ["/a.md"])
        assert {"/a.md": snapshot.find(DOCS, "/a.md"), "/b.md": snapshot.find(DOCS, "/b.md")} == seen
    assert {} == elsewhere


def test_a_batch_is_stored_in_one_call(catalog: Catalog):
    stored = catalog.store([generation(f"/{n}.md", page(f"text {n}")) for n in range(50)])

    assert {Outcome.PUBLISHED} == {answer.outcome for answer in stored}
    assert 50 == len({answer.source_id for answer in stored})
    assert 50 == len(found(catalog, "text"))
    assert [] == catalog.store([])


def test_the_same_path_twice_in_a_batch_leaves_the_second(catalog: Catalog):
    catalog.store(
        [generation("/a.md", page("one"), asked_at=at(1)), generation("/a.md", page("two"), asked_at=at(2))]
    )

    assert {"two"} == found(catalog, "one two")
    sweep(catalog)
    assert 1 == vectors(catalog)


def test_unchanged_chunks_keep_id_text_and_vector(catalog: Catalog):
    put(catalog, "/a.md", page("one", "two", "three"))
    before = chunk_ids(catalog, "one two three")

    stored = put(
        catalog,
        "/a.md",
        page("zero", "one"),
        NewPage(number=2, chunks=(chunk("three", None),)),
        asked_at=at(1),
    )

    assert (Outcome.PUBLISHED, 3, 2) == (stored.outcome, stored.chunks, stored.kept)
    after = chunk_ids(catalog, "zero one two three")
    assert {"zero", "one", "three"} == set(after)
    assert (before["one"], before["three"]) == (after["one"], after["three"])
    sweep(catalog)
    assert 3 == vectors(catalog)
    assert {"zero", "one", "three"} == found(catalog, "zero one two three")


def test_chunk_ids_follow_from_tenant_source_text_and_occurrence(catalog: Catalog):
    stored = put(catalog, "/a.md", page("same", "same"), page("same", number=2))

    assert stored.source_id is not None
    ids = ChunkIds("acme", stored.source_id)
    expected = {ids.next(text_hash("same")) for _ in range(3)}
    with catalog.snapshot() as snapshot:
        assert expected == set(snapshot.locate(stored.source_id, list(expected)))
    again = put(catalog, "/a.md", page("same"), page("same", "new", number=2), asked_at=at(1))
    assert (3, 2) == (again.chunks, again.kept)


def test_a_deleted_vector_is_remembered_for_the_text_that_comes_back(catalog: Catalog):
    put(catalog, "/a.md", page("draft"))
    put(catalog, "/a.md", page("edited"), asked_at=at(1))
    sweep(catalog)

    back = put(catalog, "/moved.md", NewPage(number=1, chunks=(chunk("draft", None),)), asked_at=at(2))

    assert Outcome.PUBLISHED == back.outcome
    assert 2 == vectors(catalog)


def test_remembered_vectors_are_used_and_belong_to_their_tenant(catalog: Catalog):
    catalog.remember("acme", "static", {text_hash("known"): VECTOR})
    unread = NewPage(number=1, chunks=(chunk("known", None),))

    assert Outcome.PUBLISHED == put(catalog, "/a.md", unread).outcome
    assert Outcome.BUILDING == put(catalog, "/a.md", unread, place=Place("other", "docs")).outcome
    with catalog.snapshot() as snapshot:
        assert {text_hash("known"): VECTOR} == snapshot.vectors(
            "acme", "static", [text_hash("known"), text_hash("x")]
        )
        assert {} == snapshot.vectors("acme", "elsewhere", [text_hash("known")])


def test_a_sources_own_vectors_are_found_by_hash(catalog: Catalog):
    stored = put(catalog, "/a.md", page("mine"))

    with catalog.snapshot() as snapshot:
        own = snapshot.vectors("acme", "static", [text_hash("mine")], source_id=stored.source_id)
        assert {text_hash("mine"): VECTOR} == own
        assert {} == snapshot.vectors("acme", "static", [text_hash("mine")])


def test_what_was_read_earlier_never_replaces_what_was_read_later(catalog: Catalog):
    put(catalog, "/a.md", page("later"), asked_at=at(10))

    assert Outcome.SUPERSEDED == put(catalog, "/a.md", page("earlier"), asked_at=at(5)).outcome
    assert {"later"} == found(catalog, "earlier later")


def test_asked_earlier_but_read_later_counts_as_later(catalog: Catalog):
    put(catalog, "/a.md", page("first"), asked_at=at(10))

    assert Outcome.PUBLISHED == put(catalog, "/a.md", page("second"), asked_at=at(5), read_at=at(11)).outcome


def test_the_caller_may_bring_the_source_id_of_a_new_path(catalog: Catalog):
    mine = "01890000-0000-7000-8000-000000000000"

    assert mine == put(catalog, "/a.md", source_id=mine).source_id
    other = put(catalog, "/a.md", page("x"), source_id="01890000-0000-7000-8000-000000000001", asked_at=at(1))
    assert (Outcome.SUPERSEDED, mine) == (other.outcome, other.source_id)


def test_paths_are_their_places_own(catalog: Catalog):
    for place in (DOCS, Place("acme", "docs", "dev"), Place("acme", "notes"), Place("other", "docs")):
        put(catalog, "/a.md", page(f"text of {place.branch} {place.collection}"), place=place)

    assert 3 == len(found(catalog, "text"))
    assert {"text of dev docs"} == found(catalog, "text", branch="dev")
    with catalog.snapshot() as snapshot:
        assert 4 == len(snapshot.tenants())
        assert [3] == [sum(count.sources for count in snapshot.tenants("acme"))]


def test_a_blank_document_is_published_without_chunks(catalog: Catalog):
    stored = put(catalog, "/a.md", NewPage(number=1, chunks=()))

    assert (Outcome.PUBLISHED, 0) == (stored.outcome, stored.chunks)
    assert stored.document_id is not None
    assert (TaskStatus.SKIPPED, "no text") == (
        document(catalog, stored.document_id).phases[Phase.VECTOR].status,
        document(catalog, stored.document_id).phases[Phase.VECTOR].error,
    )


def test_without_a_space_only_words_are_indexed(catalog: Catalog):
    stored = put(catalog, "/a.md", NewPage(number=1, chunks=(chunk("words", None),)), space=None)

    assert Outcome.PUBLISHED == stored.outcome
    assert {"words"} == found(catalog, "words")
    assert [] == take(catalog, Phase.VECTOR)
    assert stored.document_id is not None
    assert "no embedder configured" == document(catalog, stored.document_id).phases[Phase.VECTOR].error


def test_a_failed_page_leaves_the_rest_published_and_listed(catalog: Catalog):
    stored = put(
        catalog,
        "/a.pdf",
        page("readable"),
        NewPage(number=2, failure=Failure("ERR_PARSE", "page is damaged")),
    )

    assert (Outcome.PUBLISHED, 1) == (stored.outcome, stored.failed)
    kept = source(catalog, "/a.pdf")
    assert kept is not None
    assert kept.partial
    assert kept.published_id is not None
    with catalog.snapshot() as snapshot:
        (missing,) = snapshot.missing(kept.published_id)
    assert (Phase.OCR, 2, "ERR_PARSE: page is damaged") == (missing.phase, missing.page_number, missing.error)


def test_zero_usable_pages_leave_the_old_generation(catalog: Catalog):
    put(catalog, "/a.pdf", page("old"))

    stored = put(
        catalog, "/a.pdf", NewPage(number=1, failure=Failure("ERR_PARSE", "damaged")), asked_at=at(1)
    )

    assert Outcome.KEPT_BACK == stored.outcome
    assert {"old"} == found(catalog, "old")


def test_vectors_of_one_space_have_one_length(catalog: Catalog):
    put(catalog, "/a.md")

    with pytest.raises(InvalidVector):
        catalog.store(
            [generation("/b.md", page("fine")), generation("/c.md", page("bad", vector=VECTOR + VECTOR))]
        )
    assert None is source(catalog, "/b.md")
    with pytest.raises(InvalidVector):
        catalog.remember("acme", "static", {text_hash("x"): b"123"})


def test_a_vector_outside_is_no_task(catalog: Catalog):
    stored = put(catalog, "/a.md", page("elsewhere", vector=b""))

    assert Outcome.PUBLISHED == stored.outcome
    assert 0 == vectors(catalog)


def test_a_change_of_model_keeps_texts_and_asks_for_vectors(catalog: Catalog):
    put(catalog, "/a.md", page("kept"))

    stored = put(
        catalog, "/a.md", NewPage(number=1, chunks=(chunk("kept", None),)), space="minilm", asked_at=at(1)
    )
    assert (Outcome.BUILDING, 1) == (stored.outcome, stored.kept)
    assert 1 == vectors(catalog, "static")
    again = put(catalog, "/a.md", page("kept", vector=VECTOR * 2), space="minilm", asked_at=at(2))
    assert Outcome.PUBLISHED == again.outcome
    sweep(catalog)
    assert (0, 1) == (vectors(catalog, "static"), vectors(catalog, "minilm"))
    with catalog.snapshot() as snapshot:
        assert ["minilm"] == [space.name for space in snapshot.spaces("acme")]


def test_a_walk_reads_what_is_known_by_path(catalog: Catalog):
    for path in ("/a/1.md", "/a/2.md", "/a", "/ab.md", "/a/b/3.md", "/z.md"):
        put(catalog, path, page(path), size=7, mtime_ns=9, fingerprints=Fingerprints(vector="v1"))

    with catalog.snapshot() as snapshot:
        assert ["/a", "/a/1.md", "/a/2.md", "/a/b/3.md"] == [
            known.path for known in snapshot.known(DOCS, "/a")
        ]
        assert 6 == len(snapshot.known(DOCS))
        first = snapshot.known(DOCS, "/a", limit=2)
        rest = snapshot.known(DOCS, "/a", after=first[-1].path)
        assert ["/a", "/a/1.md", "/a/2.md", "/a/b/3.md"] == [known.path for known in first + rest]
    known = first[0]
    assert (7, 9, "v1", False) == (known.size, known.mtime_ns, known.fingerprints.vector, known.partial)
    catalog.touch([Touch(known.source_id, 8, 10)])
    with catalog.snapshot() as snapshot:
        assert (8, 10) == (snapshot.known(DOCS, "/a")[0].size, snapshot.known(DOCS, "/a")[0].mtime_ns)


def test_what_is_being_built_is_known_too(catalog: Catalog):
    document_id = begin(catalog, "/a.pdf")

    with catalog.snapshot() as snapshot:
        (known,) = snapshot.known(DOCS)
    assert (None, document_id) == (known.published_id, known.building_id)


def test_an_id_of_documents_means_the_source_of_that_version(catalog: Catalog):
    put(catalog, "/other.md")
    first = put(catalog, "/a.md")
    second = put(catalog, "/a.md", page("new text"), now=at(1), asked_at=at(1))
    own = source(catalog)
    assert own is not None
    ids = [own.source_id, str(first.document_id), str(second.document_id)]
    with catalog.snapshot() as snapshot:
        if isinstance(catalog, PostgresCatalog):
            with catalog._writers.borrowed() as connection:
                statement = b"SELECT id::text FROM documents WHERE key = %s"
                ((uuid_of_second,),) = connection.execute(statement, (second.document_id,)).fetchall()
            ids += [uuid_of_second, uuid_of_second.upper()]
        assert {"/a.md"} == {getattr(snapshot.identified(text), "path", None) for text in ids}
        for text in ("", "0", "99999999999", "9" * 30, "-1", own.source_id + "0", "/a.md", str(uuid.uuid4())):
            assert None is snapshot.identified(text), text
