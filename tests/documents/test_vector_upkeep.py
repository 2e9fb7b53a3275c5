"""Vector files in a whole installation: created by searches, maintained by workers, deleted with a tenant."""

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
from penstock.pipeline.embed import space_of
from penstock.pipeline.embed.static import HashingEmbedder
from penstock.pipeline.vectors.directory import CacheDirectory, open_cache_directory
from penstock.pipeline.vectors.footer import read_footer
from penstock.pipeline.vectors.nearest import IndexStamp
from penstock.worker.vector_upkeep import EVERY_ROUNDS, VectorKeeper

DOCUMENTS, CHUNKS = 60, 100
MODEL = HashingEmbedder(32)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory with just enough chunks for a vector file."""
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
    (made,) = open_cache_directory(app.settings).files()
    stamp = made.stat()

    with Penstock(settings=app.settings) as another:
        assert first == hits(another)
    assert stamp.st_mtime_ns == made.stat().st_mtime_ns
    assert 10 == len(first)


def test_deleting_a_tenant_leaves_no_file_of_its_vectors(app: Penstock):
    hits(app)
    directory = open_cache_directory(app.settings)
    assert 1 == len(directory.files())
    receipt = app.submit(
        item_type="delete_tenant", op="delete", payload={"tenant_id_to_delete": "acme"}, tenant_id="acme"
    )

    with app.worker_thread():
        assert "done" == app.wait(receipt.job_id, timeout=120).status
    left = [path.suffix for path in directory.vectors("acme", "").parent.iterdir()]
    assert [".gone"] == left
    assert [] == hits(app)


def test_verify_finds_a_damaged_copy_and_fixing_removes_it(app: Penstock):
    wanted = hits(app)
    (made,) = open_cache_directory(app.settings).files()
    verifier = app.verifier
    assert [] == list(verifier.differences())
    whole = bytearray(made.read_bytes())
    whole[1000] ^= 0xFF
    made.write_bytes(whole)

    assert [f"a copy of vectors is damaged: {made}"] == [one.what for one in verifier.differences()]
    assert 1 == verifier.repair()
    assert [] == list(verifier.differences())
    with Penstock(settings=app.settings) as another:
        assert wanted == hits(another)


def keeper(app: Penstock, directory: CacheDirectory) -> VectorKeeper:
    again = Assembly(app.settings).open_catalog
    return VectorKeeper(app.documents.catalog, again, directory, "spawn")


def index_stamp(directory: CacheDirectory) -> IndexStamp | None:
    footer = read_footer(directory.index("acme", space_of(MODEL)), IndexStamp)
    return footer.meta if footer is not None else None


def test_a_worker_keeps_file_and_index_in_a_process_of_its_own(app: Penstock):
    directory = open_cache_directory(app.settings)
    vector_keeper = keeper(app, directory)
    try:
        assert not vector_keeper.run()
        assert [] == directory.files()
        vector_keeper.run()
        deadline = time.monotonic() + 600
        while index_stamp(directory) is None and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        vector_keeper.close()
    found = index_stamp(directory)
    assert found is not None
    assert DOCUMENTS * CHUNKS == found.covered


def test_a_worker_that_ends_does_not_wait_for_it(app: Penstock):
    directory = open_cache_directory(app.settings)
    vector_keeper = keeper(app, directory)
    vector_keeper.run()
    vector_keeper.run()

    vector_keeper.close()
    wanted = hits(app)
    assert 10 == len(wanted)
    for _ in range(EVERY_ROUNDS):
        vector_keeper.run()
    vector_keeper.close()


def test_a_worker_sweeps_files_of_tenants_that_are_gone(app: Penstock):
    hits(app)
    directory = open_cache_directory(app.settings)
    (made,) = directory.files()
    made.rename(directory.vectors("nobody", "static"))
    stray = directory.vectors("nobody", "static")
    stray.write_bytes(b"half a file")
    vector_keeper = keeper(app, directory)
    try:
        vector_keeper.run()
        vector_keeper.run()
        assert not stray.exists()
    finally:
        vector_keeper.close()


def test_the_size_from_which_usearch_is_used_is_a_setting(tmp_path: Path):
    settings = config.load({"PENSTOCK_USEARCH_FROM": "7000"}, state_dir=tmp_path)

    assert 7_000 == open_cache_directory(settings).sizes.index_from
    assert 200_000 == open_cache_directory(config.load({}, state_dir=tmp_path)).sizes.index_from
