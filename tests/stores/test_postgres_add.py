"""Add of plain jobs on PostgreSQL: a single statement, also with a cut connection."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from penstock.errors import DuplicateId, QueueFull, StoreUnavailable
from penstock.queue.job import ClaimRequest, Job, JobQuery, NewJob, QueueLimits, Scope, Status
from penstock.queue.postgres.queue import PostgresQueue
from tests.servers import postgres
from tests.stores.new_jobs import call as new


class Line:
    """A proxy to the server, cut before a request arrives or before the response returns."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ear = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.port = self._ear.getsockname()[1]
        self.cut_at: bytes | None = None
        self.answered = False
        """Whether the server may answer what the line is cut at."""
        self.last_words = b""
        """What comes back before the line is cut."""
        self.statements: list[bytes] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._ear.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                self._open += [near, far]
                threading.Thread(target=self._pass_on, args=(near, far), daemon=True).start()

    def _pass_on(self, near: socket.socket, far: socket.socket) -> None:
        threading.Thread(target=self._pass_back, args=(far, near), daemon=True).start()
        with suppress(OSError):
            while said := near.recv(1 << 16):
                self.statements.append(said)
                if self.cut_at is not None and self.cut_at in said:
                    self.cut_at = None
                    near.sendall(self.last_words)
                    if self.answered:
                        # Nothing more comes back; what was asked for is done all the same.
                        near.shutdown(socket.SHUT_WR)
                        far.sendall(said)
                    break
                far.sendall(said)
        near.close()

    def _pass_back(self, far: socket.socket, near: socket.socket) -> None:
        with suppress(OSError):
            while said := far.recv(1 << 16):
                near.sendall(said)

    def close(self) -> None:
        for each in (self._ear, *self._open):
            # Whoever waits in it would keep it open.
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@pytest.fixture
def url() -> str:
    return postgres.fresh_store()


@pytest.fixture
def line(url: str) -> Iterator[Line]:
    port = re.search(r":(\d+)/", url)
    assert port is not None
    line = Line(int(port[1]))
    yield line
    line.close()


@pytest.fixture
def queue(url: str, line: Line) -> Iterator[PostgresQueue]:
    queue = PostgresQueue(re.sub(r":\d+/", f":{line.port}/", url))
    queue.add([new(1)])
    yield queue
    queue.close()


def _ids(url: str) -> list[str]:
    with psycopg.connect(url) as own:
        return [name for (name,) in own.execute("SELECT queue_id FROM unified_queue ORDER BY 1").fetchall()]


def test_it_is_one_message_to_the_server(queue: PostgresQueue, line: Line) -> None:
    line.statements.clear()
    queue.add([new(2)])

    assert 1 == len(line.statements)


@pytest.mark.parametrize("answered", [False, True])
def test_it_is_there_once_where_the_line_was_cut(
    queue: PostgresQueue, line: Line, url: str, answered: bool
) -> None:
    line.answered = answered
    line.cut_at = b"job_000002"
    (added,) = queue.add([new(2)])

    assert ("job_000002", Status.PENDING, False) == (added.queue_id, added.status, added.dedupe_hit)
    assert ["job_000001", "job_000002"] == _ids(url)


def _message(kind: bytes, said: bytes = b"") -> bytes:
    return kind + (4 + len(said)).to_bytes(4, "big") + said


DONE = (
    _message(b"2")
    + _message(
        b"T", b"\0\1pg_notify\0" + bytes(6) + (2278).to_bytes(4, "big") + b"\0\4" + b"\xff" * 4 + b"\0\0"
    )
    + _message(b"D", b"\0\1" + bytes(4))
    + _message(b"C", b"INSERT 0 1\0")
)
ENDED = _message(b"E", b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0")


@pytest.mark.parametrize("said", [b"", DONE], ids=["before", "after"])
def test_it_is_there_once_where_the_server_ended_the_session(
    queue: PostgresQueue, line: Line, url: str, said: bytes
) -> None:
    """Before the statement, or after it and before its commit."""
    line.last_words = said + ENDED
    line.cut_at = b"job_000002"
    (added,) = queue.add([new(2)])

    assert ("job_000002", Status.PENDING, False) == (added.queue_id, added.status, added.dedupe_hit)
    assert ["job_000001", "job_000002"] == _ids(url)


def test_an_id_that_was_taken_before_is_refused_also_then(queue: PostgresQueue, line: Line) -> None:
    line.cut_at = b"job_000001"
    with pytest.raises(DuplicateId):
        queue.add([new(1, idempotency_key="another", dedupe=False)])


def test_a_refusal_does_not_stand_in_the_way_of_the_next(queue: PostgresQueue, url: str) -> None:
    """After a ROLLBACK the driver has the session forget every statement, not only its own."""
    for _ in range(10):
        # So often that the driver has one.
        queue.get("job_000001")
    with pytest.raises(DuplicateId):
        queue.add([new(1, idempotency_key="another", dedupe=False)])
    queue.add([new(2)])
    queue.add([new(3)])

    assert ["job_000001", "job_000002", "job_000003"] == _ids(url)


def test_a_server_that_stays_away_is_told(queue: PostgresQueue, line: Line) -> None:
    line.close()
    with pytest.raises(StoreUnavailable):
        queue.add([new(2)])


def test_a_full_queue_counts_before_it_refuses(queue: PostgresQueue) -> None:
    limits = QueueLimits(functions=2, indexing=1, per_tenant=1)
    queue.add([new(2)], limits=limits)
    with pytest.raises(QueueFull, match="2"):
        queue.add([new(3)], limits=limits)
    (hit,) = queue.add([new(4, idempotency_key=new(2).idempotency_key)], limits=limits)
    queue.add([new(5, item_type="file", op="ingest")], limits=limits)
    with pytest.raises(QueueFull, match="1"):
        queue.add([new(6, item_type="file", op="ingest")], limits=QueueLimits(indexing=9, per_tenant=1))

    assert ("job_000002", True) == (hit.queue_id, hit.dedupe_hit)
    assert {(): 3} == queue.count(JobQuery())


@pytest.mark.parametrize("where", ["tenant_id", "priority"])
def test_turns_are_those_of_the_general_path(queue: PostgresQueue, where: str) -> None:
    other: dict[str, Any] = {"tenant_id": "u"} if where == "tenant_id" else {"priority": 7}
    adds = [new(2), new(3), new(4, **other), new(5, **other), new(6)]
    for each in adds:
        queue.add([each])
    alone = {job.queue_id: job.turn for job in queue.find(JobQuery())}
    second = PostgresQueue(postgres.fresh_store())
    second.add([new(1)])
    second.add(adds)
    together = {job.queue_id: job.turn for job in second.find(JobQuery())}
    second.close()

    assert together == alone


@pytest.mark.parametrize("alike", [True, False])
def test_a_batch_is_kept_as_it_was_given_whether_its_rows_are_alike(
    queue: PostgresQueue, alike: bool
) -> None:
    odd = "a\"b\\c,{d} 'NULL' ü"
    fields = {"tenant_id": odd, "branch": "NULL", "metadata": '{"a":"\\\\"}', "dedupe": False}
    # More than are sent at once.
    given = [
        new(
            number,
            **fields,
            payload_json=f'{{"n":{number}}}',
            priority=5 if alike else number % 3,
            lock_key=key,
        )
        for number, key in zip(range(10, 1_210), [odd, None] * 600, strict=True)
    ]
    queue.add(given)
    found = {job.queue_id: job for job in queue.find(JobQuery(tenant_id=odd, limit=2_000))}
    names = [name for name in NewJob.__struct_fields__ if name in Job.__struct_fields__]

    assert given == [
        NewJob(**{name: getattr(found[item.queue_id], name) for name in names}) for item in given
    ]


# Many calls that are alike.


def _calls(*numbers: int, **fields: object) -> list[NewJob]:
    return [new(number, dedupe=False, **fields) for number in numbers]


def test_calls_that_are_alike_are_one_message_to_the_server(queue: PostgresQueue, line: Line) -> None:
    queue.add(_calls(2, 3))
    line.statements.clear()
    queue.add(_calls(4, 5, 6))

    assert 1 == len(line.statements)
    assert [0, 1, 2, 3, 4, 5] == [job.turn for job in queue.find(JobQuery())]


@pytest.mark.parametrize("answered", [False, True])
def test_all_of_them_are_there_once_where_the_line_was_cut(
    queue: PostgresQueue, line: Line, url: str, answered: bool
) -> None:
    queue.add(_calls(2, 3))
    line.answered = answered
    line.cut_at = b"job_000005"
    added = queue.add(_calls(4, 5))

    assert ["job_000004", "job_000005"] == [each.queue_id for each in added]
    assert [f"job_00000{number}" for number in range(1, 6)] == _ids(url)


def test_none_of_them_is_written_where_an_id_is_taken(queue: PostgresQueue, url: str) -> None:
    queue.add(_calls(4))
    with pytest.raises(DuplicateId, match="job_000004"):
        queue.add(_calls(3, 4, 5))
    queue.add(_calls(6, 7))

    assert ["job_000001", "job_000004", "job_000006", "job_000007"] == _ids(url)


def test_limits_and_pauses_count_for_all_of_them(queue: PostgresQueue) -> None:
    with pytest.raises(QueueFull):
        queue.add(_calls(2, 3), limits=QueueLimits(functions=2))
    queue.pause(Scope("t", "*"))
    queue.add(_calls(2, 3))
    assert [] == queue.claim(ClaimRequest("w"))
    queue.resume(Scope("t", "*"))

    assert 3 == len(queue.claim(ClaimRequest("w", limit=5)))
