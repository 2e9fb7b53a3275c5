"""Progress of one job: a live line with counts and time left, on a terminal only."""

from __future__ import annotations

import dataclasses
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.cli.output import printable
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.assembly import Assembly
    from penstock.job import Job
    from penstock.service.documents import Documents
    from penstock.service.jobs import Jobs

LOOK_S = 0.2
SAMPLE_S = 2.0
COUNT_S = 0.5
SAMPLED = 500
"""Pending files whose sizes are read to estimate the work left."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobSample:
    """Progress of a job at one moment."""

    ended: bool
    walking: bool
    files: int
    done: int
    failed: int
    bytes_total: int
    bytes_left: int
    message: str = ""
    pages: int = 0
    chunks: int = 0

    @property
    def share(self) -> float | None:
        """Share of the work done, by size where sizes are known; None while the total is unknown."""
        if self.walking or not self.files:
            return None
        if self.bytes_total:
            return max(0.0, 1 - self.bytes_left / self.bytes_total)
        return self.done / self.files


class JobProgress:
    """Samples a job. ``jobs`` needs a separate connection, because the display runs in another thread."""

    def __init__(self, jobs: Jobs, job_id: str, documents: Documents) -> None:
        self._jobs = jobs
        self._job_id = job_id
        self._documents = documents
        self._before: tuple[int, int] | None = None
        self._made = (0, 0)
        self._count_at = 0.0
        self._mean_size = 0.0
        self._sample_at = 0.0

    def sample(self) -> JobSample:
        job = self._jobs.job(self._job_id)
        counts = (job.progress or {}).get("counts", {})
        files = sum(counts.get(name, 0) for name in ("changed", "added", "vanished"))
        walking = not job.ended and not job.waiting
        if not walking and job.children_open and time.monotonic() > self._sample_at:
            self._estimate_sizes(job)
        if time.monotonic() > self._count_at:
            self._count(job.tenant_id)
        return JobSample(
            pages=self._made[0],
            chunks=self._made[1],
            ended=job.ended,
            walking=walking,
            files=files,
            done=max(files - job.children_open, 0),
            failed=job.children_failed,
            bytes_total=counts.get("bytes", 0),
            bytes_left=int(self._mean_size * job.children_open),
            message=_message(job, counts),
        )

    def _count(self, tenant_id: str) -> None:
        """Count pages and chunks published since the first sample. Rarely: counting reads every source."""
        began = time.monotonic()
        held = self._documents.overview(tenant_id).tenants
        now = (sum(each.pages for each in held), sum(each.chunks for each in held))
        self._before = self._before or now
        self._made = (now[0] - self._before[0], now[1] - self._before[1])
        took = time.monotonic() - began
        self._count_at = time.monotonic() + max(COUNT_S, took * 50)

    def _estimate_sizes(self, job: Job) -> None:
        """Estimate the mean size of pending files from the last ones: large files may come last."""
        open_ones = self._jobs.jobs(
            status=["pending", "running"], parent_id=job.queue_id, newest_first=True, limit=SAMPLED
        )
        sizes = [child.payload.get("size_bytes", 0) for child in open_ones]
        self._mean_size = sum(sizes) / len(sizes) if sizes else 0.0
        self._sample_at = time.monotonic() + SAMPLE_S


def _message(job: Job, counts: dict[str, Any]) -> str:
    if job.waiting or job.ended:
        return ""
    if counts:
        seen = how_many(counts.get("seen", 0), "file")
        return f"walking: {seen} seen, {counts.get('skipped', 0):,} skipped"
    return "waiting for a worker" if job.status == "pending" else "reading"


@contextmanager
def shown_live(assembly: Assembly, job_id: str, title: str) -> Iterator[None]:
    """Show a live line about a job on standard error while the block runs; only on a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    follower = JobProgress(assembly.further_jobs(), job_id, assembly.documents)
    over = threading.Event()
    thread = threading.Thread(target=_show, args=(follower, title, over.wait), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=2)


def _show(follower: JobProgress, title: str, over: Callable[[float], bool]) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[text]}", markup=False),
        TimeElapsedColumn(),
    )
    began: float | None = None
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        line = display.add_task(printable(title), total=None, text="")
        while True:
            seen = follower.sample()
            if seen.share is not None and began is None:
                began = time.monotonic()
            display.update(
                line,
                total=None if seen.share is None else 1.0,
                completed=seen.share or 0.0,
                text=_line_text(seen, began),
            )
            if seen.ended or over(LOOK_S):
                return


def _line_text(seen: JobSample, began: float | None) -> str:
    if seen.share is None or began is None:
        return seen.message
    parts = [f"{seen.done:,} of {how_many(seen.files, 'file')}"]
    if seen.pages > 0 and seen.pages > seen.done:
        parts.append(how_many(seen.pages, "page"))
    if seen.chunks > 0:
        parts.append(how_many(seen.chunks, "chunk"))
    elapsed = time.monotonic() - began
    if elapsed > 1 and seen.done:
        parts.append(f"{seen.done / elapsed:,.0f} files/s")
    if elapsed > 1 and 0.01 < seen.share < 1:
        parts.append(f"{_clock(elapsed * (1 - seen.share) / seen.share)} left")
    if seen.failed:
        parts.append(f"{seen.failed:,} failed")
    return ", ".join(parts)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
