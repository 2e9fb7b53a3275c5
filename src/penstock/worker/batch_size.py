"""Batch sizes: how many jobs to claim at once, and how long tasks run between two claims."""

from __future__ import annotations

import math

BATCH_LIMIT = 100
BATCH_WORTH_S = 0.1
"""Target amount of work in one claim."""
AHEAD_WORTH_S = 0.02
"""Longest work of a batch during which the next one is claimed: the jobs of both wait less than those of one
batch may."""
SLOW_S = 0.05
NEWEST_SHARE = 0.2
LONGEST_TASK_TIME_S = 0.1
SMALL_JOB_S = 0.1
"""Longest duration of a small job."""
SMALL_JOBS_S = 1.0
"""How long the next small job is expected after one."""


class BatchSize:
    """Running averages of job durations, and the turn of jobs and tasks."""

    def __init__(self) -> None:
        self._seconds_a_job = BATCH_WORTH_S
        self._by_kind: dict[tuple[str, str], float] = {}
        self._call_size = 1
        self._task_time_s = 0.0
        """Time left for tasks before more jobs are claimed: as long as the jobs before them ran."""
        self._small_at = -math.inf

    def record(self, kind: tuple[str, str], seconds: float, call_size: int = 1) -> None:
        """Record the duration of a job of this kind, and the batch size of the handler."""
        self._call_size = call_size
        self._seconds_a_job += (seconds - self._seconds_a_job) * NEWEST_SHARE
        before = self._by_kind.get(kind, seconds)
        self._by_kind[kind] = before + (seconds - before) * NEWEST_SHARE

    def limit(self, most: int | None = None) -> int:
        """Number of jobs to claim. A batch handler gets all jobs of a call from one claim."""
        jobs = max(int(BATCH_WORTH_S / max(self._seconds_a_job, 1e-6)), self._call_size)
        return max(1, min(BATCH_LIMIT, jobs, BATCH_LIMIT if most is None else most))

    @property
    def is_quick(self) -> bool:
        """True if a full batch takes so little time that the next may be claimed before its end."""
        return self._seconds_a_job * BATCH_LIMIT <= AHEAD_WORTH_S

    def record_jobs(self, seconds: float, *, single: bool, now: float) -> None:
        """Give tasks as much time. ``single``: no other job was claimed with this one."""
        self._task_time_s = min(max(self._task_time_s, 0.0) + seconds, LONGEST_TASK_TIME_S)
        if single and seconds < SMALL_JOB_S:
            self._small_at = now

    def expects_small_jobs(self, now: float) -> bool:
        """True if a single small job came a moment ago: the next one is likely."""
        return now - self._small_at < SMALL_JOBS_S

    @property
    def tasks_due(self) -> bool:
        """True if tasks run next."""
        return self._task_time_s > 0

    def record_tasks(self, seconds: float) -> None:
        self._task_time_s -= seconds

    def end_task_turn(self) -> None:
        self._task_time_s = 0.0

    def is_slow(self, kind: tuple[str, str]) -> bool:
        """True if jobs of this kind take long, as far as this process knows."""
        return self._by_kind.get(kind, SLOW_S) >= SLOW_S
