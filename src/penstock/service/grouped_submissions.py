"""Submissions of different senders in one transaction: a commit costs more than a row."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import msgspec

from penstock.errors import InvalidRequest, PenstockError, StoreError
from penstock.job import AddResult, NewJob
from penstock.service.jobs import Jobs
from penstock.service.requests import Submission
from penstock.service.responses import Receipt

MOST_AT_ONCE = 200
"""Jobs added in one transaction."""


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
        added = jobs.queue.add(new, limits=jobs._limits())
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


class _Waiting(NamedTuple):
    submission: Submission
    answer: asyncio.Future[Receipt]


class GroupedSubmissions:
    """Adds the jobs of requests that wait at the same time in one transaction. Used by one event loop."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._waiting: list[_Waiting] = []
        self._running = False
        self._thread = ThreadPoolExecutor(1, "enqueue")

    async def submit(self, submission: Submission) -> Receipt:
        """Add a job; raises what ``Jobs.submit`` raises."""
        answer: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(submission, answer))
        if not self._running:
            self._add_waiting()
        return await answer

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()

    def _add_waiting(self) -> None:
        group, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
        self._running = bool(group)
        if group:
            loop = asyncio.get_running_loop()
            added = self._thread.submit(submit_each, self._jobs, [one.submission for one in group])
            added.add_done_callback(lambda done: loop.call_soon_threadsafe(self._answer, group, done))

    def _answer(self, group: list[_Waiting], added: Future[list[Receipt | PenstockError]]) -> None:
        # Those that came meanwhile do not wait for the answers.
        self._add_waiting()
        error = added.exception()
        outcomes = [error] * len(group) if error is not None else added.result()
        for one, outcome in zip(group, outcomes, strict=True):
            if one.answer.done():
                continue
            if isinstance(outcome, BaseException):
                one.answer.set_exception(outcome)
            elif outcome is not None:
                one.answer.set_result(outcome)
