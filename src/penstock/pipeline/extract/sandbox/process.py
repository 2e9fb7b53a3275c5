"""The sandbox's side of its processes: the zygote, its child, and the exchange with the child."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from io import BufferedReader

import msgspec

from penstock.interpreter import isolated_command, isolated_environment
from penstock.pipeline.extract.sandbox.messages import (
    OUT_OF_MEMORY,
    Answer,
    Collect,
    Drawn,
    Fork,
    Opened,
    Order,
    PageRead,
    PagesEnded,
    ParseRequest,
    Refusal,
    Whole,
    decode_answer,
    encode,
    receive,
)

SLOWEST = 10
"""Wall-clock limit of a parser, as a multiple of its CPU time limit."""
START_S = 120.0
"""Wall-clock limit for what no file is charged for: to start the child, load the parser, send the file."""

COMMAND = "from penstock.pipeline.extract.sandbox.server import serve; serve()"
"""Code of the zygote."""

_WITHOUT_MEMORY = frozenset([-signal.SIGABRT, -signal.SIGTRAP, 127])
"""Exit statuses of native code that runs out of memory; 127 comes from the dynamic linker."""


class ChildDied(Exception):
    """The child ended while it read a file or page. ``retry``: a new child may read it."""

    def __init__(self, how: str, *, retry: bool = True) -> None:
        super().__init__(how)
        self.retry = retry


class TooSlow(ChildDied):
    """The file or page exceeded its time."""


class TooLarge(ChildDied):
    """The file or page exceeded the memory."""


class ZygoteDied(Exception):
    """The zygote ended. No file is to blame: it reads none."""


class Zygote:
    """Process that forks children. It is started for the first of them, in ``/`` and isolated."""

    def __init__(self) -> None:
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

    def fork(self, extractor: str, ocr_paths: tuple[str, ...] = ()) -> SandboxChild:
        """Fork a child with this extractor loaded, and OCR if folders for it are given.

        Raises ``ZygoteDied``.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                return SandboxChild(self, self._answer(Fork(extractor, ocr_paths), theirs), ours, ocr_paths)
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


class SandboxChild:
    """A process that parses files, and the document it has open."""

    def __init__(self, zygote: Zygote, pid: int, channel: socket.socket, ocr_paths: tuple[str, ...]) -> None:
        self.pid = pid
        self.ocr_paths = ocr_paths
        self.files = 0
        """Number of files begun."""
        self.answers = 0
        """Number of files and pages read."""
        self._zygote = zygote
        self._channel = channel
        self._reader = BufferedReader(channel.makefile("rb", 0), 1 << 16)
        self._kept: tuple[str, bytes] | None = None
        """Extractor and bytes of the document that is open in the child."""

    def exchange(
        self, request: ParseRequest, data: bytes
    ) -> Iterator[Whole | Opened | PageRead | Drawn | Refusal]:
        """Send a file and receive the answers, until the last. Raises ``ChildDied``."""
        key = (request.file_type.extractor, data)
        resumed, self._kept = self._kept == key, None
        self._begin(msgspec.structs.replace(request, resumed=resumed), data)
        seconds = request.seconds
        while True:
            answer = self._receive(SLOWEST * seconds)
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
            begun = receive(self._reader)
        except TimeoutError:
            raise TimeoutError(f"the process for parsers did not start within {START_S:g} s") from None
        except OSError:
            begun = None
        if begun is None:
            raise self._death()

    def _receive(self, seconds: float) -> Answer:
        """Receive an answer. CPU time is limited in the child; this limit is for one that waits for ever."""
        self._channel.settimeout(max(seconds, 0.001))
        try:
            message = receive(self._reader)
        except TimeoutError:
            raise TooSlow("took too long", retry=False) from None
        except OSError:
            message = None
        if message is None:
            raise self._death()
        answer: Answer = decode_answer(message)
        return answer

    def _death(self) -> ChildDied:
        status = self._collect()
        if status == -signal.SIGXCPU:
            return TooSlow("took too long", retry=False)
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
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
