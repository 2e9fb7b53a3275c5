"""How much is measured: the full plan, and the quick one that only shows that everything runs."""

from __future__ import annotations

from pathlib import Path

import msgspec


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    directory: Path
    repetitions: int
    singles: int
    bulks: int
    drained_by_batch: dict[int, int]
    two_process_batches: tuple[int, ...]
    pickups: int
    pickup_rounds: int
    idle_s: float
    backlogs: dict[str, tuple[int, ...]]
    backlog_drained: int
    scales: dict[str, tuple[int, int]]
    """Few rows and many, between which single calls are compared."""
    function_calls: int
    small_files: int
    pages: int
    long_pages: int
    """Pages of the very long PDF."""
    pipeline_runs: int
    catalog_chunks: int
    many_files: int
    """0: not measured."""
    unchanged_files: int


BULK = 1_000


def full(directory: Path, repetitions: int | None) -> Plan:
    return Plan(
        directory=directory,
        repetitions=repetitions or 5,
        singles=500,
        bulks=20,
        drained_by_batch={1: 1_000, 10: 5_000, 100: 20_000, 1_000: 20_000},
        two_process_batches=(1, 10, 100, 1_000),
        pickups=200,
        pickup_rounds=3,
        idle_s=3.0,
        backlogs={
            "sqlite": (1_000, 100_000, 1_000_000),
            "jsonl": (1_000, 100_000),
            "postgres": (1_000, 100_000, 1_000_000),
            "redis": (1_000, 100_000),
        },
        backlog_drained=5_000,
        scales={
            "sqlite": (3_000, 1_000_000),
            "jsonl": (3_000, 100_000),
            "postgres": (3_000, 1_000_000),
            "redis": (3_000, 1_000_000),
        },
        function_calls=20_000,
        small_files=3_204,
        pages=500,
        long_pages=20_000,
        pipeline_runs=3,
        catalog_chunks=200_000,
        many_files=100_000,
        unchanged_files=50_000,
    )


def quick(directory: Path, repetitions: int | None) -> Plan:
    return Plan(
        directory=directory,
        repetitions=repetitions or 2,
        singles=30,
        bulks=2,
        drained_by_batch={1: 50, 10: 300, 100: 2_000, 1_000: 2_000},
        two_process_batches=(100,),
        pickups=10,
        pickup_rounds=1,
        idle_s=0.5,
        backlogs=dict.fromkeys(("sqlite", "jsonl", "postgres", "redis"), (1_000, 5_000)),
        backlog_drained=1_000,
        scales=dict.fromkeys(("sqlite", "jsonl", "postgres", "redis"), (3_000, 9_000)),
        function_calls=2_000,
        small_files=300,
        pages=60,
        long_pages=100,
        pipeline_runs=1,
        catalog_chunks=4_000,
        many_files=0,
        unchanged_files=500,
    )
