"""The processes of the sandbox: a zygote for forking, and a child for parsing files.

The zygote has one thread, holds no data and loads the parsers. A child confines itself, then serves files
until the sandbox ends it: Landlock denies files, seccomp denies system calls. Where the kernel has neither,
nothing is denied and nothing fails; ``supported`` tells which of them it has.
"""

from __future__ import annotations

import errno
import gc
import importlib
import math
import os
import platform
import resource
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import IO, Any

import msgspec

from penstock.errors import DocumentTooLarge, UnreadableDocument
from penstock.pipeline import budget
from penstock.pipeline.draft import build_draft
from penstock.pipeline.extract.factory import LIBRARIES, extractor
from penstock.pipeline.extract.protocol import Content, ExtractedText, Page, PagedDocument, PagedExtractor
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
from penstock.pipeline.extract.text import (
    check_length,
    document_head,
    is_paged,
    read_page,
    wanted_pages,
)
from penstock.pipeline.ocr.protocol import OcrOptions

try:
    import ctypes
except ImportError:  # an interpreter built without it
    ctypes = None  # type: ignore[assignment]

_NO_NEW_PRIVILEGES = 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_WRITE_FILE, _READ_FILE, _READ_DIRECTORY, _TRUNCATE = 1 << 1, 1 << 2, 1 << 3, 1 << 14
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Number of file rights by version of Landlock."""

_SET_FILTER, _ACTION_AVAILABLE, _ALLOW_SPECULATION = 1, 2, 4
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _JUMP_EQUAL, _JUMP_FROM, _JUMP_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT, _FOURTH_ARGUMENT = 0, 4, 16, 24, 40
_MAP_SHARED, _MAP_ANONYMOUS, _MAP_GROWS_DOWN = 0x01, 0x20, 0x100
_SIGNAL_ANOTHER = ((8, 10, 15), (0x8901, 0x8902))
"""F_SETOWN, F_SETSIG and F_SETOWN_EX of fcntl, FIOSETOWN and SIOCSPGRP of ioctl: the kernel then signals
another process for this one."""
_CLONE_THREAD = 0x00010000
_SET_DEATH_SIGNAL = 1
_X32 = 0x40000000
_COMMON = 424
"""System calls from this number on are the same everywhere. Those not in ``_COMMON_ALLOWED`` do not exist."""
_COMMON_ALLOWED = (436, 437, 439, 441, 449)
"""close_range, openat2, faccessat2, epoll_pwait2, futex_waitv."""


class _Calls(msgspec.Struct, frozen=True):
    """Numbers of system calls on one architecture."""

    architecture: int
    seccomp: int
    clone: int
    prctl: int
    of_own_process: tuple[int, ...]
    """kill, tgkill, prlimit64: allowed with the id of this process."""
    mmap: int
    descriptors: tuple[int, int]
    """fcntl, ioctl."""
    denied: tuple[int, ...]


_CALLS = {
    "x86_64": _Calls(
        0xC000003E,
        seccomp=317,
        clone=56,
        prctl=157,
        of_own_process=(62, 234, 302),
        mmap=9,
        descriptors=(72, 16),
        denied=(
            *(41, 42, 49, 50, 43, 288),  # socket, connect, bind, listen, accept, accept4
            *(57, 58, 59, 322),  # fork, vfork, execve, execveat
            *(101, 310, 311, 312, 200, 129, 297),  # ptrace, process_vm_*, kcmp, tkill, rt_*sigqueueinfo
            *(29, 30, 31, 68, 64, 240, 241),  # shm*, msgget, semget, mq_open, mq_unlink
            *(90, 91, 268, 92, 93, 94, 260),  # chmod and chown
            *(188, 189, 190, 197, 198, 199, 132, 235, 261, 280, 133, 259),  # xattr, utime, mknod
            *(109, 112, 141, 142, 144, 203, 251, 314, 256, 279),  # setpgid, setsid, priorities, *_pages
            *(165, 166, 155, 161, 272, 308, 303, 304),  # mount, chroot, namespaces, file handles
            *(321, 298, 323, 248, 249, 250, 253, 294, 300, 103, 135, 154, 172, 173),  # bpf, perf, keys, ...
            *(319, 76),  # memfd_create, whose memory no limit counts; truncate
        ),
    ),
    "aarch64": _Calls(
        0xC00000B7,
        seccomp=277,
        clone=220,
        prctl=167,
        of_own_process=(129, 131, 261),
        mmap=222,
        descriptors=(25, 29),
        denied=(
            *(198, 203, 200, 201, 202, 242),
            *(221, 281),
            *(117, 270, 271, 272, 130, 138, 240),
            *(194, 195, 196, 186, 190, 180, 181),
            *(52, 53, 54, 55),
            *(5, 6, 7, 14, 15, 16, 88, 33),
            *(154, 157, 140, 118, 119, 122, 30, 274, 238, 239),
            *(40, 39, 41, 51, 97, 268, 264, 265),
            *(280, 241, 282, 217, 218, 219, 26, 262, 116, 92),
            *(279, 45),
        ),
    ),
}


class Confinement(msgspec.Struct, frozen=True):
    """Means of the kernel against a parser under foreign control."""

    landlock: int = 0
    """Version of Landlock; 0: none."""
    seccomp: bool = False

    @property
    def complete(self) -> bool:
        return bool(self.landlock) and self.seccomp

    def summary(self) -> str:
        """One line for people."""
        if self.complete:
            return f"no files, network or processes (Landlock {self.landlock}, seccomp)"
        limits = "limits of memory and CPU time"
        if self.landlock:
            return f"{limits}, and no files (Landlock {self.landlock}); this kernel has no seccomp filters"
        if self.seccomp:
            return f"{limits}, no network or processes (seccomp); this kernel has no Landlock"
        return f"{limits} only: this kernel has neither Landlock nor seccomp filters"


def supported() -> Confinement:
    """Check the kernel's support. Changes nothing."""
    calls = _calls()
    if calls is None:
        return Confinement()
    version = _syscall(_CREATE_RULESET, None, 0, 1)
    action = ctypes.c_uint32(_ERRNO)
    available = _syscall(calls.seccomp, _ACTION_AVAILABLE, 0, ctypes.byref(action)) == 0
    return Confinement(max(version, 0), available)


def confine(readable: Iterable[str]) -> Confinement:
    """Confine this process for good, as far as the kernel can. Files below ``readable`` can be read.

    Only for a process without other threads. Returns what is now in force.
    """
    calls, found = _calls(), supported()
    if calls is None or _libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        return Confinement()
    landlock = found.landlock if found.landlock and _deny_files(found.landlock, readable) else 0
    return Confinement(landlock, found.seccomp and _deny_calls(calls))


def _end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when the parent ends; exit now if the parent has already ended."""
    if _calls() is not None:
        _libc().prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _calls() -> _Calls | None:
    if (
        ctypes is None
        or not sys.platform.startswith("linux")
        or sys.byteorder != "little"
        or sys.maxsize < 1 << 32
    ):
        return None
    return _CALLS.get(platform.machine())


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _syscall(number: int, *arguments: object) -> int:
    result: int = _libc().syscall(number, *arguments)
    return result


def _deny_files(version: int, readable: Iterable[str]) -> bool:
    rights = (1 << _FILE_RIGHTS.get(version, 16)) - 1
    network, scopes = 3 if version >= 4 else 0, 3 if version >= 6 else 0
    handled = struct.pack("QQQ", rights, network, scopes)
    length = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _syscall(_CREATE_RULESET, handled, length, 0)
    if ruleset < 0:
        return False
    try:
        for path in readable:
            _allow(ruleset, path, _READ_FILE | _READ_DIRECTORY)
        # Libraries write messages to nowhere.
        _allow(ruleset, os.devnull, (_READ_FILE | _WRITE_FILE | _TRUNCATE) & rights)
        return _syscall(_RESTRICT_SELF, ruleset, 0) == 0
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= ~_READ_DIRECTORY
        _syscall(_ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)


def _deny_calls(calls: _Calls) -> bool:
    program = b"".join(struct.pack("HBBI", *instruction) for instruction in _filter(calls, os.getpid()))
    instructions = ctypes.create_string_buffer(program, len(program))
    given = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(instructions))
    return _syscall(calls.seccomp, _SET_FILTER, _ALLOW_SPECULATION, given) == 0


def _filter(calls: _Calls, pid: int) -> list[tuple[int, int, int, int]]:
    """The filter as instructions of the packet filter: code, jump if true, jump if false, value."""
    denied, missing = (_RETURN, 0, 0, _ERRNO | errno.EPERM), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)
    allowed, argument = (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, _FIRST_ARGUMENT)
    made = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, calls.architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        # Calls of the x32 ABI have other numbers for the same calls.
        *((_JUMP_FROM, 0, 1, _X32), denied),
    ]
    for number in _COMMON_ALLOWED:
        made += [(_JUMP_EQUAL, 0, 1, number), allowed]
    # A missing clone3 makes the C library use clone, whose flags a filter can see.
    made += [(_JUMP_FROM, 0, 1, _COMMON), missing]
    for number in calls.denied:
        made += [(_JUMP_EQUAL, 0, 1, number), denied]
    made += [(_JUMP_EQUAL, 0, 4, calls.clone), argument, (_JUMP_BIT, 1, 0, _CLONE_THREAD), denied, allowed]
    made += [(_JUMP_EQUAL, 0, 4, calls.prctl), argument, (_JUMP_EQUAL, 0, 1, _SET_DEATH_SIGNAL)]
    made += [denied, allowed]
    for number in calls.of_own_process:
        made += [(_JUMP_EQUAL, 0, 5, number), argument, (_JUMP_EQUAL, 1, 0, pid)]
        # Zero means this process for prlimit64, but its whole group for kill.
        own = calls.of_own_process[-1] == number
        made += [(_JUMP_EQUAL, 0 if own else 1, 1, 0), allowed, denied]
    for number, commands in zip(calls.descriptors, _SIGNAL_ANOTHER, strict=True):
        made += [(_JUMP_EQUAL, 0, len(commands) + 3, number), (_LOAD, 0, 0, _SECOND_ARGUMENT)]
        made += [(_JUMP_EQUAL, len(commands) - at, 0, value) for at, value in enumerate(commands)]
        made += [allowed, denied]
    # Shared memory and memory that grows as a stack are not counted by the limit of memory.
    made += [(_JUMP_EQUAL, 0, 6, calls.mmap), (_LOAD, 0, 0, _FOURTH_ARGUMENT)]
    made += [(_JUMP_BIT, 3, 0, _MAP_GROWS_DOWN), (_JUMP_BIT, 0, 1, _MAP_SHARED)]
    made += [(_JUMP_BIT, 1, 0, _MAP_ANONYMOUS), allowed, denied]
    return [*made, allowed]


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
        _end_with_parent(zygote)
        source, sink = os.fdopen(channel, "rb", 1 << 16), os.fdopen(os.dup(channel), "wb", 1 << 16)
        memory = budget.OwnMemory()
        _lower_limits(own_bytes(memory) + order.memory_bytes if order.memory_bytes else None)
        confine([*_readable(), *order.ocr_paths])
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
    from penstock.pipeline.ocr.engines import open_engine
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
