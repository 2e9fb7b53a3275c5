"""Wait for commits to a SQLite file: the directory is watched, and ``data_version`` confirms."""

from __future__ import annotations

import threading

from penstock.database.sqlite_connections import SqliteConnections
from penstock.queue.file_watch import FileWatch


class _SeenDataVersion(threading.local):
    """The last version seen by each thread."""

    version = -1


class SqliteListener:
    """Commits of other connections, for all threads of this process."""

    def __init__(self, connections: SqliteConnections) -> None:
        self._connections = connections
        self._watch = FileWatch(connections.path.parent, self._changed)
        self._seen = _SeenDataVersion()

    def wait(self, timeout: float) -> bool:
        return self._watch.wait(timeout)

    def _changed(self) -> bool:
        """Check whether there was a commit since the last call of this thread."""
        version = self._connections.data_version()
        changed = version != self._seen.version
        self._seen.version = version
        return changed

    def close(self) -> None:
        self._watch.close()
