"""How much to claim at once: many small jobs, or one long one."""

from __future__ import annotations

BATCH_LIMIT = 100
BATCH_WORTH_S = 0.1
"""A claim should be about this much work."""
SLOW_S = 0.05
NEWEST_SHARE = 0.2


class Pace:
    def __init__(self) -> None:
        self._seconds_a_job = BATCH_WORTH_S
        self._by_kind: dict[tuple[str, str], float] = {}
        self._together = 1

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

    def slow(self, kind: tuple[str, str]) -> bool:
        """Whether jobs of this kind take long here, as far as is known."""
        return self._by_kind.get(kind, SLOW_S) >= SLOW_S
