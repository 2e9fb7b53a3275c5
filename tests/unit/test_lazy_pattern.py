"""Patterns compiled at the first use."""

from __future__ import annotations

import re

import pytest

from penstock.lazy_pattern import lazy_pattern


def test_a_lazy_pattern_works_as_the_compiled_one():
    lazy, compiled = lazy_pattern(r"(\w)-(\d)", re.I), re.compile(r"(\w)-(\d)", re.I)

    assert compiled.findall("a-1 B-2") == lazy.findall("a-1 B-2")
    assert compiled.sub("x", "a-1 B-2") == lazy.sub("x", "a-1 B-2")
    assert compiled.split("a-1 B-2") == lazy.split("a-1 B-2")
    assert compiled.pattern == lazy.pattern
    assert [b"b"] == lazy_pattern(rb"[b]").findall(b"abc")


def test_it_is_compiled_at_the_first_use():
    wrong = lazy_pattern("(")

    with pytest.raises(re.error):
        wrong.search("text")


def test_it_has_only_what_a_pattern_has():
    with pytest.raises(AttributeError, match="no attribute 'groups_of'"):
        getattr(lazy_pattern("a"), "groups_of")  # noqa: B009 - no attribute of a pattern
