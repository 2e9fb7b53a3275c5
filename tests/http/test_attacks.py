"""One client that takes all it can get, and another one that still gets its answer."""

from __future__ import annotations

import asyncio
import functools
import io
import itertools
import math
import resource
import socket
import tarfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import anyio
import numpy as np
import pytest
from PIL import Image
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from penstock import errors
from penstock.config import load
from penstock.http import uploads
from penstock.http.connections import PROVE, SPARE, OpenConnections, Peers
from penstock.http.event_hub import LISTENERS_PER_KEY
from penstock.http.guard import REQUESTS_PER_KEY
from penstock.http.request_bodies import UploadFields
from penstock.http.request_context import Drawings
from penstock.http.uploads import UploadStream
from penstock.pipeline.extract.protocol import PageImage
from penstock.service import keys as sessions
from penstock.service.keys import MOST_PER_KEY, Keys, Sessions
from penstock.service.pages import DRAWN_PER_KEY, WIDTHS, _png
from penstock.service.server import WriteProbe
from penstock.service.shares import NOBODY, Shares, Taker
from penstock.service.uploads import OPEN_PER_KEY
from tests.http.event_stream import EventStream
from tests.http.live_server import WAIT_S, LiveServer, until
from tests.http.test_connections import Hasty, rest, running
from tests.pipeline.sample_documents import pdf

SERVE = ("--processes", "1")
SETTINGS = {"upload_quota_mb": "1", "max_file_mb": "4"}


class Senders(NamedTuple):
    admin: str
    greedy: str
    other: str


@pytest.fixture(scope="module")
def keys(server: LiveServer) -> Senders:
    return Senders(
        server.make_key("admin", "admin"),
        server.make_key("greedy", "write", "greedy"),
        server.make_key("other", "write", "other"),
    )


def begun(server: LiveServer, key: str, target: str, size: int) -> socket.socket:
    """A request whose body does not come."""
    host, _, port = server.address.rpartition(":")
    connection = socket.create_connection((host, int(port)), WAIT_S)
    head = f"POST {target} HTTP/1.1\r\nHost: {server.address}\r\nAuthorization: Bearer {key}\r\n"
    connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n{{".encode())
    return connection


# Shares.


def test_a_share_names_what_is_used_up():
    shares = Shares(errors.TooManyUploads, total=4, per_key=2, per_peer=3)
    ours, theirs = Taker("ours", "10.0.0.1"), Taker("theirs", "10.0.0.1")
    for taken, refused, said in (
        ((ours, ours), ours, "2 files are being received for the key 'ours', the most for one key"),
        ((theirs,), Taker("third", "10.0.0.1"), "3 files are being received for the machine 10.0.0.1"),
        ((NOBODY,), Taker("fourth", "10.0.0.2"), "4 files are being received by this server"),
    ):
        for taker in taken:
            shares.take(taker)
        with pytest.raises(errors.TooManyUploads) as refusal:
            shares.take(refused)
        assert said in refusal.value.message
    for taker in (ours, NOBODY):
        shares.give_back(taker)
    shares.take(ours)


# Streams and requests.


def test_one_key_does_not_take_all_streams(server: LiveServer, keys: Senders):
    def of(key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"}

    with ExitStack() as opened:
        for _ in range(LISTENERS_PER_KEY):
            assert 200 == opened.enter_context(EventStream(server, "/events", of(keys.greedy))).status
        refused = server.ask("GET", "/events", key=keys.greedy)
        with EventStream(server, "/events", of(keys.other)) as stream:
            assert "failures" in {event.kind for event in stream.until(lambda e: e.kind == "failures")}
        # Its other requests are answered, too.
        assert 200 == server.ask("GET", "/me", key=keys.greedy).status

    assert (429, "ERR_TOO_MANY_LISTENERS") == (refused.status, refused.code)
    assert f"{LISTENERS_PER_KEY} streams of events are open for the key 'greedy'" in refused.body["detail"]
    assert int(refused.headers["retry-after"]) > 0
    until(lambda: server.raw("GET", "/me", key=keys.greedy).status, lambda status: status == 200)


# The last two look like streams, which have a limit of their own only once they have begun.
@pytest.mark.parametrize("target", ["/search", "/events", "/nothing/events"])
def test_bodies_that_do_not_arrive_hold_a_part_of_the_server(server: LiveServer, keys: Senders, target: str):
    with ExitStack() as opened:
        for _ in range(REQUESTS_PER_KEY):
            opened.enter_context(begun(server, keys.greedy, target, 100))
        until(lambda: server.raw("GET", "/me", key=keys.greedy).status, lambda status: status == 429)
        refused = server.ask("GET", "/me", key=keys.greedy)
        other = server.ask("POST", "/search", {"query": "mill"}, key=keys.other)

    assert (429, "ERR_TOO_MANY_REQUESTS") == (refused.status, refused.code)
    assert "the key 'greedy'" in refused.body["detail"]
    assert 200 == other.status
    until(lambda: server.raw("GET", "/me", key=keys.greedy).status, lambda status: status == 200)


# Uploads.


def test_uploads_that_drip_leave_place_for_others(server: LiveServer, keys: Senders):
    with ExitStack() as opened:
        for number in range(OPEN_PER_KEY):
            opened.enter_context(begun(server, keys.greedy, f"/files?name=drip-{number}.md", 1_000))
        incoming = server.state / "uploads" / ".incoming"
        until(lambda: len(list(incoming.glob("*/*"))), lambda found: found == OPEN_PER_KEY)
        refused = server.ask("POST", "/files?name=more.md", b"more", key=keys.greedy)
        other = server.ask("POST", "/files?name=mill.md", b"The mill.", key=keys.other)

    assert (429, "ERR_TOO_MANY_UPLOADS") == (refused.status, refused.code)
    assert f"{OPEN_PER_KEY} files are being received for the key 'greedy'" in refused.body["detail"]
    assert int(refused.headers["retry-after"]) > 0
    assert 202 == other.status


def test_a_body_below_the_lowest_rate_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(uploads, "SILENCE_S", 0.2)

    def stream(pieces: Sequence[bytes]) -> UploadStream[Any]:
        left = iter(pieces)

        async def receive() -> dict[str, Any]:
            await asyncio.sleep(0.05)
            return {"type": "http.request", "body": next(left), "more_body": True}

        class Request:
            headers = Headers()

        Request.receive = staticmethod(receive)  # type: ignore[attr-defined]
        query = UploadFields.model_validate({"name": "a.md"})
        return UploadStream(Request(), None, query, NOBODY)  # type: ignore[arg-type]

    async def read(pieces: Sequence[bytes]) -> None:
        found = stream(pieces)
        for _ in pieces:
            await found._next()

    with pytest.raises(errors.RequestTooSlow, match="the least is 4,096 a second"):
        asyncio.run(read([b"x"] * 20))
    asyncio.run(read([b"x" * 1_000] * 20))


# The quota of a tenant.


def send(server: LiveServer, key: str, name: str, size: int) -> Any:
    return server.ask("POST", f"/files?name={name}&allow_empty=true", b"x" * size, key=key)


def removed(server: LiveServer, key: str, path: str) -> None:
    (found,) = server.ask("GET", f"/documents?path={quote(path)}", key=key).body["documents"]
    job = server.ask("DELETE", f"/documents/{found['source_id']}", key=key).body["job_id"]
    assert "done" == server.ended(job, key=key)["status"]
    until(lambda: Path(path).exists(), lambda there: not there)


def test_the_files_of_a_tenant_have_a_quota(server: LiveServer, keys: Senders):
    key = server.make_key("full", "write", "full")
    first = send(server, key, "a.txt", 600_000)
    server.ended(first.body["job_id"], key=key)
    refused = send(server, key, "b.txt", 600_000)
    assert (507, "ERR_UPLOAD_QUOTA") == (refused.status, refused.code)
    assert "tenant 'full' would have 1,200,000 bytes, and the quota is 1,048,576" in refused.body["detail"]
    assert "PENSTOCK_UPLOAD_QUOTA_MB" in refused.body["remedy"]
    assert not (Path(first.body["path"]).parent / "b.txt").exists()
    assert 202 == send(server, keys.other, "b.txt", 600_000).status, "another tenant has its own"
    # The same name replaces the file, whose bytes do not count twice.
    assert 202 == send(server, key, "a.txt", 700_000).status
    assert 507 == send(server, key, "c.txt", 400_000).status
    again = send(server, key, "a.txt", 500_000)
    assert "done" == server.ended(again.body["job_id"], key=key)["status"]
    more = send(server, key, "d.txt", 540_000)
    assert (202, 507) == (more.status, send(server, key, "e.txt", 20_000).status)

    assert 0 == server.stop()
    server.start(*SERVE)
    assert 507 == send(server, key, "e.txt", 20_000).status, "counted from the files after a restart"
    removed(server, key, first.body["path"])
    assert 202 == send(server, key, "e.txt", 500_000).status, "what was removed does not count"


def test_the_quota_holds_for_uploads_at_the_same_time(server: LiveServer, keys: Senders):
    assert keys
    key = server.make_key("hasty", "write", "hasty")
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda number: send(server, key, f"{number}.txt", 300_000), range(8)))

    assert [202] * 3 + [507] * 5 == sorted(answer.status for answer in found)
    stored = sum(path.stat().st_size for path in (server.state / "uploads" / "hasty").rglob("*.txt"))
    assert 900_000 == stored


def test_archives_of_libraries_count_until_they_are_removed(server: LiveServer, keys: Senders):
    assert keys
    key = server.make_key("librarian", "write", "librarian")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in (("README.md", b"# Mill\n\nThe mill."), ("wheel.bin", bytes(600_000))):
            entry = tarfile.TarInfo(f"mill-1.0/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    target = "/library?requirement=mill==1.0&name=mill-1.0.tar"
    octets = {"Content-Type": "application/octet-stream"}
    added = server.ask("POST", target, packed.getvalue(), key=key, headers=octets)
    assert 202 == added.status, added.body
    assert "done" == server.ended(added.body["job_id"], key=key)["status"]
    assert 507 == send(server, key, "a.txt", 600_000).status

    gone = server.ask("DELETE", "/library/mill/1.0", key=key)
    assert "done" == server.ended(gone.body["job_id"], key=key)["status"]
    until(lambda: send(server, key, "a.txt", 600_000).status, lambda status: status == 202)
    refused = server.ask("POST", target, packed.getvalue(), key=key, headers=octets)
    assert (507, "ERR_UPLOAD_QUOTA") == (refused.status, refused.code)


# Sign-ins.


def test_sign_ins_of_one_key_end_only_its_own_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sessions, "SIGN_INS", 100_000)
    made = Keys(tmp_path)
    greedy, other = made.create("greedy", "read").key, made.create("other", "read").key
    found = Sessions(tmp_path, made)
    kept, first = found.begin(other), found.begin(greedy)
    sizes = []
    for _ in range(MOST_PER_KEY):
        sizes.append((tmp_path / "sessions.json").stat().st_size)
        last = found.begin(greedy)
    for _ in range(1_001):
        last = found.begin(greedy)

    for current in (found, Sessions(tmp_path, made)):
        assert (owner := current.find(kept)) is not None
        assert "other" == owner.name
        assert current.find(first) is None
        assert current.find(last) is not None
    assert max(after - before for before, after in itertools.pairwise(sizes)) < 400, "one line each"
    assert (tmp_path / "sessions.json").stat().st_size < 1_000_000


def test_a_session_cut_by_a_crash_is_none(tmp_path: Path):
    made = Keys(tmp_path)
    key = made.create("reader", "read").key
    found = Sessions(tmp_path, made)
    first, second = found.begin(key), found.begin(key)
    file = tmp_path / "sessions.json"
    file.write_bytes(file.read_bytes()[:-20])

    again = Sessions(tmp_path, made)
    assert (again.find(first) is not None, again.find(second)) == (True, None)
    third = again.begin(key)
    assert Sessions(tmp_path, made).find(third) is not None


def test_sign_ins_have_a_rate(server: LiveServer, keys: Senders):
    key = server.make_key("signer")
    until(lambda: server.ask("POST", "/session", {"key": key}), lambda answer: answer.status != 204)
    refused = server.ask("POST", "/session", {"key": key})
    assert (429, "ERR_RATE_LIMITED") == (refused.status, refused.code)
    assert "60 sign-ins" in refused.body["detail"]
    assert "cookie" in refused.body["remedy"]
    assert 204 == server.ask("POST", "/session", {"key": keys.other}).status


# Connections.


async def hangs(scope: Scope, _receive: Receive, send: Send) -> None:
    """Knows every sender, and answers only ``/health`` and ``/quick``."""
    if scope["path"] != "/health":
        scope[PROVE]()
    if scope["path"] == "/hang":
        await asyncio.Event().wait()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


class ByAddress(Peers):
    """Addresses of this machine count as machines of their own."""

    def of_connection(self, client: Sequence[Any] | None) -> str | None:
        return str(client[0]) if client else None


@contextmanager
def crowd(most: int, peers: Peers | None = None) -> Iterator[tuple[tuple[str, int], OpenConnections]]:
    opened = OpenConnections(most, peers)
    made = functools.partial(Patient, open_connections=opened)
    with running(hangs, timeout_graceful_shutdown=1, http=made) as (_, address):
        yield address, opened


class Patient(Hasty):
    head_s = 30.0


def get(address: tuple[str, int], path: str, close: bool = True) -> bytes:
    with socket.create_connection(address, WAIT_S) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        return rest(connection)


def test_idle_connections_give_way_to_requests():
    with crowd(10) as (address, _), ExitStack() as opened:
        idle = [opened.enter_context(socket.create_connection(address, WAIT_S)) for _ in range(30)]
        for connection in idle[::2]:
            with suppress(OSError):
                connection.sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
        assert get(address, "/quick").startswith(b"HTTP/1.1 200 ")
        # The oldest ones have ended; those that had begun a request are told why.
        assert rest(idle[1]) == b""
        assert get(address, "/quick").startswith(b"HTTP/1.1 200 ")


def test_a_busy_server_refuses_with_a_problem_document_and_answers_health():
    with crowd(10) as (address, connections), ExitStack() as opened:
        for _ in range(10):
            connection = opened.enter_context(socket.create_connection(address, WAIT_S))
            connection.sendall(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n")
        until(lambda: len(connections._all) == 10 and not connections._unknown, bool)
        refused = get(address, "/quick")
        for _ in range(3 * SPARE):
            opened.enter_context(socket.create_connection(address, WAIT_S))
        assert get(address, "/health").startswith(b"HTTP/1.1 200 ")

    assert refused.startswith(b"HTTP/1.1 503 ")
    assert b"application/problem+json" in refused
    assert b"ERR_SERVER_BUSY" in refused
    assert b"10 connections are open" in refused
    assert b"\nretry-after: 2" in refused.lower()


def test_a_machine_without_a_key_has_a_part_of_the_connections(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("penstock.http.connections.UNKNOWN_OF_PEER", 5)
    with crowd(1_000, ByAddress()) as (address, connections), ExitStack() as opened:
        mine = opened.enter_context(socket.create_connection(address, WAIT_S, ("127.0.0.2", 0)))
        theirs = [opened.enter_context(socket.create_connection(address, WAIT_S)) for _ in range(20)]
        assert rest(theirs[0]) == b""
        until(lambda: len(connections._all), lambda number: number == 6)
        mine.sendall(b"GET /quick HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert rest(mine).startswith(b"HTTP/1.1 200 ")


def test_connections_that_have_been_used_end_after_those_never_used():
    with crowd(10) as (address, connections), ExitStack() as opened:
        used = opened.enter_context(socket.create_connection(address, WAIT_S))
        used.sendall(b"GET /quick HTTP/1.1\r\nHost: a\r\n\r\n")
        assert used.recv(65_536).endswith(b"ok")
        until(lambda: len(connections._all) == 1 and not connections._unknown, bool)
        for _ in range(30):
            opened.enter_context(socket.create_connection(address, WAIT_S))
        until(lambda: len(connections._all), lambda number: number == 10)
        used.sendall(b"GET /quick HTTP/1.1\r\nHost: a\r\n\r\n")
        assert used.recv(65_536).endswith(b"ok")


@pytest.mark.parametrize(
    ("client", "forwarded", "peer"),
    [
        ("127.0.0.1", None, None),
        ("::1", None, None),
        ("::ffff:127.0.0.1", None, None),
        ("192.0.2.7", None, "192.0.2.7"),
        ("192.0.2.7", "198.51.100.1", "192.0.2.7"),
        ("2001:db8:1:2:3::4", None, "2001:db8:1:2::/64"),
        ("127.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.7", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.7", "203.0.113.9, 198.51.100.1, 10.0.0.8", "198.51.100.1"),
        ("10.0.0.7", "nonsense", None),
        ("10.0.0.7", "198.51.100.1, nonsense", None),
        ("10.0.0.7", "", None),
    ],
)
def test_the_machine_of_a_request(client: str, forwarded: str | None, peer: str | None):
    headers = [] if forwarded is None else [(b"x-forwarded-for", forwarded.encode())]

    assert peer == Peers(["10.0.0.0/8"]).of_request((client, 4711), headers)


# Pictures of pages.


def test_a_key_that_draws_leaves_place_for_another():
    async def draw() -> None:
        drawings, release = Drawings(), threading.Event()
        running: list[str] = []

        def slow() -> None:
            running.append("greedy")
            assert release.wait(WAIT_S)

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(drawings.run, "greedy", slow)
            while len(running) < DRAWN_PER_KEY:
                await asyncio.sleep(0.001)
            assert "drawn" == await drawings.run("other", lambda: "drawn")
            assert DRAWN_PER_KEY == len(running)
            release.set()
        assert 20 == len(running)
        assert not drawings._limiters

    asyncio.run(draw())


def test_a_page_has_three_pictures(server: LiveServer, keys: Senders):
    path = server.folder / "drawn.pdf"
    path.write_bytes(pdf("The mill takes in water."))
    job = server.index("drawn.pdf", key=keys.admin).body["job_id"]
    assert "done" == server.ended(job, key=keys.admin)["status"]
    (found,) = server.ask("GET", f"/documents?path={quote(str(path))}", key=keys.admin).body["documents"]
    target = f"/documents/{found['source_id']}/pages/1/image"

    pictures = set()
    for width in (1, 16, *WIDTHS, *(width + 1 for width in WIDTHS[:-1]), 777, 1_985):
        answer = server.raw("GET", f"{target}?width={width}", key=keys.admin)
        assert 200 == answer.status, width
        pictures.add(answer.body)
    assert len(WIDTHS) == len(pictures)
    kept = [each for each in (server.state / "page_images").rglob("*.png") if not each.name.startswith(".")]
    assert len(WIDTHS) == len(kept)
    assert 422 == server.raw("GET", f"{target}?width={WIDTHS[-1] + 1}", key=keys.admin).status


@pytest.mark.parametrize("shape", [(30, 20), (30, 20, 3), (3, 401), (1, 1)])
def test_a_picture_is_what_was_drawn(shape: tuple[int, ...]):
    pixels = np.arange(math.prod(shape), dtype=np.uint32).astype(np.uint8).reshape(shape)
    found = Image.open(io.BytesIO(_png(PageImage(pixels, 72), 400)))
    found.load()

    if shape[1] <= 400:
        assert np.array_equal(pixels, np.asarray(found))
    assert (min(shape[1], 400), shape[0]) == found.size


# The disk.


def test_a_server_that_cannot_write_is_not_ready(tmp_path: Path):
    started = LiveServer(tmp_path, "--no-worker")
    try:
        # As on a disk that is full, each write fails.
        resource.prlimit(started.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        full = started.ask("GET", "/health/ready")
        resource.prlimit(
            started.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        )
        again = until(lambda: started.ask("GET", "/health/ready"), lambda answer: answer.status == 200)
    finally:
        started.stop()

    assert (503, False, "ERR_STORE_UNAVAILABLE") == (full.status, full.body["ready"], full.body["disk"])
    assert (True, "ok") == (again.body["ready"], again.body["disk"])


def test_the_disk_is_not_written_for_each_question(tmp_path: Path):
    probe = WriteProbe(load({}, state_dir=tmp_path))
    probe.check()
    changed_at = tmp_path.stat().st_mtime_ns
    for _ in range(100):
        probe.check()

    assert changed_at == tmp_path.stat().st_mtime_ns
    assert [] == list(tmp_path.iterdir())
