"""Redis only: URL, keys, errors of the server, and restarts."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import redis

from penstock.clock import new_id
from penstock.errors import (
    InvalidRequest,
    InvalidSetting,
    SchemaMismatch,
    StateDamaged,
    StoreUnavailable,
)
from penstock.queue import transitions
from penstock.queue.job import (
    ENDED,
    AddResult,
    ClaimRequest,
    JobQuery,
    NewJob,
    QueueLimits,
    Scope,
    Status,
)
from penstock.queue.protocol import NO_LIMITS
from penstock.queue.redis import codec
from penstock.queue.redis.queue import RedisQueue
from tests.servers.redis import Server, connect, contents, own_server, queue_url
from tests.stores.new_jobs import T0, new
from tests.stores.new_jobs import call as new_call

PATIENCE_S = 120.0


@pytest.fixture
def url(tmp_path: Path) -> str:
    return queue_url(tmp_path)


@pytest.fixture
def client(url: str) -> Iterator[redis.Redis]:
    with connect(url.partition("?")[0]) as client:
        yield client


@pytest.fixture
def queue(url: str) -> Iterator[RedisQueue]:
    queue = RedisQueue(url)
    yield queue
    queue.close()


def prefix(url: str) -> str:
    return f"penstock:{{{url.partition('name=')[2]}}}:"


# The short script of one plain job.


PLAIN = [
    new(2),
    new(2, dedupe=False),
    new(2, lock_key="doc:1", priority=9),
    new(2, tenant_id="other", collection="d", branch="b", max_retries=0, timeout_s=1),
    new_call(2, dedupe=False, payload_json='{"function_name":"run","payload":{"text":"Mühle"}}'),
]


def _contents(url: str) -> dict[str, Any]:
    """All keys of a queue, without its name."""
    own = prefix(url)
    return {key.removeprefix(own): value for key, value in contents(url).items() if key.startswith(own)}


@pytest.mark.parametrize("added", PLAIN)
def test_the_short_script_leaves_what_the_general_one_leaves(
    tmp_path: Path, url: str, queue: RedisQueue, added: NewJob
) -> None:
    other_url = queue_url(tmp_path / "other")
    other = RedisQueue(other_url)
    for each in (queue, other):
        each.add([new(1, lock_key="doc:1"), new_call(9, dedupe=False), new(8, priority=9)], now=T0)
    assert [AddResult(added.queue_id, Status.PENDING)] == queue.add([added], now=T0)
    other._run("add", codec.addition([added], NO_LIMITS), T0)

    assert _contents(other_url) == _contents(url)
    other.close()


def test_the_short_script_writes_nothing_where_rules_have_to_decide(
    url: str, client: redis.Redis, queue: RedisQueue
) -> None:
    def tried(added: NewJob, limits: QueueLimits = NO_LIMITS) -> int:
        arguments = codec.plain_addition(added, limits)
        assert arguments is not None
        done: int = queue._run("add_plain", arguments, T0)
        return done

    queue.add([new(1), new_call(5)], now=T0)
    before = _contents(url)
    same_key = new(3, idempotency_key=new(1).idempotency_key)
    assert [0, 0] == [tried(new(1, idempotency_key="file:c:2")), tried(same_key)]
    assert [0, 0] == [tried(new(3), QueueLimits(indexing=1)), tried(new(3), QueueLimits(per_tenant=1))]
    assert 0 == tried(new_call(6), QueueLimits(functions=1))
    queue.pause(Scope("other", "*"))
    assert 0 == tried(new(3))
    client.delete(f"{prefix(url)}pauses")
    assert before == _contents(url)


# Names and keys.


def test_two_names_on_one_server_are_two_queues(tmp_path: Path, queue: RedisQueue) -> None:
    other = RedisQueue(queue_url(tmp_path / "other"))
    queue.add([new(1)])
    assert [] == other.find(JobQuery())
    assert [] == other.claim(ClaimRequest("w"))
    other.close()


@pytest.mark.parametrize("name", ["", "a b", "a{b}", "x" * 65, "a&name=b"])
def test_a_name_that_could_not_be_a_key_is_refused(url: str, name: str) -> None:
    with pytest.raises(InvalidSetting):
        RedisQueue(f"{url.partition('?')[0]}?name={name}")


def test_an_option_the_driver_does_not_know_is_refused_without_showing_the_password(url: str) -> None:
    with pytest.raises(InvalidSetting) as refusal:
        RedisQueue("redis://:secret@127.0.0.1:notaport/0")
    assert "secret" not in str(refusal.value)


def test_a_job_cannot_join_a_transaction(queue: RedisQueue) -> None:
    with pytest.raises(InvalidRequest):
        queue.add([new(1, dedupe=False)], connection=object())


def test_what_ended_and_was_pruned_leaves_nothing_behind(
    queue: RedisQueue, client: redis.Redis, url: str
) -> None:
    queue.add([new(1, item_type="folder"), new(2, lock_key="l"), new(3, lock_key="l", tenant_id="u")], now=T0)
    queue.pause(Scope("u"), now=T0)
    parent, second = queue.claim(ClaimRequest("w", 10), now=T0)
    queue.settle([transitions.waits(parent, children=(new(4), new(5))), transitions.done(second)], now=T0)
    queue.resume(Scope("u"), now=T0)
    while claims := queue.claim(ClaimRequest("w", 10), now=T0):
        queue.settle([transitions.done(claim, result_json="{}") for claim in claims], now=T0)
    assert {(Status.DONE,): 5} == queue.count(JobQuery(), by=["status"])
    assert 5 == queue.prune(dict.fromkeys(ENDED, T0 + timedelta(seconds=1)))
    left = {key.removeprefix(prefix(url)) for key in contents(url, prefix(url) + "*")}
    assert {"format", "version", "counts", "keys", "locks", "lease"} == left
    assert {0} == {int(number) for number in client.hvals(prefix(url) + "counts")}


def test_a_thousand_jobs_take_little_more_than_a_kilobyte_each(tmp_path: Path) -> None:
    with own_server(tmp_path) as server:
        queue = RedisQueue(server.url)
        client = connect(server.url)
        before = client.info("memory")
        for start in range(0, 10_000, 1_000):
            queue.add([new(start + n, payload_json='{"path":"' + "x" * 240 + '"}') for n in range(1_000)])
        after = client.info("memory")
        each = (after["used_memory"] - before["used_memory"]) / 10_000
        client.close()
        queue.close()
    assert each < 1_500


def test_ten_thousand_are_added_or_none(queue: RedisQueue) -> None:
    with pytest.raises(InvalidRequest):
        queue.add([*(new(n) for n in range(10_000)), new(9_999, idempotency_key="other")])
    assert {} == queue.count(JobQuery())
    assert 10_000 == len(queue.add([new(n) for n in range(10_000)]))
    assert 10_000 == len(queue.claim(ClaimRequest("w", 20_000)))


def test_a_search_reads_no_more_rows_than_are_wanted(
    queue: RedisQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.add([new(number) for number in range(50)])
    read: list[str] = []
    decode = codec.job

    def recorded(name: str, fields: Any) -> Any:
        read.append(name)
        return decode(name, fields)

    monkeypatch.setattr(codec, "job", recorded)

    queue.oldest()
    assert 1 == len(read)

    read.clear()
    pending = JobQuery(statuses=frozenset({Status.PENDING}), limit=7)
    assert [job.queue_id for job in queue.find(pending)] == read
    assert 7 == len(read)


def test_the_servers_clock_counts_to_the_microsecond(queue: RedisQueue, client: redis.Redis) -> None:
    seconds, micros = client.time()
    queue.add([new(1)])
    job = queue.find(JobQuery())[0]
    since = job.created_at - datetime.fromtimestamp(seconds, UTC)
    assert timedelta(microseconds=micros) <= since < timedelta(seconds=PATIENCE_S)


# What is in the queue's place.


@pytest.mark.parametrize(("key", "kind"), [("ready", "zset"), ("keys", "hash"), ("format", "string")])
def test_a_foreign_key_is_found_before_anything_is_written(
    client: redis.Redis, url: str, key: str, kind: str
) -> None:
    client.rpush(prefix(url) + key, "mine")
    before = contents(url, prefix(url) + "*")
    with pytest.raises(StateDamaged, match=f"is a list, not a {kind}"):
        RedisQueue(url)
    assert before == contents(url, prefix(url) + "*")


@pytest.mark.parametrize("mark", ["1", "3", "1000", "one", ""])
def test_another_format_is_refused_and_left_alone(client: redis.Redis, url: str, mark: str) -> None:
    client.set(prefix(url) + "format", mark)
    before = contents(url, prefix(url) + "*")
    with pytest.raises(SchemaMismatch):
        RedisQueue(url)
    assert before == contents(url, prefix(url) + "*")


# Scripts.


def test_scripts_that_the_server_forgot_are_sent_again(queue: RedisQueue, client: redis.Redis) -> None:
    stop = threading.Event()

    def forget() -> None:
        with suppress(redis.exceptions.RedisError):
            while not stop.is_set():
                client.script_flush()

    forgetting = threading.Thread(target=forget)
    forgetting.start()
    try:
        for number in range(200):
            queue.add([new(number)])
        done = 0
        while claims := queue.claim(ClaimRequest("w", 7)):
            done += len(queue.settle([transitions.done(claim) for claim in claims]))
    finally:
        stop.set()
        forgetting.join()
    assert (200, {(Status.DONE,): 200}) == (done, queue.count(JobQuery(), by=["status"]))


def test_an_interrupted_command_leaves_no_answer_to_the_next(queue: RedisQueue) -> None:
    (connection,) = queue._server._kept
    connection.read_response = Mock(side_effect=KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        queue._server._execute("BLPOP", "nothing", "0.5")
    del connection.read_response
    assert b"next" == queue._server._execute("ECHO", "next")


# A server that goes away.


def test_a_queue_outlives_a_restart_of_its_server(tmp_path: Path) -> None:
    server = Server(tmp_path, "--save", "", "--appendonly", "yes", "--appendfsync", "always")
    server.start()
    queue = RedisQueue(server.url, timeout_s=5)
    queue.add([new(1)])
    queue.wait(0)
    server.kill()
    for call in (lambda: queue.add([new(2)]), lambda: queue.wait(0.1), lambda: queue.find(JobQuery())):
        with pytest.raises(StoreUnavailable) as refusal:
            call()
        assert "\n" not in str(refusal.value)
    server.start()
    try:
        queue.add([new(2)])
        assert queue.wait(PATIENCE_S)
        assert ["job_000001", "job_000002"] == [claim.queue_id for claim in queue.claim(ClaimRequest("w", 9))]
        queue.close()
    finally:
        server.kill()


def test_nothing_acknowledged_is_lost_when_the_server_is_killed(tmp_path: Path) -> None:
    server = Server(tmp_path, "--save", "", "--appendonly", "yes", "--appendfsync", "always")
    for _ in range(3):
        server.start()
        queue = RedisQueue(server.url, timeout_s=5)
        added, done = _work_until_killed(queue, server)
        queue.close()
        server.start()
        queue = RedisQueue(server.url, timeout_s=60)
        rows = {job.queue_id: job.status for job in queue.find(JobQuery(limit=1_000_000))}
        assert added <= rows.keys()
        assert {Status.DONE} >= {rows[queue_id] for queue_id in done}
        assert sum(queue.count(JobQuery(), by=["status"]).values()) == len(rows)
        queue.close()
        server.kill()


def _work_until_killed(queue: RedisQueue, server: Server) -> tuple[set[str], set[str]]:
    """Ids acknowledged as added, and as done."""
    added: set[str] = set()
    done: set[str] = set()
    killer = threading.Timer(0.3, server.kill)
    killer.start()
    with suppress(StoreUnavailable):
        while True:
            ids = [new_id() for _ in range(10)]
            queue.add([new(0, queue_id=each, idempotency_key=each) for each in ids])
            added.update(ids)
            claims = queue.claim(ClaimRequest("w", 10))
            queue.settle([transitions.done(claim) for claim in claims])
            done.update(claim.queue_id for claim in claims)
    killer.join()
    return added, done


def test_a_server_that_does_not_answer_is_unavailable(tmp_path: Path) -> None:
    with own_server(tmp_path) as server:
        queue = RedisQueue(server.url, timeout_s=0.2)
        with connect(server.url) as client:
            client.client_pause(2_000)
        with pytest.raises(StoreUnavailable):
            queue.add([new(1)])
        queue.close()


def test_a_dropped_connection_is_made_again(tmp_path: Path) -> None:
    with own_server(tmp_path) as server, connect(server.url) as client:
        queue = RedisQueue(server.url)
        queue.add([new(1)])
        queue.wait(0)
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        assert 1 == len(queue.claim(ClaimRequest("w", 9)))
        queue.add([new(2)])
        assert queue.wait(PATIENCE_S)
        queue.close()


def test_one_connection_is_enough_for_a_url_that_allows_no_more(url: str) -> None:
    queue = RedisQueue(f"{url}&max_connections=1")
    queue.add([new(1)])
    assert 1 == len(queue.find(JobQuery()))
    assert 1 == len(queue.claim(ClaimRequest("w", 9)))
    assert queue.now()
    queue.close()


def test_a_closed_queue_connects_again(queue: RedisQueue) -> None:
    queue.add([new(1)])
    queue.close()
    assert 1 == len(queue.claim(ClaimRequest("w", 9)))
    assert 1 == len(queue.find(JobQuery()))


def test_a_forked_child_has_connections_of_its_own(queue: RedisQueue) -> None:
    queue.add([new(1)])
    queue.wait(0)
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            queue.add([new(2)])
            os._exit(0 if queue.wait(PATIENCE_S) and len(queue.find(JobQuery())) == 2 else 1)
        os._exit(2)
    assert 0 == os.waitpid(pid, 0)[1]
    started = time.monotonic()
    assert queue.wait(PATIENCE_S)
    assert time.monotonic() - started < PATIENCE_S / 2
    assert 2 == len(queue.claim(ClaimRequest("w", 9)))


def test_every_thread_that_waits_is_told(queue: RedisQueue) -> None:
    told: list[bool] = []
    ready = threading.Barrier(4)

    def listen() -> None:
        while queue.wait(0):
            pass
        ready.wait()
        told.append(queue.wait(PATIENCE_S))

    threads = [threading.Thread(target=listen) for _ in range(3)]
    for thread in threads:
        thread.start()
    ready.wait()
    queue.add([new(1)])
    for thread in threads:
        thread.join()
    assert [True] * 3 == told
