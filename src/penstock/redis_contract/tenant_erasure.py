"""Erasure of deleted tenants in Redis: hashes and dead letters of their RAGs.

``delete-tenant`` removes jobs and documents, but does not know the server of the contract. Each gateway does
it for the RAGs of its configuration once the delete is done.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

import msgspec

from penstock import clock
from penstock.queue.job import Job, JobQuery, Status
from penstock.redis_contract import keys
from penstock.redis_contract.lists import Lists
from penstock.redis_contract.rags import Rags
from penstock.service.jobs import MAX_PAGE, Jobs

REMOVED = "ERR_JOB_REMOVED"
"""Error code in the hash of a job that was removed from the queue before its end was seen."""

log = logging.getLogger("penstock.gateway")


class TenantErasure:
    """Erases hashes and dead letters after ``delete-tenant``."""

    def __init__(self, jobs: Jobs, lists: Lists, rags: Rags) -> None:
        self._jobs = jobs
        self._lists = lists
        self._rags = rags
        self._erased: set[str] = set()
        """Delete jobs that are complete here. A restarted gateway checks them once more."""

    def erase_deleted(self) -> None:
        """Erase the remains of all deleted tenants."""
        done = JobQuery(
            item_type="delete_tenant", statuses=frozenset({Status.DONE}), newest_first=True, limit=MAX_PAGE
        )
        for job in self._jobs.queue.find(done):
            rag_ids = self._rag_ids(job.payload["tenant_id_to_delete"])
            if job.queue_id not in self._erased and (not rag_ids or self._erase(job, rag_ids)):
                self._erased.add(job.queue_id)

    def _rag_ids(self, tenant_id: str) -> frozenset[str]:
        default = self._jobs.settings.tenant_id
        rags = self._rags.by_id.values()
        return frozenset(rag.rag_id for rag in rags if (rag.tenant_id or default) == tenant_id)

    def _erase(self, delete: Job, rag_ids: Collection[str]) -> bool:
        """Erase the remains of one tenant. False: a removed job is still open in Redis."""
        until = clock.format_time(delete.finished_at or delete.updated_at)
        hashes, removed, complete = 0, [], True
        for job_id, shown in self._lists.hashes():
            if shown["rag_id"] not in rag_ids or self._jobs.queue.get(job_id) is not None:
                continue
            if not shown["completed_at"]:
                # The job was open when the tenant was deleted. A message pushed since is in the queue, or
                # still in a list.
                complete = complete and not self._lists.is_open(job_id)
            elif shown["error_code"] == REMOVED or shown["completed_at"] <= until:
                hashes += self._lists.erase(job_id)
                if shown["error_code"] == REMOVED:
                    removed.append(job_id)
        self._lists.forget_files(removed)
        # Read all before the first removal: a removal moves the others.
        letters = [raw for raw in self._lists.letters() if _is_erasable(_read_letter(raw), rag_ids, until)]
        for raw in letters:
            self._lists.erase_letter(raw)
        if hashes or letters:
            log.info("%d hashes and %d dead letters of a deleted tenant erased", hashes, len(letters))
        return complete


def _is_erasable(letter: dict[str, Any], rag_ids: Collection[str], until: str) -> bool:
    message = letter.get("message")
    message = message if isinstance(message, dict) else {}
    rag_id = letter.get("rag_id") or message.get("rag_id")
    if rag_id not in rag_ids and letter.get("list") not in {keys.list_key(each) for each in rag_ids}:
        return False
    at = letter.get("at") or letter.get("failed_at")
    return not isinstance(at, str) or at <= until


def _read_letter(raw: bytes) -> dict[str, Any]:
    try:
        letter = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return letter if isinstance(letter, dict) else {}
