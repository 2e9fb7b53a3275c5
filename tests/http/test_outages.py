"""A server whose store cannot be used for a while: it says so, and goes on afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.http.event_stream import EventStream
from tests.http.live_server import LiveServer, until
from tests.http.test_events import has_figures
from tests.servers import postgres
from tests.stores.test_driver_errors import RAISING
from tests.worker.test_outages import refusing


@pytest.fixture
def url() -> str:
    return postgres.fresh_store()


@pytest.fixture
def server(url: str, tmp_path: Path) -> Iterator[LiveServer]:
    started = LiveServer(tmp_path, "--processes", "1", url=url, upkeep_s="0.2")
    with psycopg.connect(url, autocommit=True) as own:
        found = own.execute("SELECT current_schema()").fetchone()
        assert found is not None
        own.execute(RAISING.format(schema=f'"{found[0]}"').encode())
    yield started
    code = started.stop()
    log = started.log.read_text()
    assert (0, False) == (code, "Traceback" in log), log


def stats_of(server: LiveServer) -> str:
    """Warnings and services of the statistics: the worker or one of its processes tells of the store."""
    found = server.ask("GET", "/queue/stats").body
    waiting = [warning for warning in found["warnings"] if "waits for the store" in warning]
    return str([*waiting, *(one for one in found["breakers"] if one["name"] == "the store")])


def test_requests_are_refused_with_a_time_while_the_store_can_only_be_read(
    server: LiveServer, url: str
) -> None:
    path = server.folder / "files" / "mills"
    path.mkdir()
    for number in range(200):
        (path / f"{number}.md").write_text(f"The mill {number} takes in water.")
    asked = {"folder_path": str(path)}
    with closing(EventStream(server, "/events")) as stream:
        stream.until(has_figures)
        job_id = server.index(path).body["job_id"]
        with refusing(url, "25006"):
            refused = server.ask("POST", "/index/", asked)
            state = until(
                lambda: server.ask("GET", "/health/status").body["store_state"], lambda found: found != "ok"
            )
            told = until(lambda: stats_of(server), lambda found: "can only be read" in found)
        with refusing(url, "42601"):
            fault = server.ask("POST", "/index/", asked)
        assert "done" == server.ended(job_id)["status"]
        again = server.ask("POST", "/index/?force=true", asked).body["job_id"]
        seen = stream.until(lambda event: event.kind == "job" and event.data["job_id"] == again)

    assert (503, "ERR_STORE_READ_ONLY") == (refused.status, refused.code)
    assert int(refused.headers["retry-after"]) > 0
    assert "ERR_STORE_READ_ONLY" == state
    assert "Point its URL" in told
    # The same request would meet the same fault, so there is no time after which it is worth a try.
    assert (500, "ERR_STATEMENT_REFUSED") == (fault.status, fault.code)
    assert "retry-after" not in fault.headers
    assert seen
    assert "done" == server.ended(again)["status"]
    until(lambda: server.ask("GET", "/health/status").body["store_state"], lambda found: found == "ok")


@pytest.mark.long
def test_a_stream_of_events_goes_on_after_a_restart_of_the_store(tmp_path: Path) -> None:
    with postgres.own_server() as database:
        server = LiveServer(tmp_path, "--processes", "1", url=database.url(), upkeep_s="0.2")
        path = server.folder / "files" / "mill.md"
        path.write_text("The mill takes in water.")
        with closing(EventStream(server, "/events")) as stream:
            stream.until(has_figures)
            database.stop("fast")
            until(lambda: server.log.read_text(), lambda log: "streams of events wait for the store" in log)
            refused = server.ask("GET", "/queue/status")
            database.start()
            until(lambda: server.ask("GET", "/health/status"), lambda answer: answer.status == 200)
            job_id = server.index(path).body["job_id"]
            stream.until(lambda event: event.kind == "job" and event.data["job_id"] == job_id)
        server.ended(job_id)
        assert (503, "ERR_STORE_UNAVAILABLE") == (refused.status, refused.code)
        code, log = server.stop(), server.log.read_text()
        assert (0, False) == (code, "Traceback" in log), log
