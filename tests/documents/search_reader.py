"""A reader process: searches without pause and checks every answer.

``python -m tests.documents.search_reader SETTINGS EXPECTED``. Every chunk names its document, part, version
and number of parts. The process prints the first error and ends. Otherwise it runs until its input is closed,
and prints the number of searches.
"""

from __future__ import annotations

import re
import select
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

import msgspec

from penstock import Penstock, config
from penstock.service.hits import Hit
from tests.documents.worker_commands import loaded
from tests.worker.worker_processes import ROOT

READY = "ready\n"
EVERYWHERE = "waterwheel"
MAY_GO = "fleeting"
"""A document with this word may be missing, but never in part."""
MODES: tuple[Literal["keyword", "vector", "hybrid"], ...] = ("keyword", "vector", "hybrid")
_MARK = re.compile(r"doc(\d+) part(\d+) of(\d+) version(\d+)")


class Seen(NamedTuple):
    """A found chunk: the marks in the text, and the path."""

    part: int
    parts: int
    version: int
    path: str


def marked(document: int, parts: int, version: int, *, may_go: bool = False) -> str:
    """Markdown with one chunk per part."""
    filling = f"The {EVERYWHERE} turns. " * 60
    extra = MAY_GO if may_go else ""
    return "\n\n".join(
        f"# Part {part}\n\ndoc{document} part{part} of{parts} version{version} {extra} {filling}"
        for part in range(parts)
    )


def complaint(hits: Sequence[Hit], expected: Sequence[int]) -> str | None:
    """Error in an answer: a document that is missing, doubled, or mixed from two versions or paths."""
    seen: dict[int, list[Seen]] = {}
    for hit in hits:
        found = _MARK.search(hit.text)
        if found is None:
            return f"a chunk without marks: {hit.text[:80]!r}"
        document, part, parts, version = map(int, found.groups())
        seen.setdefault(document, []).append(Seen(part, parts, version, hit.path))
    missing = sorted(set(expected) - set(seen))
    if missing:
        return f"missing: {missing}"
    for document, chunks in seen.items():
        if len({chunk[1:] for chunk in chunks}) > 1:
            return f"document {document} is mixed: {sorted(chunks)}"
        if Counter(chunk.part for chunk in chunks) != Counter(range(chunks[0].parts)):
            return f"document {document} has other parts: {sorted(chunks)}"
    return None


class Reader:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def stopped(self) -> int:
        """Stop the reader; returns the number of checked answers. Fails if one was wrong."""
        out, _ = self._process.communicate(timeout=60)
        assert 0 == self._process.returncode, out
        return int(out)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None


@contextmanager
def reader(settings: config.Settings, expected: Sequence[int]) -> Iterator[Reader]:
    values = msgspec.json.encode(config.portable_values(settings), enc_hook=str).decode()
    command = [
        sys.executable,
        "-m",
        "tests.documents.search_reader",
        values,
        msgspec.json.encode(expected).decode(),
    ]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            assert READY == process.stdout.readline()
            yield Reader(process)
        finally:
            process.kill()


def main() -> None:
    settings, expected = loaded(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=list[int])
    asked = 0
    with Penstock(settings=settings) as app:
        while True:
            mode = MODES[asked % len(MODES)]
            collection = "default" if asked % 2 else None
            hits = app.search(EVERYWHERE, mode=mode, limit=1_000, per_source=None, collection=collection)
            wrong = complaint(hits, expected)
            if wrong is not None:
                print(f"{mode} search number {asked}: {wrong}")
                sys.exit(1)
            if not asked:
                print(READY, end="", flush=True)
            asked += 1
            if select.select([sys.stdin], [], [], 0)[0]:
                break
    print(asked)


if __name__ == "__main__":
    main()
