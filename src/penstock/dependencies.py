"""Dependencies: jobs waiting for the end of other jobs, and their state afterwards."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.job import ENDED, Changes, Held, Job, Settlement, Status
from penstock.named_tuple import NamedTuple

MOST_DEPENDENCIES = 1_000
"""Largest number of jobs that one job may wait for."""

DEPENDENCY_FAILED = "ERR_DEPENDENCY_FAILED"
ENDED_BADLY = {Status.FAILED: "failed", Status.CANCELLED: "was cancelled"}
DEPENDENCY_MESSAGE = "%s %s, and this job waited for it"
"""Message of a job that is cancelled for another one: id of that one, and what became of it."""


class Dependencies(msgspec.Struct, frozen=True, omit_defaults=True):
    """Jobs to wait for, as stored in ``after_json``. See ``NewJob`` for the fields."""

    after: tuple[str, ...]
    run_after_failure: bool = False

    @property
    def on_failure(self) -> str | None:
        """The choice in the words of a request; None without dependencies."""
        return ("run" if self.run_after_failure else "cancel") if self.after else None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Dependencies).decode


class WaitDecision(NamedTuple):
    """Decision on a waiting job: wait, release, or cancel because of another job."""

    waits: bool
    failed: str | None = None


def encoded(found: Dependencies) -> str:
    """The dependencies of a job, as stored."""
    return _encode(found).decode()


def dependencies_of(job: Job) -> Dependencies:
    """The dependencies of a job; empty for most."""
    return _decode(job.after_json) if job.after_json else Dependencies(())


def verdict(found: Dependencies, statuses: Mapping[str, Status]) -> WaitDecision:
    """Decide from the statuses of the named jobs. A deleted job counts as ended."""
    known = [(queue_id, statuses[queue_id]) for queue_id in found.after if queue_id in statuses]
    if not found.run_after_failure:
        for queue_id, status in known:
            if status in ENDED_BADLY:
                return WaitDecision(False, queue_id)
    return WaitDecision(any(status not in ENDED for _, status in known))


def cancelled_with(job: Job, failed: str, status: Status) -> Settlement:
    """End a waiting job because another one failed or was cancelled."""
    return Settlement(
        queue_id=job.queue_id,
        claim_number=job.claim_number,
        status=Status.CANCELLED,
        what="cancelled",
        retry_count=job.retry_count,
        lost_count=job.lost_count,
        error_code=DEPENDENCY_FAILED,
        error_message=DEPENDENCY_MESSAGE % (failed, ENDED_BADLY[status]),
    )


def held_back(turn: int) -> Changes:
    """The changes of a job with open dependencies. The job takes no turn of the tenant."""
    return {"held": Held.AFTER, "turn": min(turn, 0)}
