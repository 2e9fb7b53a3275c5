"""How the living know who died: by locks on files, whatever became of the process numbers."""

from __future__ import annotations

import os
import signal

import pytest

from penstock.job import ClaimRequest, Settlement, Status
from penstock.worker.lifefile import LifeFile, release_dead, slot_path
from penstock.worker.slot import Member, Slot
from tests.worker.processes import Field


def died(field: Field, *, executing: int | None, results: int = 0) -> list[str]:
    """A supervisor whose child held three jobs; which of them it executed, how many it had finished."""
    ids = field.put_many(3)
    directory = field.place / "workers"
    life = LifeFile(directory, "dead")
    life.adopt("dead-1")
    slot = Slot.create(slot_path(directory, "dead-1"))
    claims = field.queue.claim(ClaimRequest("dead-1", 3))
    if executing is not None:
        slot.begin((Member(ids[executing], claims[executing].claim_number, 60),), 1.0)
    slot.keep(
        [
            Settlement(queue_id=claim.queue_id, claim_number=1, status=Status.DONE, what="done")
            for claim in claims[:results]
        ]
    )
    slot.close()
    life.close(remove=False)
    return ids


def test_what_a_dead_supervisor_held_is_settled_as_its_slots_say(field: Field):
    ids = died(field, executing=1, results=1)

    assert 2 == release_dead(field.queue, field.place / "workers")

    jobs = [field.job(job_id) for job_id in ids]
    assert [Status.DONE, Status.PENDING, Status.PENDING] == [job.status for job in jobs]
    assert [0, 1, 0] == [job.retry_count for job in jobs]
    assert [] == list((field.place / "workers").iterdir())
    assert 0 == release_dead(field.queue, field.place / "workers")


def test_the_living_are_left_alone(field: Field):
    directory = field.place / "workers"
    life = LifeFile(directory, "alive")
    life.adopt("alive-1")
    field.put()
    field.queue.claim(ClaimRequest("alive-1"))

    assert 0 == release_dead(field.queue, directory)

    assert 1 == field.count(Status.IN_PROGRESS)
    life.close()


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_does_not_keep_its_dead_supervisor_alive(field: Field):
    directory = field.place / "workers"
    life = LifeFile(directory, "dead")
    running, write_running = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write_running, b".")
        signal.pause()
    try:
        os.read(running, 1)
        life.close(remove=False)

        release_dead(field.queue, directory)

        assert [] == list(directory.iterdir())
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(running)
        os.close(write_running)
