"""The measurements: each adds to a contender's figures what one session showed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from bench.peers.field import Contender
from bench.peers.figures import Behind, Figures
from bench.peers.marks import rate
from bench.peers.places import Store
from bench.peers.plan import Plan
from bench.peers.session import STARTS_S, Session, Unable, session
from bench.processes import cpu_seconds

PARTS = ("drain", "two", "pickup", "backlog", "killed")
NOT_ON = {
    "postgres": ("backlog",),
    "postgres-memory": ("killed",),
    "sqlite": ("two", "backlog", "killed"),
}
"""Measured once: where the files are adds time, not knowledge."""
LEAST_SEEN = 50
"""Jobs that have to be done between two looks for CPU time to mean something."""

Entered = list[tuple[Contender, Figures]]
Step = Callable[[Session, Plan, Figures], None]


def alone(each: Session, plan: Plan, figures: Figures) -> None:
    """Enqueue, then drain with one worker."""
    singles, wall = each.ask("one", 0, plan.singles, plan.singles_s)
    figures.one.append(singles / wall)
    added, wall = each.ask("many", singles, plan.jobs, plan.fill_s)
    figures.many.append(added / wall)
    each.start(1)
    found, cpu_ms = _drained(each, singles + added, plan.drain_s, workers=1)
    figures.drain.setdefault(1, []).append(_known(found))
    if cpu_ms is not None:
        figures.cpu_ms.append(cpu_ms)


def idle(each: Session, plan: Plan, figures: Figures) -> None:
    """One job at a time for a worker that waits."""
    each.start(1)
    each.ask("moments", 1, STARTS_S)
    time.sleep(plan.idle_s)
    figures.moments += each.ask("moments", plan.moments, plan.moments_s)


def together(each: Session, plan: Plan, figures: Figures, counted: tuple[str, ...]) -> None:
    """Drain with two workers, and what the server counts for it."""
    added, _ = each.ask("many", 0, plan.jobs, plan.fill_s)
    each.close_client()
    before = each.counts()
    workers = min(2, each.contender.most_workers)
    each.start(workers)
    found, _ = _drained(each, added, plan.drain_s, workers=workers)
    each.stop()
    done = each.marks.done()
    for name, was, now in zip(counted, before, each.counts(), strict=True):
        figures.counted.setdefault(name, []).append((now - was) / done)
    if workers > 1:
        figures.drain.setdefault(workers, []).append(_known(found))


def behind(each: Session, plan: Plan, figures: Figures, backlog: int) -> None:
    """The rate while so many more jobs wait; nobody has told the store how many there are."""
    added, _ = each.ask("many", 0, backlog + plan.backlog_drained, plan.backlog_fill_s)
    # Who adds slowly drains fewer, so that some are left behind.
    jobs = min(plan.backlog_drained, added // 2)
    each.start(1)
    found, _ = _drained(each, jobs, plan.drain_s * 2, workers=1)
    so_far = figures.backlog.get(backlog, Behind([], 0))
    figures.backlog[backlog] = Behind([*so_far.rates, _known(found)], max(so_far.jobs, added - jobs))


def _drained(each: Session, jobs: int, limit_s: float, *, workers: int) -> tuple[float | None, float | None]:
    """Functions a second while all workers are at it, and CPU ms of the workers a job."""
    marks = each.marks
    if not each.wait_for(lambda: marks.done() > 0, STARTS_S):
        raise Unable("ran nothing")
    begun, cpu = marks.done(), _cpu(each)
    each.wait_for(lambda: marks.done() >= jobs, limit_s)
    done, used = marks.done() - begun, _cpu(each) - cpu
    found = rate(marks.times, marks.processes, workers)
    return found, used / done * 1000 if done >= LEAST_SEEN else None


def _known(found: float | None) -> float:
    if found is None:
        raise Unable("not all workers ran something, or all was done at once")
    return found


def _cpu(each: Session) -> float:
    return sum(map(cpu_seconds, each.pids))


def killed(each: Session, plan: Plan) -> float:
    """When its worker was killed; another one is started at once, and the client told to listen."""
    each.start(1)
    each.ask("stay")
    each.kill()
    moment = time.monotonic()
    each.start(1)
    each.send("again", plan.killed_s)
    return moment


# Over all contenders of a store.


def measure(part: str, entered: Entered, store: Store, directory: Path, plan: Plan) -> None:
    """Every contender once, then every contender again: what slows the machine for a while slows all."""
    if part == "killed":
        _measure_killed(entered, store, directory, plan)
        return
    for name, of_session in _steps(part, store, plan):
        for contender, figures in entered:
            with _forgiving(name, figures), session(contender, store, directory) as each:
                of_session(each, plan, figures)


def _steps(part: str, store: Store, plan: Plan) -> list[tuple[str, Step]]:
    if part == "backlog":
        steps: list[tuple[str, Step]] = [
            (f"{backlog:,} behind", partial(behind, backlog=backlog)) for backlog in plan.backlogs
        ]
        return steps * plan.rounds
    if part == "pickup":
        return [(part, idle)] * plan.rounds
    of_session: Step = alone if part == "drain" else partial(together, counted=store.counted)
    return [(part, of_session)] * plan.repetitions


def _measure_killed(entered: Entered, store: Store, directory: Path, plan: Plan) -> None:
    """All at once: there is nothing to do but wait."""
    with ExitStack() as stack:
        waiting: list[tuple[Session, Figures, float]] = []
        for contender, figures in entered:
            if contender.recovers:
                with _forgiving("killed", figures):
                    each = stack.enter_context(session(contender, store, directory))
                    waiting.append((each, figures, killed(each, plan)))
        for each, figures, killed_at in waiting:
            with _forgiving("killed", figures):
                ran_at = each.answer()
                figures.again_s = None if ran_at is None else ran_at - killed_at
                figures.waited_s = plan.killed_s if ran_at is None else None


@contextmanager
def _forgiving(part: str, figures: Figures) -> Iterator[None]:
    """A contender that fails in one part is measured in the others."""
    print(f"{figures.store}: {part}: {figures.name} …", file=sys.stderr, flush=True)
    try:
        yield
    except Unable as error:
        figures.trouble = f"{part}: {error}"
        print(f"  {figures.trouble}", file=sys.stderr, flush=True)
