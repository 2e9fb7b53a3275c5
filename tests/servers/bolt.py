"""A real Bolt server: one that is given, or ArcadeDB from its wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from tests.servers import run

GIVEN = os.environ.get("TEST_PENSTOCK_NEO4J_URL")
"""A server that is there already. Tests remove what they wrote, and nothing else."""
PASSWORD = "turns-the-wheel"
DATABASE = "graph"
PATIENCE_S = 120.0
JVM = "-Xmx256m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of the time of a short run, most was that of the compiler."""
SERVER = """
import signal, sys
import arcadedb_embedded as arcadedb
folder, port, http, password, database = sys.argv[1:]
server = arcadedb.create_server(root_path=folder, root_password=password, config={
    "server_plugins": "Bolt:com.arcadedb.bolt.BoltProtocolPlugin", "bolt_port": int(port),
    "http_port": int(http), "host": "127.0.0.1",
})
server.start()
server.create_database(database)
open("ready", "w").close()
signal.pause()
"""


def available() -> bool:
    return GIVEN is not None or (
        find_spec("neo4j") is not None and find_spec("arcadedb_embedded") is not None
    )


def server_url() -> str:
    """The shared server of a run, started by whoever asks first."""
    if GIVEN:
        return GIVEN
    note = run.place() / "bolt.url"
    with run.alone("bolt"):
        if not note.exists():
            note.write_text(_start(run.place() / "bolt"))
        return note.read_text()


def _start(folder: Path) -> str:
    """Start a server that lives as long as the run, whichever of its processes asked for it."""
    folder.mkdir(parents=True, exist_ok=True)
    port, http_port = run.free_port(), run.free_port()
    values = (folder, port, http_port, PASSWORD, DATABASE)
    log = folder / "server.log"
    with log.open("ab") as written:
        server = subprocess.Popen(
            [sys.executable, "-c", SERVER, *map(str, values)],
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=written,
            cwd=folder,
            env=os.environ | {"ARCADEDB_JVM_ARGS": JVM},
        )
    run.let_outlive(server)
    deadline = time.monotonic() + PATIENCE_S
    while not (folder / "ready").exists():
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"no Bolt server: {log.read_text()[-2_000:]}")
        time.sleep(0.05)
    return f"bolt://root:{PASSWORD}@127.0.0.1:{port}/{DATABASE}"
