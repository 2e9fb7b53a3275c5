"""Self-check of the oracle: with one wrong word in the SQL of an engine, a difference is found."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.queue.sqlite.rows import SQL
from tests.conformance.durable_engines import DURABLE
from tests.conformance.exploration import explore
from tests.conformance.oracle import Difference

WRONG_WORDS = {
    "a settle that keeps an old error": ("finish", "error_code = NULL, error_message = NULL,", ""),
    "a settle that keeps the lock": ("finish", "lock_held = NULL, ", ""),
    "a claim that knows no turns": ("candidates", "DESC, turn, created_at", "DESC, created_at"),
    "a claim that keeps its number": ("take", "claim_number + 1", "claim_number"),
    "a promotion that knows no limits": ("promote", "'limit'", "NULL"),
    "a claim that forgets due retries": ("promote", "run_at <= ?1", "run_at < '' AND ?1 <> ''"),
}


SEEDS = range(40)
"""Nearly every seed finds every mistake. What a seed draws changes with the modules that are imported."""


@pytest.mark.parametrize("mistake", WRONG_WORDS)
def test_the_oracle_finds(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, right, wrong = WRONG_WORDS[mistake]
    assert 1 == SQL[name].count(right)
    monkeypatch.setitem(SQL, name, SQL[name].replace(right, wrong))
    with pytest.raises(Difference):
        _explore_all(SEEDS)


def _explore_all(seeds: Sequence[int]) -> None:
    for seed in seeds:
        explore(DURABLE["sqlite"], examples=25, shrink=False, seed=seed)
