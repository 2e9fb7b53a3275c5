"""One suite for everything that finds the nearest vectors, on every catalog: in memory, by files, by usearch.

Expected is what a look at all vectors of the same snapshot gives. What shares files is asked twice: as a
process that has followed so far, and as one that has just begun.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from penstock.catalog.protocol import Catalog, CatalogSnapshot
from penstock.catalog.values import Filters, NewPage, Place, Removal
from penstock.pipeline.vectors.cache import VectorCache
from penstock.pipeline.vectors.directory import CacheDirectory, Sizes
from penstock.pipeline.vectors.protocol import NearestVectors, NearVector
from penstock.worker.vector_upkeep import keep_all
from tests.catalog.conftest import at, chunk, put, sweep

SPACE = "eight"
SMALL = Sizes(file_from=4, max_drift=3, index_from=10**9)
DRAWN = Sizes(file_from=4, max_drift=3, index_from=4)


class Implementation:
    """One way of finding: how a process opens it, and what a worker does for it meanwhile."""

    def __init__(self, shelf: CacheDirectory | None) -> None:
        self._shelf = shelf
        self._followed = VectorCache(shelf)

    def upkeep(self, catalog: Catalog) -> None:
        if self._shelf is not None:
            keep_all(catalog, self._shelf)

    def askers(self) -> tuple[NearestVectors, NearestVectors]:
        return self._followed, VectorCache(self._shelf)


IMPLEMENTATIONS: dict[str, Callable[[Path], Implementation]] = {
    "memory": lambda _: Implementation(None),
    "mapped": lambda place: Implementation(CacheDirectory(place / "vectors", "one", SMALL)),
    "usearch": lambda place: Implementation(CacheDirectory(place / "vectors", "one", DRAWN)),
}


@pytest.fixture(params=IMPLEMENTATIONS)
def vectors(request: pytest.FixtureRequest, tmp_path: Path) -> Implementation:
    return IMPLEMENTATIONS[request.param](tmp_path)


def vector(*values: float) -> bytes:
    made = np.zeros(8, np.float32)
    made[: len(values)] = values
    return (made / max(float(np.linalg.norm(made)), 1e-9)).astype("<f4").tobytes()


def query(*values: float) -> np.ndarray:
    return np.frombuffer(vector(*values), "<f4")


def publish(catalog: Catalog, path: str, *made: bytes, tenant: str = "acme", second: float = 0) -> None:
    chunks = tuple(chunk(f"{path} {number} {second}", each) for number, each in enumerate(made))
    put(
        catalog,
        path,
        NewPage(number=1, chunks=chunks),
        place=Place(tenant, "docs"),
        space=SPACE,
        asked_at=at(second),
        content_hash=f"{path} {second}",
    )


def expected(
    snapshot: CatalogSnapshot,
    asked: np.ndarray,
    limit: int,
    allowed: Collection[int] | None = None,
    tenant: str = "acme",
) -> list[NearVector]:
    scored = []
    for batch in snapshot.load(tenant, SPACE):
        rows = np.frombuffer(batch.vectors, "<f4").reshape(-1, 8)
        names = zip(np.frombuffer(batch.content_ids, "q"), np.frombuffer(batch.family_keys, "q"), strict=True)
        for (number, key), row in zip(names, rows, strict=True):
            score = float(row @ asked)
            if score != 0 and (allowed is None or key in allowed):
                scored.append(NearVector(int(number), score))
    return sorted(scored, key=lambda near: (-round(near.score, 5), near.content_id))[:limit]


def check(
    vectors: Implementation,
    snapshot: CatalogSnapshot,
    asked: np.ndarray,
    limit: int = 10,
    allowed: Collection[int] | None = None,
    tenant: str = "acme",
) -> list[NearVector]:
    """The same for every process, and as the snapshot has it; the last bits of a score may differ."""
    wanted = expected(snapshot, asked, limit, allowed, tenant)
    for asker in vectors.askers():
        found = asker.nearest(snapshot, tenant, SPACE, asked, limit=limit, allowed=allowed)
        assert [round(near.score, 4) for near in wanted] == [round(near.score, 4) for near in found]
        within = expected(snapshot, asked, 10_000, allowed, tenant)
        assert {near.content_id for near in found} <= {near.content_id for near in within}
        assert len(found) == len({near.content_id for near in found})
    return found


def filled(catalog: Catalog, count: int = 12) -> None:
    for number in range(count):
        publish(catalog, f"/{number}.md", vector(1, number / 10), vector(1, 0, number / 10))


def test_the_nearest_come_first_and_a_vector_of_zeros_never(catalog: Catalog, vectors: Implementation):
    filled(catalog)
    publish(catalog, "/away.md", vector(-1))
    publish(catalog, "/nowhere.md", vector())
    vectors.upkeep(catalog)

    with catalog.snapshot() as snapshot:
        found = check(vectors, snapshot, query(1, 0.35), 5)
        assert 25 == len(check(vectors, snapshot, query(1), 100))
    assert found[0].score >= found[-1].score


def test_equal_scores_come_in_the_order_of_their_ids(catalog: Catalog, vectors: Implementation):
    for number in range(9):
        publish(catalog, f"/{number}.md", vector(1))
    vectors.upkeep(catalog)

    with catalog.snapshot() as snapshot:
        wanted = expected(snapshot, query(1), 4)
        for asker in vectors.askers():
            found = asker.nearest(snapshot, "acme", SPACE, query(1), limit=4)
            assert [near.content_id for near in wanted] == [near.content_id for near in found]


def test_only_allowed_sources_are_found_however_few(catalog: Catalog, vectors: Implementation):
    filled(catalog)
    publish(catalog, "/last.py", vector(0.1, 0, 0, 1))
    vectors.upkeep(catalog)

    with catalog.snapshot() as snapshot:
        (last,) = snapshot.matching(Filters(tenant_id="acme", path="*.py")) or []
        some = snapshot.matching(Filters(tenant_id="acme", path="/1*.md")) or []
        assert 1 == len(check(vectors, snapshot, query(1), 3, [last]))
        assert 6 == len(check(vectors, snapshot, query(1), 10, some))
        assert [] == check(vectors, snapshot, query(1), 10, [])


def test_what_is_published_edited_or_removed_counts_at_once(catalog: Catalog, vectors: Implementation):
    filled(catalog)
    vectors.upkeep(catalog)
    with catalog.snapshot() as snapshot:
        check(vectors, snapshot, query(1))

    publish(catalog, "/new.md", vector(0, 0, 0, 1))
    publish(catalog, "/3.md", vector(0, 0, 0, 0, 1), second=1)
    catalog.remove(Removal(tenant_id="acme", path="/4.md", asked_at=at(2)))

    for settled in (False, True):
        if settled:
            sweep(catalog)
            vectors.upkeep(catalog)
        with catalog.snapshot() as snapshot:
            assert 1 == len(check(vectors, snapshot, query(0, 0, 0, 1)))
            assert 1 == len(check(vectors, snapshot, query(0, 0, 0, 0, 1)))
            assert 20 == len(check(vectors, snapshot, query(1), 100))


def test_everything_may_go_and_come_again(catalog: Catalog, vectors: Implementation):
    filled(catalog)
    vectors.upkeep(catalog)
    catalog.remove(Removal(tenant_id="acme", asked_at=at(1)))
    with catalog.snapshot() as snapshot:
        assert [] == check(vectors, snapshot, query(1))
    sweep(catalog)
    vectors.upkeep(catalog)
    publish(catalog, "/0.md", vector(1), second=2)

    with catalog.snapshot() as snapshot:
        assert 1 == len(check(vectors, snapshot, query(1)))


def test_an_older_snapshot_is_answered_as_it_is(opened: Callable[[], Catalog], vectors: Implementation):
    catalog, writer = opened(), opened()
    filled(writer)
    vectors.upkeep(catalog)
    with ExitStack() as stack:
        before = stack.enter_context(catalog.snapshot())
        check(vectors, before, query(1))
        publish(writer, "/new.md", vector(1))
        writer.remove(Removal(tenant_id="acme", path="/0.md", asked_at=at(1)))
        between = stack.enter_context(catalog.snapshot())
        sweep(writer)
        filled(writer, 3)
        publish(writer, "/5.md", vector(0, 0, 0, 1), second=2)
        vectors.upkeep(catalog)
        after = stack.enter_context(catalog.snapshot())

        for snapshot in (after, before, between, after, between):
            check(vectors, snapshot, query(1, 0.2), 50)
        assert 24 == len(check(vectors, before, query(1), 50))


def test_tenants_and_spaces_keep_apart(catalog: Catalog, vectors: Implementation):
    filled(catalog)
    for number in range(6):
        publish(catalog, f"/{number}.md", vector(1), tenant="other")
    put(catalog, "/x.md", space="static", asked_at=at(9))
    vectors.upkeep(catalog)

    with catalog.snapshot() as snapshot:
        assert 24 == len(check(vectors, snapshot, query(1), 100))
        assert 6 == len(check(vectors, snapshot, query(1), 100, tenant="other"))
        assert [] == check(vectors, snapshot, query(1), tenant="nobody")


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_happens_the_answer_is_that_of_a_look_at_all(
    catalog: Catalog, vectors: Implementation, seed: int
):
    chance = random.Random(seed)
    for step in range(1, 40):
        what = chance.choice(["publish"] * 5 + ["edit", "edit", "remove", "sweep", "upkeep"])
        path = f"/{chance.randrange(15)}.md"
        if what in ("publish", "edit"):
            count = chance.randint(1, 4) if what == "publish" else 1
            made = [vector(*(chance.gauss(0.2, 1) for _ in range(8))) for _ in range(count)]
            publish(catalog, path, *made, second=step)
        elif what == "remove":
            catalog.remove(Removal(tenant_id="acme", path=path, asked_at=at(step)))
        elif what == "sweep":
            sweep(catalog)
        else:
            vectors.upkeep(catalog)
        asked = query(*(chance.gauss(0.2, 1) for _ in range(8)))
        with catalog.snapshot() as snapshot:
            allowed = snapshot.matching(Filters(tenant_id="acme", path=f"/{chance.randrange(10)}*"))
            check(vectors, snapshot, asked, chance.choice([1, 3, 50]), chance.choice([None, allowed]))
