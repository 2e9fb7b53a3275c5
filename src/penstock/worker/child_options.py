"""Options of one child process of a worker."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from penstock.catalog.values import Phase


class ChildOptions(msgspec.Struct, frozen=True):
    """Options of one child process, passed at the start."""

    worker_id: str
    state_path: str
    parent_pid: int
    lease: timedelta
    lease_by_type: dict[str, timedelta]
    poll_s: float
    recycle_after: int | None = None
    recycle_growth_mb: int | None = None
    takes_jobs: bool = True
    lanes: tuple[Phase, ...] = ()
    recognizes: bool = True
    """This process may recognize text in pictures; see the setting ``ocr_workers``."""
