"""Tests of ``scripts/figures.py``: each figure counts what its name says."""

from __future__ import annotations

import ast

import pytest

from scripts import figures


def module(name: str, text: str = "") -> figures.Module:
    return figures.Module(name, text, ast.parse(text))


def test_names_that_cross_a_module_are_counted_with_their_users():
    modules = [
        module("p"),
        module("p.a", "def f(): ...\ndef g(): ..."),
        module("p.b", "from p.a import f\nf()"),
        module("p.c", "from p import a as first\nfirst.f()\nfirst.g()"),
        module("p.d", "import json\nfrom p.e import other\nlocal = json.loads"),
    ]

    assert {("p.b", "p.a", "f"), ("p.c", "p.a", "f"), ("p.c", "p.a", "g")} == figures.crossings(modules)


def test_lines_of_code_are_counted_without_documentation():
    text = '"""A module."""\n\n# Why.\ndef f():\n    """What\n    it does."""\n    return 1\n'

    assert 2 == figures.code_lines(module("a", text))


def test_a_small_module_with_one_user_is_listed_for_review():
    modules = [module("p"), module("p.a", "X = 1"), module("p.b", "from p.a import X")]

    assert ["satellite: p.a, 1 code lines, is used by p.b alone"] == figures.review(modules)


def test_tours_and_structure_are_measured():
    assert {"code lines", "import cycles", "files run / modules loaded: status"} <= {
        figure.title for figure in figures.structure(figures.read_package(figures.PACKAGE)) + figures.tours()
    }


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
