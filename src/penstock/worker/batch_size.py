"""How much to claim at once: many small jobs, or one long one; and how long tasks run between two claims."""

from __future__ import annotations

import math

BATCH_LIMIT = 100
BATCH_WORTH_S = 0.1
"""A claim should be about this much work."""
SLOW_S = 0.05
NEWEST_SHARE = 0.2
MOST_OWED_S = 0.1
SMALL_JOBS_S = 1.0


class BatchSize:
    def __init__(self) -> None:
        self._seconds_a_job = BATCH_WORTH_S
        self._by_kind: dict[tuple[str, str], float] = {}
        self._together = 1
        self._owed_s = 0.0
        """How long tasks may still run before more jobs are claimed: as long as the jobs before them ran."""
        self._small_at = -math.inf

    def note(self, kind: tuple[str, str], seconds: float, together: int = 1) -> None:
        """What a job of this kind took, and how many its handler takes in one call."""
        self._together = together
        self._seconds_a_job += (seconds - self._seconds_a_job) * NEWEST_SHARE
        before = self._by_kind.get(kind, seconds)
        self._by_kind[kind] = before + (seconds - before) * NEWEST_SHARE

    def limit(self, most: int | None = None) -> int:
        """As many as are worth it; a handler that takes many is given them by one claim, not by two."""
        worth = max(int(BATCH_WORTH_S / max(self._seconds_a_job, 1e-6)), self._together)
        return max(1, min(BATCH_LIMIT, worth, BATCH_LIMIT if most is None else most))

    def jobs_took(self, seconds: float, *, alone: bool, now: float) -> None:
        """``alone``: no other job was claimed with it, so that jobs come one by one."""
        self._owed_s = min(max(self._owed_s, 0.0) + seconds, MOST_OWED_S)
        if alone and seconds < BATCH_WORTH_S:
            self._small_at = now

    def small_jobs_come(self, now: float) -> bool:
        """Whether a single small job came a moment ago, and so the next one may."""
        return now - self._small_at < SMALL_JOBS_S

    @property
    def tasks_due(self) -> bool:
        """Whether it is the tasks' turn."""
        return self._owed_s > 0

    def tasks_took(self, seconds: float) -> None:
        self._owed_s -= seconds

    def no_tasks(self) -> None:
        self._owed_s = 0.0

    def slow(self, kind: tuple[str, str]) -> bool:
        """Whether jobs of this kind take long here, as far as is known."""
        return self._by_kind.get(kind, SLOW_S) >= SLOW_S
