"""The watcher: events of the file system become jobs for what has changed."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from penstock import clock
from penstock.errors import InvalidText, PathNotFound, QueueFull, StoreError
from penstock.queue.payloads import Source
from penstock.service.access import PathPolicy
from penstock.service.documents import Documents
from penstock.service.folders import ChangePlan, is_in_repository
from penstock.service.jobs import Jobs
from penstock.service.paths import real_path

if TYPE_CHECKING:
    from penstock.assembly import Assembly
    from penstock.config import Settings


QUIET_S = 0.5
"""A path without events for this long counts as written."""
LONGEST_S = 30.0
"""A path with events all the time, such as a log, counts as written after this long."""
MOST_PATHS = 10_000
"""More paths are not kept: everything is compared instead."""


class PendingChanges:
    """Changed paths with the times of their first and last event.

    ``overflow``: more came than are kept, so that only a comparison of everything finds all.
    """

    def __init__(self) -> None:
        self._times: dict[str, tuple[float, float]] = {}
        self.overflow = False

    def __bool__(self) -> bool:
        return self.overflow or bool(self._times)

    def add(self, paths: Iterable[str], now: float) -> None:
        for path in paths:
            first, _ = self._times.get(path, (now, now))
            self._times[path] = (first, now)
        if len(self._times) > MOST_PATHS:
            self._times.clear()
            self.overflow = True

    def clear(self) -> None:
        """Forget all paths: everything is compared, which includes them. Later writes have events again."""
        self._times.clear()
        self.overflow = False

    def take(self, now: float) -> list[str]:
        """Take the paths that are written. The two halves of a move come at once and are taken together."""
        written = [
            path
            for path, (first, last) in self._times.items()
            if now - last >= QUIET_S or now - first >= LONGEST_S
        ]
        for path in written:
            del self._times[path]
        return written


_TICK_MS = 250
"""Time between two looks at paths that are being written."""
_STEP_MS = 100
"""Time without an event after which events are handed over."""
POLL_MS = 5_000
"""Time between two looks at all files, where the system cannot tell of changes."""
_RESCAN_S = 3_600.0
"""Time between two comparisons of all files."""
_RETRY_S = 5.0
"""Time to the next try after a full queue, or while the store or the folder is missing."""

_UNWATCHED = ("/.git/", "/.hg/", "/.svn/", "/.jj/", "/.penstock/")

log = logging.getLogger("penstock.watch")


class _WatchedRoot:
    """One root with its pending changes."""

    def __init__(self, plan: ChangePlan, jobs: Jobs, state_dir: str) -> None:
        self.plan = plan
        self._jobs = jobs
        self._state_dir = state_dir
        self._head = plan.head_state()
        self._pending = PendingChanges()
        self._scan = True
        self._scanned_at = clock.elapsed_s()
        self._retry_at = 0.0

    def changed(self, paths: Sequence[str]) -> None:
        """Keep the changed paths below this root until they are written."""
        now = clock.elapsed_s()
        self._pending.add([path for path in paths if self._is_watched(path)], now)

    def _is_watched(self, path: str) -> bool:
        # Commits and Penstock's own writes would keep the watcher busy.
        return (
            _is_below(path, self.plan.root)
            and not _is_below(path, self._state_dir)
            and not any(part in f"{path}/" for part in _UNWATCHED)
        )

    def flush(self, rescan_s: float) -> int:
        """Submit jobs for what is written; returns their number."""
        now = clock.elapsed_s()
        self._scan = self._scan or self._pending.overflow or now - self._scanned_at >= rescan_s
        if now < self._retry_at or self.plan.is_changing():
            return 0
        written = self._pending.take(now)
        try:
            # Another branch is one set of changes: the whole folder is compared with that branch's documents.
            self._scan = self._branch_switched() or self._scan
            if not written and not self._scan:
                return 0
            submissions = [self.plan.whole()] if self._scan else self.plan.submissions(written)
            for submission in submissions:
                self._jobs.submit(exact=True, **submission)
        except (QueueFull, StoreError, InvalidText, PathNotFound) as error:
            # Nothing is lost: once the queue, the store or the folder is there, everything is compared.
            log.warning("%s: %s; the folder is compared as a whole later", self.plan.root, error.message)
            self._scan, self._retry_at = True, now + _RETRY_S
            return 0
        if self._scan:
            self._scan, self._scanned_at = False, now
            self._pending.clear()
        return len(submissions)

    def _branch_switched(self) -> bool:
        head = self.plan.head_state()
        if head == self._head:
            return False
        switched = self.plan.switched()
        self._head = head
        return switched


class WatcherThread:
    """The watcher of a server: a thread with separate stores. Jobs wait for a worker of the queue.

    ``paths`` are checked before the thread starts.
    """

    def __init__(self, make: Callable[[], Assembly], settings: Settings, paths: Sequence[str]) -> None:
        """``make`` gives the stores."""
        policy = PathPolicy.of(settings)
        self._make = make
        self._paths = _outermost([policy.allowed(path) for path in paths])
        self._stop = Event()
        self._thread = Thread(target=self._run, name="watcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop the watcher, if it runs, and wait for its end."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            with closing(self._make()) as assembly:
                assembly.watch(
                    self._paths,
                    with_worker=False,
                    stop=self._stop,
                    rescan_s=_RESCAN_S,
                    report=log.warning,
                    project=None,
                )
        except Exception:
            log.exception("the watcher ended; changes of %s are not followed", ", ".join(self._paths))


def run_watcher(
    assembly: Assembly,
    paths: Sequence[str],
    *,
    stop: Event,
    rescan_s: float,
    submitted: Callable[[], object],
    report: Callable[[str], None],
    started: Callable[[], None] = lambda: None,
    **options: Any,
) -> None:
    """Index folders, then follow their changes until ``stop`` is set.

    ``options`` are those of ``Documents.index``. ``submitted`` is called after jobs were added. ``report``
    gives a person advice. ``started`` is called once no path is refused.
    """
    state_dir = os.path.realpath(assembly.settings.state_dir)
    roots = [_root(assembly, path, state_dir, options) for path in _outermost(paths)]
    started()
    _watch(roots, stop, rescan_s=rescan_s, submitted=submitted, report=report)


def _root(assembly: Assembly, path: str, state_dir: str, options: dict[str, Any]) -> _WatchedRoot:
    # A door decides the priority: 7 for changes of the active project, 5 for others.
    door: Source = "active_project" if is_in_repository(path) else "watcher"
    jobs = Jobs(assembly.queue, assembly.settings, door=door)
    plan = ChangePlan(Documents(assembly.catalog, jobs, assembly.settings), path, assembly.settings, options)
    return _WatchedRoot(plan, jobs, state_dir)


def _outermost(paths: Sequence[str]) -> list[str]:
    """Real paths of the folders, without folders inside others."""
    for path in paths:
        if not os.path.isdir(path):  # noqa: PTH112 - it never raises
            raise PathNotFound(f"{path} is not a folder", remedy="Watch the folder that has the file.")
    real = sorted({real_path(path) for path in paths})
    return [path for path in real if not any(_is_below(path, other) for other in real)]


def _watch(
    roots: Sequence[_WatchedRoot],
    stop: Event,
    *,
    rescan_s: float,
    submitted: Callable[[], object],
    report: Callable[[str], None],
) -> None:
    for changes in _events([root.plan.root for root in roots], stop, report):
        for root in roots:
            root.changed(changes)
        # Every root, also after the first that added jobs.
        if sum([root.flush(rescan_s) for root in roots]):
            submitted()


def _events(paths: Sequence[str], stop: Event, report: Callable[[str], None]) -> Iterator[list[str]]:
    """Changed paths of one tick after the other; an empty list when nothing changed."""
    try:
        yield from _notified(paths, stop, polling=False)
    except (OSError, RuntimeError) as error:
        limit = _reached_limit(error)
        if limit is None:
            raise
        report(
            f"The system watches no more folders ({limit.partition('=')[0]}), so files are compared every "
            f"{POLL_MS // 1000} s. To see changes at once, raise the limit: sysctl {limit}"
        )
        yield from _notified(paths, stop, polling=True)


def _notified(paths: Sequence[str], stop: Event, *, polling: bool) -> Iterator[list[str]]:
    import watchfiles

    found = watchfiles.watch(
        *paths,
        watch_filter=None,
        debounce=4 * _TICK_MS,
        step=_STEP_MS,
        rust_timeout=_TICK_MS,
        yield_on_timeout=True,
        stop_event=stop,
        raise_interrupt=False,
        force_polling=polling,
        poll_delay_ms=POLL_MS,
        ignore_permission_denied=True,
    )
    for changes in found:
        yield [path for _, path in changes]


def _reached_limit(error: OSError | RuntimeError) -> str | None:
    """Return the limit of the system behind an error, with a higher value; None for other errors."""
    number = getattr(error, "errno", None)
    # The library has no number for a refused inotify instance, and raises a RuntimeError.
    if number == errno.EMFILE or "Too many open files" in str(error):
        return "fs.inotify.max_user_instances=1024"
    if number == errno.ENOSPC or "watch limit" in str(error):
        return "fs.inotify.max_user_watches=1048576"
    return None


def _is_below(path: str, root: str) -> bool:
    return path.startswith(root.rstrip("/") + "/")
