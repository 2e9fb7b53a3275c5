"""The cost of a repeated call: CPU time of this process, its commands and the server, and the clock."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence

import msgspec

from bench.capacity.kept_store import KeptStore


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds of a call: CPU time on average, and the clock's median and largest."""

    cpu_ms: float
    median_ms: float
    largest_ms: float


def cost_of(store: KeptStore, calls: Sequence[Callable[[], object]]) -> Cost:
    times = []
    before = _cpu_s(store)
    for call in calls:
        began = time.perf_counter()
        call()
        times.append((time.perf_counter() - began) * 1e3)
    spent = _cpu_s(store) - before
    return Cost(
        cpu_ms=spent / len(times) * 1e3, median_ms=sorted(times)[len(times) // 2], largest_ms=max(times)
    )


def _cpu_s(store: KeptStore) -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + store.server_cpu_s()
