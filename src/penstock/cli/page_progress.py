"""Pages read of the long documents and scans that jobs wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from penstock.named_tuple import NamedTuple
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.catalog.protocol import Catalog
    from penstock.job import Job

MOST_DOCUMENTS = 50
"""Documents whose pages are counted at a time."""


class PageCount(NamedTuple):
    """Pages read or failed, and all pages, of the documents that were waited for so far."""

    done: int
    total: int

    def __str__(self) -> str:
        return f"{self.done:,} of {how_many(self.total, 'page')}"


class PageProgress:
    """Counts pages. The catalog is opened at the first document: most jobs wait for none."""

    def __init__(self, open_catalog: Callable[[], Catalog]) -> None:
        self._open = open_catalog
        self._catalog: Catalog | None = None
        self._totals: dict[int, int] = {}
        """Pages of the documents seen: those that have ended stay in the count, which never goes back."""

    def of(self, jobs: Iterable[Job]) -> PageCount | None:
        """Count the pages of the documents waited for, now and before; None if these jobs wait for none."""
        waited = [job.waiting_for for job in jobs if job.waiting and job.waiting_for is not None]
        ids = [int(text) for text in waited if text.isdecimal()][:MOST_DOCUMENTS]
        if not ids:
            return None
        if self._catalog is None:
            self._catalog = self._open()
        with self._catalog.snapshot() as snapshot:
            found = {each: progress for each in ids if (progress := snapshot.progress(each)) is not None}
        self._totals |= {each: progress.total_pages for each, progress in found.items()}
        done = sum(each.ocr_completed_pages + each.ocr_failed_pages for each in found.values())
        ended = sum(total for each, total in self._totals.items() if each not in found)
        return PageCount(done + ended, sum(self._totals.values()))

    def close(self) -> None:
        if self._catalog is not None:
            self._catalog.close()
