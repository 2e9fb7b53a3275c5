"""One command of Penstock, with its source files counted: ``python -m scripts.tour search mill``.

The number of files whose functions ran, and of modules loaded, is the last line of standard error. Only the
process of the command is seen: two small files are indexed in it, a large folder in those of a worker.
"""

from __future__ import annotations

import os
import sys
import threading
from types import CodeType, FrameType
from typing import NoReturn

import penstock
from penstock.__main__ import main

PACKAGE = os.path.dirname(penstock.__file__) + os.sep  # noqa: PTH120 - compared with names of code

_leave = os._exit
_ran: set[CodeType] = set()


def _record(frame: FrameType, event: str, _: object) -> None:
    code = frame.f_code
    if event == "call" and code not in _ran and _is_ours(code) and not _at_import(frame):
        _ran.add(code)


def _is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<")


def _at_import(frame: FrameType) -> bool:
    """True for a call from the body of a module: it runs at every import."""
    above: FrameType | None = frame
    while above is not None:
        if above.f_code.co_name == "<module>" and above.f_code.co_filename.startswith(PACKAGE):
            return True
        above = above.f_back
    return False


def _report(status: int) -> NoReturn:
    sys.setprofile(None)
    files = {ran.co_filename for ran in _ran}
    loaded = sum(name.partition(".")[0] == "penstock" for name in sys.modules)
    print(f"files {len(files)} loaded {loaded}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    _leave(status)


if __name__ == "__main__":
    os._exit = _report  # a command ends by it
    sys.argv[0] = "penstock"
    threading.setprofile(_record)
    sys.setprofile(_record)
    try:
        main()
    finally:
        _report(0)
