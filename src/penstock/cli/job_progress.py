"""Progress of one job: a live line with counts and time left, on a terminal only."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from penstock.cli import text_grid
from penstock.cli.output import printable
from penstock.cli.page_progress import PageCount, PageProgress
from penstock.named_tuple import NamedTuple
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.cli.session import Session
    from penstock.job import Job
    from penstock.service.jobs import JobFilter

LOOK_S = 0.2
SAMPLE_S = 2.0
SAMPLED = 500
"""Pending files whose sizes are read to estimate the work left."""
LEAST_SHARE = 0.005
"""Share of the work that must be done before an estimate of the time left."""
WIDE_LINE = 100
"""Terminal width from which the line has a full bar, a verb and the path as given."""
BAR_WIDTH, SHORT_BAR, SHORT_TITLE = 24, 8, 14
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
BAR = "━─"
"""Signs of the part done and of the rest."""


class JobSample(NamedTuple):
    """Progress of a job at one moment."""

    at: float
    """Seconds of a monotonic clock."""
    ended: bool
    walking: bool
    files: int
    done: int
    share: float | None
    """Share of the work done, by size where sizes are known; None while the total is unknown."""
    failed: int = 0
    message: str = ""
    chunks: int = 0
    pages: PageCount | None = None
    """Pages of the documents in work that are read by tasks."""


class JobReader(Protocol):
    """Jobs of the queue, or of a server."""

    def job(self, id_or_prefix: str, /) -> Job: ...

    def jobs(self, **filters: Unpack[JobFilter]) -> list[Job]: ...


class JobProgress:
    """Samples a job. ``jobs`` needs a separate connection, because the display runs in another thread.

    A job that was requested again has another run after the current one: what the run before did stays
    counted, and the share never falls.
    """

    def __init__(
        self,
        jobs: JobReader,
        job_id: str,
        clock: Callable[[], float] = time.monotonic,
        *,
        here: bool = False,
        page_progress: PageProgress | None = None,
    ) -> None:
        """``here``: this command runs the job, so that no worker is waited for."""
        self._jobs = jobs
        self._job_id = job_id
        self._clock = clock
        self._before_start = "starting" if here else "waiting for a worker"
        self._run = 0
        self._last: tuple[int, int, int] = (0, 0, 0)
        """Files, failures and chunks of the current run, as last seen."""
        self._before: tuple[int, int, int] = (0, 0, 0)
        """The same of the runs before."""
        self._share: float | None = None
        self._mean_size = 0.0
        self._sample_at = 0.0
        self._page_progress = page_progress
        self._pages: PageCount | None = None

    def sample(self) -> JobSample:
        from penstock.service.job_views import counts_of

        job = self._jobs.job(self._job_id)
        walking = not job.ended and not job.waiting
        self._follow_run(job)
        counts = counts_of(job)
        self._last = (counts.get("sent", 0), job.children_failed, job.total_chunks)
        files, failed, chunks = (now + before for now, before in zip(self._last, self._before, strict=True))
        if not walking and self._clock() > self._sample_at:
            self._look_below(job)
            if not files and self._pages is not None and self._pages.total:
                self._share = self._pages.done / self._pages.total
        if not walking and files:
            left = self._bytes_left(job, counts)
            share = (files - job.children_open) / files if left is None else 1 - left
            self._share = max(share, self._share or 0.0)
        return JobSample(
            at=self._clock(),
            ended=job.ended,
            walking=walking,
            files=files,
            done=max(files - job.children_open, 0),
            failed=failed,
            share=self._share,
            message=str(self._pages) if self._pages is not None and not files else self._message(job, counts),
            pages=self._pages,
            # The last children of the run before may have ended between two samples.
            chunks=max(chunks, job.total_chunks + counts.get("resumed_chunks", 0)),
        )

    def close(self) -> None:
        """Close what was opened; in the thread that took the samples."""
        if self._page_progress is not None:
            self._page_progress.close()

    def _follow_run(self, job: Job) -> None:
        if self._run and job.run != self._run:
            self._before = tuple(  # type: ignore[assignment]
                now + before for now, before in zip(self._last, self._before, strict=True)
            )
        self._run = job.run

    def _bytes_left(self, job: Job, counts: dict[str, Any]) -> float | None:
        """Share of the bytes left of this run; None without sizes, or with files of a run before."""
        total = counts.get("bytes", 0)
        if not total or self._before[0]:
            return None
        return float(min(self._mean_size * job.children_open / total, 1.0))

    def _look_below(self, job: Job) -> None:
        """Estimate the mean size of pending files from the last ones: large files may come last."""
        open_ones = (
            self._jobs.jobs(
                status=["pending", "running"], parent_id=job.queue_id, newest_first=True, limit=SAMPLED
            )
            if job.children_open
            else []
        )
        if self._page_progress is not None:
            self._pages = self._page_progress.of([job, *open_ones])
        sizes = [child.shown_payload.get("size_bytes") or 0 for child in open_ones]
        self._mean_size = sum(sizes) / len(sizes) if sizes else 0.0
        self._sample_at = self._clock() + SAMPLE_S

    def _message(self, job: Job, counts: dict[str, Any]) -> str:
        if job.waiting or job.ended:
            return ""
        if self._before[0]:
            return "checking for changes"
        if counts:
            seen = how_many(counts.get("seen", 0), "file")
            return f"walking: {seen}, {counts.get('skipped', 0):,} left out"
        return self._before_start if job.status == "pending" else "reading"


class Pace:
    """The sample to measure rate and time left from: the first after some progress.

    Not earlier: files that another command did, and the start of the worker, say nothing about the rate.
    """

    def __init__(self) -> None:
        self._first: JobSample | None = None
        self.since: JobSample | None = None

    def follow(self, seen: JobSample) -> None:
        if seen.share is None or self.since is not None:
            return
        self._first = self._first or seen
        if seen.done > self._first.done:
            self.since = seen


@contextmanager
def shown_live(session: Session, job_id: str, title: str, *, here: bool) -> Iterator[None]:
    """Show a live line about a job on standard error while the block runs.

    Only on a terminal, and not if the session is quiet. ``here``: the block runs the job itself.
    """
    if session.quiet or not sys.stderr.isatty():
        yield
        return
    if session.client is not None:
        follower = JobProgress(session.client, job_id)
    else:
        pages = PageProgress(session.assembly.open_catalog)
        follower = JobProgress(session.assembly.further_jobs(), job_id, here=here, page_progress=pages)
    over = threading.Event()
    thread = threading.Thread(target=_show, args=(follower, title, over.wait), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=2)


def _show(follower: JobProgress, full_title: str, over: Callable[[float], bool]) -> None:
    width = text_grid.Screen.of(sys.stderr).width or text_grid.WITHOUT_TERMINAL
    wide = width >= WIDE_LINE
    title, bar = printable(full_title), BAR_WIDTH if wide else SHORT_BAR
    title = shortened(title, width // 3) if wide else title.rpartition("/")[2][-SHORT_TITLE:]
    utf8 = (sys.stderr.encoding or "").lower().startswith("utf")
    spinner = itertools.cycle(SPINNER if utf8 else "|/-\\")
    # The other columns with a space after each, and the elapsed time.
    room = width - len(title) - bar - len("⠋ ") - len(" 0:00:00") - 2
    began, pace = time.monotonic(), Pace()
    try:
        while True:
            seen = follower.sample()
            pace.follow(seen)
            drawn = drawn_bar(seen.share, bar, BAR if utf8 else "#-")
            text, elapsed = line_text(seen, pace.since, room), _clock(time.monotonic() - began)
            line = " ".join(filter(None, (next(spinner), title, drawn, text, elapsed)))
            # The cursor goes back to the start, so that a message of the log replaces the line.
            _write(text_grid.cut(line, width - 1) + "\r")
            if seen.ended or over(LOOK_S):
                return
    finally:
        follower.close()
        _write("")


def _write(line: str) -> None:
    """Replace the current line of the terminal."""
    sys.stderr.write(f"\x1b[2K{line}")
    sys.stderr.flush()


def drawn_bar(share: float | None, width: int, signs: str = BAR) -> str:
    """A bar of the share done; only its ground while the share is unknown."""
    done = int(width * (share or 0.0))
    return signs[0] * done + signs[1] * (width - done)


def shortened(title: str, room: int) -> str:
    """The title without the beginning of its path, where it takes too much of the line."""
    verb, _, path = title.partition(" ")
    return title if len(title) <= room or not path else f"{verb} …{path[-max(room - len(verb) - 2, 8) :]}"


def line_text(seen: JobSample, first: JobSample | None, room: int) -> str:
    """Counts, rate and time left, the most important that fit. ``first``: the sample to measure from."""
    if seen.message or seen.share is None:
        return seen.message[:room]
    parts = [f"{seen.done:,} of {how_many(seen.files, 'file')}"]
    if len(parts[0]) > room - len(", 0:00 left"):
        parts = [f"{seen.done:,} of {seen.files:,}"]
    first = first or seen
    elapsed, done = seen.at - first.at, seen.done - first.done
    gained = seen.share - (first.share or 0.0)
    if elapsed > 1 and gained > LEAST_SHARE and seen.share < 1:
        parts.append(f"{_clock(elapsed * (1 - seen.share) / gained)} left")
    if seen.pages is not None:
        parts.append(str(seen.pages))
    if seen.failed:
        parts.append(f"{seen.failed:,} failed")
    if seen.chunks:
        parts.append(how_many(seen.chunks, "chunk"))
    if elapsed > 1 and done > 0:
        rate = done / elapsed
        parts.append(f"{rate:,.0f} files/s" if rate >= 10 else f"{rate:.1f} files/s")
    while len(parts) > 1 and len(", ".join(parts)) > room:
        parts.pop()
    return ", ".join(parts)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
