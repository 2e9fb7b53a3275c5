"""Concurrency: workers sharing lanes, and readers during changes."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial

from penstock.catalog.protocol import Catalog
from penstock.catalog.rules import publication
from penstock.catalog.values import ChunkView, Filters, NewPage, Phase, Removal, Rename, TaskStatus
from tests.catalog.conftest import DOCS, VECTOR, at, begin, chunk, generation, page, sweep, take
from tests.catalog.crash_process import Victim

SOURCES = 6


def test_workers_of_several_processes_share_the_lanes(opened: Callable[[], Catalog]):
    catalog = opened()
    documents = [begin(catalog, f"/{number}.pdf", count=8) for number in range(5)]

    crew = [_fork(partial(_work, opened, f"w{number}")) for number in range(3)]

    assert [0, 0, 0] == [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in crew]
    with catalog.snapshot() as snapshot:
        seen = [snapshot.document(number) for number in documents]
        assert {("vector_chunks", TaskStatus.COMPLETED), ("ocr_pages", TaskStatus.COMPLETED)} <= set(
            snapshot.statistics()
        )
    assert [True] * 5 == [document is not None and document.current for document in seen]
    assert [] == catalog.audit()


def _fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return pid


def _work(opened: Callable[[], Catalog], name: str) -> None:
    """Until all is done; fails when a claim of its own is lost, which nobody may take."""
    catalog = opened()
    while True:
        with catalog.snapshot() as snapshot:
            if not snapshot.open_tasks(Phase.OCR) + snapshot.open_tasks(Phase.VECTOR):
                return
        pages = take(catalog, Phase.OCR, 3, worker=name)
        chunks = take(catalog, Phase.VECTOR, 7, worker=name)
        made = [publication.completed_vector(task, VECTOR) for task in chunks]
        for task in pages:
            text = f"{task.source.path} {task.page_number}"
            read = NewPage(
                number=task.page_number, chunks=tuple(chunk(f"{text} {n}", None) for n in range(4))
            )
            made.append(publication.completed_page(task, read))
        assert None not in catalog.settle(made)


def test_several_who_change_everything_at_once_leave_nothing_out_of_joint(opened: Callable[[], Catalog]):
    catalog = opened()

    crew = [_fork(partial(_disturb, opened, seed)) for seed in range(3)]

    assert [0, 0, 0] == [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in crew]
    assert [] == catalog.audit()


def _disturb(opened: Callable[[], Catalog], seed: int) -> None:
    """Stores, reads, embeds, renames, removes and sweeps a few paths that all have in common."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    Victim(opened(), seed).work(60)


def test_a_reader_never_sees_a_source_missing_doubled_or_mixed(opened: Callable[[], Catalog]):
    writer, reader = opened(), opened()
    _write(writer, 0)
    done = threading.Event()
    faults: list[str] = []
    looks: list[int] = []
    watcher = threading.Thread(target=_watch, args=(reader, done, faults, looks))
    watcher.start()

    for version in range(1, 61):
        _write(writer, version)
        if version % 6 == 0:
            _move(writer, version)
        if version % 4 == 0:
            sweep(writer)
    done.set()
    watcher.join(120)

    assert [] == faults
    # It looked while things changed, not before or after.
    assert 10 < len(set(looks))
    assert [] == writer.audit()


def _write(catalog: Catalog, version: int) -> None:
    """Each source again: a text of this version on every page, and one that never changes."""
    folder = "/a" if (version // 6) % 2 == 0 else "/b"
    for number in range(SOURCES):
        pages = [page(f"version {version} of {number}", f"always {number} {n}", number=n) for n in range(3)]
        catalog.store([generation(f"{folder}/{number}.md", *pages, asked_at=at(2 * version))])


def _move(catalog: Catalog, version: int) -> None:
    """The version was written to the other folder: what is in the old one goes, as a rename would have it."""
    old, new = ("/a", "/b") if (version // 6) % 2 == 1 else ("/b", "/a")
    catalog.remove(Removal(tenant_id="acme", path=old, asked_at=at(2 * version)), limit=2)
    while catalog.remove(Removal(tenant_id="acme", path=old, asked_at=at(2 * version)), limit=2).more:
        pass
    catalog.rename(Rename(place=DOCS, old=new, new=new + "x", folder=True, asked_at=at(2 * version + 1)))
    catalog.rename(Rename(place=DOCS, old=new + "x", new=new, folder=True, asked_at=at(2 * version + 1.5)))


def _watch(catalog: Catalog, done: threading.Event, faults: list[str], looks: list[int]) -> None:
    while not done.is_set():
        with catalog.snapshot() as snapshot:
            hits = snapshot.keyword("version always", Filters(tenant_id="acme"), limit=1000)
            views = [view for view in snapshot.hydrate([hit.content_id for hit in hits]) if view]
            loaded = sum(len(batch.content_ids) // 8 for batch in snapshot.load("acme", "static"))
            looks.append(snapshot.changes("acme").sequence)
        by_source: dict[str, list[ChunkView]] = {}
        for view in views:
            by_source.setdefault(view.source_id, []).append(view)
        if loaded != len(views):
            faults.append(f"{loaded} vectors for {len(views)} chunks")
        if len(by_source) < SOURCES:
            faults.append(f"only {len(by_source)} sources")
        faults.extend(fault for some in by_source.values() if (fault := _fault(some)))


def _fault(views: list[ChunkView]) -> str | None:
    versions = Counter(view.text.split()[1] for view in views if view.text.startswith("version"))
    if len(versions) != 1 or len(views) != 6 or len({view.chunk_id for view in views}) != 6:
        return f"{views[0].path}: {versions}, {len(views)} chunks"
    return None
