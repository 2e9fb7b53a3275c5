"""Vector files: whatever happens to them, answers agree with the catalog."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from penstock.catalog.sql.sqlite import SqliteCatalog
from penstock.catalog.values import Removal, SourceMark
from penstock.clock import now
from penstock.pipeline.vectors.cache import SpaceCache, VectorCache, same_history
from penstock.pipeline.vectors.directory import CacheDirectory
from penstock.pipeline.vectors.footer import read_footer
from penstock.pipeline.vectors.nearest import Label
from penstock.worker.vector_upkeep import keep_all
from tests.conformance.durable_engines import ROOT
from tests.pipeline.vector_catalog import (
    DIMENSION,
    ROWS,
    SIZES,
    SPACE,
    ask,
    cut,
    flip,
    index_stamp,
    label,
    sample_vectors,
    store,
)


def test_a_search_leaves_what_it_read_for_the_next_one(catalog: SqliteCatalog, directory: CacheDirectory):
    wanted = ask(catalog, None)

    assert wanted == ask(catalog, directory)
    assert (ROWS, 0) == (label(directory).rows, label(directory).holes)
    assert wanted == ask(catalog, directory)
    assert 0o600 == directory.vectors("acme", SPACE).stat().st_mode & 0o777


def test_little_is_read_from_the_catalog_every_time(tmp_path: Path, directory: CacheDirectory):
    catalog = SqliteCatalog(tmp_path / "small.db", synchronous="NORMAL")
    store(catalog, sample_vectors(90))

    assert ask(catalog, None) == ask(catalog, directory)
    assert [] == directory.files()
    catalog.close()


SPOILERS: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "empty": lambda path: cut(path, 0),
    "a few bytes": lambda path: cut(path, 9),
    "half": lambda path: cut(path, path.stat().st_size // 2),
    "one byte short": lambda path: cut(path, path.stat().st_size - 1),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "other end": lambda path: flip(path, path.stat().st_size - 30),
    "of nothing": lambda path: path.write_bytes(os.urandom(5000)),
}


@pytest.mark.parametrize("spoil", SPOILERS.values(), ids=SPOILERS)
@pytest.mark.parametrize("suffix", [".vectors", ".graph"])
def test_a_file_that_is_not_whole_is_as_good_as_none(
    catalog: SqliteCatalog, directory: CacheDirectory, spoil: Callable[[Path], object], suffix: str
):
    wanted = ask(catalog, None)
    keep_all(catalog, directory)
    spoil(directory.vectors("acme", SPACE).with_suffix(suffix))

    assert wanted == ask(catalog, directory)
    keep_all(catalog, directory)
    assert not directory.damaged()
    assert ROWS == label(directory).rows
    assert wanted == ask(catalog, directory)


def test_a_wrong_number_of_a_chunk_is_noticed_before_it_is_used(
    catalog: SqliteCatalog, directory: CacheDirectory
):
    wanted = ask(catalog, directory)
    flip(directory.vectors("acme", SPACE), ROWS * DIMENSION * 4 + 8)

    assert directory.damaged()
    assert wanted == ask(catalog, directory)


def test_a_wrong_vector_is_not_carried_on(catalog: SqliteCatalog, directory: CacheDirectory):
    ask(catalog, directory)
    flip(directory.vectors("acme", SPACE), 3)
    assert directory.damaged()
    store(catalog, sample_vectors(50, seed=5), name="more")

    assert ask(catalog, None) == ask(catalog, directory)
    assert not directory.damaged()


def test_a_file_of_another_tenant_or_catalog_is_not_used(
    catalog: SqliteCatalog, directory: CacheDirectory, tmp_path: Path
):
    store(catalog, sample_vectors(ROWS, seed=3), tenant="other")
    wanted, others = ask(catalog, None), ask(catalog, None, "other")
    ask(catalog, directory, "other")
    shutil.copy(directory.vectors("other", SPACE), directory.vectors("acme", SPACE))

    assert wanted == ask(catalog, directory)
    assert others == ask(catalog, directory, "other")
    elsewhere = CacheDirectory(tmp_path / "elsewhere", "two", SIZES)
    ask(catalog, elsewhere, "other")
    shutil.copy(directory.vectors("acme", SPACE), elsewhere.vectors("acme", SPACE))
    assert wanted == ask(catalog, elsewhere)
    footer = read_footer(elsewhere.vectors("acme", SPACE), Label)
    assert footer is not None
    assert "two" == footer.meta.owner.catalog


A, B, C = SourceMark(1, 10, "a"), SourceMark(2, 20, "b"), SourceMark(3, 30, "c")


@pytest.mark.parametrize(
    ("then", "now", "changed", "believed"),
    [
        ([B, C], [B, C], [], True),
        ([B, C], [A, B], [3], True),  # changed since
        ([B, C], [A], [2, 3], True),
        ([B, C], [A, B], [], False),  # lost
        ([B, C], [B, SourceMark(3, 30, "x")], [], False),  # another change under the same number
        ([B, C], [A, SourceMark(4, 25, "d")], [2, 3], False),  # a new source
        ([], [A], [], False),
    ],
)
def test_a_file_is_believed_if_its_witnesses_agree(then, now, changed, believed):
    assert believed is same_history(then, now, changed)


def again(catalog: SqliteCatalog) -> None:
    """A few sources, written repeatedly until their change numbers pass the file's number."""
    for seed in range(4, 9):
        store(catalog, sample_vectors(100, seed=seed), name="since")


def others(catalog: SqliteCatalog) -> None:
    """The old sources, edited, then as many new ones as were lost, which get the same numbers."""
    for seed in (4, 5):
        store(catalog, sample_vectors(200, seed=seed))
    store(catalog, sample_vectors(400, seed=6), name="since")


SINCE: dict[str, Callable[[SqliteCatalog], None]] = {
    "nothing": lambda catalog: None,
    "little": lambda catalog: store(catalog, sample_vectors(30, seed=4), name="since"),
    "much": lambda catalog: store(catalog, sample_vectors(500, seed=4), name="since"),
    "again and again": again,
    "others": others,
}


@pytest.mark.parametrize("since", SINCE.values(), ids=SINCE)
def test_a_catalog_that_was_restored_does_not_get_answers_of_what_it_lost(
    tmp_path: Path, directory: CacheDirectory, since: Callable[[SqliteCatalog], None]
):
    """A restored catalog continues from an earlier change number and passes the file's number again."""
    place = tmp_path / "catalog.db"
    catalog = SqliteCatalog(place, synchronous="NORMAL")
    store(catalog, sample_vectors(200))
    catalog.close()
    saved = place.read_bytes()
    catalog = SqliteCatalog(place, synchronous="NORMAL")
    store(catalog, sample_vectors(400, seed=2), name="lost")
    keep_all(catalog, directory)
    catalog.close()

    for left in tmp_path.glob("catalog.db*"):
        left.unlink()
    place.write_bytes(saved)
    catalog = SqliteCatalog(place, synchronous="NORMAL")
    since(catalog)
    assert ask(catalog, None) == ask(catalog, directory)
    assert ask(catalog, None) == ask(catalog, directory)
    catalog.close()


def test_another_catalog_at_the_same_place_is_not_taken_for_the_old_one(
    tmp_path: Path, directory: CacheDirectory
):
    for seed in (1, 2):
        catalog = SqliteCatalog(tmp_path / f"{seed}.db", synchronous="NORMAL")
        store(catalog, sample_vectors(ROWS, seed=seed))

        assert ask(catalog, None) == ask(catalog, directory)
        catalog.close()


def test_only_one_process_writes_a_file_at_a_time(catalog: SqliteCatalog, directory: CacheDirectory):
    with directory.lock("acme", SPACE) as alone:
        assert alone
        assert ask(catalog, None) == ask(catalog, directory)
        assert [] == directory.files()
        keep_all(catalog, directory)
        assert None is index_stamp(directory)
    ask(catalog, directory)
    assert 1 == len(directory.files())


def follow(copy: SpaceCache, catalog: SqliteCatalog) -> None:
    with catalog.snapshot() as snapshot:
        copy.follow(snapshot)


def test_a_file_of_its_own_is_no_part_of_the_lineage_of_others(
    catalog: SqliteCatalog, directory: CacheDirectory
):
    keep_all(catalog, directory)
    copies = [SpaceCache("acme", SPACE, DIMENSION, directory) for _ in range(2)]
    for each in copies:
        follow(each, catalog)
    store(catalog, sample_vectors(60, seed=5), name="b")
    with directory.lock("acme", SPACE):
        follow(copies[0], catalog)
    follow(copies[1], catalog)
    alone, shared = (each.base for each in copies)

    assert alone is not None
    assert shared is not None
    assert alone.label.lineage != shared.label.lineage == label(directory).lineage


@pytest.mark.parametrize("spoilt", [False, True])
def test_a_file_of_which_all_is_gone_is_not_written_again(
    catalog: SqliteCatalog, directory: CacheDirectory, spoilt: bool
):
    copy = SpaceCache("acme", SPACE, DIMENSION, directory)
    follow(copy, catalog)
    if spoilt:
        with directory.vectors("acme", SPACE).open("r+b") as file:
            file.write(b"\x55")
    catalog.remove(Removal(tenant_id="acme", asked_at=now()))
    follow(copy, catalog)

    assert copy.base is None
    assert [] == copy.nearest(sample_vectors(1)[0], 10, None)


def test_a_process_killed_while_it_writes_leaves_nothing_that_counts(
    catalog: SqliteCatalog, directory: CacheDirectory, tmp_path: Path
):
    started = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(started, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
        assert child.stdout is not None
        assert "half\n" == child.stdout.readline()
        child.send_signal(signal.SIGKILL)
    left = list((tmp_path / "vectors").rglob("*.young"))

    assert 1 == len(left)
    assert [] == directory.files()
    assert ask(catalog, None) == ask(catalog, directory)
    assert 1 == len(directory.files())
    assert not left[0].exists()


KILLED = """
import sys, time
from pathlib import Path
from penstock.catalog.sql.sqlite import SqliteCatalog
from penstock.pipeline.vectors.cache import SpaceCache
from penstock.pipeline.vectors.directory import CacheDirectory
from tests.pipeline.vector_catalog import DIMENSION, SIZES, SPACE

place = Path(sys.argv[1])
cache = SpaceCache("acme", SPACE, DIMENSION, CacheDirectory(place / "vectors", "one", SIZES))

class Stuck:
    def __init__(self, snapshot): self.snapshot = snapshot
    def __getattr__(self, name): return getattr(self.snapshot, name)
    def load(self, *asked):
        for batch in self.snapshot.load(*asked):
            yield batch
            print("half", flush=True)
            time.sleep(600)

with SqliteCatalog(place / "catalog.db").snapshot() as snapshot:
    cache.follow(Stuck(snapshot))
"""


def test_where_no_file_can_be_written_vectors_are_read_into_memory(catalog: SqliteCatalog, tmp_path: Path):
    (tmp_path / "vectors").write_text("a file, where the directory would be")

    assert ask(catalog, None) == ask(catalog, CacheDirectory(tmp_path / "vectors", "one", SIZES))


def test_files_may_be_deleted_while_they_are_used(catalog: SqliteCatalog, directory: CacheDirectory):
    copies = VectorCache(directory)
    keep_all(catalog, directory)
    for _ in range(2):
        with catalog.snapshot() as snapshot:
            for each in sample_vectors(5, seed=6):
                found = copies.nearest(snapshot, "acme", SPACE, each, limit=5)
                assert found == VectorCache().nearest(snapshot, "acme", SPACE, each, limit=5)
        shutil.rmtree(directory.vectors("acme", SPACE).parent)
        store(catalog, sample_vectors(40, seed=8), name="more")


def test_nothing_of_a_tenant_stays_that_is_forgotten(catalog: SqliteCatalog, directory: CacheDirectory):
    store(catalog, sample_vectors(ROWS, seed=3), tenant="other")
    keep_all(catalog, directory)
    with catalog.snapshot() as before:
        before.changes("acme")
        catalog.remove(Removal(tenant_id="acme", asked_at=now()))
        with catalog.snapshot() as after:
            directory.remove_tenant("acme", after.changes("acme").sequence)
        # A reader of the earlier snapshot must not restore the file.
        asked = sample_vectors(1)[0]
        found = VectorCache(directory).nearest(before, "acme", SPACE, asked, limit=5)

    assert 5 == len(found)
    assert [directory.vectors("other", SPACE)] == directory.files()
    assert not directory.index("acme", SPACE).exists()


def test_nothing_of_a_tenant_stays_where_not_even_a_note_can_be_written(
    catalog: SqliteCatalog, directory: CacheDirectory, tmp_path: Path
):
    ask(catalog, directory)
    directory.remove_tenant("acme", 1)
    (note,) = tmp_path.glob("vectors/one/*.gone")
    note.unlink()
    ask(catalog, directory)
    note.mkdir()
    with pytest.raises(OSError):
        directory.remove_tenant("acme", 2)

    assert [] == directory.files()


def test_files_of_spaces_that_are_no_more_are_swept(catalog: SqliteCatalog, directory: CacheDirectory):
    store(catalog, sample_vectors(ROWS, seed=3), tenant="other")
    keep_all(catalog, directory)

    assert 0 == directory.sweep(lambda _: {SPACE})
    assert 1 == directory.sweep(lambda tenant_id: {SPACE} if tenant_id == "other" else {"another"})
    assert [directory.vectors("other", SPACE)] == directory.files()
    assert directory.index("other", SPACE).exists()
    assert not directory.index("acme", SPACE).exists()


def test_a_copy_that_has_begun_takes_up_what_others_write(catalog: SqliteCatalog, directory: CacheDirectory):
    copy = SpaceCache("acme", SPACE, DIMENSION, directory)
    with catalog.snapshot() as snapshot:
        copy.follow(snapshot)
    assert copy.base is not None
    first = copy.base.stamp
    store(catalog, sample_vectors(10, seed=4), name="a")
    catalog.remove(Removal(tenant_id="acme", path="/a0.md", asked_at=now()))
    with catalog.snapshot() as snapshot:
        SpaceCache("acme", SPACE, DIMENSION, directory).follow(snapshot, compact=True)
    store(catalog, sample_vectors(10, seed=5), name="b")
    with catalog.snapshot() as snapshot:
        copy.follow(snapshot)

    assert copy.base is not None
    assert first != copy.base.stamp
    assert 10 == copy.base.label.holes


def test_a_worker_does_not_leave_what_was_removed_in_an_old_file(
    catalog: SqliteCatalog, directory: CacheDirectory
):
    keep_all(catalog, directory)
    catalog.remove(Removal(tenant_id="acme", path="/a0.md", asked_at=now()))
    keep_all(catalog, directory)
    assert 0 == label(directory).holes
    long_ago = now().timestamp() - 7_200
    os.utime(directory.vectors("acme", SPACE), (long_ago, long_ago))

    keep_all(catalog, directory)
    assert 10 == label(directory).holes
    assert not np.frombuffer(directory.vectors("acme", SPACE).read_bytes()[: 10 * 64], "<f4").any()
