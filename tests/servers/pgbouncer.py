"""A real PgBouncer in front of a PostgreSQL server, in transaction mode.

It is a program of the system (``make pooler`` installs it where root): tests that need it are skipped where
it is missing, and fail where ``CI`` is set.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from tests.servers import run
from tests.servers.postgres import _as_user, _drops

PROGRAM = shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))
PATIENCE_S = 60
ACCEPTING_OPTIONS = {"ignore_startup_parameters": "options,extra_float_digits"}
"""As guides of poolers advise: what a client asks for with ``options`` is dropped without a word."""

needed = pytest.mark.skipif(PROGRAM is None and not os.environ.get("CI"), reason="there is no pgbouncer here")


class PgBouncer:
    """A pooler before the server of a URL. ``settings`` are added to its configuration."""

    def __init__(self, server_url: str, **settings: str) -> None:
        assert PROGRAM is not None, "pgbouncer is missing: make pooler"
        # Not in the folder of a test, which the user of the pooler cannot reach.
        folder = Path(tempfile.mkdtemp(prefix="penstock-pgbouncer-"))
        parts = urlsplit(server_url)
        self.port = run.free_port()
        self.url = urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{self.port}"))
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        given = {
            "listen_addr": "127.0.0.1",
            "listen_port": str(self.port),
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": "transaction",
            "default_pool_size": "6",
            "max_client_conn": "200",
            "server_login_retry": "0.1",
            "syslog": "0",
        } | settings
        options = "\n".join(f"{name} = {value}" for name, value in given.items())
        target = f"host={parts.hostname} port={parts.port} user={parts.username}"
        self._config = folder / "pgbouncer.ini"
        self._config.write_text(f"[databases]\n* = {target}\n[pgbouncer]\n{options}\n")
        folder.chmod(0o755)
        if _drops():
            shutil.chown(folder, _drops(), -1)

    def start(self) -> None:
        log = (self._folder / "log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [str(PROGRAM), "-q", str(self._config)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", **_as_user(),
            )  # fmt: skip
        deadline = time.monotonic() + PATIENCE_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no pooler: {(self._folder / 'log').read_text()[-2_000:]}")
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url.partition("?")[0], connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @contextmanager
    def killed(self) -> Iterator[None]:
        """Kill the pooler for the time of the block."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._folder)


@contextmanager
def in_front(server_url: str, **settings: str) -> Iterator[PgBouncer]:
    """A pooler before a server for the time of the block."""
    pooler = PgBouncer(server_url, **settings)
    try:
        pooler.start()
        yield pooler
    finally:
        pooler.remove()
