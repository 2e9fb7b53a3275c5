"""Counts of the status: renewed beside the requests, and never older than twice their lifetime."""

from __future__ import annotations

import threading

import pytest

from penstock import clock
from penstock.service.server import CachedReads


def test_a_count_is_renewed_beside_the_requests_until_it_is_too_old(monkeypatch: pytest.MonkeyPatch):
    now, reads, may_read, renewed = [0.0], [0], threading.Event(), threading.Event()
    may_read.set()
    monkeypatch.setattr(clock, "elapsed_s", lambda: now[0])

    def read() -> int:
        assert may_read.wait(60)
        reads[0] += 1
        return reads[0]

    def read_beside() -> int:
        found = read()
        renewed.set()
        return found

    counts = CachedReads[int]()
    first = [counts.get("a", read), counts.get("a", read)]
    now[0] = 1.5
    may_read.clear()  # a request that waited for the read would not return
    outdated = counts.get("a", read_beside)
    may_read.set()
    assert renewed.wait(60)
    now[0] = 10.0

    assert ([1, 1], 1) == (first, outdated)
    assert 3 == counts.get("a", read)
