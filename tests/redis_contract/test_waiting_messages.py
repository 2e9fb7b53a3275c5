"""Gateways with different RAGs on one list: a message waits for the gateway of the RAG."""

from __future__ import annotations

import dataclasses
import json
import signal
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from penstock import config
from penstock.redis_contract import contract as factory
from penstock.redis_contract import lists
from penstock.redis_contract.gateway import Gateway
from tests.redis_contract.conftest import NOTHING_LEFT, QUEUE, Town
from tests.redis_contract.killed_gateway import WAITING_POINTS, start_gateway
from tests.redis_contract.test_crash import silent
from tests.worker.worker_processes import until

LONG_AGO = 1
WAITS = "for a gateway that serves RAG faq_rag"


@pytest.fixture(autouse=True)
def _at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.redis_contract.gateway.TAKE_OVER_S", 0)


def settings_of(town: Town, *rag_ids: str, **more: Any) -> config.Settings:
    """Settings of a gateway for only these RAGs."""
    path = town.place / f"{'-'.join(rag_ids)}.yaml"
    named = "".join(f"  {rag_id}: {{folders: [shared]}}\n" for rag_id in rag_ids)
    path.write_text(f"sources: sources\nrags:\n{named}")
    return dataclasses.replace(town.settings, rag_config=str(path), **more)


def gateway_of(town: Town, *rag_ids: str, **more: Any) -> Gateway:
    before, town.settings = town.settings, settings_of(town, *rag_ids, **more)
    try:
        return town.gateway()
    finally:
        town.settings = before


def pushed(town: Town, number: int) -> dict[str, str]:
    """Messages for two RAGs in turns, by id."""
    rags = {}
    for count in range(number):
        rag_id = ("policies_rag", "faq_rag")[count % 2]
        message = town.message(town.put(f"{count}.txt", f"Water {count}.", rag_id), rag_id)
        rags[town.push(message)] = rag_id
    return rags


def statuses(town: Town, rags: dict[str, str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for job_id, rag_id in rags.items():
        found.setdefault(rag_id, set()).add(town.hash(job_id).get("status", "none"))
    return found


def never_served(town: Town, rag_id: str) -> None:
    """Age the last announcement of a RAG, as if time had passed."""
    town.redis.hset(lists.RAGS, rag_id, LONG_AGO)


def test_messages_wait_for_a_gateway_that_is_being_restarted(town: Town):
    gateway_of(town, "faq_rag").leave()
    gateway = gateway_of(town, "policies_rag")
    rags = pushed(town, 60)
    served_here = [job_id for job_id, rag_id in rags.items() if rag_id == "policies_rag"]

    town.settle(gateway, *served_here)

    assert {"policies_rag": {"done"}, "faq_rag": {"queued"}} == statuses(town, rags)
    waiting = [town.hash(job_id) for job_id, rag_id in rags.items() if rag_id == "faq_rag"]
    assert ({WAITS}, []) == ({shown["waiting"] for shown in waiting}, town.letters())

    town.settle(gateway_of(town, "faq_rag"), *rags)

    assert {"policies_rag": {"done"}, "faq_rag": {"done"}} == statuses(town, rags)
    assert {""} == {town.hash(job_id)["waiting"] for job_id in rags}
    assert ([], NOTHING_LEFT, 60) == (town.letters(), town.left_over(), len(town.app.jobs(limit=100)))


def test_messages_keep_their_order_while_they_wait(town: Town):
    gateway_of(town, "faq_rag").leave()
    rags = pushed(town, 8)
    gateway_of(town, "policies_rag").run_round()

    gateway_of(town, "faq_rag").run_round()

    jobs = town.app.jobs(collection="faq_rag")
    assert [job_id for job_id in rags if rags[job_id] == "faq_rag"] == sorted(job.queue_id for job in jobs)
    added = sorted(jobs, key=lambda job: (job.created_at, job.turn))
    assert [job_id for job_id in rags if rags[job_id] == "faq_rag"] == [job.queue_id for job in added]


def test_a_message_that_waits_is_not_read_again_and_again(town: Town, monkeypatch: pytest.MonkeyPatch):
    gateway_of(town, "faq_rag").leave()
    gateway = gateway_of(town, "policies_rag")
    rags = pushed(town, 8)
    gateway.run_round()
    read: list[object] = []
    monkeypatch.setattr(gateway._intake, "_read", read.append)

    for _ in range(5):
        gateway.run_round()

    assert ([], 4) == (read, town.redis.llen("rag:ingest:waiting:faq_rag"))
    assert {"policies_rag": {"queued"}, "faq_rag": {"queued"}} == statuses(town, rags)


def test_a_rag_that_no_gateway_serves_for_too_long_fails_its_messages(town: Town):
    gateway_of(town, "faq_rag").leave()
    gateway = gateway_of(town, "policies_rag")
    file = town.put("a.txt", "Water.", "faq_rag")
    job_id = town.push(town.message(file, "faq_rag"))
    gateway.run_round()
    assert "queued" == town.hash(job_id)["status"]

    never_served(town, "faq_rag")
    gateway.run_round()

    assert ("failed", "ERR_UNKNOWN_RAG") == tuple(town.hash(job_id)[x] for x in ("status", "error_code"))
    assert ["ERR_UNKNOWN_RAG"] == [letter["code"] for letter in town.letters()]
    record = json.loads(file.with_name("a.txt.error.json").read_text())
    assert (job_id, "faq_rag", "ERR_UNKNOWN_RAG") == tuple(
        record[name] for name in ("job_id", "rag_id", "error_code")
    )
    assert (True, NOTHING_LEFT) == (file.exists(), town.left_over())
    assert ["policies_rag"] == sorted(town.redis.hkeys(lists.RAGS))


def test_how_long_a_rag_may_be_away_is_a_setting(town: Town):
    for away_s, status in ((3600.0, "queued"), (600.0, "failed")):
        gateway = gateway_of(town, "policies_rag", rag_away_s=away_s)
        seconds, _ = town.redis.time()
        town.redis.hset(lists.RAGS, "faq_rag", (seconds - 1800) * 1000)
        job_id = town.push(town.message(town.put(f"{away_s}.txt", "Water.", "faq_rag"), "faq_rag"))

        gateway.run_round()

        assert status == town.hash(job_id)["status"]


def test_a_message_for_a_rag_that_never_was_does_not_wait(town: Town):
    file = town.put("a.txt", "Water.", "attic_rag")
    job_id = town.push(town.message(file, "attic_rag"))

    town.gateway().run_round()

    assert ("failed", ["ERR_UNKNOWN_RAG"]) == (
        town.hash(job_id)["status"],
        [letter["code"] for letter in town.letters()],
    )
    assert file.with_name("a.txt.error.json").exists()


@pytest.mark.long
def test_a_restarted_gateway_of_its_own_process_loses_and_doubles_nothing(town: Town):
    ours, theirs = settings_of(town, "policies_rag"), settings_of(town, "faq_rag")
    with town.app.worker_thread():
        gateways = [start_gateway(ours), start_gateway(theirs)]
        try:
            until(lambda: town.redis.hlen(lists.RAGS) == 2)
            rags = pushed(town, 20)
            for ending in (signal.SIGKILL, signal.SIGTERM):
                gateways[1].send_signal(ending)
                gateways[1].wait(60)
                rags |= pushed_more(town, len(rags))
                gateways[1] = start_gateway(theirs)
            done = {"policies_rag": {"done"}, "faq_rag": {"done"}}
            until(lambda: statuses(town, rags) == done, 120)
        finally:
            for gateway in gateways:
                gateway.kill()
                gateway.wait()

    assert ([], NOTHING_LEFT) == (town.letters(), town.left_over())
    assert sorted(rags) == sorted(job.queue_id for job in town.app.jobs(limit=1000))


def pushed_more(town: Town, first: int) -> dict[str, str]:
    rags = {}
    for count in range(first, first + 20):
        rag_id = ("policies_rag", "faq_rag")[count % 2]
        message = town.message(town.put(f"m{count}.txt", f"More {count}.", rag_id), rag_id)
        rags[town.push(message)] = rag_id
    return rags


@pytest.mark.parametrize("point", WAITING_POINTS)
def test_a_gateway_killed_while_messages_wait_loses_and_doubles_nothing(town: Town, point: str):
    gateway_of(town, "faq_rag").leave()
    rags = pushed(town, 8)
    if point != "left to another gateway":
        gateway_of(town, "policies_rag").run_round()
        never_served(town, "faq_rag")
    killed = start_gateway(settings_of(town, "policies_rag"), point)
    assert -signal.SIGKILL == killed.wait(60)
    silent(town)

    town.settle(gateway_of(town, "policies_rag"), *(each for each in rags if rags[each] == "policies_rag"))
    assert "left to another gateway" != point or {"queued"} == statuses(town, rags)["faq_rag"]
    town.settle(gateway_of(town, "faq_rag"), *rags)

    ending = "done" if point == "left to another gateway" else "failed"
    assert {"policies_rag": {"done"}, "faq_rag": {ending}} == statuses(town, rags)
    refused = [each for each in rags if rags[each] == "faq_rag" and ending == "failed"]
    assert refused == sorted(letter["message"]["job_id"] for letter in town.letters())
    incoming = town.inbox("faq_rag") / "incoming"
    assert 2 * len(refused) == len(list(incoming.iterdir()))
    assert NOTHING_LEFT == town.left_over()
    assert len(rags) - len(refused) == len(town.app.jobs(limit=100))


@pytest.mark.parametrize("key", [f"{QUEUE}:high", QUEUE, f"{QUEUE}:faq_rag", f"{QUEUE}:dead-letter"])
def test_a_key_of_another_type_does_not_stop_the_other_lists(
    town: Town, key: str, caplog: pytest.LogCaptureFixture
):
    town.redis.set(key, "something else")
    good = town.message(town.put("a.txt", "Water."))
    bad = town.message(town.put("b.txt", "Wind."), retry_count=-1)
    for message in (good, bad):
        town.push(message, f"{QUEUE}:normal")
    gateway = town.gateway()

    found = town.settle(gateway, good["job_id"], bad["job_id"])
    for _ in range(3):
        gateway.run_round()

    assert ["done", "failed"] == [shown["status"] for shown in found]
    beside = f"{QUEUE}:dead-letter:aside" if key.endswith("dead-letter") else f"{QUEUE}:dead-letter"
    assert 1 == town.redis.llen(beside)
    reported = [one for one in caplog.messages if one.startswith(f"{key} is a string, not a list")]
    assert (0 if key.endswith("dead-letter") else 1) == len(reported)
    assert {key: "string"} == health(town)["misplaced"]
    assert "something else" == town.redis.get(key)


def health(town: Town) -> dict[str, Any]:
    contract = factory.open_contract(town.settings)
    try:
        found: dict[str, Any] = msgspec.to_builtins(contract.health())
        return found
    finally:
        contract.close()


def test_health_names_rags_that_messages_wait_for(town: Town):
    gateway_of(town, "faq_rag").leave()
    pushed(town, 8)
    gateway_of(town, "policies_rag").run_round()

    assert {"faq_rag": 4} == health(town)["waiting"]


# The contract's own order: LPUSH first, then HSET.

Late = Callable[[Town, str], None]


def _hset(town: Town, job_id: str) -> None:
    shown = {"status": "submitted", "started_at": "", "error": ""}
    town.redis.hset(f"rag:ingest:job:{job_id}", mapping=shown)


def _text(town: Town, job_id: str) -> None:
    town.redis.set(f"rag:ingest:job:{job_id}", '{"status": "submitted"}')


def due(town: Town) -> None:
    """Let time pass until every hash is compared again."""
    for job_id in town.redis.zrange("rag:ingest:recent", 0, -1):
        town.redis.zadd("rag:ingest:recent", {job_id: 0})


@pytest.mark.parametrize("late", [_hset, _text])
@pytest.mark.parametrize("ending", ["queued", "done", "failed", "refused"])
def test_a_status_written_late_by_the_producer_does_not_stay(town: Town, ending: str, late: Late):
    content = b"\x7fELF" if ending == "failed" else b"Water."
    message = town.message(town.put("a.txt", content)) | ({"retry_count": -1} if ending == "refused" else {})
    gateway, job_id = town.gateway(), message["job_id"]
    town.push(message)
    gateway.run_round()
    if ending in ("done", "failed"):
        town.settle(gateway, job_id)
    late(town, job_id)

    due(town)
    town.gateway().run_round()

    expected = "failed" if ending == "refused" else ending
    shown = town.hash(job_id)
    assert (expected, expected == "failed") == (shown["status"], shown["error"] != "")
    kept = town.redis.ttl(f"rag:ingest:job:{job_id}")
    assert kept == -1 if ending == "queued" else 604_000 < kept <= 604_800


def test_a_hash_is_compared_for_a_while_and_then_forgotten(town: Town):
    message = town.message(town.put("a.txt", "Water."))
    town.done(message)
    gateway = town.gateway()
    for _ in range(3):
        due(town)
        gateway.run_round()

    assert 0 == town.redis.exists("rag:ingest:recent", "rag:ingest:recent:fields")


def test_a_hash_that_was_removed_is_not_written_again(town: Town):
    message = town.message(town.put("a.txt", "Water."))
    town.done(message)
    town.redis.delete(f"rag:ingest:job:{message['job_id']}")

    due(town)
    town.gateway().run_round()

    assert {} == town.hash(message["job_id"])
