"""What happened to a source, written by the transaction it happened in. Its own row says when it began."""

from __future__ import annotations

from typing import Literal

from penstock.catalog.sql.statements import Statements

MOST_EVENTS = 50
"""Kept of one source."""


def remember(
    rows: Statements,
    source_key: int,
    what: Literal["updated", "renamed", "removed"],
    at: str,
    *,
    note: str | None = None,
    job_id: str | None = None,
) -> None:
    rows.send("add_event", rows.numbers("row", 1)[0], what, note, job_id, at, source_key)
    if what == "updated":
        rows.send("trim_events", source_key, MOST_EVENTS)
