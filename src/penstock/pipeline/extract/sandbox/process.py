"""The parent's side of the sandbox processes: the zygote, the child, and the exchange with the child."""

from __future__ import annotations

import io
import math
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from penstock import clock
from penstock.interpreter import isolated_command, isolated_environment
from penstock.pipeline import budget
from penstock.pipeline.extract.sandbox.messages import (
    OUT_OF_MEMORY,
    Answer,
    Collect,
    Drawn,
    Fork,
    MessageTooLarge,
    Opened,
    Order,
    PageRead,
    PagesEnded,
    ParseRequest,
    Refusal,
    Whole,
    WordsPlaced,
    decode_answer,
    encode,
    receive,
)

SLOWEST = 10
"""Wall-clock limit of a parser, as a multiple of its CPU time limit."""
START_S = 120.0
"""Wall-clock limit for what no file is charged for: to start the child, load the parser, send the file."""

MEMORY_STEP = 64 << 20
"""A child may use the memory of its first file, rounded up by this, for every file."""
CHECK_S = 1.0
"""Seconds between checks of the CPU time of a child that does not answer."""
CPU_MARGIN_S = 2.0
"""CPU time beyond its limit at which a child is ended that did not end by the limit."""

COMMAND = "from penstock.pipeline.extract.sandbox.server import serve; serve()"
"""Code of the zygote."""

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_WITHOUT_MEMORY = frozenset([-signal.SIGABRT, -signal.SIGTRAP, 127])
"""Exit statuses of native code that runs out of memory; 127 comes from the dynamic linker."""


_NO_ANSWER = "gave an invalid answer"


class ChildDied(Exception):
    """The child ended while reading a file or page. ``retry``: a new child may succeed."""

    def __init__(self, how: str, *, retry: bool = True) -> None:
        super().__init__(how)
        self.retry = retry


class TooSlow(ChildDied):
    """The file or page exceeded the time limit."""


class TooLarge(ChildDied):
    """The file or page exceeded the memory."""


class ZygoteDied(Exception):
    """The zygote ended. No file is to blame: it reads none."""


class Zygote:
    """Process for forking children. Started for the first child, in ``/`` and isolated."""

    def __init__(self, niceness: int = 0) -> None:
        self._control, theirs = socket.socketpair()
        self._control.settimeout(START_S)
        with theirs:
            self._process = subprocess.Popen(
                isolated_command(COMMAND),
                cwd="/",
                env=isolated_environment(),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        if niceness:
            # Inherited by the children, which it forks on demand.
            os.setpriority(os.PRIO_PROCESS, self._process.pid, os.getpriority(os.PRIO_PROCESS, 0) + niceness)

    def fork(
        self, extractor: str, ocr_paths: tuple[str, ...] = (), memory_bytes: int = MEMORY_STEP
    ) -> SandboxChild:
        """Fork a child with this extractor loaded, and OCR if folders for it are given.

        ``memory_bytes``: for files of up to so much memory. Raises ``ZygoteDied``.
        """
        order = Fork(extractor, ocr_paths, math.ceil(memory_bytes / MEMORY_STEP) * MEMORY_STEP)
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                return SandboxChild(self, self._answer(order, theirs), ours, order)
        except BaseException:
            ours.close()
            raise

    def collect(self) -> int:
        """End the child; its exit status as ``subprocess`` has it. Raises ``ZygoteDied``."""
        return self._answer(Collect())

    def _answer(self, order: Order, *files: socket.socket) -> int:
        try:
            socket.send_fds(self._control, [encode(order)], [file.fileno() for file in files])
            message = self._control.recv(1 << 10)
        except TimeoutError:
            raise TimeoutError(f"the process for parsers did not answer within {START_S:g} s") from None
        except OSError:
            message = b""
        if not message:
            raise ZygoteDied(f"the process for parsers ended with status {self._process.wait()}")
        return msgspec.msgpack.decode(message, type=int)

    def close(self) -> None:
        """End the zygote, and with it a child."""
        self._control.close()
        self._process.kill()
        self._process.wait()


class _AnswerStream(io.RawIOBase):
    """Bytes from a child, within a time. Raises TimeoutError."""

    def __init__(self, channel: socket.socket, pid: int) -> None:
        self._channel = channel
        self._pid = pid
        self._deadline = self._cpu_limit = math.inf

    def limit(self, seconds: float, cpu_seconds: float) -> None:
        """Limit the time from now on, whether bytes come or not."""
        self._deadline = clock.elapsed_s() + seconds
        used = budget.cpu_seconds(self._pid) if cpu_seconds < math.inf else None
        self._cpu_limit = math.inf if used is None else used + cpu_seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        while True:
            left = self._deadline - clock.elapsed_s()
            if left <= 0:
                raise TimeoutError
            self._channel.settimeout(min(left, CHECK_S))
            try:
                return self._channel.recv_into(buffer)
            except TimeoutError:
                used = budget.cpu_seconds(self._pid)
                if used is not None and used > self._cpu_limit:
                    raise


class SandboxChild:
    """A parser process, with the document currently open there."""

    def __init__(self, zygote: Zygote, pid: int, channel: socket.socket, order: Fork) -> None:
        self.pid = pid
        self.ocr_paths = order.ocr_paths
        self.memory_bytes = order.memory_bytes
        self.files = 0
        """Number of files begun."""
        self.answers = 0
        """Number of files and pages read."""
        self._zygote = zygote
        self._channel = channel
        self._source = _AnswerStream(channel, pid)
        self._reader = io.BufferedReader(self._source, 1 << 16)
        self._kept: tuple[str, bytes] | None = None
        """Extractor and bytes of the document that is open in the child."""

    def exchange(
        self, request: ParseRequest, data: bytes
    ) -> Iterator[Whole | Opened | PageRead | Drawn | WordsPlaced | Refusal]:
        """Send a file and receive the answers, until the last. Raises ``ChildDied``."""
        key = (request.file_type.extractor, data)
        resumed, self._kept = self._kept == key, None
        self._begin(msgspec.structs.replace(request, resumed=resumed), data)
        seconds, left = request.seconds, max(request.memory_bytes, 4 * request.limits.text_chars)
        while True:
            answer, size = self._receive(seconds, min(left, request.memory_bytes))
            left -= size
            if isinstance(answer, Refusal) and answer.error == OUT_OF_MEMORY:
                raise TooLarge("ran out of memory")
            if isinstance(answer, PagesEnded):
                self._kept = key if answer.kept else None
                return
            if not isinstance(answer, Opened):
                self.answers += 1
            yield answer
            if isinstance(answer, Whole | Refusal):
                return
            seconds = request.page_seconds

    def _begin(self, request: ParseRequest, data: bytes) -> None:
        """Send a file, and wait until the child is about to parse it."""
        self.files += 1
        self._channel.settimeout(START_S)
        try:
            messages = [encode(request)] if request.resumed else [encode(request), data]
            for message in messages:
                self._channel.sendall(len(message).to_bytes(8, "big"))
                self._channel.sendall(message)
            self._source.limit(START_S, math.inf)
            begun = receive(self._reader, 0)
        except MessageTooLarge:
            raise ChildDied(_NO_ANSWER) from None
        except TimeoutError:
            raise TimeoutError(f"the process for parsers did not start within {START_S:g} s") from None
        except OSError:
            begun = None
        if begun is None:
            raise self._death()

    def _receive(self, seconds: float, limit: int) -> tuple[Answer, int]:
        """Receive an answer of up to ``limit`` bytes, and its size.

        The child limits its CPU time itself. Here it is ended if it does not, or waits for ever: code under
        foreign control can lift its own limit, and answer anything.
        """
        self._source.limit(SLOWEST * seconds, seconds + CPU_MARGIN_S)
        try:
            message = receive(self._reader, limit)
        except TimeoutError:
            raise TooSlow("took too long", retry=False) from None
        except MessageTooLarge:
            raise ChildDied("sent more than a file can hold", retry=False) from None
        except OSError:
            message = None
        if message is None:
            raise self._death()
        try:
            return decode_answer(message), len(message)
        except msgspec.MsgspecError:
            raise ChildDied(_NO_ANSWER, retry=False) from None

    def _death(self) -> ChildDied:
        status = self._collect()
        if status == -signal.SIGXCPU:
            return TooSlow("took too long", retry=False)
        how = f"was ended by {_signal_name(-status)}" if status < 0 else f"ended with status {status}"
        return TooLarge(how) if status in _WITHOUT_MEMORY else ChildDied(how)

    def _collect(self) -> int:
        self.pid = 0
        try:
            return self._zygote.collect()
        except ZygoteDied:
            # The kernel has killed the child then.
            return -signal.SIGKILL

    def close(self) -> None:
        if self.pid:
            self._collect()
        with suppress(OSError):
            self._reader.close()
        self._channel.close()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
