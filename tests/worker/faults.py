"""Faults of the machine for running workers: a disk that is full, slow or read-only, and a clock that jumps.

A library preloaded into the workers reads them from a file that all of its processes map.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.power_loss.recording import compiled

SOURCE = Path(__file__).with_name("faults.c")
_FIELDS = struct.Struct("<iiqii")


class Faults:
    """The switches. ``environment``: variables for the workers."""

    def __init__(self, folder: Path, paths: str) -> None:
        """``paths``: the beginning of the paths whose disk is full or slow."""
        switches = folder / "faults"
        switches.write_bytes(bytes(_FIELDS.size))
        with switches.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _FIELDS.size)
        self.environment = {
            "LD_PRELOAD": str(compiled(SOURCE, folder)),
            "PENSTOCK_FAULTS": str(switches),
            "PENSTOCK_FAULTS_ON": paths,
        }

    @contextmanager
    def on(
        self,
        *,
        disk_full: bool = False,
        write_delay_us: int = 0,
        clock_offset_s: int = 0,
        read_only: bool = False,
    ) -> Iterator[None]:
        """Switch faults on for the time of the block."""
        try:
            self._map[:] = _FIELDS.pack(disk_full, write_delay_us, clock_offset_s, read_only, 0)
            yield
        finally:
            self._map[:] = bytes(_FIELDS.size)
