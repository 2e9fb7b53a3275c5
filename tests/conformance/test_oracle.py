"""Random calls on each engine and on the reference: after every one, the same answers and the same rows."""

from __future__ import annotations

import pytest

from tests.conformance.durable_engines import DURABLE
from tests.conformance.exploration import explore


@pytest.mark.parametrize("engine", DURABLE)
@pytest.mark.parametrize("examples", [5, pytest.param(60, marks=pytest.mark.long)])
def test_random_calls_leave_the_engine_and_the_reference_equal(engine: str, examples: int) -> None:
    explore(DURABLE[engine], examples=examples)


@pytest.mark.chaos
@pytest.mark.parametrize("engine", DURABLE)
def test_very_many_random_calls_leave_the_engine_and_the_reference_equal(engine: str) -> None:
    # In portions: hypothesis remembers every choice of a run.
    for _ in range(20):
        explore(DURABLE[engine], examples=100)
