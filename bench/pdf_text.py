"""``python -m bench.pdf_text``: text of PDFs by way of the sandbox, next to a bare pypdfium2 loop.

Both read the same files from memory, all pages, in rounds that take turns. Imports and a first pass are not
counted. The rate on the clock is the result; CPU time counts every process, and is steady on a busy machine.
``--write`` renews the table in docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench import page_section
from bench.judged_sets import CORPUS
from bench.pipeline import counted_run, long_document

FOLDERS = ("text", "columns", "table")
NAMES = {
    ("bare", 1): "bare pypdfium2 loop",
    ("extractor", 1): "extractor, in the same process",
    ("sandbox", 1): "sandbox, 1 process",
    ("sandbox", 2): "sandbox, 2 processes",
}
CONTENDERS = tuple(NAMES)
GOALS = {("sandbox", 1): 0.8, ("sandbox", 2): 1.6}
"""Lowest rate on the clock, as a multiple of the bare loop's."""


class Round(NamedTuple):
    """Seconds of one contender in one round."""

    clock: float
    cpu: float


def measure(folder: Path, rounds: int, passes: int) -> dict[tuple[str, int], list[Round]]:
    spent: dict[tuple[str, int], list[Round]] = {contender: [] for contender in CONTENDERS}
    for _ in range(rounds):
        for kind, processes in CONTENDERS:
            command = [sys.executable, "-m", "bench.pdf_text", "--loop", kind, "--folder", str(folder)]
            command += ["--processes", str(processes), "--passes"]
            idle, busy = counted_run([*command, "0"], {}), counted_run([*command, str(passes)], {})
            if not busy.output["pages"]:
                raise SystemExit(f"{kind} read no page")
            clock = float(str(busy.output["seconds"]))
            spent[kind, processes].append(Round(clock, busy.cpu - idle.cpu))
    return spent


def loop(kind: str, folder: Path, processes: int, passes: int) -> dict[str, float]:
    """Read the files in processes at once, which share the passes. Seconds count after the first pass."""
    context = multiprocessing.get_context("spawn")
    files = sorted(folder.rglob("*.pdf"))
    ends: list[Connection] = []
    started = []
    for number in range(processes):
        ours, theirs = context.Pipe()
        share = (passes + number) // processes
        process = context.Process(target=_read, args=(kind, files, share, theirs))
        process.start()
        started.append(process)
        ends.append(ours)
    for end in ends:
        end.recv()
    began = time.perf_counter()
    for end in ends:
        end.send("go")
    pages = sum(end.recv() for end in ends)
    seconds = time.perf_counter() - began
    for process in started:
        process.join()
    return {"seconds": seconds, "pages": pages}


def _read(kind: str, files: Sequence[Path], passes: int, end: Connection) -> None:
    contents = [(file.name, file.read_bytes()) for file in files]
    with {"bare": _bare, "extractor": _extractor, "sandbox": _sandbox}[kind]() as pages_of:
        for name, data in contents:
            pages_of(name, data)
        end.send("ready")
        end.recv()
        end.send(sum(pages_of(name, data) for _ in range(passes) for name, data in contents))


@contextmanager
def _bare() -> Iterator[Callable[[str, bytes], int]]:
    import pypdfium2

    def pages_of(name: str, data: bytes) -> int:  # noqa: ARG001
        document = pypdfium2.PdfDocument(data)
        texts = []
        for number in range(len(document)):
            page = document[number]
            layer = page.get_textpage()
            texts.append(layer.get_text_range())
            layer.close()
            page.close()
        document.close()
        return len(texts)

    yield pages_of


@contextmanager
def _extractor() -> Iterator[Callable[[str, bytes], int]]:
    from penstock.pipeline.extract.factory import extract
    from penstock.pipeline.extract.protocol import Content

    yield lambda name, data: len(extract(Content(name, data)).pages)


@contextmanager
def _sandbox() -> Iterator[Callable[[str, bytes], int]]:
    from penstock.pipeline.extract.protocol import Content
    from penstock.pipeline.extract.sandbox.sandbox import Sandbox

    with Sandbox() as sandbox:
        yield lambda name, data: len(sandbox.extract(Content(name, data)).pages)


def ratios(spent: dict[tuple[str, int], list[Round]], contender: tuple[str, int], of: str) -> list[float]:
    """Rates as multiples of the bare loop's in the same round, in order."""
    pairs = zip(spent["bare", 1], spent[contender], strict=True)
    return sorted(getattr(bare, of) / getattr(ours, of) for bare, ours in pairs)


def rendered(spent: dict[tuple[str, int], list[Round]]) -> str:
    rows = []
    for contender in CONTENDERS:
        clock, cpu = ratios(spent, contender, "clock"), ratios(spent, contender, "cpu")
        rows.append(
            [
                NAMES[contender],
                f"{statistics.median(each.clock for each in spent[contender]):.2f}",
                f"{statistics.median(clock):.2f}",
                f"{clock[0]:.2f} to {clock[-1]:.2f}",
                f"{statistics.median(cpu):.2f}",
                f"{GOALS[contender]:g}" if contender in GOALS else "",
            ]
        )
    header = ["reader", "seconds, median", "rate, x bare", "rates", "by CPU time", "goal, at least"]
    return page_section.table(header, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pdf_text", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="rounds (7)")
    parser.add_argument("--passes", type=int, default=6, help="times each file is read in a round (6)")
    parser.add_argument("--folder", type=Path, help="folder of PDFs (the corpus, or a generated document)")
    parser.add_argument("--write", action="store_true", help="renew the table in docs/benchmarks.md")
    parser.add_argument("--loop", choices=("bare", "extractor", "sandbox"), help=argparse.SUPPRESS)
    parser.add_argument("--processes", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.loop:
        print(
            msgspec.json.encode(
                loop(options.loop, options.folder, options.processes, options.passes)
            ).decode()
        )
        return 0
    with tempfile.TemporaryDirectory() as below:
        folder = options.folder or _files(Path(below))
        spent = measure(folder, options.rounds, options.passes)
    table = rendered(spent)
    print(table)
    if options.write:
        day = datetime.now(UTC).date()
        page_section.renew("pdf text", f"{day}, {options.rounds} rounds:\n\n{table}")
    return int(any(statistics.median(ratios(spent, one, "clock")) < goal for one, goal in GOALS.items()))


def _files(below: Path) -> Path:
    """The PDFs of the test corpus with a text layer; without it, two documents that are generated."""
    folder = below / "pdf"
    found = [file for name in FOLDERS for file in (CORPUS.parent / "pdf" / name).glob("*.pdf")]
    if not found:
        below.joinpath("other").mkdir()
        found = [long_document(below, 300) / "paper.pdf"]
        found.append(long_document(below / "other", 200) / "paper.pdf")
    folder.mkdir()
    for number, file in enumerate(found):
        (folder / f"{number}.pdf").write_bytes(file.read_bytes())
    return folder


if __name__ == "__main__":
    raise SystemExit(main())
