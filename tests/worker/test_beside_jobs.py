"""Jobs that wait for the network, in threads: they hold up no other job, on every engine."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator

import msgspec
import pytest

from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, JobQuery, Status
from penstock.queue.transitions import WEBHOOK
from penstock.worker.child import MOST_BESIDE
from tests.worker.worker_processes import WorkerHost, until, within

RECEIVERS = 12


class Silent:
    """A receiver that takes connections and never answers."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=200)
        self._socket.setblocking(False)
        self._taken: list[socket.socket] = []
        self.port = self._socket.getsockname()[1]

    def connections(self) -> int:
        try:
            while True:
                self._taken.append(self._socket.accept()[0])
        except BlockingIOError:
            return len(self._taken)

    def answer(self) -> None:
        """Answer all that wait."""
        self.connections()
        for taken in self._taken:
            taken.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            taken.close()
        self._taken = []

    def close(self) -> None:
        for taken in (*self._taken, self._socket):
            taken.close()


@pytest.fixture
def silent() -> Iterator[Silent]:
    opened = Silent()
    yield opened
    opened.close()


def deliveries(host: WorkerHost, silent: Silent, number: int = RECEIVERS) -> list[str]:
    ended = host.put()
    host.queue.settle([transitions.done(claim) for claim in host.queue.claim(ClaimRequest("test"))])
    body = {"function_name": WEBHOOK, "payload": {"url": f"http://127.0.0.1:{silent.port}/"}}
    hook = host.new(item_type="function", op="run", after=(ended,), run_after_failure=True)
    new = [
        msgspec.structs.replace(
            hook,
            queue_id=f"{hook.queue_id}-{one}",
            idempotency_key=f"hook {one}",
            payload_json=msgspec.json.encode(body).decode(),
        )
        for one in range(number)
    ]
    host.queue.add(new)
    return [job.queue_id for job in new]


def test_silent_receivers_hold_up_no_other_job_of_the_only_process(host: WorkerHost, silent: Silent):
    ids = deliveries(host, silent)
    host.worker()
    until(lambda: silent.connections() == RECEIVERS)

    added = time.monotonic()
    job_id = host.put(priority=9)

    assert Status.DONE is host.ended(job_id).status
    assert within(1.0, time.monotonic() - added)
    assert {Status.IN_PROGRESS} == {host.job(one).status for one in ids}
    silent.answer()
    assert [(Status.DONE, {"status": 200})] * RECEIVERS == [
        (job.status, job.result) for job in map(host.ended, ids)
    ]
    assert {(1, 0)} == {(job.claim_number, job.retry_count) for job in map(host.job, ids)}


def test_no_more_deliveries_than_a_bounded_number_run_at_once(host: WorkerHost, silent: Silent):
    ids = deliveries(host, silent, MOST_BESIDE + 3)
    host.worker()
    until(lambda: silent.connections() == MOST_BESIDE)
    held = JobQuery(statuses=frozenset({Status.PENDING}), error_code="ERR_TOO_EARLY")
    left = until(lambda: host.queue.find(held))

    assert {0} == {job.retry_count for job in left}
    assert Status.DONE is host.ended(host.put()).status

    def all_done() -> bool:
        silent.answer()
        return host.count(Status.DONE) == len(ids) + 2

    until(all_done)


def test_deliveries_are_not_released_behind_a_slow_job(host: WorkerHost, silent: Silent):
    """The supervisor releases what waits behind a job that blocks the interpreter."""
    (delivery,) = deliveries(host, silent, 1)
    host.worker()
    until(silent.connections)
    slow = host.put("regex", timeout_s=5)
    host.began(slow)

    assert Status.FAILED is host.ended(slow).status

    # With the process of the slow job it is released, and begins once more.
    until(lambda: silent.connections() == 2)
    job = host.job(delivery)
    assert (2, 0, 0) == (job.claim_number, job.retry_count, job.lost_count)


def test_deliveries_of_a_killed_process_are_sent_again(host: WorkerHost, silent: Silent):
    ids = deliveries(host, silent, 3)
    worker = host.worker()
    until(lambda: silent.connections() == 3)

    (child,) = [pid for pid in worker.children() if os.getpgid(pid) == pid]
    os.kill(child, signal.SIGKILL)
    until(lambda: silent.connections() == 6)
    silent.answer()

    jobs = list(map(host.ended, ids))
    assert {(Status.DONE, 2, 0)} == {(job.status, job.claim_number, job.retry_count) for job in jobs}


def test_a_worker_that_stops_waits_for_its_deliveries(host: WorkerHost, silent: Silent):
    ids = deliveries(host, silent, 3)
    worker = host.worker()
    until(lambda: silent.connections() == 3)

    worker.signal(signal.SIGTERM)
    until(lambda: "finishing running jobs" in worker.log)
    silent.answer()

    assert 0 == worker.ended()
    assert {(Status.DONE, 1)} == {(job.status, job.claim_number) for job in map(host.job, ids)}
