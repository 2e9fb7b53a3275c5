"""Extraction that cannot take the worker down with it.

The parsers of ``BOXED`` run in a child process with a limit on memory and CPU time. The child serves one file
after another; when it dies, the file it was reading fails and the next one gets a new child. Text, Markdown
and HTML are read in this process: their parsers keep within their input's size.
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
from penstock.errors import ParserFailed, UnreadableDocument
from penstock.interpreter import isolated_command, isolated_environment
from penstock.pipeline.extract import kinds
from penstock.pipeline.extract.decoding import SNIFFED
from penstock.pipeline.extract.opening import BOXED, check_size, extract, extractor
from penstock.pipeline.extract.protocol import Content, Extracted, Kind, Limits

FILES_PER_CHILD = 500
"""Then it is replaced: what parsers leak stays bounded."""

_COMMAND = "from penstock.pipeline.extract.boxed import serve; serve()"
_OUT_OF_MEMORY = "OutOfMemory"


class _Request(msgspec.Struct, array_like=True):
    """The file's bytes follow as a message of their own: encoded here they would be copied on both sides."""

    name: str
    kind: Kind
    limits: Limits
    pages: tuple[int, int] | None


class _Answer(msgspec.Struct, array_like=True):
    extracted: Extracted | None = None
    error: str = ""
    """The name of a class in errors, or of another exception."""
    message: str = ""
    remedy: str | None = None


class Box:
    """One child at most, started at the first file that needs it. Threads take turns."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def extract(self, content: Content, *, pages: range | None = None) -> Extracted:
        """As ``opening.extract``; raises ParserFailed when the parser crashed or went over a limit."""
        check_size(content, self._limits)
        kind = kinds.detect(content.name, content.data[:SNIFFED])
        if kind.extractor not in BOXED:
            return extract(content, self._limits, pages=pages)
        span = (pages.start, pages.stop) if pages is not None else None
        with self._lock:
            return self._boxed(_Request(content.name, kind, self._limits, span), content.data)

    def _boxed(self, request: _Request, data: bytes) -> Extracted:
        while True:
            child = self._child
            if child is None or child.served >= FILES_PER_CHILD:
                self.close()
                child = self._child = _Child()
            try:
                return child.extract(request, data)
            except _Died as death:
                self.close()
                # One that served before may have been full of what others left; a new one has no excuse.
                if not child.served or not death.worth_another:
                    raise ParserFailed(f"the parser of {request.kind.extractor} files {death}") from None

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None

    def __enter__(self) -> Box:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Died(Exception):
    def __init__(self, how: str, *, worth_another: bool) -> None:
        super().__init__(how)
        self.worth_another = worth_another


class _Child:
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

    def extract(self, request: _Request, data: bytes) -> Extracted:
        limits = request.limits
        overdue = threading.Event()
        # CPU time is limited in the child; this is for one that waits for something that never comes.
        watch = threading.Timer(3 * limits.parser_seconds, self._stop, [overdue])
        watch.daemon = True
        watch.start()
        try:
            answer = self._exchange(msgspec.msgpack.encode(request), data)
        finally:
            watch.cancel()
        if answer is None:
            raise self._death(overdue.is_set(), limits)
        if answer.error == _OUT_OF_MEMORY:
            raise _Died(
                f"needed more than {limits.parser_memory_bytes:,} bytes of memory", worth_another=True
            )
        self.served += 1
        return _unpacked(answer)

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

    def _death(self, overdue: bool, limits: Limits) -> _Died:
        code = self._process.wait()
        if overdue or code == -signal.SIGXCPU:
            return _Died(f"took longer than {limits.parser_seconds} s", worth_another=False)
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        return _Died(how, worth_another=True)

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


def _unpacked(answer: _Answer) -> Extracted:
    if answer.extracted is not None:
        return answer.extracted
    known = getattr(errors, answer.error, None)
    if isinstance(known, type) and issubclass(known, UnreadableDocument):
        raise known(answer.message, remedy=answer.remedy)
    raise ParserFailed(f"the parser failed: {answer.error}: {answer.message}")


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
    try:
        request = msgspec.msgpack.decode(encoded, type=_Request)
        _limit(request.limits)
        pages = range(*request.pages) if request.pages is not None else None
        made = extractor(request.kind.extractor)
        return _Answer(made.extract(Content(request.name, data), request.kind, request.limits, pages))
    except UnreadableDocument as error:
        return _Answer(error=type(error).__name__, message=error.message, remedy=error.remedy)
    except MemoryError:
        return _Answer(error=_OUT_OF_MEMORY)
    except Exception as error:  # noqa: BLE001 - whatever a parser raises is about this file
        return _Answer(error=type(error).__name__, message=str(error)[:500])


def _limit(limits: Limits) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + limits.parser_seconds + 1
    _, hardest = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, hardest))
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    memory = limits.parser_memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (memory if most < 0 else min(memory, most), most))
