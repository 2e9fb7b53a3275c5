"""Limits in the store of a queue: the contract, and code shared by the engines."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

import msgspec

from penstock.limits import Limit

KEYS_AT_ONCE = 100
"""Keys with waiting rows that one call of ``admit`` looks at; the next call continues after them."""

encode = msgspec.json.Encoder().encode


def decode(body: bytes | str) -> Limit:
    # A decoder made here would evaluate the annotations in each command.
    return msgspec.json.decode(body, type=Limit)


class LimitStore(Protocol):
    """Limits by key. Every write is atomic and durable before the call returns."""

    def limits(self) -> list[Limit]:
        """List the limits, by key."""

    def put_limit(self, limit: Limit, *, now: datetime | None = None) -> bool:
        """Store a limit, new or in place of another one; False if the stored one allows as much.

        Rows of the key that no worker has claimed wait again, and go as the new limit allows.
        """

    def drop_limit(self, key: str, *, now: datetime | None = None) -> bool:
        """Remove the limit of a key and release its waiting rows; False for a key without a limit."""

    def admit(self, *, now: datetime | None = None) -> int:
        """Release rows waiting for limits, as far as the limits allow. Returns the number of rows looked at.

        Called every second by each worker: rates allow more as time passes, and a claim gives slots back.
        """

    def slots_of(self, key: str) -> int:
        """Count the rows of a key with a slot, up to 1,000."""
