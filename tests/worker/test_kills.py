"""Kills at any time: no job is lost, none is stuck, and the job causing the kill ends."""

from __future__ import annotations

import os
import signal
import time

from penstock.queue.job import Status
from tests.worker.worker_processes import WorkerHost, alive, until, within

FIRST = ("sqlite",)
"""On the servers, workers are killed in test_hosts."""
QUICK = 2.0
"""Seconds in which a job of a killed process must be running again on its host."""


def test_a_job_whose_process_is_killed_runs_again_at_once(host: WorkerHost, start_method: str):
    host.worker(start_method=start_method)
    job_id = host.put("sleep_unless_retried", payload={"seconds": 60})

    os.kill(host.began(job_id).pid, signal.SIGKILL)
    killed = time.monotonic()

    assert within(QUICK, host.began(job_id, times=2).at - killed)
    job = host.ended(job_id)
    assert (Status.DONE, 1, 1) == (job.status, job.retry_count, job.lost_count)
    assert ["lost"] == [event.what for event in job.history]


def test_children_die_with_their_supervisor_and_the_next_worker_takes_over(
    host: WorkerHost, start_method: str
):
    first = host.worker(start_method=start_method, processes=2)
    job_id = host.put("sleep_unless_retried", payload={"seconds": 60})
    host.began(job_id)
    until(lambda: len(first.children()) >= 2)
    children = first.children()

    first.signal(signal.SIGKILL)
    first.ended()
    until(lambda: not alive(children))
    started = time.monotonic()
    host.worker(start_method=start_method)

    assert within(QUICK, host.began(job_id, times=2).at - started)
    assert 1 == host.ended(job_id).retry_count


def test_what_functions_had_started_does_not_outlive_the_whole_worker_for_long(host: WorkerHost):
    """Otherwise the old process and the new one would run the same job."""
    written = host.place / "pid"
    first = host.worker()
    job_id = host.put("start_a_program", payload={"pid": str(written)})
    program = int(until(lambda: written.exists() and written.read_text()))
    child = host.began(job_id).pid

    first.signal(signal.SIGKILL)
    first.ended()
    until(lambda: not alive([child]))
    assert [program] == alive([program])
    written.unlink()
    heir = host.worker()

    again = int(until(lambda: written.exists() and written.read_text()))
    assert [again] == alive([program, again])
    assert "killed 1 process started" in heir.log


def test_a_neighbour_that_lives_takes_over_without_a_new_worker(host: WorkerHost):
    first = host.worker()
    job_id = host.put("sleep_unless_retried", payload={"seconds": 60})
    host.began(job_id)
    until(host.worker().children)

    first.tree(signal.SIGKILL)
    killed = time.monotonic()

    assert within(QUICK, host.began(job_id, times=2).at - killed)
    assert Status.DONE is host.ended(job_id).status
    # The report of the dead one is removed.
    until(lambda: first.pid not in [report.pid for report in host.queue.workers()])


def test_another_host_takes_over_when_the_lease_is_over_and_the_late_result_is_refused(host: WorkerHost):
    silent = host.worker("there", lease_s=1.0)
    job_id = host.put("sleep_unless_retried", payload={"seconds": 2.0})
    host.began(job_id)
    host.freeze(silent)

    host.worker("here", lease_s=1.0, upkeep_s=0.2)
    taken_over = host.ended(job_id)
    silent.tree(signal.SIGCONT)

    until(lambda: "came too late" in silent.log)
    until(lambda: 1 in host.info("refused"))
    job = host.job(job_id)
    assert (taken_over.status, taken_over.result, taken_over.claim_number) == (Status.DONE, 2, 2)
    assert (job.status, job.result, job.finished_at) == (Status.DONE, 2, taken_over.finished_at)


def test_a_job_that_kills_its_process_every_time_fails_and_takes_nobody_with_it(host: WorkerHost):
    before = host.put_many(100)
    killer = host.put("kill_self", max_retries=1)
    after = host.put_many(99)
    worker = host.worker(until_idle=True)

    assert 0 == worker.ended()

    job = host.job(killer)
    assert (Status.FAILED, "ERR_WORKER_LOST") == (job.status, job.error_code)
    said_last = "Max retries (1) exceeded after restart: worker lost in attempt 2 of 2"
    assert said_last == job.error_message
    assert 2 == len(host.recorded("began", killer))
    others = [host.job(job_id) for job_id in before + after]
    assert {(Status.DONE, 0)} == {(job.status, job.retry_count) for job in others}
    assert [2] == host.info("deaths")
    said = f"job {killer} (content/ingest): "
    assert f"{said}Worker lost in attempt 1 of 2; it is tried again at once" in worker.log
    assert f"{said}{said_last}; it ends as failed" in worker.log


def test_when_the_whole_tree_is_killed_at_most_what_was_executing_spends_a_retry(host: WorkerHost):
    ids = host.put_many(200)
    ids += [host.put("sleep_unless_retried", payload={"seconds": 60}), *host.put_many(99)]
    first = host.worker()
    host.began(ids[200])
    first.tree(signal.SIGKILL)
    first.ended()

    assert 0 == host.worker(until_idle=True).ended()

    jobs = {job_id: host.job(job_id) for job_id in ids}
    assert {Status.DONE} == {job.status for job in jobs.values()}
    assert [ids[200]] == [job_id for job_id, job in jobs.items() if job.retry_count]
    assert [] == list((host.place / "here").iterdir())


def test_of_a_batch_only_the_job_that_kills_its_process_alone_fails(host: WorkerHost):
    """Without retries, all jobs of the batch failed for good."""
    innocent = host.put_many(5, op="update", max_retries=0)
    killer = host.put("kill_self", op="update", max_retries=0)
    innocent += host.put_many(4, op="update", max_retries=0)

    assert 0 == host.worker(until_idle=True).ended()

    assert (Status.FAILED, "ERR_WORKER_LOST") == (host.job(killer).status, host.job(killer).error_code)
    assert {(Status.DONE, 0)} == {(host.job(one).status, host.job(one).retry_count) for one in innocent}


def test_a_batch_whose_whole_tree_was_killed_spends_no_retry(host: WorkerHost):
    ids = [host.put("sleep_unless_retried", payload={"seconds": 60}, op="update", max_retries=0)]
    ids += host.put_many(150, op="update", max_retries=0)
    first = host.worker()
    host.began(ids[0])
    first.tree(signal.SIGKILL)
    first.ended()

    assert 0 == host.worker(until_idle=True).ended()

    assert {Status.DONE} == {host.job(job_id).status for job_id in ids}
    assert 1 < sum(host.job(job_id).lost_count for job_id in ids) <= 10


def test_a_child_that_is_killed_while_idle_is_replaced(host: WorkerHost):
    worker = host.worker()
    first = until(worker.children)
    until(lambda: host.queue.workers())

    os.kill(first[0], signal.SIGKILL)
    until(lambda: worker.children() not in ([], first))

    assert Status.DONE is host.ended(host.put()).status
    assert "killed by signal 9" in worker.log


def test_nothing_a_handler_started_outlives_its_process(host: WorkerHost):
    host.worker(recycle_after=1)
    job_id = host.put("fork_and_stay")

    left_behind = host.ended(job_id).result

    until(lambda: not alive([left_behind]))
