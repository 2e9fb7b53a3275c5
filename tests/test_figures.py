"""Tests of ``scripts/figures.py``: each rule finds the code that breaks it."""

from __future__ import annotations

import ast

import pytest

from scripts import figures


def module(name: str, text: str = "") -> figures.Module:
    return figures.Module(name, text, ast.parse(text))


def test_a_module_named_with_ing_is_found():
    assert ["penstock.queue.adding"] == figures.gerunds(
        [module("penstock.queue.adding"), module("penstock.queue.addition")]
    )


def test_a_public_class_name_that_stands_twice_is_found():
    modules = [
        module("a", "class Rows: ...\nclass _Own: ..."),
        module("b", "class Rows: ...\nclass _Own: ..."),
    ]

    assert ["Rows: a, b"] == figures.homonyms(modules)


@pytest.mark.parametrize(
    ("late", "expected"),
    [
        ("import penstock.a", ["penstock.a <-> penstock.b"]),
        ("def run():\n    from penstock import a", ["penstock.a <-> penstock.b"]),
        ("if TYPE_CHECKING:\n    from penstock import a", []),
        ("import json", []),
    ],
)
def test_an_import_cycle_is_found(late: str, expected: list[str]):
    modules = [
        module("penstock"),
        module("penstock.a", "from penstock.b import f"),
        module("penstock.b", late),
    ]

    assert expected == figures.cycles(figures.imports(modules))


def test_a_numbered_row_access_in_the_catalog_is_found():
    text = "def name(row):\n    return row[17]"

    assert ["penstock.catalog.sql.sources:2"] == figures.numbered_rows(
        [module("penstock.catalog.sql.sources", text), module("penstock.queue.rows", text)]
    )


def test_a_first_line_that_leans_on_its_neighbours_is_found():
    lines = [
        line
        for _, line in figures.first_lines([module("a", '"""What it is."""'), module("b", '"""A row."""')])
    ]

    assert [True, False] == [figures.LEANING.search(line) is not None for line in lines]
