"""Schemas as numbered migration scripts, and the names which these create."""

from __future__ import annotations

import re

from penstock.errors import RestoreUnfinished, SchemaMismatch
from penstock.lazy_pattern import lazy_pattern
from penstock.named_tuple import NamedTuple

RESTORING = 2_000_000_000
"""Number in the table of applied scripts while a store is restored: no version opens such a store."""

_CREATE = lazy_pattern(
    r"^CREATE (?:UNIQUE |VIRTUAL |OR REPLACE )?"
    r"(TABLE|VIEW|INDEX|TYPE|SEQUENCE|FUNCTION|TRIGGER|TEXT SEARCH DICTIONARY|TEXT SEARCH CONFIGURATION)"
    r" (?:IF NOT EXISTS )?(\w+)",
    re.MULTILINE,
)
_DROP = lazy_pattern(r"^DROP \w+ (?:IF EXISTS )?(\w+)", re.MULTILINE)


class Schema(NamedTuple):
    """Numbered scripts, oldest first, and the table of applied scripts.

    ``probe``: a statement of PostgreSQL that fails on foreign tables of the same names. ``restoring``: the
    program restores the store, and opens one whose restore was not finished.
    """

    ledger: str
    scripts: list[tuple[int, str]]
    probe: str = ""
    restoring: bool = False

    @property
    def newest(self) -> int:
        return self.scripts[-1][0]

    def after(self, applied: int) -> list[tuple[int, str]]:
        return [(number, script) for number, script in self.scripts if number > applied]

    def created_names(self, applied: int = 0) -> list[str]:
        """List names in order of creation by the scripts after ``applied``.

        Left out are triggers, which are unique only per table, and dropped objects.
        """
        names: dict[str, None] = {}
        for _, script in self.after(applied):
            for name in _DROP.findall(script):
                names.pop(name, None)
            names |= {name: None for kind, name in _CREATE.findall(script) if kind != "TRIGGER"}
        return list(names)

    def tables(self) -> list[str]:
        """List the tables in order of creation: referenced tables come first."""
        found: dict[str, None] = {}
        for _, script in self.scripts:
            for name in _DROP.findall(script):
                found.pop(name, None)
            found |= {name: None for kind, name in _CREATE.findall(script) if kind == "TABLE"}
        return list(found)

    @property
    def applied_statement(self) -> str:
        """Statement to read the number of the last applied script."""
        finished = f" WHERE number < {RESTORING}" if self.restoring else ""
        return f"SELECT coalesce(max(number), 0) FROM {self.ledger}{finished}"

    def refuse_newer(self, store: object, applied: int) -> None:
        """Raise ``SchemaMismatch`` for a store that a later version has migrated."""
        if applied == RESTORING:
            raise RestoreUnfinished(f"{store} was being restored, and the restore did not finish")
        if applied > self.newest:
            raise SchemaMismatch(f"{store} has schema {applied}, this version knows up to {self.newest}")

    def refuse_older(self, store: object, applied: int, *, remedy: str) -> None:
        """Raise ``SchemaMismatch`` for a store that this version has not migrated yet."""
        if applied < self.newest:
            raise SchemaMismatch(
                f"{store} has schema {applied}, this version needs {self.newest}", remedy=remedy
            )

    def lacks(self, store: object, name: str, *, remedy: str) -> SchemaMismatch:
        """The error for a store without an object of the schema."""
        return SchemaMismatch(
            f"{store} lacks {name}, which is in schema {self.newest}: applied in part, or changed",
            remedy=remedy,
        )
