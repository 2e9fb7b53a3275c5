"""A real Chroma server for the tests, from the wheel, on loopback, shared by every process of a test run.

``TEST_PENSTOCK_CHROMA_URL`` (``chroma://HOST:PORT``) names a server that is there already.
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.servers import run

OWN_SERVER = "TEST_PENSTOCK_CHROMA_URL"
PATIENCE_S = 120
_shared: list[ChromaServer] = []
"""Kept, as it outlives the test that started it; it ends with the run."""


class ChromaServer:
    """One server in a separate directory."""

    def __init__(self, home: Path) -> None:
        self._home = home
        home.mkdir(exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None
        self.port = run.free_port()

    @property
    def url(self) -> str:
        return f"chroma://127.0.0.1:{self.port}"

    def start(self) -> None:
        program = Path(sys.executable).with_name("chroma")
        command = [program, "run", "--path", self._home, "--host", "127.0.0.1", "--port", str(self.port)]
        self._process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self._home,
        )  # fmt: skip
        deadline = time.monotonic() + PATIENCE_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the Chroma server did not start")
            time.sleep(0.05)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/api/v2/heartbeat")
            return connection.getresponse().status == http.HTTPStatus.OK
        except OSError:
            return False
        finally:
            connection.close()

    def let_outlive(self) -> None:
        assert self._process is not None
        run.let_outlive(self._process)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def shared_url() -> str:
    """The URL of the run's server, started by the process that asks first."""
    if os.environ.get(OWN_SERVER):
        return os.environ[OWN_SERVER]
    note = run.place() / "chroma.url"
    with run.alone("chroma"):
        if not note.exists():
            _shared.append(ChromaServer(run.place() / "chroma"))
            _shared[0].start()
            _shared[0].let_outlive()
            note.write_text(_shared[0].url)
        return note.read_text()
