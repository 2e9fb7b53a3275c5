"""Kills between the vector store, the graph store and the catalog: at the end all have the same."""

from __future__ import annotations

import random
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from penstock import Penstock, clock, config
from penstock.assembly import attach_vectors, open_graph_copies
from penstock.catalog.parts import OutsideStore
from penstock.graph_stores.factory import open_graph_store
from penstock.vector_stores.protocol import collection_name
from penstock.worker.upkeep import Sweeper
from tests.documents import store_killer
from tests.documents.conftest import book
from tests.servers import bolt, postgres
from tests.servers.stores import given_back

FILES = 8
MANY_KILLS = 100


def _settings(place: Path, engine: str) -> config.Settings:
    pgvector = postgres.store_at(place).replace("postgresql", "pgvector", 1)
    url = postgres.store_at(place) if engine == "postgres" else f"sqlite:///{place}/queue.db"
    return config.load(
        {},
        url=url,
        state_dir=place / "state",
        embedder="hashing",
        sqlite_synchronous="NORMAL",
        vector_store=pgvector,
        graph=True,
        graph_store=bolt.server_url() if bolt.available() else "default",
        graph_store_timeout_s=60.0,
        max_retries=1000,
    )


def _without_stores(settings: config.Settings) -> config.Settings:
    given = config.portable_values(settings) | {"vector_store": "default", "graph_store": "default"}
    return config.load({}, **given)


def _change(folder: Path, chosen: random.Random, round_number: int) -> None:
    """Edit some files, remove some, and bring some back with a former text."""
    for number in chosen.sample(range(FILES), 4):
        path = folder / f"{number}.md"
        path.unlink(missing_ok=True)
        what = chosen.random()
        if what < 0.4:
            path.write_text(book(chosen.randint(2, 30)))
        elif what < 0.8:
            path.write_text(f"# Wheel {number}\n\nWater drives wheel {number} in round {round_number}.")


def _settle(app: Penstock, folder: Path) -> None:
    """Finish all work, also the removals that wait for late writers."""
    assert 0 == store_killer.run(app.settings, app.index(folder).job_id, 0)
    catalog = app.documents.catalog
    sweeper = Sweeper(catalog)
    while sweeper.clear_leftovers():
        pass
    later = clock.now() + timedelta(hours=1)
    kept = [attach_vectors(app.settings, catalog), open_graph_copies(app.settings, catalog)]
    for store in kept:
        while store is not None and (store.keep() or store.clear_removals(now=later)):
            pass
        if store is not None:
            store.close()
    for kind in OutsideStore:
        assert [] == catalog.outside.pending_removals(kind, 1, now=later)


def _compare(app: Penstock) -> int:
    """Enumerate both; returns the number of vectors."""
    catalog, store = app.documents.catalog, app._assembly.vector_store
    attached = catalog.outside.attached(OutsideStore.VECTOR)
    assert store is not None
    assert attached is not None
    assert attached.filled
    found = 0
    for space in catalog.outside.spaces():
        known = catalog.outside.vector_ids(space)
        assert known == store.ids(collection_name(attached.catalog_id, space))
        found += len(known)
    assert [] == catalog.audit()
    # Of the graph, every entity, mention and relation is compared.
    assert [] == list(app.verifier.differences())
    assert all(store.filled for store in app.documents.overview().stores)
    return found


def _forget_graph(app: Penstock) -> None:
    """Remove what the shared graph store has of this catalog."""
    store = open_graph_store(app.settings)
    attached = app.documents.catalog.outside.attached(OutsideStore.GRAPH)
    if store is not None and attached is not None:
        store.clear(attached.catalog_id)
        store.close()


def _killed(place: Path, engine: str, kills: int, seed: int) -> int:
    """Kill workers while they fill the stores, write to them and remove from them; return how often."""
    chosen = random.Random(seed)
    folder = place / "files"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"{number}.md").write_text(f"# Wheel {number}\n\nWater drives Wheel {number} of Ann Lee.")
    settings = _settings(place, engine)
    with Penstock(settings=_without_stores(settings)) as app:
        assert 0 == store_killer.run(app.settings, app.index(folder).job_id, 0)
    with Penstock(settings=settings) as app:
        died = 0
        for round_number in range(2 * kills):
            _change(folder, chosen, round_number)
            job = app.index(folder)
            ended = store_killer.run(settings, job.job_id, chosen.randint(1, 30))
            assert ended in (0, -signal.SIGKILL)
            died += ended != 0
            if died == kills:
                break
        assert died
        _settle(app, folder)
        assert _compare(app) >= FILES // 4
        _forget_graph(app)
    given_back(place)
    return died


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_kills_between_store_and_catalog_leave_both_alike(tmp_path: Path, engine: str):
    _killed(tmp_path, engine, 2, seed=11)


@pytest.mark.chaos
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_hundred_kills_between_store_and_catalog(tmp_path: Path, engine: str):
    assert MANY_KILLS == _killed(tmp_path, engine, MANY_KILLS, seed=random.randrange(10**9))
