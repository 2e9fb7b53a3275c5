"""Child processes: recycled, replaced, and not restarted without end when they cannot start."""

from __future__ import annotations

import os
import shutil
import signal
import time
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.handlers.context import Registry
from penstock.queue.job import Status
from penstock.queue.memory.queue import MemoryQueue
from penstock.worker import pool
from penstock.worker.child import ChildOptions
from tests.servers.stores import ON_FILES
from tests.worker.worker_processes import Worker, WorkerHost, alive, until, within

ENGINES = ON_FILES


def test_a_job_in_back_off_runs_as_soon_as_it_is_due(host: WorkerHost):
    """No notification tells an idle process; it looked again only after its poll interval."""
    host.worker(poll_s=120.0)
    host.ended(host.put())
    job_id = host.put("parent_at_second_try", payload={"child": {"do": "noop"}})

    first = host.began(job_id).at

    assert within(0.3 + 2, host.began(job_id, times=2).at - first)


def test_a_child_that_starts_after_the_death_of_its_worker_ends_without_a_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    gone = tmp_path / "w-1.state"
    late = ChildOptions("w-1", str(gone), os.getpid(), timedelta(seconds=60), {}, 1.0)

    with pytest.raises(SystemExit, match="1"):
        pool.main(late, MemoryQueue, Registry)

    assert [f"a worker process ends at its start: {gone} is gone, its worker died"] == caplog.messages


def test_children_give_way_to_a_worker_that_is_nice_itself(host: WorkerHost):
    worker = host.worker(niceness=3)
    # Long before its first child: it has an interpreter to start.
    os.setpriority(os.PRIO_PROCESS, worker.pid, os.getpriority(os.PRIO_PROCESS, 0) + 4)

    host.ended(host.put())

    own = os.getpriority(os.PRIO_PROCESS, worker.pid)
    assert {own + 3} == {os.getpriority(os.PRIO_PROCESS, pid) for pid in worker.children()}


def test_children_are_replaced_after_a_number_of_jobs(host: WorkerHost):
    ids = host.put_many(20)
    worker = host.worker(recycle_after=5, until_idle=True)

    assert 0 == worker.ended()

    pids = [host.began(job_id).pid for job_id in ids]
    assert {5} == {pids.count(pid) for pid in pids}
    assert "died" not in worker.log


def test_a_child_that_keeps_its_memory_is_replaced(host: WorkerHost):
    worker = host.worker(recycle_growth_mb=20)
    ids = [host.put("hoard"), host.put("sleep", payload={"seconds": 1.1}), host.put()]

    until(lambda: host.count(Status.DONE) == 3)

    assert host.began(ids[0]).pid != host.began(ids[2]).pid
    assert "died" not in worker.log


def test_a_process_that_hangs_without_a_job_is_replaced(host: WorkerHost):
    """A hung process without a job exceeds no timeout, and would keep claims for ever."""
    worker = host.worker(silence_s=2)
    hung = host.began(host.put("leak_a_hog")).pid
    until(lambda: host.count(Status.DONE) == 1)
    until(lambda: not alive([hung]))

    job = host.ended(host.put())

    assert (Status.DONE, 0, 0) == (job.status, job.retry_count, job.lost_count)
    assert "hung without a job" in worker.log
    until(lambda: host.info("last_death") == ["hung without a job"])


def test_a_process_that_was_stopped_while_it_waits_is_replaced(host: WorkerHost):
    worker = host.worker(silence_s=2)
    stopped = host.began(host.put()).pid
    until(lambda: host.count(Status.DONE) == 1)

    os.kill(stopped, signal.SIGSTOP)

    until(lambda: not alive([stopped]))
    assert Status.DONE is host.ended(host.put()).status
    assert worker.process.poll() is None


def test_a_process_that_only_waits_is_left_alone(host: WorkerHost):
    worker = host.worker(silence_s=2)
    pid = host.began(host.put()).pid
    with host.locked(timeout=120):
        # A store that blocks does not make a process look hung.
        began = time.monotonic()
        until(lambda: time.monotonic() - began > 2.2)

    assert pid == host.began(host.put()).pid
    assert "died" not in worker.log


@pytest.mark.parametrize("do", ["mute_stdout", "keep_the_logs_lock"])
def test_nothing_a_handler_leaves_keeps_its_process_from_ending(host: WorkerHost, do: str):
    worker = host.worker(recycle_after=1, leaving_s=1)
    first, second = host.put(do), host.put()

    assert {Status.DONE} == {host.ended(first).status, host.ended(second).status}

    pid = host.began(first).pid
    until(lambda: not alive([pid]))
    assert (do == "keep_the_logs_lock") == ("hung while exiting" in worker.log)


def test_a_worker_whose_code_cannot_be_loaded_says_so_and_does_not_spin(host: WorkerHost):
    worker = host.worker(broken=1, processes=2)
    began = time.monotonic()

    until(lambda: any("their_tasks" in (reason or "") for reason in host.info("last_death")))
    until(lambda: time.monotonic() - began > 2)

    assert worker.process.poll() is None
    assert 2 <= worker.log.count("ImportError: no module named 'their_tasks'\n") < 20
    assert "process" in worker.log


def test_with_nothing_else_to_wait_for_a_worker_whose_code_cannot_be_loaded_gives_up(host: WorkerHost):
    job_id = host.put()
    worker = host.worker(broken=1, until_idle=True)

    assert 1 == worker.ended()

    assert "WorkerFailed: no process lives" in worker.log
    assert "their_tasks" in worker.log
    assert (Status.PENDING, 0) == (host.job(job_id).status, host.job(job_id).retry_count)


def test_a_store_that_is_away_now_and_then_costs_time_only(host: WorkerHost):
    ids = host.put_many(400) + host.put_many(3, "kill_self", max_retries=1)
    worker = host.worker(away=0.25, processes=2, until_idle=True, upkeep_s=0.3)

    assert 0 == worker.ended()

    assert "the store is unavailable" in worker.log
    assert (400, 3) == (host.count(Status.DONE), host.count(Status.FAILED))
    assert {0} == {host.job(job_id).retry_count for job_id in ids[:400]}
    assert 400 == len(host.recorded("ended"))
    assert [] == list((host.place / "here").iterdir())


@pytest.mark.parametrize("op", ["ingest", "update"])
def test_a_claim_whose_answer_was_lost_is_not_kept_for_ever(host: WorkerHost, op: str):
    """The child does not know the job, and the supervisor would renew the lease with the others."""
    ids: list[str] = []
    claimed_again = False
    # Which calls get no response is random, so there is work until a claim was hit.
    for _ in range(10):
        ids += host.put_many(100, op=op)
        worker = host.worker(unanswered=0.3, processes=2, until_idle=True)
        assert 0 == worker.ended()
        jobs = [host.job(job_id) for job_id in ids]
        assert {(Status.DONE, 0)} == {(job.status, job.retry_count) for job in jobs}
        claimed_again = max(job.claim_number for job in jobs) > 1
        if claimed_again and "may have been done" in worker.log:
            break
    assert claimed_again


def test_a_worker_outlives_the_directory_it_was_started_in(host: WorkerHost, start_method: str):
    """A deploy removes the old release: nothing is done twice, and new processes can be started."""
    release = host.place / "release"
    release.mkdir()
    worker = host.worker(cwd=release, start_method=start_method)
    before = host.put()
    first = host.began(before).pid
    release.rmdir()
    moved = host.put("chdir")
    assert {Status.DONE} == {host.ended(job_id).status for job_id in (before, moved)}
    os.kill(first, signal.SIGKILL)

    after = host.put()

    assert Status.DONE is host.ended(after).status
    assert first != host.began(after).pid
    assert [1, 1] == [len(host.recorded("began", job_id)) for job_id in (before, moved)]
    assert worker.process.poll() is None


def test_a_state_directory_that_was_removed_costs_nobody_a_job(host: WorkerHost):
    worker = host.worker(processes=2)
    running = host.put("sleep", payload={"seconds": 2})
    host.began(running)
    host.began(host.put("sleep", payload={"seconds": 0.5}))
    shutil.rmtree(host.place / "here")
    killer = host.put("exit_hard", max_retries=0)
    after = host.put()

    assert [Status.FAILED, Status.DONE, Status.DONE] == [
        host.ended(job_id).status for job_id in (killer, after, running)
    ]
    assert {0} == {host.job(job_id).retry_count for job_id in (after, running)}
    # If the worker is killed now, the next one can still find its claims.
    (life,) = (host.place / "here").glob("*.worker")
    assert 2 == len({line.split()[0] for line in life.read_text().splitlines()})
    assert worker.process.poll() is None


def test_a_process_that_cannot_be_started_is_tried_again_later(host: WorkerHost):
    """The other children go on meanwhile, and the failed starts leave nothing behind."""
    place = host.place / "here"
    worker = host.worker(processes=2)
    running = host.put("sleep", payload={"seconds": 2})
    # Both have begun a job: neither is still starting when the directory is moved.
    short = host.put("sleep", payload={"seconds": 1})
    host.began(running)
    host.began(short)
    before = set(place.glob("*.state"))
    assert 2 == len(before)
    moved = place.rename(host.place / "moved")
    place.touch()
    host.ended(host.put("exit_hard", max_retries=0))

    until(lambda: worker.log.count("could not be started") >= 2)
    place.unlink()
    moved.rename(place)

    assert (Status.DONE, 0) == (host.ended(running).status, host.job(running).retry_count)
    until(lambda: len(worker.children()) == 2)
    assert 0 == stopped(worker)
    assert set(place.iterdir()) < before


def stopped(worker: Worker) -> int:
    worker.signal(signal.SIGTERM)
    return worker.ended()


def test_a_type_nobody_here_knows_is_given_back_unspent_with_the_reason(host: WorkerHost):
    job_id = host.put(item_type="file")

    assert 0 == host.worker(until_idle=True).ended()

    job = host.job(job_id)
    assert (Status.PENDING, 0, "ERR_NO_HANDLER") == (job.status, job.retry_count, job.error_code)
    expected = (
        "no handler for file/ingest here (this worker runs content/delete, "
        "content/ingest, content/update, function/run)"
    )
    assert expected == job.error_message
    assert job.run_at is not None
    assert 30 == round((job.run_at - job.updated_at).total_seconds())


def test_a_batch_handler_gets_many_jobs_at_once_and_each_has_its_own_outcome(host: WorkerHost):
    host.queue.add([host.new("fail" if i % 5 == 0 else "noop", op="update") for i in range(30)])

    assert 0 == host.worker(until_idle=True).ended()

    jobs = host.jobs()
    assert (24, 6) == (host.count(Status.DONE), host.count(Status.FAILED))
    assert {10} == {job.result for job in jobs if job.status is Status.DONE}
    assert {"asked to fail"} == {job.error_message for job in jobs if job.error_message}


def test_a_batch_that_dies_is_run_one_by_one_and_only_the_guilty_job_fails(host: WorkerHost):
    ids = host.put_many(9, op="update")
    killer = host.put("kill_self", op="update", max_retries=1)

    assert 0 == host.worker(until_idle=True).ended()

    # Once with its batch, and for each of its two attempts alone.
    assert (Status.FAILED, 3) == (host.job(killer).status, host.job(killer).lost_count)
    said = "Max retries (1) exceeded after restart: worker lost in attempt 2 of 2"
    assert said == host.job(killer).error_message
    others = [host.job(job_id) for job_id in ids]
    assert {(Status.DONE, 0)} == {(job.status, job.retry_count) for job in others}
    assert {1} == {job.result for job in others}


def test_a_batch_handler_that_answers_garbage_fails_its_jobs_with_the_reason(host: WorkerHost):
    ids = host.put_many(3, "garbage", op="update")

    assert 0 == host.worker(until_idle=True).ended()

    assert {"ERR_BAD_RESULT"} == {host.job(job_id).error_code for job_id in ids}


def test_a_job_that_dies_while_it_expands_goes_on_where_it_was(host: WorkerHost):
    job_id = host.put("expand")
    assert 0 == host.worker(until_idle=True).ended()

    parent = host.job(job_id)
    children = [job for job in host.jobs() if job.parent_id == job_id]
    assert (Status.DONE, 1) == (parent.status, parent.lost_count)
    assert (15, {Status.DONE}) == (len(children), {child.status for child in children})
    assert {"cursor": 3} == {key: value for key, value in (parent.progress or {}).items() if key == "cursor"}
