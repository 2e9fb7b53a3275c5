"""Submissions of different senders in one transaction: a commit costs more than a row."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import InvalidRequest, PenstockError, StoreError
from penstock.job import NewJob
from penstock.service.jobs import Jobs
from penstock.service.note_rows import NoteRows
from penstock.service.requests import Submission
from penstock.service.responses import Receipt


def submit_each(
    jobs: Jobs, rows: NoteRows, submissions: Sequence[Submission]
) -> list[Receipt | PenstockError]:
    """Add jobs in one transaction; an invalid job is refused alone. Receipts as of ``submit``."""
    outcomes: list[PenstockError | NewJob] = []
    for submission in submissions:
        try:
            outcomes.append(rows.build(submission))
        except InvalidRequest as refusal:
            outcomes.append(refusal)
    answers = iter(_add_each(jobs, [each for each in outcomes if isinstance(each, NewJob)]))
    return [next(answers) if isinstance(each, NewJob) else each for each in outcomes]


def _add_each(jobs: Jobs, new: Sequence[NewJob]) -> list[Receipt | PenstockError]:
    if not new:
        return []
    try:
        added = jobs.add_counted(new, jobs._limits())
    except PenstockError as refusal:
        if len(new) == 1 or isinstance(refusal, StoreError):
            return [refusal] * len(new)
        # The limit of the queue, for example: some of them may fit.
        return [answer for each in new for answer in _add_each(jobs, [each])]
    return [jobs.placed(jobs.receipt_of(each, *one)) for each, one in zip(new, added, strict=True)]
