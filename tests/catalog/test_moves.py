"""Move detection: candidates for files found at other paths, and the effects of a move."""

from __future__ import annotations

from datetime import datetime

from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Filters, Move, Outcome, Place, Removal, StoreResult
from tests.catalog.conftest import DOCS, at, begin, page, put, sweep

LATER = at(10)


def move(catalog: Catalog, stored: StoreResult, old: str, new: str, asked_at: datetime = LATER) -> bool:
    assert stored.source_id is not None
    assert stored.document_id is not None
    one = Move(
        source_id=stored.source_id,
        published_id=stored.document_id,
        old=old,
        new=new,
        size=9,
        mtime_ns=99,
    )
    (moved,) = catalog.move(DOCS, [one], asked_at, now=asked_at)
    return moved


def seen(catalog: Catalog, words: str = "text") -> list[str]:
    """Paths of published chunks with any of the words."""
    with catalog.snapshot() as snapshot:
        hits = snapshot.keyword(words, Filters(tenant_id="acme"), limit=1000)
        return sorted(view.path for view in snapshot.hydrate([hit.content_id for hit in hits]) if view)


def test_twins_have_the_size_and_time_or_the_size_alone(catalog: Catalog):
    put(catalog, "/both.md", size=5, mtime_ns=7)
    put(catalog, "/size.md", size=5, mtime_ns=8)
    put(catalog, "/other.md", size=6, mtime_ns=7)
    put(catalog, "/empty.md", size=0, mtime_ns=8)
    put(catalog, "/elsewhere.md", size=5, mtime_ns=7, place=Place("acme", "other"))
    begin(catalog, "/unseen.pdf", size=5, mtime_ns=7)

    with catalog.snapshot() as snapshot:
        paths = [known.path for known in snapshot.twins(DOCS, [(5, 7), (0, 9)])]

    assert ["/both.md", "/size.md"] == paths


def test_a_moved_source_keeps_everything_and_knows_its_new_file(catalog: Catalog):
    stored = put(catalog, "/old.md", page("some text"), size=5, mtime_ns=7)
    with catalog.snapshot() as snapshot:
        before = snapshot.find(DOCS, "/old.md")

    assert move(catalog, stored, "/old.md", "/new.md")

    with catalog.snapshot() as snapshot:
        after = snapshot.find(DOCS, "/new.md")
        assert snapshot.find(DOCS, "/old.md") is None
    assert before is not None
    assert after is not None
    assert (before.source_id, before.published_id) == (after.source_id, after.published_id)
    assert (9, 99, at(10)) == (after.size, after.mtime_ns, after.asked_at)
    assert ["/new.md"] == seen(catalog)


def test_a_source_that_changed_since_it_was_looked_at_stays(catalog: Catalog):
    stored = put(catalog, "/old.md", page("some text"))
    put(catalog, "/old.md", page("other text"), asked_at=at(5))

    assert not move(catalog, stored, "/old.md", "/new.md")

    assert ["/old.md"] == seen(catalog)


def test_a_source_that_was_removed_stays_so(catalog: Catalog):
    stored = put(catalog, "/old.md", page("some text"))
    catalog.remove(Removal(tenant_id="acme", path="/old.md", asked_at=at(5)), now=at(5))

    assert not move(catalog, stored, "/old.md", "/new.md")

    assert [] == seen(catalog)


def test_a_path_that_is_taken_is_not_taken_away(catalog: Catalog):
    stored = put(catalog, "/old.md", page("some text"))
    put(catalog, "/new.md", page("other text"))

    assert not move(catalog, stored, "/old.md", "/new.md")

    assert {"/old.md", "/new.md"} == set(seen(catalog))


def test_what_is_left_of_a_removed_source_is_no_obstacle(catalog: Catalog):
    stored = put(catalog, "/old.md", page("some text"))
    put(catalog, "/new.md", page("other text"))
    catalog.remove(Removal(tenant_id="acme", path="/new.md", asked_at=at(5)), now=at(5))

    assert move(catalog, stored, "/old.md", "/new.md")

    assert ["/new.md"] == seen(catalog)
    sweep(catalog, now=at(20))


def test_a_move_into_what_was_deleted_later_is_refused(catalog: Catalog):
    stored = put(catalog, "/old.md", page("some text"))
    catalog.remove(Removal(tenant_id="acme", path="/gone", asked_at=at(20)), now=at(20))

    assert not move(catalog, stored, "/old.md", "/gone/new.md", asked_at=at(10))
    assert move(catalog, stored, "/old.md", "/gone/new.md", asked_at=at(30))


def test_a_generation_being_built_moves_along(catalog: Catalog):
    stored = put(catalog, "/old.md", page("some text"))
    put(catalog, "/old.md", page("new text", vector=None), asked_at=at(5))

    assert move(catalog, stored, "/old.md", "/new.md")

    with catalog.snapshot() as snapshot:
        source = snapshot.find(DOCS, "/new.md")
        assert source is not None
        assert source.building_id is not None
        built = snapshot.document(source.building_id)
    assert built is not None
    assert ("/new.md", at(10)) == (built.path, built.asked_at)


def test_many_moves_are_one_transaction_with_an_answer_each(catalog: Catalog):
    stored = [put(catalog, f"/{name}.md", page(f"text {name}")) for name in "abc"]
    put(catalog, "/x/b.md", page("taken"))
    moves = [
        Move(
            source_id=one.source_id or "",
            published_id=one.document_id or 0,
            old=f"/{name}.md",
            new=f"/x/{name}.md",
            size=1,
            mtime_ns=1,
        )
        for name, one in zip("abc", stored, strict=True)
    ]

    assert [True, False, True] == catalog.move(DOCS, moves, at(10), now=at(10))
    assert {"/x/a.md", "/b.md", "/x/c.md"} == set(seen(catalog))


def test_what_was_read_before_a_move_is_not_published_at_the_old_path(catalog: Catalog):
    stored = put(catalog, "/a.md", page("text a"))

    assert move(catalog, stored, "/a.md", "/b.md")

    assert Outcome.REMOVED == put(catalog, "/a.md", page("text late"), asked_at=at(9), read_at=at(9)).outcome
    assert Outcome.PUBLISHED == put(catalog, "/a.md", page("text anew"), asked_at=at(11)).outcome
    assert ["/a.md", "/b.md"] == seen(catalog)
