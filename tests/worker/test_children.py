"""Children come and go: recycled, replaced, and not started in vain for ever."""

from __future__ import annotations

import os
import shutil
import signal
import time

import pytest

from penstock.job import Status
from tests.servers.stores import ON_FILES
from tests.worker.worker_processes import Worker, WorkerHost, alive, until

ENGINES = ON_FILES


def test_children_are_replaced_after_a_number_of_jobs(field: WorkerHost):
    ids = field.put_many(20)
    worker = field.worker(recycle_after=5, until_idle=True)

    assert 0 == worker.ended()

    pids = [field.began(job_id).pid for job_id in ids]
    assert {5} == {pids.count(pid) for pid in pids}
    assert "died" not in worker.log


def test_a_child_that_keeps_its_memory_is_replaced(field: WorkerHost):
    worker = field.worker(recycle_growth_mb=20)
    ids = [field.put("hoard"), field.put("sleep", payload={"seconds": 1.1}), field.put()]

    until(lambda: field.count(Status.DONE) == 3)

    assert field.began(ids[0]).pid != field.began(ids[2]).pid
    assert "died" not in worker.log


def test_a_process_that_hangs_without_a_job_is_replaced(field: WorkerHost):
    """It has no timeout to run over, and would keep what it claims for ever."""
    worker = field.worker(silence_s=2)
    hung = field.began(field.put("leak_a_hog")).pid
    until(lambda: field.count(Status.DONE) == 1)
    until(lambda: not alive([hung]))

    job = field.ended(field.put())

    assert (Status.DONE, 0, 0) == (job.status, job.retry_count, job.lost_count)
    assert "hung without a job" in worker.log
    until(lambda: field.info("last_death") == ["hung without a job"])


def test_a_process_that_was_stopped_while_it_waits_is_replaced(field: WorkerHost):
    worker = field.worker(silence_s=2)
    stopped = field.began(field.put()).pid
    until(lambda: field.count(Status.DONE) == 1)

    os.kill(stopped, signal.SIGSTOP)

    until(lambda: not alive([stopped]))
    assert Status.DONE is field.ended(field.put()).status
    assert worker.process.poll() is None


def test_a_process_that_only_waits_is_left_alone(field: WorkerHost):
    worker = field.worker(silence_s=2)
    pid = field.began(field.put()).pid
    with field.locked(timeout=10):
        # Not even a store that blocks looks like a process that hangs.
        began = time.monotonic()
        until(lambda: time.monotonic() - began > 2.2)

    assert pid == field.began(field.put()).pid
    assert "died" not in worker.log


@pytest.mark.parametrize("do", ["mute_stdout", "keep_the_logs_lock"])
def test_nothing_a_handler_leaves_keeps_its_process_from_ending(field: WorkerHost, do: str):
    worker = field.worker(recycle_after=1, leaving_s=1)
    first, second = field.put(do), field.put()

    assert {Status.DONE} == {field.ended(first).status, field.ended(second).status}

    pid = field.began(first).pid
    until(lambda: not alive([pid]))
    assert (do == "keep_the_logs_lock") == ("hung while exiting" in worker.log)


def test_a_worker_whose_code_cannot_be_loaded_says_so_and_does_not_spin(field: WorkerHost):
    worker = field.worker(broken=1, processes=2)
    began = time.monotonic()

    until(lambda: any("their_tasks" in (reason or "") for reason in field.info("last_death")))
    until(lambda: time.monotonic() - began > 2)

    assert worker.process.poll() is None
    assert 2 <= worker.log.count("ImportError: no module named 'their_tasks'\n") < 20
    assert "process" in worker.log


def test_with_nothing_else_to_wait_for_a_worker_whose_code_cannot_be_loaded_gives_up(field: WorkerHost):
    job_id = field.put()
    worker = field.worker(broken=1, until_idle=True)

    assert 1 == worker.ended()

    assert "WorkerFailed: no process lives" in worker.log
    assert "their_tasks" in worker.log
    assert (Status.PENDING, 0) == (field.job(job_id).status, field.job(job_id).retry_count)


def test_a_store_that_is_away_now_and_then_costs_time_only(field: WorkerHost):
    ids = field.put_many(400) + field.put_many(3, "kill_self", max_retries=1)
    worker = field.worker(away=0.25, processes=2, until_idle=True, upkeep_s=0.3)

    assert 0 == worker.ended()

    assert "the store is unavailable" in worker.log
    assert (400, 3) == (field.count(Status.DONE), field.count(Status.FAILED))
    assert {0} == {field.job(job_id).retry_count for job_id in ids[:400]}
    assert 400 == len(field.recorded("ended"))
    assert [] == list((field.place / "here").iterdir())


@pytest.mark.parametrize("op", ["ingest", "update"])
def test_a_claim_whose_answer_was_lost_is_not_kept_for_ever(field: WorkerHost, op: str):
    """The child does not know of it, and its supervisor would renew it with the others."""
    ids: list[str] = []
    claimed_again = False
    # Which calls go unanswered is chance, so there is work until it has hit a claim.
    for _ in range(10):
        ids += field.put_many(100, op=op)
        worker = field.worker(unanswered=0.3, processes=2, until_idle=True)
        assert 0 == worker.ended()
        jobs = [field.job(job_id) for job_id in ids]
        assert {(Status.DONE, 0)} == {(job.status, job.retry_count) for job in jobs}
        claimed_again = max(job.claim_number for job in jobs) > 1
        if claimed_again and "may have been done" in worker.log:
            break
    assert claimed_again


@pytest.mark.parametrize("start_method", ["spawn", "fork"])
def test_a_worker_outlives_the_directory_it_was_started_in(field: WorkerHost, start_method: str):
    """As when a deploy removes the old release: nothing is done twice, and new processes can be started."""
    release = field.place / "release"
    release.mkdir()
    worker = field.worker(cwd=release, start_method=start_method)
    before = field.put()
    first = field.began(before).pid
    release.rmdir()
    moved = field.put("chdir")
    assert {Status.DONE} == {field.ended(job_id).status for job_id in (before, moved)}
    os.kill(first, signal.SIGKILL)

    after = field.put()

    assert Status.DONE is field.ended(after).status
    assert first != field.began(after).pid
    assert [1, 1] == [len(field.recorded("began", job_id)) for job_id in (before, moved)]
    assert worker.process.poll() is None


def test_a_state_directory_that_was_removed_costs_nobody_a_job(field: WorkerHost):
    worker = field.worker(processes=2)
    running = field.put("sleep", payload={"seconds": 2})
    field.began(running)
    field.began(field.put("sleep", payload={"seconds": 0.5}))
    shutil.rmtree(field.place / "here")
    killer = field.put("exit_hard", max_retries=0)
    after = field.put()

    assert [Status.FAILED, Status.DONE, Status.DONE] == [
        field.ended(job_id).status for job_id in (killer, after, running)
    ]
    assert {0} == {field.job(job_id).retry_count for job_id in (after, running)}
    # Should the worker be killed now, the next one can tell.
    (life,) = (field.place / "here").glob("*.worker")
    assert 2 == len({line.split()[0] for line in life.read_text().splitlines()})
    assert worker.process.poll() is None


def test_a_process_that_cannot_be_started_is_tried_again_later(field: WorkerHost):
    """The others go on meanwhile, and nothing is left behind by the attempts."""
    place = field.place / "here"
    worker = field.worker(processes=2)
    running = field.put("sleep", payload={"seconds": 2})
    # Both have begun something: neither is still on its way in when the place goes.
    short = field.put("sleep", payload={"seconds": 1})
    field.began(running)
    field.began(short)
    before = set(place.glob("*.state"))
    assert 2 == len(before)
    moved = place.rename(field.place / "moved")
    place.touch()
    field.ended(field.put("exit_hard", max_retries=0))

    until(lambda: worker.log.count("could not be started") >= 2)
    place.unlink()
    moved.rename(place)

    assert (Status.DONE, 0) == (field.ended(running).status, field.job(running).retry_count)
    until(lambda: len(worker.children()) == 2)
    assert 0 == stopped(worker)
    assert set(place.iterdir()) < before


def stopped(worker: Worker) -> int:
    worker.signal(signal.SIGTERM)
    return worker.ended()


def test_a_type_nobody_here_knows_is_given_back_unspent_with_the_reason(field: WorkerHost):
    job_id = field.put(item_type="file")

    assert 0 == field.worker(until_idle=True).ended()

    job = field.job(job_id)
    assert (Status.PENDING, 0, "ERR_NO_HANDLER") == (job.status, job.retry_count, job.error_code)
    expected = (
        "no handler for file/ingest here (this worker runs content/ingest, content/update, function/run)"
    )
    assert expected == job.error_message
    assert job.run_at is not None
    assert 30 == round((job.run_at - job.updated_at).total_seconds())


def test_a_batch_handler_gets_many_jobs_at_once_and_each_has_its_own_outcome(field: WorkerHost):
    field.queue.add([field.new("fail" if i % 5 == 0 else "noop", op="update") for i in range(30)])

    assert 0 == field.worker(until_idle=True).ended()

    jobs = field.jobs()
    assert (24, 6) == (field.count(Status.DONE), field.count(Status.FAILED))
    assert {10} == {job.result for job in jobs if job.status is Status.DONE}
    assert {"PermanentFailure: asked to fail"} == {job.error_message for job in jobs if job.error_message}


def test_a_batch_that_dies_is_run_one_by_one_and_only_the_guilty_job_fails(field: WorkerHost):
    ids = field.put_many(9, op="update")
    killer = field.put("kill_self", op="update", max_retries=1)

    assert 0 == field.worker(until_idle=True).ended()

    assert (Status.FAILED, 2) == (field.job(killer).status, field.job(killer).lost_count)
    others = [field.job(job_id) for job_id in ids]
    assert {(Status.DONE, 1)} == {(job.status, job.retry_count) for job in others}
    assert {1} == {job.result for job in others}


def test_a_batch_handler_that_answers_garbage_fails_its_jobs_with_the_reason(field: WorkerHost):
    ids = field.put_many(3, "garbage", op="update")

    assert 0 == field.worker(until_idle=True).ended()

    assert {"ERR_BAD_RESULT"} == {field.job(job_id).error_code for job_id in ids}


def test_a_job_that_dies_while_it_expands_goes_on_where_it_was(field: WorkerHost):
    job_id = field.put("expand")
    assert 0 == field.worker(until_idle=True).ended(20)

    parent = field.job(job_id)
    children = [job for job in field.jobs() if job.parent_id == job_id]
    assert (Status.DONE, 1) == (parent.status, parent.lost_count)
    assert (15, {Status.DONE}) == (len(children), {child.status for child in children})
    assert {"cursor": 3} == {key: value for key, value in (parent.progress or {}).items() if key == "cursor"}
