"""Backups as jobs of schedules: a job writes one backup into a directory of the worker's host."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta

from penstock.errors import InvalidRequest
from penstock.handlers.context import Context, ProgressReport
from penstock.payloads import normal_path
from penstock.retry import Backoff
from penstock.vocabulary import how_many

BACKUP_BACKOFF = Backoff((60, 300, 900), cap=3_600)
"""Seconds between attempts: a full disk, or a store that is away, is not repaired within seconds."""
BACKUP_TIMEOUT_S = 86_400
MOST_KEPT = 100_000
_RESULT_FIELDS = ("path", "id", "created_at", "size", "jobs", "documents")


class WriteBackup(Protocol):
    """Writes a backup of the stores to a file, or into a directory, and returns a report."""

    def __call__(
        self, destination: Path, *, keep: int | None, on_progress: Callable[[str, int, float], None]
    ) -> Any: ...


class BackupRequest(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Payload of a backup. ``keep``: backups to keep in the directory, the new one included; None: all."""

    directory: str
    keep: Annotated[int, Meta(ge=1, le=MOST_KEPT)] | None = None


def backup_request(directory: str, keep: int | None) -> BackupRequest:
    """Check the directory and the number of backups to keep."""
    if not directory.startswith("/"):
        raise InvalidRequest(f"directory: expected an absolute path, got {directory[:200]!r}")
    return _request({"directory": normal_path(directory), "keep": keep})


def _request(payload: Mapping[str, Any]) -> BackupRequest:
    try:
        return msgspec.convert(payload, BackupRequest)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"backup: {error}") from None


def run_backup(write: WriteBackup, context: Context, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Write the backup of a job. The result has the path, size and contents of the file."""
    request = _request(payload)
    directory = Path(request.directory)
    if not os.path.isdir(directory):  # noqa: PTH112 - it never raises
        raise InvalidRequest(
            f"{directory} is not a directory on this host",
            remedy="Create or mount it for the user of the workers, then retry the job.",
        )
    written, last = 0, ("", 0)

    def report(part: str, rows: int, _share: float) -> None:
        nonlocal written, last
        # Rows are counted from the start of each part.
        written += rows - (last[1] if last[0] == part else 0)
        last = part, rows
        context.report(ProgressReport(written, None, f"{part}: {how_many(rows, 'row')}"))

    made = write(directory, keep=request.keep, on_progress=report)
    found: dict[str, Any] = {name: getattr(made, name) for name in _RESULT_FIELDS}
    return found | {"removed": list(made.removed)}
