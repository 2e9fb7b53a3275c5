"""Large generations: written by many bounded transactions, seen only once they are whole."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from penstock.catalog.protocol import Catalog
from penstock.catalog.rules.publication import UNFINISHED, Portions, count_rows
from penstock.catalog.sql.catalog import SqlCatalog
from penstock.catalog.values import (
    Adoption,
    Document,
    Failure,
    FailureKind,
    Gate,
    GenerationState,
    NewGeneration,
    NewPage,
    Outcome,
    Phase,
    Removal,
    StoreResult,
)
from penstock.worker.upkeep import Sweeper
from tests.catalog.conftest import (
    VECTOR,
    at,
    chunk,
    document,
    embed,
    found,
    generation,
    page,
    pages,
    put,
    read,
    source,
    sweep,
    take,
)

LEASE = timedelta(seconds=120)
FEW = Portions(rows=4, chars=1 << 20, uncut=1)
CHUNKS = 30


def texts(count: int = CHUNKS, word: str = "word") -> list[str]:
    return [f"{word} {number}" for number in range(count)]


@contextmanager
def after_each_write(catalog: Catalog, then: Callable[[int], object]) -> Iterator[None]:
    """Call ``then`` with the number of each committed transaction."""
    assert isinstance(catalog, SqlCatalog)
    catalog.portions, write, number = FEW, catalog._write, 0

    def watched(*arguments: Any, **options: Any) -> Any:
        nonlocal number
        answer = write(*arguments, **options)
        number += 1
        then(number)
        return answer

    catalog._write = watched  # type: ignore[method-assign]
    try:
        yield
    finally:
        catalog._write = write  # type: ignore[method-assign]


def building(catalog: Catalog, path: str = "/a.md") -> Document:
    seen = source(catalog, path)
    assert seen is not None
    assert seen.building_id is not None
    return document(catalog, seen.building_id)


def test_every_transaction_of_a_large_generation_is_bounded(catalog: Catalog):
    rows = [0]

    def look(_: int) -> None:
        with catalog.snapshot() as snapshot:
            (seen,) = snapshot.generations(source(catalog).source_id)  # type: ignore[union-attr]
        rows.append(seen.page_count + seen.chunk_count)
        assert [] == catalog.audit()

    with after_each_write(catalog, look):
        stored = put(catalog, "/a.md", page(*texts()), page(*texts(3, "more"), number=2))

    assert Outcome.PUBLISHED is stored.outcome
    assert CHUNKS + 3 == stored.chunks
    assert CHUNKS + 3 + 2 == rows[-1]
    written = [after - before for before, after in pairwise(rows)]
    assert max(written) <= FEW.rows + 1
    assert set(texts()) == found(catalog, "word")


def test_a_large_generation_is_seen_only_when_it_is_whole(catalog: Catalog):
    put(catalog, "/a.md", page("old words"))
    seen: list[set[str]] = []

    with after_each_write(catalog, lambda _: seen.append(found(catalog, "word words"))):
        put(catalog, "/a.md", page(*texts()), asked_at=at(1), now=at(1))

    assert len(seen) > CHUNKS // FEW.rows
    assert [{"old words"}] * (len(seen) - 1) == seen[:-1]
    assert set(texts()) == seen[-1]
    sweep(catalog)
    assert set() == found(catalog, "old")


@pytest.mark.parametrize("moment", [1, 3, 7])
def test_a_generation_cut_short_by_a_kill_is_replaced(opened: Callable[[], Catalog], moment: int):
    catalog = opened()
    put(catalog, "/a.md", page("old words", "word 5"))

    assert -signal.SIGKILL == _killed_after(opened, moment)

    assert [] == catalog.audit()
    assert {"old words", "word 5"} == found(catalog, "word words")
    cut = building(catalog)
    adoption = Adoption(document_id=cut.document_id, asked_at=at(2), read_at=at(2))
    assert not catalog.adopt(adoption)
    again = put(catalog, "/a.md", page(*texts(), vector=None), asked_at=at(1), now=at(3))
    assert (Outcome.BUILDING, False) == (again.outcome, again.adopted)
    sweep(catalog)
    embed(catalog)
    assert set(texts()) == found(catalog, "word")
    sweep(catalog)
    with catalog.snapshot() as snapshot:
        assert [again.document_id] == [one.document_id for one in snapshot.generations(again.source_id or "")]
    assert [] == catalog.audit()


def _killed_after(opened: Callable[[], Catalog], moment: int) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            catalog = opened()
            with after_each_write(
                catalog, lambda number: os.kill(os.getpid(), signal.SIGKILL) if number == moment else None
            ):
                put(catalog, "/a.md", page(*texts(), vector=None), asked_at=at(1), now=at(1))
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_upkeep_drops_what_nobody_goes_on_with(opened: Callable[[], Catalog]):
    catalog = opened()
    assert -signal.SIGKILL == _killed_after(opened, 2)
    begun = building(catalog).document_id
    assert [] == catalog.unfinished(now=at(2), silent=LEASE)
    assert [begun] == catalog.unfinished(now=at(2), silent=timedelta(0))

    assert not Sweeper(catalog).drop_unfinished(LEASE)

    assert (GenerationState.DROPPED, UNFINISHED) == (
        document(catalog, begun).state,
        document(catalog, begun).note,
    )
    assert [] == catalog.unfinished(silent=timedelta(0))
    sweep(catalog)
    assert source(catalog) is None
    assert [] == catalog.audit()


def _during(catalog: Catalog, moment: int, action: Callable[[], object], **fields: Any) -> StoreResult:
    """Store a large generation and do something else after one part."""
    with after_each_write(catalog, lambda number: action() if number == moment else None):
        return put(catalog, "/a.md", page(*texts(), vector=None), asked_at=at(1), now=at(1), **fields)


def test_a_later_reading_in_between_wins(catalog: Catalog, opened: Callable[[], Catalog]):
    other = opened()
    newer = generation("/a.md", page("newer words"), asked_at=at(2))

    stored = _during(catalog, 3, lambda: other.store([newer], now=at(2)))

    assert Outcome.SUPERSEDED is stored.outcome
    sweep(catalog)
    assert {"newer words"} == found(catalog, "word words")


def test_a_delete_in_between_wins(catalog: Catalog, opened: Callable[[], Catalog]):
    removal = Removal(tenant_id="acme", path="/a.md", asked_at=at(2))
    other = opened()

    stored = _during(catalog, 3, lambda: other.remove(removal, now=at(2)))

    assert Outcome.REMOVED is stored.outcome
    sweep(catalog)
    assert source(catalog) is None


def test_a_writer_whose_generation_was_dropped_leaves_its_end_to_the_job(
    catalog: Catalog, opened: Callable[[], Catalog]
):
    other = opened()

    stored = _during(catalog, 3, lambda: Sweeper(other).drop_unfinished(LEASE), job_id="job_1")

    assert Outcome.BUILDING is stored.outcome
    assert UNFINISHED == document(catalog, stored.document_id or 0).note
    assert {"job_1", None} == {entry.job_id for entry in catalog.outbox()}


def test_tasks_are_done_while_parts_are_still_to_come(catalog: Catalog, opened: Callable[[], Catalog]):
    other, done = opened(), 0

    def work(_: int) -> None:
        nonlocal done
        done += embed(other, now=at(1))

    with after_each_write(catalog, work):
        stored = put(catalog, "/a.md", page(*texts(), vector=None), now=at(1))

    assert Outcome.BUILDING is stored.outcome
    assert CHUNKS == done
    assert set(texts()) == found(catalog, "word")


def test_a_large_generation_with_nothing_left_to_embed_waits_for_its_last_part(
    catalog: Catalog, opened: Callable[[], Catalog]
):
    """Its first parts are embedded, and all that is there is done, while the rest is still to come."""
    other = opened()
    parts = [page("word 0", vector=None), page(*texts()[1:], number=2)]

    with after_each_write(catalog, lambda number: embed(other, now=at(1))):
        stored = put(catalog, "/a.md", *parts, now=at(1))

    assert Outcome.PUBLISHED is stored.outcome
    assert set(texts()) == found(catalog, "word")


def test_a_document_gate_opens_with_the_last_part(catalog: Catalog):
    open_tasks = []

    with after_each_write(catalog, lambda _: open_tasks.append(len(_tasks(catalog)))):
        put(catalog, "/a.md", page(*texts(), vector=None), graph=True, gate=Gate.DOCUMENT)

    assert [0] * (len(open_tasks) - 1) == open_tasks[:-1]
    assert CHUNKS == embed(catalog)
    assert CHUNKS == len(take(catalog, Phase.GRAPHRAG))


def _tasks(catalog: Catalog) -> list[object]:
    with catalog.snapshot() as snapshot:
        return [lane for lane in (Phase.VECTOR, Phase.GRAPHRAG) if snapshot.open_tasks(lane)]


def test_a_large_generation_stands_as_one_written_at_once(catalog: Catalog):
    assert isinstance(catalog, SqlCatalog)
    random = Random(7)
    for number in range(12):
        new = _any_generation(random, f"/{number}.md")
        catalog.portions = Portions()
        (whole,) = catalog.store([new])
        catalog.portions = Portions(rows=random.choice([1, 3, 5]), chars=1 << 20, uncut=2)
        other = generation(
            f"/parts/{number}.md", *new.pages, fingerprints=new.fingerprints, gate=new.gate, space=new.space
        )
        assert catalog.portions.large(other)
        (parts,) = catalog.store([other])

        assert _standing(catalog, whole) == _standing(catalog, parts)
    catalog.portions = Portions()
    read(catalog, "read later")
    embed(catalog)
    assert [] == catalog.audit()


def _any_generation(random: Random, path: str) -> NewGeneration:
    parts: list[NewPage] = []
    for number in range(1, random.randint(3, 12)):
        vector = random.choice([VECTOR, VECTOR, None])
        some = tuple(chunk(f"some {random.randint(0, 20)}", vector) for _ in range(random.randint(0, 9)))
        fault = random.choice(list(FailureKind))
        parts.append(
            random.choice(
                [
                    NewPage(number=number),
                    NewPage(number=number, failure=Failure("ERR_PARSE", "no", fault)),
                    NewPage(number=number, chunks=()),
                    *[NewPage(number=number, chunks=some, text="the page")] * 4,
                ]
            )
        )
    filled = page(*texts(12), number=len(parts) + 1)
    return generation(
        path,
        *parts,
        filled,
        graph=random.random() < 0.3,
        gate=random.choice(list(Gate)),
        space=random.choice(["static", "static", None]),
    )


def _standing(catalog: Catalog, stored: StoreResult) -> object:
    """All columns of a generation except row numbers and times."""
    assert stored.document_id is not None
    one = document(catalog, stored.document_id)
    phases = [(phase.status, phase.error) for phase in one.phases.values()]
    with catalog.snapshot() as snapshot:
        seen = snapshot.pages(stored.document_id, limit=1000)
        chunks = [
            [
                (c.chunk_index, c.text_hash, [phase.status for phase in c.phases.values()])
                for c in snapshot.chunks(p.page_id)
            ]
            for p in seen
        ]
        stood = [(p.number, [phase.status for phase in p.phases.values()]) for p in seen]
        said = [([phase.error for phase in p.phases.values()], p.chunk_count) for p in seen]
    counts = (one.page_count, one.chunk_count, one.failed_count, one.outage, one.partial)
    outcome = (stored.outcome, stored.chunks, stored.failed)
    return outcome, one.state, one.note, phases, counts, stood, said, chunks


def test_a_long_document_with_unread_pages_takes_turns(catalog: Catalog):
    """Pages of a document written in parts stand in their order, 32 a turn, beside another document's."""
    assert isinstance(catalog, SqlCatalog)
    catalog.portions = Portions(rows=16, uncut=1)
    put(catalog, "/long.pdf", *pages(100))
    put(catalog, "/short.pdf", *pages(3))

    first = take(catalog, Phase.OCR, 35)

    assert {"/long.pdf": 32, "/short.pdf": 3} == {
        path: sum(task.source.path == path for task in first) for path in ("/long.pdf", "/short.pdf")
    }


def test_portions_keep_order_and_bounds():
    random = Random(3)
    for _ in range(50):
        new = _any_generation(random, "/a.md")
        portions = Portions(rows=random.randint(1, 9), chars=random.randint(1, 60))
        parts = list(portions.parts(new.pages))

        slices = [one for part in parts for one in part]
        assert [p.number for p in new.pages] == [one.page.number for one in slices if not one.first]
        assert [c for p in new.pages for c in p.chunks or ()] == [c for one in slices for c in one.chunks]
        assert count_rows(new) == sum(one.rows for one in slices)
        assert all(sum(one.rows for one in part) <= portions.rows + 1 for part in parts)
        assert all(len(part) > 0 for part in parts)


def test_small_generations_share_transactions_of_bounded_size():
    portions = Portions(rows=5, chars=500, uncut=4)
    small = [generation(f"/{number}.md", page(*texts(4))) for number in range(9)]
    large = generation("/large.md", page(*texts(30)))
    wide = generation("/wide.md", page("x" * 1_900))

    groups = [[new.path for new in group] for group in portions.groups([*small, large, wide, small[0]])]

    assert [["/0.md", "/1.md", "/2.md", "/3.md"], ["/4.md", "/5.md", "/6.md", "/7.md"], ["/8.md"]] == groups[
        :3
    ]
    assert [["/large.md"], ["/wide.md", "/0.md"]] == groups[3:]
    assert [] == list(portions.groups([]))


def test_what_waited_for_deletes_is_released_in_bounded_transactions(catalog: Catalog):
    put(catalog, "/a.md", page(*texts(6, "old")))
    put(catalog, "/a.md", page(*texts(6, "newer")), asked_at=at(1), now=at(1))
    put(catalog, "/a.md", page(*texts(), vector=None), asked_at=at(2), now=at(2))
    (entry,) = [entry.entry_id for entry in catalog.outbox() if entry.kind == "leftover"]
    assert [] == take(catalog, Phase.VECTOR)
    held = [CHUNKS]

    while not catalog.clear([entry], limit=4, now=at(2)):
        held.append(_held(catalog))

    assert 0 == _held(catalog)
    released = [before - after for before, after in pairwise([*held, 0])]
    assert (CHUNKS, 4) == (sum(released), max(released))
    assert CHUNKS == embed(catalog)
    assert set(texts()) == found(catalog, "word")


def _held(catalog: Catalog) -> int:
    document_id = building(catalog).document_id
    with catalog.snapshot() as snapshot:
        seen = snapshot.pages(document_id)
        return sum(one.held is not None for p in seen for one in snapshot.chunks(p.page_id))
