"""Both clients with a live server: the same values and errors as the library has."""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, PenstockError, errors
from penstock.queue.job import Job
from tests.client.conftest import SERVE, Indexed, MakeClient
from tests.http.live_server import until

# The same calls on the library and on a client: the same results.

Both = Callable[[Any, Indexed], Any]
RESULTS: dict[str, tuple[Both, Both]] = {}


def same(name: str, call: Both, local: Both | None = None) -> None:
    RESULTS[name] = (local or call, call)


same("job", lambda it, here: it.job(here.job.queue_id))
same("job by prefix", lambda it, here: it.job(here.job.queue_id[:-2]))
same("jobs", lambda it, here: it.jobs(top_level=True))
same("failed jobs", lambda it, here: it.jobs(status=["failed"], collection="default", limit=3))
same("children", lambda it, here: it.jobs(parent_id=here.job.queue_id))
same("details", lambda it, here: it.details(here.job.queue_id))
same("wait", lambda it, here: it.wait(here.job.queue_id, run=1, timeout=10))
same("search", lambda it, here: it.search("water of the mill", marks=("<", ">")))
same("search with filters", lambda it, here: it.search("water", path="*gate*", mode="keyword", limit=1))
same("search of a document", lambda it, here: it.search("mill", per_source=None, file_type="md"))
same("search for nothing", lambda it, here: it.search('"no such phrase"'))
same("context", lambda it, here: it.context("mill water", max_tokens=200))
same("similar", lambda it, here: it.similar(here.mill, 3))
same("why", lambda it, here: it.why(here.mill), lambda it, here: it.documents.why(here.mill))
same("why of a folder", lambda it, here: it.why(here.folder), lambda it, here: it.documents.why(here.folder))
same("documents", lambda it, here: it.documents(limit=2), lambda it, here: it.documents.sources(limit=2))
same(
    "document by path",
    lambda it, here: it.document(here.mill).source,
    lambda it, here: it.documents.source(here.mill),
)
same(
    "document by id",
    lambda it, here: it.document(here.app.documents.source(here.mill).source_id).generations,
    lambda it, here: it.documents.generations(it.documents.source(here.mill).source_id),
)
same("page", lambda it, here: it.page(here.mill, 1), lambda it, here: it.documents.page(here.mill, 1))
same(
    "outcome",
    lambda it, here: it.outcome(here.job.queue_id).failures,
    lambda it, here: it.documents.failures(here.folder),
)
same("pause", lambda it, here: it.pause(tenant_id="nobody", collection="none"))
same("resume", lambda it, here: it.resume(tenant_id="nobody", collection="none"))
same(
    "entity",
    lambda it, here: it.graph_entity("Ada Lovelace"),
    lambda it, here: graph(it).entity("Ada Lovelace"),
)
same(
    "neighbours",
    lambda it, here: it.graph_neighbours("Ada Lovelace", hops=2),
    lambda it, here: graph(it).neighbours("Ada Lovelace", hops=2),
)
same(
    "way",
    lambda it, here: it.graph_path("Ada Lovelace", "Ada Lovelace"),
    lambda it, here: graph(it).path("Ada Lovelace", "Ada Lovelace"),
)
same("graph counts", lambda it, here: it.graph_counts(), lambda it, here: graph(it).counts())


def graph(app: Penstock) -> Any:
    return app._assembly.graph


@pytest.mark.parametrize("name", RESULTS)
def test_a_client_returns_what_the_library_returns(name: str, indexed: Indexed, connect: MakeClient):
    local, remote = RESULTS[name]
    # Tests before this one may have left jobs to the server.
    until(lambda: indexed.app.jobs(status=["pending", "in_progress"]), lambda live: not live)

    expected = local(indexed.app, indexed)

    assert expected == remote(connect(indexed.server.url), indexed)
    if name not in ("search for nothing", "resume", "pause"):
        assert expected


ERRORS: dict[str, tuple[Both, Both]] = {}


def refused(name: str, call: Both, local: Both | None = None) -> None:
    ERRORS[name] = (local or call, call)


refused("unknown job", lambda it, here: it.job("job_none"))
refused("job with an odd id", lambda it, here: it.job("../health"))
refused("ambiguous job", lambda it, here: it.job("job_"))
refused("cancel of an ended job", lambda it, here: it.cancel(here.job.queue_id))
refused("retry of a job that is done", lambda it, here: it.retry(_done(here)))
refused("unknown status", lambda it, here: it.jobs(status="lost"))
refused("unknown type", lambda it, here: it.jobs(item_type="book"))
refused("missing path", lambda it, here: it.index(here.folder / "none"))
refused("bad priority", lambda it, here: it.index(here.folder, priority=11))
refused("bad time", lambda it, here: it.index(here.folder, run_at="soon"))
refused("empty note", lambda it, here: it.note(""), lambda it, here: it.documents.note(""))
refused("empty query", lambda it, here: it.search(""))
refused("limit", lambda it, here: it.search("mill", limit=0))
refused("mode", lambda it, here: it.search("mill", mode="magic"))
refused("similar to nothing", lambda it, here: it.similar(here.folder / "none.md"))
refused("no scope to pause", lambda it, here: it.pause())
refused(
    "unknown document",
    lambda it, here: it.document("doc-none"),
    lambda it, here: it.documents.source("doc-none"),
)
refused(
    "unknown entity", lambda it, here: it.graph_entity("Nobody"), lambda it, here: graph(it).entity("Nobody")
)
refused("unknown function", lambda it, here: it.call("none", {}))

REWORDED = frozenset(
    ["bad priority", "empty note", "empty query", "limit", "mode", "unknown document", "unknown function"]
)
"""Refused by the check of the request's fields, in other words."""


def _done(here: Indexed) -> str:
    return here.app.jobs(status="done", limit=1)[0].queue_id


@pytest.mark.parametrize("name", ERRORS)
def test_a_client_raises_what_the_library_raises(name: str, indexed: Indexed, connect: MakeClient):
    local, remote = ERRORS[name]
    with pytest.raises(PenstockError) as here:
        local(indexed.app, indexed)

    with pytest.raises(PenstockError) as there:
        remote(connect(indexed.server.url), indexed)

    assert there.value.remedy
    if name in REWORDED:
        assert isinstance(there.value, errors.InvalidRequest)
    else:
        assert type(here.value) is type(there.value)
        assert (here.value.code, here.value.message) == (there.value.code, there.value.message)


# Calls that change something.


def test_a_client_indexes_adds_waits_and_removes(indexed: Indexed, connect: MakeClient):
    client, folder = connect(indexed.server.url), indexed.server.folder / "more"
    folder.mkdir(exist_ok=True)
    (folder / "wheel.md").write_text("# Wheel\n\nThe wheel turns.\n")

    receipt = client.index("more", collection="more", include=["*.md"], chunk_size=64)
    job = client.wait(receipt.job_id, run=receipt.run, timeout=120)
    added = client.wait(client.add("more", collection="more").job_id, timeout=120)
    (source,) = client.documents(collection="more")
    removed = client.wait(client.delete(source.source_id).job_id, timeout=120)

    assert ("done", "done", "done") == (job.status, added.status, removed.status)
    assert (["*.md"], 64) == (job.payload["patterns"], job.payload["chunk_size"])
    assert "add" == added.payload["operation"]
    assert [] == client.documents(collection="more")


def test_a_client_uploads_a_file(indexed: Indexed, connect: MakeClient, tmp_path: Path):
    client, text = connect(indexed.server.url), tmp_path / "sluice.md"
    text.write_text("# Sluice\n\nThe sluice is open.\n" * 2_000)

    record = client.upload(text, collection="uploads", chunk_size=256)
    with text.open("rb") as opened:
        again = client.upload(opened, name="other.md", collection="uploads", force=True)

    assert text.stat().st_size == record.size == again.size
    assert "done" == client.wait(record.job_id, timeout=120).status
    assert "done" == client.wait(again.job_id, timeout=120).status
    found = {Path(source.path).name for source in client.documents(collection="uploads")}
    assert {"sluice.md", "other.md"} == found
    with pytest.raises(errors.PathNotFound):
        client.upload(tmp_path / "none.md")


def test_a_client_adds_a_note_and_cancels_a_job(indexed: Indexed, connect: MakeClient):
    client = connect(indexed.server.url)

    note = client.note("The miller sleeps.", tag="mill/people", collection="notes")
    later = client.index(indexed.folder, delay=3600, force=True)
    answer = client.cancel(later.job_id)
    again = client.retry(later.job_id)
    client.cancel(later.job_id)

    assert "done" == client.wait(note.job_id, timeout=120).status
    assert ("cancelled", "Job cancelled") == (answer.status, answer.message)
    # The worker of the server may have taken it before the answer was made.
    assert later.job_id == again.queue_id
    assert again.status in ("pending", "in_progress")


def test_a_client_asks_for_the_state_of_the_server(indexed: Indexed, connect: MakeClient):
    client = connect(indexed.server.url)

    assert {"status": "ok"} == client.health()
    assert client.ready().ready
    # A command of a test before this one may still be reported as a worker.
    until(lambda: client.ready().workers, lambda count: count == 1)
    assert client.status().store.documents >= 2
    stats = client.stats()
    assert indexed.app.stats().by_status == stats.by_status
    assert [indexed.app.stats().workers[0].worker_id] == [worker.worker_id for worker in stats.workers]


def test_a_wait_ends_after_its_time(indexed: Indexed, connect: MakeClient):
    client = connect(indexed.server.url)
    held = client.index(indexed.folder, delay=3600, force=True)

    with pytest.raises(TimeoutError, match=r"was still pending after 0\.2 seconds"):
        client.wait(held.job_id, timeout=0.2)

    client.cancel(held.job_id)


def test_threads_share_a_client(indexed: Indexed, connect: MakeClient):
    client, found, failed = connect(indexed.server.url), list[str](), list[BaseException]()

    def ask() -> None:
        try:
            for _ in range(10):
                found.append(client.job(indexed.job.queue_id).queue_id)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [] == failed
    assert [indexed.job.queue_id] * 80 == found


# Restarts and keys: last, because they change the server. Randomly ordered tests get it as it was.


def test_a_wait_outlasts_a_restart_of_the_server(indexed: Indexed, connect: MakeClient):
    server = indexed.server
    port = server.url.rpartition(":")[2]
    client = connect(server.url)
    held = client.index(indexed.folder, delay=3600, force=True)
    ended: list[Job] = []
    waiter = threading.Thread(target=lambda: ended.append(client.wait(held.job_id, timeout=120)))
    waiter.start()

    server.kill()
    server.start("--port", port, *SERVE)
    client.cancel(held.job_id)
    waiter.join(60)

    assert ["cancelled"] == [job.status for job in ended]


def test_events_outlast_a_restart_of_the_server(indexed: Indexed, connect: MakeClient):
    server = indexed.server
    port = server.url.rpartition(":")[2]
    counts: list[int] = [0] * 6
    failed: list[Exception] = []
    restarted = threading.Event()

    def follow(number: int) -> None:
        try:
            for _ in connect(server.url).events():
                counts[number] += 1
                if restarted.is_set():
                    return
        except Exception as error:
            failed.append(error)

    # Each of them comes back while the server is still stopping, or a moment later.
    followers = [threading.Thread(target=follow, args=(number,)) for number in range(len(counts))]
    for follower in followers:
        follower.start()
    until(lambda: min(counts), bool)
    assert 0 == server.stop()
    server.start("--port", port, *SERVE)
    restarted.set()
    # For those who were back before, and have read the state.
    connect(server.url).note("The miller came back.", collection="after")
    for follower in followers:
        follower.join(60)

    assert [] == failed
    assert not any(follower.is_alive() for follower in followers)


def test_events_of_a_job(indexed: Indexed, connect: MakeClient):
    client = connect(indexed.server.url)
    job_id = client.note("The miller counts sacks.", collection="counted").job_id

    found = list(client.events(job_id))
    of_all = client.events()
    first = next(of_all)
    of_all.close()

    assert ("end", "done") == (found[-1].name, found[-1].data["status"])
    assert {"job"} >= {event.name for event in found[:-1]}
    assert first.name in ("job", "lane", "document", "failures", "reset")


def test_schedules_have_the_methods_of_the_library(connect: MakeClient, indexed: Indexed):
    schedules, local = connect(indexed.server.url).schedules, indexed.app.schedules
    added = schedules.add_index("0 3 * * *", indexed.folder, zone="Europe/Berlin", index={"priority": 3})
    called = schedules.add_call(
        "every 1h", "report", {"week": 3}, name="weekly", missed="skip", call={"key": "k"}
    )
    backups = schedules.add_backup("@daily", indexed.folder, keep=3, name="nightly")
    assert (f"backup {indexed.folder}, keep 3", "nightly") == (backups.does, backups.name)
    schedules.remove("nightly")
    try:
        assert [added, called] == schedules.list() == local.list()
        assert local.show("weekly", count=2) == schedules.show("weekly", count=2)
        assert "@daily" == schedules.change("weekly", timing="@daily").timing
        assert schedules.pause("weekly").paused
        assert not schedules.resume("weekly").paused
        receipt = schedules.run_now("weekly")
        assert local.show("weekly").last_job_id == receipt.job_id
        indexed.app.cancel(receipt.job_id)
        with pytest.raises(errors.ScheduleExists):
            schedules.add_call("every 1h", "report", name="weekly")
    finally:
        for name in (added.name, called.name):
            schedules.remove(name)
    with pytest.raises(errors.ScheduleNotFound):
        schedules.show("weekly")


def test_libraries_are_added_listed_and_removed(connect: MakeClient, indexed: Indexed):
    client, tenant = connect(indexed.server.url), {"tenant_id": "libraries"}
    name = f"mill-{type(client).__name__.lower()}"
    source = str(indexed.folder)
    receipt = client.libraries.add(f"{name}==1.0", source=source, include=["gate.md"], **tenant)
    assert "done" == client.wait(receipt.job_id, timeout=120).status
    (found,) = client.libraries.versions(name, **tenant)
    assert indexed.app.documents.libraries.versions(f"{name}==1.0", **tenant) == [found]
    assert (name, "1.0", 1) == (found.name, found.version, found.documents)
    assert [f"library://{name}/1.0/gate.md"] == [
        hit.path for hit in client.search("gate", library=name, **tenant)
    ]
    assert client.search("gate", all=True)
    client.wait(client.libraries.remove(name, "1.0", **tenant).job_id, timeout=120)
    assert [] == client.libraries.versions(**tenant)
    with pytest.raises(errors.UnknownLibrary):
        client.libraries.remove(name, "1.0", **tenant)


def test_an_archive_of_a_library_is_sent(connect: MakeClient, indexed: Indexed, tmp_path: Path):
    client, tenant = connect(indexed.server.url), {"tenant_id": "sent"}
    name = f"weir-{type(client).__name__.lower()}"
    archive = tmp_path / f"{name}-1.0.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("weir.md", "# Weir\n\nThe weir is of stone.")
        made.writestr("left.md", "# Left\n\nLeft out.")
    sent = client.libraries.upload(name, archive, exclude=["left.md"], **tenant)
    assert (f"library://{name}/1.0", archive.stat().st_size) == (sent.path, sent.size)
    assert "done" == client.wait(sent.job_id, timeout=120).status
    (found,) = client.libraries.versions(name, **tenant)
    assert (1, archive.name) == (found.documents, found.source)
    client.wait(client.libraries.remove(name, "1.0", **tenant).job_id, timeout=120)
    with pytest.raises(errors.InvalidRequest, match="for web pages only"):
        client.libraries.upload(name, archive, max_pages=3, **tenant)
