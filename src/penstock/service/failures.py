"""Failed files at or below a path, for lists by reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import islice

import msgspec

from penstock.catalog.protocol import Catalog, failures_below
from penstock.catalog.rules.publication import CONTENT_CODES
from penstock.catalog.values import LedgerEntry, Place
from penstock.handlers.members import container_of
from penstock.retry import FAILURE_CODES

MOST = 10_000
"""Failures read at most."""


class FailedPath(msgspec.Struct, frozen=True, kw_only=True):
    """A path that failed, since when and why. ``remembered``: it is not read again until it changes."""

    path: str
    code: str
    cause: str
    remedy: str
    since: datetime | None
    job_id: str | None
    remembered: bool
    container: str | None = None
    """The file on the disk that holds this one, for an attachment or a member of an archive."""


def failed_path(entry: LedgerEntry) -> FailedPath:
    return FailedPath(
        path=entry.path,
        code=entry.rule,
        cause=entry.cause,
        remedy=entry.remedy or FAILURE_CODES.get(entry.rule, ""),
        since=entry.at,
        job_id=entry.job_id,
        remembered=entry.rule in CONTENT_CODES,
        container=found.path if (found := container_of(entry.path)) is not None else None,
    )


def failed_paths(catalog: Catalog, place: Place, path: str | None = None) -> list[FailedPath]:
    """Failed paths at or below a path, by path; None: all of the place."""
    return [failed_path(entry) for entry in islice(failures_below(catalog, place, path), MOST)]


def by_reason(failures: Iterable[FailedPath]) -> dict[str, list[FailedPath]]:
    """Group failures by code, the most frequent first."""
    return _groups(failures, lambda failure: failure.code)


def by_remedy(failures: Iterable[FailedPath]) -> dict[str, list[FailedPath]]:
    """Group failures by remedy, the most frequent first."""
    return _groups(failures, lambda failure: failure.remedy)


def _groups(failures: Iterable[FailedPath], key: Callable[[FailedPath], str]) -> dict[str, list[FailedPath]]:
    groups: dict[str, list[FailedPath]] = {}
    for failure in failures:
        groups.setdefault(key(failure), []).append(failure)
    return dict(sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])))
