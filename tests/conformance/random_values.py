"""Random values of the oracle: few of each kind, so jobs, keys, locks and tenants meet."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from hypothesis import strategies as st

from penstock.queue import transitions
from penstock.queue.job import (
    Claim,
    ClaimRequest,
    Held,
    Job,
    JobQuery,
    NewJob,
    QueueLimits,
    Scope,
    Settlement,
    Status,
)
from penstock.queue.limits import Limit
from penstock.queue.retry import Classification

LONG = "long " * 1_000
"""Longer than what an engine keeps in the row itself."""


class Spec(NamedTuple):
    """Random values of a new job; few of each, so jobs meet."""

    key: int
    tenant_id: str
    priority: int
    item_type: str
    op: str
    branch: str
    collection: str
    lock: str | None
    limit: str | None
    delay: int | None
    dedupe: bool
    text: str
    max_retries: int
    backlog: str | None
    ttl: int | None


class Ending(NamedTuple):
    """How which claim is to end. ``pick`` counts among those in progress, or with ``stale`` all ever made."""

    way: str
    pick: int
    stale: bool
    children: list[Spec]


def _delayed(seconds: int) -> timedelta:
    return timedelta(seconds=seconds)


def _failure(kind: Any, after: timedelta | None = None) -> Callable[..., Settlement]:
    failure = Classification(kind, f"ERR_{kind.upper()}", after)
    return lambda holder, _: transitions.failed_attempt(holder, failure, "it broke", jitter=0.5)


WAYS: dict[str, Callable[[Claim | Job, tuple[NewJob, ...]], Settlement]] = {
    "done": lambda holder, _: transitions.done(holder),
    "done with a result": lambda holder, _: transitions.done(holder, result_json='{"chunks":2,"pages":3}'),
    "transient": _failure("transient"),
    "transient, told when": _failure("transient", timedelta(seconds=7)),
    "permanent": _failure("permanent"),
    "cancelled": _failure("cancelled"),
    "timed out": lambda holder, _: transitions.timed_out(holder),
    "released": lambda holder, _: transitions.released(holder, "shutting down"),
    "released for later": lambda holder, _: transitions.released(holder, "no handler", delay=_delayed(30)),
    "released with a code": lambda holder, _: transitions.released(holder, "down", code="ERR_SERVICE"),
    "lost": lambda holder, _: transitions.lease_lost(holder, jitter=-0.5),
    "waits": lambda holder, children: transitions.waits(holder, children=children),
    "waits, with progress": lambda holder, children: transitions.waits(
        holder, children=children, progress_json='{"at":9}'
    ),
    "waits for a document": lambda holder, _: transitions.waits(holder, "document"),
    "expanded": lambda holder, children: transitions.expanded(holder, children),
    "expanded, with progress": lambda holder, children: transitions.expanded(
        holder, children, progress_json='{"at":1}'
    ),
}

TENANTS = ["ann", "bob", "cyd"]
COLLECTIONS = ["docs", "code"]
SPECS = st.builds(
    Spec,
    key=st.integers(0, 4),
    tenant_id=st.sampled_from(TENANTS),
    priority=st.sampled_from([5, 5, 9, 0]),
    item_type=st.sampled_from(["file", "folder", "function"]),
    op=st.sampled_from(["ingest", "update", "update", "delete"]),
    branch=st.sampled_from(["main", "main", "dev"]),
    collection=st.sampled_from(COLLECTIONS),
    lock=st.sampled_from([None, None, None, "disk", "gpu"]),
    limit=st.sampled_from([None, None, "api", "host"]),
    delay=st.sampled_from([None, None, None, None, None, 40, 5, -5]),
    dedupe=st.sampled_from([True, True, False]),
    text=st.sampled_from(["a", "é☃", LONG]),
    max_retries=st.sampled_from([3, 1, 0]),
    backlog=st.sampled_from([None, None, None, "mail"]),
    ttl=st.sampled_from([None, None, None, 5, 50]),
)
CROWDED_SPECS = st.builds(
    Spec,
    key=st.integers(0, 4),
    tenant_id=st.sampled_from(["ann", "ann", "bob"]),
    priority=st.sampled_from([5, 5, 5, 9]),
    item_type=st.sampled_from(["file", "function"]),
    op=st.sampled_from(["update", "update", "delete"]),
    branch=st.just("main"),
    collection=st.sampled_from(COLLECTIONS),
    lock=st.sampled_from(["gpu", "gpu", None]),
    limit=st.sampled_from([None, "api", "host"]),
    delay=st.sampled_from([None, None, None, None, 5]),
    dedupe=st.sampled_from([True, False]),
    text=st.just("a"),
    max_retries=st.just(3),
    backlog=st.none(),
    ttl=st.none(),
)
"""Jobs of which most want the same lock or slot, or follow each other."""

ENDINGS = st.builds(
    Ending,
    way=st.sampled_from(sorted(WAYS)),
    pick=st.integers(0, 7),
    stale=st.sampled_from([False, False, False, False, True]),
    children=st.lists(SPECS, max_size=3),
)
PLAIN_ENDINGS = st.builds(
    Ending,
    way=st.sampled_from(["done", "done", "done", "done with a result", "transient", "released"]),
    pick=st.integers(0, 3),
    stale=st.just(False),
    children=st.just([]),
)
LIMITS = st.builds(
    QueueLimits,
    indexing=st.sampled_from([None, 6, 3]),
    per_tenant=st.sampled_from([None, 3]),
    functions=st.sampled_from([None, 2]),
    by_key=st.sampled_from([{}, {"mail": 2}]),
)
KEY_LIMITS = st.builds(
    Limit,
    key=st.sampled_from(["api", "api", "host"]),
    concurrent=st.sampled_from([1, 2]),
    starts=st.sampled_from([None, 2, 10]),
    period_s=st.just(10),
)
REQUESTS = st.builds(
    ClaimRequest,
    worker_id=st.sampled_from(["w1", "w2"]),
    limit=st.sampled_from([3, 1, 2, 5]),
    lease=st.sampled_from([timedelta(seconds=20), timedelta(seconds=300)]),
    lease_by_type=st.sampled_from([{}, {"folder": timedelta(seconds=60)}]),
    oldest=st.sampled_from([False, False, True]),
)
PICKS = st.lists(st.integers(0, 40), min_size=1, max_size=3)
SCOPES = st.sampled_from(
    [Scope("ann"), Scope("*", "code"), Scope("bob", "docs"), Scope("ann", "code"), Scope()]
)
AGES = st.sampled_from([timedelta(0), timedelta(seconds=30)])
QUERIES = st.builds(
    JobQuery,
    statuses=st.frozensets(st.sampled_from(list(Status)), max_size=2),
    tenant_id=st.sampled_from([None, "ann"]),
    item_type=st.sampled_from([None, "file"]),
    lock_key=st.sampled_from([None, None, "disk"]),
    limit_key=st.sampled_from([None, None, None, "api"]),
    held=st.sampled_from([None, None, *Held]),
    waiting_for=st.sampled_from([None, None, "children"]),
    waiting=st.sampled_from([False, False, False, True]),
    top_level=st.sampled_from([None, True, False]),
    after=st.sampled_from([None, "job_0004"]),
    newest_first=st.booleans(),
    limit=st.sampled_from([50, 2]),
)
