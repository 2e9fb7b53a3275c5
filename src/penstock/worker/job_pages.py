"""Reading all jobs that match, however many: one page at a time, so that no answer grows with the queue."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from penstock.job import Job, JobQuery
from penstock.queue.protocol import Queue

PAGE = 1_000


def every(queue: Queue, query: JobQuery) -> Iterator[Job]:
    after: str | None = None
    while True:
        page = queue.find(msgspec.structs.replace(query, after=after, limit=PAGE))
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].queue_id


class JobPages:
    """The same, a page a call, from the start again after the end: for duties that must not take long."""

    def __init__(self, queue: Queue, query: JobQuery) -> None:
        self._queue = queue
        self._query = query
        self._after: str | None = None

    def next_page(self) -> tuple[list[Job], bool]:
        """Some jobs, and whether more follow in this round."""
        page = self._queue.find(msgspec.structs.replace(self._query, after=self._after, limit=PAGE))
        more = len(page) == PAGE
        self._after = page[-1].queue_id if more else None
        return page, more
