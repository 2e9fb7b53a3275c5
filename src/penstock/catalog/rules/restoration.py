"""Rows of a restored catalog: running tasks are released, outside stores are filled again. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from penstock.catalog.rules.phases import PHASES, PhaseRule, Unit

CLAIM_STEP = 1_000
"""Added to claim numbers of open tasks, so that no claim made after the backup fits one made here."""
_SETTLED = ("completed", "skipped")

Values: TypeAlias = list[Any]
Change: TypeAlias = Callable[[Values], None]


class RestoredRows:
    """Changes the rows of one table as they are restored."""

    def __init__(self, table: str, columns: Sequence[str]) -> None:
        place = {name: number for number, name in enumerate(columns)}
        self._changes = _CHANGES[table](place) if table in _CHANGES else []

    def apply(self, rows: Sequence[Sequence[Any]]) -> list[Values]:
        """The rows as they are inserted."""
        changed = [list(row) for row in rows]
        for change in self._changes:
            for row in changed:
                change(row)
        return changed


def _of_tasks(unit: Unit) -> Callable[[dict[str, int]], list[Change]]:
    def changes(place: dict[str, int]) -> list[Change]:
        own = [_released(place, rule) for rule in PHASES.values() if rule.unit is unit]
        above = [_counted(place, rule, f"{rule.phase}_status") for rule in PHASES.values()]
        return [*own, *(above if unit is Unit.PAGE else [])]

    return changes


def _released(place: dict[str, int], rule: PhaseRule) -> Change:
    """A task held by a worker becomes pending; the number of retries stays."""
    status, number = place[f"{rule.phase}_status"], place[f"{rule.phase}_claim_number"]
    emptied = [
        place[f"{rule.phase}_{name}"] for name in ("worker_id", "started_at", "last_heartbeat", "retry_at")
    ]

    def change(row: Values) -> None:
        if row[status] in _SETTLED:
            return
        row[number] += CLAIM_STEP
        if row[status] == "processing":
            row[status] = "pending"
            for column in emptied:
                row[column] = None

    return change


def _counted(place: dict[str, int], rule: PhaseRule, status_name: str) -> Change:
    """The counters of a page or document; parts in progress count as pending."""
    if f"{rule.phase}_processing" not in place:
        return lambda _: None
    status = place[status_name]
    processing, waiting = place[f"{rule.phase}_processing"], place[f"{rule.phase}_waiting"]

    def change(row: Values) -> None:
        if row[processing]:
            row[waiting] += row[processing]
            row[processing] = 0
        if row[status] == "processing":
            row[status] = "pending"

    return change


def _of_documents(place: dict[str, int]) -> list[Change]:
    def forget_worker(row: Values) -> None:
        row[place["current_worker_id"]] = row[place["last_heartbeat"]] = None

    return [*(_counted(place, rule, rule.document_status) for rule in PHASES.values()), forget_worker]


def _of_outside_stores(place: dict[str, int]) -> list[Change]:
    def refill(row: Values) -> None:
        row[place["filled"]] = row[place["copied_to"]] = row[place["copied"]] = 0
        row[place["fill_number"]] += 1
        row[place["fill_until"]] = None

    return [refill]


_CHANGES: dict[str, Callable[[dict[str, int]], list[Change]]] = {
    "documents": _of_documents,
    "task_queue_page": _of_tasks(Unit.PAGE),
    "task_queue_chunk": _of_tasks(Unit.CHUNK),
    "catalog_outside_store": _of_outside_stores,
}
