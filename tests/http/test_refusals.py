"""Requests that a server refuses: each with a problem document, and with nothing written."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.http.live_server import WAIT_S, LiveServer

SETTINGS = {"body_limit_mb": "1"}


@pytest.fixture
def files(server: LiveServer, tmp_path: Path) -> Iterator[Path]:
    """A folder below the root of the server; the test leaves the queue as it was."""
    folder = server.folder / tmp_path.name
    folder.mkdir()
    yield folder
    for job in server.ask("GET", "/index/jobs/?status=pending&limit=1000").body["jobs"]:
        server.ask("DELETE", f"/index/jobs/{job['id']}")


def pending(server: LiveServer) -> int:
    return int(server.ask("GET", "/queue/stats").body["by_status"]["pending"])


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/index", {"folder_path": 1}, "folder_path"),
        ("/index", {}, "folder_path"),
        ("/index", {"folder_path": "files", "serail": True}, "serail"),
        ("/index", {"folder_path": "files", "path": "files"}, "folder_path"),
        ("/index", {"folder_path": "files", "include_code": "yes"}, "include_code"),
        ("/index", {"folder_path": "files", "patterns": "*.md"}, "patterns"),
        ("/index", {"folder_path": "files", "patterns": ["*.md", 1]}, "patterns.1"),
        ("/index", {"folder_path": "files", "priority": 11}, "priority"),
        ("/index", {"folder_path": "files", "priority": True}, "priority"),
        ("/index", {"folder_path": "files", "chunk_size": 512, "chunk_overlap": 400}, "chunk_overlap"),
        ("/index", {"folder_path": "files", "delay": -1}, "delay"),
        ("/index", {"folder_path": "files", "run_at": "tomorrow"}, "run_at"),
        ("/index", {"folder_path": "files", "run_at": "2026-12-01T00:00:00"}, "run_at"),
        ("/index", {"folder_path": "files", "tenant_id": "*"}, "tenant_id"),
        ("/index", {"folder_path": "files", "collection": "a:b"}, "collection"),
        ("/index", {"folder_path": "files\0"}, "folder_path"),
        ("/index?force=perhaps", {"folder_path": "files"}, "force"),
        ("/index/add", {"folder_path": None}, "folder_path"),
        ("/index?tenant_id=acme", {"folder_path": "files"}, "tenant_id"),
        ("/search?tenant_id=acme", {"query": "mill"}, "tenant_id"),
        ("/content?tenant_id=acme", {"content": "mill"}, "tenant_id"),
        ("/content", {"content": ""}, "content"),
        ("/content", {"content": "  "}, "content"),
        ("/content", {"content": "\ud800"}, "content"),
        ("/content", {"content": "a", "tag": "a//b"}, "full_tag"),
        ("/search", {"query": "mill", "limit": 0}, "limit"),
        ("/search", {"query": "mill", "mode": "psychic"}, "mode"),
        ("/search", {"query": "mill", "created_after": "soon"}, "created_after"),
        ("/search", {"query": ["mill"]}, "query"),
        ("/index", {"folder_path": "files", "depth": 0}, "depth"),
        ("/index", {"folder_path": "files", "ocr": "no"}, "ocr"),
        ("/index", {"folder_path": "files", "graph": 1}, "graph"),
        ("/search", {"query": "mill", "marks": ["*"]}, "marks"),
        ("/search", {"query": "mill", "exact": "no"}, "exact"),
        ("/context", {"query": "mill", "max_tokens": 0}, "max_tokens"),
        ("/context", {"query": " "}, "query"),
        ("/similar", {"path_or_id": "a", "line": 0}, "line"),
        ("/functions/none", {"payload": [1]}, "payload"),
        ("/functions/none", {"entity": ["mill"]}, "entity"),
        ("/queue/pause", {"tenant": "me"}, "tenant"),
        ("/queue/pause", {}, "tenant"),
    ],
)
def test_a_bad_field_is_named(server: LiveServer, path: str, body: object, field: str):
    before = pending(server)

    answer = server.ask("POST", path, body)

    assert (422, True) == (answer.status, answer.code.startswith("ERR_"))
    named = {one["field"] for one in answer.body["errors"]}
    assert field in named or field in answer.body["detail"]
    assert before == pending(server)


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/index/jobs?limit=0", "limit"),
        ("/index/jobs?limit=many", "limit"),
        ("/index/jobs?offset=-1", "offset"),
        ("/index/jobs?stauts=done", "stauts"),
        ("/index/jobs?status=finished", "finished"),
        ("/index/jobs?item_type=fridge", "item_type"),
        ("/index/jobs?cursor=%00", "cursor"),
        ("/documents?limit=1001", "limit"),
        ("/documents?colection=a", "colection"),
        ("/documents/a?from_page=0", "from_page"),
        ("/documents?ready_for=ocr", "ready_for"),
        ("/graph/entity", "name"),
        ("/graph/neighbours?name=Mill&hops=9", "hops"),
        ("/graph/path?source=Mill", "target"),
        ("/graph/stats?tenant=a", "tenant"),
        ("/why", "path"),
        ("/why?path=%00", "path"),
    ],
)
def test_a_bad_query_is_named(server: LiveServer, path: str, field: str):
    answer = server.ask("GET", path)

    assert (422, True) == (answer.status, answer.code.startswith("ERR_"))
    assert field in answer.body["detail"]


@pytest.mark.parametrize(
    "body", [b"{", b"", b"[1]", b'"text"', b"\xff\xfe", b"null", b"{}x", b'{"a":' * 100_000]
)
def test_a_body_that_is_no_json_object_is_refused(server: LiveServer, body: bytes):
    answer = server.ask("POST", "/index/", body, headers={"Content-Type": "application/json"})

    assert answer.status in (400, 422)
    assert "ERR_INVALID_REQUEST" == answer.code


def test_a_body_of_another_type_is_refused(server: LiveServer):
    answer = server.ask(
        "POST", "/index/", b'{"folder_path": "files"}', headers={"Content-Type": "text/plain"}
    )

    assert (422, "ERR_INVALID_REQUEST") == (answer.status, answer.code)


@pytest.mark.parametrize(
    "odd", ["nope", "job_", "%00", "..%2f..", "*", "a" * 600, "%F0%9F%92%A7", "'; --", "job_%25"]
)
def test_an_odd_id_is_not_found(server: LiveServer, odd: str):
    name = odd if "%" in odd else quote(odd)
    for method, path in [
        ("GET", f"/index/jobs/{name}"),
        ("DELETE", f"/index/jobs/{name}"),
        ("POST", f"/index/jobs/{name}/retry"),
        ("GET", f"/documents/{name}"),
        ("DELETE", f"/documents/{name}"),
        ("POST", f"/functions/{name}"),
    ]:
        answer = server.ask(method, path)
        assert (answer.status, answer.code[:4]) in ((404, "ERR_"), (422, "ERR_"), (405, "ERR_")), (
            method,
            path,
        )


@pytest.mark.parametrize("field", ["old_path", "new_path"])
def test_a_rename_with_a_name_too_long_for_the_disk_is_not_found(server: LiveServer, files: Path, field: str):
    body = {"old_path": str(files), "new_path": str(files)} | {field: str(files / ("x" * 300))}

    assert 404 == server.ask("POST", "/documents/rename", body).status


def test_a_beginning_of_an_id_is_no_id(server: LiveServer, files: Path):
    job_id = server.index(files).body["job_id"]

    assert 200 == server.ask("GET", f"/index/jobs/{job_id}").status
    assert 404 == server.ask("GET", f"/index/jobs/{job_id[:-1]}").status


def test_unknown_routes_and_methods(server: LiveServer):
    nowhere, wrong = server.ask("GET", "/nowhere"), server.ask("PUT", "/index/")

    assert (404, 405) == (nowhere.status, wrong.status)
    assert "ERR_ROUTE_NOT_FOUND" == nowhere.code == wrong.code
    assert "POST" == wrong.headers["allow"]


# Paths.


def test_a_path_outside_the_root_is_refused_whether_or_not_it_exists(server: LiveServer, files: Path):
    (files / "out").symlink_to("/etc")
    (files / "link.md").symlink_to("/etc/hostname")
    before = pending(server)

    for path in (
        "/etc",
        "/nowhere/at/all",
        "..",
        f"{files}/../..",
        f"{files}/out",
        f"{files}/link.md",
        "state",
    ):
        for query in ("", "?allow_external=true"):
            answer = server.ask("POST", f"/index/{query}", {"folder_path": path})
            assert 400 == answer.status, path
            assert "ERR_PATH_OUTSIDE" == answer.code
            detail = f"Path '{path}' is outside project. Use --allow-external to override."
            assert detail == answer.body["detail"]
    assert before == pending(server)


def test_a_missing_path_is_not_found_at_once(server: LiveServer, files: Path):
    before = pending(server)

    answer = server.index(files / "nothing.md")

    assert (404, "ERR_PATH_NOT_FOUND") == (answer.status, answer.code)
    assert before == pending(server)


# The queue.


def test_parallel_requests_are_all_accepted_and_the_101st_is_refused(server: LiveServer, files: Path):
    for number in range(101):
        (files / f"{number:03}").mkdir()
    names = [f"{files}/{number:03}" for number in range(100)]
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(server.index, [*names[:-1], *names[:3], *names[-1:]]))
        statuses = list(threads.map(lambda _: server.ask("GET", "/health/status").status, range(20)))

    assert {202} == {answer.status for answer in answers}
    assert {200} == set(statuses)
    assert 100 == pending(server) == len({answer.body["job_id"] for answer in answers})
    assert 3 == sum(answer.body["dedupe_hit"] for answer in answers)
    by_path = {
        job["folder_path"]: job["id"] for job in server.ask("GET", "/index/jobs?limit=100").body["jobs"]
    }
    assert [by_path[name] for name in names[:3]] == [answer.body["job_id"] for answer in answers[99:102]]

    full = server.index(files / "100")
    again = server.index(names[0])

    assert (429, "Queue full (100 pending)", "ERR_QUEUE_FULL") == (
        full.status,
        full.body["detail"],
        full.code,
    )
    assert int(full.headers["retry-after"]) > 0
    assert (202, True) == (again.status, again.body["dedupe_hit"])
    assert 100 == server.ask("GET", "/health/status").body["queue_length"]


# Browsers and strangers.


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:{port}", 200),
        ("127.0.0.1:{port}", 200),
        ("[::1]:{port}", 200),
        ("LOCALHOST", 200),
        ("evil.example", 421),
        ("evil.example:{port}", 421),
        ("127.0.0.1.evil.example:{port}", 421),
        ("localhost.evil.example", 421),
        ("", 421),
        ("localhost:{port}/x", 421),
    ],
)
def test_the_host_header_has_to_name_this_server(server: LiveServer, host: str, status: int):
    port = server.address.rpartition(":")[2]
    answer = server.ask("GET", "/health/status", headers={"Host": host.format(port=port)})

    assert status == answer.status
    if status != 200:
        assert "ERR_HOST_REFUSED" == answer.code


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_pages_of_other_sites_cannot_send_requests(server: LiveServer, files: Path, headers: dict[str, str]):
    before = pending(server)

    answer = server.index(files, headers=headers)

    assert (403, "ERR_ORIGIN_REFUSED") == (answer.status, answer.code)
    assert before == pending(server)
    assert "access-control-allow-origin" not in answer.headers


def test_a_page_of_this_server_can(server: LiveServer, files: Path):
    answer = server.index(files, headers={"Origin": server.url, "Sec-Fetch-Site": "same-origin"})

    assert 202 == answer.status


def test_a_body_above_the_limit_is_refused(server: LiveServer):
    stated = server.ask("POST", "/content", {"content": "x" * 1_100_000})
    chunked = server.ask("POST", "/content", iter([b"x" * 600_000, b"x" * 600_000]))

    assert (413, "ERR_REQUEST_TOO_LARGE") == (stated.status, stated.code) == (chunked.status, chunked.code)


def test_a_huge_body_is_refused_before_it_is_read(server: LiveServer):
    head = f"POST /content HTTP/1.1\r\nHost: {server.address}\r\nContent-Length: 99999999999\r\n\r\n"
    with socket.create_connection(server.address.split(":"), WAIT_S) as connection:  # type: ignore[arg-type]
        connection.sendall(head.encode())
        assert b" 413 " in connection.recv(4096)


@pytest.mark.parametrize(
    "lines",
    [
        "POST /content HTTP/1.1\r\nHost: {0}\r\nContent-Length: -1\r\n\r\n",
        "POST /content HTTP/1.1\r\nHost: {0}\r\nContent-Length: 1e3\r\n\r\n",
        "GET /health/status HTTP/1.1\r\nHost: {0}\r\nHost: evil.example\r\n\r\n",
        "GET /health/status HTTP/1.1\r\n\r\n",
        "GET /hea lth HTTP/1.1\r\nHost: {0}\r\n\r\n",
        "nonsense\r\n\r\n",
    ],
)
def test_broken_requests_get_4xx(server: LiveServer, lines: str):
    with socket.create_connection(server.address.split(":"), WAIT_S) as connection:  # type: ignore[arg-type]
        connection.sendall(lines.format(server.address).encode())
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(64).startswith(b"HTTP/1.1 4")


def test_requests_that_are_none_do_not_fill_the_log(server: LiveServer):
    """Anybody may send them, without a key."""
    upgrade = "GET /health HTTP/1.1\r\nHost: {0}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    before = server.log.read_text().splitlines()
    for lines in ["nonsense\r\n\r\n", upgrade] * 20:
        with socket.create_connection(server.address.split(":"), WAIT_S) as connection:  # type: ignore[arg-type]
            connection.sendall(lines.format(server.address).encode())
            assert connection.recv(64).startswith(b"HTTP/1.1 ")

    added = server.log.read_text().splitlines()[len(before) :]
    assert len(added) == len({line.partition("uvicorn.error: ")[2] for line in added})


def test_a_line_break_in_a_path_makes_no_header_and_no_log_line(server: LiveServer):
    answer = server.ask("GET", "/why?path=files/%0d%0aX-Evil:%20yes")

    assert "x-evil" not in answer.headers
    assert "X-Evil" not in server.log.read_text()


def test_reads_answer_while_writers_wait_for_the_store(server: LiveServer, files: Path):
    """Another process holds the lock, and more requests wait for it than there are threads for them."""
    job_id = server.index(files).body["job_id"]
    for number in range(20):
        (files / str(number)).mkdir()
    with ThreadPoolExecutor(20) as threads, closing(sqlite3.connect(server.state / "penstock.db")) as writer:
        writer.execute("BEGIN IMMEDIATE")
        waiting = [threads.submit(server.index, files / str(number)) for number in range(20)]
        reads = [
            "/health",
            "/health/status",
            "/health/ready",
            f"/index/jobs/{job_id}",
            "/index/jobs",
            "/queue/stats",
        ]
        answers = [server.ask("GET", path).status for path in (*reads, "/documents", f"/why?path={files}")]
        found = server.ask("POST", "/search", {"query": "mill"})
        done_meanwhile = [future.done() for future in waiting]
        writer.rollback()
        accepted = [future.result().status for future in waiting]

    assert {200} == {*answers, found.status}
    assert not any(done_meanwhile)
    assert {202} == set(accepted)
