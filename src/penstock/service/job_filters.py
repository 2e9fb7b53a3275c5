"""Filters for jobs, checked and brought into the form of the queue."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypedDict

from penstock import items, vocabulary
from penstock.errors import InvalidRequest, UnknownItemType, UnknownOperation, UnknownStatus
from penstock.job import Held, Job, JobQuery, Status
from penstock.service.options import refuse_unknown

MAX_PAGE = 1000
_UNKNOWN = {"held": InvalidRequest, "item_type": UnknownItemType, "op": UnknownOperation}


class JobFilter(TypedDict, total=False):
    """Filters for jobs; all given fields must match. ``status`` takes any door's word, or several."""

    status: str | Collection[str] | None
    item_type: str | None
    op: str | None
    tenant_id: str | None
    collection: str | None
    branch: str | None
    held: str | None
    parent_id: str | None
    error: str | None
    reason: str | None
    q: str | None
    top_level: bool | None
    after: str | None
    newest_first: bool
    by_priority: bool
    limit: int


def job_query(filters: JobFilter) -> JobQuery:
    """Check filters, and bring them into the form of the queue."""
    refuse_unknown("jobs", filters, JobFilter)
    limit = filters.get("limit", 50)
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_PAGE:
        raise InvalidRequest(f"limit: expected a whole number from 1 to {MAX_PAGE}, got {str(limit)[:80]!r}")
    held = _one_of(tuple(Held), "held", filters.get("held"))
    return JobQuery(
        statuses=statuses_of(filters.get("status")),
        item_type=_one_of(items.ITEM_TYPES, "item_type", filters.get("item_type")),
        op=_one_of(items.OPERATIONS, "op", filters.get("op")),
        tenant_id=_name("tenant_id", filters.get("tenant_id")),
        collection=_name("collection", filters.get("collection")),
        branch=_name("branch", filters.get("branch")),
        held=Held(held) if held else None,
        parent_id=_name("job_id", filters.get("parent_id")),
        error_code=filters.get("error"),
        error_reason=filters.get("reason"),
        text=filters.get("q"),
        top_level=filters.get("top_level"),
        **_position(filters),
        limit=limit,
    )


def _position(filters: JobFilter) -> dict[str, Any]:
    """Order of the jobs, and the place after which a page begins: an id, in order of priority `5.ID`."""
    after, by_priority = filters.get("after"), filters.get("by_priority", False)
    found: dict[str, Any] = {"newest_first": filters.get("newest_first", True), "by_priority": by_priority}
    if after is not None and by_priority:
        priority, _, after = after.partition(".")
        if not priority.isdecimal() or len(priority) > 2 or not after:
            raise InvalidRequest("cursor: not one of a list in order of priority", remedy="Use next.")
        found["after_priority"] = int(priority)
    return found | {"after": _name("job_id", after)}


def cursor_after(job: Job, *, by_priority: bool) -> str:
    """The place of a job in a list, for ``after``."""
    return f"{job.priority}.{job.queue_id}" if by_priority else job.queue_id


def statuses_of(words: str | Collection[str] | None) -> frozenset[Status]:
    """The statuses for these words, as used by any interface."""
    if words is None:
        return frozenset()
    return frozenset(_status(word) for word in ([words] if isinstance(words, str) else words))


def _status(word: str) -> Status:
    canonical = vocabulary.understand(word)
    if canonical not in set(Status):
        raise UnknownStatus(f"{word!r} is a status of tasks, not of jobs")
    return Status(canonical)


def _one_of(known: tuple[str, ...], field: str, word: str | None) -> str | None:
    # A filter that can match nothing is a typing mistake, not an empty result.
    if word is not None and word not in known:
        raise _UNKNOWN[field](f"{field}: expected one of {', '.join(known)}, got {str(word)[:80]!a}")
    return word


def _name(field: items.NameKind, value: str | None) -> str | None:
    return None if value is None else items.validate_name(field, value)
