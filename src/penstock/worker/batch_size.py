"""How much to claim at once: many small jobs, or one long one; and how long tasks run between two claims."""

from __future__ import annotations

import math

BATCH_LIMIT = 100
BATCH_WORTH_S = 0.1
"""A claim should be about this much work."""
SLOW_S = 0.05
NEWEST_SHARE = 0.2
LONGEST_TASK_TIME_S = 0.1
SMALL_JOBS_S = 1.0


class BatchSize:
    def __init__(self) -> None:
        self._seconds_a_job = BATCH_WORTH_S
        self._by_kind: dict[tuple[str, str], float] = {}
        self._call_size = 1
        self._task_time_s = 0.0
        """How long tasks may still run before more jobs are claimed: as long as the jobs before them ran."""
        self._small_at = -math.inf

    def record(self, kind: tuple[str, str], seconds: float, call_size: int = 1) -> None:
        """What a job of this kind took, and how many its handler takes in one call."""
        self._call_size = call_size
        self._seconds_a_job += (seconds - self._seconds_a_job) * NEWEST_SHARE
        before = self._by_kind.get(kind, seconds)
        self._by_kind[kind] = before + (seconds - before) * NEWEST_SHARE

    def limit(self, limit_to: int | None = None) -> int:
        """As many as are worth it; a handler that takes many is given them by one claim, not by two."""
        jobs = max(int(BATCH_WORTH_S / max(self._seconds_a_job, 1e-6)), self._call_size)
        return max(1, min(BATCH_LIMIT, jobs, BATCH_LIMIT if limit_to is None else limit_to))

    def record_jobs(self, seconds: float, *, single: bool, now: float) -> None:
        """``single``: no other job was claimed with it, so that jobs come one by one."""
        self._task_time_s = min(max(self._task_time_s, 0.0) + seconds, LONGEST_TASK_TIME_S)
        if single and seconds < BATCH_WORTH_S:
            self._small_at = now

    def expects_small_jobs(self, now: float) -> bool:
        """Whether a single small job came a moment ago, and so the next one may."""
        return now - self._small_at < SMALL_JOBS_S

    @property
    def tasks_due(self) -> bool:
        """Whether it is the tasks' turn."""
        return self._task_time_s > 0

    def record_tasks(self, seconds: float) -> None:
        self._task_time_s -= seconds

    def end_task_turn(self) -> None:
        self._task_time_s = 0.0

    def is_slow(self, kind: tuple[str, str]) -> bool:
        """Whether jobs of this kind take long here, as far as is known."""
        return self._by_kind.get(kind, SLOW_S) >= SLOW_S
