"""The outage of a store, as a worker of this host sees it: a file beside the directory of the workers.

A worker that cannot write to its store cannot report there either. Its log has every detail; the file is for
``penstock queue stats`` and for the status of a server, which may still be able to read the store.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from penstock.state_directory import workers_directory
from penstock.store_url import StoreUrl

STORE = "the store"
"""Name of the store among the services in a worker's report; its state is the code of the error."""
TOLD_EVERY_S = 60.0
"""Time between two lines in the log, and two writes of the file, while an outage lasts."""
_FORGOTTEN_AFTER = timedelta(seconds=3 * TOLD_EVERY_S)
"""Age at which the file counts no more: its worker was killed."""


class StoreOutage(msgspec.Struct, frozen=True, kw_only=True):
    """An outage of the store that a worker waits for."""

    code: str
    message: str
    remedy: str
    since: datetime
    pid: int
    """Process of the worker."""

    @property
    def text(self) -> str:
        return (
            f"a worker of this host (process {self.pid}) waits for the store: {self.message}. {self.remedy}"
        )


def _file(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.outage")


def write_outage(directory: Path, outage: StoreOutage) -> None:
    """Write the outage beside the directory of the workers."""
    draft = _file(directory).with_suffix(f".outage-{outage.pid}")
    try:
        draft.touch(mode=0o600)
        draft.write_bytes(msgspec.json.encode(outage))
        draft.replace(_file(directory))
    except OSError:  # the disk may be the reason of the outage
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def clear_outage(directory: Path) -> None:
    """Remove what ``write_outage`` wrote."""
    with suppress(OSError):
        _file(directory).unlink(missing_ok=True)


def read_outage(state_dir: Path, store: StoreUrl, now: datetime) -> StoreOutage | None:
    """The outage that a worker of this host waits for now; None if there is none."""
    path = _file(workers_directory(state_dir, store))
    try:
        written_at = path.stat().st_mtime
        outage = msgspec.json.decode(path.read_bytes(), type=StoreOutage)
    except (OSError, msgspec.DecodeError):
        return None
    age = timedelta(seconds=now.timestamp() - written_at)
    return outage if age < _FORGOTTEN_AFTER else None
