"""Errors of a Redis server: one line with the reason and a remedy, and nothing changed."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from penstock import Penstock
from penstock.clock import now
from penstock.errors import (
    DiskFull,
    DriverMissing,
    InvalidSetting,
    PenstockError,
    SchemaMismatch,
    StatementRefused,
    StoreDenied,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, JobQuery, Status
from penstock.queue.redis.queue import RedisQueue
from penstock.queue.redis.server import translate_error
from tests.servers.redis import Server, connect, contents, own_server
from tests.stores.new_jobs import new
from tests.stores.test_redis import PATIENCE_S

PLAIN = ("--save", "", "--appendonly", "no")


@contextmanager
def refused(kind: type[PenstockError], *, secret: str = "no such secret") -> Iterator[None]:
    with pytest.raises(kind) as refusal:
        yield
    told = f"{refusal.value} {refusal.value.remedy}"
    assert "\n" not in told
    assert secret not in told
    assert refusal.value.remedy


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_no_server_at_all(tmp_path: Path) -> None:
    server = Server(tmp_path)
    with refused(StoreUnavailable, secret="hunter2"):
        RedisQueue(f"redis://:hunter2@127.0.0.1:{server.port}/0")


@pytest.mark.parametrize("login", ["", ":wrong-hunter@", "nobody:wrong-hunter@"])
def test_a_wrong_password(tmp_path: Path, login: str) -> None:
    with own_server(tmp_path, *PLAIN, "--requirepass", "right") as server:
        with refused(StoreDenied, secret="hunter"):
            RedisQueue(f"redis://{login}127.0.0.1:{server.port}/0")
        queue = RedisQueue(f"redis://:right@127.0.0.1:{server.port}/0")
        queue.add([new(1)])
        queue.close()


def test_a_user_that_may_not_run_scripts(tmp_path: Path) -> None:
    with own_server(tmp_path) as server:
        RedisQueue(server.url).close()
        with connect(server.url) as client:
            client.execute_command("ACL", "SETUSER", "bob", "on", ">pw", "~*", "&*", "+@all", "-@scripting")
            client.execute_command("ACL", "SETUSER", "ann", "on", ">pw", "~*", "&*", "+@all", "-@hash")
        before = contents(server.url)
        for user in ("bob", "ann"):
            queue = RedisQueue(f"redis://{user}:pw@127.0.0.1:{server.port}/0")
            with refused(StoreDenied):
                queue.add([new(1)])
            queue.close()
        assert before == contents(server.url)


def test_a_server_out_of_memory_takes_nothing_by_halves(tmp_path: Path) -> None:
    with own_server(tmp_path, *PLAIN, "--maxmemory", "6mb", "--maxmemory-policy", "noeviction") as server:
        queue = RedisQueue(server.url)
        added = 0
        with refused(DiskFull):
            while added < 1_000_000:
                text = '{"a":"' + "x" * 1_000 + '"}'
                queue.add([new(added + n, payload_json=text) for n in range(100)])
                added += 100
        assert {(): added} == queue.count(JobQuery())
        assert added == len(queue.find(JobQuery(limit=1_000_000)))
        queue.close()


def test_a_server_out_of_memory_lets_jobs_be_worked_off(tmp_path: Path) -> None:
    with own_server(tmp_path) as server, connect(server.url) as client:
        queue = RedisQueue(server.url)
        queue.add([new(number) for number in range(10)])
        client.config_set("maxmemory", 1)
        first, *claims = queue.claim(ClaimRequest("w", 10))
        before = contents(server.url)
        for call in (
            lambda: queue.add([new(11)]),
            lambda: queue.settle([transitions.waits(first, children=(new(12), new(13)))]),
        ):
            with refused(DiskFull):
                call()
        assert before == contents(server.url)
        settled = queue.exchange([transitions.done(claim) for claim in claims], ClaimRequest("w", 1)).settled
        assert [Status.DONE] * 9 == settled
        queue.cancel([first.queue_id])
        assert 9 == queue.prune({Status.DONE: now() + timedelta(hours=1)})
        queue.close()


def test_a_replica_can_be_read_and_not_written(tmp_path: Path) -> None:
    with own_server(tmp_path / "primary", *PLAIN, "--repl-diskless-sync-delay", "0") as primary:
        queue = RedisQueue(primary.url)
        queue.add([new(1)])
        queue.close()
        with own_server(
            tmp_path / "replica", *PLAIN, "--replicaof", "127.0.0.1", str(primary.port)
        ) as replica:
            with connect(primary.url) as client:
                assert 1 == client.wait(1, 120_000)
            queue = RedisQueue(replica.url)
            assert 1 == len(queue.find(JobQuery()))
            for call in (lambda: queue.add([new(2)]), lambda: queue.claim(ClaimRequest("w")), queue.check):
                with refused(StoreReadOnly):
                    call()
            queue.close()


def test_a_server_that_cannot_save_to_its_disk(tmp_path: Path) -> None:
    with own_server(tmp_path, "--save", "3600", "1", "--appendonly", "no") as server:
        # A directory in the place of its file: the snapshot fails for root, too.
        (tmp_path / "dump.rdb").mkdir()
        queue = RedisQueue(server.url)
        with connect(server.url) as client:
            client.bgsave()
            until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
        before = contents(server.url)
        with refused(StoreUnavailable):
            queue.add([new(1)])
        assert before == contents(server.url)
        queue.close()


def test_a_cluster_node_that_holds_the_queue_serves_it_and_another_does_not(tmp_path: Path) -> None:
    with own_server(tmp_path, *PLAIN, "--cluster-enabled", "yes") as server:
        with refused(StoreUnavailable):
            RedisQueue(server.url)
        with connect(server.url) as client:
            client.execute_command("CLUSTER", "ADDSLOTS", *range(16_384))
            until(lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
        queue = RedisQueue(server.url)
        queue.add([new(1, lock_key="l"), new(2, lock_key="l")])
        (claim,) = queue.claim(ClaimRequest("w", 9))
        queue.settle([transitions.done(claim)])
        assert 1 == len(queue.claim(ClaimRequest("w", 9)))
        queue.close()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("MOVED 3999 127.0.0.1:6381", StoreUnavailable),
        ("LOADING Redis is loading the dataset in memory", StoreUnavailable),
        ("BUSY Redis is busy running a script.", StoreUnavailable),
        ("MISCONF Errors writing to the AOF file: No space left on device", DiskFull),
        ("Error running script (call to f_0): @user_script: 1: -OOM command not allowed", DiskFull),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", SchemaMismatch),
        ("something nobody has seen", StatementRefused),
    ],
)
def test_what_a_server_can_say(text: str, kind: type[StoreError]) -> None:
    error = translate_error(redis.exceptions.ResponseError(text), "redis://h:1/0")
    assert kind is type(error)
    assert "redis://h:1/0" in str(error)


def test_a_server_that_is_too_old() -> None:
    with refused(StoreUnavailable), _old_server() as port:
        RedisQueue(f"redis://127.0.0.1:{port}/0", timeout_s=5)


@contextmanager
def _old_server() -> Iterator[int]:
    """Answer every command as Redis 5."""
    said = b"# Server\r\nredis_version:5.0.14\r\n"
    with socket.create_server(("127.0.0.1", 0)) as door:

        def answer() -> None:
            connection, _ = door.accept()
            with connection:
                while request := connection.recv(65_536):
                    answers = request.count(b"*")
                    info = b"$%d\r\n%s\r\n" % (len(said), said)
                    connection.sendall(info if b"INFO\r\n" in request else b"+OK\r\n" * answers)

        thread = threading.Thread(target=answer)
        thread.start()
        yield door.getsockname()[1]
        thread.join()


def test_a_missing_driver_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "penstock.queue.redis.queue", None)
    monkeypatch.delitem(__import__("sys").modules, "penstock.queue.redis.queue")
    monkeypatch.delitem(__import__("sys").modules, "penstock.queue.redis.server", raising=False)
    monkeypatch.setitem(__import__("sys").modules, "redis", None)
    with refused(DriverMissing, secret="secret") as _:
        Penstock("redis://:secret@127.0.0.1:1/0")


@pytest.mark.parametrize(
    "option",
    [
        "decode_responses=true",
        "credential_provider=x",
        "retry=3",
        "retry_on_error=TimeoutError",
        "event_dispatcher=x",
        "command_packer=x",
        "encoding=utf-99",
        "encoding=utf-16",
        "encoding_errors=quietly",
        "socket_timeout=-1",
        "socket_timeout=nan",
        "socket_connect_timeout=1e400",
    ],
)
def test_an_option_the_driver_would_fail_on_later_is_refused(option: str) -> None:
    with pytest.raises(InvalidSetting):
        RedisQueue(f"redis://127.0.0.1:1/0?{option}")


# What a person should know.


def test_a_queue_that_was_emptied_while_open_is_a_warning_until_the_next_start(tmp_path: Path) -> None:
    with own_server(tmp_path, "--appendonly", "yes", "--save", "") as server:
        queue = RedisQueue(server.url)
        with connect(server.url) as client:
            client.flushall()

        (emptied,) = queue.check()

        assert "emptied" in emptied
        assert [] == RedisQueue(server.url).check() == queue.check()


def test_settings_that_could_cost_jobs_are_named(tmp_path: Path) -> None:
    with own_server(tmp_path, *PLAIN, "--maxmemory-policy", "allkeys-lru") as server:
        queue = RedisQueue(server.url)
        aof, eviction = queue.check()
        assert "appendonly yes" in aof
        assert "noeviction" in eviction
        with connect(server.url) as client:
            client.config_set("appendonly", "yes")
            client.config_set("maxmemory-policy", "noeviction")
        assert [] == queue.check()
        queue.close()
