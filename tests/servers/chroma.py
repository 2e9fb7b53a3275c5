"""A real Chroma server for the tests, from the wheel, on loopback; one for each process of a test run.

``PENSTOCK_TEST_CHROMA_URL`` (``chroma://HOST:PORT``) names a server that is there already.
"""

from __future__ import annotations

import atexit
import http.client
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OWN_SERVER = "PENSTOCK_TEST_CHROMA_URL"
PATIENCE_S = 60
_shared: list[ChromaServer] = []


class ChromaServer:
    """One server in a separate directory."""

    def __init__(self, home: Path) -> None:
        self._home = home
        home.mkdir(exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])

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

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def shared_url() -> str:
    """The URL of this process's server, started at the first use and stopped at the end."""
    if os.environ.get(OWN_SERVER):
        return os.environ[OWN_SERVER]
    if not _shared:
        home = Path(tempfile.mkdtemp(prefix="penstock-chroma-"))
        _shared.append(ChromaServer(home))
        _shared[0].start()
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        atexit.register(_shared[0].stop)
    return _shared[0].url
