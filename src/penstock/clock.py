"""The only place that asks the time or makes an id."""

from __future__ import annotations

import os
import secrets
import threading
import time
import uuid
from datetime import UTC, datetime
from functools import lru_cache

_last_id = 0
_id_lock = threading.Lock()


def _after_fork() -> None:
    """Another thread of the parent may have held the lock; here is none that would release it."""
    global _id_lock
    _id_lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def now() -> datetime:
    return datetime.now(UTC)


def elapsed_s() -> float:
    """Seconds on a clock that nobody sets and that goes on while the machine sleeps, where there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def format_time(moment: datetime) -> str:
    """ISO 8601, UTC, fixed width: sorts as text in every engine."""
    return _formatted(moment if moment.tzinfo is UTC else moment.astimezone(UTC))


@lru_cache(16)
def _formatted(moment: datetime) -> str:
    # The rows of one transaction share their times.
    return moment.isoformat(timespec="microseconds")[:26] + "Z"


def new_ids(count: int) -> list[str]:
    """Ids that sort by the time they were made, strictly increasing within a process.

    14 hex digits of microseconds, then 8 random ones shared by the batch: two processes that hit the same
    microsecond still differ, and a batch pays for its randomness once.
    """
    global _last_id
    with _id_lock:
        first = max(time.time_ns() // 1000, _last_id + 1)
        _last_id = first + count - 1
    tail = secrets.token_hex(4)
    return [f"job_{first + i:014x}{tail}" for i in range(count)]


def new_task_id() -> str:
    """32 hex digits at random, as function tasks have them."""
    return uuid.uuid4().hex


def new_rag_job_id(rag_id: str) -> str:
    """As the Redis contract makes them: seconds since 1970 and 8 hex digits at random."""
    return f"rag-{rag_id}-{int(time.time())}-{secrets.token_hex(4)}"


def new_id() -> str:
    return new_ids(1)[0]


def new_uuids(count: int) -> list[str]:
    """UUIDs (version 7) that sort by the time they were made, so that they are appended to an index."""
    moment = f"{time.time_ns() // 1_000_000:012x}"
    stamp = f"{moment[:8]}-{moment[8:]}-7"
    made = []
    chances = secrets.token_hex(10 * count)
    for at in range(0, len(chances), 20):
        chance = chances[at : at + 19]
        variant = "89ab"[int(chance[3], 16) & 3]
        made.append(f"{stamp}{chance[:3]}-{variant}{chance[4:7]}-{chance[7:]}")
    return made
