"""The rules by which a search follows relations: what a query asks for, where it starts, what is reached."""

from __future__ import annotations

import pytest

from penstock.catalog.graph import GraphRelation
from penstock.catalog.rules.graph import (
    PLAIN_WORD,
    AskedRelation,
    asked_relation,
    expand,
    followed,
    is_alias,
    is_named,
    query_names,
    start_weights,
)

CALLERS = AskedRelation(("calls",), incoming=True)
CALLEES = AskedRelation(("calls",), incoming=False)


@pytest.mark.parametrize(
    ("query", "named_at", "wanted"),
    [
        ("who calls open_gate", 2, CALLERS),
        ("callers of open_gate", 2, CALLERS),
        ("calls open_gate", 1, CALLERS),
        ("open_gate callers", 0, CALLERS),
        ("where is open_gate used", 2, AskedRelation(("calls", "imports", "inherits"), incoming=True)),
        ("what does open_gate call", 2, CALLEES),
        ("functions called by open_gate", 3, CALLEES),
        ("what is open_gate called by", 2, CALLERS),
        ("callees of open_gate", 2, CALLEES),
        ("who calls the function that opens a gate", None, CALLERS),
        ("callers of the function to open a gate", None, CALLERS),
        ("subclasses of Mill", 2, AskedRelation(("inherits",), incoming=True)),
        ("which classes does Mill extend", 3, AskedRelation(("inherits",), incoming=False)),
        ("who imports mill.gate", 2, AskedRelation(("imports",), incoming=True)),
        # Sentences that ask for no relation.
        ("open_gate", 0, None),
        ("Calls the handler of each gate", None, None),
        ("Splits keys and then calls MGET for every slot", 5, None),
        ("Enables a feature of Redis, that is used for caching", 4, None),
        ("Return the value that the user asked for", None, None),
        ("what is the best way to open a gate when it is called", None, None),
        ("", None, None),
    ],
)
def test_a_relation_is_asked_for_by_few_forms(query: str, named_at: int | None, wanted: AskedRelation | None):
    assert wanted == asked_relation(query, named_at)


def test_names_are_words_and_words_in_a_row():
    found = {name.name: name.certainty for name in query_names("who calls mill.open_gate in Ann Marlow")}

    assert found["mill.open_gate"] == found["ann marlow"] == 1.0
    assert not {"who", "calls", "in", "calls mill.open_gate in"} & found.keys()
    assert {"gate": PLAIN_WORD} == {name.name: name.certainty for name in query_names("the gate")}
    assert "open_gate" == query_names("mill.open_gate")[0].last


@pytest.mark.parametrize(
    ("asked", "name", "same"),
    [
        ("open_gate", "mill.gate.open_gate", True),
        ("gate.open_gate", "mill.gate.open_gate", True),
        ("ate.open_gate", "mill.gate.open_gate", False),
        ("wheel.open_gate", "mill.gate.open_gate", False),
        ("mill.gate.open_gate", "mill.gate.open_gate", True),
    ],
)
def test_a_dotted_name_is_the_end_of_the_whole(asked: str, name: str, same: bool):
    (query_name,) = query_names(asked)
    assert same is is_named(query_name, name, "open_gate")


def test_a_package_offers_a_name_of_its_modules():
    assert is_alias("mill.gate.open", "mill.open")
    assert is_alias("mill.open", "mill.gate.open")
    assert not is_alias("mill.gate.open", "mill.gate.open")
    assert not is_alias("mill.gate.open", "mine.open")
    assert not is_alias("mill.gate.open", "mill.close")


# Entities 1 to 4: run calls open, open calls log, mill defines open.
RUN, OPEN, LOG, MILL = 1, 2, 3, 4
RELATIONS = [
    GraphRelation(100, RUN, OPEN, "calls"),
    GraphRelation(200, OPEN, LOG, "calls"),
    GraphRelation(400, MILL, OPEN, "defines"),
]
OWN = {RUN: [100], LOG: [300], MILL: [400]}


@pytest.mark.parametrize(("asked", "reached"), [(CALLERS, {100}), (CALLEES, {300}), (None, {100, 200, 300})])
def test_relations_are_followed_in_the_direction_asked_for(asked: AskedRelation | None, reached: set[int]):
    relations = {OPEN: followed(OPEN, RELATIONS, asked)}

    assert reached == set(expand({OPEN: 1.0}, relations, OWN, asked))


def test_a_start_with_many_relations_tells_less_unless_they_are_asked_for():
    many = {OPEN: [GraphRelation(number, number, OPEN, "calls") for number in range(100, 150)]}

    assert 1.0 == max(match.score for match in expand({OPEN: 1.0}, many, {}, CALLERS).values())
    assert 0.25 > max(match.score for match in expand({OPEN: 1.0}, many, {}, None).values())


def test_hits_are_no_starts_where_the_query_names_one():
    of_hits = [(1.0, [7, 8]), (0.5, [9])]

    assert {OPEN: 1.0} == start_weights({OPEN: 1.0, RUN: PLAIN_WORD}, of_hits, CALLERS)
    starts = start_weights({}, of_hits, CALLERS)
    assert starts[7] == starts[8] > starts[9] > 0
