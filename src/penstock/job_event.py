"""Events in the history of a job."""

from __future__ import annotations

from datetime import datetime

import msgspec


class JobEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event in the bounded history of a job, such as a retry or a release."""

    at: datetime
    what: str
    note: str | None = None
    worker_id: str | None = None
