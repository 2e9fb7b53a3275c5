"""Rows of a PostgreSQL queue with a limit, and the limits themselves."""

from __future__ import annotations

from datetime import datetime

from penstock.job import Job
from penstock.limits import Limit
from penstock.queue.limit_rows import decode, encode
from penstock.queue.postgres.pause_rows import PauseRows
from penstock.queue.postgres.values import as_pause
from penstock.queue.rules.pauses import Pause


class LimitRows(PauseRows):
    """The rows of one transaction, as used by limits."""

    limit_keys: set[str]
    limited_locks: set[str]

    def seen_pauses(self) -> list[Pause]:
        return [as_pause(*row) for row in self.fetch("pauses")]

    def limit(self, key: str) -> Limit | None:
        body = self.scalar("limit_body", limit_key=key)
        return decode(body) if body else None

    def all_limits(self) -> list[Limit]:
        return [decode(body) for (body,) in self.fetch("all_limits")]

    def set_limit(self, limit: Limit) -> None:
        self.send("set_limit", limit_key=limit.key, body=encode(limit).decode())

    def drop_limit(self, key: str) -> bool:
        return bool(self.fetch("drop_limit", limit_key=key))

    def slots(self, key: str, most: int, most_unclaimed: int, until: datetime) -> tuple[int, int]:
        values = {"limit_key": key, "most": most, "most_unclaimed": most_unclaimed, "until": until}
        ((started, reserved, unclaimed, ahead),) = self.fetch("slots", **values)
        return min(started + reserved, most), min(unclaimed + ahead, most_unclaimed)

    def limited_rows(self, key: str, number: int) -> list[Job]:
        return self._remember(self.fetch("limited_rows", limit_key=key, number=number))

    def unclaimed_rows(self, key: str, number: int) -> list[Job]:
        found = self.fetch("unclaimed_rows", limit_key=key, number=number)
        found += self.fetch("reserved_rows", limit_key=key, number=number - len(found))
        return self._remember(found)

    def limited_keys(self, after: str, number: int) -> list[str]:
        keys: list[str] = []
        while len(keys) < number and (key := self.scalar("next_limited_key", after=after)) is not None:
            keys.append(key)
            after = key
        return keys
