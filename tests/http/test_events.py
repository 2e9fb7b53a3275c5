"""Streams of events of a live server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.http.event_hub import BUFFER_LIMIT, Listener
from tests.http.event_stream import Event, EventStream
from tests.http.live_server import LiveServer, until

SERVE = ("--processes", "1")


@pytest.fixture(scope="module")
def keys(server: LiveServer) -> tuple[str, str]:
    """Keys for everything, and for one tenant; from then on every request needs one."""
    return server.make_key("admin", "admin"), server.make_key("acme", "write", "acme")


def of(key: str, **more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}", **{name.replace("_", "-"): text for name, text in more.items()}}


def has_figures(event: Event) -> bool:
    return event.kind == "failures"


def write(server: LiveServer, name: str, text: str) -> Path:
    path = server.folder / "files" / name
    path.write_text(text)
    return path


def test_a_stream_begins_with_the_state_and_goes_on_with_changes(server: LiveServer, keys: tuple[str, str]):
    admin, _ = keys
    path = write(server, "mill.md", "The mill takes in water.")
    with EventStream(server, "/events", of(admin)) as stream:
        assert (200, "no-cache, no-store") == (stream.status, stream.headers["cache-control"])
        assert stream.headers["content-type"].startswith("text/event-stream")
        first = stream.until(has_figures)
        assert {"jobs", "ocr", "vector", "graphrag"} == {e.data["lane"] for e in first if e.kind == "lane"}

        job = server.index(path, key=admin).body["job_id"]
        seen = stream.until(
            lambda e: e.kind == "job" and e.data["job_id"] == job and e.data["status"] == "done"
        )
    numbers = [event.number for event in [*first, *seen]]
    assert numbers == sorted(set(numbers))
    assert {"default"} == {event.data["tenant_id"] for event in seen if event.kind == "job"}


def test_documents_are_announced_when_they_are_indexed(server: LiveServer, keys: tuple[str, str]):
    path = write(server, "gate.md", "The gate is closed at night.")
    with EventStream(server, "/events", of(keys[0])) as stream:
        stream.until(has_figures)
        server.index(path, key=keys[0])
        *_, last = stream.until(lambda e: e.kind == "document" and e.data["status"] == "indexed")

    assert (str(path), "default", 1) == (last.data["path"], last.data["tenant_id"], last.data["chunks"])


def test_the_stream_of_a_job_ends_with_it_and_an_ended_job_has_only_the_end(
    server: LiveServer, keys: tuple[str, str]
):
    admin, _ = keys
    job = server.index(write(server, "wheel.md", "The wheel turns."), key=admin).body["job_id"]
    with EventStream(server, f"/index/jobs/{job}/events", of(admin)) as stream:
        kinds = [(event.kind, event.data["job_id"]) for event in stream.events()]
    assert ("end", job) == kinds[-1]
    assert {"job", "end"} >= {kind for kind, _ in kinds}

    with EventStream(server, f"/index/jobs/{job}/events/", of(admin)) as stream:
        (only,) = stream.events()
    assert ("end", "done", 1) == (only.kind, only.data["status"], only.data["total_chunks"])
    assert 404 == server.ask("GET", "/index/jobs/job_0/events", key=admin).status


def test_a_key_of_a_tenant_sees_no_other_tenant(server: LiveServer, keys: tuple[str, str]):
    admin, acme = keys
    hidden = server.index(write(server, "hidden.md", "Of another tenant."), key=admin).body["job_id"]
    assert 404 == server.ask("GET", f"/index/jobs/{hidden}/events", key=acme).status
    with EventStream(server, "/events", of(acme)) as stream:
        state = stream.until(has_figures)
        assert ["jobs"] == [event.data["lane"] for event in state if event.kind == "lane"]
        server.index(write(server, "other.md", "Of another tenant, too."), key=admin)
        note = {"content": "A note of acme."}
        own = server.ask("POST", "/content", note, key=acme).body["job_id"]
        seen = stream.until(lambda e: e.kind == "job" and e.data["status"] == "done")

    assert {"acme"} == {event.data["tenant_id"] for event in seen if event.kind in ("job", "document")}
    assert own == seen[-1].data["job_id"]


def test_a_reader_that_returns_gets_what_it_missed_or_a_reset(server: LiveServer, keys: tuple[str, str]):
    admin, _ = keys
    with EventStream(server, "/events", of(admin)) as stream:
        last = stream.until(has_figures)[-1].number
    job = server.index(write(server, "sluice.md", "The sluice opens."), key=admin).body["job_id"]
    server.ended(job, key=admin)
    with EventStream(server, "/events", of(admin)) as other:
        other.until(has_figures)
    until(
        lambda: replayed(server, admin, last),
        lambda events: any(e.kind == "job" and e.data["job_id"] == job for e in events),
    )

    with EventStream(server, "/events", of(admin, Last_Event_ID="17")) as stream:
        assert "reset" == next(stream.events()).kind
    with EventStream(server, "/events", of(admin, Last_Event_ID="none")) as stream:
        assert "reset" not in {event.kind for event in stream.until(has_figures)}


def replayed(server: LiveServer, key: str, last: int) -> list[Event]:
    with EventStream(server, "/events", of(key, Last_Event_ID=str(last))) as stream:
        return stream.until(has_figures)


def test_a_revoked_key_ends_its_stream(server: LiveServer, keys: tuple[str, str]):
    import subprocess

    assert keys
    leaver = server.make_key("leaver", "read")
    with EventStream(server, "/events", of(leaver)) as stream:
        stream.until(has_figures)
        revoke = server.command("keys", "revoke", "leaver")
        subprocess.run(revoke, env=server.environment(), check=True, capture_output=True)
        list(stream.events())
    assert 401 == server.ask("GET", "/events", key=leaver).status


def test_a_listener_that_does_not_read_is_dropped():
    listener = Listener((None,), lambda: True)
    for _ in range(3):
        listener.push(b"x" * (BUFFER_LIMIT // 3))
    assert b"x" * (BUFFER_LIMIT // 3 * 3) == asyncio.run(listener.next())

    listener.push(b"x" * BUFFER_LIMIT)
    listener.push(b"y")
    assert asyncio.run(listener.next()) is None


def test_open_streams_do_not_keep_the_server_from_stopping(tmp_path: Path):
    server = LiveServer(tmp_path, "--no-worker")
    streams = [EventStream(server, "/events") for _ in range(3)]
    for stream in streams:
        stream.until(has_figures)

    assert 0 == server.stop()
    # Without an end of the streams, the server would wait for 5 seconds, cut them and say so.
    assert "timeout graceful shutdown exceeded" not in server.log.read_text()
    for stream in streams:
        list(stream.events())
        stream.close()
