"""Row counts by status, reason to be held and item type, as a store keeps them while its rows change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from penstock.job import Held, Job, JobQuery, Status

Class: TypeAlias = tuple[Status, Held | None, str]
"""Status, reason to be held, item type."""


class RowCounts(NamedTuple):
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


BOUND = 1_000
"""Rows of one kind that are counted one by one where a store has to estimate more."""

_WITH_INDEX = frozenset({Status.PENDING, Status.IN_PROGRESS, Status.FAILED})
"""Statuses whose rows are counted up to the bound."""


def combined(counted: Mapping[Class, int], sample: Mapping[Class, int], share: float) -> RowCounts:
    """Counts of kinds below the bound; of the others what a sample, one row in ``share``, lets expect."""
    groups: Counter[tuple[Status, Held | None]] = Counter()
    for (status, held, _), number in counted.items():
        groups[status, held] += number
    full = {group for group, number in groups.items() if number >= BOUND}
    exact = {kind: number for kind, number in counted.items() if kind[:2] not in full}
    guessed = {
        kind: round(number * share)
        for kind, number in sample.items()
        if kind[0] not in _WITH_INDEX or kind[:2] in full
    }
    return RowCounts(exact | guessed, exact=False)
