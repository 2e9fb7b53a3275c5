"""The option ``reindex``: the new version is published, then the other documents of the collection go."""

from __future__ import annotations

import json
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.catalog.values import Place
from penstock.queue.payloads import note_path
from penstock.redis_contract import reindex_series
from penstock.redis_contract.gateway import Gateway
from tests.redis_contract.conftest import NOTHING_LEFT, RAGS, Town
from tests.redis_contract.killed_gateway import start_gateway
from tests.servers.redis import server_url
from tests.servers.stores import given_back, store_url

REINDEX: dict[str, Any] = {"options": {"reindex": True}}


def shared(town: Town, name: str, text: str, **more: Any) -> dict[str, Any]:
    """A message for a file in the shared folder, which is written."""
    path = town.shared / name
    path.write_text(text)
    return town.message(path, **more)


def end_jobs(town: Town) -> None:
    """Work until every job has ended; no gateway sees it."""
    with town.app.worker_thread():
        for job in town.app.jobs(status=("pending", "in_progress")):
            town.app.wait(job.queue_id, timeout=30)


def names(town: Town, query: str, collection: str = "policies_rag") -> list[str]:
    return sorted(Path(path).name for path in town.found(query, collection))


def test_the_old_documents_are_found_until_the_new_one_is_published_and_never_after(town: Town):
    town.done(shared(town, "other.md", "The gate stays shut."))
    path = town.put("big.md", "\n\n".join(f"# Part {n}\n\n" + f"Wheel number{n}. " * 80 for n in range(300)))
    town.done(town.message(path))
    processed = town.inbox() / "processed" / "big.md"
    path.write_bytes(processed.read_bytes())
    job_id = town.push(town.message(path, **REINDEX))
    gateway, seen = town.gateway(), []

    with town.app.worker_thread():
        while town.hash(job_id).get("status") not in ("done", "failed"):
            gateway.run_round()
            seen.append((town.found("number7"), town.found("gate")))

    assert ("done", "indexed") == (town.hash(job_id)["status"], town.hash(job_id)["outcome"])
    assert {str(processed)} == {path for found, _ in seen for path in found}
    assert [] == [number for number, (found, _) in enumerate(seen) if not found]
    assert [] == town.found("gate")
    history = town.app.documents.history(str(town.shared / "other.md"), collection="policies_rag")
    assert "removed" == history[-1].what


def test_messages_of_one_series_do_not_remove_each_other(town: Town):
    for number in range(3):
        town.done(shared(town, f"old{number}.md", f"Gate number{number}."))
    pushed = [town.push(shared(town, f"{name}.md", f"Gate {name}.", **REINDEX)) for name in "abc"]
    # One of the old ones is named as well.
    pushed.append(town.push(shared(town, "old1.md", "Gate number1.", **REINDEX)))

    found = town.settle(town.gateway(), *pushed)

    assert ["done"] * 4 == [one["status"] for one in found]
    assert ["a.md", "b.md", "c.md", "old1.md"] == names(town, "gate")
    assert NOTHING_LEFT == town.left_over()


def test_a_message_that_arrives_while_another_one_is_worked_on_belongs_to_its_series(town: Town):
    town.done(shared(town, "old.md", "Old gate."))
    gateway = town.gateway()
    first = town.push(shared(town, "a.md", "Gate a.", **REINDEX))
    gateway.run_round()
    second = town.push(shared(town, "b.md", "Gate b.", **REINDEX))
    gateway.run_round()

    town.settle(gateway, first, second)

    assert ["a.md", "b.md"] == names(town, "gate")


def test_a_later_series_removes_the_documents_of_the_one_before(town: Town):
    town.done(shared(town, "a.md", "Gate a.", **REINDEX))
    town.done(shared(town, "b.md", "Gate b.", **REINDEX))

    assert ["b.md"] == names(town, "gate")


def test_messages_that_waited_since_before_the_end_of_a_series_belong_to_it(town: Town):
    """The queue has room for a part of them, and the gateway is gone while this part is worked on."""
    town.done(shared(town, "old.md", "Old gate."))
    first_gateway = town.gateway()
    first = town.push(shared(town, "a.md", "Gate a.", **REINDEX))
    first_gateway.run_round(mirror=False)
    waited = town.push(shared(town, "b.md", "Gate b.", submitted_at=datetime.now(UTC).isoformat(), **REINDEX))
    end_jobs(town)
    first_gateway.leave()

    town.settle(town.gateway(), first, waited)

    assert ["a.md", "b.md"] == names(town, "gate")


def test_a_time_of_long_ago_makes_no_message_a_part_of_the_series_before(town: Town):
    town.done(shared(town, "a.md", "Gate a.", **REINDEX))
    long_ago = (datetime.now(UTC) - timedelta(days=2)).isoformat()
    town.done(shared(town, "b.md", "Gate b.", submitted_at=long_ago, **REINDEX))

    assert ["b.md"] == names(town, "gate")


def test_nothing_is_lost_when_the_new_version_cannot_be_read(town: Town):
    town.done(shared(town, "plan.md", "The plan of the gate."))
    town.done(shared(town, "other.md", "The other gate."))
    broken = town.shared / "plan.md"
    broken.write_bytes(b"%PDF-1.4 damaged")

    assert "failed" == town.done(town.message(broken, **REINDEX))["status"]
    assert ["other.md", "plan.md"] == names(town, "gate")

    pushed = [
        town.push(town.message(broken, **REINDEX)),
        town.push(shared(town, "new.md", "The new gate.", **REINDEX)),
    ]
    assert ["failed", "done"] == [one["status"] for one in town.settle(town.gateway(), *pushed)]
    assert ["new.md", "plan.md"] == names(town, "gate")


def test_the_rest_is_removed_also_when_the_last_message_of_the_series_fails(town: Town):
    town.done(shared(town, "old.md", "Old gate."))
    gateway = town.gateway()
    done = town.push(shared(town, "a.md", "Gate a.", **REINDEX))
    failing = town.push(town.message(town.shared / "missing.md", **REINDEX, max_retries=0))
    gateway.run_round(mirror=False)
    end_jobs(town)

    town.settle(gateway, done, failing)

    assert ["a.md"] == names(town, "gate")


def test_a_message_that_is_sent_again_wins_over_a_series_that_ended_meanwhile(town: Town):
    late = town.message(town.shared / "late.md", **REINDEX, max_retries=0)
    assert "failed" == town.done(late)["status"]
    town.done(shared(town, "other.md", "Gate other.", **REINDEX))
    (town.shared / "late.md").write_text("Gate late.")

    found = town.done(late | {"retry_count": 1})

    assert ("done", "indexed") == (found["status"], found["outcome"])
    assert ["late.md", "other.md"] == names(town, "gate")


def test_a_series_that_is_cancelled_removes_nothing(town: Town):
    town.done(shared(town, "old.md", "Old gate."))
    gateway = town.gateway()
    job_id = town.push(shared(town, "a.md", "Gate a.", **REINDEX))
    gateway.run_round(mirror=False)
    town.app.cancel(job_id)

    town.settle(gateway, job_id)

    assert ["old.md"] == names(town, "gate")


def test_what_was_asked_for_since_stays_and_what_is_worked_on_late_goes(town: Town):
    gateway = town.gateway()
    before = town.push(shared(town, "before.md", "Gate before."))
    gateway.run_round(mirror=False)
    asked = town.push(shared(town, "a.md", "Gate a.", **REINDEX))
    gateway.run_round(mirror=False)
    after = town.push(shared(town, "after.md", "Gate after."))
    gateway.run_round(mirror=False)
    by_hand = town.app.index(town.shared / "after.md", collection="policies_rag")
    other = town.push(shared(town, "other.md", "Gate other.", rag_id="faq_rag"))

    town.settle(gateway, before, asked, after, other)

    assert by_hand.job_id
    assert ["a.md", "after.md"] == names(town, "gate")
    assert ["other.md"] == names(town, "gate", "faq_rag")


def test_folders_and_notes_asked_for_since_keep_their_former_versions(town: Town):
    docs, other = town.shared / "docs", town.shared / "other"
    where: dict[str, Any] = {"collection": "policies_rag"}
    for folder in (docs, other):
        folder.mkdir()
        (folder / f"{folder.name}.md").write_text("The gate.")
        town.app.index(folder, **where)
    for text in ("The gate of a note.", "A replaced gate."):
        town.app.documents.note(text, **where)
    end_jobs(town)
    place = Place("default", "policies_rag", "main")
    with town.app.documents.catalog.snapshot() as snapshot:
        replaced = snapshot.find(place, note_path("A replaced gate."))
    assert replaced is not None
    gateway = town.gateway()
    asked = town.push(shared(town, "a.md", "Gate a.", **REINDEX))
    gateway.run_round(mirror=False)
    later: dict[str, Any] = {"delay": 3600, **where}
    update = {"content": "Another gate.", "document_id": replaced.source_id}
    town.app.submit(item_type="folder", op="ingest", payload={"folder_path": str(docs)}, **later)
    town.app.submit(item_type="content", op="ingest", payload={"content": "The gate of a note."}, **later)
    town.app.submit(item_type="content", op="update", payload=update, **later)

    assert "done" == town.settle(gateway, asked)[0]["status"]

    notes = [Path(note_path(text)).name for text in ("The gate of a note.", "A replaced gate.")]
    assert sorted(["a.md", "docs.md", *notes]) == names(town, "gate")


@pytest.mark.parametrize("left", ["killed", "leaving"])
def test_the_next_gateway_removes_what_the_former_one_did_not(
    town: Town, left: str, monkeypatch: pytest.MonkeyPatch
):
    town.done(shared(town, "old.md", "Old gate."))
    gateway = town.gateway()
    job_id = town.push(shared(town, "a.md", "Gate a.", **REINDEX))
    gateway.run_round(mirror=False)
    end_jobs(town)
    assert ["a.md", "old.md"] == names(town, "gate")
    if left == "leaving":
        gateway.leave()
    else:
        monkeypatch.setattr("penstock.redis_contract.lists.SILENT_S", 0.0)

    town.settle(town.gateway(), job_id)

    assert ["a.md"] == names(town, "gate")


@pytest.mark.parametrize(
    "point",
    [
        "rest removed, not told",
        *[
            pytest.param(point, marks=pytest.mark.long)
            for point in ("added, not acknowledged", "one acknowledged, the others not", "rest not removed")
        ],
    ],
)
def test_a_series_survives_a_gateway_that_is_killed(town: Town, point: str):
    town.done(shared(town, "old.md", "Old gate."))
    pushed = [town.push(shared(town, f"{name}.md", f"Gate {name}.", **REINDEX)) for name in "abc"]
    with town.app.worker_thread():
        killed = start_gateway(town.settings, point)
        assert -signal.SIGKILL == killed.wait(60)
    # As if time had passed since its last heartbeat.
    for name, said in town.redis.hgetall("rag:ingest:gateways").items():
        town.redis.hset("rag:ingest:gateways", name, json.dumps(json.loads(said) | {"at": 1}))

    found = town.settle(town.gateway(), *pushed)

    assert ["done"] * 3 == [one["status"] for one in found]
    assert ["a.md", "b.md", "c.md"] == names(town, "gate")
    assert NOTHING_LEFT == town.left_over()


def test_the_rest_waits_for_messages_that_are_still_in_a_list(town: Town, monkeypatch: pytest.MonkeyPatch):
    """Their old versions would be missing until they are taken. It waits for seconds, not for ever."""
    town.done(shared(town, "old.md", "Old gate."))
    gateway = town.gateway()
    job_id = town.push(shared(town, "a.md", "Gate a.", **REINDEX))
    gateway.run_round(mirror=False)
    end_jobs(town)
    waiting = town.push(shared(town, "old.md", "Old gate, painted.", **REINDEX))
    monkeypatch.setattr(Gateway, "_take_over", lambda *_, **__: None)
    with monkeypatch.context() as patch:
        patch.setattr(type(gateway._intake._jobs), "room", lambda _: 0)
        gateway.run_round()
        assert ["a.md", "old.md"] == names(town, "gate")
        patch.setattr(reindex_series, "WAITS_FOR", timedelta(0))
        gateway.run_round()
        assert ["a.md"] == names(town, "gate")

    town.settle(gateway, job_id, waiting)

    assert ["old.md"] == names(town, "gate")


def test_a_message_taken_while_the_rest_waits_for_it_belongs_to_the_series(
    town: Town, monkeypatch: pytest.MonkeyPatch
):
    town.done(shared(town, "old.md", "Old gate."))
    gateway = town.gateway()
    first = town.push(shared(town, "a.md", "Gate a.", **REINDEX))
    gateway.run_round(mirror=False)
    end_jobs(town)
    second = town.push(shared(town, "b.md", "Gate b.", **REINDEX))
    with monkeypatch.context() as patch:
        patch.setattr(type(gateway._intake._jobs), "room", lambda _: 0)
        gateway.run_round()

    town.settle(gateway, first, second)

    assert ["a.md", "b.md"] == names(town, "gate")


def test_every_rag_is_a_collection_of_its_own(town: Town):
    for rag_id in RAGS:
        town.done(shared(town, f"{rag_id}.md", "Old gate.", rag_id=rag_id))

    town.done(shared(town, "a.md", "Gate a.", **REINDEX))

    assert [["a.md"], ["faq_rag.md"], ["procedures_rag.md"]] == [
        names(town, "gate", rag_id) for rag_id in RAGS
    ]


@pytest.mark.long
@pytest.mark.parametrize("engine", ["postgres", "jsonl", "redis"])
def test_a_series_is_replaced_as_a_whole_on_every_engine(tmp_path: Path, engine: str):
    town = Town(tmp_path, server_url(), queue_url=store_url(engine, tmp_path))
    try:
        town.done(shared(town, "old.md", "Old gate."))
        pushed = [town.push(shared(town, f"{name}.md", f"Gate {name}.", **REINDEX)) for name in "ab"]
        pushed.append(town.push(town.message(town.shared / "missing.md", **REINDEX)))
        found = town.settle(town.gateway(), *pushed)
        assert ["done", "done", "failed"] == [one["status"] for one in found]
        assert ["a.md", "b.md"] == names(town, "gate")
        assert [] == town.app.documents.catalog.audit()
    finally:
        town.empty()
        town.close()
        given_back(tmp_path)
