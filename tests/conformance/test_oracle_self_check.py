"""Self-check of the oracle: with one wrong word in the SQL of an engine, a difference is found."""

from __future__ import annotations

import pytest

from penstock.queue.sqlite.rows import SQL
from tests.conformance.durable_engines import DURABLE
from tests.conformance.oracle import Difference, explore

WRONG_WORDS = {
    "a settle that keeps an old error": ("finish", "error_code = NULL, error_message = NULL,", ""),
    "a settle that keeps the lock": ("finish", "lock_held = NULL, ", ""),
    "a claim that knows no turns": ("candidates", "DESC, turn, created_at", "DESC, created_at"),
    "a claim that keeps its number": ("take", "claim_number + 1", "claim_number"),
    "a promotion that knows no limits": ("promote", "'limit'", "NULL"),
    "a claim that forgets due retries": ("promote", "run_at <= ?1", "run_at < '' AND ?1 <> ''"),
}


SEEDS = range(6, 46)
"""The first finds each mistake within a few examples. A change of the rules may leave that to a later one."""


@pytest.mark.parametrize("mistake", WRONG_WORDS)
def test_the_oracle_finds(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, right, wrong = WRONG_WORDS[mistake]
    assert 1 == SQL[name].count(right)
    monkeypatch.setitem(SQL, name, SQL[name].replace(right, wrong))
    with pytest.raises(Difference):
        _explore_all()


def _explore_all() -> None:
    for seed in SEEDS:
        explore(DURABLE["sqlite"], examples=25, shrink=False, seed=seed)
