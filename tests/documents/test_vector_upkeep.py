"""Files of vectors in a whole installation: searches make them, workers keep them, a deletion ends them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from penstock import Penstock, clock, config
from penstock.assembly import Assembly
from penstock.catalog.rules.identity import text_hash
from penstock.catalog.values import NewChunk, NewGeneration, NewPage, Place
from penstock.pipeline.embed.hash_embedder import HashingEmbedder
from penstock.pipeline.embed.protocol import space_of
from penstock.pipeline.vectors.ann_index import IndexStamp
from penstock.pipeline.vectors.cache_directory import CacheDirectory, open_shelf
from penstock.pipeline.vectors.footer import unseal
from penstock.service.verification import Verifier
from penstock.worker.upkeep.vectors import ROUNDS, VectorKeeper

DOCUMENTS, CHUNKS = 60, 100
MODEL = HashingEmbedder(32)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory with a few more chunks than are read from the catalog every time."""
    place = tmp_path_factory.mktemp("filled")
    with Penstock(state_dir=place) as app:
        for start in range(0, DOCUMENTS, 20):
            made = [document(number) for number in range(start, start + 20)]
            app.documents.catalog.store(made)
    return place


def document(number: int) -> NewGeneration:
    texts = [f"wheel{number} water{at} mill{at % 7}" for at in range(CHUNKS)]
    vectors = np.asarray(MODEL.embed(texts), "<f4")
    chunks = tuple(
        NewChunk(text=text, text_hash=text_hash(text), start=0, end=len(text), vector=vector.tobytes())
        for text, vector in zip(texts, vectors, strict=True)
    )
    now = clock.now()
    return NewGeneration(
        place=Place("acme", "docs"),
        path=f"note:{number}",
        content_hash=str(number),
        asked_at=now,
        read_at=now,
        pages=(NewPage(number=1, chunks=chunks),),
        space=space_of(MODEL),
    )


@pytest.fixture
def app(filled: Path, tmp_path: Path) -> Iterator[Penstock]:
    for each in filled.glob("penstock.db*"):
        (tmp_path / each.name).write_bytes(each.read_bytes())
    with Penstock(settings=config.load({}, state_dir=tmp_path, usearch_from=1_000)) as opened:
        yield opened


def hits(app: Penstock) -> list[tuple[str, float]]:
    found = app.search("wheel3 water5 mill5", mode="vector", tenant_id="acme")
    return [(hit.chunk_id, hit.score) for hit in found]


def test_the_first_search_makes_the_file_and_the_next_process_uses_it(app: Penstock):
    first = hits(app)
    (made,) = open_shelf(app.settings).files()
    stamp = made.stat()

    with Penstock(settings=app.settings) as another:
        assert first == hits(another)
    assert stamp.st_mtime_ns == made.stat().st_mtime_ns
    assert 10 == len(first)


def test_deleting_a_tenant_leaves_no_file_of_its_vectors(app: Penstock):
    hits(app)
    shelf = open_shelf(app.settings)
    assert 1 == len(shelf.files())
    receipt = app.submit(
        item_type="delete_tenant", op="delete", payload={"tenant_id_to_delete": "acme"}, tenant_id="acme"
    )

    with app.worker_thread():
        assert "done" == app.wait(receipt.job_id, timeout=120).status
    left = [path.suffix for path in shelf.vectors("acme", "").parent.iterdir()]
    assert [".gone"] == left
    assert [] == hits(app)


def test_verify_finds_a_damaged_copy_and_fixing_removes_it(app: Penstock):
    wanted = hits(app)
    (made,) = open_shelf(app.settings).files()
    verifier = Verifier(app.documents.catalog, app)
    assert [] == list(verifier.differences())
    whole = bytearray(made.read_bytes())
    whole[1000] ^= 0xFF
    made.write_bytes(whole)

    assert [f"a copy of vectors is damaged: {made}"] == [one.what for one in verifier.differences()]
    assert 1 == verifier.repair()
    assert [] == list(verifier.differences())
    with Penstock(settings=app.settings) as another:
        assert wanted == hits(another)


def keeper(app: Penstock, shelf: CacheDirectory) -> VectorKeeper:
    again = Assembly(app.settings).open_catalog
    return VectorKeeper(app.documents.catalog, again, shelf, "spawn")


def drawn(shelf: CacheDirectory) -> IndexStamp | None:
    sealed = unseal(shelf.graph("acme", space_of(MODEL)), IndexStamp)
    return sealed.meta if sealed is not None else None


def test_a_worker_keeps_file_and_index_in_a_process_of_its_own(app: Penstock):
    shelf = open_shelf(app.settings)
    duty = keeper(app, shelf)
    try:
        assert not duty.step()
        assert [] == shelf.files()
        duty.step()
        deadline = time.monotonic() + 120
        while drawn(shelf) is None and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        duty.close()
    found = drawn(shelf)
    assert found is not None
    assert DOCUMENTS * CHUNKS == found.covered


def test_a_worker_that_ends_does_not_wait_for_it(app: Penstock):
    shelf = open_shelf(app.settings)
    duty = keeper(app, shelf)
    duty.step()
    duty.step()

    duty.close()
    wanted = hits(app)
    assert 10 == len(wanted)
    for _ in range(ROUNDS):
        duty.step()
    duty.close()


def test_a_worker_sweeps_files_of_tenants_that_are_gone(app: Penstock):
    hits(app)
    shelf = open_shelf(app.settings)
    (made,) = shelf.files()
    made.rename(shelf.vectors("nobody", "static"))
    stray = shelf.vectors("nobody", "static")
    stray.write_bytes(b"half a file")
    duty = keeper(app, shelf)
    try:
        duty.step()
        duty.step()
        assert not stray.exists()
    finally:
        duty.close()


def test_the_size_from_which_usearch_is_used_is_a_setting(tmp_path: Path):
    settings = config.load({"PENSTOCK_USEARCH_FROM": "7000"}, state_dir=tmp_path)

    assert 7_000 == open_shelf(settings).sizes.worth_a_graph
    assert 200_000 == open_shelf(config.load({}, state_dir=tmp_path)).sizes.worth_a_graph
