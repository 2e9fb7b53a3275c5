"""Claims made while other jobs run, with a store that does an exchange when it is sent."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from penstock.errors import StoreUnavailable
from penstock.handlers.context import Context, Registry
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, Job, JobQuery, Settlement, Status
from penstock.queue.protocol import Exchange, SentExchange
from penstock.queue.sqlite.queue import SqliteQueue
from penstock.worker import child, pool
from penstock.worker.child import Child, ChildOptions
from penstock.worker.executor import Outbox, settle_all
from penstock.worker.orphans import held_by
from penstock.worker.pool import ChildHandle, ProcessPool
from penstock.worker.process_guard import ProcessGuard
from penstock.worker.shared_state import ExecutingJob, SharedState
from penstock.worker.supervisor import Supervisor
from tests.stores.new_jobs import call

JOBS = 60
SOON_S = 20.0


def wait_for(condition: Callable[[], bool]) -> bool:
    give_up_at = time.monotonic() + SOON_S
    while not condition() and time.monotonic() < give_up_at:
        time.sleep(0.001)
    return condition()


def main_thread_is_in(function: str) -> bool:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_code.co_name != function:
        frame = frame.f_back
    return frame is not None


class Sent:
    def __init__(self, exchange: Exchange, error: Exception | None = None) -> None:
        self._exchange = exchange
        self._error = error

    def finish(self) -> Exchange:
        if self._error is not None:
            raise self._error
        return self._exchange


class SendingQueue(SqliteQueue):
    """Does at once what is sent, as a server would."""

    error: Exception | None = None
    sent = 0

    def send_exchange(
        self, settlements: Sequence[Settlement], request: ClaimRequest, *, now: datetime | None = None
    ) -> SentExchange | None:
        if any(each.status is not Status.DONE for each in settlements):
            return None
        self.sent += 1
        return Sent(self.exchange(settlements, request, now=now), self.error)


class Runs:
    """A child with small jobs, and what it ran."""

    def __init__(self, place: Path) -> None:
        self._place = place
        (place / "ran").touch()
        self.state = SharedState.create(place / "state")
        self.queue = SendingQueue(place / "queue.db", synchronous="NORMAL")
        self.queue.add([call(number) for number in range(JOBS)])

    def work(self, run: Callable[[SendingQueue, Context], None], *, sends: bool = True) -> list[str]:
        """Run jobs in a child that sends exchanges, or none; return their ids in order."""
        child = multiprocessing.get_context("fork").Process(target=self._child, args=(run,), daemon=True)
        child.start()
        child.join(60)
        child.kill()
        assert 0 == child.exitcode
        *ran, sent = (self._place / "ran").read_text().split()
        assert sends is (int(sent) > 0)
        return ran

    def _child(self, run: Callable[[SendingQueue, Context], None]) -> None:
        queue = SendingQueue(self._place / "queue.db", synchronous="NORMAL")

        def handle(context: Context) -> None:
            with (self._place / "ran").open("a") as file:
                file.write(f"{context.job_id}\n")
            run(queue, context)

        registry = Registry()
        registry.register("function", "run", handle)
        options = ChildOptions(
            worker_id="w1",
            state_path=str(self.state.path),
            parent_pid=os.getppid(),
            lease=timedelta(seconds=60),
            lease_by_type={},
            poll_s=0.01,
        )
        guard = ProcessGuard(self.state, os.getppid())
        guard.set_up()
        Child(queue, registry, guard, self.state, options).run()
        with (self._place / "ran").open("a") as file:
            file.write(f"{queue.sent}\n")
        os._exit(0)

    def jobs(self) -> list[Job]:
        return self.queue.find(JobQuery(limit=100))


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    # However slow the machine is: each batch counts as quick.
    monkeypatch.setattr(child, "AHEAD_WORTH_S", 1e9)
    opened = Runs(tmp_path)
    yield opened
    opened.state.close(remove=True)
    opened.queue.close()


def _id(number: int) -> str:
    return f"job_{number:06d}"


def test_each_job_runs_once_and_in_order(runs: Runs):
    def run(_queue: SendingQueue, context: Context) -> None:
        if context.job_id == _id(JOBS - 1):
            runs.state.request_exit()

    assert [_id(number) for number in range(JOBS)] == runs.work(run)
    assert all(job.status is Status.DONE and job.claim_number == 1 and not job.history for job in runs.jobs())
    assert [] == runs.state.results()


def test_nothing_is_claimed_ahead_of_jobs_that_take_longer(runs: Runs, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(child, "AHEAD_WORTH_S", 0.0)

    def run(_queue: SendingQueue, context: Context) -> None:
        if context.job_id == _id(JOBS - 1):
            runs.state.request_exit()

    assert JOBS == len(runs.work(run, sends=False))


def test_jobs_claimed_ahead_are_released_when_the_worker_stops(runs: Runs):
    def run(_queue: SendingQueue, context: Context) -> None:
        if context.job_id == _id(JOBS // 2):
            runs.state.request_exit()

    ran = runs.work(run)

    statuses = {job.queue_id: job.status for job in runs.jobs()}
    assert set(ran) == {queue_id for queue_id, status in statuses.items() if status is Status.DONE}
    assert {Status.DONE, Status.PENDING} == set(statuses.values())
    assert all(not job.lost_count and not job.retry_count for job in runs.jobs())


def test_jobs_claimed_ahead_are_released_behind_a_slow_job(runs: Runs, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(child, "RELEASE_AFTER_S", 0.1)

    def run(queue: SendingQueue, context: Context) -> None:
        if context.job_id != _id(JOBS // 2):
            return
        give_up_at = time.monotonic() + SOON_S
        while len(held_by(queue, "w1")) > 1 and time.monotonic() < give_up_at:
            time.sleep(0.01)
        assert 1 == len(held_by(queue, "w1"))
        runs.state.request_exit()

    runs.work(run)

    (slow,) = (job for job in runs.jobs() if job.queue_id == _id(JOBS // 2))
    assert Status.DONE is slow.status, slow.error_message


def test_jobs_that_the_supervisor_released_run_once_more_claimed(runs: Runs):
    """The child forgets those claimed ahead as well: another worker may have them."""

    def run(queue: SendingQueue, context: Context) -> None:
        if context.job_id == _id(JOBS // 2):
            behind = [job for job in held_by(queue, "w1") if job.queue_id != context.job_id]
            settle_all(queue, runs.state.results())
            queue.settle([transitions.released(job, "behind a slow job") for job in behind])
            execution = runs.state.executing()
            assert execution is not None
            runs.state.set_jobs_released(execution.number)
        if len(queue.find(JobQuery(statuses=frozenset({Status.PENDING})))) == 0:
            runs.state.request_exit()

    ran = runs.work(run)

    assert len(ran) == len(set(ran))
    assert set(ran) == {job.queue_id for job in runs.jobs() if job.status is Status.DONE}


def test_jobs_released_at_the_end_of_the_one_before_run_once_more_claimed(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
):
    """The supervisor saw the job still executing, so it released those behind it."""
    end, released = SharedState.end, list[str]()

    def run(queue: SendingQueue, context: Context) -> None:
        def end_after_release(state: SharedState, count: int) -> None:
            execution, results = state.executing(), state.results()
            saved = {result.queue_id for result in results}
            behind = [job for job in held_by(queue, "w1") if job.queue_id not in saved]
            if behind and execution is not None and not released:
                released.extend(job.queue_id for job in behind)
                settle_all(queue, results)
                state.set_jobs_released(execution.number)
                settle_all(queue, [transitions.released(job, "behind a slow job") for job in behind])
            end(state, count)

        monkeypatch.setattr(SharedState, "end", end_after_release)
        if len(queue.find(JobQuery(statuses=frozenset({Status.PENDING})))) == 0:
            assert released
            runs.state.request_exit()

    ran = runs.work(run)

    assert len(ran) == len(set(ran))
    assert set(ran) == {job.queue_id for job in runs.jobs() if job.status is Status.DONE}


def test_results_of_a_failed_exchange_stay_until_the_next(tmp_path: Path):
    queue, state = SendingQueue(tmp_path / "queue.db"), SharedState.in_memory()
    queue.add([call(number) for number in range(4)])
    outbox = Outbox(queue, state)
    request = ClaimRequest("w1", 2)
    first, second = (transitions.done(claim) for claim in outbox.exchange(request))
    queue.error = StoreUnavailable("gone before it answered")
    outbox.add([first])
    outbox.send_ahead(request)
    outbox.add([second])

    assert {(first.queue_id, 1), (second.queue_id, 1)} == outbox.claims()
    with pytest.raises(StoreUnavailable):
        outbox.collect()

    assert not outbox.ahead
    assert {(first.queue_id, 1), (second.queue_id, 1)} == outbox.claims()
    assert [first, second] == state.results()
    outbox.send()
    assert [] == state.results()
    assert {Status.DONE} == {queue.get(each.queue_id).status for each in (first, second)}  # type: ignore[union-attr]
    queue.close()


def test_results_sent_ahead_are_saved_until_they_are_settled(tmp_path: Path):
    queue, state = SendingQueue(tmp_path / "queue.db"), SharedState.in_memory()
    queue.add([call(number) for number in range(6)])
    outbox = Outbox(queue, state)
    request = ClaimRequest("w1", 3)
    results = [transitions.done(claim) for claim in outbox.exchange(request)]
    outbox.add(results[:1])
    outbox.send_ahead(request)
    outbox.add(results[1:2])

    outbox.send()
    assert results[:2] == state.results()
    outbox.add(results[2:])
    assert 3 == len(outbox.collect())

    # The second was settled before the first, whose place it has.
    assert results[2] == state.results()[-1]
    assert results[0] not in state.results()
    queue.close()


def test_a_claim_committed_after_the_death_of_its_process_is_released(tmp_path: Path):
    """A server works on what was sent to it, also if the sender is dead and its jobs are settled."""
    queue = SqliteQueue(tmp_path / "queue.db")
    queue.add([call(1)])
    pool = object.__new__(ProcessPool)
    pool._queue, pool._unsettled = queue, []
    pool._late = deque([(time.monotonic(), "dead-1"), (time.monotonic() + 60, "dead-2")])
    queue.claim(ClaimRequest("dead-1"))

    pool.settle_dead()

    job = queue.get(_id(1))
    assert job is not None
    assert (Status.PENDING, 0, 0) == (job.status, job.lost_count, job.retry_count)
    assert ["dead-2"] == [worker_id for _, worker_id in pool._late]
    queue.close()


def _held_by_a_blocked_child(place: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[SqliteQueue, Supervisor]:
    """A supervisor whose child runs a job that has blocked the interpreter since its start."""
    monkeypatch.setattr(pool, "LOOK_AGAIN_S", 0.0)
    queue = SqliteQueue(place / "queue.db")
    queue.add([call(number) for number in range(3)])
    (running,) = queue.claim(ClaimRequest("w1", 1))
    state = SharedState.in_memory()
    state.begin((ExecutingJob(running.queue_id, running.claim_number, 600),), 1.0)
    supervisor = object.__new__(Supervisor)
    supervisor._queue = queue
    supervisor._pool = object.__new__(ProcessPool)
    supervisor._pool.children = [ChildHandle("w1", state, multiprocessing.Process())]
    return queue, supervisor


def test_a_claim_that_the_store_committed_late_is_not_held_behind_a_slow_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The first look for jobs behind the slow one came before the commit."""
    queue, supervisor = _held_by_a_blocked_child(tmp_path, monkeypatch)
    with closing(queue):
        supervisor._release_starved_jobs()
        late = queue.claim(ClaimRequest("w1", 2))

        supervisor._release_starved_jobs()

        assert [_id(0)] == [job.queue_id for job in held_by(queue, "w1")]
        assert {Status.PENDING} == {queue.get(claim.queue_id).status for claim in late}  # type: ignore[union-attr]
        (child,) = supervisor._pool.children
        assert child.state.jobs_released(1)


@pytest.mark.parametrize("ends", [False, True])
def test_a_child_is_told_before_jobs_behind_its_slow_one_are_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool
):
    """If the slow job ends just then, the child must not run a job that another worker has claimed."""
    queue, supervisor = _held_by_a_blocked_child(tmp_path, monkeypatch)
    (child,) = supervisor._pool.children
    told: list[bool] = []

    def settle(settlements: Sequence[Settlement]) -> list[Status | None]:
        told.append(child.state.jobs_released(1))
        return SqliteQueue.settle(queue, settlements)

    def tell(number: int) -> None:
        SharedState.set_jobs_released(child.state, number)
        if ends:
            child.state.end(1)

    with closing(queue):
        behind = queue.claim(ClaimRequest("w1", 2))
        monkeypatch.setattr(queue, "settle", settle)
        monkeypatch.setattr(child.state, "set_jobs_released", tell)
        supervisor._release_starved_jobs()

        expected = Status.IN_PROGRESS if ends else Status.PENDING
        assert {expected} == {queue.get(claim.queue_id).status for claim in behind}  # type: ignore[union-attr]
    assert all(told)


def test_no_job_begins_while_results_are_sent_beside_the_one_before(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
):
    """A job that blocks the interpreter would stop the sender thread amid a transaction."""
    monkeypatch.setattr(child, "SLOW_S", 1e9)
    sending, overlapping = threading.Event(), threading.Event()

    def settle(queue: SendingQueue, settlements: Sequence[Settlement]) -> list[Status | None]:
        if threading.current_thread() is not threading.main_thread():
            sending.set()
            wait_for(lambda: overlapping.is_set() or main_thread_is_in("_begin"))
        settled = SqliteQueue.settle(queue, settlements)
        sending.clear()
        return settled

    def run(_queue: SendingQueue, context: Context) -> None:
        if sending.is_set():
            overlapping.set()
        if context.job_id == _id(JOBS // 2):
            assert wait_for(sending.is_set)
        if context.job_id == _id(JOBS - 1):
            runs.state.request_exit()
        assert not overlapping.is_set()

    monkeypatch.setattr(SendingQueue, "settle", settle, raising=False)
    runs.work(run)

    assert {Status.DONE} == {job.status for job in runs.jobs()}
