"""Failed files of an index job: the section after the summary, and the same as JSON.

Files that failed in this run and in an earlier one are listed apart. The latter are unchanged, were not
read again, and do not change the exit code.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.cli.exit_codes import REFUSED, UNREADABLE
from penstock.cli.output import emit, printable, wrapped
from penstock.named_tuple import NamedTuple
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.job import Job
    from penstock.service.why import FailedPath

NAMED = 3
"""Paths named for each reason and remedy, and remedies for each reason."""


class JobFailures(NamedTuple):
    """Failures at and below the path of a job: of this job, and of earlier ones."""

    now: list[FailedPath]
    before: list[FailedPath]

    def files(self, job: Job) -> int:
        """Number of files on the disk that failed in this run of a job.

        The job of a mail also fails with an attachment, but the mail itself is indexed.
        """
        from penstock.service.job_views import counts_of

        if job.item_type == "file":
            return sum(one.container is None for one in self.now)
        containers = {one.container for one in self.now if one.container is not None}
        indexed = len(containers - {one.path for one in self.now})
        # Members sent without their container are child jobs themselves.
        others = self.inside() if counts_of(job).get("inside") else indexed
        return max(job.children_failed - others, 0)

    def inside(self) -> int:
        """Number of files inside others that failed now."""
        return sum(one.container is not None for one in self.now)

    def of_former_runs(self, job: Job) -> int:
        """Number of files that failed in a former run of this job: its last walk took them for old ones."""
        from penstock.service.job_views import counts_of

        new = sum(one.remembered and one.since is not None and one.container is None for one in self.now)
        counted_as_old: int = counts_of(job).get("failed_before", 0)
        return min(max(new - self.files(job), 0), counted_as_old)


def counted(job: Job, counts: dict[str, Any], failures: JobFailures) -> list[str]:
    """Failures as parts of the summary's first line, also of files inside others. ``counts``: of the walk."""
    former = failures.of_former_runs(job)
    failed = failures.files(job) + former + failures.inside()
    before = (
        counts.get("failed_before", 0) + sum(one.container is not None for one in failures.before) - former
    )
    parts = [f"{before:,} cannot be read (unchanged)"] if before else []
    return [*parts, *([f"{failed:,} failed"] if failed else [])]


def divided(found: Sequence[FailedPath], job: Job) -> JobFailures:
    """Failures at and below the path of a job: those of this job, and earlier ones."""
    now = [one for one in found if one.since is None or one.since >= job.created_at]
    return JobFailures(now, [one for one in found if one not in now and one.remembered])


def print_section(job: Job, failures: JobFailures) -> None:
    """Print failures by reason, each with its remedy."""
    from penstock.service.job_views import job_path

    root = job_path(job)
    if failures.now:
        emit(f"\n{len(failures.now):,} failed:")
        print_reasons(root, failures.now)
    if failures.before:
        since = max(one.since for one in failures.before if one.since is not None)
        emit(f"\n{len(failures.before):,} cannot be read (unchanged since {since:%Y-%m-%d %H:%M} UTC):")
        print_reasons(root, failures.before)
    if not failures.now and not failures.before:
        return
    named = [*failures.now, *failures.before]
    hints = []
    if any(one.path != root for one in named) and len(named) > NAMED:
        hints.append(f"All of them: penstock why {printable(root)}")
    if any(not one.remembered for one in failures.now):
        hints.append(f"Try again: penstock retry {job.queue_id}")
    if any(one.remembered for one in named):
        hints.append("A changed file is read by the next index; --retry-failed reads unchanged ones again.")
    emit("\n" + "\n".join(map(wrapped, hints)))


def print_reasons(root: str, failures: Sequence[FailedPath]) -> None:
    """Print failures by reason, with paths relative to ``root``; below ``/`` they stay absolute."""
    from penstock.service.why import by_reason, by_remedy

    for code, some in by_reason(failures).items():
        remedies = by_remedy(some)
        if len(remedies) == 1:
            _print_line(f"{code}, {how_many(len(some), 'file')}: {some[0].remedy}", 2)
            _print_named(root, some, 4)
            continue
        _print_line(f"{code}, {how_many(len(some), 'file')}:", 2)
        shown = list(remedies.items())[:NAMED]
        for remedy, same in shown:
            _print_line(f"{how_many(len(same), 'file')}: {remedy}", 4)
            _print_named(root, same, 6)
        left = len(some) - sum(len(same) for _, same in shown)
        if left:
            others = how_many(len(remedies) - len(shown), "other remedy", "other remedies")
            _print_line(f"and {how_many(left, 'file')} with {others}", 4)


def _print_named(root: str, failures: Sequence[FailedPath], indent: int) -> None:
    """Print the first failures, and how many more there are."""
    for one in failures[:NAMED]:
        _print_line(f"{_name(one.path, root)}: {one.cause}", indent)
    if len(failures) > NAMED:
        _print_line(f"and {len(failures) - NAMED:,} more", indent)


def _name(path: str, root: str) -> str:
    if root == "/":
        return path
    return os.path.relpath(path, root if path != root else os.path.dirname(root))  # noqa: PTH120 - text


def _print_line(text: str, indent: int) -> None:
    emit(wrapped(printable(text), " " * indent))


def as_json(failures: JobFailures) -> dict[str, Any]:
    return {
        "failures": [_as_json(one) for one in failures.now],
        "failed_before": [_as_json(one) for one in failures.before],
    }


def _as_json(failure: FailedPath) -> dict[str, Any]:
    return {
        "path": failure.path,
        "code": failure.code,
        "message": failure.cause,
        "remedy": failure.remedy,
        "since": failure.since,
    }


def exit_code(job: Job, failures: JobFailures) -> int:
    """Exit code of a job that failed. One for a single file may only repeat an earlier failure."""
    repeated = job.item_type == "file" and bool(failures.before) and not failures.now
    return UNREADABLE if repeated else REFUSED
