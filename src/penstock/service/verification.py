"""Whether the index matches its sources: the catalog with itself, and with the disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from penstock.catalog.pagination import known_below
from penstock.catalog.protocol import BATCH, Catalog
from penstock.catalog.values import Place
from penstock.catalog.views import KnownSource
from penstock.delivered_file import arrival_of
from penstock.handlers.file_reader import hash_of
from penstock.handlers.missing_files import CAREFUL, maybe_unmounted
from penstock.items import validate_name
from penstock.pipeline.vectors.cache_directory import open_cache_directory
from penstock.service.jobs import Jobs
from penstock.service.requests import Submission
from penstock.service.responses import Receipt


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not as it should be. ``path`` None: inside the catalog itself."""

    what: str
    place: Place | None = None
    path: str | None = None
    left_alone: str | None = None
    """Why ``fix`` does nothing about it: what is not there may be back with its disk."""
    content: bool = False
    """Told by the content alone: size and time are those of what was indexed."""


class Verifier:
    """Reads everything, one page of paths at a time; writes nothing unless told to fix."""

    def __init__(self, catalog: Catalog, jobs: Jobs) -> None:
        self._catalog = catalog
        self._jobs = jobs
        self._shelf = open_cache_directory(jobs.settings)

    def differences(self, tenant_id: str | None = None, *, checksum: bool = False) -> Iterator[Difference]:
        """``checksum``: read every file, also those whose size and time are as they were.

        for difference in app.verifier.differences(checksum=True):
            print(difference.path, difference.what)
        """
        if tenant_id is not None:
            validate_name("tenant_id", tenant_id)
        for complaint in self._catalog.audit():
            yield Difference(what=complaint)
        # Copies, no part of the index: only that they are whole is for anybody to know.
        for path in self._damaged():
            yield Difference(what=f"a copy of vectors is damaged: {path}")
        with self._catalog.snapshot() as snapshot:
            places = [Place(one.tenant_id, one.collection, one.branch) for one in snapshot.tenants(tenant_id)]
        for place in places:
            roots = _Roots(self._catalog, place)
            for known in known_below(self._catalog, place):
                found = _differs(known, place, roots, checksum=checksum)
                if found is not None and not self._on_its_way(known):
                    yield found

    def _damaged(self) -> list[Path]:
        from penstock.pipeline.vectors.ann_index import damaged

        return [path for path in self._shelf.files() if damaged(path)]

    def _on_its_way(self, known: KnownSource) -> bool:
        """It was indexed where somebody had put it, and still lies there: a look at its place now would bring
        back what was there before, or nothing.
        """
        with self._catalog.snapshot() as snapshot:
            document = snapshot.document(known.published_id) if known.published_id is not None else None
        job = self._jobs.queue.get(document.job_id) if document is not None and document.job_id else None
        arrival = arrival_of(msgspec.json.decode(job.metadata)) if job is not None else None
        if arrival is None or arrival.read_from == known.path:
            return False
        try:
            found = Path(arrival.read_from).lstat()
        except OSError:
            return False
        return (found.st_size, found.st_mtime_ns) == (known.size, known.mtime_ns)

    def repair(self) -> int:
        """Put right what the catalog itself has wrong, as far as that needs no source; how many rows and
        files. Chunks that lost their vector get a new one from whoever serves the vector lane."""
        spoilt = self._damaged()
        for path in spoilt:
            self._shelf.discard(path)
        total = len(spoilt)
        while repaired := self._catalog.repair():
            total += repaired
        return total

    def fix(self, found: list[Difference]) -> list[Receipt]:
        """Have every path looked at that differs from the disk, except for those that may only be away."""
        submissions: list[Submission] = [
            {
                "item_type": "file",
                "op": "ingest",
                "payload": {"file_path": one.path},
                "tenant_id": one.place.tenant_id,
                "collection": one.place.collection,
                "branch": one.place.branch,
                # Size and time say that nothing changed: a request that goes by them must not stand for it.
                "dedupe": not one.content,
                # By the time the job runs a disk may be away that was there a moment ago.
                "metadata": {CAREFUL: True} | ({"checksum": True} if one.content else {}),
            }
            for one in found
            if one.path is not None and one.place is not None and one.left_alone is None
        ]
        # One person's one request, of any size: half a repair would be none.
        batches = (submissions[start : start + BATCH] for start in range(0, len(submissions), BATCH))
        return [receipt for batch in batches for receipt in self._jobs.submit_many(batch, limited=False)]


class _Roots:
    """Folders that were walked, above the files of one place."""

    def __init__(self, catalog: Catalog, place: Place) -> None:
        self._catalog = catalog
        self._place = place
        self._known: tuple[str, list[str]] = ("", [])

    def above(self, path: str) -> list[str]:
        """Files of one folder come one after the other: it is asked for once."""
        folder = path.rpartition("/")[0] or "/"
        if folder != self._known[0]:
            with self._catalog.snapshot() as snapshot:
                self._known = (folder, [walk.root for walk in snapshot.walks(self._place, folder)])
        return self._known[1]


def _differs(known: KnownSource, place: Place, roots: _Roots, *, checksum: bool) -> Difference | None:
    """By size and time, as a walk would see it, and then by content. Notes have no file."""

    def difference(what: str, left_alone: str | None = None, *, content: bool = False) -> Difference:
        return Difference(what=what, place=place, path=known.path, left_alone=left_alone, content=content)

    if known.published_id is None or not known.path.startswith("/"):
        return None
    try:
        found = Path(known.path).lstat()
        if not stat.S_ISREG(found.st_mode):
            return difference("is indexed, but no file any more")
        if (found.st_size, found.st_mtime_ns) != (known.size, known.mtime_ns):
            return difference("has changed since it was indexed")
        if checksum and hash_of(known.path) != known.content_hash:
            return difference("has another content than was indexed, of the same size and time", content=True)
    except (FileNotFoundError, NotADirectoryError):
        return difference(
            "is indexed, but gone from the disk", maybe_unmounted(known.path, roots.above(known.path))
        )
    except OSError as error:
        why = os.strerror(error.errno or 0)
        return difference(f"is indexed, but cannot be looked at: {why}", "what is there nobody knows")
    return None
