"""Moves of all rows from one store of Penstock to another, of any engine, with counts and checksums."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TypeAlias

from penstock import config
from penstock.backup import stores
from penstock.backup.archive import PartRows, PartSummary, RowChecksum
from penstock.backup.backups import record_restore, refuse_full, refuse_workers, was_restored
from penstock.backup.stores import StoreTarget
from penstock.catalog.factory import open_catalog
from penstock.catalog.protocol import Catalog
from penstock.config import Settings
from penstock.errors import ImportRefused
from penstock.named_tuple import NamedTuple
from penstock.queue.factory import open_queue
from penstock.queue.job import Job
from penstock.queue.protocol import Queue
from penstock.store_url import StoreUrl

OnJobs: TypeAlias = Callable[[list[Job], str | None], None]
"""Called with the jobs of a batch, and the reason why they were not inserted, if they were not."""
BEFORE = "imported before"


class MoveResult(NamedTuple):
    """Parts of the source, and the names of those that differ in the target; None: not compared."""

    parts: list[PartSummary]
    differing: list[str] | None


class OpenStores(NamedTuple):
    """The stores of some settings."""

    settings: Settings
    queue: Queue
    catalog: Catalog


def source_settings(address: str, catalog: str | None, target: Settings) -> Settings:
    """The settings of a source: the address of a queue, and of a catalog in another store."""
    url = StoreUrl(address)
    if not url.scheme:
        path = Path(address).expanduser().absolute()
        url = StoreUrl(f"jsonl://{path}" if os.path.isdir(path) else f"sqlite:///{path}")  # noqa: PTH112 - it never raises
    if url.engine not in ("sqlite", "postgres", "jsonl", "redis"):
        remedy = "Give a file, or a URL of an engine that outlives a process."
        raise ImportRefused(f"{url.masked[:200]} is not a store of Penstock", remedy=remedy)
    if url.engine in ("jsonl", "redis") and catalog is None:
        raise ImportRefused(
            f"the documents of {url.masked[:200]} are in another store",
            remedy="Name it: --source-catalog sqlite:////PATH/OF/THE/STATE/penstock.db",
        )
    made = config.load({}, url=url.text, catalog_url=catalog, state_dir=target.state_dir)
    own = {target.store.resolved, target.catalog_store.resolved}
    if own & {made.store.resolved, made.catalog_store.resolved}:
        raise ImportRefused("source and target are the same store", remedy="Name another --url or source.")
    for store in (made.store, made.catalog_store):
        if store.is_file and not os.path.exists(store.path):  # noqa: PTH110 - it never raises
            raise ImportRefused(f"{store.path} does not exist", remedy="Check the path.")
    return made


@contextmanager
def opened(settings: Settings, *, restoring: bool = False) -> Iterator[OpenStores]:
    """Open both stores of some settings."""
    with ExitStack() as stack:
        queue = stack.enter_context(closing(open_queue(settings, restoring=restoring)))
        catalog = stack.enter_context(closing(open_catalog(settings, restoring=restoring)))
        yield OpenStores(settings, queue, catalog)


def count_rows(source: OpenStores, on_jobs: OnJobs) -> MoveResult:
    """Read all rows of a source, and write nothing."""
    return MoveResult(_summaries(source, on_jobs), None)


def move(source: OpenStores, target: OpenStores, on_jobs: OnJobs) -> MoveResult:
    """Put all rows of a source into an empty target, and compare them. A second move changes nothing."""
    refuse_workers(source.queue, source.settings)
    refuse_workers(target.queue, target.settings)
    name = source.settings.store.masked
    if was_restored(target.catalog, name) and not target.queue.restore_unfinished():
        parts = _summaries(source, lambda jobs, _: on_jobs(jobs, BEFORE))
        return MoveResult(parts, None)
    done = refuse_full(target.queue, target.catalog, target.settings, name)
    put_in = StoreTarget(target.queue, None if done else target.catalog, target.queue.now())
    put_in.begin()
    with stores.reading(source.queue, source.catalog) as contents:
        parts = _checked(contents.parts(), on_jobs, put_in)
        if not done:
            record_restore(target.catalog, name)
        put_in.end_catalog(contents.catalog.numbers)
        put_in.end_queue()
    return MoveResult(parts, _differing(parts, _summaries(target)))


def compare(source: OpenStores, target: OpenStores) -> MoveResult:
    """Compare all rows of both, part by part."""
    parts = _summaries(source)
    return MoveResult(parts, _differing(parts, _summaries(target)))


def empty(source: OpenStores) -> None:
    """Delete all rows of a source."""
    for store in (source.catalog.transfer, source.queue):
        store.begin_restore()
    source.catalog.transfer.end_restore({"row": 0, "change": 0})
    source.queue.end_restore()


def _summaries(store: OpenStores, on_jobs: OnJobs = lambda _jobs, _reason: None) -> list[PartSummary]:
    with stores.reading(store.queue, store.catalog) as contents:
        return _checked(contents.parts(), on_jobs)


def _checked(
    parts: Iterator[PartRows], on_jobs: OnJobs, target: StoreTarget | None = None
) -> list[PartSummary]:
    """Put parts into a target, if there is one, and sum them up."""
    sums: dict[str, RowChecksum] = {}
    for part in parts:
        name = part.header.part
        if target is not None:
            target.take(part)
        if stores.is_compared(part.header):
            sums.setdefault(name, RowChecksum()).add(stores.comparable(part))
        if name == stores.JOBS:
            on_jobs([stores.job_of(part.header, row) for row in part.rows], None)
    if target is not None:
        target.write_collected()
    return [checksum.summary(name) for name, checksum in sums.items()]


def _differing(source: list[PartSummary], target: list[PartSummary]) -> list[str]:
    there = {part.part: part for part in target}
    return [part.part for part in source if there.get(part.part) != part]
