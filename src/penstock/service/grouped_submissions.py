"""Submissions of different senders in one transaction: a commit costs more than a row."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.errors import InvalidRequest, PenstockError, StoreError
from penstock.job import AddResult, NewJob
from penstock.service.jobs import Jobs
from penstock.service.requests import Submission
from penstock.service.responses import Receipt


def submit_each(jobs: Jobs, submissions: Sequence[Submission]) -> list[Receipt | PenstockError]:
    """Add jobs in one transaction; what is refused is refused alone. Receipts are as of ``submit``."""
    outcomes: list[PenstockError | NewJob] = []
    for submission in submissions:
        try:
            outcomes += jobs._new([submission], joins=False)
        except InvalidRequest as refusal:
            outcomes.append(refusal)
    answers = iter(_add_each(jobs, [each for each in outcomes if isinstance(each, NewJob)]))
    return [next(answers) if isinstance(each, NewJob) else each for each in outcomes]


def _add_each(jobs: Jobs, new: Sequence[NewJob]) -> list[Receipt | PenstockError]:
    if not new:
        return []
    try:
        added = jobs.add_all(new, jobs._limits())
    except PenstockError as refusal:
        if len(new) == 1 or isinstance(refusal, StoreError):
            return [refusal] * len(new)
        # The limit of the queue, for example: some of them may fit.
        return [answer for each in new for answer in _add_each(jobs, [each])]
    return [_counted(jobs, *each) for each in zip(new, added, strict=True)]


def _counted(jobs: Jobs, new: NewJob, added: AddResult) -> Receipt:
    """The receipt with the job's position, or with its start if that is later."""
    if not added.dedupe_hit and new.run_at is not None and new.run_at > jobs.queue.now():
        return msgspec.structs.replace(jobs._receipt(added, None), run_at=new.run_at)
    return jobs._receipt(added, jobs.queue.position(added.queue_id))
