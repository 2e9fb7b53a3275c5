"""Functions changing their shared process, or leaving something behind."""

from __future__ import annotations

import builtins
import decimal
import gc
import importlib.abc
import locale
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any, cast

from penstock.handlers.context import Context

_kept: list[Any] = []


def state(context: Context) -> dict[str, Any]:
    """Return the state of the process as seen by another function."""
    mask = os.umask(0o022)
    os.umask(mask)
    return {
        "directory": str(Path.cwd()),
        "mask": mask,
        "variables": {name: os.environ.get(name) for name in ("HOME", "LEAKED", "TZ")},
        "zone": time.tzname,
        "path": sys.path,
        "open": builtins.open.__module__,
        "timeout": socket.getdefaulttimeout(),
        "precision": decimal.getcontext().prec,
        "recursion": sys.getrecursionlimit(),
        "collects": gc.isenabled(),
        "locale": locale.setlocale(locale.LC_ALL),
        "filters": len(warnings.filters),
        "core": resource.getrlimit(resource.RLIMIT_FSIZE),
        "nice": os.nice(0),
        "handlers": [str(signal.getsignal(number)) for number in (signal.SIGCHLD, signal.SIGPIPE)],
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "log": [logging.root.level, logging.root.manager.disable, len(logging.root.handlers)],
        "traced": sys.gettrace() is not None,
        "pid": os.getpid(),
    }


def tamper(context: Context) -> None:
    """Change all of the state."""
    os.chdir("/")
    os.umask(0o777)
    os.environ |= {"LEAKED": "yes", "TZ": "Pacific/Auckland"}
    del os.environ["HOME"]
    time.tzset()
    sys.path.insert(0, "/leaked")
    builtins.open = cast("Any", tamper)
    socket.setdefaulttimeout(0.001)
    decimal.getcontext().prec = 3
    sys.setrecursionlimit(200)
    gc.disable()
    locale.setlocale(locale.LC_ALL, "C.UTF-8" if locale.setlocale(locale.LC_ALL) == "C" else "C")
    warnings.simplefilter("error")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, resource.RLIM_INFINITY))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    logging.disable(logging.CRITICAL)
    logging.root.handlers = []
    sys.settrace(lambda *_: None)
    os.getpid = lambda: 1


def tamper_for_good(context: Context) -> None:
    """Change the environment, and remove what would make its time zone effective again."""
    os.environ["LEAKED"] = "yes"
    del time.tzset


class LibraryWarning(UserWarning):
    """A warning of a library."""


class LibraryFinder(importlib.abc.MetaPathFinder):
    """Finds nothing."""


def load_a_library(context: Context) -> None:
    """Do what modules such as numpy and six do when they are imported."""
    warnings.filterwarnings("ignore", message="numpy.dtype size changed")
    warnings.simplefilter("always", LibraryWarning)
    sys.meta_path.append(LibraryFinder())


def leak_descriptors(context: Context) -> None:
    """Open descriptors until none is free, or very many are open."""
    try:
        while len(_kept) < 3_000:
            _kept.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return


def leak_many_threads(context: Context) -> None:
    for _ in range(100):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()


def leak_memory(context: Context) -> None:
    _kept.append(bytearray(b"x") * (200 << 20))


def shout(context: Context) -> None:
    raise ValueError("x" * 50_000_000)


def shout_behind(context: Context) -> None:
    """Raise an error with the long text in the cause."""
    try:
        shout(context)
    except ValueError as error:
        raise RuntimeError("short") from error
