"""Start of a gateway: before the server, beside other gateways, and after a time without any."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from penstock.queue.redis.server import Server as Broker
from penstock.redis_contract import messages
from penstock.redis_contract.lists import Lists
from penstock.redis_contract.messages import read
from tests.redis_contract.conftest import NOTHING_LEFT, QUEUE, Town
from tests.servers import states
from tests.servers.redis import own_server
from tests.worker.worker_processes import ROOT, until


def started(town: Town) -> subprocess.Popen[str]:
    environment = {"PENSTOCK_URL": town.settings.url, "PENSTOCK_STATE_DIR": str(town.settings.state_dir)}
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", "gateway", town.url, "--config", str(town.config)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def test_a_server_that_is_not_there_yet_is_waited_for(tmp_path: Path):
    with own_server(tmp_path / "redis") as server:
        town = Town(tmp_path, server.url)
        server.kill()
        with started(town) as gateway:
            assert gateway.stderr is not None
            assert gateway.stdout is not None
            assert "(ERR_STORE_UNAVAILABLE); waiting for it" in gateway.stderr.readline()
            server.start()
            assert gateway.stdout.readline().startswith("Taking messages for ")
            gateway.send_signal(signal.SIGTERM)
            assert 0 == gateway.wait(120)
        town.close()


def test_a_gateway_that_waits_for_its_server_can_be_stopped(tmp_path: Path):
    with own_server(tmp_path / "redis") as server:
        town = Town(tmp_path, server.url)
        server.kill()
        with started(town) as gateway:
            assert gateway.stderr is not None
            gateway.stderr.readline()
            gateway.send_signal(signal.SIGTERM)
            assert 0 == gateway.wait(120)
        town.close()


def other(town: Town, *rag_ids: str) -> Lists:
    """Of another configuration, in front of another queue."""
    made = Lists(Broker(town.url, whole=True), gateway="other.x-1-1", group="other", rag_ids=rag_ids)
    made.beat({"rags": rag_ids})
    return made


@pytest.mark.parametrize("key", [QUEUE, f"{QUEUE}:high"])
def test_a_message_for_a_rag_of_another_gateway_is_left_to_it(town: Town, key: str):
    lists = other(town, "attic_rag")
    message = town.message(town.put("a.txt", "Water."), "attic_rag")
    town.push(message, key)
    town.push(town.message(town.put("b.txt", "More water."), "attic_rag"), f"{QUEUE}:attic_rag")
    gateway = town.gateway()

    gateway.run_round()

    assert [] == town.letters()
    shown = town.hash(message["job_id"])
    assert ("queued", "for a gateway that serves RAG attic_rag") == (shown["status"], shown["waiting"])
    (first, _) = lists.take(2)
    assert message["job_id"].encode() in first.raw
    lists.broker.close()


@pytest.mark.parametrize("why", ["there is none", "says nothing"])
def test_a_rag_that_no_gateway_knew_is_a_dead_letter(town: Town, why: str):
    lists = other(town, "cellar_rag")
    if why == "says nothing":
        lists.beat({})
    message = town.message(town.put("a.txt", "Water."), "attic_rag")
    town.push(message)

    town.gateway().run_round()

    (letter,) = town.letters()
    assert "ERR_UNKNOWN_RAG" == letter["code"]
    assert "failed" == town.hash(message["job_id"])["status"]
    lists.broker.close()


def test_gateways_say_which_rags_they_serve(town: Town):
    town.gateway()
    lists = other(town)
    message = town.message(town.put("a.txt", "Water."))
    town.push(message)
    (taken,) = lists.take(1)

    assert lists.pass_on(taken, messages.waiting_fields(read(message)), away_s=0.0)

    assert [] == lists.list_taken()
    (found,) = town.settle(town.gateway(), message["job_id"])
    assert "done" == found["status"]
    lists.broker.close()


@pytest.mark.parametrize("ending", ["done", "failed"])
def test_a_job_that_ended_while_redis_forgot_and_nobody_looked_is_told_at_the_next_start(
    town: Town, ending: str
):
    content = "Water drives the wheel." if ending == "done" else "no PDF"
    path = town.put("a.txt" if ending == "done" else "a.pdf", content)
    message = town.message(path)
    town.push(message)
    gateway = town.gateway()
    gateway.run_round()
    gateway.leave()
    with town.app.worker_thread():
        town.app.wait(message["job_id"], timeout=60)
    town.empty()

    (shown,) = town.settle(town.gateway(), message["job_id"])

    folder = town.inbox() / ("processed" if ending == "done" else "failed")
    assert (ending, str(folder / path.name)) == (shown["status"], shown["file"])
    assert (False, True) == (path.exists(), (folder / path.name).exists())
    assert NOTHING_LEFT == town.left_over()


def test_a_job_that_ended_while_redis_forgot_is_told_by_a_gateway_that_went_on(
    town: Town, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("penstock.redis_contract.gateway.TAKE_OVER_S", 0)
    monkeypatch.setattr("penstock.redis_contract.gateway.ADOPT_S", 0)
    path = town.put("a.txt", "Water drives the wheel.")
    message = town.message(path)
    town.push(message)
    gateway = town.gateway()
    gateway.run_round()
    with town.app.worker_thread():
        town.app.wait(message["job_id"], timeout=60)
    town.empty()

    (shown,) = town.settle(gateway, message["job_id"])

    assert ("done", str(town.inbox() / "processed" / path.name)) == (shown["status"], shown["file"])
    assert NOTHING_LEFT == town.left_over()


def test_what_came_after_a_job_ended_is_not_its_file(town: Town):
    message = town.message(town.put("a.pdf", "no PDF"))
    town.done(message)
    town.empty()
    letters = town.inbox() / "failed" / "a.pdf.error.json"
    letters.unlink()
    path = town.put("a.pdf", "Another file, whose message is yet to come.")

    town.gateway().run_round()

    assert path.exists()
    assert ([], {}, False) == (town.letters(), town.hash(message["job_id"]), letters.exists())


def _is_logged(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return text in caplog.text


def _is_queued(town: Town, job_id: str) -> bool:
    return town.hash(job_id).get("status") == "queued"


def test_a_gateway_outlasts_a_failover_and_another_password(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    with own_server(tmp_path / "redis") as server:
        town = Town(tmp_path, server.url)
        gateway = town.gateway()
        thread = threading.Thread(target=gateway.run)
        thread.start()
        for name, told in (("read-only server", "Point the URL"), ("lost login", "Check user and password")):
            with states.of_redis(server)[name]():
                until(partial(_is_logged, caplog, told))
            message = town.message(town.put(f"{name}.txt", "Water."))
            town.push(message)
            until(partial(_is_queued, town, message["job_id"]))
        gateway.stop()
        thread.join()
        town.close()
