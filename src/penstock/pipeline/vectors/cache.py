"""Vector caches, kept up to date with the catalog: in memory, or in files shared by all processes.

Before a cache answers, it is brought to the snapshot that the search reads. So a search shows exactly what
its snapshot has.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from penstock import clock
from penstock.catalog.values import SourceMark, VectorChanges
from penstock.config import Settings
from penstock.pipeline.vectors.nearest import Stamp, read_footer, stamp_of
from penstock.pipeline.vectors.protocol import NearVector, VectorSource
from penstock.state_directory import make_private, private_opener

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from penstock.pipeline.vectors.nearest import (
        AnnIndex,
        FileOwner,
        Floats,
        MappedRows,
        Mask,
        Numbers,
        VectorRows,
    )


# Directory of vector cache files: one per catalog, in the state directory, which is never indexed.
#
# The catalog has all of this data. Any file may be deleted at any time, even while it is in use.


REMOVED_KEPT_S = 86_400
"""Time to keep the mark of a removed tenant. No older snapshot is still in use after that."""
VECTORS, INDEX, REMOVED, LOCK, UNFINISHED = ".vectors", ".graph", ".gone", ".lock", ".young"


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of vectors from which files and indexes are used."""

    file_from: int = 5_000
    """Vectors of a tenant from which a file is faster than reading the catalog."""
    max_drift: int = 2_000
    """Changed rows after which a file is rewritten, or a twentieth of its rows if that is more."""
    index_from: int = 200_000
    """Vectors of a tenant from which an index is faster than an exact scan."""


class _OwnerFields(msgspec.Struct):
    tenant_id: str
    space: str


class _Label(msgspec.Struct):
    """The fields of a file's label needed to decide whether the file is still wanted."""

    owner: _OwnerFields


class CacheDirectory:
    """Cache files of one catalog. File names do not reveal tenants; only the owner may read the files."""

    def __init__(self, directory: Path, catalog: str, sizes: Sizes = Sizes()) -> None:  # noqa: B008 - frozen
        self.catalog = catalog
        self.sizes = sizes
        self._directory = directory / catalog

    def vectors(self, tenant_id: str, space: str) -> Path:
        return self._directory / f"{_name(tenant_id)}-{_name(space)}{VECTORS}"

    def index(self, tenant_id: str, space: str) -> Path:
        return self.vectors(tenant_id, space).with_suffix(INDEX)

    @contextmanager
    def lock(self, tenant_id: str, space: str) -> Iterator[bool]:
        """Lock these files for writing; False if another process holds the lock. Removes unfinished files."""
        make_private(self._directory)
        lock_path = self.vectors(tenant_id, space).with_suffix(LOCK)
        fd = os.open(lock_path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            yield False
            return
        try:
            for leftover in self._directory.glob(f"{lock_path.stem}.*{UNFINISHED}"):
                leftover.unlink(missing_ok=True)
            yield True
        finally:
            os.close(fd)

    @contextmanager
    def new_file(self, path: Path) -> Iterator[tuple[BinaryIO, Path]]:
        """A temporary file to write, removed at the end unless renamed by ``publish``."""
        make_private(self._directory)
        new_path = path.with_suffix(f".{os.getpid()}-{clock.new_task_id()[:8]}{UNFINISHED}")
        fd = os.open(new_path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "w+b") as file:
                yield file, new_path
        finally:
            new_path.unlink(missing_ok=True)

    def publish(self, new_path: Path, path: Path) -> None:
        new_path.replace(path)
        fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def remove_tenant(self, tenant_id: str, sequence: int) -> None:
        """Remove all files of a tenant, also an older one (before ``sequence``) still being written.

        That process checks the mark written here after it has published the file.
        """
        make_private(self._directory)
        # First, to make room for the mark on a full disk.
        self._remove_files(tenant_id)
        with open(self._removal_mark(tenant_id), "w", encoding="ascii", opener=private_opener) as mark:
            mark.write(str(sequence))
        self._remove_files(tenant_id)

    def _remove_files(self, tenant_id: str) -> None:
        for suffix in (VECTORS, INDEX, UNFINISHED, LOCK):
            for path in self._directory.glob(f"{_name(tenant_id)}-*{suffix}"):
                path.unlink(missing_ok=True)

    def removed_since(self, tenant_id: str, sequence: int) -> bool:
        with suppress(OSError, ValueError):
            return int(self._removal_mark(tenant_id).read_text(encoding="ascii")) > sequence
        return False

    def _removal_mark(self, tenant_id: str) -> Path:
        return self._directory / f"{_name(tenant_id)}{REMOVED}"

    def sweep(self, wanted: Callable[[str], Collection[str]]) -> int:
        """Remove files of spaces not in ``wanted(tenant_id)``; returns their number."""
        removed = 0
        for path in self._directory.glob(f"*{VECTORS}"):
            footer = read_footer(path, _Label)
            owner = footer.meta.owner if footer is not None else None
            if owner is None or owner.space not in wanted(owner.tenant_id):
                self.discard(path)
                removed += 1
        for path in self._directory.glob(f"*{INDEX}"):
            if not path.with_suffix(VECTORS).exists():
                path.unlink(missing_ok=True)
        long_ago = clock.now().timestamp() - REMOVED_KEPT_S
        for path in self._directory.glob(f"*{REMOVED}"):
            with suppress(OSError):
                if path.stat().st_mtime < long_ago:
                    path.unlink()
        return removed

    def files(self) -> list[Path]:
        return sorted(self._directory.glob(f"*{VECTORS}"))

    def damaged(self) -> list[Path]:
        """Damaged vector files, and files with a damaged index. Reads all files completely."""
        # Imported here: only this needs the index.
        from penstock.pipeline.vectors.nearest import damaged

        return [path for path in self.files() if damaged(path, path.with_suffix(INDEX))]

    def discard(self, path: Path) -> None:
        """Remove a vector file and the index."""
        for each in (path, path.with_suffix(INDEX)):
            with suppress(OSError):
                each.unlink(missing_ok=True)


@functools.lru_cache(1_024)
def _name(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20]


def open_cache_directory(settings: Settings) -> CacheDirectory:
    """Open the directory of a catalog, named by the catalog's URL without the password."""
    url = settings.catalog_store
    name = _name(url.resolved if url.is_file else url.masked)
    return CacheDirectory(settings.state_dir / "vectors", name, Sizes(index_from=settings.usearch_from))


MAX_SPACES = 8
"""Caches kept in one process; the least recently used one is dropped."""
MAX_HOLES = 0.2
"""Share of holes in a file above which the rows behind them move up."""
STEPS_KEPT = 256

log = logging.getLogger("penstock.vectors")


class SpaceCache:
    """The published vectors of a tenant in one space: a file, if there is one, and the changes since."""

    def __init__(self, tenant_id: str, space: str, dimension: int, directory: CacheDirectory | None) -> None:
        from penstock.pipeline.vectors.nearest import VectorRows

        self.sequence: int | None = None
        self._tenant_id = tenant_id
        self._space = space
        self._dimension = dimension
        self._directory = directory
        self._base: MappedRows | None = None
        self._alive: Mask | None = None
        self._ann_index: AnnIndex | None = None
        self._ann_index_stamp: Stamp | None = None
        self._rows: VectorRows = VectorRows.empty(dimension)
        # Changed sources per step: for snapshots older than this cache.
        self._steps: list[tuple[int, frozenset[int]]] = []
        self._steps_from = 0

    @property
    def base(self) -> MappedRows | None:
        return self._base

    def follow(self, snapshot: VectorSource, *, compact: bool = False) -> SpaceCache:
        """The cache as of a snapshot: this one, brought up to date, or a separate one for an older snapshot.

        ``compact``: rewrite the file even for few changes.
        """
        changes = snapshot.changes(self._tenant_id, self.sequence)
        if self.sequence is None or changes.reload:
            self._start(snapshot, changes.sequence)
        elif changes.sequence < self.sequence:
            return self._as_of(snapshot, changes.sequence)
        else:
            self._record_step(changes)
            if not self._reopen_rewritten(snapshot, changes):
                self._apply(snapshot, changes)
        self._refresh(snapshot, compact)
        self._refresh_index()
        return self

    def _start(self, snapshot: VectorSource, sequence: int) -> None:
        self.sequence = None
        if not self._open_file(snapshot):
            self._base, self._alive = None, None
            self._load(snapshot, sequence)
        self.sequence = sequence
        self._steps, self._steps_from = [], sequence

    def _open_file(self, snapshot: VectorSource) -> bool:
        """Start from an intact file of this catalog, not newer than the snapshot, if there is one."""
        if self._directory is None:
            return False
        from penstock.pipeline.vectors.nearest import VectorRows, read_rows

        path = self._directory.vectors(self._tenant_id, self._space)
        base = read_rows(path, self._owner(), self._dimension)
        if base is None:
            return False
        sequence = base.label.sequence
        changes = snapshot.changes(self._tenant_id, sequence)
        if changes.reload or changes.sequence < sequence:
            return False
        now = snapshot.witnesses(self._tenant_id, sequence)
        if not same_history(base.label.witnesses, now, frozenset(changes.stale)):
            return False
        self._base, self._alive, self._rows = base, None, VectorRows.empty(self._dimension)
        self._ann_index, self._ann_index_stamp = None, None
        # If the next step fails, the cache continues from here.
        self.sequence = sequence
        self._apply(snapshot, changes)
        return True

    def _load(self, snapshot: VectorSource, sequence: int) -> None:
        """Load all vectors from the catalog to memory, or into a file if there are many."""
        from penstock.pipeline.vectors.nearest import VectorRows

        head, rest = _split(
            self._read(snapshot), self._directory.sizes.file_from if self._directory else None
        )
        if rest is not None:
            self._base = self._write_file(snapshot, chain(head, rest), sequence)
            if self._base is not None:
                self._rows = VectorRows.empty(self._dimension)
                return
            # The file could not be written, and the rows read for it are consumed: read again.
            head = list(self._read(snapshot))
        self._rows = VectorRows.concatenated([VectorRows.empty(self._dimension), *head])

    def _read(self, snapshot: VectorSource, keys: Collection[int] | None = None) -> Iterator[VectorRows]:
        from penstock.pipeline.vectors.nearest import VectorRows

        for batch in snapshot.load(self._tenant_id, self._space, keys):
            yield VectorRows.from_batch(batch, self._dimension)

    def _record_step(self, changes: VectorChanges) -> None:
        if changes.stale or changes.fresh:
            self._steps.append((changes.sequence, frozenset(changes.stale) | frozenset(changes.fresh)))
        if len(self._steps) > STEPS_KEPT:
            self._steps_from = self._steps.pop(0)[0]

    def _apply(self, snapshot: VectorSource, changes: VectorChanges) -> None:
        from penstock.pipeline.vectors.nearest import VectorRows

        if changes.stale or changes.fresh:
            self._hide(changes.stale)
            if changes.fresh:
                self._rows = VectorRows.concatenated([self._rows, *self._read(snapshot, changes.fresh)])
        self.sequence = changes.sequence

    def _hide(self, keys: Collection[int]) -> None:
        self._rows = self._rows.without(keys)
        if self._base is not None and keys:
            hidden = self._base.of_sources(keys)
            if hidden.any():
                self._alive = ~hidden if self._alive is None else self._alive & ~hidden

    def _reopen_rewritten(self, snapshot: VectorSource, changes: VectorChanges) -> bool:
        """Reopen a file rewritten by another process: fewer rows differ then."""
        if self._directory is None or not (self._drift() or changes.stale):
            return False
        stamp = stamp_of(self._directory.vectors(self._tenant_id, self._space))
        if stamp is None or (self._base is not None and stamp == self._base.stamp):
            return False
        return self._open_file(snapshot)

    def _drift(self) -> int:
        return len(self._rows) + self._hidden()

    def _hidden(self) -> int:
        return 0 if self._alive is None else len(self._alive) - int(self._alive.sum())

    def _as_of(self, snapshot: VectorSource, sequence: int) -> SpaceCache:
        """A cache for an older snapshot, of a search begun before this cache was advanced."""
        from penstock.pipeline.vectors.nearest import VectorRows

        other = SpaceCache(self._tenant_id, self._space, self._dimension, None)
        if sequence < self._steps_from:
            other._start(snapshot, sequence)
            return other
        keys = frozenset[int]().union(*(keys for at, keys in self._steps if at > sequence))
        other._base, other._alive, other._rows = self._base, self._alive, self._rows
        other._ann_index = self._ann_index
        other._hide(keys)
        other._rows = VectorRows.concatenated([other._rows, *self._read(snapshot, keys)])
        return other

    # The cache file.

    def _owner(self) -> FileOwner:
        from penstock.pipeline.vectors.nearest import FileOwner

        assert self._directory is not None
        return FileOwner(self._directory.catalog, self._tenant_id, self._space)

    def _refresh(self, snapshot: VectorSource, compact: bool) -> None:
        base = self._base
        if self._directory is None or base is None or self.sequence is None:
            return
        most = 0 if compact and self._hidden() else max(self._directory.sizes.max_drift, len(base) // 20)
        if self._drift() <= most:
            return
        if not len(self._rows) and self._alive is not None and not self._alive.any():
            # No row is left to write.
            self._base, self._alive, self._ann_index, self._ann_index_stamp = None, None, None, None
            return
        holes = base.label.holes + self._hidden()
        same = holes <= MAX_HOLES * len(base)
        pieces = chain(base.pieces(self._alive, holes=same), [self._rows])
        if base.intact():
            rewritten = self._write_file(snapshot, pieces, self.sequence, base if same else None)
        else:
            log.info("a vector cache file was damaged and is rebuilt from the catalog")
            rewritten = self._write_file(snapshot, self._read(snapshot), self.sequence)
        if rewritten is not None:
            self._base, self._alive, self._rows = rewritten, None, self._rows.empty(self._dimension)
            if rewritten.label.lineage != base.label.lineage:
                self._ann_index, self._ann_index_stamp = None, None

    def _write_file(
        self,
        snapshot: VectorSource,
        pieces: Iterable[VectorRows],
        sequence: int,
        after: MappedRows | None = None,
    ) -> MappedRows | None:
        """Write and open a file of these rows; None if writing failed.

        It is published for all processes unless another process holds the lock. ``after``: the file with the
        row numbers to keep.
        """
        from penstock.pipeline.vectors.nearest import Origin, read_rows, write_rows

        assert self._directory is not None
        directory, tenant_id = self._directory, self._tenant_id
        path = directory.vectors(tenant_id, self._space)
        witnesses = tuple(snapshot.witnesses(tenant_id, sequence))
        try:
            with (
                directory.lock(tenant_id, self._space) as locked,
                directory.new_file(path) as (file, new_path),
            ):
                # Only one successor keeps the lineage of a file: the new rows of two would differ in order.
                continues = locked and after is not None and stamp_of(path) == after.stamp
                lineage = after.label.lineage if after is not None and continues else clock.new_task_id()
                origin = Origin(self._owner(), self._dimension, lineage, sequence, witnesses)
                write_rows(file, origin, pieces)
                made = read_rows(new_path, origin.owner, self._dimension)
                if locked and made is not None:
                    directory.publish(new_path, path)
                    if directory.removed_since(tenant_id, sequence):
                        directory.discard(path)
                return made
        except OSError as error:
            log.info("vectors stay in memory, no cache file was written: %s", error)
            return None

    def _refresh_index(self) -> None:
        if self._directory is None or self._base is None:
            return
        path = self._directory.index(self._tenant_id, self._space)
        stamp = stamp_of(path)
        if stamp == self._ann_index_stamp:
            return
        from penstock.pipeline.vectors.nearest import open_index

        self._ann_index, self._ann_index_stamp = None, stamp
        if stamp is not None:
            self._ann_index = open_index(path, self._base)

    # Search.

    def nearest(self, query: Floats, limit: int, allowed: Collection[int] | None) -> list[NearVector]:
        import numpy as np

        from penstock.pipeline.vectors.nearest import best

        ids, scores = self._rows.scored(query, allowed)
        if self._base is not None:
            base_ids, base_scores = self._score_base(self._base, query, limit, allowed)
            ids, scores = np.concatenate([ids, base_ids]), np.concatenate([scores, base_scores])
        ids, scores = best(ids, scores, limit)
        return list(map(NearVector, ids.tolist(), scores.tolist()))

    def _score_base(
        self, base: MappedRows, query: Floats, limit: int, allowed: Collection[int] | None
    ) -> tuple[Numbers, Floats]:
        # An index cannot be restricted: it finds rows of all sources.
        if allowed is None and self._ann_index is not None and 4 * limit <= self._ann_index.stamp.reach:
            found = self._search_index(base, self._ann_index, query, limit)
            if found is not None:
                return found
        chosen = self._alive
        if allowed is not None:
            chosen = base.of_sources(allowed)
            chosen = chosen if self._alive is None else chosen & self._alive
        return base.scored(query, chosen)

    def _search_index(
        self, base: MappedRows, index: AnnIndex, query: Floats, limit: int
    ) -> tuple[Numbers, Floats] | None:
        """Search through the index; None if too many of the candidates are deleted rows."""
        import numpy as np

        covered = index.stamp.covered
        rows = np.sort(index.search(query))
        behind = np.arange(covered, len(base))
        if self._alive is not None:
            rows, behind = rows[self._alive[rows]], behind[self._alive[covered:]]
        rows = rows[base.keys[rows] >= 0]
        if len(rows) < limit:
            return None
        return base.scored_at(np.concatenate([rows, behind]), query)


def _split(
    pieces: Iterator[VectorRows], enough: int | None
) -> tuple[list[VectorRows], Iterator[VectorRows] | None]:
    """Return the first ``enough`` rows and an iterator over further rows, or None at the end."""
    head: list[VectorRows] = []
    rows = 0
    for piece in pieces:
        head.append(piece)
        rows += len(piece)
        if enough is not None and rows >= enough:
            return head, pieces
    return head, None


def same_history(then: Collection[SourceMark], now: Collection[SourceMark], changed: Collection[int]) -> bool:
    """Check whether a file was made from the past of this very catalog, not of another or a restored one.

    The file's witnesses must be present or changed since, and no other source may have changed among them.
    """
    if not then:
        return False
    oldest = min(each.sequence for each in then)
    if any(each.sequence > oldest for each in set(now).difference(then)):
        return False
    return all(each.family_key in changed for each in set(then).difference(now))


class VectorCache:
    """The vector caches of one process, shared by all threads. Without a directory they use no files."""

    def __init__(self, directory: CacheDirectory | None = None) -> None:
        self._directory = directory
        self._caches: OrderedDict[tuple[str, str], SpaceCache] = OrderedDict()
        self._lock = threading.Lock()

    def nearest(
        self,
        snapshot: VectorSource,
        tenant_id: str,
        space: str,
        query: npt.NDArray[np.float32],
        *,
        limit: int,
        allowed: Collection[int] | None = None,
    ) -> list[NearVector]:
        with self._lock:
            cache = self._caches.get((tenant_id, space))
            if cache is None:
                cache = SpaceCache(tenant_id, space, len(query), self._directory)
                self._caches[tenant_id, space] = cache
            self._caches.move_to_end((tenant_id, space))
            while len(self._caches) > MAX_SPACES:
                self._caches.popitem(last=False)
            return cache.follow(snapshot).nearest(query, limit, allowed)

    def notice(self) -> str | None:
        return None
