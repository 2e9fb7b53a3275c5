"""``penstock ingest submit|status``, ``penstock queue status`` and ``penstock gateway``."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock import clock
from penstock.cli.main import cli
from penstock.process_start import JobLogFormatter
from penstock.queue.job import WorkerReport
from tests.pipeline.sample_documents import pdf
from tests.redis_contract.conftest import NOTHING_LEFT, QUEUE, Town
from tests.signals import hear
from tests.worker.worker_processes import ROOT, until

Run = Callable[..., Result]


@pytest.fixture
def run(town: Town, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("PENSTOCK_STATE", str(town.settings.state_dir))
    monkeypatch.setenv("PENSTOCK_URL", town.settings.url)
    monkeypatch.setenv("PENSTOCK_RAG_CONFIG", str(town.config))
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(cli, list(arguments))
        assert code == result.exit_code, result.output
        return result

    return run


@pytest.fixture
def submit(run: Run) -> Callable[..., Any]:
    def submit(path: Path, *more: str) -> Any:
        told = run("ingest", "submit", "--rag", "policies_rag", "--path", str(path), "--json", *more)
        return json.loads(told.stdout)

    return submit


def test_submit_writes_hash_and_message_together(town: Town, submit: Callable[..., Any]):
    path = town.put("handbook.pdf", pdf("Holidays."))

    told = submit(path, "--reindex", "--max-retries", "5", "--tag", "hr/leave")

    assert re.fullmatch(r"rag-policies_rag-[0-9]{10}-[0-9a-f]{8}", told["job_id"])
    (raw,) = town.redis.lrange(QUEUE, 0, -1)
    message = json.loads(raw)
    assert told["message"] == message
    assert {
        "rag_id": "policies_rag",
        "source_path": str(path),
        "source_type": "pdf",
        "filename": "handbook.pdf",
        "submitted_by": "cli",
        "options": {"reindex": True, "skip_validation": False, "preserve_metadata": True},
        "retry_count": 0,
        "max_retries": 5,
        "tags": ["hr/leave"],
    } == {key: message[key] for key in message if key not in ("job_id", "submitted_at")}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", message["submitted_at"])
    shown = town.hash(told["job_id"])
    assert ("queued", "0", message["submitted_at"], -1) == (
        shown["status"],
        shown["retry_count"],
        shown["submitted_at"],
        town.redis.ttl(f"rag:ingest:job:{told['job_id']}"),
    )


def test_submit_tells_a_person_what_it_did(town: Town, run: Run):
    path = town.put("a.md", "Water.")

    told = run("ingest", "submit", "--rag", "policies_rag", "--path", str(path), "--priority", "high")

    assert 1 == town.redis.llen(f"{QUEUE}:high")
    assert ["Job submitted", "RAG", "File", "Afterwards", "List", "Follow it with"] == [
        re.split(r"  |: ", line)[0] for line in told.stdout.splitlines()
    ]
    assert "No gateway is connected; the job waits. Start one with: penstock redis gateway\n" == told.stderr


def test_a_dry_run_sends_nothing(town: Town, run: Run):
    told = run(
        "ingest", "submit", "--rag", "faq_rag", "--path", str(_shared(town)), "--dry-run", "--skip-validation"
    )

    assert ("Nothing was sent.", True) == (
        told.stdout.splitlines()[-1],
        "it stays where it is" in told.stdout,
    )
    assert [] == list(town.redis.scan_iter("rag:ingest:*"))


def _shared(town: Town) -> Path:
    path = town.shared / "a.txt"
    path.write_text("Water.")
    return path


@pytest.mark.parametrize(
    ("rag_id", "name", "more", "code", "said"),
    [
        ("other_rag", "a.txt", [], 1, "ERR_UNKNOWN_RAG"),
        ("faq_rag", "none.txt", [], 1, "ERR_PATH_NOT_FOUND"),
        ("faq_rag", ".", [], 1, "is no file"),
        ("faq_rag", "\udcff.txt", [], 1, "ERR_PATH_NOT_FOUND"),
        ("faq_rag", "../rags.yaml", ["--type", "txt"], 1, "ERR_OUTSIDE_RAG"),
        ("faq_rag", "b.exe", [], 1, "ERR_UNSUPPORTED_SOURCE"),
        ("faq_rag", "a.txt", ["--type", "pdf"], 1, "ERR_UNSUPPORTED_TYPE"),
        ("faq_rag", "a.txt", ["--tag", "\udcff"], 1, "ERR_INVALID_MESSAGE"),
        ("faq_rag", "a.txt", ["--redis", "redis://127.0.0.1:1"], 2, "ERR_STORE_UNAVAILABLE"),
        ("faq_rag", "a.txt", ["--redis", "http://x"], 3, "ERR_INVALID_SETTING"),
        ("faq_rag", "a.txt", ["--redis", "redis://[::1"], 3, "ERR_INVALID_SETTING"),
        ("faq_rag", "a.txt", ["--redis", "redis://127.0.0.1:1/zero"], 3, "ERR_INVALID_SETTING"),
        ("faq_rag", "a.txt", ["--redis", "redis://127.0.0.1:1?colour=red"], 3, "ERR_INVALID_SETTING"),
        ("faq_rag", "a.txt", ["--redis", "unix:///nowhere.sock"], 2, "ERR_STORE_UNAVAILABLE"),
        ("faq_rag", "a.txt", ["--config", "none.yaml"], 3, "ERR_RAG_CONFIG"),
    ],
)
def test_what_is_not_right_has_its_exit_code_and_a_remedy(
    town: Town, run: Run, rag_id: str, name: str, more: list[str], code: int, said: str
):
    _shared(town)
    (town.shared / "b.exe").write_bytes(b"MZ")

    told = run("ingest", "submit", "--rag", rag_id, "--path", str(town.shared / name), *more, code=code)

    assert said in told.stderr
    assert re.fullmatch(r"error: .+\. \S.+\.\n", told.stderr)
    assert [] == list(town.redis.scan_iter("rag:ingest:*"))


def test_without_a_configuration_the_error_says_where_to_put_it(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PENSTOCK_RAG_CONFIG")

    for arguments in (["queue", "status"], ["gateway"], ["gateway", "redis://127.0.0.1:1"]):
        assert "PENSTOCK_RAG_CONFIG" in run(*arguments, code=3).stderr


def test_a_server_that_is_not_there(run: Run):
    told = run("queue", "status", "--redis", "redis://127.0.0.1:1", code=7).stderr
    assert "ERR_STORE_UNAVAILABLE" in told


def test_status_of_a_job_through_its_life(town: Town, run: Run, submit: Callable[..., Any]):
    job_id = submit(town.put("a.md", "Water drives the wheel."))["job_id"]
    assert "queued" in run("ingest", "status", "--job", job_id).stdout
    town.settle(town.gateway(), job_id)

    shown = run("ingest", "status", "--job", job_id, "--follow").stdout
    assert re.search(r"^Status +done$", shown, re.MULTILINE)
    assert re.search(r"^Made +1 chunk, 1 embedded, \d+ tokens$", shown, re.MULTILINE)
    told = json.loads(run("ingest", "status", "--job", job_id, "--json").stdout)
    assert ("done", 1, None, 0) == (
        told["status"],
        told["chunks_created"],
        told["error"],
        told["retry_count"],
    )
    for unknown in ("rag-x", "\udcff"):
        assert "ERR_JOB_NOT_FOUND" in run("ingest", "status", "--job", unknown, code=4).stderr


def test_following_a_job_until_its_end(town: Town, run: Run):
    job_id = town.push(town.message(town.put("a.md", "Water.")))
    gateway = town.gateway()
    gateway.run_round()
    with _started("ingest", "status", "--job", job_id, "--follow", "--json") as follower:
        town.settle(gateway, job_id)
        told, _ = follower.communicate(timeout=120)

    assert (0, "done") == (follower.returncode, json.loads(told)["status"])


def test_watching_the_lists_until_interrupted(town: Town, run: Run):
    with _started("queue", "status", "--watch") as watcher:
        assert watcher.stdout is not None
        seen = 0
        while seen < 2:
            line = watcher.stdout.readline()
            assert line
            seen += line.startswith("Dead letters")
        watcher.send_signal(signal.SIGINT)

        assert 130 == watcher.wait(120)


@contextmanager
def _started(*arguments: str, stderr: int = subprocess.PIPE) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "penstock", *arguments]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=stderr, text=True, preexec_fn=hear
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_following_a_job_that_failed_ends_with_a_code(town: Town, run: Run):
    message = town.message(town.put("a.pdf", "no PDF"))
    town.done(message)

    shown = run("ingest", "status", "--job", message["job_id"], "--follow", code=1).stdout

    assert re.search(r"^Error +.*UnsupportedType, ERR_UNSUPPORTED_TYPE\)$", shown, re.MULTILINE)


def test_following_a_hash_that_somebody_else_writes(town: Town, run: Run):
    """Health and status on a terminal with missing fields and hostile values."""
    key = "rag:ingest:job:foreign"
    town.redis.hset(key, "chunks_created", "\x1b[2Jmany")
    reader, terminal = os.openpty()
    with _started("ingest", "status", "--job", "foreign", "--follow", stderr=terminal) as follower:
        told = b""
        while b"embedded " not in told:
            told += os.read(reader, 1000)
        town.redis.hset(key, "status", "failed")
        follower.communicate(timeout=120)
    os.close(reader)
    os.close(terminal)

    assert (1, b"\r\x1b[Kno status yet, 0 of \\x1b[2Jmany chunks embedded ") == (
        follower.returncode,
        told[: told.index(b"embedded") + 9],
    )


def test_what_was_sent_is_sent_also_if_nobody_can_say_who_serves_it(town: Town, submit: Callable[..., Any]):
    town.redis.set("rag:ingest:gateways", "foreign")

    told = submit(town.put("a.md", "Water."))

    assert (True, None, 1) == (told["submitted"], told["worker_connected"], town.redis.llen(QUEUE))


def test_the_health_of_the_lists(town: Town, run: Run):
    town.push(town.message(town.put("a.md", "Water.")))
    town.push(town.message(town.put("b.md", "Wind.")), f"{QUEUE}:faq_rag")
    town.push("broken", f"{QUEUE}:high")

    alone = run("queue", "status").stdout
    assert re.search(r"^Queue length +3$", alone, re.MULTILINE)
    assert re.search(r"^Gateway connected +no \(no heartbeat\)$", alone, re.MULTILINE)
    assert re.search(r"^Worker connected +unknown \(no gateway is connected\)$", alone, re.MULTILINE)
    assert "No gateway serves the lists." in alone

    gateway = town.gateway()
    gateway.run_round()
    gateway.beat()
    health = json.loads(run("queue", "status", "--json").stdout)
    assert ("rag:ingest:queue", 0, 0, 2, 1, True, False) == (
        health["queue_name"],
        health["queue_length"],
        health["processing"],
        health["accepted"],
        health["dead_letters"],
        health["gateway_connected"],
        health["worker_connected"],
    )
    shown = run("queue", "status").stdout
    assert re.search(r"^Gateway connected +yes \(last heartbeat \d s ago\)$", shown, re.MULTILINE)
    assert re.search(r"^Worker connected +no$", shown, re.MULTILINE)
    assert "No worker is running behind the gateway." in shown


@pytest.mark.parametrize(
    ("info", "workers", "connected"),
    [('{"processes":2}', 1, True), ('{"processes":0}', 0, False), ('{"processes":2,"ended":true}', 0, False)],
)
def test_a_worker_is_connected_if_one_takes_jobs_behind_a_gateway(
    town: Town, run: Run, info: str, workers: int, connected: bool
):
    report = WorkerReport(worker_id="w1", host="mill", pid=7, started_at=clock.now(), info_json=info)
    town.app.queue.report(report)
    gateway = town.gateway()
    gateway.beat()
    gateway.run_round()  # tells a new number of workers at once, not with the next heartbeat

    health = json.loads(run("queue", "status", "--json").stdout)

    assert (True, connected) == (health["gateway_connected"], health["worker_connected"])
    assert [workers] == [one["workers"] for one in health["gateways"]]
    shown = run("queue", "status").stdout
    assert re.search(rf"^Worker connected +{'yes .1 worker.' if connected else 'no'}$", shown, re.MULTILINE)


def test_a_foreign_consumer_can_serve_what_submit_produced(town: Town, run: Run, submit: Callable[..., Any]):
    job_id = submit(town.put("a.md", "Water."))["job_id"]

    message = json.loads(town.redis.rpop(QUEUE))
    key = f"rag:ingest:job:{message['job_id']}"
    assert ("queued", message["source_path"]) == (town.redis.hget(key, "status"), message["source_path"])
    town.redis.hset(key, mapping={"status": "processing", "started_at": "2025-01-10T20:15:35Z"})
    assert "processing" in run("ingest", "status", "--job", job_id).stdout
    town.redis.hset(key, mapping={"status": "done", "chunks_created": 21, "duration_seconds": 25})

    told = json.loads(run("ingest", "status", "--job", job_id, "--json", "--follow").stdout)
    assert ("done", 21, 25) == (told["status"], told["chunks_created"], told["duration_seconds"])


def test_names_of_files_cannot_forge_lines_of_the_log():
    record = logging.LogRecord("x", logging.WARNING, "", 0, "job failed: %s", ("a\n\x1b[2J.pdf",), None)

    line = JobLogFormatter("%(message)s").format(record)

    assert "job failed: a\\n\\x1b[2J.pdf" == line


def test_the_command_serves_until_it_is_told_to_stop(town: Town, run: Run):
    with _started("gateway", town.url) as gateway:
        assert gateway.stdout is not None
        said = gateway.stdout.readline()
        assert re.match(r"Taking messages for faq_rag, policies_rag, procedures_rag from redis://", said)
        job_id = town.push(town.message(town.put("a.md", "Water.")))
        with town.app.worker_thread():
            until(lambda: town.hash(job_id).get("status") == "done")
        assert json.loads(run("queue", "status", "--json").stdout)["gateway_connected"]
        gateway.send_signal(signal.SIGTERM)
        assert 0 == gateway.wait(120)
    assert not json.loads(run("queue", "status", "--json").stdout)["gateway_connected"]
    assert NOTHING_LEFT == town.left_over()


def test_a_gateway_that_left_has_no_heartbeat_and_one_that_is_none_does_no_harm(town: Town, run: Run):
    town.gateway().leave()
    for number, said in enumerate(("no JSON", "[]", "{}", '{"at": "x", "pid": []}')):
        town.redis.hset("rag:ingest:gateways", f"foreign-{number}", said)

    assert "no (no heartbeat)" in run("queue", "status").stdout
    assert "done" == town.done(town.message(town.put("a.md", "Water.")))["status"]
