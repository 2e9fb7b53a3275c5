"""A server process on loopback, and requests to it."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tests.signals import hear

T = TypeVar("T")
WAIT_S = 120.0


class Answer(NamedTuple):
    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def code(self) -> str:
        """The code of a problem document, whose shape is checked on the way."""
        assert "application/problem+json" == self.headers["content-type"]
        assert {"type", "title", "status", "detail", "code", "remedy"} <= set(self.body)
        assert self.status == self.body["status"]
        return str(self.body["code"])


class LiveServer:
    """``penstock serve`` in a folder of its own. ``environ``: settings, without the prefix."""

    def __init__(self, folder: Path, *arguments: str, **environ: str) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.log = folder / "server.log"
        self._environ = {f"PENSTOCK_{name.upper()}": value for name, value in environ.items()}
        self.start(*arguments)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "penstock", "--state", str(self.state), "--json", *arguments]

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        # The hashing embedder needs no time to load.
        return kept | {"PENSTOCK_EMBEDDER": "hashing", "PENSTOCK_POLL_S": "0.05"} | self._environ

    def start(self, *arguments: str) -> None:
        (self.folder / "files").mkdir(exist_ok=True)
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                self.command("serve", "--port", "0", *arguments),
                cwd=self.folder,
                env=self.environment(),
                stdout=subprocess.PIPE,
                stderr=log,
                preexec_fn=hear,
                text=True,
            )
        assert self.process.stdout is not None
        lines: list[str] = []
        while not lines or lines[-1].rstrip() != "}":
            lines.append(self.process.stdout.readline())
            if not lines[-1]:
                self.wait()
                raise AssertionError(self.log.read_text())
        self.url = str(json.loads("".join(lines))["url"])
        self.address = self.url.removeprefix("http://")

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        peer: str | None = None,
    ) -> Answer:
        """Send a request, whose answer is JSON; see ``raw``."""
        status, text, found = self.raw(method, path, body, key=key, headers=headers, peer=peer)
        return Answer(status, json.loads(text) if text else None, found)

    def raw(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        peer: str | None = None,
    ) -> Answer:
        """Send a request. A body other than bytes, or an iterator of them, is sent as JSON.

        ``peer``: another address of this machine to send from. Peers with many wrong keys wait for answers.
        """
        sent = {"Authorization": f"Bearer {key}"} if key is not None else {}
        if body is not None and not isinstance(body, bytes | Iterator):
            body = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        connection = http.client.HTTPConnection(
            self.address, timeout=WAIT_S, source_address=None if peer is None else (peer, 0)
        )
        try:
            connection.request(method, path, body, {**sent, **(headers or {})})
            response = connection.getresponse()
            text = response.read()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, text, found)
        finally:
            connection.close()

    def index(self, path: Path | str, **more: Any) -> Answer:
        return self.ask("POST", "/index/", {"folder_path": str(path)}, **more)

    def ended(self, job_id: str, **more: Any) -> dict[str, Any]:
        """The job, once it has ended."""
        return until(
            lambda: self.ask("GET", f"/index/jobs/{job_id}", **more).body,
            lambda job: job["status"] in ("done", "failed", "cancelled"),
        )

    def make_key(
        self, name: str, scope: str = "read", *tenants: str, roots: Sequence[Path | str] = ()
    ) -> str:
        options = [part for tenant in tenants for part in ("--tenant", tenant)]
        options += [part for root in roots for part in ("--root", str(root))]
        done = subprocess.run(
            self.command("keys", "create", name, "--scope", scope, *options),
            env=self.environment(),
            capture_output=True,
            check=True,
        )
        return str(json.loads(done.stdout)["key"])

    def kill(self) -> None:
        self.process.kill()
        self.wait()

    def stop(self) -> int:
        """Stop the server by a signal, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end of the server, and return its exit code."""
        code = self.process.wait(WAIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


_peers = itertools.count(1)


def next_peer() -> str:
    """An address of this machine that no request has come from."""
    number = next(_peers)
    return f"127.1.{number >> 8}.{number & 255}"


def until(read: Callable[[], T], reached: Callable[[T], bool]) -> T:
    """Read until a state is reached."""
    deadline = time.monotonic() + WAIT_S
    while not reached(found := read()):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found
