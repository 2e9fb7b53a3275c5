"""A deleted tenant leaves one audit line and no other trace in files, tables or keys."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock.queue.job import ClaimRequest, JobQuery, Status
from penstock.worker.upkeep import ScheduleRunner
from tests.documents.conftest import QUEUES, WAIT_S, IndexedFolder
from tests.servers.redis import contents
from tests.servers.stores import others_later

pytestmark = pytest.mark.parametrize("docs", others_later(QUEUES), indirect=True)

SECRETS = ("zebraxylo", "marmosetine", "secretname", "walrusfail", "quokkaterm", "axolotlarg")
"""Words that occur only in the tenant's data: texts, notes, file names, errors, arguments."""


def remnants(docs: IndexedFolder, tmp_path: Path) -> dict[str, list[str]]:
    """The secrets that are still found, by place."""
    places = dict(files(tmp_path))
    url = docs.app.settings.url
    if url.startswith("postgresql"):
        places |= tables(url)
    if url.startswith("redis"):
        places["redis"] = repr(contents(url)).encode()
    found = {place: [word for word in SECRETS if word.encode() in held] for place, held in places.items()}
    return {place: words for place, words in found.items() if words}


def files(tmp_path: Path) -> dict[str, bytes]:
    """Bytes of all files, databases after a VACUUM."""
    held = {}
    for path in (each for each in tmp_path.rglob("*") if each.is_file() and "files" not in each.parts):
        if path.suffix == ".db":
            copy = tmp_path / "files" / f"{path.name}.vacuumed"
            copy.unlink(missing_ok=True)
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("VACUUM INTO ?", (str(copy),))
            held[path.name] = copy.read_bytes()
        elif not path.name.endswith(("-wal", "-shm")):
            held[str(path.relative_to(tmp_path))] = path.read_bytes()
        elif path.name.endswith("-wal"):
            held[path.name] = path.read_bytes()
    return held


def tables(url: str) -> dict[str, bytes]:
    with psycopg.connect(url) as connection:
        names = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        ).fetchall()
        return {
            name: "\n".join(
                row[0] for row in connection.execute(f'SELECT t::text FROM "{name}" t').fetchall()
            ).encode()
            for (name,) in names
        }


def fill_tenant(docs: IndexedFolder, tenant_id: str) -> None:
    """Fill the tenant: documents, notes, failures, edits, renames, deletes, and functions in all states."""
    docs.app.function("keep")(lambda payload: payload)
    docs.app.function("fail")(_fail)
    docs.put("secretname/one.md", "The zebraxylo drives the wheel.\n\n# Two\n\nquokkaterm here.")
    docs.put("secretname/two.md", "More of zebraxylo.")
    docs.put("secretname/walrusfail.pdf", "no PDF")
    docs.index(tenant_id=tenant_id)
    docs.put("secretname/one.md", "The zebraxylo was edited. quokkaterm.")
    docs.index(tenant_id=tenant_id)
    moved = {
        "old_path": str(docs.folder / "secretname/two.md"),
        "new_path": str(docs.folder / "secretname/three.md"),
    }
    (docs.folder / "secretname/two.md").rename(docs.folder / "secretname/three.md")
    docs.run("rename", "update", {**moved, "is_folder": False}, tenant_id=tenant_id)
    docs.run("delete_document", "delete", {"document_id": moved["new_path"]}, tenant_id=tenant_id)
    note = {"content": "A note about marmosetine. " * 2000, "source_type": "scratchbook"}
    docs.run("content", "ingest", note, tenant_id=tenant_id)
    with docs.app.worker_thread():
        for name in ("keep", "fail"):
            receipt = docs.app.call(name, {"argument": "axolotlarg"}, tenant_id=tenant_id, max_retries=0)
            docs.app.wait(receipt.job_id, timeout=WAIT_S)
    for delay in (None, 3600):
        entity = ("customer", "axolotlarg")
        docs.app.call("keep", {"argument": "axolotlarg"}, entity=entity, tenant_id=tenant_id, delay=delay)
    docs.app.cancel(docs.app.call("keep", {"argument": "axolotlarg"}, tenant_id=tenant_id).job_id)
    docs.app.schedules.add_call("0 3 * * *", "keep", {"argument": "axolotlarg"}, tenant_id=tenant_id)
    docs.app.search("zebraxylo", tenant_id=tenant_id)


def _fail(payload: dict[str, Any]) -> None:
    raise RuntimeError(f"walrusfail {payload['argument']}")


def delete(docs: IndexedFolder, **fields: Any) -> Any:
    return docs.run("delete_tenant", "delete", {"tenant_id_to_delete": "acme"}, **fields)


@pytest.mark.parametrize("own", [False, True])
def test_nothing_of_a_deleted_tenant_is_left_anywhere(docs: IndexedFolder, tmp_path: Path, own: bool):
    docs.put("keeper.md", "Walrus of the others.")
    docs.index(tenant_id="other")
    fill_tenant(docs, "acme")
    assert remnants(docs, tmp_path)

    job = delete(docs, **({"tenant_id": "acme"} if own else {}))

    assert (Status.DONE, True) == (job.status, job.result["jobs"] > 10)
    docs.app.queue.scrub()
    assert {} == remnants(docs, tmp_path)
    assert [job.queue_id] * own == [each.queue_id for each in docs.app.queue.find(JobQuery(tenant_id="acme"))]
    assert ["keeper.md"] == docs.found("walrus", tenant_id="other")
    assert {"tenant_id_to_delete": "acme"} == job.payload


def test_what_is_asked_for_after_the_delete_stays(docs: IndexedFolder, tmp_path: Path):
    fill_tenant(docs, "acme")
    docs.app.pause(tenant_id="acme")
    receipt = docs.app.submit(item_type="delete_tenant", op="delete", payload={"tenant_id_to_delete": "acme"})
    docs.put("later/new.md", "A new beginning of giraffes.")
    later = docs.app.index(docs.folder / "later", tenant_id="acme")
    docs.app.schedules.add_index("0 3 * * *", docs.folder / "later", tenant_id="acme")
    docs.finish(receipt.job_id)

    assert ["index-later"] == [each.name for each in docs.app.schedules.list(tenant_id="acme")]
    assert Status.PENDING is docs.app.job(later.job_id).status
    assert {later.job_id} == {
        job.queue_id for job in docs.app.queue.find(JobQuery(tenant_id="acme", limit=99))
    }
    docs.app.resume(tenant_id="acme")
    assert Status.DONE is docs.finish(later.job_id).status
    assert ["new.md"] == docs.found("giraffes", tenant_id="acme")
    assert {} == remnants(docs, tmp_path)


def test_a_schedule_that_is_due_before_the_delete_runs_brings_nothing_back(
    docs: IndexedFolder, tmp_path: Path
):
    fill_tenant(docs, "acme")
    docs.app.schedules.add_index("* * * * *", docs.folder / "secretname", tenant_id="acme")
    docs.put("keeper.md", "Walrus of the others.")
    docs.app.schedules.add_index("* * * * *", docs.folder / "keeper.md", tenant_id="other")
    receipt = docs.app.submit(item_type="delete_tenant", op="delete", payload={"tenant_id_to_delete": "acme"})
    docs.app.schedules.add_index("* * * * *", docs.folder / "keeper.md", tenant_id="acme")
    ScheduleRunner(docs.app.queue).run(docs.app.queue.now() + timedelta(minutes=2))
    added = {"acme": 0, "other": 0}
    for job in docs.app.jobs(status="pending"):
        if "schedule" in json.loads(job.metadata):
            added[job.tenant_id] += 1
            docs.finish(job.queue_id)
    docs.finish(receipt.job_id)

    assert {"acme": 1, "other": 1} == added
    assert ["index-keeper.md"] == [each.name for each in docs.app.schedules.list(tenant_id="acme")]
    assert ["keeper.md"] == docs.found("walrus", tenant_id="other")
    assert [] == docs.found("zebraxylo", tenant_id="acme")
    docs.app.queue.scrub()
    assert {} == remnants(docs, tmp_path)


def test_a_job_that_runs_while_its_tenant_is_deleted_brings_nothing_back(
    docs: IndexedFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A job that stops on request, and a job whose worker is dead."""
    fill_tenant(docs, "acme")
    monkeypatch.setattr("penstock.handlers.removal.STOP_TIMEOUT_S", 0.5)
    path = docs.put("secretname/slow.md", "zebraxylo " * 50)
    with docs.manual_worker() as worker:
        docs.app.index(path, tenant_id="acme")
        claims = [each for each in docs.app.queue.claim(ClaimRequest("slow", 10)) if each.item_type == "file"]
        begun, go_on = threading.Event(), threading.Event()

        @docs.app.function("stops")
        def paused(payload: Any, context: Any) -> None:
            begun.set()
            while not go_on.wait(0.02):
                context.checkpoint()

        with docs.app.worker_thread(), docs.app.worker_thread():
            docs.app.call("stops", {"argument": "axolotlarg"}, tenant_id="acme")
            assert begun.wait(WAIT_S)
            receipt = docs.app.submit(
                item_type="delete_tenant", op="delete", payload={"tenant_id_to_delete": "acme"}
            )
            assert Status.DONE is docs.app.wait(receipt.job_id, timeout=WAIT_S).status
        go_on.set()
        worker.files(claims)

    docs.app.queue.scrub()
    docs.app.documents.catalog.scrub()
    assert [] == docs.app.queue.find(JobQuery(tenant_id="acme"))
    assert {} == remnants(docs, tmp_path)


def test_jobs_are_removed_in_batches(docs: IndexedFolder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("penstock.handlers.removal.BATCH_JOBS", 7)
    docs.app.function("keep")(lambda payload: payload)
    for tenant_id, number in (("acme", 30), ("other", 3)):
        docs.app.call_many([{"name": "keep", "tenant_id": tenant_id} for _ in range(number)])
    docs.app.pause(tenant_id="acme")
    sizes: list[int] = []
    real = type(docs.app.queue).purge

    def purge(self: Any, jobs: Any, **more: Any) -> int:
        sizes.append(len(jobs))
        return real(self, jobs, **more)

    monkeypatch.setattr(type(docs.app.queue), "purge", purge)

    assert 30 == delete(docs).result["jobs"]

    assert (30, 7) == (sum(sizes), max(sizes))
