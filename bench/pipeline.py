"""What queue, catalog and publishing cost on top of a bare loop that indexes the same files."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.catalog import texts
from bench.judged_sets import CORPUS
from bench.plan import Plan
from bench.results import Line, most
from penstock.worker.in_process import SMALL_BYTES

OVERHEAD, TWO, FLAT, MEMORY_MB = 1.15, 1.1, 1.1, 400
STEPS = 8


class Spent(NamedTuple):
    """Seconds of CPU of a command and everything it started, and the most memory one process had."""

    cpu: float
    megabytes: float
    output: dict[str, object]


def measure(engine: str, plan: Plan) -> Iterator[Line]:
    if engine not in ("sqlite", "jsonl"):
        # The catalog is the same there; what their queues cost is measured by the other parts.
        return
    with tempfile.TemporaryDirectory(dir=plan.directory) as below:
        html = small_files(Path(below), plan.small_files)
        yield from compared(engine, f"{plan.small_files:,} HTML files", html, plan)
        paper = long_document(Path(below), plan.pages)
        yield from compared(engine, f"a document of {plan.pages:,} pages", paper, plan)
    yield growth(engine, plan)
    if plan.many_files:
        yield memory(engine, plan)


def compared(engine: str, what: str, folder: Path, plan: Plan) -> Iterator[Line]:
    """Less what the same command takes for a little text: interpreters and a model are loaded once.

    A command indexes a short text in its own process, so this one is long enough for a worker.
    """
    rounds = []
    with tempfile.TemporaryDirectory(dir=plan.directory) as below:
        line, nothing = Path(below, "line"), Path(below, "nothing")
        line.mkdir()
        nothing.mkdir()
        (line / "line.md").write_text("Water drives the wheel.\n" * (SMALL_BYTES // 20))
        for _ in range(plan.pipeline_runs):
            # In turns, so that whatever else the machine does, does it to all of them.
            rounds.append(_Round(*_in_turn(engine, (line, nothing, folder), plan.directory)))
    best = _Round(*map(min, zip(*rounds, strict=True)))
    bares = [each.bare - best.idle for each in rounds]
    guarded = [each.guarded - best.idle for each in rounds]
    one = [each.one - best.start_one for each in rounds]
    # One line is work for one process; the other would load its model, too, had it anything to do.
    two = [each.two - best.start_two - (best.idle - best.empty) for each in rounds]
    print(f"    {what}, CPU at best: {best._asdict()}", file=sys.stderr)
    for said, spent, ground, budget in (
        ("1 process, CPU", one, bares, OVERHEAD),
        ("2 processes, CPU", two, bares, None),
        ("1 process, CPU, by a loop with its guarantees", one, guarded, None),
        ("2 processes, CPU, by a loop with its guarantees", two, guarded, None),
    ):
        pairs = [ours / theirs for ours, theirs in zip(spent, ground, strict=True)]
        yield most(engine, f"index {what}, {said}", "x bare", pairs, [1.0], budget=budget)
    pairs = [ours / theirs for ours, theirs in zip(two, one, strict=True)]
    yield most(engine, f"index {what}, CPU of two processes", "x one", pairs, [1.0], budget=TWO)


class _Round(NamedTuple):
    """Seconds of CPU: the bare loop over a line, over nothing and over the folder; ours with one process and
    with two, over a line and over the folder. ``guarded``: the loop that also writes what a crash needs."""

    idle: float
    empty: float
    start_one: float
    start_two: float
    bare: float
    guarded: float
    one: float
    two: float


def _in_turn(engine: str, folders: tuple[Path, Path, Path], below: Path) -> Iterator[float]:
    line, nothing, folder = folders
    yield bare(line, below).cpu
    yield bare(nothing, below).cpu
    for processes in (1, 2):
        yield ours(engine, line, below, processes).cpu
    spent = bare(folder, below)
    print(f"    bare, {spent.output['chunks']} chunks: {_told(spent.output['spent'])}", file=sys.stderr)
    yield spent.cpu
    yield bare(folder, below, "pipeline_guarantees").cpu
    for processes in (1, 2):
        yield ours(engine, folder, below, processes).cpu


def bare(folder: Path, below: Path, loop: str = "pipeline_floor") -> Spent:
    with tempfile.TemporaryDirectory(dir=below) as place:
        return counted_run([sys.executable, "-m", f"bench.{loop}", str(folder), f"{place}/bare.db"], {})


def ours(
    engine: str,
    folder: Path,
    below: Path,
    processes: int,
    *,
    embedder: str = "static",
    state: Path | None = None,
) -> Spent:
    with tempfile.TemporaryDirectory(dir=below) as fresh:
        return counted_run(*index_command(engine, folder, state or Path(fresh), processes, embedder))


def index_command(
    engine: str, folder: Path, state: Path, processes: int, embedder: str
) -> tuple[list[str], dict[str, str]]:
    """The command, and the environment it takes."""
    url = f"sqlite:///{state}/queue.db" if engine == "sqlite" else f"jsonl://{state}/queue"
    environment = {"PENSTOCK_STATE": str(state), "PENSTOCK_URL": url, "PENSTOCK_EMBEDDER": embedder}
    command = [sys.executable, "-m", "penstock", "index", str(folder), "--wait", "--json"]
    return [*command, "--processes", str(processes)], environment


COUNTING = """
import ctypes, json, os, resource, subprocess, sys
# What the command leaves behind comes to us when it ends, to be waited for and counted as well.
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
try:
    while True:
        os.wait()
except ChildProcessError:
    pass
used = resource.getrusage(resource.RUSAGE_CHILDREN)
cpu = used.ru_utime + used.ru_stime
print(json.dumps([done.returncode, cpu, used.ru_maxrss, done.stdout.decode()]))
"""


def counted_run(command: list[str], environment: dict[str, str], *, decoded: bool = True) -> Spent:
    """In a process that waits for nothing else: what it counts of its children is this command."""
    answer = subprocess.run(
        [sys.executable, "-c", COUNTING, *command],
        # Modules are compiled once, as they are where a program is installed.
        env={**os.environ, **environment, "PYTHONDONTWRITEBYTECODE": ""},
        stdout=subprocess.PIPE,
        check=True,
    )
    code, cpu, kilobytes, output = msgspec.json.decode(answer.stdout)
    if code:
        raise RuntimeError(f"{' '.join(command)} ended with {code}: {output}")
    return Spent(cpu, kilobytes / 1024, msgspec.json.decode(output) if decoded else {"output": output})


def growth(engine: str, plan: Plan) -> Line:
    """CPU a chunk while the catalog grows, in equal steps, each a folder of its own."""
    size = plan.catalog_chunks // STEPS
    costs = []
    with tempfile.TemporaryDirectory(dir=plan.directory) as below:
        for number in range(STEPS):
            folder = _folder_of(Path(below, f"step{number}"), number, size)
            spent = ours(engine, folder, plan.directory, 1, embedder="hashing", state=Path(below, "state"))
            costs.append(spent.cpu / size)
    told = ", ".join(f"{cost * 1e6:.0f}" for cost in costs)
    print(f"    CPU µs a chunk, {size:,} at a time: {told}", file=sys.stderr)
    half = STEPS // 2
    return most(
        engine,
        f"CPU a chunk, catalog of {plan.catalog_chunks:,} chunks",
        "x the first",
        [min(costs[half:]) / min(costs[:half])],
        [1.0],
        budget=FLAT,
    )


def _folder_of(folder: Path, number: int, chunks: int) -> Path:
    folder.mkdir()
    for at, some in enumerate(texts(chunks // 4, 4)):
        body = "\n\n".join(f"# {number} {at} {n}\n\n{text} {text}"[:2_000] for n, text in enumerate(some))
        (folder / f"{at}.md").write_text(body)
    return folder


def memory(engine: str, plan: Plan) -> Line:
    with tempfile.TemporaryDirectory(dir=plan.directory) as below:
        folder = Path(below, "files")
        for number in range(plan.many_files):
            path = folder / f"{number // 1_000:04}" / f"{number:07}.md"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"Note {number} about water and wheel {number % 97}.\n")
        spent = ours(engine, folder, plan.directory, 2, embedder="hashing")
    what = f"memory of a process, {plan.many_files:,} small files"
    return most(engine, what, "MB", [spent.megabytes], [0.0], budget=MEMORY_MB)


def small_files(below: Path, number: int) -> Path:
    """The labelled collection's own where it is there, else some like them."""
    folder = below / "html"
    folder.mkdir()
    archive = CORPUS / "cacm" / "cacm.tar.gz"
    if archive.exists():
        with tarfile.open(archive) as tar:
            for member in [one for one in tar if one.isfile()][:number]:
                data = tar.extractfile(member)
                assert data is not None
                (folder / Path(member.name).name).write_bytes(data.read())
        return folder
    for at, (text,) in enumerate(texts(number, 1)):
        (folder / f"{at}.html").write_text(f"<html><pre>\nTitle {at}\n\n{text}\n</pre></html>\n")
    return folder


def long_document(below: Path, pages: int) -> Path:
    from tests.pipeline.sample_documents import pdf

    folder = below / "paper"
    folder.mkdir()
    shown = []
    for number, chunks in enumerate(texts(pages, 3)):
        words = f"Page {number}. {' '.join(chunks)}".split()
        shown.append("\n".join(" ".join(words[at : at + 10]) for at in range(0, len(words), 10)))
    (folder / "paper.pdf").write_bytes(pdf(*shown))
    return folder


def _told(spent: object) -> str:
    assert isinstance(spent, dict)
    return ", ".join(f"{name} {seconds:.2f} s" for name, seconds in spent.items())
