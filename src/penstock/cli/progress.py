"""Jobs as the command line shows them: their words and JSON shapes, and the live line on a terminal."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Unpack

from penstock import vocabulary
from penstock.cli import output
from penstock.cli.output import printable
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from datetime import datetime

    from penstock.catalog.protocol import Catalog
    from penstock.cli.session import Session
    from penstock.queue.job import Job, WorkerReport
    from penstock.service.job_views import JobReport, JobView
    from penstock.service.jobs import JobFilter
    from penstock.service.requests import Receipt, Stats


_TARGETS = (
    "file_path folder_path project_root document_id new_path library_name function_name tenant_id_to_delete "
    "content"
).split()

_HANDLERS_VIEW = frozenset(["current", "total", "percent", "message", "current_file"])
"""Keys of the stored progress that the report replaces."""
_JSON_COLUMNS = ("payload_json", "progress_json", "result_json", "history_json", "followup_json", "metadata")


def spoken(status: str) -> str:
    """The command line's word for a status."""
    return vocabulary.speak(status, "cli")


def status_and_held(job: Job) -> str:
    word = spoken(job.status)
    if job.held is not None:
        return f"{word} ({job.held})"
    if job.status == "in_progress" and job.item_type in ("folder", "project"):
        from penstock.service.job_views import report_of

        report = report_of(job)
        if report is not None and report.stage == "indexing":
            return f"{word} ({report.percent_complete:g} %)"
    return f"{word} (waiting)" if job.waiting else word


def target(job: Job) -> str:
    """The path, function or text a job works on, in one line."""
    payload = job.shown_payload
    found = next((str(payload[field]) for field in _TARGETS if payload.get(field)), "")
    return " ".join(found.split()) if len(found) <= 200 else " ".join(found[:200].split()) + "…"


def job_as_json(job: Job, report: JobReport | None, now: datetime) -> dict[str, Any]:
    """All columns of a job: JSON texts decoded, the status in the command line's word, with a report."""
    from penstock.queue.job import decoded_column
    from penstock.queue.transitions import dependencies_of
    from penstock.service.job_views import result_of

    columns = {name: getattr(job, name) for name in job.__struct_fields__}
    for name in _JSON_COLUMNS:
        text = columns.pop(name)
        if name == "payload_json":
            columns["payload"] = job.shown_payload
        else:
            columns[name.removesuffix("_json")] = decoded_column(job.queue_id, name, text) if text else None
    del columns["after_json"]
    waits = dependencies_of(job)
    columns |= {"after": list(waits.after), "on_dependency_failure": waits.on_failure}
    if report is not None:
        columns |= {
            "progress": _progress_as_json(columns["progress"] or {}, report),
            "result": result_of(job, report),
            "total_chunks": report.chunks_created,
        }
    times = {
        "running_time_ms": _milliseconds(job.started_at, None if job.ended else now),
        "execution_time_ms": _milliseconds(job.started_at, job.finished_at),
    }
    return {"job_id": columns.pop("queue_id")} | columns | {"status": spoken(job.status)} | times


def _progress_as_json(stored: dict[str, Any], report: JobReport) -> dict[str, Any]:
    """The report, with what else the worker stored in the progress."""
    rest = {name: value for name, value in stored.items() if name not in _HANDLERS_VIEW}
    reported = {name: getattr(report, name) for name in report.__struct_fields__}
    return reported | {"percent_complete": report.percent_complete} | rest


def _milliseconds(start: datetime | None, end: datetime | None) -> int | None:
    return None if start is None or end is None else round((end - start).total_seconds() * 1000)


def progress_text(report: JobReport, root: str | None) -> str | None:
    """Progress in one line, as ``800 of 2,169 files (36.9 %), 5,120 chunks, 2 failed; now deep/gate.txt``."""
    if report.stage == "waiting":
        return None
    if report.stage == "walking":
        parts = [f"walking: {how_many(report.files_total, 'file')} found"]
    elif report.files_processed is None:
        parts = [f"ended early with {how_many(report.files_total, 'file')} found"]
    else:
        share = f" ({report.percent_complete:g} %)" if report.files_total else ""
        parts = [f"{report.files_processed:,} of {how_many(report.files_total, 'file')}{share}"]
    if report.chunks_created:
        parts.append(how_many(report.chunks_created, "chunk"))
    parts += failed_text(report)
    current = report.current_file
    if current is not None and root is not None:
        current = current.removeprefix(root.rstrip("/") + "/")
    return ", ".join(parts) + (f"; now {current}" if current else "")


def failed_text(report: JobReport) -> list[str]:
    """Failed files as ``9 failed (1 inside another file)``; nothing if none failed."""
    failed, inside = report.failed + report.failed_inside, report.failed_inside
    where = f" ({inside:,} inside {'another file' if inside == 1 else 'other files'})" if inside else ""
    return [f"{failed:,} failed{where}"] if failed else []


def view_as_json(view: JobView) -> dict[str, Any]:
    details = view.details
    return job_as_json(details.job, view.report, view.now) | {
        "reason": details.reason,
        "remedy": details.remedy,
        "queue_position": details.queue_position,
        "queue_length": details.queue_length,
        "history": details.history,
    }


def receipt_as_json(receipt: Receipt) -> dict[str, Any]:
    return {name: getattr(receipt, name) for name in receipt.__struct_fields__} | {
        "status": spoken(receipt.status)
    }


def stats_as_json(stats: Stats) -> dict[str, Any]:
    def renamed(counts: dict[str, int]) -> dict[str, int]:
        return {spoken(status): number for status, number in counts.items()}

    return {name: getattr(stats, name) for name in stats.__struct_fields__} | {
        "by_status": renamed(stats.by_status),
        "by_item_type": {name: renamed(counts) for name, counts in stats.by_item_type.items()},
        "workers": [_worker_as_json(worker) for worker in stats.workers],
    }


def _worker_as_json(worker: WorkerReport) -> dict[str, Any]:
    columns = {name: getattr(worker, name) for name in worker.__struct_fields__ if name != "info_json"}
    return columns | {"info": worker.info}


MOST_DOCUMENTS = 50
"""Documents whose pages are counted at a time."""


class _PageCount(NamedTuple):
    """Pages read or failed, and all pages, of the documents that were waited for so far."""

    done: int
    total: int

    def __str__(self) -> str:
        return f"{self.done:,} of {how_many(self.total, 'page')}"


class PageProgress:
    """Counts pages of the long documents and scans that jobs wait for.

    The catalog is opened at the first document: most jobs wait for none.
    """

    def __init__(self, open_catalog: Callable[[], Catalog]) -> None:
        self._open = open_catalog
        self._catalog: Catalog | None = None
        self._totals: dict[int, int] = {}
        """Pages of the documents seen: those that have ended stay in the count, which never goes back."""

    def of(self, jobs: Iterable[Job]) -> _PageCount | None:
        """Count the pages of the documents waited for, now and before; None if these jobs wait for none."""
        waited = [job.waiting_for for job in jobs if job.waiting and job.waiting_for is not None]
        ids = [int(text) for text in waited if text.isdecimal()][:MOST_DOCUMENTS]
        if not ids:
            return None
        if self._catalog is None:
            self._catalog = self._open()
        with self._catalog.snapshot() as snapshot:
            found = {each: progress for each in ids if (progress := snapshot.progress(each)) is not None}
        self._totals |= {each: progress.total_pages for each, progress in found.items()}
        done = sum(each.ocr_completed_pages + each.ocr_failed_pages for each in found.values())
        ended = sum(total for each, total in self._totals.items() if each not in found)
        return _PageCount(done + ended, sum(self._totals.values()))

    def close(self) -> None:
        if self._catalog is not None:
            self._catalog.close()


LOOK_S = 0.2
_SAMPLE_S = 2.0
_SAMPLED = 500
"""Pending files whose sizes are read to estimate the work left."""
_LEAST_SHARE = 0.005
"""Share of the work that must be done before an estimate of the time left."""
_WIDE_LINE = 100
"""Terminal width from which the line has a full bar, a verb and the path as given."""
_BAR_WIDTH, _SHORT_BAR, _SHORT_TITLE = 24, 8, 14
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
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
    pages: _PageCount | None = None
    """Pages of the documents in work that are read by tasks."""


class _JobReader(Protocol):
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
        jobs: _JobReader,
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
        self._pages: _PageCount | None = None

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
                status=["pending", "running"], parent_id=job.queue_id, newest_first=True, limit=_SAMPLED
            )
            if job.children_open
            else []
        )
        if self._page_progress is not None:
            self._pages = self._page_progress.of([job, *open_ones])
        sizes = [child.shown_payload.get("size_bytes") or 0 for child in open_ones]
        self._mean_size = sum(sizes) / len(sizes) if sizes else 0.0
        self._sample_at = self._clock() + _SAMPLE_S

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
    width = output.Screen.of(sys.stderr).width or output.WITHOUT_TERMINAL
    wide = width >= _WIDE_LINE
    title, bar = printable(full_title), _BAR_WIDTH if wide else _SHORT_BAR
    title = shortened(title, width // 3) if wide else title.rpartition("/")[2][-_SHORT_TITLE:]
    utf8 = (sys.stderr.encoding or "").lower().startswith("utf")
    spinner = itertools.cycle(_SPINNER if utf8 else "|/-\\")
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
            _write(output.cut(line, width - 1) + "\r")
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
    if elapsed > 1 and gained > _LEAST_SHARE and seen.share < 1:
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
