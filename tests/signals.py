"""Signal dispositions of processes started by tests."""

from __future__ import annotations

import signal

HEARD = (signal.SIGINT, signal.SIGHUP)


def hear() -> None:
    """Reset signals inherited as ignored, as from ``nohup make test &``; for ``preexec_fn``."""
    for number in HEARD:
        signal.signal(number, signal.SIG_DFL)


def ignore() -> None:
    """Ignore both, as a shell does for background jobs of a script, and nohup; for ``preexec_fn``."""
    for number in HEARD:
        signal.signal(number, signal.SIG_IGN)
