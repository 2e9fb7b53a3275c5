"""Misbehaving handlers: the worker survives, and the job ends with a clear reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.queue.job import Status
from tests.servers.stores import ON_FILES
from tests.worker.kill_load import persist
from tests.worker.worker_processes import ROOT, WorkerHost, seconds_on_a_core, until

ENGINES = ON_FILES

FAILING = {
    "sys_exit": ("ERR_UNKNOWN", "SystemExit: enough"),
    "catastrophe": ("ERR_UNKNOWN", "Catastrophe: not an Exception"),
    "interrupt": ("ERR_UNKNOWN", "KeyboardInterrupt"),
    "unspeakable": ("ERR_UNKNOWN", "Unspeakable: (its text cannot be shown)"),
    "surrogates": ("ERR_PERMANENT", r"bad \ud800 text \x00 here"),
    "garbage": ("ERR_BAD_RESULT", "cannot be stored as JSON"),
    "hostile": ("ERR_BAD_RESULT", "cannot be stored as JSON"),
    "no_text": ("ERR_BAD_RESULT", "cannot be stored as JSON"),
    "too_large": ("ERR_BAD_RESULT", "2,000,002 bytes"),
    "taken_child": ("ERR_DUPLICATE_ID", "the store refused its result"),
    "exit_hard": ("ERR_WORKER_LOST", "worker lost"),
    "not a handler": ("ERR_UNKNOWN", "KeyError"),
}
ENDING = ("fork", "fork_and_stay", "close_stdin", "chdir", "leak_threads")
AFTERWARDS = {"where": str(ROOT), "read_stdin": "", "noop": {"ran": 1}}


def test_whatever_a_handler_does_its_worker_goes_on(host: WorkerHost):
    failing = {do: host.put(do, max_retries=0) for do in FAILING}
    ending = {do: host.put(do) for do in ENDING}
    afterwards = {do: host.put(do, priority=1) for do in AFTERWARDS}
    worker = host.worker(until_idle=True)

    assert 0 == worker.ended()

    for do, (code, message) in FAILING.items():
        job = host.job(failing[do])
        assert (Status.FAILED, code) == (job.status, job.error_code), (do, job.error_message)
        assert message in (job.error_message or ""), do
        assert 1 == len(host.recorded("began", job.queue_id)), do
    for do, job_id in ending.items():
        assert (Status.DONE, 0) == (host.job(job_id).status, host.job(job_id).retry_count), do
    for do, result in AFTERWARDS.items():
        assert result == host.job(afterwards[do]).result, do
    # A fork returned twice, but only one process settled the job and went on claiming.
    assert 2 == len(host.recorded("ended", ending["fork"]))
    assert [0] == host.info("refused")
    assert [1] == host.info("deaths")


def test_a_payload_that_cannot_be_read_fails_its_job_only(host: WorkerHost):
    bad = host.put(payload_json="{")
    good = host.put()

    assert 0 == host.worker(until_idle=True).ended()

    assert (Status.FAILED, "ERR_STATE_DAMAGED") == (host.job(bad).status, host.job(bad).error_code)
    assert Status.DONE is host.job(good).status


def test_a_timer_that_was_left_running_does_not_hit_the_next_job(host: WorkerHost):
    ids = [host.put("leave_a_timer"), host.put("compute", payload={"seconds": 0.7}, max_retries=0)]
    worker = host.worker()

    assert {Status.DONE} == {host.ended(job_id).status for job_id in ids}
    # It still handles signals: a stop takes effect at once.
    endless = host.put("tidy", timeout_s=1)
    assert Status.FAILED is host.ended(endless).status
    assert 1 == len(host.recorded("tidied", endless))
    assert "died" not in worker.log


def test_a_clock_that_was_replaced_does_not_time_out_the_next_job(host: WorkerHost):
    ids = [
        host.put("stop_the_clock"),
        host.put(timeout_s=5),
        host.put("compute", payload={"seconds": 0.3}),
    ]

    host.worker()

    assert {(Status.DONE, 0)} == {(host.ended(job_id).status, host.job(job_id).retry_count) for job_id in ids}


def test_whoever_read_its_output_may_go(host: WorkerHost):
    """As with `penstock worker | head -1`: printing functions go on."""
    worker = host.worker(piped=True)
    assert Status.DONE is host.ended(host.put()).status
    assert worker.process.stdout is not None
    worker.process.stdout.close()

    ids = [host.put("print_much", max_retries=0) for _ in range(2)]

    assert [Status.DONE, Status.DONE] == [host.ended(job_id).status for job_id in ids]


@pytest.mark.parametrize("do", ["close_stdout", "mute_stdout"])
def test_streams_are_there_again_for_the_next_job(host: WorkerHost, do: str):
    ids = [host.put(do), host.put("print_much", max_retries=0)]
    host.worker()

    assert [Status.DONE, Status.DONE] == [host.ended(job_id).status for job_id in ids]


def test_a_handler_that_closes_all_descriptors_is_done_and_its_process_goes_at_once(
    host: WorkerHost, start_method: str
):
    ids = [host.put(), host.put("close_all", payload={"seconds": 1.0}), host.put()]
    worker = host.worker(start_method=start_method)

    host.began(ids[1])
    before = seconds_on_a_core([worker.pid])
    host.ended(ids[1])
    # The sentinel was useless, but the supervisor did not spin on it.
    assert seconds_on_a_core([worker.pid]) - before < 0.4
    jobs = [host.ended(job_id) for job_id in ids]

    assert {(Status.DONE, 0)} == {(job.status, job.retry_count) for job in jobs}
    assert "closed" == jobs[1].result
    assert 1 == len(host.recorded("began", ids[1]))
    assert host.began(ids[1]).pid != host.began(ids[2]).pid
    assert "closed the descriptors of its process" in worker.log


def test_threads_that_were_left_behind_do_not_keep_a_process(host: WorkerHost):
    worker = host.worker(recycle_after=1)
    first = host.put("leak_threads")
    second = host.put()

    pids = {host.began(job_id).pid for job_id in (first, second) if host.ended(job_id)}

    assert 2 == len(pids)
    assert not Path(f"/proc/{host.began(first).pid}").exists() or worker.children()


def test_a_handler_that_blocks_the_store_is_stopped_and_runs_alone(host: WorkerHost):
    name = "queue" if host.engine == "jsonl" else "queue.db"
    stuck = host.put("block_the_store", payload={"store": str(host.place / name)}, max_retries=0)
    worker = host.worker(until_idle=True, lock_silence_s=1.0)
    until(lambda: host.recorded("began", stuck))
    # Written as soon as the lock is free again.
    later = persist(host.put)

    assert 0 == worker.ended()

    job = host.job(stuck)
    assert (Status.DONE, "done", 2, 0) == (job.status, job.result, job.claim_number, job.retry_count)
    assert Status.DONE == host.job(later).status
    assert "blocks its process, which has the lock of the store" in worker.log
