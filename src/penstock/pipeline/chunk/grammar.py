"""The description of a tree-sitter grammar: which node types are definitions, and which hold definitions."""

from __future__ import annotations

from penstock.named_tuple import NamedTuple


class Grammar(NamedTuple):
    """A grammar's package and node types. ``leaves`` and ``containers`` have names; containers have members.

    ``wrappers`` stand around a definition (a decorator, an export). Definitions in ``groups`` belong to the
    level around the group (an include guard).
    """

    package: str
    leaves: frozenset[str]
    containers: frozenset[str]
    wrappers: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    function: str = "language"
    names: frozenset[str] = frozenset()
    """Types of nodes that are a name, where it has no field: the first one below a definition."""
    bodies: frozenset[str] = frozenset()
    """Types of nodes that hold members, where they have no field. ``.``: the container itself does."""
    needing_body: frozenset[str] = frozenset()
    """Types that are a definition only with one of ``bodies`` at most two levels below."""
    short_functions: frozenset[str] = frozenset()
    """Types that are a definition if their left side is a call: ``f(x) = 2x``."""
    keywords: frozenset[str] = frozenset()
    """First words of calls that are definitions."""
    tails: frozenset[str] = frozenset()
    """Types of nodes that belong to the definition before them: a body beside its head."""
    clauses: bool = False
    """Neighbours of the same name are one definition."""


def words(*names: str) -> frozenset[str]:
    return frozenset(word for name in names for word in name.split())
