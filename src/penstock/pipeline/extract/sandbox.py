"""Sandbox: extraction in a child process. A parser crash does not end the worker.

The parsers in ``SANDBOXED`` run in a child process with limits on memory and CPU time. The child serves one
file after another. If it dies, the file being read fails, and the next file gets a new child. Small text,
Markdown and HTML files are read in the worker process, with the limits of ``budget``.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import IO, BinaryIO, TypeVar

import msgspec

from penstock import errors
from penstock.errors import DocumentTooLarge, ParserFailed, UnreadableDocument
from penstock.interpreter import isolated_command, isolated_environment
from penstock.pipeline import budget
from penstock.pipeline.chunk.protocol import ChunkSizes
from penstock.pipeline.draft import Draft, build_draft
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.factory import SANDBOXED, check_size, extract, extractor
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits, FileType

FILES_PER_CHILD = 500
"""Files after which the child is replaced, to bound memory that parsers leak."""
SLOWEST = 10
"""Wall-clock limit of a parser, as a multiple of its CPU time limit."""
START_S = 120.0
"""Wall-clock limit for what no file is charged for: to start the child, load the parser, send the file."""

OWN_BYTES = 32 << 20
"""Memory of the child before it reads a file."""

_COMMAND = "from penstock.pipeline.extract.sandbox import serve; serve()"
_OUT_OF_MEMORY = "OutOfMemory"
_WITHOUT_MEMORY = frozenset([-signal.SIGABRT, -signal.SIGTRAP, 127])
"""Exit statuses of native code that runs out of memory; 127 comes from the dynamic linker."""

_Step = TypeVar("_Step")


class _Request(msgspec.Struct, array_like=True):
    """A request to the child. The file's bytes follow as a separate message, to avoid two copies."""

    name: str
    file_type: FileType
    limits: ExtractLimits
    pages: tuple[int, int] | None
    seconds: float
    memory_bytes: int
    sizes: ChunkSizes | None = None
    """Chunk sizes, if the file is to be cut into chunks as well."""


class _Answer(msgspec.Struct, array_like=True):
    extracted: ExtractedText | None = None
    draft: Draft | None = None
    error: str = ""
    """Name of a class in ``penstock.errors``, or of another exception."""
    message: str = ""
    remedy: str | None = None


class Sandbox:
    """Runs parsers in a child process, started when first needed. Threads take turns."""

    def __init__(self, limits: ExtractLimits | None = None) -> None:
        self._limits = limits or ExtractLimits()
        self._lock = threading.Lock()
        self._child: _SandboxProcess | None = None

    def extract(
        self, content: Content, *, pages: range | None = None, memory_bytes: int | None = None
    ) -> ExtractedText:
        """Extract a file; raises ParserFailed if the parser crashed or exceeded a limit."""
        limits = self._limits
        check_size(content, limits)
        file_type = file_types.detect(content.name, content.data)
        if file_type.extractor not in SANDBOXED:
            return extract(content, limits, pages=pages)
        memory = limits.parser_memory_bytes if memory_bytes is None else memory_bytes
        answer = self._answer(_request(content, file_type, limits, pages, memory), content.data)
        assert answer.extracted is not None
        return answer.extracted

    def draft(
        self, content: Content, sizes: ChunkSizes, *, pages: range | None = None, memory_bytes: int
    ) -> Draft:
        """Extract and chunk a large file of any type, in a child for this file only."""
        check_size(content, self._limits)
        file_type = file_types.detect(content.name, content.data)
        request = _request(content, file_type, self._limits, pages, memory_bytes, sizes)
        try:
            answer = self._answer(request, content.data)
        finally:
            # Memory that this file left in the child is needed for the next large file.
            self.close()
        assert answer.draft is not None
        return answer.draft

    def _answer(self, request: _Request, data: bytes) -> _Answer:
        with self._lock:
            try:
                return self._run_in_child(request, data)
            except UnreadableDocument:
                raise
            except BaseException:
                # Interrupted during an exchange: a late answer would be taken for that of the next file.
                self.close()
                raise

    def _run_in_child(self, request: _Request, data: bytes) -> _Answer:
        while True:
            child = self._child
            if child is None or child.served >= FILES_PER_CHILD:
                self.close()
                child = self._child = _SandboxProcess()
            try:
                return child.answer(request, data)
            except _Died as death:
                self.close()
                # A child that served other files may have been full of leaked memory: try a new one once.
                if not child.served or not death.retry:
                    raise death.failure(request) from None

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Died(Exception):
    def __init__(self, how: str, *, retry: bool = True) -> None:
        super().__init__(how)
        self.retry = retry

    def failure(self, request: _Request) -> ParserFailed:
        return ParserFailed(f"the parser of {request.file_type.extractor} files {self}")


class _TooSlow(_Died):
    def failure(self, request: _Request) -> ParserFailed:
        return budget.time_exceeded(request.seconds)


class _TooLarge(_Died):
    def failure(self, request: _Request) -> ParserFailed:
        return budget.memory_exceeded(request.memory_bytes)


class _SandboxProcess:
    def __init__(self) -> None:
        self.served = 0
        self._process = subprocess.Popen(
            isolated_command(_COMMAND),
            cwd="/",
            env=isolated_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def answer(self, request: _Request, data: bytes) -> _Answer:
        begun, late = self._within(START_S, lambda: self._begin(msgspec.msgpack.encode(request), data))
        if late:
            raise TimeoutError(f"the process for parsers did not start within {START_S:g} s")
        # CPU time is limited in the child. This limit is for a child that waits for ever.
        received, late = self._within(SLOWEST * request.seconds, self._receive) if begun else (None, False)
        if received is None:
            raise self._death(late)
        answer = msgspec.msgpack.decode(received, type=_Answer)
        if answer.error == _OUT_OF_MEMORY:
            raise _TooLarge("ran out of memory")
        self.served += 1
        if answer.error:
            raise _failure(answer)
        return answer

    def _begin(self, request: bytes, data: bytes) -> bool:
        """Send a file; True when the child is about to parse it."""
        for message in (request, data):
            _send(_pipe(self._process.stdin), message)
        return self._receive() is not None

    def _receive(self) -> bytes | None:
        return _receive(_pipe(self._process.stdout))

    def _within(self, seconds: float, step: Callable[[], _Step]) -> tuple[_Step | None, bool]:
        """Take a step of the exchange; None if the child died. True: it was killed after this time."""
        overdue = threading.Event()
        watch = threading.Timer(seconds, self._stop, [overdue])
        watch.daemon = True
        watch.start()
        try:
            return step(), overdue.is_set()
        except OSError:
            return None, overdue.is_set()
        finally:
            watch.cancel()

    def _stop(self, overdue: threading.Event) -> None:
        overdue.set()
        self._process.kill()

    def _death(self, overdue: bool) -> _Died:
        code = self._process.wait()
        if overdue or code == -signal.SIGXCPU:
            return _TooSlow("took too long", retry=False)
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        return _TooLarge(how) if code in _WITHOUT_MEMORY else _Died(how)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # the reader of buffered output is gone
                    continue


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise BrokenPipeError
    return pipe


def _request(
    content: Content,
    file_type: FileType,
    limits: ExtractLimits,
    pages: range | None,
    memory_bytes: int,
    sizes: ChunkSizes | None = None,
) -> _Request:
    span = (pages.start, pages.stop) if pages is not None else None
    seconds = limits.seconds_for(len(content.data))
    return _Request(content.name, file_type, limits, span, seconds, memory_bytes, sizes)


def _failure(answer: _Answer) -> UnreadableDocument:
    known = getattr(errors, answer.error, None)
    if isinstance(known, type) and issubclass(known, UnreadableDocument):
        return known(answer.message, remedy=answer.remedy)
    return ParserFailed(f"the parser failed: {answer.error}: {answer.message}")


def _send(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(len(message).to_bytes(8, "big"))
    pipe.write(message)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes | None:
    """Read one message; None at the end of the stream, even in the middle of a message."""
    head = pipe.read(8)
    length = int.from_bytes(head, "big")
    body = pipe.read(length) if len(head) == 8 else b""
    return body if len(head) == 8 and len(body) == length else None


def serve() -> None:
    """Main loop of the child: files from stdin, answers to stdout, until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source = os.fdopen(os.dup(0), "rb")
    # Output of parsers must not mix with the answers.
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    os.dup2(2, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while (request := _receive(source)) is not None:
        data = _receive(source)
        if data is None or not _serve_file(sink, msgspec.msgpack.decode(request, type=_Request), data):
            return


def _serve_file(sink: BinaryIO, request: _Request, data: bytes) -> bool:
    """Answer one request; an empty message before the answer says that parsing begins."""
    with suppress(Exception):  # raised again, and answered, when the parser is used
        extractor(request.file_type.extractor)
    try:
        _send(sink, b"")
        _send(sink, msgspec.msgpack.encode(_answer(request, data)))
    except BrokenPipeError:
        return False
    return True


def _answer(request: _Request, data: bytes) -> _Answer:
    try:
        return _parse(request, data)
    except MemoryError:
        return _Answer(error=_OUT_OF_MEMORY)
    except Exception as error:  # noqa: BLE001 - any error of a parser concerns this file only
        if not isinstance(error, DocumentTooLarge) and budget.peak_bytes() > request.memory_bytes // 2:
            # Libraries raise their own errors when memory runs out.
            return _Answer(error=_OUT_OF_MEMORY)
        if isinstance(error, UnreadableDocument):
            return _Answer(error=type(error).__name__, message=error.message, remedy=error.remedy)
        return _Answer(error=type(error).__name__, message=str(error)[:500])


def _parse(request: _Request, data: bytes) -> _Answer:
    parser = extractor(request.file_type.extractor)
    budget.reset_peak()
    _limit(request.seconds, request.memory_bytes)
    pages = range(*request.pages) if request.pages is not None else None
    extracted = parser.extract(Content(request.name, data), request.file_type, request.limits, pages)
    if request.sizes is None:
        return _Answer(extracted)
    return _Answer(draft=build_draft(extracted, request.sizes, complete=pages is None))


def _limit(seconds: float, memory_bytes: int) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    until = int(used.ru_utime + used.ru_stime + seconds) + 1
    _, hard_limit = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (until, hard_limit))
    # Data, not address space: mapped libraries cost nothing.
    _, hard_limit = resource.getrlimit(resource.RLIMIT_DATA)
    memory = memory_bytes + OWN_BYTES
    resource.setrlimit(
        resource.RLIMIT_DATA, (memory if hard_limit < 0 else min(memory, hard_limit), hard_limit)
    )
