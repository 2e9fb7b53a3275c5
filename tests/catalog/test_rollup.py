"""Rollup: the rule as a table, and every catalog compared with the rule for random trees."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.catalog.protocol import Catalog
from penstock.catalog.rules import publication
from penstock.catalog.rules.publication import PartCounts, counted, kind
from penstock.catalog.values import (
    Failure,
    FailureKind,
    Gate,
    GenerationState,
    NewPage,
    Phase,
    Task,
    TaskOutcome,
    TaskStatus,
)
from tests.catalog.conftest import (
    CATALOGS,
    TASK_LEASE,
    TRANSIENT,
    VECTOR,
    at,
    chunk,
    completed_graph,
    generation,
    take,
)
from tests.conformance.durable_engines import given_back

P, W, F, C, S = "processing", "pending", "failed", "completed", "skipped"


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ([C, P, W], P),
        ([C, C, C], C),
        ([P, F], P),
        ([W, F, C], W),
        ([C, F], F),
        ([F, S], F),
        ([C, S], C),
        ([S, S], S),
        ([], S),
    ],
)
def test_a_parent_stands_as_its_parts_do(parts: list[str], status: str):
    assert status == counted([kind(part) for part in parts]).status


def test_a_failure_with_retries_left_counts_as_pending():
    assert TaskStatus.PENDING == counted([kind(F, True), kind(C), kind(F)]).status


@given(st.lists(st.integers(0, 4)), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4))))
def test_counting_changes_equals_counting_again(parts: list[int], moves: list[tuple[int, int]]):
    tally, before = publication.PartChanges(), counted(parts)
    for index, after in moves:
        if index < len(parts):
            tally.move(1, parts[index], after)
            parts[index] = after

    deltas = dict(tally.items())
    assert counted(parts) == before.changed(deltas.get(1, [0, 0, 0, 0]))
    assert all(number >= 0 for number in counted(parts))
    assert isinstance(counted(parts), PartCounts)


class Drive:
    """Random work on random documents; after each step the catalog audits itself against the rule."""

    def __init__(self, catalog: Catalog, seed: int) -> None:
        self._catalog = catalog
        self._random = Random(seed)
        self._second = 0.0
        self._held: list[Task] = []

    def run(self, steps: int) -> None:
        for number in range(self._random.randint(1, 3)):
            self._store(number)
        for _ in range(steps):
            self._second += self._random.choice([1, 50])
            self._random.choice(
                [self._claim, self._claim, self._settle, self._settle, self._retry, self._reap]
            )()
            assert [] == self._catalog.audit()
        self._finish()

    def _store(self, number: int) -> None:
        parts = [self._page(index) for index in range(1, self._random.randint(2, 6))]
        self._catalog.store(
            [
                generation(
                    f"/{number}.pdf",
                    *parts,
                    graph=self._random.random() < 0.7,
                    gate=self._random.choice(list(Gate)),
                    space=self._random.choice(["static", "static", None]),
                    max_retries=self._random.randint(0, 2),
                )
            ],
            now=at(0),
        )

    def _page(self, number: int) -> NewPage:
        way = self._random.random()
        if way < 0.6:
            return NewPage(number=number)
        if way < 0.7:
            return NewPage(number=number, failure=Failure("ERR_PARSE", "damaged"))
        return self._read(number)

    def _read(self, number: int) -> NewPage:
        count = self._random.randint(0, 4)
        texts = [self._random.choice(["same", f"{number} {index}"]) for index in range(count)]
        return NewPage(
            number=number,
            chunks=tuple(chunk(text, self._random.choice([None, None, VECTOR])) for text in texts),
        )

    def _claim(self) -> None:
        lane = self._random.choice(list(Phase))
        self._held += take(self._catalog, lane, self._random.randint(1, 4), at(self._second))

    def _settle(self) -> None:
        self._random.shuffle(self._held)
        count = self._random.randint(0, len(self._held))
        ending, self._held = self._held[:count], self._held[count:]
        self._catalog.settle([self._outcome(task) for task in ending], now=at(self._second))

    def _outcome(self, task: Task) -> TaskOutcome:
        way = self._random.random()
        if way < 0.12:
            return publication.failed(task, Failure("ERR_X", "no", self._random.choice(list(FailureKind))))
        if way < 0.3:
            return publication.failed_attempt(task, TRANSIENT, "no route")
        if way < 0.4:
            ways = [publication.lost(task), publication.released(task)]
            # A document none of whose pages could be read is rightly kept back for ever.
            return self._random.choice(
                ways if task.lane is Phase.OCR else [*ways, publication.skipped(task, "no")]
            )
        return self._done(task)

    def _done(self, task: Task) -> TaskOutcome:
        if task.lane is Phase.OCR:
            return publication.completed_page(task, self._read(task.page_number))
        if task.lane is Phase.VECTOR:
            return publication.completed_vector(task, VECTOR)
        return completed_graph(task, 1, 1)

    def _retry(self) -> None:
        for document in self._documents()[:1]:
            self._catalog.retry(document, now=at(self._second))

    def _documents(self) -> list[int]:
        with self._catalog.snapshot() as snapshot:
            known = [snapshot.find(generation().place, f"/{number}.pdf") for number in range(3)]
        ids = [source.building_id or source.published_id for source in known if source]
        return [number for number in ids if number is not None]

    def _reap(self) -> None:
        self._second += 130
        claims = self._catalog.expired(lease=TASK_LEASE, now=at(self._second))
        self._catalog.settle([publication.lost(claim) for claim in claims], now=at(self._second))
        self._held.clear()

    def _finish(self) -> None:
        """Everything succeeds from now on: every document is published, whole."""
        self._reap()
        for document in self._documents():
            self._catalog.retry(document, now=at(self._second))
        for lane in list(Phase) * 2:
            while tasks := take(self._catalog, lane, 100, at(self._second)):
                self._catalog.settle([self._done(task) for task in tasks], now=at(self._second))
        assert [] == self._catalog.audit()
        with self._catalog.snapshot() as snapshot:
            for number in self._documents():
                seen = snapshot.document(number)
                assert seen is not None
                assert (GenerationState.PUBLISHED, False) == (seen.state, seen.partial), seen


def driven(examples: int) -> settings:
    return settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("opener", CATALOGS.values(), ids=CATALOGS)
@driven(examples=6)
@given(seed=st.integers(0, 2**32))
def test_pages_and_documents_stand_as_their_parts_whatever_happens(
    opener: Callable[[Path], Catalog], seed: int
):
    _drive(opener, seed)


@pytest.mark.long
@pytest.mark.parametrize("opener", CATALOGS.values(), ids=CATALOGS)
@driven(examples=60)
@given(seed=st.integers(0, 2**32))
def test_pages_and_documents_stand_as_their_parts_in_a_longer_run(
    opener: Callable[[Path], Catalog], seed: int
):
    _drive(opener, seed)


@pytest.mark.chaos
@pytest.mark.parametrize("opener", CATALOGS.values(), ids=CATALOGS)
@driven(examples=600)
@given(seed=st.integers(0, 2**32))
def test_pages_and_documents_stand_as_their_parts_in_a_long_run(opener: Callable[[Path], Catalog], seed: int):
    _drive(opener, seed)


def _drive(opener: Callable[[Path], Catalog], seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        catalog = opener(Path(folder))
        try:
            Drive(catalog, seed).run(20)
        finally:
            catalog.close()
            given_back(Path(folder))
