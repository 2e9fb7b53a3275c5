"""Reasons of failures: errors of many jobs that differ only in paths and numbers are one reason."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from penstock.lazy_pattern import lazy_pattern
from penstock.named_tuple import NamedTuple

CHILDREN_FAILED = "ERR_CHILDREN_FAILED"
"""Code of a parent with failed children. It has no reason: the reasons are those of the children."""
BUCKETS = 18
STEPS = tuple(
    timedelta(seconds=seconds)
    for seconds in (60, 300, 600, 1800, 3600, 2 * 3600, 6 * 3600, 12 * 3600, 86_400, 7 * 86_400)
)
"""Lengths of a bucket; the first one is taken that reaches back to the oldest failure."""
_COMPARED = 500
_PATH_FIRST = lazy_pattern(r"^[^:\n]*[/\\][^:\n]*(?=: )")
_VARYING = lazy_pattern(r"""'[^'\n]*'|"[^"\n]*"|[^\s'"]*[/\\][^\s'"]*|\w*\d[\w.,:-]*""")
_SPACE = lazy_pattern(r"\s+")


def failure_reason(code: str | None, message: str | None) -> str | None:
    """The id of a reason: the code, and a hash of the message without the details of one job."""
    if code == CHILDREN_FAILED:
        return None
    text = _PATH_FIRST.sub("*", (message or "")[:_COMPARED])
    text = _SPACE.sub(" ", _VARYING.sub("*", text)).strip()
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{code or 'ERR_UNKNOWN'}-{digest}"


class FailureGroup(NamedTuple):
    """Failed jobs with one reason. ``newest``: id of the newest; ``buckets``: the last one is now."""

    reason: str
    number: int
    first_at: datetime
    last_at: datetime
    newest: str
    buckets: tuple[int, ...]


class FailureGroups(NamedTuple):
    """The most frequent reasons, and the number of all failed jobs with a reason.

    ``exact``: not so for an engine that has no index of reasons, and more failed jobs than it reads.
    """

    groups: list[FailureGroup]
    total: int
    step: timedelta
    exact: bool = True


def bucket_step(first_at: datetime | None, now: datetime) -> timedelta:
    """The shortest bucket length with which all buckets reach back to the oldest failure."""
    age = timedelta(0) if first_at is None else now - first_at
    return next((step for step in STEPS if step * BUCKETS >= age), STEPS[-1])


def bucket_of(at: datetime, now: datetime, step: timedelta) -> int:
    """Index of a failure's bucket; -1 for a failure older than all buckets."""
    return max(BUCKETS - 1 - int(max((now - at) / step, 0)), -1)


def group_failures(failures: Iterable[tuple[str, str, datetime]], now: datetime, limit: int) -> FailureGroups:
    """Group failures, given as reason, job id and time, for engines without an index of reasons."""
    found: dict[str, list[tuple[str, datetime]]] = {}
    for reason, queue_id, at in failures:
        found.setdefault(reason, []).append((queue_id, at))
    first = min((at for members in found.values() for _, at in members), default=None)
    step = bucket_step(first, now)
    ordered = sorted(found.items(), key=lambda one: (-len(one[1]), one[0]))
    groups = [_group(reason, members, now, step) for reason, members in ordered[:limit]]
    return FailureGroups(groups, sum(map(len, found.values())), step)


def counted_failures(
    found: Iterable[Sequence[Any]], buckets: Iterable[Sequence[Any]], step: timedelta
) -> FailureGroups:
    """Groups as a database counted them: reason, number, first and last time, newest id, number of all.

    ``buckets``: reason, place before now, number.
    """
    places: dict[str, list[int]] = {}
    for reason, place, number in buckets:
        if place < BUCKETS:
            places.setdefault(reason, [0] * BUCKETS)[BUCKETS - 1 - max(place, 0)] += number
    groups, total = [], 0
    for reason, number, first, last, newest, everything in found:
        total = int(everything)
        counts = tuple(places.get(reason, [0] * BUCKETS))
        groups.append(FailureGroup(reason, number, first, last, newest, counts))
    return FailureGroups(groups, total, step)


def _group(
    reason: str, members: Sequence[tuple[str, datetime]], now: datetime, step: timedelta
) -> FailureGroup:
    buckets = [0] * BUCKETS
    for _, at in members:
        if (place := bucket_of(at, now, step)) >= 0:
            buckets[place] += 1
    times = [at for _, at in members]
    newest = max(queue_id for queue_id, _ in members)
    return FailureGroup(reason, len(members), min(times), max(times), newest, tuple(buckets))
