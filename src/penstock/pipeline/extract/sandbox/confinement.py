"""Confinement of a process by the kernel: no network, no processes, no files but those named.

Landlock denies files, seccomp denies system calls. Where the kernel has neither, nothing is denied and
nothing fails; ``supported`` tells which of them it has.
"""

from __future__ import annotations

import errno
import os
import platform
import signal
import stat
import struct
import sys
from collections.abc import Iterable
from typing import Any

from penstock.named_tuple import NamedTuple

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


class _Calls(NamedTuple):
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


class Confinement(NamedTuple):
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


def end_with_parent(parent: int) -> None:
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
