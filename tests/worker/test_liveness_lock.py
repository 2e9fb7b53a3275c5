"""Liveness locks: dead supervisors are found by locks on files, not by process ids."""

from __future__ import annotations

import os
import signal

import pytest

from penstock.queue.job import ClaimRequest, Settlement, Status
from penstock.worker.liveness_lock import LivenessLock, release_dead, state_path
from penstock.worker.shared_state import _LAYOUT, _RESULTS, ExecutingJob, SharedState
from tests.servers.stores import DURABLE
from tests.worker.worker_processes import WorkerHost

FIRST = DURABLE


def died(host: WorkerHost, *, executing: int | None, results: int = 0, name: str = "dead") -> list[str]:
    """Leave a dead supervisor with a child holding three jobs; return the ids of the jobs."""
    ids = host.put_many(3)
    directory = host.place / "workers"
    lock = LivenessLock(directory, name)
    lock.add_child(f"{name}-1")
    state = SharedState.create(state_path(directory, f"{name}-1"))
    claims = host.queue.claim(ClaimRequest(f"{name}-1", 3))
    if executing is not None:
        state.begin((ExecutingJob(ids[executing], claims[executing].claim_number, 60),), 1.0)
    state.save_results(
        [
            Settlement(queue_id=claim.queue_id, claim_number=1, status=Status.DONE, what="done")
            for claim in claims[:results]
        ]
    )
    state.close()
    lock.close(remove=False)
    return ids


def test_what_a_dead_supervisor_held_is_settled_as_its_slots_say(host: WorkerHost):
    ids = died(host, executing=1, results=1)

    assert 2 == release_dead(host.queue, host.place / "workers")

    jobs = [host.job(job_id) for job_id in ids]
    assert [Status.DONE, Status.PENDING, Status.PENDING] == [job.status for job in jobs]
    assert [0, 1, 0] == [job.retry_count for job in jobs]
    assert [] == list((host.place / "workers").iterdir())
    assert 0 == release_dead(host.queue, host.place / "workers")


def test_a_slot_that_cannot_be_read_is_settled_without_it(host: WorkerHost):
    """Torn by a power cut, or written by another version: the jobs go on, and so do later workers."""
    torn, foreign = died(host, executing=1, name="torn"), died(host, executing=1, name="foreign")
    directory = host.place / "workers"
    page = bytearray(state_path(directory, "torn-1").read_bytes())
    page[_RESULTS * 8 : _RESULTS * 8 + 8] = (200).to_bytes(8, "little")
    state_path(directory, "torn-1").write_bytes(page)
    page = bytearray(state_path(directory, "foreign-1").read_bytes())
    page[_LAYOUT * 8] += 1
    state_path(directory, "foreign-1").write_bytes(page)

    assert 6 == release_dead(host.queue, directory)

    assert 6 == host.count(Status.PENDING)
    assert [0, 1, 0] == [host.job(job_id).retry_count for job_id in torn]
    assert [0, 0, 0] == [host.job(job_id).retry_count for job_id in foreign]
    assert [] == list(directory.iterdir())


def test_a_file_that_cannot_be_opened_is_passed_over_with_one_warning(
    host: WorkerHost, caplog: pytest.LogCaptureFixture
):
    """The file of another user, for example. Here: a loop of links, which not even root can open."""
    ids = died(host, executing=None)
    directory = host.place / "workers"
    unreadable = directory / "another.worker"
    unreadable.symlink_to(unreadable)

    assert [3, 0] == [release_dead(host.queue, directory) for _ in range(2)]

    assert {Status.PENDING} == {host.job(job_id).status for job_id in ids}
    assert 1 == caplog.text.count("another.worker cannot be read")


def test_a_slot_that_cannot_be_opened_does_not_keep_the_others(host: WorkerHost):
    died(host, executing=None, name="bad")
    ids = died(host, executing=None, name="good")
    directory = host.place / "workers"
    state = state_path(directory, "bad-1")
    state.unlink()
    state.symlink_to(state)

    release_dead(host.queue, directory)

    assert {Status.PENDING} == {host.job(job_id).status for job_id in ids}


def test_the_living_are_left_alone(host: WorkerHost):
    directory = host.place / "workers"
    lock = LivenessLock(directory, "alive")
    lock.add_child("alive-1")
    host.put()
    host.queue.claim(ClaimRequest("alive-1"))

    assert 0 == release_dead(host.queue, directory)

    assert 1 == host.count(Status.IN_PROGRESS)
    lock.close()


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_does_not_keep_its_dead_supervisor_alive(host: WorkerHost):
    directory = host.place / "workers"
    lock = LivenessLock(directory, "dead")
    running, write_running = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write_running, b".")
        signal.pause()
    try:
        os.read(running, 1)
        lock.close(remove=False)

        release_dead(host.queue, directory)

        assert [] == list(directory.iterdir())
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(running)
        os.close(write_running)
