"""Refused messages go to the dead letters with the reason, and never block the list."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.redis_contract.conftest import NOTHING_LEFT, QUEUE, Town

Making = Callable[[Town], Any]


def without(field: str) -> Making:
    return lambda town: {k: v for k, v in town.message(town.shared / "a.txt").items() if k != field}


def having(**fields: Any) -> Making:
    return lambda town: town.message(town.shared / "a.txt") | fields


BAD: dict[str, tuple[Making, str, str]] = {
    "no JSON": (lambda _: "{not json", "ERR_INVALID_MESSAGE", "is not JSON"),
    "no object": (lambda _: "[1, 2]", "ERR_INVALID_MESSAGE", "not a JSON object, but a list"),
    "no text": (lambda _: "\udcff", "ERR_INVALID_MESSAGE", "is not JSON"),
    "no id": (without("job_id"), "ERR_INVALID_MESSAGE", "missing required field 'job_id'"),
    "no path": (without("source_path"), "ERR_INVALID_MESSAGE", "missing required field 'source_path'"),
    "unknown RAG": (having(rag_id="other_rag"), "ERR_UNKNOWN_RAG", "known are faq_rag, policies_rag"),
    "unknown type": (having(source_type="exe"), "ERR_UNSUPPORTED_SOURCE", "pdf, txt, md, docx"),
    "outside": (having(source_path="/etc/passwd"), "ERR_OUTSIDE_RAG", "lies in no folder of RAG"),
    "negative": (having(retry_count=-1), "ERR_INVALID_MESSAGE", "field 'retry_count'"),
    "a path as a name": (having(filename="../x"), "ERR_INVALID_MESSAGE", "field 'filename'"),
    "no id at all": (having(job_id="../../x y"), "ERR_INVALID_MESSAGE", "field 'job_id'"),
    "half a character": (lambda _: '{"job_id": "\\ud800"}', "ERR_INVALID_MESSAGE", "is not JSON"),
    "deep": (lambda _: '{"a":' + "[" * 200 + "]" * 200 + "}", "ERR_INVALID_MESSAGE", "more than 100 deep"),
    "NUL": (having(colour="a\0b"), "ERR_INVALID_TEXT", "holds a NUL character"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_message_is_a_dead_letter_and_the_next_one_goes_through(town: Town, name: str):
    make, code, said = BAD[name]
    (town.shared / "a.txt").write_text("Water.")
    bad = make(town)
    raw = bad.encode("utf-8", "surrogateescape") if isinstance(bad, str) else json.dumps(bad).encode()
    town.redis.lpush(QUEUE, raw)
    good = town.message(town.shared / "a.txt")

    assert "done" == town.done(good)["status"]

    (letter,) = town.letters()
    assert (code, True) == (letter["code"], said in letter["reason"])
    assert letter["message"] == (bad if isinstance(bad, dict) else raw.decode("utf-8", "backslashreplace"))
    assert NOTHING_LEFT == town.left_over()
    told = isinstance(bad, dict) and name not in ("no id", "no id at all")
    if told:
        shown = town.hash(bad["job_id"])
        assert ("failed", code) == (shown["status"], shown["error_code"])
        assert 604_000 < town.redis.ttl(f"rag:ingest:job:{bad['job_id']}") <= 604_800
    assert 1 + told == len(list(town.redis.scan_iter("rag:ingest:job:*[0-9a-f]")))


def test_a_file_of_a_type_nobody_reads_goes_to_failed(town: Town):
    message = town.message(town.put("tool.exe", b"MZ"), source_type="exe")

    assert "failed" == town.done(message)["status"]

    names = ["tool.exe", "tool.exe.error.json"]
    assert names == sorted(path.name for path in (town.inbox() / "failed").iterdir())


def record(town: Town, name: str, folder: str = "incoming") -> dict[str, Any]:
    """The error record of a file; empty when there is none."""
    path = town.inbox() / folder / f"{name}.error.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a field": ({"retry_count": -1}, "ERR_INVALID_MESSAGE"),
    "a missing field": ({"submitted_at": None}, "ERR_INVALID_MESSAGE"),
    "the RAG": ({"rag_id": "other_rag"}, "ERR_UNKNOWN_RAG"),
    "another RAG's inbox": ({"rag_id": "faq_rag"}, "ERR_OUTSIDE_RAG"),
    "the id": ({"job_id": "../x y"}, "ERR_INVALID_MESSAGE"),
    "the name": ({"filename": "../../x"}, "ERR_INVALID_MESSAGE"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_message_leaves_its_error_beside_its_file(town: Town, name: str):
    fields, code = REFUSED[name]
    path = town.put("a.txt", "Water.")
    message = town.message(path) | fields
    town.push(message)

    town.gateway().run_round()

    found = record(town, "a.txt")
    assert (code, "failed") == (found["error_code"], found["status"])
    assert (None if name == "the id" else message["job_id"]) == found["job_id"]
    assert found["traceback"].startswith("Traceback (most recent call last):")
    assert ["a.txt", "a.txt.error.json"] == sorted(one.name for one in path.parent.iterdir())


def test_the_record_of_a_refused_message_goes_when_the_file_is_done(town: Town):
    message = town.message(town.put("a.txt", "Water."))
    town.push(message | {"rag_id": "other_rag", "job_id": "first"})
    gateway = town.gateway()
    gateway.run_round()
    assert "first" == record(town, "a.txt")["job_id"]
    town.push(message)

    town.settle(gateway, message["job_id"])

    assert [] == list((town.inbox() / "incoming").iterdir())


def test_no_record_is_written_where_the_gateway_may_not_write(town: Town, tmp_path: Any):
    outside, shared = tmp_path / "outside.txt", town.shared / "shared.txt"
    link = town.inbox() / "incoming" / "link.txt"
    link.symlink_to(outside)
    for path in (outside, shared):
        path.write_text("Water.")
    own = town.put("a.txt", "Water.")
    own.with_name("a.txt.error.json").write_text("A report of the user's own.")
    for path in (outside, shared, link, town.inbox() / "incoming" / "missing.txt", own):
        town.push(town.message(path, retry_count=-1))

    town.gateway().run_round()

    found = sorted(one.relative_to(tmp_path) for one in tmp_path.rglob("*.error.json"))
    assert [own.with_name("a.txt.error.json").relative_to(tmp_path)] == found
    assert "A report of the user's own." == own.with_name("a.txt.error.json").read_text()
    assert 5 == len(town.letters())


def test_a_message_with_the_id_of_another_leaves_the_record_at_its_own_file(town: Town):
    first = town.message(town.put("a.txt", "Water."))
    town.push(first)
    gateway = town.gateway()
    gateway.run_round()
    other = town.message(town.put("b.txt", "Wind."), job_id=first["job_id"])
    for message in (other, first | {"max_retries": 5}):
        town.push(message)
        gateway.run_round()

    assert ("ERR_DUPLICATE_ID", {}) == (record(town, "b.txt")["error_code"], record(town, "a.txt"))
    assert "Traceback" in record(town, "b.txt")["traceback"]


@pytest.mark.parametrize("how", ["latin-1", "half a character"])
def test_a_message_that_is_no_text_has_a_hash_when_its_id_can_be_read(town: Town, how: str):
    message = town.message(town.put("a.txt", "Water."), metadata={"by": "J\u00fcrgen"})
    raw = json.dumps(message, ensure_ascii=False).encode("latin-1")
    if how == "half a character":
        raw = json.dumps(message).replace("\\u00fc", "\\ud800").encode()
    town.redis.lpush(QUEUE, raw)

    town.gateway().run_round()

    shown = town.hash(message["job_id"])
    assert ("failed", "ERR_INVALID_MESSAGE", "a.txt") == tuple(
        shown[name] for name in ("status", "error_code", "filename")
    )
    assert message["job_id"] == record(town, "a.txt")["job_id"]
    assert [raw.decode("utf-8", "backslashreplace")] == [letter["message"] for letter in town.letters()]


def test_an_id_that_is_no_text_names_no_hash(town: Town):
    town.redis.lpush(QUEUE, b'{"job_id": "J\xfcrgen"}')

    town.gateway().run_round()

    assert ([], 1) == (list(town.redis.scan_iter("rag:ingest:job:*")), len(town.letters()))


@pytest.mark.parametrize(
    ("name", "content"), [("a.pdf", b"no PDF"), ("a.txt", b"\x7fELF"), ("gone.txt", None)]
)
def test_the_traceback_of_a_failed_job_is_one(town: Town, name: str, content: bytes | None):
    path = town.inbox() / "incoming" / name
    if content is not None:
        town.put(name, content)

    assert "failed" == town.done(town.message(path))["status"]

    found = record(town, name, "failed")["traceback"]
    assert found.startswith("Traceback (most recent call last):")
    assert 'File "' in found


def test_a_file_that_came_too_late_to_be_read_stays(town: Town):
    path = town.inbox() / "incoming" / "late.txt"
    message = town.message(path)
    town.push(message)
    gateway = town.gateway()
    gateway.run_round()
    with town.app.worker_thread():
        town.app.wait(message["job_id"], timeout=60)
    path.write_text("Water.")

    (shown,) = town.settle(gateway, message["job_id"])

    assert ("failed", True, False) == (
        shown["status"],
        path.exists(),
        (town.inbox() / "failed" / "late.txt").exists(),
    )
    assert (str(path), True) == (shown["file"], "changed since" in shown["file_error"])
    assert "ERR_FILE_NOT_FOUND" == record(town, "late.txt", "failed")["error_code"]


def test_a_message_sent_twice_is_one_job(town: Town):
    message = town.message(town.put("a.txt", "Water."))
    gateway = town.gateway()
    town.push(message)
    town.push(message)
    gateway.run_round()
    town.settle(gateway, message["job_id"])
    town.push(message)
    gateway.run_round()

    assert ("done", []) == (town.hash(message["job_id"])["status"], town.letters())
    assert 1 == len(town.app.jobs())
    assert NOTHING_LEFT == town.left_over()


def test_a_message_that_counts_one_more_attempt_puts_a_failed_job_back(town: Town):
    path = town.put("a.txt", b"\x7fELF")
    message = town.message(path)
    assert "failed" == town.done(message)["status"]
    path.write_text("Water.")

    town.push(message)
    town.gateway().run_round()
    assert "failed" == town.hash(message["job_id"])["status"]
    town.push(message | {"retry_count": 1})
    gateway = town.gateway()
    gateway.run_round()
    assert ("queued", "", -1) == (
        town.hash(message["job_id"])["status"],
        town.hash(message["job_id"])["file"],
        town.redis.ttl(f"rag:ingest:job:{message['job_id']}"),
    )
    (shown,) = town.settle(gateway, message["job_id"])

    assert ("done", "", 1) == (shown["status"], shown["error"], len(town.app.jobs()))
    assert NOTHING_LEFT == town.left_over()


def test_a_message_that_was_refused_can_be_mended_and_sent_again(town: Town):
    path = town.put("a.txt", "Water.")
    message = town.message(path)
    assert "failed" == town.done(message | {"rag_id": "other_rag"})["status"]
    gateway = town.gateway()
    town.push(message)
    gateway.run_round()

    assert "queued" == town.hash(message["job_id"])["status"]

    (shown,) = town.settle(gateway, message["job_id"])
    assert ("done", "") == (shown["status"], shown["error"])
    assert not path.exists()


def test_an_id_that_was_used_for_something_else(town: Town):
    first = town.message(town.put("a.txt", "Water."))
    town.done(first)
    other = town.message(town.put("b.txt", "Wind."), job_id=first["job_id"])
    town.push(other)

    town.gateway().run_round()

    (letter,) = town.letters()
    assert ("ERR_DUPLICATE_ID", other) == (letter["code"], letter["message"])
    assert ("done", "a.txt") == tuple(town.hash(first["job_id"])[name] for name in ("status", "filename"))
    assert (town.inbox() / "incoming" / "b.txt").exists()


@pytest.mark.parametrize("ended", [True, False])
def test_a_bad_message_does_not_touch_the_hash_of_a_job_that_has_its_id(town: Town, ended: bool):
    good = town.message(town.put("a.txt", "Water."))
    gateway = town.gateway()
    town.push(good)
    gateway.run_round()
    if ended:
        town.settle(gateway, good["job_id"])
    town.push(good | {"rag_id": "other_rag"})
    gateway.run_round()

    assert ("done" if ended else "queued") == town.hash(good["job_id"])["status"]
    assert ["ERR_UNKNOWN_RAG"] == [letter["code"] for letter in town.letters()]


def test_a_full_queue_holds_messages_back_instead_of_failing(town: Town, tmp_path_factory: Any):
    small = Town(tmp_path_factory.mktemp("small"), town.url, max_queue=3)
    ids = [small.push(small.message(small.put(f"{n}.txt", f"Water {n}."))) for n in range(8)]
    gateway = small.gateway()
    for _ in range(5):
        gateway.run_round()

    assert (3, 5) == (len(small.app.jobs(status="pending")), small.redis.llen(QUEUE))
    assert {"done"} == {shown["status"] for shown in small.settle(gateway, *ids)}
    assert ([], NOTHING_LEFT) == (small.letters(), small.left_over())
    small.close()


def test_what_the_queue_has_no_room_for_after_all_waits_with_the_gateway(town: Town, tmp_path_factory: Any):
    small = Town(tmp_path_factory.mktemp("small"), town.url, max_queue=3)
    ids = [small.push(small.message(small.put(f"{n}.txt", f"Water {n}."))) for n in range(4)]
    gateway = small.gateway()
    taken = gateway._lists.take(4)
    gateway._intake.forget()
    gateway.run_round()

    pending = small.app.jobs(status="pending")
    assert (4, 3, 1) == (len(taken), len(pending), len(gateway._lists.list_taken()))
    assert {"done"} == {shown["status"] for shown in small.settle(gateway, *ids)}
    assert NOTHING_LEFT == small.left_over()
    small.close()


def test_a_tenant_without_room_does_not_keep_the_others_waiting(town: Town, tmp_path_factory: Any):
    small = Town(tmp_path_factory.mktemp("small"), town.url, max_queue_per_tenant=2)
    small.config.write_text("sources: sources\nrags: {policies_rag: {tenant: a}, faq_rag: {tenant: b}}")
    full = [small.push(small.message(small.put(f"{n}.txt", "Water."))) for n in range(5)]
    other = small.push(small.message(small.put("o.txt", "Wind.", "faq_rag"), "faq_rag"))
    gateway = small.gateway()
    gateway.run_round()

    assert ["a", "a", "b"] == sorted(job.tenant_id for job in small.app.jobs(status="pending"))
    assert {"done"} == {shown["status"] for shown in small.settle(gateway, *full, other)}
    assert NOTHING_LEFT == small.left_over()
    small.close()


def test_a_job_that_is_cancelled_or_purged_ends_its_hash(town: Town):
    gateway = town.gateway()
    first = town.push(town.message(town.put("a.txt", "Water.")))
    second = town.push(town.message(town.put("b.txt", "Wind.")))
    gateway.run_round()
    town.app.cancel(first)
    town.app.cancel(second)
    town.app.queue.prune({town.app.job(second).status: town.app.queue.now()}, limit=1)
    gateway.run_round()

    found = {town.hash(job_id)["error_type"] for job_id in (first, second)}
    assert {"Cancelled", "Removed"} == found
    assert {"failed"} == {town.hash(job_id)["status"] for job_id in (first, second)}


def test_a_text_where_the_hash_belongs_makes_room_for_it(town: Town):
    good, bad = town.message(town.put("a.txt", "Water.")), town.message("/elsewhere/b.txt")
    for message in (good, bad):
        town.redis.set(f"rag:ingest:job:{message['job_id']}", '{"status": "submitted"}')
        town.push(message)

    found = town.settle(town.gateway(), good["job_id"], bad["job_id"])

    assert ["done", "failed"] == [shown["status"] for shown in found]
    assert NOTHING_LEFT == town.left_over()
