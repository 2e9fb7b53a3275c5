"""A worker with a text parser controlled by the first word of each file: ``spin``, ``native`` and others.

``python -m tests.documents.budget_worker``. Arguments: the settings as JSON, the folder to index, and a
journal file with a line for every parsed file. The worker's processes are forked, to inherit this parser.
"""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from penstock import Penstock
from penstock.assembly import Assembly
from penstock.pipeline.chunk.text import ChunkSizes
from penstock.pipeline.draft import Draft
from penstock.pipeline.extract import factory
from penstock.pipeline.extract.pdf.document import PdfExtractor
from penstock.pipeline.extract.protocol import (
    Content,
    ExtractedText,
    ExtractLimits,
    Extractor,
    FileType,
    PagedDocument,
    Shape,
)
from penstock.pipeline.extract.sandbox import process as sandbox_process
from penstock.pipeline.extract.sandbox import sandbox, server
from penstock.worker.supervisor import CHECK_S
from tests.documents.worker_commands import loaded
from tests.pipeline import faulty_parser
from tests.worker.worker_processes import ROOT

_real = factory.extractor


def spin() -> None:
    """Endless Python code with a broad exception handler."""
    while True:
        try:
            sum(range(10_000))
        except Exception:  # noqa: S112 - parsers do that
            continue


def native() -> None:
    """Native code, not interruptible by a signal handler."""
    hashlib.pbkdf2_hmac("sha512", b"a", b"b", 1_000_000_000)


def hungry() -> None:
    """Allocate more memory than any budget, in small steps."""
    kept = []
    while True:
        kept.append("x" * (4 << 20))


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(60)


DOES = {b"spin": spin, b"native": native, b"hungry": hungry, b"crash": crash}


class Parser:
    """The real parser, unless the file begins with a command."""

    def __init__(self, name: str, journal: TextIO) -> None:
        self._real = _real(name)
        self._journal = journal
        self.name, self.version = self._real.name, self._real.version

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
    ) -> ExtractedText:
        self._journal.write(f"{Path(content.name).name}\n")
        does = DOES.get(content.data.split(b" ")[0])
        if does is not None:
            does()
        return self._real.extract(content, file_type, limits, pages)


class PdfParser(Parser):
    """The real parser of PDF, unless the pages of the file are commands; see ``faulty_parser``."""

    shape = Shape.PROSE

    def open(self, content: Content, limits: ExtractLimits) -> PagedDocument:
        self._journal.write(f"{Path(content.name).name}\n")
        if content.data.startswith(faulty_parser.document("")):
            return faulty_parser.FaultyPages(content.data)
        return PdfExtractor().open(content, limits)


def use_parser(journal: Path) -> None:
    # Opened once: a process of the sandbox can open no file.
    lines = journal.open("a", buffering=1)

    def extractor(name: str) -> Extractor:
        return PdfParser(name, lines) if name == "pdf" else Parser(name, lines)

    factory.extractor = server.extractor = extractor  # type: ignore[attr-defined]


def serve(journal: str) -> None:
    """The sandbox, with the same parser."""
    use_parser(Path(journal))
    limit = resource.setrlimit

    def but_the_journal(what: int, limits: tuple[int, int]) -> None:
        if what != resource.RLIMIT_FSIZE:
            limit(what, limits)

    resource.setrlimit = but_the_journal
    server.serve()


def watch_pages(journal: Path) -> None:
    """Record every call for later pages of a PDF, and delay it beyond two checks of the supervisor."""
    real = sandbox.Sandbox.draft

    def draft(
        instance: sandbox.Sandbox,
        content: Content,
        sizes: ChunkSizes,
        *,
        pages: range | None = None,
        **more: Any,
    ) -> Draft:
        if pages is not None and pages.start > 1:
            with journal.open("a") as lines:
                lines.write(f"{Path(content.name).name} {pages.start}-{pages.stop - 1}\n")
            time.sleep(2 * CHECK_S + 0.5)
        return real(instance, content, sizes, pages=pages, **more)

    sandbox.Sandbox.draft = draft  # type: ignore[method-assign, assignment]


def main() -> None:
    settings, folder, journal = loaded(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    use_parser(journal)
    sandbox_process.COMMAND = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); "
        f"from tests.documents.budget_worker import serve; serve({str(journal)!r})"
    )
    watch_pages(journal)
    sandbox.OCR_SECONDS = 2.0
    with Penstock(settings=settings) as app:
        job_id = app.index(folder).job_id
    worker: dict[str, Any] = {"processes": 2, "until_job": job_id, "start_method": "fork"}
    Assembly(settings).worker(**worker).run()


if __name__ == "__main__":
    main()
