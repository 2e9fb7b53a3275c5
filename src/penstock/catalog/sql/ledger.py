"""Records beside the documents: unindexed paths, tokens, fingerprints, imported rows and projects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from penstock.catalog.parts import ImportedRow, ProjectRoot
from penstock.catalog.sql.statements import RowType, Statements, listed, readable
from penstock.catalog.values import LedgerEntry, Phase, Place, TokenUse, Touch
from penstock.clock import format_time
from penstock.errors import FingerprintMismatch

if TYPE_CHECKING:
    from penstock.catalog.sql.catalog import SqlCatalog


class LedgerRow(msgspec.Struct, frozen=True):
    place: Place
    path: str
    kind: str
    rule: str
    cause: str
    remedy: str
    job_id: str | None
    at: str


_LEDGER_ROW = RowType(LedgerRow)


def note(rows: Statements, entries: Sequence[LedgerEntry], at: str) -> None:
    rows.many("note", [_LEDGER_ROW.encode(_ledger_row(entry, at)) for entry in entries])


def _ledger_row(entry: LedgerEntry, at: str) -> LedgerRow:
    return LedgerRow(
        place=entry.place,
        path=entry.path,
        kind=entry.kind,
        rule=entry.rule,
        cause=readable(entry.cause),
        remedy=entry.remedy,
        job_id=entry.job_id,
        at=at if entry.at is None else format_time(entry.at),
    )


def touch(rows: Statements, touches: Sequence[Touch]) -> list[bool]:
    rows.many(
        "touch",
        [
            (
                one.size,
                one.mtime_ns,
                one.source_id,
                None if one.asked_at is None else format_time(one.asked_at),
            )
            for one in touches
            if not one.failed
        ],
    )
    for one in touches:
        if one.failed:
            rows.send("touch_failed", one.size, one.mtime_ns, one.source_id)
    live = {source_id for (source_id,) in rows.all("live_sources", listed(one.source_id for one in touches))}
    return [one.source_id in live for one in touches]


def expect(rows: Statements, arrivals: Sequence[tuple[Place, str, str]], at: str) -> None:
    rows.many(
        "expect",
        [
            (place.tenant_id, place.collection, place.branch, path, read_from, at)
            for place, path, read_from in arrivals
        ],
    )


def add_tokens(rows: Statements, uses: Sequence[TokenUse]) -> None:
    values = [(use.tenant_id, use.service, use.month, use.job_id, use.tokens) for use in uses]
    rows.many("add_tokens", values)


def set_fingerprints(rows: Statements, fingerprints: Mapping[Phase, str], *, replace: bool) -> None:
    rows.hold("fingerprints")
    known: dict[str, str] = dict(rows.all("fingerprints"))
    for phase, fingerprint in fingerprints.items():
        if known.get(phase, fingerprint) != fingerprint and not replace:
            raise FingerprintMismatch(f"{phase} is done with {known[phase]} here, not with {fingerprint}")
        rows.send("set_fingerprint", phase, fingerprint)


class CatalogImports:
    """Rows imported from other queues."""

    def __init__(self, catalog: SqlCatalog) -> None:
        self._catalog = catalog

    def imported(self, kind: str, source: str, name: str, row_ids: Sequence[str]) -> dict[str, ImportedRow]:
        with self._catalog.snapshot() as snapshot:
            found = snapshot.rows.all("imported", kind, source, name, listed(row_ids))
        return {row_id: ImportedRow(name, row_id, outcome, job_id) for row_id, outcome, job_id in found}

    def record_imports(self, kind: str, source: str, rows: Sequence[ImportedRow]) -> None:
        if rows:
            self._catalog.write(
                lambda sent: sent.many(
                    "record_import", [(kind, source, *msgspec.structs.astuple(row)) for row in rows]
                )
            )


class CatalogProjects:
    """Top folders of projects."""

    def __init__(self, catalog: SqlCatalog) -> None:
        self._catalog = catalog

    def all(self) -> list[ProjectRoot]:
        with self._catalog.snapshot() as snapshot:
            return [ProjectRoot(*row) for row in snapshot.rows.all("project_roots")]

    def at(self, roots: Sequence[str]) -> list[ProjectRoot]:
        with self._catalog.snapshot() as snapshot:
            return [ProjectRoot(*row) for row in snapshot.rows.all("project_roots_at", listed(roots))]

    def record(self, project: ProjectRoot) -> ProjectRoot:
        def work(rows: Statements) -> ProjectRoot:
            rows.send("add_project_root", *msgspec.structs.astuple(project))
            return ProjectRoot(*rows.all("project_roots_at", listed([project.root]))[0])

        return self._catalog.write(work)

    def move(self, old: str, new: str) -> bool:
        def work(rows: Statements) -> bool:
            rows.send("delete_project_root", new)
            return rows.run("move_project_root", new, old) > 0

        return self._catalog.write(work)
