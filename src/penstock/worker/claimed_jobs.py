"""The jobs in hand of a child: claimed, and not begun. The sender thread may add and take them as well."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection

from penstock.job import Claim


class ClaimedJobs:
    """Claims in the order of the store."""

    def __init__(self) -> None:
        self._claims: deque[Claim] = deque()
        self._lock = threading.Lock()
        self._since = 0.0
        self.taken_since = 0.0
        """Time at which the jobs that were taken last were requested, or the first of them."""

    def __len__(self) -> int:
        return len(self._claims)

    def names(self) -> set[tuple[str, int]]:
        """Id and claim number of each."""
        with self._lock:
            return {(claim.queue_id, claim.claim_number) for claim in self._claims}

    def add(self, claims: Collection[Claim], requested_at: float) -> None:
        with self._lock:
            if not self._claims:
                self._since = requested_at
            self._claims.extend(claims)

    def first(self) -> Claim | None:
        with self._lock:
            return self._claims[0] if self._claims else None

    def take(self, size: int) -> list[Claim]:
        """Take the first job, and others of its kind that may run in one call with it."""
        with self._lock:
            if not self._claims:
                return []
            first = self._claims.popleft()
            self.taken_since = self._since
            if size == 1:
                return [first]
            kind = (first.item_type, first.op)
            similar = [
                claim
                for claim in self._claims
                if (claim.item_type, claim.op) == kind and not claim.lost_count
            ][: size - 1]
            taken = {claim.queue_id for claim in similar}
            self._claims = deque(claim for claim in self._claims if claim.queue_id not in taken)
        return [first, *similar]

    def put_back(self, claims: Collection[Claim]) -> None:
        with self._lock:
            self._claims.extendleft(reversed(list(claims)))

    def take_all(self) -> list[Claim]:
        with self._lock:
            claims, self._claims = list(self._claims), deque()
        return claims
