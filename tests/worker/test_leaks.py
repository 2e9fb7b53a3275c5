"""Functions leaving something behind in their process: no other job is affected."""

from __future__ import annotations

import pytest

from penstock.queue.job import Status
from tests.servers.stores import ON_FILES
from tests.worker.worker_processes import WorkerHost

ENGINES = ON_FILES


def test_what_a_function_changes_is_not_seen_by_another(host: WorkerHost):
    ids = [host.call(do, max_retries=0) for do in ("state", "tamper", "state")]

    assert 0 == host.worker(until_idle=True).ended()

    before, tampered, after = (host.job(job_id) for job_id in ids)
    assert {(Status.DONE, 0)} == {(job.status, job.retry_count) for job in (before, tampered, after)}
    assert before.result["pid"] != after.result["pid"]
    assert before.result | {"pid": None} == after.result | {"pid": None}
    assert [0] == host.info("deaths")


def test_a_library_that_a_function_loads_does_not_cost_the_process(host: WorkerHost):
    ids = [host.call(do, max_retries=0) for do in ("state", "load_a_library", "state")]

    assert 0 == host.worker(until_idle=True).ended()

    assert 1 == len({host.began(job_id).pid for job_id in ids})


def test_what_penstock_itself_changes_does_not_cost_the_process(host: WorkerHost):
    own = host.put("tamper", op="delete", max_retries=0)
    ids = [host.call(do, max_retries=0) for do in ("state", "noop")]

    assert 0 == host.worker(until_idle=True).ended()

    assert 1 == len({host.began(job_id).pid for job_id in (own, *ids)})


@pytest.mark.parametrize("do", ["leak_descriptors", "leak_many_threads", "leak_memory", "tamper_for_good"])
def test_what_a_function_leaves_behind_ends_the_process_before_another_runs(host: WorkerHost, do: str):
    first, leaking, *others = (host.call(name, max_retries=0) for name in ("state", do, "state", "state"))
    worker = host.worker(until_idle=True, recycle_growth_mb=100)

    assert 0 == worker.ended()

    jobs = [host.job(job_id) for job_id in (first, leaking, *others)]
    assert {(Status.DONE, 0)} == {(job.status, job.retry_count) for job in jobs}
    pids = [host.began(job_id).pid for job_id in (first, leaking, *others)]
    assert pids[0] == pids[1] != pids[2] == pids[3]
    assert jobs[2].result == jobs[3].result
    assert [0] == host.info("deaths")
    assert f"last ran: '{do}'" in worker.log


@pytest.mark.parametrize("do", ["shout", "shout_behind"])
def test_an_error_of_50_mb_is_cut_before_anything_touches_it(host: WorkerHost, do: str):
    final, retried = host.call(do, max_retries=0), host.call(do, max_retries=1)
    other = host.call("state")
    worker = host.worker()

    assert Status.DONE is host.ended(other).status
    assert Status.FAILED is host.ended(final).status

    assert (host.job(final).error_message or "").startswith(("ValueError: xxx", "RuntimeError: short"))
    assert f"in {do}" in (host.job(retried).progress or {}).get("traceback", "")
    assert len(worker.log) < 50_000
