"""Series of messages with the option ``reindex``: what each one replaces, and when the rest is removed.

The contract clears a collection before such a message is processed. Here the new version is published first,
and the documents that were asked for before are removed afterwards, so that none is missing in between.
Messages that come together must not remove each other's documents: messages for one collection of which each
was sent before the one before had ended are one series. Its beginning is stored with every job, and the rest
goes once, when the last job of the series has ended.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from penstock import clock
from penstock.catalog.values import Place
from penstock.queue import payloads
from penstock.queue.job import Job, JobQuery, Status
from penstock.redis_contract import messages
from penstock.redis_contract.lists import Lists
from penstock.service.collections import Collections
from penstock.service.jobs import MAX_PAGE, Jobs
from penstock.vocabulary import how_many

LIVE = frozenset({Status.PENDING, Status.IN_PROGRESS})
ENDED = frozenset(Status) - LIVE
_UNDONE = frozenset(Status) - {Status.DONE}
_REQUESTED = ("file", "folder", "project", "library", "content")
"""Types of the jobs that add documents: their requests spare them from an earlier removal."""
_LOOKED_AT = 100
"""Newest ended jobs of a collection among which the end of its last series is looked for."""
_LONGEST_WAIT = timedelta(days=1)
"""A message that says it was sent earlier than that is taken for one with a wrong clock, and begins a series
of its own. Else a producer that always writes the same time would never have anything removed."""
WAITS_FOR = timedelta(seconds=10)
"""How long the removal waits for messages in the lists, which may belong to the series."""

log = logging.getLogger("penstock.gateway")


class ReindexSeries:
    """The series of one queue, as one gateway sees them."""

    def __init__(self, jobs: Jobs, collections: Collections, lists: Lists) -> None:
        self._jobs = jobs
        self._collections = collections
        self._lists = lists

    def beginnings(self, sent: Sequence[tuple[str, str, datetime]]) -> list[str]:
        """The beginning of the series of each message: tenant, collection, and the time it was sent."""
        if not sent:
            return []
        now = self._jobs.queue.now()
        begun: dict[tuple[str, str], datetime] = {}
        found = []
        for tenant_id, collection, sent_at in sent:
            place = (tenant_id, collection)
            if place not in begun:
                begun[place] = self._running(*place) or self._ended_since(*place, sent_at, now) or now
            found.append(clock.format_time(begun[place]))
        return found

    def _running(self, tenant_id: str, collection: str) -> datetime | None:
        """The beginning of the series that is being worked on. There is one at most: others join it."""
        found = (_beginning_of(job) for job in self._jobs_of(tenant_id, collection, LIVE))
        return next((begun_at for begun_at in found if begun_at is not None), None)

    def _ended_since(
        self, tenant_id: str, collection: str, sent_at: datetime, now: datetime
    ) -> datetime | None:
        """The beginning of a series that ended after the message was sent: it waited in a list meanwhile.

        So it is, whatever the message says, with a series whose rest waits for the messages in the lists.
        """
        believed = now - _LONGEST_WAIT <= sent_at
        query = _query(tenant_id, collection, ENDED)
        for job in self._jobs.queue.find(msgspec.structs.replace(query, newest_first=True, limit=_LOOKED_AT)):
            begun_at, ended_at = _beginning_of(job), job.finished_at
            if begun_at is None or ended_at is None:
                continue
            waits = now - ended_at < WAITS_FOR and self._lists.is_open(job.queue_id)
            if waits or (believed and sent_at <= ended_at):
                return begun_at
        return None

    def remove_rest(self, job: Job) -> bool:
        """Remove what the series of an ended job replaces, if this was its last one.

        False: messages are waiting in the lists, and may belong to the series; call again later. Repeating it
        after a crash has no second effect.
        """
        begun_at = _beginning_of(job)
        if begun_at is None:
            return True
        place = Place(job.tenant_id, job.collection, job.branch)
        live = self._jobs_of(job.tenant_id, job.collection, LIVE)
        if any(_beginning_of(one) == begun_at for one in live) or not self._is_replaced(job, begun_at):
            return True
        ended_at = job.finished_at or job.updated_at
        if self._jobs.queue.now() - ended_at < WAITS_FOR and self._lists.has_messages():
            return False
        spared = self._requested_since(place, begun_at)
        removed = self._collections.remove_older(place, begun_at, spared=spared)
        if removed:
            log.info("%s of %s removed after its reindex", how_many(removed, "document"), job.collection)
        return True

    def _is_replaced(self, job: Job, begun_at: datetime) -> bool:
        """Check whether a job of the series is done: a series that failed replaces nothing."""
        if job.status is Status.DONE:
            return True
        query = _query(job.tenant_id, job.collection, frozenset({Status.DONE}))
        newest = self._jobs.queue.find(msgspec.structs.replace(query, newest_first=True))
        return any(_beginning_of(one) == begun_at for one in newest)

    def _requested_since(self, place: Place, begun_at: datetime) -> list[tuple[Place, str, datetime]]:
        """Paths with a later request that is not done: it is still running, or it failed.

        A folder is not done as long as one of its files is not, so that its path is enough.
        """
        found = []
        for item_type in _REQUESTED:
            for job in self._jobs_of(place.tenant_id, place.collection, _UNDONE, item_type):
                asked_at = payloads.asked_at(job.metadata) or job.created_at
                if asked_at < begun_at or job.op == "delete":
                    continue
                path = self._collections.path_of(job)
                if path is not None:
                    found.append((Place(job.tenant_id, job.collection, job.branch), path, asked_at))
        return found

    def _jobs_of(
        self, tenant_id: str, collection: str, statuses: frozenset[Status], item_type: str = "file"
    ) -> Iterator[Job]:
        query = _query(tenant_id, collection, statuses, item_type)
        while True:
            page = self._jobs.queue.find(query)
            yield from page
            if len(page) < query.limit:
                return
            query = msgspec.structs.replace(query, after=page[-1].queue_id)


def _query(tenant_id: str, collection: str, statuses: frozenset[Status], item_type: str = "file") -> JobQuery:
    return JobQuery(
        statuses=statuses,
        item_type=item_type,
        tenant_id=tenant_id,
        collection=collection,
        top_level=True,
        limit=MAX_PAGE,
    )


def _beginning_of(job: Job) -> datetime | None:
    """The beginning of the series of a job; None for a job of no series."""
    if job.submitted_by != "redis":
        return None
    metadata: Mapping[str, Any] = msgspec.json.decode(job.metadata)
    text = metadata.get(messages.SERIES)
    return datetime.fromisoformat(text) if isinstance(text, str) else None
