"""Environments of the libraries: one for each below a directory, made once, with pinned versions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.pipeline_peers.field import ROOT, Side

DIRECTORY = ROOT / "build" / "pipeline-peers"
VERSIONS = Path(__file__).with_name("versions")
EMBEDDING = ("msgspec", "numpy")
"""What the embedding function needs."""


def prepare(side: Side, environments: Path) -> str:
    """Make the environment of a side where it is missing. Returns the version, empty without a package."""
    if not side.packages:
        return ""
    python, pins = side.python(environments), VERSIONS / f"{side.module}.txt"
    made = environments / side.module / "made-with.txt"
    if not made.exists() or made.read_text() != pins.read_text():
        print(f"Installing {side.name} (once)", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(environments / side.module)], check=True)
        packages = [*side.packages, *EMBEDDING]
        install = [str(python), "-m", "pip", "install", "-q", "-c", str(pins), *packages]
        subprocess.run(install, check=True, stderr=subprocess.DEVNULL)
        made.write_text(pins.read_text())
    return version(side)


def version(side: Side) -> str:
    """Return the pinned version of the first package of a side."""
    for line in (VERSIONS / f"{side.module}.txt").read_text().splitlines():
        name, _, number = line.partition("==")
        if name == side.packages[0]:
            return number
    raise ValueError(f"no version of {side.packages[0]} for {side.name}")
