"""The state of a child process that its functions share: recorded once, put back between jobs.

An application sets up what it needs in its process when its module is imported; that is part of the record.
What a function changes while it runs lasts as long as its job. What cannot be put back ends the process.
"""

from __future__ import annotations

import _locale
import _signal  # type: ignore[import-not-found]  # without the enums that signal makes
import builtins
import gc
import logging
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, cast

_SIGNALS = tuple(number for number in range(1, 32) if number not in (signal.SIGKILL, signal.SIGSTOP))
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_LIMITS = tuple(
    getattr(resource, name)
    for name in ("RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_STACK")
)
_OWN = (os.getpid, time.monotonic, time.sleep)
"""What the worker itself calls between two jobs; functions replace it in its module."""
_REPLACED: tuple[tuple[Any, str], ...] = (
    (os, "_exit environ fstat getcwd getppid kill stat"),
    (time, "clock_gettime perf_counter process_time time time_ns"),
    (signal, "setitimer signal"),
    (builtins, "__import__ open print"),
    (random, "random uniform"),
    (socket, "create_connection getaddrinfo socket"),
    (subprocess, "Popen"),
)
"""Attributes that functions replace in their module, and that others rely on."""

# Bound here: a function may have replaced them in their modules.
_getsignal, _sigmask = _signal.getsignal, _signal.pthread_sigmask
_umask, _environ = os.umask, cast("Any", os.environ)
_set_handler, _set_timer = signal.signal, _signal.setitimer
_limit, _set_limit = resource.getrlimit, resource.setrlimit


def _set_collection(enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()


_VALUES: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (socket.getdefaulttimeout, socket.setdefaulttimeout),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (sys.getswitchinterval, sys.setswitchinterval),
    (sys.gettrace, sys.settrace),
    (sys.getprofile, sys.setprofile),
    (gc.isenabled, _set_collection),
    (lambda: logging.root.level, logging.root.setLevel),
    (lambda: logging.root.manager.disable, logging.disable),
    (partial(os.getpriority, os.PRIO_PROCESS, 0), partial(os.setpriority, os.PRIO_PROCESS, 0)),
)
"""How each is read, and written."""


class ProcessState:
    """A record of the process as it is when the application is loaded."""

    def __init__(self) -> None:
        self._replaced = _attributes(_REPLACED)
        self._mask = _umask(0o077)
        _umask(self._mask)
        self._handlers = [(number, _getsignal(number)) for number in _SIGNALS]
        self._blocked = _sigmask(signal.SIG_BLOCK, ())
        self._variables = dict(_environ._data)
        self._lists = [(owner, list(owner)) for owner in _lists()]
        self._locale = _locale.setlocale(_locale.LC_ALL, None)
        self._limits = [(which, _limit(which)) for which in _LIMITS]
        self._values = [(read, write, read()) for read, write in _VALUES]
        self._decimal = _decimal_context()

    def restore(self) -> str | None:
        """Put back what was changed; the reason to end this process where that is not possible."""
        try:
            self._restore_interpreter()
            self._restore_signals()
            _umask(self._mask)
            if _locale.setlocale(_locale.LC_ALL, None) != self._locale:
                _locale.setlocale(_locale.LC_ALL, self._locale)
            for which, limits in self._limits:
                if _limit(which) != limits:
                    _set_limit(which, limits)
        except Exception as error:  # noqa: BLE001 - whatever was done to it, a fresh process is as it should be
            return f"it cannot be put back as it was ({type(error).__name__})"
        return None

    def restore_own(self) -> None:
        """Put back what this process needs before its next step, after every job."""
        if (os.getpid, time.monotonic, time.sleep) != _OWN:
            os.getpid, time.monotonic, time.sleep = _OWN

    def _restore_interpreter(self) -> None:
        self.restore_own()
        for owner, name, value in self._replaced:
            if owner.get(name) is not value:
                owner[name] = value
        if _environ._data != self._variables:
            self._restore_environment()
        for found, (recorded, values) in zip(_lists(), self._lists, strict=True):
            if found is not recorded or found != values:
                self._restore_lists()
                break
        for read, write, value in self._values:
            if read() != value:
                write(value)
        if self._decimal is not None:
            sys.modules["decimal"].setcontext(self._decimal.copy())

    def _restore_environment(self) -> None:
        for name in _environ._data.keys() - self._variables.keys():
            del _environ[os.fsdecode(name)]
        for name, value in self._variables.items():
            if _environ._data.get(name) != value:
                _environ[os.fsdecode(name)] = os.fsdecode(value)
        time.tzset()

    def _restore_lists(self) -> None:
        (sys.path, path), (sys.meta_path, finders), (filters, shown), (handlers, written) = self._lists
        sys.path[:], sys.meta_path[:] = path, finders
        warnings.filters = filters
        filters[:], handlers[:] = shown, written
        logging.root.handlers = handlers
        warnings._filters_mutated()  # type: ignore[attr-defined]

    def _restore_signals(self) -> None:
        for timer in _TIMERS:
            # Left running, it would kill the next job's process.
            _set_timer(timer, 0)
        for number, handler in self._handlers:
            if _getsignal(number) != handler:
                _set_handler(number, handler)
        if _sigmask(signal.SIG_BLOCK, ()) != self._blocked:
            _sigmask(signal.SIG_SETMASK, self._blocked)


def _attributes(places: tuple[tuple[Any, str], ...]) -> list[tuple[dict[str, Any], str, Any]]:
    return [(vars(owner), name, vars(owner)[name]) for owner, names in places for name in names.split()]


def _lists() -> tuple[list[Any], ...]:
    return sys.path, sys.meta_path, cast("list[Any]", warnings.filters), logging.root.handlers


def _decimal_context() -> Any:
    """The one that all jobs would share; where ``decimal`` is not loaded yet, each job makes its own."""
    loaded = sys.modules.get("decimal")
    return loaded.getcontext().copy() if loaded is not None else None
