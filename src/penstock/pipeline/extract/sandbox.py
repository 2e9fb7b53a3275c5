"""Extraction that cannot take the worker down with it.

The parsers of ``BOXED`` run in a child process with a limit on memory and CPU time. The child serves one file
after another; when it dies, the file it was reading fails and the next one gets a new child. Small text,
Markdown and HTML files are read in the worker's own process, where ``budget`` limits them.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import threading
from types import TracebackType
from typing import IO, BinaryIO

import msgspec

from penstock import errors
from penstock.errors import DocumentTooLarge, ParserFailed, UnreadableDocument
from penstock.interpreter import isolated_command, isolated_environment
from penstock.pipeline import budget
from penstock.pipeline.chunk.protocol import ChunkSizes
from penstock.pipeline.draft import Draft, drafted
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.charset import SNIFFED
from penstock.pipeline.extract.factory import BOXED, check_size, extract, extractor
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits, FileType

FILES_PER_CHILD = 500
"""Then it is replaced: what parsers leak stays bounded."""
SLOWEST = 10
"""Times its CPU time that a parser may take by the clock."""

OWN_BYTES = 32 << 20
"""Memory that a sandbox has before it reads anything."""

_COMMAND = "from penstock.pipeline.extract.sandbox import serve; serve()"
_OUT_OF_MEMORY = "OutOfMemory"
_WITHOUT_MEMORY = frozenset([-signal.SIGABRT, -signal.SIGTRAP, 127])
"""How native code that gets no memory ends its process; the last is the dynamic linker's way."""


class _Request(msgspec.Struct, array_like=True):
    """The file's bytes follow as a message of their own: encoded here they would be copied on both sides."""

    name: str
    kind: FileType
    limits: ExtractLimits
    pages: tuple[int, int] | None
    seconds: float
    memory_bytes: int
    sizes: ChunkSizes | None = None
    """Of chunks, when the file is to be cut into them as well."""


class _Answer(msgspec.Struct, array_like=True):
    extracted: ExtractedText | None = None
    draft: Draft | None = None
    error: str = ""
    """The name of a class in errors, or of another exception."""
    message: str = ""
    remedy: str | None = None


class Sandbox:
    """One child at most, started at the first file that needs it. Threads take turns."""

    def __init__(self, limits: ExtractLimits | None = None) -> None:
        self._limits = limits or ExtractLimits()
        self._lock = threading.Lock()
        self._child: _SandboxProcess | None = None

    def extract(
        self, content: Content, *, pages: range | None = None, memory_bytes: int | None = None
    ) -> ExtractedText:
        """As ``opening.extract``; raises ParserFailed when the parser crashed or went over a limit."""
        limits = self._limits
        check_size(content, limits)
        kind = file_types.detect(content.name, content.data[:SNIFFED])
        if kind.extractor not in BOXED:
            return extract(content, limits, pages=pages)
        memory = limits.parser_memory_bytes if memory_bytes is None else memory_bytes
        answer = self._answer(_request(content, kind, limits, pages, memory), content.data)
        assert answer.extracted is not None
        return answer.extracted

    def draft(
        self, content: Content, sizes: ChunkSizes, *, pages: range | None = None, memory_bytes: int
    ) -> Draft:
        """Extract and cut a large file, whatever its type, in a child that ends with it."""
        check_size(content, self._limits)
        kind = file_types.detect(content.name, content.data[:SNIFFED])
        request = _request(content, kind, self._limits, pages, memory_bytes, sizes)
        try:
            answer = self._answer(request, content.data)
        finally:
            # What this file left in it is the next large file's memory.
            self.close()
        assert answer.draft is not None
        return answer.draft

    def _answer(self, request: _Request, data: bytes) -> _Answer:
        with self._lock:
            try:
                return self._boxed(request, data)
            except UnreadableDocument:
                raise
            except BaseException:
                # Interrupted in the middle of an exchange: what the child still sends belongs to no file.
                self.close()
                raise

    def _boxed(self, request: _Request, data: bytes) -> _Answer:
        while True:
            child = self._child
            if child is None or child.served >= FILES_PER_CHILD:
                self.close()
                child = self._child = _SandboxProcess()
            try:
                return child.answer(request, data)
            except _Died as death:
                self.close()
                # One that served before may have been full of what others left; a new one has no excuse.
                if not child.served or not death.worth_another:
                    raise death.failure(request) from None

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Died(Exception):
    def __init__(self, how: str, *, worth_another: bool = True) -> None:
        super().__init__(how)
        self.worth_another = worth_another

    def failure(self, request: _Request) -> ParserFailed:
        return ParserFailed(f"the parser of {request.kind.extractor} files {self}")


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
        overdue = threading.Event()
        # CPU time is limited in the child; this is for one that waits for something that never comes.
        watch = threading.Timer(SLOWEST * request.seconds, self._stop, [overdue])
        watch.daemon = True
        watch.start()
        try:
            answer = self._exchange(msgspec.msgpack.encode(request), data)
        finally:
            watch.cancel()
        if answer is None:
            raise self._death(overdue.is_set())
        if answer.error == _OUT_OF_MEMORY:
            raise _TooLarge("ran out of memory")
        self.served += 1
        if answer.error:
            raise _failure(answer)
        return answer

    def _exchange(self, request: bytes, data: bytes) -> _Answer | None:
        try:
            for message in (request, data):
                _send(_pipe(self._process.stdin), message)
            received = _receive(_pipe(self._process.stdout))
        except OSError:
            return None
        return msgspec.msgpack.decode(received, type=_Answer) if received is not None else None

    def _stop(self, overdue: threading.Event) -> None:
        overdue.set()
        self._process.kill()

    def _death(self, overdue: bool) -> _Died:
        code = self._process.wait()
        if overdue or code == -signal.SIGXCPU:
            return _TooSlow("took too long", worth_another=False)
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        return _TooLarge(how) if code in _WITHOUT_MEMORY else _Died(how)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # what was still to be written has no reader any more
                    continue


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise BrokenPipeError
    return pipe


def _request(
    content: Content,
    kind: FileType,
    limits: ExtractLimits,
    pages: range | None,
    memory_bytes: int,
    sizes: ChunkSizes | None = None,
) -> _Request:
    span = (pages.start, pages.stop) if pages is not None else None
    seconds = limits.seconds_for(len(content.data))
    return _Request(content.name, kind, limits, span, seconds, memory_bytes, sizes)


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
    """None at the end of the stream, also when it comes in the middle of a message."""
    head = pipe.read(8)
    length = int.from_bytes(head, "big")
    body = pipe.read(length) if len(head) == 8 else b""
    return body if len(head) == 8 and len(body) == length else None


def serve() -> None:
    """The child's life: files in on stdin, answers out on stdout, until its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source = os.fdopen(os.dup(0), "rb")
    # Whatever a parser prints must not get among the answers.
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    os.dup2(2, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while (request := _receive(source)) is not None:
        data = _receive(source)
        if data is None or not _answered(sink, _answer(request, data)):
            return


def _answered(sink: BinaryIO, answer: _Answer) -> bool:
    try:
        _send(sink, msgspec.msgpack.encode(answer))
    except BrokenPipeError:
        return False
    return True


def _answer(encoded: bytes, data: bytes) -> _Answer:
    request = msgspec.msgpack.decode(encoded, type=_Request)
    try:
        return _made(request, data)
    except MemoryError:
        return _Answer(error=_OUT_OF_MEMORY)
    except Exception as error:  # noqa: BLE001 - whatever a parser raises is about this file
        if not isinstance(error, DocumentTooLarge) and budget.peak_bytes() > request.memory_bytes // 2:
            # Libraries have errors of their own for that.
            return _Answer(error=_OUT_OF_MEMORY)
        if isinstance(error, UnreadableDocument):
            return _Answer(error=type(error).__name__, message=error.message, remedy=error.remedy)
        return _Answer(error=type(error).__name__, message=str(error)[:500])


def _made(request: _Request, data: bytes) -> _Answer:
    parser = extractor(request.kind.extractor)
    budget.forget_peak()
    _limit(request.seconds, request.memory_bytes)
    pages = range(*request.pages) if request.pages is not None else None
    extracted = parser.extract(Content(request.name, data), request.kind, request.limits, pages)
    if request.sizes is None:
        return _Answer(extracted)
    return _Answer(draft=drafted(extracted, request.sizes, whole=pages is None))


def _limit(seconds: float, memory_bytes: int) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    until = int(used.ru_utime + used.ru_stime + seconds) + 1
    _, hardest = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (until, hardest))
    # Of data, not of address space: libraries that are mapped cost nothing.
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    memory = memory_bytes + OWN_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (memory if most < 0 else min(memory, most), most))
