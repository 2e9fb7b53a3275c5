"""Messages pushed with plain Redis commands, through the real pipeline, to their hashes and folders."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.durable_engines import given_back
from tests.documents.conftest import QUEUES
from tests.pipeline.sample_documents import docx, paragraph, pdf
from tests.redis_contract.conftest import NOTHING_LEFT, QUEUE, Town
from tests.servers.redis import server_url

EXAMPLES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("rag-policies_rag-1704882600-a7b2c3d4", "policies_rag", "employee_handbook.pdf", {}),
    (
        "rag-faq_rag-1704882601-b8c3d4e5",
        "faq_rag",
        "faq_list.txt",
        {"options": {"reindex": True, "skip_validation": False, "preserve_metadata": False}},
    ),
    ("rag-procedures_rag-1704882602-c9d4e5f6", "procedures_rag", "procedures.docx", {"retry_count": 2}),
]
CONTENT = {
    "employee_handbook.pdf": pdf("Holidays are thirty days.", "Sick leave is paid."),
    "faq_list.txt": b"Where is the gate? At the river.",
    "procedures.docx": docx(paragraph("Close the gate at night.")),
}
CONTRACT = set(
    "job_id rag_id filename status submitted_at started_at completed_at duration_seconds chunks_created "
    "embeddings_generated tokens_used error error_type retry_count".split()
)


def test_the_three_examples_of_the_contract(town: Town):
    ids = []
    for job_id, rag_id, filename, more in EXAMPLES:
        path = town.put(filename, CONTENT[filename], rag_id)
        ids.append(town.push(town.message(path, rag_id, job_id=job_id, **more)))

    found = town.settle(town.gateway(), *ids)

    for (job_id, rag_id, filename, more), shown in zip(EXAMPLES, found, strict=True):
        assert set(shown) >= CONTRACT
        assert (job_id, rag_id, filename, "done", "2025-01-10T20:15:30.123456Z") == (
            shown["job_id"],
            shown["rag_id"],
            shown["filename"],
            shown["status"],
            shown["submitted_at"],
        )
        assert int(shown["chunks_created"]) == int(shown["embeddings_generated"]) > 0
        assert int(shown["tokens_used"]) > 0
        assert ("", "", str(more.get("retry_count", 0))) == (
            shown["error"],
            shown["error_type"],
            shown["retry_count"],
        )
        assert shown["started_at"] <= shown["completed_at"]
        assert float(shown["duration_seconds"]) >= 0
        assert not (town.inbox(rag_id) / "incoming" / filename).exists()
        processed = town.inbox(rag_id) / "processed" / filename
        assert (CONTENT[filename], str(processed)) == (processed.read_bytes(), shown["file"])
        for key in (f"rag:ingest:job:{job_id}", f"rag:ingest:job:{job_id}:ttl"):
            assert 604_000 < town.redis.ttl(key) <= 604_800
    assert [str(town.inbox() / "processed/employee_handbook.pdf")] == town.found("holidays")
    assert [str(town.inbox("faq_rag") / "processed/faq_list.txt")] == town.found("river", "faq_rag")
    assert NOTHING_LEFT == town.left_over()
    assert [] == town.letters()


@pytest.mark.parametrize("engine", QUEUES)
def test_any_engine_can_stand_behind_the_gateway(tmp_path: Path, engine: str):
    town = Town(tmp_path, server_url(), QUEUES[engine](tmp_path))
    good = town.push(town.message(town.put("good.txt", "Water."), job_id=f"rag-x-1-{engine}"))
    bad = town.push(town.message(town.put("bad.txt", b"\x7fELF"), job_id=f"rag-x-2-{engine}"))

    found = town.settle(town.gateway(), good, bad)

    assert ["done", "failed"] == [shown["status"] for shown in found]
    assert [str(town.inbox() / "processed/good.txt")] == town.found("water")
    assert NOTHING_LEFT == town.left_over()
    town.empty()
    town.close()
    given_back(tmp_path)


def test_a_damaged_file_fails_with_its_error_beside_it(town: Town):
    path = town.put("broken.pdf", b"%PDF-1.4\nand then nothing that could be a document")

    shown = town.done(town.message(path))

    assert ("failed", "ParseError", "ERR_PDF_INVALID", "0") == (
        shown["status"],
        shown["error_type"],
        shown["error_code"],
        shown["retry_count"],
    )
    failed = town.inbox() / "failed"
    assert (True, False) == ((failed / "broken.pdf").exists(), path.exists())
    record = json.loads((failed / "broken.pdf.error.json").read_text())
    assert set(record) == set(
        "job_id rag_id filename status submitted_at started_at failed_at error error_type error_code "
        "retry_count max_retries suggestions traceback".split()
    )
    assert ("failed", 0, 3, shown["error"]) == (
        record["status"],
        record["retry_count"],
        record["max_retries"],
        record["error"],
    )
    assert "Verify PDF is valid using: pdfinfo broken.pdf" == record["suggestions"][0]
    (letter,) = town.letters()
    assert (shown["job_id"], "ERR_PDF_INVALID", shown["job_id"]) == (
        letter["job_id"],
        letter["code"],
        letter["message"]["job_id"],
    )
    assert 604_000 < town.redis.ttl(f"rag:ingest:job:{shown['job_id']}") <= 604_800


def test_a_file_that_is_not_there_fails_at_once(town: Town):
    shown = town.done(town.message(town.inbox() / "incoming" / "none.txt"))

    assert ("failed", "FileNotFound", "ERR_FILE_NOT_FOUND") == (
        shown["status"],
        shown["error_type"],
        shown["error_code"],
    )
    assert ["none.txt.error.json"] == [path.name for path in (town.inbox() / "failed").iterdir()]


def test_files_elsewhere_are_never_moved(town: Town):
    good, bad = town.shared / "good.md", town.shared / "bad.pdf"
    good.write_text("Water drives the wheel.")
    bad.write_bytes(b"no PDF at all")

    shown = [town.done(town.message(path)) for path in (good, bad)]

    assert ["done", "failed"] == [one["status"] for one in shown]
    assert ["bad.pdf", "good.md"] == sorted(path.name for path in town.shared.iterdir())
    assert [str(good)] == town.found("wheel")
    assert (town.inbox() / "failed" / "bad.pdf.error.json").exists()


def test_what_was_processed_can_be_asked_for_again_where_it_lies(town: Town):
    town.done(town.message(town.put("a.md", "Water drives the wheel.")))
    processed = town.inbox() / "processed" / "a.md"

    shown = town.done(town.message(processed, options={"reindex": True}))

    assert ("done", "indexed", True) == (shown["status"], shown["outcome"], processed.exists())
    assert [str(processed)] == town.found("wheel")


def test_what_is_unchanged_counts_and_reindex_does_it_again(town: Town):
    path = town.shared / "a.md"
    path.write_text("Water drives the wheel.")
    outcomes = [
        (shown["outcome"], shown["chunks_created"], shown["embeddings_generated"])
        for options in ({}, {}, {"reindex": True})
        for shown in [town.done(town.message(path, options=options))]
    ]

    assert [("indexed", "1", "1"), ("unchanged", "0", "0"), ("indexed", "1", "0")] == outcomes


@pytest.mark.parametrize("keep", [True, False])
def test_metadata_is_kept_or_dropped(town: Town, keep: bool):
    path = town.shared / "a.md"
    path.write_text("Water.")
    town.done(town.message(path, tags=["mill"], metadata={"owner": "Ann"}))
    path.write_text("Wind.")
    town.done(town.message(path, options={"preserve_metadata": keep}))

    source = town.app.documents.source(str(path), collection="policies_rag")
    expected: Any = (("mill",), {"owner": "Ann"}) if keep else ((), {})
    assert expected == (source.tags, json.loads(source.metadata))


@pytest.mark.parametrize("skip", [True, False])
def test_skip_validation_takes_the_content_for_what_it_is(town: Town, skip: bool):
    path = town.put("really.txt", pdf("Holidays."))

    shown = town.done(town.message(path, options={"skip_validation": skip}))

    assert ("done" if skip else "failed", skip) == (shown["status"], bool(town.found("holidays")))


def test_lists_have_the_contracts_priorities(town: Town):
    gateway = town.gateway()
    pushed = {
        name: town.push(town.message(town.put(f"{name}.txt", name)), key)
        for name, key in {
            "plain": QUEUE,
            "low": f"{QUEUE}:low",
            "high": f"{QUEUE}:high",
            "normal": f"{QUEUE}:normal",
            "own": f"{QUEUE}:faq_rag",
        }.items()
    }

    gateway.run_round()

    priorities = {name: town.app.job(job_id).priority for name, job_id in pushed.items()}
    assert {"plain": 5, "low": 1, "high": 8, "normal": 5, "own": 5} == priorities
    assert {"queued"} == {town.hash(job_id)["status"] for job_id in pushed.values()}


def test_the_hash_follows_a_job_through_its_life(town: Town):
    text = "\n\n".join(f"# Part {n}\n\n" + f"Wheel number{n}. " * 80 for n in range(400))
    job_id = town.push(town.message(town.put("big.md", text)))
    gateway, seen = town.gateway(), []
    gateway.run_round()
    seen.append(town.hash(job_id)["status"])

    with town.app.worker_thread():
        while seen[-1] not in ("done", "failed"):
            gateway.run_round()
            shown = town.hash(job_id)
            seen.append(shown["status"])

    assert ["queued", "processing", "done"] == list(dict.fromkeys(seen))
    assert int(shown["chunks_created"]) > 256


def test_unknown_fields_are_kept_with_the_job(town: Town):
    message = town.message(town.put("a.txt", "Water."), colour="red")

    town.done(message)

    assert message == json.loads(town.app.job(message["job_id"]).metadata)["message"]


@pytest.mark.parametrize("swapped", ["file", "folder"])
def test_a_link_put_in_the_way_after_the_check_leads_nowhere(town: Town, swapped: str):
    elsewhere = town.place / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a.txt").write_text("Confidential.")
    path = town.put("sub/a.txt", "Water.")
    message, gateway = town.message(path), town.gateway()
    town.push(message)
    gateway.run_round()
    path.unlink()
    if swapped == "file":
        path.symlink_to(elsewhere / "a.txt")
    else:
        path.parent.rmdir()
        path.parent.symlink_to(elsewhere)

    (shown,) = town.settle(gateway, message["job_id"])

    assert ("failed", "PathNotAllowed") == (shown["status"], shown["error_type"])
    assert ([], True) == (town.found("confidential"), (elsewhere / "a.txt").exists())


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_removes_nothing_that_is_indexed(town: Town, make: Callable[[Path], None]):
    town.done(town.message(town.put("a.txt", "Water.")))
    make(town.inbox() / "incoming" / "a.txt")

    shown = town.done(town.message(town.inbox() / "incoming" / "a.txt"))

    assert ("failed", "ERR_UNSUPPORTED_TYPE") == (shown["status"], shown["error_code"])
    assert [str(town.inbox() / "processed" / "a.txt")] == town.found("water")
