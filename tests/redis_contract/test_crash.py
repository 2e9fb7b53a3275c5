"""Gateways killed at named points, frozen or taken over, Redis killed: nothing is lost or doubled."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.queue import transitions
from penstock.queue.job import ClaimRequest
from penstock.queue.redis.server import Server as Broker
from penstock.queue.retry import JOB_BACKOFF, Classification
from penstock.redis_contract.lists import Lists
from tests.redis_contract.conftest import NOTHING_LEFT, QUEUE, Town
from tests.redis_contract.killed_gateway import POINTS, start_gateway
from tests.servers.redis import own_server
from tests.worker.worker_processes import until

CRASHES = [point for point in POINTS if point != "-"]
MESSAGES = 6


@contextmanager
def serving(town: Town, number: int = 1) -> Iterator[list[Any]]:
    # Gateways of a test before this one may still be listed.
    before = set(town.redis.hkeys("rag:ingest:gateways"))
    with ExitStack() as stack:
        running = [start_gateway(town.settings) for _ in range(number)]
        for process in running:
            stack.callback(process.wait)
            stack.callback(process.kill)
        until(lambda: len(set(town.redis.hkeys("rag:ingest:gateways")) - before) == number)
        yield running


def silent(town: Town) -> None:
    """Age the heartbeats of dead gateways, as if time had passed."""
    for name, said in town.redis.hgetall("rag:ingest:gateways").items():
        town.redis.hset("rag:ingest:gateways", name, json.dumps(json.loads(said) | {"at": 1}))


def pushed(town: Town, number: int, *, bad_every: int = 0, first: int = 0) -> dict[str, str]:
    """Messages for files of their own, by id, with the status each must end in."""
    expected = {}
    for count in range(first, first + number):
        bad = bool(bad_every) and count % bad_every == bad_every - 1
        content = b"\x7fELF" if bad else f"Water word{count}."
        rag_id = ("policies_rag", "faq_rag", "procedures_rag")[count % 3]
        key = [QUEUE, f"{QUEUE}:high", f"{QUEUE}:low", f"{QUEUE}:{rag_id}"][count % 4]
        path = town.put(f"{count}.txt", content, rag_id)
        expected[town.push(town.message(path, rag_id), key)] = "failed" if bad else "done"
    return expected


def ended(town: Town, expected: dict[str, str]) -> int:
    return sum(town.hash(job_id).get("status") in ("done", "failed") for job_id in expected)


def _at_least(number: int, town: Town, expected: dict[str, str]) -> bool:
    return ended(town, expected) >= number


def all_ended(town: Town, expected: dict[str, str]) -> Callable[[], bool]:
    return lambda: ended(town, expected) == len(expected)


def assert_once(town: Town, expected: dict[str, str]) -> None:
    """Check every message: one job, the right status, the file in the right folder."""
    assert expected == {job_id: town.hash(job_id)["status"] for job_id in expected}
    jobs = town.app.jobs(limit=1000)
    assert Counter(expected.keys()) == Counter(job.queue_id for job in jobs)
    assert {1} == {job.run for job in jobs}
    assert NOTHING_LEFT == town.left_over()
    failed = [job_id for job_id, status in expected.items() if status == "failed"]
    assert sorted(failed) == sorted(letter["job_id"] for letter in town.letters())
    for job_id, status in expected.items():
        shown = town.hash(job_id)
        inbox, name = town.inbox(shown["rag_id"]), shown["filename"]
        places = [
            folder for folder in ("incoming", "processed", "failed") if (inbox / folder / name).exists()
        ]
        assert ["processed" if status == "done" else "failed"] == places
        assert (status == "failed") == (inbox / "failed" / f"{name}.error.json").exists()
        assert 604_000 < town.redis.ttl(f"rag:ingest:job:{job_id}") <= 604_800
    extra = [p.name for p in town.place.glob("sources/*/*/*") if p.name.count(".") > 1]
    assert sorted(f"{town.hash(job_id)['filename']}.error.json" for job_id in failed) == sorted(extra)


@pytest.mark.parametrize("point", CRASHES)
def test_a_gateway_killed_at_a_named_point_loses_and_doubles_nothing(town: Town, point: str):
    expected = pushed(town, MESSAGES, bad_every=3)
    # The gateway mirrors only jobs that have not ended: a fast worker would leave it nothing to mirror.
    worker = nullcontext() if point == "acknowledged, not mirrored" else town.app.worker_thread()
    with worker:
        killed = start_gateway(town.settings, point)
        assert -signal.SIGKILL == killed.wait(60)
    with town.app.worker_thread():
        silent(town)
        gateway = town.gateway()
        until(lambda: (gateway.run_round(), all_ended(town, expected)())[1], 60)

    assert_once(town, expected)


@pytest.mark.long
def test_three_gateways_at_once_and_one_of_them_killed(town: Town):
    expected = pushed(town, 120, bad_every=20)
    with serving(town, 3) as gateways:
        until(lambda: town.redis.hlen("rag:ingest:open") == 100, 60)
        ((busiest, held),) = Counter(town.redis.hvals("rag:ingest:open")).most_common(1)
        pid = json.loads(town.redis.hget("rag:ingest:gateways", busiest))["pid"]
        next(gateway for gateway in gateways if gateway.pid == pid).kill()
        with town.app.worker_thread():
            until(all_ended(town, expected), 120)
    assert held >= 34

    assert_once(town, expected)
    assert ["0.txt"] == [Path(path).name for path in town.found("word0")]


@pytest.mark.long
def test_redis_killed_and_started_again_in_the_middle(tmp_path: Path):
    options = ("--save", "", "--appendonly", "yes", "--appendfsync", "everysec")
    with own_server(tmp_path / "redis", *options) as server:
        town = Town(tmp_path, server.url)
        expected = pushed(town, 60, bad_every=20)
        with serving(town, 2) as gateways, town.app.worker_thread():
            for part in (5, 25):
                until(partial(_at_least, part, town, expected), 60)
                server.kill()
                server.start()
            until(all_ended(town, expected), 120)
            assert [None, None] == [gateway.poll() for gateway in gateways]
        assert_once(town, expected)
        town.close()


def test_a_gateway_that_was_frozen_and_taken_over_does_no_harm(town: Town):
    frozen, taker = town.gateway(), town.gateway()
    expected = pushed(town, 5)
    taken = frozen._lists.take(5)
    silent(town)
    taker.beat()
    taker.run_round()
    frozen._intake._held = taken
    frozen._intake.hand_over()
    assert {taker.name} == set(town.redis.hvals("rag:ingest:open"))
    with town.app.worker_thread():
        until(lambda: (taker.run_round(), all_ended(town, expected)())[1])
    frozen._intake._held = taken
    frozen._intake.hand_over()

    assert_once(town, expected)


def test_a_gateway_that_was_taken_for_dead_takes_nothing_before_it_beats_again(town: Town):
    slow, taker = town.gateway(), town.gateway()
    silent(town)
    taker.beat()
    taker.run_round()
    expected = pushed(town, 2)

    assert [] == slow._lists.take(2)
    slow.beat()
    assert 2 == len(slow._lists.take(2))

    silent(town)
    taker.beat()
    with town.app.worker_thread():
        # Its next look around comes within two seconds.
        until(lambda: (taker.run_round(), all_ended(town, expected)())[1])
    assert_once(town, expected)


def test_a_job_taken_over_is_told_by_its_new_gateway_only(town: Town):
    first, second = town.gateway(), town.gateway()
    expected = pushed(town, 1)
    (job_id,) = expected
    first.run_round()
    silent(town)
    second.beat()
    second.run_round()
    (claim,) = town.app.queue.claim(ClaimRequest("w", 1))
    first._mirror.update()
    assert "queued" == town.hash(job_id)["status"]
    second._mirror.update()
    assert "processing" == town.hash(job_id)["status"]

    town.app.queue.settle([transitions.cancelled_by_flag(claim)])
    first._mirror.add([job_id])
    first._mirror.update()
    assert "processing" == town.hash(job_id)["status"]
    second._mirror.update()
    assert ("failed", "Cancelled") == (town.hash(job_id)["status"], town.hash(job_id)["error_type"])


def test_hashes_that_redis_lost_are_written_again_at_the_start(town: Town):
    expected = pushed(town, 3)
    town.gateway().run_round()
    town.empty()

    found = town.settle(town.gateway(), *expected)

    assert [("done", "2025-01-10T20:15:30.123456Z")] * 3 == [(s["status"], s["submitted_at"]) for s in found]
    assert_once(town, expected)


def test_gateways_of_another_queue_are_left_alone(town: Town):
    other = Lists(Broker(town.url, whole=True), gateway="other.x-1-1", group="other", rag_ids=[])
    other.beat({})
    town.push(town.message(town.put("a.txt", "Water.")))
    (taken,) = other.take(1)
    other.adopt(["rag-of-the-other"])
    silent(town)

    town.gateway().run_round()

    assert ([taken], ["rag-of-the-other"]) == (other.list_taken(), other.list_own_jobs())
    other.broker.close()


def test_transient_trouble_is_tried_again_with_the_contracts_pauses(town: Town):
    """A device error while reading: three retries, each after its back-off."""
    path = town.put("a.txt", "Water.")
    path.unlink()
    os.mkfifo(path)
    message = town.message(path)
    town.push(message)
    gateway = town.gateway()
    gateway.run_round()
    pauses = []
    moment = town.app.queue.now()
    for number in range(4):
        (claim,) = town.app.queue.claim(ClaimRequest("w", 1), now=moment)
        cause = Classification("transient", "ERR_NETWORK")
        town.app.queue.settle([transitions.failed_attempt(claim, cause, "TimeoutError: slow")], now=moment)
        job = town.app.job(message["job_id"])
        gateway.run_round()
        shown = town.hash(message["job_id"])
        if number < 3:
            assert job.run_at is not None
            pauses.append((job.run_at - moment).total_seconds())
            assert ("processing", str(number + 1), "slow", "NetworkError") == (
                shown["status"],
                shown["retry_count"],
                shown["error"],
                shown["error_type"],
            )
            moment = job.run_at
    assert [JOB_BACKOFF.seconds(number) for number in (1, 2, 3)] == pauses
    assert ("failed", "3", "ERR_NETWORK") == (shown["status"], shown["retry_count"], shown["error_code"])
    assert "it is not a regular file" == shown["file_error"]
    record = json.loads((town.inbox() / "failed" / "a.txt.error.json").read_text())
    assert (3, 3, None) == (
        record["retry_count"],
        record["max_retries"],
        record["traceback"],
    )


@pytest.mark.parametrize("when", ["taken", "queued"])
def test_a_job_that_ends_right_after_redis_lost_its_memory_has_its_file_moved(town: Town, when: str):
    path = town.put("a.txt", "Water.")
    message, gateway = town.message(path), town.gateway()
    town.push(message)
    if when == "taken":
        gateway._intake._held = gateway._lists.take(1)
    else:
        gateway.run_round()
    town.empty()
    gateway.beat()

    (shown,) = town.settle(gateway, message["job_id"])

    assert ("done", str(town.inbox() / "processed" / "a.txt")) == (shown["status"], shown["file"])
    assert not path.exists()
