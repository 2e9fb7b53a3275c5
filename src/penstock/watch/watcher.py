"""The loop over events of the file system: changed paths become jobs."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from penstock import clock
from penstock.errors import PathNotFound, QueueFull, StoreError
from penstock.service.change_plan import ChangePlan, git_dir_of
from penstock.service.documents import Documents
from penstock.service.jobs import Jobs
from penstock.watch.pending_changes import PendingChanges

if TYPE_CHECKING:
    from penstock.assembly import Assembly

TICK_MS = 250
"""Time between two looks at paths that are being written."""
POLL_MS = 5_000
"""Time between two looks at all files, where the system cannot tell of changes."""
RETRY_S = 5.0
"""Time to the next try after a full queue, or while the store or the folder is missing."""
LOCK_S = 60.0
"""Time to wait for the end of a git command, by its lock file."""

UNWATCHED = ("/.git/", "/.hg/", "/.svn/", "/.jj/", "/.penstock/")

log = logging.getLogger("penstock.watch")


class WatchedRoot:
    """One root with its pending changes. ``git_dir``: where git keeps its lock; None outside a repository."""

    def __init__(self, plan: ChangePlan, jobs: Jobs, git_dir: str | None, state_dir: str) -> None:
        self.plan = plan
        self._jobs = jobs
        self._state_dir = state_dir
        self._git_lock = None if git_dir is None else f"{git_dir}/index.lock"
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
            and not any(part in f"{path}/" for part in UNWATCHED)
        )

    def flush(self, rescan_s: float) -> int:
        """Submit jobs for what is written; returns their number."""
        now = clock.elapsed_s()
        self._scan = self._scan or self._pending.overflow or now - self._scanned_at >= rescan_s
        if now < self._retry_at or self._is_switching():
            return 0
        written = self._pending.take(now)
        try:
            submissions = [self.plan.whole()] if self._scan else self.plan.submissions(written)
            for submission in submissions:
                self._jobs.submit(**submission)
        except (QueueFull, StoreError, PathNotFound) as error:
            # Nothing is lost: once the queue, the store or the folder is there, everything is compared.
            log.warning("%s: %s; the folder is compared as a whole later", self.plan.root, error.message)
            self._scan, self._retry_at = True, now + RETRY_S
            return 0
        if self._scan:
            self._scan, self._pending.overflow, self._scanned_at = False, False, now
        return len(submissions)

    def _is_switching(self) -> bool:
        """Check whether git is changing many files; all of them then become one set of changes."""
        if self._git_lock is None:
            return False
        try:
            age = clock.now().timestamp() - Path(self._git_lock).stat().st_mtime
        except OSError:
            return False
        return age < LOCK_S


def run_watcher(
    assembly: Assembly,
    paths: Sequence[str],
    *,
    stop: Event,
    rescan_s: float,
    submitted: Callable[[], object],
    report: Callable[[str], None],
    **options: Any,
) -> None:
    """Index folders, then follow their changes until ``stop`` is set.

    ``options`` are those of ``Documents.index``. ``submitted`` is called after jobs were added. ``report``
    gives a person advice.
    """
    state_dir = os.path.realpath(assembly.settings.state_dir)
    roots = [_root(assembly, path, state_dir, options) for path in _outermost(paths)]
    _watch(roots, stop, rescan_s=rescan_s, submitted=submitted, report=report)


def _root(assembly: Assembly, path: str, state_dir: str, options: dict[str, Any]) -> WatchedRoot:
    git_dir = git_dir_of(path)
    jobs = Jobs(assembly.queue, assembly.settings, door="watcher" if git_dir is None else "active_project")
    plan = ChangePlan(Documents(assembly.catalog, jobs, assembly.settings), path, assembly.settings, options)
    return WatchedRoot(plan, jobs, git_dir, state_dir)


def _outermost(paths: Sequence[str]) -> list[str]:
    """Real paths of the folders, without those that lie in another one."""
    for path in paths:
        if not Path(path).is_dir():
            raise PathNotFound(f"{path} is not a folder", remedy="Watch the folder that has the file.")
    real = sorted({os.path.realpath(path) for path in paths})
    return [path for path in real if not any(_is_below(path, other) for other in real)]


def _watch(
    roots: Sequence[WatchedRoot],
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
    except OSError as error:
        if not _is_limit(error):
            raise
        report(
            "The system watches no more folders (fs.inotify.max_user_watches), so files are compared every "
            f"{POLL_MS // 1000} s. To see changes at once, raise the limit: "
            "sysctl fs.inotify.max_user_watches=1048576"
        )
        yield from _notified(paths, stop, polling=True)


def _notified(paths: Sequence[str], stop: Event, *, polling: bool) -> Iterator[list[str]]:
    import watchfiles

    found = watchfiles.watch(
        *paths,
        watch_filter=None,
        debounce=4 * TICK_MS,
        step=50,
        rust_timeout=TICK_MS,
        yield_on_timeout=True,
        stop_event=stop,
        raise_interrupt=False,
        force_polling=polling,
        poll_delay_ms=POLL_MS,
        ignore_permission_denied=True,
    )
    for changes in found:
        yield [path for _, path in changes]


def _is_limit(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EMFILE) or "watch limit" in str(error)


def _is_below(path: str, root: str) -> bool:
    return path.startswith(root.rstrip("/") + "/")
