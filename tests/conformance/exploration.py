"""Random calls over one engine and the reference, by hypothesis."""

from __future__ import annotations

from unittest.mock import patch

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from penstock.queue import engine
from penstock.queue.redis import queue as redis_queue
from tests.conformance.crowded_oracle import CrowdedOracle
from tests.conformance.oracle import Opener


def explore(opener: Opener, *, examples: int, shrink: bool = True, seed: int | None = None) -> None:
    """Run the machine over one engine, with new calls or those of a seed; raises the shortest difference."""
    machine = type("Machine", (CrowdedOracle,), {"open_engine": staticmethod(opener)})
    machine = machine if seed is None else hypothesis.seed(seed)(machine)
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    # A resume takes several calls, so that others come in between.
    with (
        patch.multiple(engine, MOVED_AT_ONCE=2, RESUME_STEPS=1),
        patch.multiple(redis_queue, MOVED_AT_ONCE=2, RESUME_STEPS=1),
    ):
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=50,
                phases=phases,
                database=None,
                deadline=None,
                report_multiple_bugs=False,
                print_blob=True,
                suppress_health_check=list(HealthCheck),
            ),
        )
