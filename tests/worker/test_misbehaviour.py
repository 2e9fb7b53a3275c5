"""Handlers that do what they should not: the worker survives, and the job ends with a clear reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.job import Status
from tests.servers.stores import ON_FILES
from tests.worker.worker_processes import ROOT, WorkerHost, seconds_on_a_core

ENGINES = ON_FILES

FAILING = {
    "sys_exit": ("ERR_UNKNOWN", "SystemExit: enough"),
    "catastrophe": ("ERR_UNKNOWN", "Catastrophe: not an Exception"),
    "interrupt": ("ERR_UNKNOWN", "KeyboardInterrupt"),
    "unspeakable": ("ERR_UNKNOWN", "Unspeakable: (its text cannot be shown)"),
    "surrogates": ("ERR_PERMANENT", r"PermanentFailure: bad \ud800 text \x00 here"),
    "garbage": ("ERR_BAD_RESULT", "cannot be stored as JSON"),
    "hostile": ("ERR_BAD_RESULT", "cannot be stored as JSON"),
    "no_text": ("ERR_BAD_RESULT", "cannot be stored as JSON"),
    "too_large": ("ERR_BAD_RESULT", "2,000,002 bytes"),
    "taken_child": ("ERR_DUPLICATE_ID", "the store refused its result"),
    "exit_hard": ("ERR_WORKER_LOST", "Worker lost"),
    "not a handler": ("ERR_UNKNOWN", "KeyError"),
}
ENDING = ("fork", "fork_and_stay", "close_stdin", "chdir", "leak_threads")
AFTERWARDS = {"where": str(ROOT), "read_stdin": "", "noop": {"ran": 1}}


def test_whatever_a_handler_does_its_worker_goes_on(field: WorkerHost):
    failing = {do: field.put(do, max_retries=0) for do in FAILING}
    ending = {do: field.put(do) for do in ENDING}
    afterwards = {do: field.put(do, priority=1) for do in AFTERWARDS}
    worker = field.worker(until_idle=True)

    assert 0 == worker.ended()

    for do, (code, message) in FAILING.items():
        job = field.job(failing[do])
        assert (Status.FAILED, code) == (job.status, job.error_code), (do, job.error_message)
        assert message in (job.error_message or ""), do
        assert 1 == len(field.recorded("began", job.queue_id)), do
    for do, job_id in ending.items():
        assert (Status.DONE, 0) == (field.job(job_id).status, field.job(job_id).retry_count), do
    for do, result in AFTERWARDS.items():
        assert result == field.job(afterwards[do]).result, do
    # A fork came back twice, but only one of the two settled, and went on claiming.
    assert 2 == len(field.recorded("ended", ending["fork"]))
    assert [0] == field.info("refused")
    assert [1] == field.info("deaths")


def test_a_payload_that_cannot_be_read_fails_its_job_only(field: WorkerHost):
    bad = field.put(payload_json="{")
    good = field.put()

    assert 0 == field.worker(until_idle=True).ended()

    assert (Status.FAILED, "ERR_PARSE") == (field.job(bad).status, field.job(bad).error_code)
    assert Status.DONE is field.job(good).status


def test_a_timer_that_was_left_running_does_not_hit_the_next_job(field: WorkerHost):
    ids = [field.put("leave_a_timer"), field.put("compute", payload={"seconds": 0.7}, max_retries=0)]
    worker = field.worker()

    assert {Status.DONE} == {field.ended(job_id).status for job_id in ids}
    # It still listens: a stop reaches it at once.
    endless = field.put("tidy", timeout_s=1)
    assert Status.FAILED is field.ended(endless).status
    assert 1 == len(field.recorded("tidied", endless))
    assert "died" not in worker.log


def test_a_clock_that_was_replaced_does_not_time_out_the_next_job(field: WorkerHost):
    ids = [
        field.put("stop_the_clock"),
        field.put(timeout_s=5),
        field.put("compute", payload={"seconds": 0.3}),
    ]

    field.worker()

    assert {(Status.DONE, 0)} == {
        (field.ended(job_id).status, field.job(job_id).retry_count) for job_id in ids
    }


def test_whoever_read_its_output_may_go(field: WorkerHost):
    """As with `penstock worker | head -1`: functions that print go on."""
    worker = field.worker(piped=True)
    assert Status.DONE is field.ended(field.put()).status
    assert worker.process.stdout is not None
    worker.process.stdout.close()

    ids = [field.put("print_much", max_retries=0) for _ in range(2)]

    assert [Status.DONE, Status.DONE] == [field.ended(job_id).status for job_id in ids]


@pytest.mark.parametrize("do", ["close_stdout", "mute_stdout"])
def test_streams_are_there_again_for_the_next_job(field: WorkerHost, do: str):
    ids = [field.put(do), field.put("print_much", max_retries=0)]
    field.worker()

    assert [Status.DONE, Status.DONE] == [field.ended(job_id).status for job_id in ids]


@pytest.mark.parametrize("start_method", ["spawn", "fork"])
def test_a_handler_that_closes_all_descriptors_is_done_and_its_process_goes_at_once(
    field: WorkerHost, start_method: str
):
    ids = [field.put(), field.put("close_all", payload={"seconds": 1.0}), field.put()]
    worker = field.worker(start_method=start_method)

    field.began(ids[1])
    before = seconds_on_a_core([worker.pid])
    field.ended(ids[1], timeout=15)
    # Its death could no longer be waited for, but nobody span over it either.
    assert seconds_on_a_core([worker.pid]) - before < 0.4
    jobs = [field.ended(job_id, timeout=15) for job_id in ids]

    assert {(Status.DONE, 0)} == {(job.status, job.retry_count) for job in jobs}
    assert "closed" == jobs[1].result
    assert 1 == len(field.recorded("began", ids[1]))
    assert field.began(ids[1]).pid != field.began(ids[2]).pid
    assert "closed the descriptors of its process" in worker.log


def test_threads_that_were_left_behind_do_not_keep_a_process(field: WorkerHost):
    worker = field.worker(recycle_after=1)
    first = field.put("leak_threads")
    second = field.put()

    pids = {field.began(job_id).pid for job_id in (first, second) if field.ended(job_id)}

    assert 2 == len(pids)
    assert not Path(f"/proc/{field.began(first).pid}").exists() or worker.children()
