"""The attack on the deployment of one engine, and its checks."""

from __future__ import annotations

import random
import shutil
import time
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.chaos import checks
from tests.chaos.attack import KILLS, Attack
from tests.chaos.checks import Result
from tests.chaos.clients import Calls, Edits
from tests.chaos.deployment import Deployment, store
from tests.worker.process_names import process_name

QUIET_SHARE, LONGEST_QUIET_S = 0.35, 90.0
"""Share of the time of an engine for its start, the end of its work and the checks."""


class Plan(NamedTuple):
    seconds: float
    seed: int
    keep: Path | None = None

    @property
    def attack_s(self) -> float:
        return self.seconds - min(self.seconds * QUIET_SHARE, LONGEST_QUIET_S)


def attack_engine(engine: str, place: Path, plan: Plan) -> Result:
    """Attack one deployment, and check it."""
    began = time.monotonic()
    chance = random.Random(f"{plan.seed} {engine}")
    with ExitStack() as stack:
        found = stack.enter_context(store(engine, place, random.Random(f"{plan.seed} store")))
        deployment = Deployment(engine, place, found)
        stack.callback(deployment.kill)
        edits = Edits(deployment, random.Random(f"{plan.seed} tree"))
        calls = Calls(deployment, random.Random(f"{plan.seed} calls"))
        stack.callback(calls.close)
        stack.callback(edits.close)
        deployment.start()
        attack = Attack(deployment, calls, chance)
        with calls, edits:
            attack.run(began + plan.attack_s)
        return _checked(deployment, calls, edits, attack, began)


def _checked(deployment: Deployment, calls: Calls, edits: Edits, attack: Attack, began: float) -> Result:
    violations = checks.drain(deployment, calls, edits)
    alive = frozenset(process_name(pid) for member in deployment.members for pid in member.children())
    violations += deployment.stop()
    jobs = checks.jobs_of(deployment)
    account = checks.function_account(deployment, calls, attack, jobs, alive)
    recorded, broken = checks.history_violations(deployment, calls, edits, attack, jobs)
    orphans = [*checks.row_violations(deployment, jobs)]
    left = [*checks.leftover_violations(deployment, attack.mapped)]
    chunks, different = checks.index_violations(deployment)
    errors = [*checks.tracebacks(deployment.logs)]
    counts = {
        "jobs acknowledged": len(calls.acknowledged) + len(edits.acknowledged),
        "requests without an answer": calls.unanswered + edits.unanswered,
        "jobs ended": sum(job.ended for job in jobs),
        "calls of entities, in order": len(calls.keys),
        "attempts lost": sum(job.lost_count for job in jobs),
        "changes of the tree": edits.changes,
        "chunks as in a fresh index": chunks,
        "queue calls checked": recorded,
        "breaches of jobs": len(account.breaches),
        "breaches in the history": len(broken),
        "orphan rows": len(orphans),
        "leaks": len(left),
        "differences of the index": len(different),
        "unexpected errors": len(errors),
    }
    violations += [*account.breaches, *broken, *orphans, *left, *different, *errors]
    stuck = {f"{do}, {way}": figures for (do, way), figures in account.ended.items()}
    took = time.monotonic() - began
    return Result(deployment.engine, took, dict(attack.struck), counts, stuck, violations)


def run(engine: str, place: Path, plan: Plan) -> Result:
    """Attack one engine and print a line; an error of the run itself is a violation."""
    own = place / engine
    own.mkdir()
    try:
        result = attack_engine(engine, own, plan)
    except Exception as error:  # the other engines go on, and the report says so
        traceback.print_exc()
        result = Result(engine, 0.0, {}, {}, {}, [f"the run failed: {error!r}"])
    kills = sum(result.strikes.get(what, 0) for what in KILLS)
    print(f"{engine}: {kills} kills, {len(result.violations)} violations, {result.seconds:.0f} s", flush=True)
    if plan.keep is not None and result.violations:
        shutil.copytree(own, plan.keep / engine, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.sock"))
    return result
