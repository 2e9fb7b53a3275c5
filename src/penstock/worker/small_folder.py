"""Folders that a command indexes in its own process: which they are, and which of their files.

A worker takes about a second of CPU time to start and to end. A text file of some kilobytes takes about a
millisecond to index, so that a worker pays only for a folder with many or large changes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Place
from penstock.handlers.members import container_of
from penstock.job import CHILDREN, Job, JobQuery, Status
from penstock.payloads import is_off_disk, normal_path
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.factory import PLAIN
from penstock.queue.protocol import Queue
from penstock.worker.shared_state import MOST_MEMBERS

FOLDERS = {"folder": "folder_path", "project": "project_root"}
"""Item types of folders, with the name of the path in their payload."""
SMALL_BYTES = 256 << 10
"""Largest file or note that is read in the calling process."""
MOST_KNOWN = 50_000
"""Files of a known folder up to which it is compared here. Of a larger one, the first changed files are
indexed while the walk goes on."""
MOST_ENTRIES = 1_000
"""Files and folders in a new folder up to which it is walked here."""
MOST_FILES, MOST_BYTES = 1_000, 2 << 20
"""Changed files of a folder, and their bytes, up to which they are indexed here: about a second of work."""
QUICK_TYPES = PLAIN | {"code", "html", "json", "notebook", "xml"}
"""Extractors that take little time for a small file, in this process or in the sandbox."""
MOST_OTHERS = 10
"""Changed files of other types that are indexed here: a page of a PDF takes as long as many small texts."""
MOST_SLOW = 5
"""Changed files that are indexed here with a slow embedder."""
MOST_LOSSES = 1
"""Lost attempts of a job that is run here once more: most commands that end in the middle were killed, but
a file may also crash the process again, which only a worker survives."""


def is_small_folder(job: Job, catalog: Catalog) -> bool:
    """Decide whether this process walks a folder: the catalog knows it, or it is new and has few entries."""
    if job.status is not Status.PENDING or job.lost_count > MOST_LOSSES or job.op != "ingest":
        return False
    name = FOLDERS.get(job.item_type)
    if name is None or is_off_disk(job.payload[name]):
        return False
    place, path = Place(job.tenant_id, job.collection, job.branch), normal_path(job.payload[name])
    with catalog.snapshot() as snapshot:
        known = snapshot.known_count(place, path, most=MOST_KNOWN + 1)
    return known <= MOST_KNOWN if known else _has_few_entries(path)


def is_walked_folder(job: Job) -> bool:
    """Decide whether only jobs for files of a folder are left, by a command that was killed perhaps."""
    return job.item_type in FOLDERS and job.waiting and job.waiting_for == CHILDREN


def _has_few_entries(path: str) -> bool:
    left, folders = MOST_ENTRIES, [path]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        return False
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except OSError:
            continue  # the walk reports it
    return True


def file_batches(queue: Queue, folder_id: str, *, quick_model: bool) -> Iterator[Sequence[str]]:
    """Ids of the jobs for the files of a folder, in batches; none if a worker should run them."""
    most = MOST_FILES if quick_model else MOST_SLOW
    query = JobQuery(parent_id=folder_id, statuses=frozenset([Status.PENDING]), limit=most + 1)
    jobs = queue.find(query)
    if len(jobs) > most or not _are_little_work(jobs):
        return
    ids = [job.queue_id for job in jobs]
    for start in range(0, len(ids), MOST_MEMBERS):
        yield ids[start : start + MOST_MEMBERS]


def _are_little_work(jobs: Sequence[Job]) -> bool:
    others = total = 0
    for job in jobs:
        path = job.payload.get("file_path")
        if job.item_type != "file" or job.lost_count > MOST_LOSSES or job.run_at is not None or path is None:
            return False
        if container_of(path) is not None:
            return False  # the file around it is read as a whole
        size = _size(path)
        if size is None or size > SMALL_BYTES:
            return False
        total += size
        file_type = file_types.by_name(path)
        others += size > 0 and (file_type is None or file_type.extractor not in QUICK_TYPES)
    return others <= MOST_OTHERS and total <= MOST_BYTES


def _size(path: str) -> int | None:
    """Bytes to be read; 0 for a missing file, None for what is no regular file."""
    try:
        found = Path(path).stat()
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else None
