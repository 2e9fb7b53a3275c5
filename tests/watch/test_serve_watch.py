"""``penstock serve --watch``: the server follows folders below its roots."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.watch.test_watch import WAIT_S, Watched


def serve(folder: Path, root: Path, *arguments: str) -> subprocess.Popen[bytes]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    command = [sys.executable, "-m", "penstock", "--state", str(folder / "state"), "serve", "--port", "0"]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--processes", "1", *arguments],
            cwd=root,
            env=kept | {"PENSTOCK_EMBEDDER": "hashing"},
            stdout=log,
            stderr=log,
        )


def test_a_server_follows_a_folder_until_it_ends(tmp_path: Path):
    watched = Watched(tmp_path)
    (watched.root / "first.md").write_text("The first note.\n")
    server = serve(tmp_path, watched.root, "--watch", ".")
    try:
        watched.until_equal()
        (watched.root / "second.md").write_text("The second note.\n")
        watched.until_equal()
    finally:
        server.send_signal(signal.SIGTERM)
        assert 0 == server.wait(WAIT_S), watched.log()
        watched.app.close()
    assert "Traceback" not in watched.log()


def test_a_folder_outside_of_the_roots_is_refused_before_anything_starts(tmp_path: Path):
    root = tmp_path / "served"
    root.mkdir()
    server = serve(tmp_path, root, "--watch", "..")

    assert 1 == server.wait(WAIT_S)
    assert "Path '..' is outside project." in (tmp_path / "log").read_text()
