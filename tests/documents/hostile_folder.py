"""A folder of hostile and good files, indexed by the command line: ``make hostile``.

``python -m tests.documents.hostile_folder [--scale N] [--good N] [--large] [FOLDER]`` writes the folder, runs
``penstock index`` on it twice, and checks that every good file is indexed, every bad one has ended and is
explained by ``why``, that the processes stayed under 1 GiB together, and that the second run read nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from penstock import Penstock
from tests.pipeline.hostile_inputs import FILES, IGNORES, LARGE
from tests.pipeline.sample_documents import pdf_of_equal_pages
from tests.worker.worker_processes import ROOT, children_of

TREE_BYTES = 1 << 30
SAMPLE_S = 0.05
ENDED = frozenset(["indexed", "partial", "failed", "skipped"])
HEAVY = b"BT /F1 12 Tf 50 720 Td (heavy words) Tj ET " + b"0 0 m 1 1 l S " * 20_000
LIGHT = b"BT /F1 12 Tf 50 720 Td (light words) Tj ET"


class Result(msgspec.Struct, kw_only=True):
    """Measurements of a run. ``troubles`` is empty if all is well."""

    files: int
    verdicts: dict[str, int]
    codes: dict[str, int]
    peak_mib: int
    seconds: float
    again_seconds: float
    troubles: list[str]


def fill(folder: Path, *, scale: int, good: int, large: bool) -> tuple[list[Path], list[Path]]:
    """Write the files; returns the good ones and the bad ones."""
    folder.mkdir(parents=True, exist_ok=True)
    good_files = [folder / f"good{number // 50}" / f"good{number}.md" for number in range(good)]
    for number, path in enumerate(good_files):
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# Good file {number}\n\nHonest words of file {number}.\n")
    bad = [_written(folder, name, *make(scale)) for name, make in FILES.items()]
    if large:
        bad += [_written(folder, f"large {name}", *FILES[name](n)) for name, n in LARGE.items()]
        bad += [_written(folder, name, *made) for name, made in hungry().items()]
        bad += [_written(folder, f"pages {name}", *made) for name, made in long_documents().items()]
    for name, make_rules in IGNORES.items():
        rules, paths = make_rules(min(scale, 200))
        bad += _ignored(folder / "ignored" / name.replace(" ", "_"), rules, paths)
    return good_files, bad


def hungry() -> dict[str, tuple[str, bytes]]:
    """Small files with gigabytes of output in earlier versions."""
    cells = [{"cell_type": "code", "source": "a = 1", "outputs": []}] * 6_000
    notebook = {"cells": cells, "metadata": {"language_info": {"name": "x" * 500_000}}}
    name = "x" * 300_000
    return {
        "notebook of a long language": ("input.ipynb", json.dumps(notebook).encode()),
        "XML of a long name": ("input.xml", f"<{name}>{'<b/>a' * 20_000}</{name}>".encode()),
        "JSON of depth 900": ("input.json", b"[" * 900 + b"1," * 2_000_000 + b"1" + b"]" * 900),
    }


def long_documents() -> dict[str, tuple[str, bytes]]:
    return {
        "heavy": ("input.pdf", pdf_of_equal_pages(3_000, HEAVY)),
        "light": ("input.pdf", pdf_of_equal_pages(20_000, LIGHT)),
    }


def _written(folder: Path, name: str, file_name: str, content: bytes) -> Path:
    path = folder / "hostile" / f"{name.replace(' ', '_')}{Path(file_name).suffix}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


def _ignored(folder: Path, rules: str, paths: list[str]) -> list[Path]:
    """An ignore file, and files at paths with costly matches."""
    folder.mkdir(parents=True)
    (folder / ".gitignore").write_text(rules + "\n")
    made = []
    for path in paths:
        place = folder / f"{path.strip('/')}.md"
        if len(os.fsencode(place)) < 4000 and all(len(part) < 250 for part in place.parts):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("Words beside hard rules.\n")
            made.append(place)
    return made


def index(folder: Path, environment: dict[str, str]) -> tuple[dict[str, Any], int]:
    """Run the command; returns the output and the peak memory of all processes together."""
    command = [sys.executable, "-m", "penstock", "index", str(folder), "--include-code", "--wait", "--json"]
    peak, log = 0, folder.with_name("log")
    with (
        log.open("wb") as lines,
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=lines) as process,
    ):
        while process.poll() is None:
            peak = max(peak, sum(map(_resident, [process.pid, *children_of(process.pid)])))
            time.sleep(SAMPLE_S)
        assert process.stdout is not None
        told = process.stdout.read()
    try:
        answer: dict[str, Any] = json.loads(told)
    except ValueError:
        raise AssertionError(log.read_text(errors="replace")[-2000:]) from None
    return answer, peak


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def run(place: Path, *, scale: int, good: int, large: bool = False) -> Result:
    folder = place / "files"
    good_files, bad = fill(folder, scale=scale, good=good, large=large)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    environment |= {"PENSTOCK_STATE": str(place / "state"), "PENSTOCK_EMBEDDER": "hashing"}
    began = time.monotonic()
    _, peak = index(folder, environment)
    first = time.monotonic()
    again, peak_again = index(folder, environment)
    ended = time.monotonic()
    with Penstock(state_dir=place / "state") as app:
        reasons = {path: app.documents.why(str(path)) for path in [*good_files, *bad]}
    troubles = [
        f"{path}: {reasons[path].verdict}" for path in good_files if reasons[path].verdict != "indexed"
    ]
    troubles += [
        f"{path}: {reasons[path].verdict} ({reasons[path].cause})"
        for path in bad
        if reasons[path].verdict not in ENDED or not reasons[path].cause
    ]
    peak = max(peak, peak_again)
    if peak >= TREE_BYTES:
        troubles.append(f"the processes had {peak >> 20} MiB together")
    sent = {name: again["counts"].get(name) for name in ("added", "changed", "vanished", "bytes")}
    if any(sent.values()):
        troubles.append(f"the second run read files again: {sent}")
    failed = [reason.cause.partition(":")[0] for reason in reasons.values() if reason.verdict == "failed"]
    return Result(
        files=len(reasons),
        verdicts=dict(Counter(str(reason.verdict) for reason in reasons.values())),
        codes=dict(Counter(failed)),
        peak_mib=peak >> 20,
        seconds=round(first - began, 1),
        again_seconds=round(ended - first, 1),
        troubles=troubles,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--scale", type=int, default=80_000, help="how large the hostile files are")
    parser.add_argument("--good", type=int, default=1_000, help="how many good files there are")
    parser.add_argument("--small", action="store_true", help="without the largest files")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-hostile-") as place:
        result = run(Path(place), scale=given.scale, good=given.good, large=not given.small)
    print(json.dumps(msgspec.to_builtins(result), indent=2))
    sys.exit(1 if result.troubles else 0)


if __name__ == "__main__":
    main()
