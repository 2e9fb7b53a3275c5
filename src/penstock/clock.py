"""Time and ids. No other module reads a clock or makes an id."""

from __future__ import annotations

import base64
import os
import threading
import time
import uuid
from datetime import UTC, datetime
from functools import lru_cache

from penstock.errors import StateDamaged

_last_id = 0
_id_lock = threading.Lock()


def _after_fork() -> None:
    """Replace the lock after a fork: a thread of the parent may hold the old one for ever."""
    global _id_lock
    _id_lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def now() -> datetime:
    return datetime.now(UTC)


def elapsed_s() -> float:
    """Seconds of a monotonic clock, where possible one which runs while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def read_time(text: str) -> datetime:
    """A time of a store. Without a zone, as SQLite's ``datetime('now')`` writes it, it is in UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        raise StateDamaged(
            f"the store has the time {str(text)[:80]!a}, expected ISO 8601 in UTC",
            remedy="Correct the row with this time, or delete it.",
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def format_time(moment: datetime) -> str:
    """ISO 8601, UTC, fixed width: sorts as text in every engine."""
    return _formatted(moment if moment.tzinfo is UTC else moment.astimezone(UTC))


def format_new_time(moment: datetime) -> str:
    """Format a time without the cache, for a time used once."""
    moment = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return moment.isoformat(timespec="microseconds")[:26] + "Z"


_formatted = lru_cache(16)(format_new_time)
"""Cached: the rows of one transaction share their times."""


def new_ids(count: int) -> list[str]:
    """Job ids in order of creation, strictly increasing within a process.

    14 hex digits of microseconds, then 8 random ones shared by the batch: two processes that hit the same
    microsecond still differ, and a batch pays for its randomness once.
    """
    global _last_id
    with _id_lock:
        first = max(time.time_ns() // 1000, _last_id + 1)
        _last_id = first + count - 1
    tail = os.urandom(4).hex()
    return [f"job_{first + i:014x}{tail}" for i in range(count)]


def new_task_id() -> str:
    """A task id: 32 random hex digits."""
    return uuid.uuid4().hex


def new_rag_job_id(rag_id: str) -> str:
    """A job id of the Redis contract: seconds since 1970 and 8 random hex digits."""
    return f"rag-{rag_id}-{int(time.time())}-{os.urandom(4).hex()}"


def new_secret() -> str:
    """A secret of 256 random bits, as 43 characters of URLs."""
    return base64.urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode()


def new_id() -> str:
    return new_ids(1)[0]


def is_new_id(text: str) -> bool:
    """Tell whether a text has the form of the ids of ``new_ids``."""
    digits = text.removeprefix("job_")
    return len(text) == 26 and len(digits) == 22 and set(digits) <= set("0123456789abcdef")


def new_uuids(count: int) -> list[str]:
    """UUIDs (version 7) in order of creation, which keeps inserts at the end of an index."""
    moment = f"{time.time_ns() // 1_000_000:012x}"
    stamp = f"{moment[:8]}-{moment[8:]}-7"
    uuids = []
    digits = os.urandom(10 * count).hex()
    for at in range(0, len(digits), 20):
        random = digits[at : at + 19]
        variant = "89ab"[int(random[3], 16) & 3]
        uuids.append(f"{stamp}{random[:3]}-{variant}{random[4:7]}-{random[7:]}")
    return uuids
