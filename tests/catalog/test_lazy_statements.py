"""Statements and record classes are prepared at their first use."""

from __future__ import annotations

import msgspec

from penstock.catalog.sql import statements
from penstock.catalog.sql.statements import RowType


class Row(msgspec.Struct):
    number: int
    name: str


def test_a_statement_is_expanded_when_it_is_used():
    loaded = statements.load.__wrapped__("sqlite")
    assert isinstance(loaded, statements.Expanded)
    expanded: list[str] = []
    loaded._statements = _Recording(expanded)

    first = loaded["next_numbers"]

    assert ["next_numbers"] == expanded
    assert first == loaded["next_numbers"]
    assert len(loaded) > 100
    assert ["next_numbers"] == expanded


def test_every_statement_can_be_expanded():
    for dialect in ("sqlite", "postgres"):
        loaded = statements.load(dialect)
        assert [] == [name for name in loaded if "{filtered}" in loaded[name]]
        assert set(loaded) == set(dict(loaded))


def test_columns_of_a_record_are_derived_when_they_are_used():
    kept = RowType(Row)

    assert "columns" not in vars(kept)
    assert ("number", "name") == kept.columns
    assert Row(1, "mill") == kept.decode((1, "mill"))
    assert not hasattr(kept, "unknown")


class _Recording(dict[str, str]):
    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self._names = names

    def __setitem__(self, name: str, statement: str) -> None:
        self._names.append(name)
        super().__setitem__(name, statement)
