"""The processes of the sandbox: a zygote for forking, and a child for parsing files.

The zygote has one thread, holds no data and loads the parsers. A child confines itself, then serves files
until the sandbox ends it.
"""

from __future__ import annotations

import gc
import importlib
import math
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import IO

import msgspec

from penstock.errors import DocumentTooLarge, UnreadableDocument
from penstock.pipeline import budget
from penstock.pipeline.draft import build_draft
from penstock.pipeline.extract.factory import LIBRARIES, extractor
from penstock.pipeline.extract.paged import check_length, document_head, is_paged, read_page, wanted_pages
from penstock.pipeline.extract.protocol import Content, ExtractedText, Page, PagedDocument, PagedExtractor
from penstock.pipeline.extract.sandbox import confinement
from penstock.pipeline.extract.sandbox.messages import (
    OUT_OF_MEMORY,
    Answer,
    Collect,
    Drawn,
    Fork,
    Opened,
    PageRead,
    PagesEnded,
    ParseRequest,
    Refusal,
    Whole,
    WordsPlaced,
    decode_order,
    decode_request,
    encode,
    receive,
    send,
)
from penstock.pipeline.ocr.protocol import OcrOptions

OWN_BYTES = 32 << 20
"""Least memory of a child before it reads a file."""

MAX_OPEN_FILES = 256
"""Files that a child may have open."""

OCR_LIBRARIES = ("tesserocr", "numpy", "PIL.Image")
_SYSTEM_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")


def serve() -> None:
    """Main loop of the zygote: orders from the socket at stdin, until the sandbox is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    budget.keep_freed_memory()
    with socket.socket(fileno=os.dup(0)) as control:
        os.dup2(2, 0)
        child = 0
        while True:
            message, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 1)
            if not message:
                return
            order = decode_order(message)
            if isinstance(order, Collect):
                control.sendall(encode(_collect(child)))
                continue
            load(order.extractor)
            if order.ocr_paths:
                _load_all(OCR_LIBRARIES)
            child = _fork(control, descriptors[0], order)
            os.close(descriptors[0])
            control.sendall(encode(child))


def load(name: str) -> None:
    """Load an extractor with all libraries. An error is raised again, and answered, at the first use."""
    with suppress(Exception):
        extractor(name)
        _load_all(LIBRARIES.get(name, ()))


def _load_all(modules: Iterable[str]) -> None:
    for module in modules:
        with suppress(Exception):
            importlib.import_module(module)


def _collect(child: int) -> int:
    """Kill the child; return the exit status, or minus the signal. A dead child keeps the status."""
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _fork(control: socket.socket, channel: int, order: Fork) -> int:
    zygote = os.getpid()
    gc.freeze()
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        control.close()
        confinement.end_with_parent(zygote)
        source, sink = os.fdopen(channel, "rb", 1 << 16), os.fdopen(os.dup(channel), "wb", 1 << 16)
        memory = budget.OwnMemory()
        _lower_limits(own_bytes(memory) + order.memory_bytes if order.memory_bytes else None)
        confinement.confine([*_readable(), *order.ocr_paths])
        _Child(source, sink, memory).run()
        status = 0
    finally:
        # Nothing of the zygote may run here, such as its loop or its handlers for the exit.
        os._exit(status)


def _readable() -> list[str]:
    """Places of modules, codecs, shared libraries and models, which are loaded when first used."""
    packages = [entry for entry in sys.path if entry.rpartition("/")[2] in ("site-packages", "dist-packages")]
    loaded = [
        path
        for name, module in list(sys.modules.items())
        if "." not in name
        for path in getattr(module, "__path__", ())
    ]
    return [sys.prefix, sys.base_prefix, *_SYSTEM_LIBRARIES, *packages, *loaded]


def own_bytes(memory: budget.OwnMemory) -> int:
    """Memory of a child without a file."""
    return max(OWN_BYTES, memory.data_bytes())


def _lower_limits(memory_bytes: int | None) -> None:
    """Set irrevocable limits on memory, open files and file size."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    _limit(resource.RLIMIT_NOFILE, MAX_OPEN_FILES)
    if memory_bytes is not None:
        _limit(resource.RLIMIT_DATA, memory_bytes)


def _limit(kind: int, most: int) -> None:
    _, hard_limit = resource.getrlimit(kind)
    most = most if hard_limit < 0 else min(most, hard_limit)
    resource.setrlimit(kind, (most, most))


class _Child:
    """Serves requests, one after the other."""

    def __init__(self, source: IO[bytes], sink: IO[bytes], memory: budget.OwnMemory) -> None:
        self._source = source
        self._sink = sink
        self._memory = memory
        self._own_bytes = own_bytes(memory)
        self._resident = 0
        """Memory in use when the request came."""
        self._document: PagedDocument | None = None

    def run(self) -> None:
        while (message := receive(self._source)) is not None:
            request = decode_request(message)
            data = b"" if request.resumed else receive(self._source)
            if data is None:
                return
            load(request.file_type.extractor)
            # An empty message says that parsing begins.
            send(self._sink, b"")
            try:
                self._serve(request, data)
            except BrokenPipeError:
                return
            except BaseException as error:  # noqa: BLE001 - any error of a parser concerns this file only
                self._close()
                self._send(self._refusal(request, error))

    def _send(self, answer: Answer) -> None:
        send(self._sink, encode(answer))

    def _serve(self, request: ParseRequest, data: bytes) -> None:
        parser = extractor(request.file_type.extractor)
        self._memory.reset_peak()
        self._resident = self._memory.resident_bytes()
        _limit_memory(self._own_bytes + request.memory_bytes)
        _limit_time(request.seconds)
        if not request.resumed:
            self._close()
        if is_paged(parser):
            self._serve_pages(request, parser, data)
            return
        pages = range(*request.pages) if request.pages is not None else None
        extracted = parser.extract(Content(request.name, data), request.file_type, request.limits, pages)
        if request.sizes is None:
            self._send(Whole(extracted))
        else:
            self._send(Whole(draft=build_draft(extracted, request.sizes, complete=pages is None)))

    def _serve_pages(self, request: ParseRequest, parser: PagedExtractor, data: bytes) -> None:
        if self._document is None:
            self._document = parser.open(Content(request.name, data), request.limits)
        document, limits = self._document, request.limits
        pages = range(*request.pages) if request.pages is not None else None
        wanted = wanted_pages(document.page_count, pages)
        first = 1 in wanted and request.ocr is None and not (request.image_dpi or request.places)
        head = document_head(parser, document, request.file_type, first=first)
        self._send(Opened(head))
        seconds = math.inf if request.batch_seconds is None else request.batch_seconds
        until = time.process_time() + seconds
        chars = number = 0
        for number in wanted:
            _limit_time(request.page_seconds)
            if request.places:
                self._send(WordsPlaced(document.words(number)))
                continue
            if request.image_dpi:
                pixels = document.image(number, request.image_dpi).pixels
                self._send(Drawn(pixels.shape, pixels.tobytes()))
                continue
            page = read_page(document, number)
            if request.ocr is not None and page.needs_ocr:
                page = _recognized(page, document, request.ocr, request.memory_bytes)
            chars = check_length(chars + len(page.text), limits)
            self._send(self._page_answer(request, head, page))
            if time.process_time() > until:
                break
        kept = request.batch_seconds is not None and number < document.page_count
        if not kept:
            self._close()
        self._send(PagesEnded(kept))

    def _page_answer(self, request: ParseRequest, head: ExtractedText, page: Page) -> PageRead:
        if page.failure is not None and self._was_full(request):
            raise MemoryError
        if request.sizes is None:
            return PageRead(page.number, page)
        draft = build_draft(msgspec.structs.replace(head, pages=(page,)), request.sizes, complete=False)
        return PageRead(page.number, None, draft.pages[0], draft.warnings[len(head.warnings) :])

    def _refusal(self, request: ParseRequest, error: BaseException) -> Refusal:
        full = not isinstance(error, DocumentTooLarge) and self._was_full(request)
        if isinstance(error, MemoryError) or full:
            return Refusal(OUT_OF_MEMORY)
        if isinstance(error, UnreadableDocument):
            return Refusal(type(error).__name__, error.message, error.remedy)
        return Refusal(type(error).__name__, str(error)[:500])

    def _was_full(self, request: ParseRequest) -> bool:
        """Check whether much of the memory was in use: libraries report a lack of memory in many ways."""
        return self._memory.peak_bytes() - self._resident > request.memory_bytes // 2

    def _close(self) -> None:
        document, self._document = self._document, None
        if document is not None:
            document.close()


def _recognized(page: Page, document: PagedDocument, options: OcrOptions, memory_bytes: int) -> Page:
    from penstock.pipeline.ocr.factory import open_engine
    from penstock.pipeline.ocr.pages import recognize_page

    return recognize_page(page, document, open_engine(options), options.dpi, memory_bytes)


def _limit_time(seconds: float) -> None:
    """Limit the CPU time of this process from now on."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + seconds) + 1, hard_limit))


def _limit_memory(memory_bytes: int) -> None:
    # Data, not address space: mapped libraries cost nothing.
    _, hard_limit = resource.getrlimit(resource.RLIMIT_DATA)
    soft_limit = memory_bytes if hard_limit < 0 else min(memory_bytes, hard_limit)
    resource.setrlimit(resource.RLIMIT_DATA, (soft_limit, hard_limit))
