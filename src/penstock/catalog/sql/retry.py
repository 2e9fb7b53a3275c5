"""Retry of failed tasks and of the tasks skipped behind them."""

from __future__ import annotations

from penstock.catalog.rules.initial_state import unread_page
from penstock.catalog.rules.phases import CHUNK_PHASES, FOLLOWERS, LATER_PHASES, gate_failed
from penstock.catalog.rules.rollup import FAILED, SKIPPED, WAITING, WORDS, kind
from penstock.catalog.sql.rollup import Rollup
from penstock.catalog.sql.statements import Statements
from penstock.catalog.sql.written_records import RESTARTED_PAGE, RestartedPage, RestartedPhase
from penstock.catalog.values import Phase


def restart(rows: Statements, document_id: int, at: str) -> int:
    rollup = Rollup(rows, at)
    rollup.load([document_id])
    document = rollup.documents.get(document_id)
    if document is None or document.state == "dropped":
        return 0
    restarted = _pages(rows, rollup, document_id, at)
    for phase in CHUNK_PHASES:
        restarted += _chunks(rows, rollup, document_id, phase, at)
    if restarted:
        rows.notify()
        rollup.touch(document_id)
        document.failed_count = document.outage_count = 0
        rollup.apply()
    return restarted


def _pages(rows: Statements, rollup: Rollup, document_id: int, at: str) -> int:
    standing = unread_page(rollup.documents[document_id].wanted)
    found = rows.all("failed_pages", document_id)
    for _, waits, *statuses in found:
        rollup.page_moved(Phase.OCR, document_id, WAITING if waits else FAILED, WAITING)
        for phase, status in zip(CHUNK_PHASES, statuses, strict=True):
            rollup.page_moved(phase, document_id, kind(status), standing.kind(phase))
    phases = {
        phase: RestartedPhase(WORDS[standing.kind(phase)], standing.error(phase)) for phase in CHUNK_PHASES
    }
    restarted = [RESTARTED_PAGE.encode(RestartedPage(phases, at, page_id)) for page_id, *_ in found]
    rows.many("restart_page", restarted)
    return len(found)


def _chunks(rows: Statements, rollup: Rollup, document_id: int, phase: Phase, at: str) -> int:
    found = rows.all(f"failed_chunks_{phase}", document_id)
    behind: dict[Phase, list[tuple[str, int]]] = {follower: [] for follower in FOLLOWERS[phase]}
    for chunk_id, page_id, waits, *later in found:
        rollup.chunk_moved(phase, page_id, WAITING if waits else FAILED, WAITING)
        why_skipped = dict(zip(LATER_PHASES, later, strict=True))
        for follower, unskipped in behind.items():
            if why_skipped[follower] == gate_failed(phase):
                unskipped.append((at, chunk_id))
                rollup.chunk_moved(follower, page_id, SKIPPED, WAITING)
    rows.many(f"restart_chunk_{phase}", [(at, number) for number, *_ in found])
    for follower, unskipped in behind.items():
        rows.many(f"unskip_{follower}", unskipped)
    return len(found)
