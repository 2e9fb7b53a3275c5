"""Candidates of a claim: rows without an obstacle are taken at once, as they would be one by one."""

from __future__ import annotations

from random import Random

import pytest

from penstock.queue.job import RETURNED, SUSPECT, Scope
from penstock.queue.rules.rows import Candidate, choose

OTHER = frozenset({Scope("another tenant")})
"""A pause of no row, with which all rows are looked at one by one."""


@pytest.mark.parametrize("seed", range(200))
def test_the_choice_is_that_of_row_by_row(seed: int) -> None:
    random = Random(seed)
    turns = [0] * 40 + [RETURNED, SUSPECT]
    keys = [None, None, *(f"doc:{number}" for number in range(random.choice([3, 100])))]
    rows = [
        Candidate(number, random.choice(turns), random.choice(keys), False, "t", "c")
        for number in range(random.randrange(8))
    ]
    locked = {"doc:1"} if random.random() < 0.5 else set[str]()
    for first in (True, False):
        for room in (1, 4, 10):
            plain = choose(rows, room, first=first, locked=locked, paused=())
            assert choose(rows, room, first=first, locked=locked, paused=OTHER) == plain


def test_a_row_that_holds_its_own_lock_is_taken() -> None:
    row = Candidate(1, RETURNED, "doc:1", True, "t", "c")

    assert [row] == choose([row], 1, first=True, locked={"doc:1"}, paused=()).take
