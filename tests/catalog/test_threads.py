"""One catalog object for all threads of a process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Phase
from tests.catalog.conftest import TASK_LEASE, begin, embed, found, page, put, read, source, take, vectors

THREADS = 6
ROUNDS = 5
PATIENCE = 60.0


def test_threads_share_one_catalog(catalog: Catalog):
    start = threading.Barrier(THREADS)

    def use(number: int) -> None:
        start.wait(PATIENCE)
        for turn in range(ROUNDS):
            put(catalog, f"/{number}-{turn}.md", page(f"wheel {number} {turn}"))
            begin(catalog, f"/{number}-{turn}.pdf", count=1)
            catalog.check()
            take(catalog, Phase.GRAPHRAG)
            catalog.wait(0.001)
            assert f"wheel {number} {turn}" in found(catalog, "wheel")
            assert source(catalog, f"/{number}-{turn}.md") is not None
            vectors(catalog)
            catalog.outbox()
            catalog.expired(lease=TASK_LEASE)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(use, range(THREADS)))
    read(catalog, "river")
    assert THREADS * ROUNDS == embed(catalog)

    assert THREADS * ROUNDS == len(found(catalog, "wheel"))
    assert 2 * THREADS * ROUNDS == vectors(catalog)


def test_every_thread_that_waits_is_told(catalog: Catalog, opened: Callable[[], Catalog]):
    other, ready = opened(), threading.Barrier(THREADS + 1)

    def wait() -> bool:
        while catalog.wait(0):
            pass
        ready.wait(PATIENCE)
        return catalog.wait(PATIENCE)

    with ThreadPoolExecutor(THREADS) as pool:
        waiting = [pool.submit(wait) for _ in range(THREADS)]
        ready.wait(PATIENCE)
        begin(other)
        assert [True] * THREADS == [told.result() for told in waiting]
