"""A PDF parser for the sandbox, controlled by the words of each page: ``spin``, ``crash`` and others.

The file holds one page per line, after the first line. ``COMMAND`` starts a zygote with this parser.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import mmap
import os
import resource
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from penstock.pipeline.extract import factory
from penstock.pipeline.extract.protocol import (
    Attachment,
    Content,
    ExtractedText,
    ExtractLimits,
    Extractor,
    FileType,
    Page,
    PageImage,
    PlacedWord,
    Properties,
    Shape,
)
from penstock.pipeline.extract.sandbox import server
from penstock.pipeline.extract.text import extract_pages

ROOT = Path(__file__).parents[2]
COMMAND = (
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.pipeline.faulty_parser import serve; serve()"
)


def document(*pages: str) -> bytes:
    return "\n".join(["%PDF-", *pages]).encode()


def spin() -> str:
    """Endless Python code with a broad exception handler."""
    while True:
        try:
            sum(range(10_000))
        except Exception:  # noqa: S112 - parsers do that
            continue


def native() -> str:
    """Native code, not interruptible by a signal handler."""
    return str(hashlib.pbkdf2_hmac("sha512", b"a", b"b", 1_000_000_000))


def hungry() -> str:
    kept = []
    while True:
        kept.append("x" * (4 << 20))


def crash() -> str:
    ctypes.string_at(0)
    return ""


def wait() -> str:
    time.sleep(3600)
    return ""


def error() -> str:
    raise ValueError("a parser may raise anything")


def codec() -> str:
    """Load a codec when it is first used."""
    return "späte Worte".encode("utf-16-le").decode("utf-16-le")


def attack() -> str:
    """Try what code under foreign control would try. The text tells what was possible."""
    return ",".join(name for name, attempt in ATTEMPTS.items() if _succeeds(attempt))


def deaf() -> str:
    """Lift the limit of CPU time, and go on."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (most, most))
    signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    return spin()


def realtime() -> str:
    os.kill(os.getpid(), signal.SIGRTMIN + 5)
    return wait()


def lie() -> str:
    """Answer what is no answer."""
    os.write(_channel(), (3).to_bytes(8, "big") + b"lie")
    return wait()


def flood() -> str:
    """Announce an answer that no memory can hold."""
    os.write(_channel(), (1 << 62).to_bytes(8, "big"))
    return wait()


def drip() -> str:
    """Send an answer byte by byte, without an end."""
    channel = _channel()
    os.write(channel, (1 << 20).to_bytes(8, "big"))
    while True:
        os.write(channel, b"x")
        time.sleep(0.01)


def _channel() -> int:
    return next(fd for fd, mode in _open_files() if stat.S_ISSOCK(mode))


def _open_files() -> Iterator[tuple[int, int]]:
    for fd in range(256):
        with suppress(OSError):
            yield fd, os.fstat(fd).st_mode


def _foreign_files() -> None:
    """Use a file, pipe or socket of another process: all but the channel, own figures and the null device."""
    found = [(os.fstat(fd), fd) for fd, _ in _open_files()]
    own = {status.st_ino for status, _ in found if stat.S_ISSOCK(status.st_mode)}
    regular = [fd for status, fd in found if stat.S_ISREG(status.st_mode) and status.st_size]
    pipes = [fd for status, fd in found if stat.S_ISFIFO(status.st_mode) or stat.S_ISBLK(status.st_mode)]
    if len(own) == 1 and not regular and not pipes:
        raise PermissionError("nothing is inherited")


def _succeeds(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except (OSError, ValueError, subprocess.SubprocessError):
        return False
    return True


def _call(name: str, *arguments: int) -> None:
    """Call the kernel. An error about the arguments means that the call itself was allowed."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) == -1:
        failure = ctypes.get_errno()
        if failure in (errno.EPERM, errno.EACCES, errno.ENOSYS):
            raise OSError(failure, name)


def _forked() -> int:
    child = os.fork()
    if child == 0:
        os._exit(0)
    return os.waitpid(child, 0)[0]


ATTEMPTS: dict[str, Callable[[], object]] = {
    "read": lambda: Path("/etc/passwd").read_bytes(),
    "read a process": lambda: Path(f"/proc/{os.getppid()}/environ").read_bytes(),
    "list": lambda: os.listdir("/tmp"),  # noqa: PTH208 - the names of a shared directory
    "write": lambda: Path("/tmp/penstock-attack").write_text("x"),
    "write among modules": lambda: Path(__file__).with_suffix(".attack").write_text("x"),
    "change mode": lambda: Path("/tmp").chmod(0o1777),
    "fork": _forked,
    "run": lambda: subprocess.run(["/bin/true"], check=True),
    "replace itself": lambda: os.execv("/bin/true", ["true"]),
    "tcp": lambda: socket.socket(socket.AF_INET),
    "socket": lambda: socket.socket(socket.AF_UNIX),
    "udp": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
    "signal the parent": lambda: os.kill(os.getppid(), 0),
    "signal its group": lambda: os.kill(0, 0),
    "trace the parent": lambda: _call("ptrace", 0x4206, os.getppid(), 0, 0),
    "limit the parent": lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CPU),
    "outlive the parent": lambda: _call("prctl", 1, 0, 0, 0),
    "leave the session": os.setsid,
    "ring of system calls": lambda: _call("syscall", 425, 1, 0),
    "call of the x32 ABI": lambda: _call("syscall", 0x40000000 + 39),
    "shared memory": lambda: mmap.mmap(-1, 1 << 20),
    "a stack as memory": lambda: mmap.mmap(-1, 1 << 20, flags=0x122),
    "a file in memory": lambda: os.memfd_create("attack"),
    "a signal by a descriptor": lambda: fcntl.fcntl(_channel(), fcntl.F_SETOWN, os.getppid()),
    "any signal by a descriptor": lambda: fcntl.fcntl(_channel(), 10, signal.SIGKILL),
    "a signal by a device": lambda: fcntl.ioctl(_channel(), 0x8901, os.getppid().to_bytes(4, "little")),
    "more memory": lambda: resource.setrlimit(resource.RLIMIT_DATA, (-1, -1)),
    "some more memory": lambda: resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30)),
    "more files": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 12, 1 << 12)),
    "larger files": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, 1 << 12)),
    "files of others": _foreign_files,
    "clone3": lambda: _call("syscall", 435, 0, 0),
}

DOES: dict[str, Callable[[], str]] = {
    does.__name__: does
    for does in (spin, native, hungry, crash, wait, error, codec, attack, deaf, realtime, lie, flood, drip)
}


SCAN = "scan: "
"""Beginning of a page that is a picture."""


class FaultyPages:
    """An open document. ``who``: the process, and how many documents it has opened."""

    opened = 0
    title: str | None = None
    properties = Properties()
    attachments: tuple[Attachment, ...] = ()

    def __init__(self, data: bytes) -> None:
        FaultyPages.opened += 1
        self._data = data
        self._pages = data.decode().split("\n")[1:]
        self.page_count = len(self._pages)

    @property
    def warnings(self) -> tuple[str, ...]:
        return ("a warning that takes long to find",) if b"\nwarned" in self._data else ()

    def page(self, number: int) -> Page:
        text = self._pages[number - 1]
        if text == "who":
            return Page(number, f"{os.getpid()} {FaultyPages.opened}")
        if text.startswith(SCAN):
            return Page(number, "", needs_ocr=True)
        does = DOES.get(text)
        return Page(number, does() if does is not None else text)

    def image(self, number: int, dpi: int) -> PageImage:
        """The words after ``SCAN`` as a picture, unless they say what to do."""
        import numpy as np

        from tests.pipeline.scanned_documents import picture

        text = self._pages[number - 1].removeprefix(SCAN)
        does = DOES.get(text)
        return PageImage(np.asarray(picture(does() if does is not None else text)), dpi)

    def words(self, number: int) -> tuple[PlacedWord, ...]:
        return tuple(PlacedWord(word, 0.0, 0.0, 1.0, 1.0) for word in self.page(number).text.split())

    def close(self) -> None:
        pass


class FaultyExtractor:
    name = "pdf"
    version = "0"
    shape = Shape.PROSE

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
    ) -> ExtractedText:
        return extract_pages(self, content, file_type, limits, pages)

    def open(self, content: Content, limits: ExtractLimits) -> FaultyPages:
        if b"\ndoor" in content.data:
            os.kill(os.getpid(), signal.SIGSEGV)
        return FaultyPages(content.data)


def serve() -> None:
    def extractor(name: str) -> Extractor:
        return FaultyExtractor() if name == "pdf" else factory.extractor(name)

    server.extractor = extractor  # type: ignore[attr-defined]
    server.serve()
