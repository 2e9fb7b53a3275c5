"""Checks of a deployment after an attack: jobs, order, index, rows and leftovers."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from penstock import Penstock, config
from penstock.catalog.values import OutboxEntryKind
from penstock.errors import StoreError
from penstock.process_start import TRACE_MARK
from penstock.queue.job import Job, JobQuery, Status
from tests.chaos import history, leftovers
from tests.chaos.attack import Attack
from tests.chaos.clients import Calls, Edits
from tests.chaos.deployment import Deployment
from tests.chaos.history_check import RULES, History, check
from tests.documents.index_contents import IndexContents, read_index, settled
from tests.worker.kill_load import NATIVE, Stuck, persist
from tests.worker.kill_report import Account, Begun, Story, account
from tests.worker.worker_processes import ROOT

UNFINISHED = frozenset({Status.PENDING, Status.IN_PROGRESS})
DRAIN_S = 900.0


class Result(msgspec.Struct):
    """The figures of one engine: ``counts`` by check, and every violation in words."""

    engine: str
    seconds: float
    strikes: dict[str, int]
    counts: dict[str, int]
    stuck: dict[str, tuple[int, int, float, float]]
    """By native function and way: ended so, asked for, and median and longest delay in seconds."""
    violations: list[str]


def drain(deployment: Deployment, calls: Calls, edits: Edits) -> list[str]:
    """Let the deployment finish all work, then index the final tree; return what went wrong."""
    deadline = time.monotonic() + DRAIN_S
    found = [f"a client failed: {each.crashed!r}" for each in (calls, edits) if each.crashed]
    # The last strike may have been a crash of the store, which is still recovering.
    queue = persist(deployment.open_queue)
    try:

        def over() -> bool:
            calls.keep_up()
            return sum(queue.count(JobQuery(statuses=UNFINISHED)).values()) == 0

        found += [] if _reached(over, deadline) else [f"jobs are left unfinished after {DRAIN_S:.0f} s"]
        if wrong := edits.index_all(DRAIN_S):
            found.append(wrong)
        _reached(over, deadline)
    finally:
        queue.close()
    calls.keep_up()
    return found


def _reached(state: Callable[[], bool], deadline: float) -> bool:
    while time.monotonic() < deadline:
        try:
            if state():
                return True
        except StoreError:
            pass
        time.sleep(0.1)
    return False


# Jobs.


def jobs_of(deployment: Deployment) -> list[Job]:
    queue = deployment.open_queue()
    try:
        return queue.find(JobQuery(limit=1_000_000))
    finally:
        queue.close()


def function_account(
    deployment: Deployment, calls: Calls, attack: Attack, jobs: list[Job], alive: frozenset[str]
) -> Account:
    functions = [job for job in jobs if job.item_type == "function"]
    record = [Begun.read(line[:5]) for line in calls.record.lines]
    story = Story(
        engine=deployment.engine,
        struck=attack.struck,
        acknowledged=calls.acknowledged,
        keys=calls.keys,
        stuck={job.queue_id: call for job in functions if (call := _stuck(job))},
        cancelled_at=calls.cancelled_at,
        jobs=functions,
        record=record,
        # Ends are counted by the history, call by call.
        endings=sum(job.status is Status.DONE for job in functions),
        alive=alive,
    )
    return account(story, time.time() - time.monotonic())


def _stuck(job: Job) -> Stuck | None:
    given: dict[str, Any] = msgspec.json.decode(job.payload_json)
    name, payload = given.get("function_name"), given.get("payload") or given
    return Stuck(name, payload["way"]) if name in NATIVE else None


def history_violations(
    deployment: Deployment, calls: Calls, edits: Edits, attack: Attack, jobs: list[Job]
) -> tuple[int, list[str]]:
    """Check the recorded calls; return their number and the violations."""
    recorded = history.read(deployment.history)
    lines: defaultdict[str, list[str]] = defaultdict(list)
    for job_id, entity in calls.keys.items():
        lines[entity].append(job_id)
    final = {job.queue_id: job.status for job in jobs}
    found = check(
        History(recorded, attack.jumps), [*calls.acknowledged, *edits.acknowledged], final, lines.values()
    )
    order = {rule: place for place, rule in enumerate(RULES)}
    found.sort(key=lambda each: order[each.rule])
    return len(recorded), [f"history, {each.rule}: {each.text}" for each in found]


def row_violations(deployment: Deployment, jobs: list[Job]) -> Iterator[str]:
    """Rows that refer to nothing, or that say of an ended job that it goes on."""
    ids = {job.queue_id for job in jobs}
    for job in jobs:
        if job.parent_id is not None and job.parent_id not in ids:
            yield f"orphan: {job.queue_id} is a child of {job.parent_id}, which is not there"
        if job.ended and (job.lock_held or job.children_open or job.lease_until is not None):
            yield f"orphan: {job.queue_id} is {job.status} and keeps a lock, a lease or children"
    queue = deployment.open_queue()
    try:
        repaired = queue.reconcile()
        expired = queue.expired()
    finally:
        queue.close()
    if repaired:
        yield f"orphan: upkeep still had {repaired} rows to correct"
    yield from (f"orphan: the lease of {job.queue_id} ran out" for job in expired)


# The index.


def index_violations(deployment: Deployment) -> tuple[int, list[str]]:
    """Compare the index with a new one of the same tree; return the number of chunks and the violations."""
    found: list[str] = []
    with Penstock(settings=deployment.settings()) as app:
        try:
            settled(app)
        except AssertionError as error:
            found.append(f"index: not settled: {str(error)[:500]}")
        catalog = app.documents.catalog
        found += [f"index: outbox keeps {each}" for each in catalog.outbox(OutboxEntryKind.JOB)]
        contents = read_index(catalog, deployment.files)
    found += compare(contents, _fresh(deployment))
    ran = subprocess.run(
        [sys.executable, "-m", "penstock", "--json", "verify", "--checksum"],
        cwd=ROOT, env=_plain(deployment), capture_output=True, text=True, timeout=DRAIN_S,
    )  # fmt: skip
    if ran.returncode:
        found.append(f"index: penstock verify: exit code {ran.returncode}, {(ran.stdout + ran.stderr)[:800]}")
    return len(contents.pieces), found


def compare(found: IndexContents, expected: IndexContents) -> Iterator[str]:
    missing, extra = set(expected.pieces) - set(found.pieces), set(found.pieces) - set(expected.pieces)
    for piece in sorted(missing)[:5]:
        yield f"index: {piece.path} page {piece.page} chunk {piece.at} is missing or different"
    for piece in sorted(extra)[:5]:
        yield f"index: {piece.path} page {piece.page} chunk {piece.at} is not in a fresh index"
    if len(found.pieces) != len(set(found.pieces)):
        yield f"index: {len(found.pieces) - len(set(found.pieces))} chunks are there twice"
    for word in sorted(found.found.keys() | expected.found.keys()):
        if found.found.get(word) != expected.found.get(word):
            yield f"index: a search for {word!r} finds other chunks than in a fresh index"


def _plain(deployment: Deployment) -> dict[str, str]:
    return {
        name: value
        for name, value in deployment.environment(deployment.states[0]).items()
        if not name.startswith("CHAOS_")
    }


def _fresh(deployment: Deployment) -> IndexContents:
    """Contents of a new index of the final tree, in a store of the same kind."""
    state = deployment.place / "fresh"
    state.mkdir()
    url = deployment.store.fresh_url or f"sqlite:///{state}/queue.db"
    settings = config.load({}, url=url, state_dir=state, embedder="hashing", sqlite_synchronous="NORMAL")
    with Penstock(settings=settings) as app:
        with app.worker_thread():
            receipt = app.index(deployment.files, allow_empty=True)
            job = app.wait(receipt.job_id, timeout=DRAIN_S)
        assert Status.DONE is job.status, job.error_message
        return read_index(app.documents.catalog, deployment.files)


# What is left.


def leftover_violations(deployment: Deployment, mapped: set[str]) -> Iterator[str]:
    """Processes and files that the deployment should have taken with it."""
    yield from (f"leak: {each}" for each in leftovers.processes(f"{history.RECORD}={deployment.record}"))
    for name in leftovers.files_below(deployment.temporary):
        yield f"leak: temporary file {name}"
    for state in dict.fromkeys(deployment.states):
        for name in leftovers.unexpected(leftovers.files_below(state)):
            yield f"leak: {state.name}/{name} ({(state / name).stat().st_size} bytes)"
    for name in sorted(mapped):
        if (leftovers.SHARED_MEMORY / name).exists():
            yield f"leak: shared memory {name}"


def tracebacks(folder: Path) -> Iterator[str]:
    """Errors that no process expected, from the logs."""
    for path in sorted(folder.iterdir()):
        lines = path.read_text(errors="replace").splitlines()
        text = "\n".join(line.removeprefix(TRACE_MARK) for line in lines)
        for part in text.split("Traceback (most recent call last):\n")[1:]:
            last = next((line for line in part.splitlines() if line and not line.startswith((" ", "\t"))), "")
            if not _is_orphan_at_start(part, last):
                yield f"log of {path.stem}: {last[:200]}"


def _is_orphan_at_start(part: str, last: str) -> bool:
    """Check for the traceback of a new process whose parent was killed before it sent what to run."""
    return (
        "multiprocessing/spawn.py" in part
        and "reduction.pickle.load(from_parent)" in part
        and last.startswith(("EOFError", "_pickle.UnpicklingError: pickle data was truncated"))
    )
