"""Who needs a key: everyone, unless the server is this machine's own and no key was ever made for it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock import clock, config
from penstock.http.guard import Guard, GuardOptions
from penstock.service.keys import KEYS_FILE, MARK, Keys
from penstock.service.shares import FREE, LONGEST_S, MOST_PEERS, STEP_S, TOLD_EVERY_S, RefusedKeys
from tests.http.event_stream import EventStream
from tests.http.live_server import LiveServer, next_peer

FORWARDED = {
    "Forwarded": "for=203.0.113.9",
    "X-Forwarded-For": "203.0.113.9",
    "X-Forwarded-Host": "mill.example",
    "X-Forwarded-Proto": "https",
    "X-Real-IP": "203.0.113.9",
    "Via": "1.1 mill.example",
    "X-Forwarded-Client-Cert": "Hash=0",
    "X-Original-Forwarded-For": "203.0.113.9",
    "X-Client-IP": "203.0.113.9",
    "CF-Connecting-IP": "203.0.113.9",
    "True-Client-IP": "203.0.113.9",
    "Forwarded-For": "203.0.113.9",
    "Proxy-Client-IP": "203.0.113.9",
    "Fly-Client-IP": "203.0.113.9",
    "X-Azure-ClientIP": "203.0.113.9",
    "X-Original-URL": "/me",
    "X-Original-Host": "mill.example",
    "CDN-Loop": "mill",
    "CF-Ray": "0-AMS",
    "X-Scheme": "https",
    "Front-End-Https": "on",
}


class Gate:
    """The guard of a server, before an application that answers 200 with the name of the sender."""

    def __init__(self, state: Path, host: str = "127.0.0.1", *, auth: bool = True, **settings: str) -> None:
        environ = {f"PENSTOCK_{name.upper()}": value for name, value in settings.items()}
        self.keys = Keys(state)
        options = GuardOptions.of(config.load(environ, state_dir=state), self.keys, host, requires_keys=auth)
        self.scope: dict[str, Any] = {}
        """The last request that was let in."""
        self._guard = Guard(self._name_sender, options)

    def ask(
        self, key: str | None = None, peer: str = "127.0.0.1", http: str = "1.1", **headers: str
    ) -> tuple[int, str]:
        """The status, and the name of the sender or the code of the refusal."""
        sent: list[Any] = []
        given = {"host": "localhost", **{name.replace("_", "-"): text for name, text in headers.items()}}
        if key is not None:
            given["authorization"] = f"Bearer {key}"
        scope = {
            "type": "http",
            "http_version": http,
            "method": "GET",
            "path": "/me",
            "client": (peer, 1),
            "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        }

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(self._guard(scope, _no_body, send))
        text = sent[1]["body"].decode()
        return sent[0]["status"], json.loads(text)["code"] if sent[0]["status"] >= 400 else text

    async def _name_sender(self, scope: Any, _receive: Any, send: Any) -> None:
        self.scope = scope
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": scope["penstock.principal"].name.encode()})


async def _no_body() -> Any:
    return {"type": "http.request", "body": b"", "more_body": False}


REFUSED = (401, "ERR_KEY_REQUIRED")
OPEN = (200, "local")


def test_a_server_of_this_machine_without_a_key_is_open(tmp_path: Path):
    assert OPEN == Gate(tmp_path).ask()
    assert OPEN == Gate(tmp_path, "::1").ask()
    assert OPEN == Gate(tmp_path, "localhost").ask()
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("name", FORWARDED)
def test_a_request_through_a_proxy_needs_a_key(tmp_path: Path, name: str):
    gate = Gate(tmp_path)

    assert REFUSED == gate.ask(**{name: FORWARDED[name]})
    assert REFUSED == gate.ask(**{name: ""})
    assert OPEN == Gate(tmp_path, auth=False).ask(**{name: FORWARDED[name]})
    key = gate.keys.create("proxy", "read").key
    assert (200, "proxy") == gate.ask(key, **{name: FORWARDED[name]})


def test_a_proxy_that_adds_no_header_and_speaks_http_1_0_opens_nothing(tmp_path: Path):
    """A ``proxy_pass`` of nginx without any other line: the Host header names this machine."""
    gate = Gate(tmp_path)

    assert REFUSED == gate.ask(http="1.0")
    assert (200, "proxy") == gate.ask(gate.keys.create("proxy", "read").key, http="1.0")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "203.0.113.7", "mill.example"])
def test_a_server_for_other_machines_needs_a_key_also_before_one_was_made(tmp_path: Path, host: str):
    assert REFUSED == Gate(tmp_path, host).ask()


def test_a_server_with_names_needs_a_key_also_before_one_was_made(tmp_path: Path):
    assert REFUSED == Gate(tmp_path, hosts="mill.example").ask()
    assert OPEN == Gate(tmp_path, auth=False, hosts="mill.example").ask()


def test_the_gate_stays_closed_after_the_last_key_was_revoked(tmp_path: Path):
    gate = Gate(tmp_path)
    key = gate.keys.create("only", "admin").key
    assert ((200, "only"), REFUSED) == (gate.ask(key), gate.ask())

    Keys(tmp_path).revoke("only")

    for one in (gate, Gate(tmp_path)):
        assert (REFUSED, REFUSED) == (one.ask(), one.ask(key))
    assert OPEN == Gate(tmp_path, auth=False).ask()


@pytest.mark.parametrize("restarted", [False, True])
def test_the_gate_stays_closed_without_the_file_of_keys(tmp_path: Path, restarted: bool):
    gate = Gate(tmp_path)
    gate.keys.create("only", "admin")
    assert REFUSED == gate.ask()

    (tmp_path / KEYS_FILE).unlink()

    gate = Gate(tmp_path) if restarted else gate
    assert REFUSED == gate.ask()
    assert (200, "new") == gate.ask(Keys(tmp_path).create("new", "read").key)


def test_a_running_server_remembers_keys_also_without_its_whole_state(tmp_path: Path):
    state = tmp_path / "state"
    gate = Gate(state)
    Keys(state).create("only", "admin")
    assert REFUSED == gate.ask()

    shutil.rmtree(state)

    assert REFUSED == gate.ask()


def test_an_empty_file_of_keys_closes_the_gate(tmp_path: Path):
    """As one of an earlier version, whose last key was revoked."""
    (tmp_path / KEYS_FILE).write_text("[]")

    assert REFUSED == Gate(tmp_path).ask()


@pytest.mark.parametrize("text", ["", "{", "{}", "null", '[{"name": "a"}]'])
def test_a_damaged_file_of_keys_closes_the_gate(tmp_path: Path, text: str):
    gate = Gate(tmp_path)
    key = gate.keys.create("only", "admin").key
    (tmp_path / KEYS_FILE).write_text(text)

    for one in (gate, Gate(tmp_path)):
        assert (503, "ERR_STATE_DAMAGED") == one.ask() == one.ask(key)


def test_a_file_of_keys_that_cannot_be_read_closes_the_gate(tmp_path: Path):
    gate = Gate(tmp_path)
    (tmp_path / KEYS_FILE).mkdir()

    assert (503, "ERR_STORE_DENIED") == gate.ask()


# A live server: every way in.

WAYS = [
    ("GET", "/me", None),
    ("GET", "/index/jobs", None),
    ("GET", "/events", None),
    ("GET", "/metrics", None),
    ("GET", "/openapi.json", None),
    ("GET", "/health/status", None),
    ("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
    ("POST", "/content", {"content": "A note."}),
    ("POST", "/files?name=a.md", {"a": "file"}),
    ("DELETE", "/tenants/default", None),
    ("POST", "/search", {"query": "mill"}),
]


def refused(server: LiveServer, key: str) -> None:
    """Check that no way leads in."""
    for method, path, body in WAYS:
        for more in ({}, {"key": key}):
            answer = server.raw(method, path, body, peer=next_peer(), **more)  # type: ignore[arg-type]
            assert 401 == answer.status, path
    assert 401 == server.raw("POST", "/session", {"key": key}, peer=next_peer()).status
    assert 200 == server.raw("GET", "/health").status


def test_no_way_leads_in_after_the_last_key(tmp_path: Path):
    server = LiveServer(tmp_path, "--no-worker")
    try:
        assert 200 == server.ask("GET", "/me").status
        key = server.make_key("only", "admin")
        cookie = server.raw("POST", "/session", {"key": key}).headers["set-cookie"].partition(";")[0]
        assert 200 == server.raw("GET", "/me", headers={"Cookie": cookie}).status

        revoke = server.command("keys", "revoke", "only")
        done = subprocess.run(revoke, env=server.environment(), check=True, capture_output=True, text=True)

        assert {"revoked": "only", "left": 0} == json.loads(done.stdout)
        assert "refuses every request" in done.stderr
        assert "penstock keys create" in done.stderr
        refused(server, key)
        assert 401 == server.raw("GET", "/me", headers={"Cookie": cookie}).status
        (server.state / KEYS_FILE).unlink()
        refused(server, key)
        assert 0 == server.stop()
        # A file of keys from an earlier version, or from a backup, leaves the mark again.
        (server.state / MARK).unlink()
        (server.state / KEYS_FILE).write_text("[]")
        server.start("--no-worker")
        refused(server, key)
        assert "there is no key" in server.log.read_text()
        assert 0o600 == (server.state / MARK).stat().st_mode & 0o777
    finally:
        server.stop()


# A public address, in a network namespace.


class Network(NamedTuple):
    """Two machines on one wire. ``address``: that of the first."""

    server: str
    client: str
    address: str


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def network() -> Iterator[Network]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the command ip")
    made = Network(f"ptk{os.getpid()}s", f"ptk{os.getpid()}c", "203.0.113.7")
    try:
        try:
            _ip("netns", "add", made.server)
            _ip("netns", "add", made.client)
            _ip(
                "link",
                "add",
                "mill0",
                "netns",
                made.server,
                "type",
                "veth",
                "peer",
                "mill0",
                "netns",
                made.client,
            )
            for name, address in ((made.server, made.address), (made.client, "203.0.113.8")):
                _ip("-n", name, "address", "add", f"{address}/24", "dev", "mill0")
                _ip("-n", name, "link", "set", "mill0", "up")
                _ip("-n", name, "link", "set", "lo", "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
        yield made
    finally:
        for name in made[:2]:
            with suppress(subprocess.CalledProcessError, FileNotFoundError):
                _ip("netns", "delete", name)


class PublicServer(LiveServer):
    """A server on the public address of a network."""

    def __init__(self, network: Network, folder: Path, **environ: str) -> None:
        self._network = network
        super().__init__(folder, "--no-worker", "--host", "0.0.0.0", **environ)

    def command(self, *arguments: str) -> list[str]:
        inside = ["ip", "netns", "exec", self._network.server] if arguments[0] == "serve" else []
        return [*inside, *super().command(*arguments)]

    def from_other_machine(self, method: str, path: str, key: str | None = None) -> int:
        """The status of a request by the other machine."""
        port = self.address.rpartition(":")[2]
        script = (
            "import http.client, sys\n"
            f"connection = http.client.HTTPConnection({self._network.address!r}, {port}, timeout=60)\n"
            f"headers = {{'Authorization': 'Bearer {key}'}} if {key is not None} else {{}}\n"
            f"connection.request({method!r}, {path!r}, headers=headers)\n"
            "print(connection.getresponse().status)\n"
        )
        asked = ["ip", "netns", "exec", self._network.client, sys.executable, "-c", script]
        return int(subprocess.run(asked, check=True, capture_output=True).stdout)


def test_nobody_gets_in_from_another_machine_after_the_last_key(network: Network, tmp_path: Path):
    Keys(tmp_path / "state").create("first", "admin")
    server = PublicServer(network, tmp_path)
    try:
        key = server.make_key("second", "admin")
        assert (200, 401) == (
            server.from_other_machine("GET", "/me", key),
            server.from_other_machine("GET", "/me"),
        )
        for name in ("first", "second"):
            Keys(server.state).revoke(name)
        for sent in (None, key):
            assert 401 == server.from_other_machine("GET", "/me", sent)
            assert 401 == server.from_other_machine("DELETE", "/tenants/default", sent)
        (server.state / KEYS_FILE).unlink()
        assert 401 == server.from_other_machine("DELETE", "/tenants/default")
    finally:
        server.stop()


# Refused keys and sessions.


def test_a_refused_key_or_session_leaves_a_line_without_it(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    gate = Gate(tmp_path)
    key = gate.keys.create("only", "read").key
    gate.ask(key)
    gate.ask()
    assert [] == caplog.messages

    gate.ask(key + "x")
    gate.ask(X_API_Key="penstock_guess")
    gate.ask(Cookie="penstock_session=guessed-token")
    gate.ask("wrong", X_Forwarded_For="203.0.113.9\x1b[2J")

    said = caplog.messages
    assert ["refused a key", "refused a key", "refused a session", "refused a key"] == [
        line.partition(" from ")[0] for line in said
    ]
    assert all("127.0.0.1" in line and ": GET /me" in line for line in said)
    assert "(for 203.0.113.9" in said[3]
    secrets = (key, "penstock_guess", "guessed-token", "wrong", "only")
    assert not any(secret in line for line in said for secret in secrets)


def test_refused_keys_of_one_peer_are_answered_later_and_logged_together(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    gate = Gate(tmp_path)
    key = gate.keys.create("only", "read").key
    before = time.monotonic()
    for _ in range(FREE + 3):
        assert REFUSED == gate.ask("wrong")
    assert time.monotonic() - before >= 4 * STEP_S
    assert FREE == len(caplog.messages)
    # Nobody else waits, and neither does the peer with its own key.
    before = time.monotonic()
    for _ in range(50):
        assert 200 == gate.ask(key)[0]
    for number in range(50):
        assert REFUSED == gate.ask("wrong", peer=f"203.0.113.{number}")
    assert time.monotonic() - before < 50 * STEP_S


def test_the_delay_is_bounded_and_ends(monkeypatch: pytest.MonkeyPatch):
    now = 100.0
    monkeypatch.setattr(clock, "elapsed_s", lambda: now)
    refusals = RefusedKeys()
    for _ in range(10_000):
        delay, untold = refusals.count("203.0.113.9")
    assert (LONGEST_S, None) == (delay, untold)
    now += TOLD_EVERY_S
    assert (LONGEST_S, 10_000 - FREE + 1) == refusals.count("203.0.113.9")
    now += 20_000
    assert (0.0, 1) == refusals.count("203.0.113.9")
    # Addresses of one network of IPv6 belong to one peer.
    for number in range(FREE):
        assert 0.0 == refusals.count(f"2001:db8::{number:x}")[0]
    assert STEP_S == refusals.count("2001:db8::ffff:0:1")[0]
    assert 0.0 == refusals.count("2001:db8:0:1::1")[0]


def test_refused_peers_take_a_bounded_room():
    refusals = RefusedKeys()
    for number in range(MOST_PEERS + 10):
        refusals.count(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")

    assert MOST_PEERS == len(refusals._seen)


def test_a_refused_key_begins_no_session_and_leaves_a_line(server: LiveServer):
    refused = server.ask("POST", "/session", {"key": "penstock_guess"})

    assert REFUSED == (refused.status, refused.code)
    line = server.log.read_text().splitlines()[-1]
    assert "refused a key from 127.0.0.1: POST /session" in line
    assert "guess" not in server.log.read_text()


@pytest.mark.parametrize(
    ("header", "value", "secure"),
    [
        ("X-Forwarded-Proto", "https", True),
        ("X-Forwarded-Proto", "HTTPS, http", True),
        ("X-Forwarded-Proto", "http", False),
        ("X-Forwarded-Proto", "http, https", False),
        ("X-Forwarded-Scheme", "https", True),
        ("X-Forwarded-Ssl", "on", True),
        ("X-Forwarded-Ssl", "off", False),
        ("Front-End-Https", "on", True),
        ("Forwarded", 'for=203.0.113.9;proto="https";by=203.0.113.1', True),
        ("Forwarded", "for=203.0.113.9;proto=http, for=203.0.113.8;proto=https", False),
        ("Origin", "https://{host}", True),
        ("Origin", "http://{host}", False),
    ],
)
def test_the_cookie_is_secure_behind_a_proxy_with_tls(
    server: LiveServer, header: str, value: str, secure: bool
):
    given = {header: value.format(host=server.address)}
    for method, body in (("POST", {"key": session_key(server)}), ("DELETE", None)):
        answer = server.raw(method, "/session", body, headers=given)
        assert 204 == answer.status
        attributes = answer.headers["set-cookie"].lower().split("; ")
        assert secure == ("secure" in attributes)


def session_key(server: LiveServer) -> str:
    """The text of a key of the server."""
    found = server.__dict__.setdefault("session_key", None)
    if found is None:
        found = server.__dict__["session_key"] = server.make_key("session", "read")
    return str(found)


def test_a_stream_ends_while_the_keys_cannot_be_read(tmp_path: Path):
    gate = Gate(tmp_path)
    key = gate.keys.create("only", "admin").key
    gate.ask(key)
    assert gate.scope["penstock.valid"]()

    (tmp_path / KEYS_FILE).write_text("{")

    assert not gate.scope["penstock.valid"]()


@pytest.mark.long
def test_a_damaged_file_of_keys_ends_streams_and_a_repaired_one_allows_new_ones(tmp_path: Path):
    keys = Keys(tmp_path / "state")
    headers = {"Authorization": f"Bearer {keys.create('only', 'admin').key}"}
    server = LiveServer(tmp_path, "--no-worker")
    file = server.state / KEYS_FILE
    whole = file.read_bytes()
    try:
        with EventStream(server, "/events", headers) as stream:
            events = stream.events()
            next(events)
            file.write_bytes(whole[:-5])
            assert [] == [event for event in events if event.kind == "job"]
        assert 503 == server.raw("GET", "/events", headers=headers).status
        file.write_bytes(whole)
        with EventStream(server, "/events", headers) as stream:
            assert next(stream.events())
    finally:
        server.stop()
