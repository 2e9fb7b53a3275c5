"""Changed paths, held back until their writers have finished. Pure."""

from __future__ import annotations

from collections.abc import Iterable

QUIET_S = 0.5
"""A path without events for this long counts as written."""
LONGEST_S = 30.0
"""A path with events all the time, such as a log, counts as written after this long."""
MOST_PATHS = 10_000
"""More paths are not kept: everything is compared instead."""


class PendingChanges:
    """Changed paths with the times of their first and last event.

    ``overflow``: more came than are kept, so that only a comparison of everything finds all.
    """

    def __init__(self) -> None:
        self._times: dict[str, tuple[float, float]] = {}
        self.overflow = False

    def __bool__(self) -> bool:
        return self.overflow or bool(self._times)

    def add(self, paths: Iterable[str], now: float) -> None:
        for path in paths:
            first, _ = self._times.get(path, (now, now))
            self._times[path] = (first, now)
        if len(self._times) > MOST_PATHS:
            self._times.clear()
            self.overflow = True

    def clear(self) -> None:
        """Forget all paths: everything is compared, which includes them. Later writes have events again."""
        self._times.clear()
        self.overflow = False

    def take(self, now: float) -> list[str]:
        """Take the paths that are written. The two halves of a move come at once and are taken together."""
        written = [
            path
            for path, (first, last) in self._times.items()
            if now - last >= QUIET_S or now - first >= LONGEST_S
        ]
        for path in written:
            del self._times[path]
        return written
