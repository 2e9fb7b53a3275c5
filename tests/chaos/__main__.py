"""One bounded run of everything that can go wrong: ``make chaos``.

``python -m tests.chaos [--minutes 30] [--engines sqlite,postgres] [--seed N] [--keep FOLDER]`` attacks one
deployment for each engine, all at the same time, and checks them afterwards. The exit code is 1 after a
violation. Everything that was started ends with the run, even if the run is killed.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from tests.chaos import engine_run, report
from tests.servers import run as test_run
from tests.servers.stores import DURABLE


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description="Attack deployments, and check them.")
    parser.add_argument("--minutes", type=float, default=30.0, help="Time for all engines together.")
    parser.add_argument("--engines", default=",".join(DURABLE), help="Engines, separated by commas.")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().getrandbits(31), help="For a repetition."
    )
    parser.add_argument("--keep", type=Path, help="Folder for the files of engines with violations.")
    arguments = parser.parse_args(given)
    if unknown := set(arguments.engines.split(",")) - {*DURABLE}:
        parser.error(f"unknown engine {min(unknown)!r}; known are {', '.join(DURABLE)}")
    return arguments


def main(given: Sequence[str]) -> int:
    arguments = _arguments(given)
    engines = arguments.engines.split(",")
    plan = engine_run.Plan(60 * arguments.minutes, arguments.seed, arguments.keep)
    print(f"{arguments.minutes:g} minutes over {', '.join(engines)}, seed {plan.seed}", flush=True)
    # A process for each: their clients would wait for each other. New ones, which have the mark of the run.
    apart = ProcessPoolExecutor(len(engines), mp_context=get_context("spawn"))
    with test_run.whole_run() as place, apart as pool:
        results = list(pool.map(partial(engine_run.run, place=place, plan=plan), engines))
    print(report.text(results, plan.seed))
    return 1 if any(result.violations for result in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
