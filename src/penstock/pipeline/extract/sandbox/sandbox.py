"""Sandbox: extraction in a child process. A parser crash does not end the worker.

Parsers of native code and of extensions run in a child process, confined by the kernel, with limits on memory
and CPU time. The child serves one file after another, and each page as an answer of its own. If it dies, the
file or page being read fails, and a new child goes on after it. Small text, Markdown and HTML files are read
in the worker process, with the limits of ``budget``.
"""

from __future__ import annotations

import hashlib
import math
import threading
from contextlib import suppress
from types import TracebackType

from msgspec.structs import replace

from penstock import errors
from penstock.catalog.values import Failure, NewPage
from penstock.errors import DocumentDamaged, ParserFailed, TransientFailure, UnreadableDocument
from penstock.pipeline import budget
from penstock.pipeline.chunk.text import ChunkSizes
from penstock.pipeline.draft import OCR_NEEDED, Draft, build_draft, refuse_textless
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.factory import check_size, extract, is_sandboxed
from penstock.pipeline.extract.protocol import (
    Content,
    ExtractedText,
    ExtractLimits,
    Page,
    PageImage,
    PlacedWord,
)
from penstock.pipeline.extract.sandbox.messages import (
    Drawn,
    Opened,
    PageRead,
    ParseRequest,
    Refusal,
    Whole,
    WordsPlaced,
)
from penstock.pipeline.extract.sandbox.process import (
    ChildDied,
    SandboxChild,
    TooLarge,
    TooSlow,
    Zygote,
    ZygoteDied,
)
from penstock.pipeline.extract.text import failure_warnings, refuse_unreadable, with_pages
from penstock.pipeline.ocr.protocol import OcrOptions
from penstock.vocabulary import how_many

FILES_PER_CHILD = 500
"""Files after which the child is replaced, to bound memory that parsers leak."""
MAX_DEATHS = 3
"""Pages of a document that may end their child before the rest is given up."""
OCR_SECONDS = 60.0
"""CPU time to recognize a page, besides that to read it."""
_MAX_REMEMBERED = 100


class Sandbox:
    """Runs parsers in a child process, started when first needed. Threads take turns."""

    def __init__(self, limits: ExtractLimits | None = None, *, niceness: int = 0) -> None:
        """``niceness``: added to that of this process, for the processes of the parsers."""
        self._limits = limits or ExtractLimits()
        self._niceness = niceness
        self._lock = threading.Lock()
        self._zygote: Zygote | None = None
        self._child: SandboxChild | None = None
        self._deadly: dict[bytes, _DeadlyDocument] = {}
        """Documents with pages that ended their child, by the hash of their bytes."""

    def extract(
        self,
        content: Content,
        *,
        pages: range | None = None,
        memory_bytes: int | None = None,
        ocr: OcrOptions | None = None,
    ) -> ExtractedText:
        """Extract a file; raises ParserFailed if the parser crashed or exceeded a limit.

        With ``memory_bytes``, a page that exceeds them fails the call, which can be repeated with more.
        ``ocr``: pages without a usable text layer are recognized.
        """
        request = self._request(content, pages, memory_bytes)
        if not is_sandboxed(request.file_type.extractor):
            return extract(content, self._limits, pages=pages)
        call = _Call(request, content.data, last_attempt=memory_bytes is None)
        if ocr is not None:
            call.use_ocr(ocr)
        self._run(call)
        return call.extracted()

    def image(self, content: Content, page: int, dpi: int, *, memory_bytes: int) -> PageImage:
        """Draw a page of a document. Raises ParserFailed as ``extract`` does."""
        request = self._request(content, range(page, page + 1), memory_bytes)
        request.image_dpi = dpi
        call = _Call(request, content.data, last_attempt=False)
        self._run(call)
        return call.image()

    def words(self, content: Content, page: int) -> tuple[PlacedWord, ...]:
        """Words of a page with their places on its picture. Raises ParserFailed as ``extract`` does."""
        request = self._request(content, range(page, page + 1), self._limits.parser_memory_bytes)
        request.places = True
        call = _Call(request, content.data, last_attempt=False)
        self._run(call)
        return call.words

    def draft(
        self,
        content: Content,
        sizes: ChunkSizes,
        *,
        pages: range | None = None,
        memory_bytes: int | None = None,
        alone: bool = False,
        last_attempt: bool = False,
    ) -> Draft:
        """Extract and chunk a file of any type in the child. ``alone``: the child ends with this file.

        With ``memory_bytes``, a page that exceeds them fails the call, which can be repeated with more; in
        the last attempt it fails alone.
        """
        request = self._request(content, pages, memory_bytes)
        request.sizes = sizes
        call = _Call(request, content.data, last_attempt=last_attempt or memory_bytes is None)
        self._run(call, alone=alone)
        return call.draft()

    def _request(self, content: Content, pages: range | None, memory_bytes: int | None) -> ParseRequest:
        limits = self._limits
        check_size(content, limits)
        return ParseRequest(
            name=content.name,
            file_type=file_types.detect(content.name, content.data),
            limits=limits,
            pages=(pages.start, pages.stop) if pages is not None else None,
            batch_seconds=limits.batch_seconds if pages is not None else None,
            seconds=limits.seconds_for(len(content.data)),
            page_seconds=limits.parser_seconds,
            memory_bytes=limits.parser_memory_bytes if memory_bytes is None else memory_bytes,
        )

    def _run(self, call: _Call, *, alone: bool = False) -> None:
        with self._lock:
            try:
                self._answer(call)
            except UnreadableDocument:
                raise
            except BaseException:
                # Interrupted during an exchange: a late answer would be taken for that of the next file.
                self.close()
                raise
            finally:
                if alone:
                    # Memory that this file left in the child is needed for the next large file.
                    self._end_child()

    def _answer(self, call: _Call) -> None:
        deadly = self._deadly.get(_digest(call.data)) if self._deadly else None
        if deadly is not None and deadly.deaths >= MAX_DEATHS:
            call.give_up(deadly)
            return
        while True:
            child = self._ready_child(call)
            used = child.answers
            try:
                for answer in child.exchange(call.request, call.data):
                    call.take(answer)
                return
            except ChildDied as death:
                # One that served other files may have been full of leaked memory: try a new one once.
                fresh = not used and not child.answers
                if isinstance(death, TooLarge) and not call.last_attempt:
                    # Pages of this file have filled it, and would fill the next one. There is more memory.
                    fresh = not used
                self._end_child()
                if death.retry and not fresh:
                    call.resume()
                elif not self._record(call, death):
                    return

    def _record(self, call: _Call, death: ChildDied) -> bool:
        """Fail the page or the file at which the child died. True if the call goes on with the next page."""
        failure = _failure(death, call)
        repeated = isinstance(death, TooLarge) and not call.last_attempt
        if call.head is None or not call.opened or repeated or call.is_drawn:
            raise failure
        call.fail_page(failure)
        while len(self._deadly) >= _MAX_REMEMBERED:
            self._deadly.pop(next(iter(self._deadly)))
        deadly = self._deadly.setdefault(_digest(call.data), _DeadlyDocument(call.head, failure))
        deadly.deaths += 1
        if deadly.deaths >= MAX_DEATHS:
            call.give_up(deadly)
        elif call.whole:
            call.resume()
            return True
        return False

    def _ready_child(self, call: _Call) -> SandboxChild:
        child = self._child
        if child is not None and (
            child.files >= FILES_PER_CHILD
            or call.request.memory_bytes > child.memory_bytes
            or (call.ocr_paths and call.ocr_paths != child.ocr_paths)
        ):
            self._end_child()
        if self._child is None:
            self._child = self._fork(call)
        return self._child

    def _fork(self, call: _Call) -> SandboxChild:
        order = (call.request.file_type.extractor, call.ocr_paths, call.request.memory_bytes)
        if self._zygote is not None:
            with suppress(ZygoteDied):
                return self._zygote.fork(*order)
            self.close()
        self._zygote = Zygote(self._niceness)
        try:
            return self._zygote.fork(*order)
        except ZygoteDied as death:
            raise TransientFailure(str(death)) from None

    def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.close()

    def close(self) -> None:
        """End the processes, in the middle of a file as well."""
        self._end_child()
        zygote, self._zygote = self._zygote, None
        if zygote is not None:
            zygote.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _DeadlyDocument:
    """A document with pages at which a child died."""

    def __init__(self, head: ExtractedText, failure: ParserFailed) -> None:
        self.head = replace(head, attachments=())
        self.deaths = 0
        self._failure = failure

    @property
    def reason(self) -> Failure:
        pages = how_many(self.deaths, "page")
        return Failure(
            self._failure.code, f"not read, since {pages} of this document failed: {self._failure.message}"
        )


class _Call:
    """One call of the sandbox: the request to the child, and the answers so far."""

    def __init__(self, request: ParseRequest, data: bytes, *, last_attempt: bool) -> None:
        self.request = request
        self.data = data
        self.whole = request.pages is None
        self.last_attempt = last_attempt
        self.ocr_paths: tuple[str, ...] = ()
        self.head: ExtractedText | None = None
        self.opened = False
        """The child that is asked now has opened the document."""
        self._result: Whole | None = None
        self._pages: list[PageRead] = []
        self._drawn: Drawn | None = None
        self.words: tuple[PlacedWord, ...] = ()

    @property
    def is_drawn(self) -> bool:
        """True for a call about the look of one page, which fails as a whole."""
        return bool(self.request.image_dpi) or self.request.places

    def use_ocr(self, options: OcrOptions) -> None:
        from penstock.pipeline.ocr.engines import readable_paths

        self.ocr_paths = readable_paths(options)
        self.request.ocr = options
        self.request.page_seconds += OCR_SECONDS

    def take(self, answer: Whole | Opened | PageRead | Drawn | WordsPlaced | Refusal) -> None:
        if isinstance(answer, Refusal):
            raise _refusal(answer)
        if isinstance(answer, Whole):
            self._result = answer
        elif isinstance(answer, Drawn):
            self._drawn = answer
        elif isinstance(answer, WordsPlaced):
            self.words = answer.words
        elif isinstance(answer, Opened):
            self.head, self.opened = self.head or answer.head, True
        else:
            self._pages.append(answer)

    def resume(self) -> None:
        """Ask the next child for the pages after those read."""
        self.opened = False
        if self.head is not None:
            stop = self.request.pages[1] if self.request.pages else self.head.page_count + 1
            self.request = replace(self.request, pages=(self._next(), stop))

    def fail_page(self, failure: ParserFailed) -> None:
        self._fail(self._next(), Failure(failure.code, failure.message))

    def give_up(self, deadly: _DeadlyDocument) -> None:
        """Fail the pages not read."""
        self.head = self.head or deadly.head
        stop = self.request.pages[1] if self.request.pages else self.head.page_count + 1
        for number in range(self._next(), min(stop, self.head.page_count + 1)):
            self._fail(number, deadly.reason)

    def _next(self) -> int:
        if self._pages:
            return self._pages[-1].number + 1
        return max(self.request.pages[0], 1) if self.request.pages else 1

    def _fail(self, number: int, failure: Failure) -> None:
        if self.request.sizes is None:
            page = Page(number, "", failure=failure.message, failure_code=failure.code)
            self._pages.append(PageRead(number, page))
        else:
            self._pages.append(PageRead(number, None, NewPage(number=number, failure=failure)))

    def extracted(self) -> ExtractedText:
        if self._result is not None and self._result.extracted is not None:
            return self._result.extracted
        assert self.head is not None
        return with_pages(self.head, [read.page for read in self._pages if read.page is not None])

    def image(self) -> PageImage:
        import numpy as np

        if self._drawn is None:
            raise DocumentDamaged("the document has no such page")
        if len(self._drawn.shape) not in (2, 3) or math.prod(self._drawn.shape) != len(self._drawn.pixels):
            raise ParserFailed("the parser drew a page of another size than it says")
        pixels = np.frombuffer(self._drawn.pixels, np.uint8).reshape(self._drawn.shape)
        return PageImage(pixels, self.request.image_dpi)

    def draft(self) -> Draft:
        if self._result is not None and self._result.draft is not None:
            return self._result.draft
        assert self.head is not None
        assert self.request.sizes is not None
        pages = tuple(read.new_page for read in self._pages if read.new_page is not None)
        failed = [
            (page.number, page.failure.code, page.failure.message)
            for page in pages
            if page.failure is not None and page.failure != OCR_NEEDED
        ]
        refuse_unreadable(self.head.page_count, failed)
        if self.whole:
            refuse_textless(pages)
        # Warnings about chunks repeat on each page.
        warnings = dict.fromkeys(warning for read in self._pages for warning in read.warnings)
        unread = failure_warnings([number for number, *_ in failed])
        empty = build_draft(self.head, self.request.sizes, complete=False)
        return replace(empty, pages=pages, warnings=(*self.head.warnings, *unread, *warnings))


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _failure(death: ChildDied, call: _Call) -> ParserFailed:
    request = call.request
    if isinstance(death, TooSlow):
        return budget.time_exceeded(request.page_seconds if call.opened else request.seconds)
    if isinstance(death, TooLarge):
        return budget.memory_exceeded(request.memory_bytes)
    return ParserFailed(f"the parser of {request.file_type.extractor} files {death}")


def _refusal(answer: Refusal) -> UnreadableDocument:
    known = getattr(errors, answer.error, None)
    if isinstance(known, type) and issubclass(known, UnreadableDocument):
        return known(answer.message, remedy=answer.remedy)
    return ParserFailed(f"the parser failed: {answer.error}: {answer.message}")
