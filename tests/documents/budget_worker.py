"""A worker whose text parser does what a file's first word says: ``python -m tests.documents.budget_worker``.

Arguments: the settings as JSON, the folder to index, and a file that gets a line for every parsed file. The
worker's processes are forked, so that they have this parser, too.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from penstock import Penstock
from penstock.assembly import Assembly
from penstock.pipeline.extract import factory, sandbox
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits, Extractor, FileType
from penstock.worker.supervisor import LOOK_S
from tests.documents.worker_commands import loaded
from tests.worker.worker_processes import ROOT

_real = factory.extractor


def spin() -> None:
    """Python code that does not end, and that catches what it can."""
    while True:
        try:
            sum(range(10_000))
        except Exception:  # noqa: S112 - parsers do that
            continue


def native() -> None:
    """Native code that no signal handler can interrupt."""
    hashlib.pbkdf2_hmac("sha512", b"a", b"b", 1_000_000_000)


def hungry() -> None:
    """More memory than any budget has, little by little."""
    kept = []
    while True:
        kept.append("x" * (4 << 20))


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(60)


DOES = {b"spin": spin, b"native": native, b"hungry": hungry, b"crash": crash}


class Parser:
    """The real one, unless the file says otherwise."""

    def __init__(self, name: str, journal: Path) -> None:
        self._real = _real(name)
        self._journal = journal
        self.name, self.version = self._real.name, self._real.version

    def extract(
        self, content: Content, kind: FileType, limits: ExtractLimits, pages: range | None = None
    ) -> ExtractedText:
        with self._journal.open("a") as journal:
            journal.write(f"{Path(content.name).name}\n")
        does = DOES.get(content.data.split(b" ")[0])
        if does is not None:
            does()
        return self._real.extract(content, kind, limits, pages)


def use_parser(journal: Path) -> None:
    def extractor(name: str) -> Extractor:
        return Parser(name, journal)

    factory.extractor = sandbox.extractor = extractor  # type: ignore[attr-defined]


def serve(journal: str) -> None:
    """The sandbox, with the same parser."""
    use_parser(Path(journal))
    sandbox.serve()


def watch_pages(journal: Path) -> None:
    """Note every call for later pages of a PDF, and let it outlast two looks of the supervisor."""
    real = sandbox.Sandbox.extract

    def extract(
        box: sandbox.Sandbox, content: Content, *, pages: range | None = None, **more: Any
    ) -> ExtractedText:
        if pages is not None and pages.start > 1:
            with journal.open("a") as lines:
                lines.write(f"{Path(content.name).name} {pages.start}-{pages.stop - 1}\n")
            time.sleep(2 * LOOK_S + 0.5)
        return real(box, content, pages=pages, **more)

    sandbox.Sandbox.extract = extract  # type: ignore[method-assign, assignment]


def main() -> None:
    settings, folder, journal = loaded(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    use_parser(journal)
    sandbox._COMMAND = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); "
        f"from tests.documents.budget_worker import serve; serve({str(journal)!r})"
    )
    watch_pages(journal)
    with Penstock(settings=settings) as app:
        job_id = app.index(folder).job_id
    worker: dict[str, Any] = {"processes": 2, "until_job": job_id, "start_method": "fork"}
    Assembly(settings).worker(**worker).run()


if __name__ == "__main__":
    main()
