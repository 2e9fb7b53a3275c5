"""``python -m bench.pdf_text``: text of PDFs by way of the sandbox, next to a bare pypdfium2 loop.

All readers are started at once, read all files once, and wait. Then they take turns: each reads all pages of
the same files some times from memory, while the others wait. So what else the machine does, it does to all.
The rate on the clock is the result. Two bare loops show what two processes could gain on this machine at that
time. CPU time counts every process of a reader, and is steady on a busy machine.
``--write`` renews the table in docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from bench import page_section, processes
from bench.judged_sets import CORPUS
from bench.pipeline import long_document

FOLDERS = ("text", "columns", "table")
NAMES = {
    ("bare", 1): "bare pypdfium2 loop",
    ("bare", 2): "bare loop, 2 processes",
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


class Reader:
    """The processes of one contender, which share the passes of a round."""

    def __init__(self, kind: str, processes: int, folder: Path) -> None:
        context = multiprocessing.get_context("spawn")
        files = sorted(folder.rglob("*.pdf"))
        self._ends: list[Connection] = []
        self._started = []
        for _ in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_read, args=(kind, files, theirs), daemon=True)
            process.start()
            theirs.close()
            self._started.append(process)
            self._ends.append(ours)
        for end in self._ends:
            end.recv()

    def read(self, passes: int) -> Round:
        began = time.perf_counter()
        for number, end in enumerate(self._ends):
            end.send((passes + number) // len(self._ends))
        answers = [end.recv() for end in self._ends]
        if not sum(pages for pages, _ in answers):
            raise SystemExit("a reader has read no page")
        return Round(time.perf_counter() - began, sum(cpu for _, cpu in answers))

    def close(self) -> None:
        for end in self._ends:
            end.close()
        for process in self._started:
            process.join()


def measure(folder: Path, rounds: int, passes: int) -> dict[tuple[str, int], list[Round]]:
    spent: dict[tuple[str, int], list[Round]] = {contender: [] for contender in CONTENDERS}
    readers = {contender: Reader(*contender, folder) for contender in CONTENDERS}
    for number in range(rounds):
        for contender in CONTENDERS[:: 1 if number % 2 else -1]:
            spent[contender].append(readers[contender].read(passes))
    for reader in readers.values():
        reader.close()
    return spent


def _read(kind: str, files: Sequence[Path], end: Connection) -> None:
    contents = [(file.name, file.read_bytes()) for file in files]
    with (
        {"bare": _bare, "extractor": _extractor, "sandbox": _sandbox}[kind]() as pages_of,
        suppress(EOFError),
    ):
        for name, data in contents:
            pages_of(name, data)
        end.send("ready")
        while passes := end.recv():
            before = processes.cpu_seconds(os.getpid(), ended=True)
            pages = sum(pages_of(name, data) for _ in range(passes) for name, data in contents)
            end.send((pages, processes.cpu_seconds(os.getpid(), ended=True) - before))


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
    parser.add_argument("--rounds", type=int, default=15, help="rounds (15)")
    parser.add_argument("--passes", type=int, default=2, help="times each file is read in a round (2)")
    parser.add_argument("--folder", type=Path, help="folder of PDFs (the corpus, or a generated document)")
    parser.add_argument("--write", action="store_true", help="renew the table in docs/benchmarks.md")
    options = parser.parse_args(arguments)
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
