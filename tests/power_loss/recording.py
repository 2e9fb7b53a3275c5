"""Recorded changes of files: a library preloaded into a process writes down each call that changes one."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("recorder.c")
COMPILER = shutil.which("cc")
_HEAD = struct.Struct("<cHQI")
ACKNOWLEDGED = "acknowledged"
"""Name of the file to which the process writes a line for each answer that it got from the store."""


class Change(NamedTuple):
    """One call, as it took effect. ``what`` is the letter of the recorder."""

    what: str
    path: str
    offset: int
    data: bytes


def compiled(source: Path, folder: Path) -> Path:
    """A library to be preloaded, compiled for this machine."""
    library = folder / f"{source.stem}.so"
    command = [str(COMPILER), "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl", "-lpthread"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return library


def recorded(module: str, *arguments: str, library: Path, root: Path) -> list[Change]:
    """Run a module to its end, and return its changes of the files below a folder."""
    log = library.with_name("changes")
    log.unlink(missing_ok=True)
    added = {
        "LD_PRELOAD": str(library),
        "PENSTOCK_RECORD_LOG": str(log),
        "PENSTOCK_RECORD_ROOT": os.path.realpath(root),
    }
    subprocess.run(
        [sys.executable, "-m", module, *arguments], check=True, env=os.environ | added, timeout=300
    )
    return [*_read(log.read_bytes())]


def _read(log: bytes) -> Iterator[Change]:
    at = 0
    while at < len(log):
        what, path, offset, size = _HEAD.unpack_from(log, at)
        at += _HEAD.size
        yield Change(what.decode(), log[at : at + path].decode(), offset, log[at + path : at + path + size])
        at += path + size
