"""Checks of the machine and of files left by dead processes, with remedies and safe repairs."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from penstock import clock, lifecycle
from penstock.catalog.protocol import Catalog
from penstock.config import Settings
from penstock.errors import PenstockError, StoreError
from penstock.handlers.source_files import FETCHED, uploads_directory
from penstock.job import JobQuery
from penstock.named_tuple import NamedTuple
from penstock.queue.protocol import Queue
from penstock.service import keys
from penstock.service.runtime_file import RuntimeFile
from penstock.service.uploads import INCOMING, RESERVED_BYTES
from penstock.state_directory import write_refusal
from penstock.vocabulary import how_many

Verdict: TypeAlias = Literal["ok", "note", "failed", "fixed"]

FEW_BYTES = 1 << 30
"""Free space below which a check is a note. Below ``RESERVED_BYTES`` uploads are refused."""
DRIFT = timedelta(seconds=5)
FORGOTTEN_AFTER = timedelta(hours=1)
"""Age of the last report of a worker that is not listed any more."""
FEW_WATCHES, FEW_INSTANCES = 65_536, 128
INOTIFY = Path("/proc/sys/fs/inotify")
LEFTOVER_AFTER_S = 86_400
PROBED_BYTES = 64 * 1024
"""More than what is left in the last block of a file system that is full."""
PROBE_EVERY_S, PROBE_AGAIN_S = 10.0, 1.0
"""Time for which a probe of the disk counts; the second one after a failed probe."""
SHOWN = 3


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a diagnosis. A ``note`` is a limit that may matter; only ``failed`` prevents work."""

    subject: str
    status: Verdict = "ok"
    detail: str
    remedy: str = ""
    fixable: bool = False
    """Check that ``penstock doctor --fix`` repairs."""


class Finding(NamedTuple):
    """A check with an optional repair. The repair returns a description of the changes."""

    check: Check
    fix: Callable[[], str] | None = None

    def settled(self, *, fix: bool) -> Check:
        """The check; with ``fix``, after the repair."""
        if self.fix is None:
            return self.check
        if not fix:
            remedy = self.check.remedy or "Run `penstock doctor --fix`."
            return msgspec.structs.replace(self.check, fixable=True, remedy=remedy)
        return Check(subject=self.check.subject, status="fixed", detail=self.fix())


def _note(subject: str, detail: str, remedy: str = "", fix: Callable[[], str] | None = None) -> Finding:
    return Finding(Check(subject=subject, status="note", detail=detail, remedy=remedy), fix)


# The machine.


def machine(settings: Settings) -> Iterator[Finding]:
    """Disk space, limits of watchers, and files in the state directory."""
    yield _disk(settings.state_dir)
    yield from _inotify(INOTIFY)
    yield from _private_keys(settings.state_dir)
    yield from _runtime_file(settings.state_dir)
    yield from _leftovers(settings)


def _disk(directory: Path) -> Finding:
    try:
        free = shutil.disk_usage(directory).free
    except OSError as error:
        return _note("disk", f"the free space of {directory} cannot be read ({error.strerror})")
    detail = f"{free / (1 << 30):.1f} GB free in {directory}"
    remedy = "Free some space, or move the state directory to another disk (PENSTOCK_STATE)."
    if free < RESERVED_BYTES:
        return Finding(Check(subject="disk", status="failed", detail=detail, remedy=remedy))
    if free < FEW_BYTES:
        return _note("disk", detail, remedy)
    return Finding(Check(subject="disk", detail=detail))


def _inotify(directory: Path) -> Iterator[Finding]:
    if not sys.platform.startswith("linux"):
        return
    for name, few, what in (
        ("max_user_watches", FEW_WATCHES, "folders"),
        ("max_user_instances", FEW_INSTANCES, "watchers"),
    ):
        try:
            limit = int((directory / name).read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        if limit < few:
            remedy = f"As root: sysctl fs.inotify.{name}={few * 8}"
            yield _note("inotify", f"`penstock watch` can watch {limit:,} {what} of this user", remedy)


def _private_keys(state_dir: Path) -> Iterator[Finding]:
    path, found = state_dir / keys.FILE, keys.Keys(state_dir)
    with suppress(OSError):
        mode = path.stat().st_mode & 0o777
        if mode & 0o077:

            def fix() -> str:
                path.chmod(0o600)
                return f"{path} is for this user only"

            yield _note("keys", f"{path} can be read by others (mode {mode:o})", f"chmod 600 {path}", fix)
    try:
        if found.ever_made() and not found.exist():
            remedy = "Make a key with `penstock keys create NAME`, or put the file back from a backup."
            yield _note("keys", f"there is no key, and every request needs one ({path})", remedy)
    except PenstockError as error:
        yield _note("keys", error.message, error.remedy)


def _runtime_file(state_dir: Path) -> Iterator[Finding]:
    runtime = RuntimeFile(state_dir)
    if runtime.is_stale():

        def fix() -> str:
            runtime.take()
            runtime.release()
            return "the address of the server that has died was removed"

        yield _note("server", "a server of this state directory has died without an end", fix=fix)


def _leftovers(settings: Settings) -> Iterator[Finding]:
    long_ago = clock.now().timestamp() - LEFTOVER_AFTER_S
    found = [
        path for path in (settings.state_dir / "vectors").glob("*/*.young") if path.stat().st_mtime < long_ago
    ]
    if found:

        def fix() -> str:
            for path in found:
                path.unlink(missing_ok=True)
            return f"{how_many(len(found), 'unfinished vector file')} removed"

        yield _note(
            "leftover files", f"{how_many(len(found), 'unfinished vector file')} of dead processes", fix=fix
        )
    for directory in (Path(uploads_directory(settings)), settings.state_dir / FETCHED):
        incoming = directory / INCOMING
        received = sum(1 for path in incoming.glob("*/*") if path.is_file()) if incoming.is_dir() else 0
        if received and RuntimeFile(settings.state_dir).find() is None:
            yield _note(
                "uploads",
                f"{how_many(received, 'file')} of interrupted uploads in {incoming}",
                "Start the server: it finishes or removes them.",
            )


class WriteProbe:
    """Tells whether the state directory, and stores and uploads on this machine, can be written.

    A disk that is full is not seen by reading, and hardly by its free bytes: quotas and read-only mounts have
    them too. So a small file is written and removed, at most every few seconds, however often one asks.
    """

    def __init__(self, settings: Settings) -> None:
        stores = [store for store in (settings.store, settings.catalog_store) if store.is_file]
        files = [store.path if store.engine == "jsonl" else store.path.parent for store in stores]
        self._directories = (settings.state_dir, *files)
        # Created for the first upload.
        self._uploads = uploads_directory(settings)
        self._lock = threading.Lock()
        self._until = 0.0
        self._failure: StoreError | None = None

    def check(self) -> None:
        """Raise what a write would raise."""
        with self._lock:
            if clock.elapsed_s() >= self._until:
                self._failure = self._probe()
                self._until = clock.elapsed_s() + (PROBE_AGAIN_S if self._failure else PROBE_EVERY_S)
            if self._failure is not None:
                raise self._failure

    def _probe(self) -> StoreError | None:
        uploads = [self._uploads] if self._uploads.is_dir() else []
        for directory in dict.fromkeys([*self._directories, *uploads]):
            try:
                _write_and_remove(directory)
            except OSError as error:
                return write_refusal(directory, error)
        return None


def _write_and_remove(directory: Path) -> None:
    descriptor, name = tempfile.mkstemp(prefix=".ready.", dir=directory)
    with os.fdopen(descriptor, "wb") as file:
        os.unlink(name)  # noqa: PTH108 - before anything can fail
        file.write(bytes(PROBED_BYTES))
        file.flush()
        os.fsync(descriptor)


# The queue.


def queue_state(
    queue: Queue, settings: Settings, release_dead: Callable[[], int] | None
) -> Iterator[Finding]:
    """Clocks, warnings of the store, and claims of dead workers.

    ``release_dead`` releases the claims of dead workers of this host; None: there are no dead workers.
    """
    yield from (_note("queue", warning) for warning in queue.check())
    yield from _clocks(queue)
    if release_dead is not None:
        release = release_dead
        yield _note(
            "dead workers",
            "a worker of this host has died; the next one releases its jobs",
            fix=lambda: f"{how_many(release(), 'job or task', 'jobs and tasks')} released",
        )
    yield from _expired(queue)
    yield from _silent_workers(queue, settings)


def _clocks(queue: Queue) -> Iterator[Finding]:
    server, here = queue.now(), clock.now()
    remedy = "Set the clocks of this machine and of the server by NTP."
    if abs(server - here) > DRIFT:
        seconds = abs((server - here).total_seconds())
        which = "ahead of" if server > here else "behind"
        yield _note("clock", f"the server's clock is {seconds:,.0f} s {which} that of this machine", remedy)
    newest = queue.find(JobQuery(newest_first=True, limit=1))
    if newest and newest[0].updated_at > server + DRIFT:
        ahead = (newest[0].updated_at - server).total_seconds()
        yield _note("clock", f"a job was changed {ahead:,.0f} s in the future: a clock was set back", remedy)


def _expired(queue: Queue) -> Iterator[Finding]:
    found = queue.expired(limit=100)
    if not found:
        return

    def fix() -> str:
        released = 0
        while lost := queue.expired(limit=100):
            settled = queue.settle([lifecycle.lease_ended(job) for job in lost])
            released += sum(status is not None for status in settled)
            if not any(settled):
                break
        return f"{how_many(released, 'job')} of workers that stopped renewing their leases released"

    number = f"{len(found)} or more" if len(found) == 100 else str(len(found))
    yield _note("leases", f"{number} jobs are held by workers that stopped renewing their leases", fix=fix)


def _silent_workers(queue: Queue, settings: Settings) -> Iterator[Finding]:
    now = queue.now()
    silent = [
        report
        for report in queue.workers()
        if not report.alive(now, settings.heartbeat_s)
        and (report.seen_at is None or now - report.seen_at > FORGOTTEN_AFTER)
    ]
    if silent:
        names = ", ".join(report.worker_id for report in silent[:SHOWN])
        yield _note(
            "worker reports",
            f"{how_many(len(silent), 'worker')} silent for more than an hour ({names})",
            fix=lambda: f"{how_many(queue.forget_workers(silent), 'report')} removed",
        )


# The catalog.


def catalog_state(catalog: Catalog) -> Iterator[Finding]:
    """Rows without owners, wrong counts, and texts without words or vectors."""
    complaints = catalog.audit()
    if not complaints:
        return

    def fix() -> str:
        repaired = 0
        while changed := catalog.repair():
            repaired += changed
        return f"{how_many(repaired, 'row')} of the catalog repaired"

    more = f" and {len(complaints) - SHOWN} more" if len(complaints) > SHOWN else ""
    yield _note("catalog rows", "; ".join(complaints[:SHOWN]) + more, fix=fix)
