"""Schemas as numbered migration scripts, and the names which these create."""

from __future__ import annotations

import re
from typing import NamedTuple

from penstock.errors import SchemaMismatch

_CREATE = re.compile(
    r"^CREATE (?:UNIQUE |VIRTUAL |OR REPLACE )?"
    r"(TABLE|VIEW|INDEX|TYPE|SEQUENCE|FUNCTION|TRIGGER|TEXT SEARCH DICTIONARY|TEXT SEARCH CONFIGURATION)"
    r" (?:IF NOT EXISTS )?(\w+)",
    re.MULTILINE,
)
_DROP = re.compile(r"^DROP \w+ (?:IF EXISTS )?(\w+)", re.MULTILINE)


class Schema(NamedTuple):
    """Numbered scripts, oldest first, and the table of applied scripts.

    ``probe``: a statement of PostgreSQL that fails on foreign tables of the same names.
    """

    ledger: str
    scripts: list[tuple[int, str]]
    probe: str = ""

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

    def refuse_newer(self, store: object, applied: int) -> None:
        """Raise ``SchemaMismatch`` for a store that a later version has migrated."""
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
