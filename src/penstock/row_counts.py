"""Row counts by status, hold reason and item type, kept by the stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from penstock.job import Held, Job, JobQuery, Status
from penstock.named_tuple import NamedTuple

Class: TypeAlias = tuple[Status, Held | None, str]
"""Status, hold reason, item type."""


class RowCounts(NamedTuple):
    """Rows by class; not ``exact``: some of the numbers are estimates."""

    counts: Mapping[Class, int]
    exact: bool = True


COLUMNS = ("status", "held", "item_type")
_FILTERS = frozenset({"statuses", "held", "item_type"})
_PAGING = frozenset({"after", "newest_first", "by_priority", "after_priority", "limit"})


def class_of(job: Job) -> Class:
    return job.status, job.held, job.item_type


def can_answer(query: JobQuery, by: Sequence[str]) -> bool:
    """Tell whether the counts are fine enough for the query."""
    filtered = {name for name in query.__struct_fields__ if getattr(query, name) not in (None, frozenset())}
    return set(by) <= set(COLUMNS) and filtered - _PAGING <= _FILTERS


def answer(counts: Mapping[Class, int], query: JobQuery, by: Sequence[str]) -> dict[tuple[Any, ...], int]:
    """Count rows by the given columns from the classes; only after ``can_answer``."""
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


BOUND = 1_000
"""Number up to which the rows of one class are counted; larger numbers are estimated."""

_WITH_INDEX = frozenset({Status.PENDING, Status.IN_PROGRESS, Status.FAILED})
"""Statuses with an index, counted up to the bound."""


def combined(counted: Mapping[Class, int], sample: Mapping[Class, int], share: float) -> RowCounts:
    """Combine exact counts below the bound with estimates from a sample of one row in ``share``."""
    groups: Counter[tuple[Status, Held | None]] = Counter()
    for (status, held, _), number in counted.items():
        groups[status, held] += number
    full = {group for group, number in groups.items() if number >= BOUND}
    exact = {each: number for each, number in counted.items() if each[:2] not in full}
    guessed = {
        each: round(number * share)
        for each, number in sample.items()
        if each[0] not in _WITH_INDEX or each[:2] in full
    }
    return RowCounts(exact | guessed, exact=False)
