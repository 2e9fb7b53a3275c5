"""How much is measured, and for how long at most: a slow contender gets the same time, not the same jobs."""

from __future__ import annotations

import msgspec


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    repetitions: int
    singles: int
    singles_s: float
    jobs: int
    fill_s: float
    drain_s: float
    idle_s: float
    """After the last job, until a worker counts as idle."""
    rounds: int
    """Of pick-up and of backlogs."""
    moments: int
    moments_s: float
    backlogs: tuple[int, ...]
    """The first is what the others are compared with."""
    backlog_fill_s: float
    backlog_drained: int
    killed_s: float
    """How long a job whose worker was killed is waited for."""


FULL = Plan(
    repetitions=3,
    singles=500,
    singles_s=0.5,
    jobs=20_000,
    fill_s=1.2,
    drain_s=1.8,
    idle_s=0.7,
    rounds=2,
    moments=60,
    moments_s=2.0,
    backlogs=(1_000, 100_000),
    backlog_fill_s=10.0,
    backlog_drained=5_000,
    killed_s=60.0,
)
LONG = msgspec.structs.replace(
    FULL,
    repetitions=5,
    fill_s=10.0,
    drain_s=10.0,
    moments=200,
    moments_s=20.0,
    backlogs=(1_000, 100_000, 1_000_000),
    backlog_fill_s=1_200.0,
)
QUICK = Plan(
    repetitions=1,
    singles=5,
    singles_s=0.2,
    jobs=300,
    fill_s=0.5,
    drain_s=1.0,
    idle_s=0.1,
    rounds=1,
    moments=3,
    moments_s=0.5,
    backlogs=(100, 500),
    backlog_fill_s=2.0,
    backlog_drained=100,
    killed_s=3.0,
)
PLANS = {"quick": QUICK, "full": FULL, "long": LONG}
