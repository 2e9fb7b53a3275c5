"""Failed tasks begin again, and with them what was skipped behind them. Never more than what failed."""

from __future__ import annotations

from penstock.catalog.rules.initial_state import GATE_VECTOR, unread_page
from penstock.catalog.rules.rollup import FAILED, SKIPPED, WAITING, WORDS, kind
from penstock.catalog.sql.rollup import Rollup
from penstock.catalog.sql.statements import Statements
from penstock.catalog.values import Phase


def restart(rows: Statements, document_id: int, at: str) -> int:
    bubbling = Rollup(rows, at)
    bubbling.load([document_id])
    document = bubbling.documents.get(document_id)
    if document is None or document.state == "dropped":
        return 0
    restarted = _pages(rows, bubbling, document_id, at)
    for phase in (Phase.VECTOR, Phase.GRAPHRAG):
        restarted += _chunks(rows, bubbling, document_id, phase, at)
    if restarted:
        rows.tell()
        bubbling.touch(document_id)
        document.failed_count = document.outage_count = 0
        bubbling.apply()
    return restarted


def _pages(rows: Statements, bubbling: Rollup, document_id: int, at: str) -> int:
    standing = unread_page(bubbling.documents[document_id].wanted)
    found = rows.all("failed_pages", document_id)
    for page_id, waits, vector, graphrag in found:
        bubbling.page_moved(Phase.OCR, document_id, WAITING if waits else FAILED, WAITING)
        bubbling.page_moved(Phase.VECTOR, document_id, kind(vector), standing.vector)
        bubbling.page_moved(Phase.GRAPHRAG, document_id, kind(graphrag), standing.graphrag)
        rows.send(
            "restart_page",
            WORDS[standing.vector],
            standing.vector_error,
            WORDS[standing.graphrag],
            standing.graphrag_error,
            at,
            page_id,
        )
    return len(found)


def _chunks(rows: Statements, bubbling: Rollup, document_id: int, phase: Phase, at: str) -> int:
    found = rows.all(f"failed_chunks_{phase}", document_id)
    behind = []
    for chunk_id, page_id, waits, graphrag, reason in found:
        bubbling.chunk_moved(phase, page_id, WAITING if waits else FAILED, WAITING)
        if phase is Phase.VECTOR and graphrag == "skipped" and reason == GATE_VECTOR:
            behind.append((at, chunk_id))
            bubbling.chunk_moved(Phase.GRAPHRAG, page_id, SKIPPED, WAITING)
    rows.many(f"restart_chunk_{phase}", [(at, number) for number, *_ in found])
    rows.many("unskip_graphrag", behind)
    return len(found)
