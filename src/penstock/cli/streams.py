"""Closed or full standard streams, and too many open files, as one-line errors."""

from __future__ import annotations

import errno
import io
import os
import sys

from penstock.cli.exit_codes import PIPE_CLOSED, REFUSED, exit_code
from penstock.cli.output import drop_output, emit_error
from penstock.errors import DiskFull, OutputFailed, PenstockError, TooManyFiles

_TOO_MANY = (errno.EMFILE, errno.ENFILE)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NOT_WRITTEN = (*_FULL, errno.EIO, errno.EBADF)


def mend_standard_streams() -> None:
    """Open closed standard streams on /dev/null; refuse to run without standard output.

    A store opened while descriptor 0, 1 or 2 is free would get that number, and everything printed with it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    no_output = sys.stdout is None
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 - for as long as the process lives
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a character gets its number, not a traceback.
            stream.reconfigure(errors="backslashreplace")
    if no_output:
        emit_error(OutputFailed("standard output is closed"), as_json=False)
        raise SystemExit(REFUSED)


def print_error(error: PenstockError | OSError | ImportError, *, as_json: bool) -> int | None:
    """Print a known error as one line and return its exit code; None for a bug of Penstock itself."""
    if isinstance(error, BrokenPipeError):
        drop_output()
        return PIPE_CLOSED
    known = _known(error)
    if known is None:
        return None
    if isinstance(known, TooManyFiles):
        # Printing may import modules, which takes a descriptor; nothing reads standard input any more.
        os.close(0)
    try:
        emit_error(known, as_json=as_json)
    except OutputFailed as failure:
        emit_error(failure, as_json=False)
    return exit_code(known)


def _known(error: PenstockError | OSError | ImportError) -> PenstockError | None:
    if os.strerror(errno.EMFILE) in str(error) or getattr(error, "errno", None) in _TOO_MANY:
        # The remedy is the same whichever file could not be opened.
        return error if isinstance(error, TooManyFiles) else TooManyFiles(_one_line(error))
    if isinstance(error, PenstockError):
        return error
    if isinstance(error, OSError) and error.errno in _NOT_WRITTEN and error.filename is None:
        if _raised_by_click(error):
            drop_output()
            return OutputFailed(f"standard output cannot be written ({error.strerror})")
        if error.errno in _FULL:
            return DiskFull(f"a file cannot be written ({error.strerror})")
    return None


def _raised_by_click(error: OSError) -> bool:
    """Check whether click was writing, a help text perhaps: commands print by functions of our own."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] == "click"


def _one_line(error: BaseException) -> str:
    return " ".join((error.message if isinstance(error, PenstockError) else str(error)).split())
