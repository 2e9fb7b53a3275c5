"""Row counts by status, reason to be held and item type, as a store keeps them while its rows change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from penstock.job import Held, Job, JobQuery, Status

Class: TypeAlias = tuple[Status, Held | None, str]
"""Status, reason to be held, item type."""


class Tally(NamedTuple):
    """Rows by kind; not ``exact``: some of the numbers are estimates."""

    counts: Mapping[Class, int]
    exact: bool = True


COLUMNS = ("status", "held", "item_type")
_FILTERS = frozenset({"statuses", "held", "item_type"})
_PAGING = frozenset({"after", "newest_first", "limit"})


def class_of(job: Job) -> Class:
    return job.status, job.held, job.item_type


def can_answer(query: JobQuery, by: Sequence[str]) -> bool:
    """Whether the counts tell apart all that the question does."""
    asked = {name for name in query.__struct_fields__ if getattr(query, name) not in (None, frozenset())}
    return set(by) <= set(COLUMNS) and asked - _PAGING <= _FILTERS


def answer(counts: Mapping[Class, int], query: JobQuery, by: Sequence[str]) -> dict[tuple[Any, ...], int]:
    """The same as counting the rows one by one; only for what ``can_answer``."""
    places = [COLUMNS.index(name) for name in by]
    found: Counter[tuple[Any, ...]] = Counter()
    for each, number in counts.items():
        status, held, item_type = each
        if (
            number
            and (not query.statuses or status in query.statuses)
            and query.held in (None, held)
            and query.item_type in (None, item_type)
        ):
            found[tuple(each[place] for place in places)] += number
    return dict(found)


def pending(counts: Mapping[Class, int]) -> int:
    return sum(number for (status, _, _), number in counts.items() if status is Status.PENDING)
