"""Audit of a server: one line for each action of an administrator, in a file of the state directory."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec

from penstock import clock
from penstock.state_directory import make_private

FILE = "audit.jsonl"
log = logging.getLogger("penstock.audit")


class ActionLog:
    """The audit file. A line has the time, the key, the action and its object."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / FILE

    def record(self, by: str, action: str, **about: str | None) -> None:
        """Append one line. An action that was carried out is not undone when its line cannot be written."""
        named = {name: value for name, value in about.items() if value is not None}
        line = msgspec.json.encode({"at": clock.now(), "by": by, "action": action} | named)
        try:
            make_private(self._path.parent)
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, line + b"\n")
            finally:
                os.close(file)
        except OSError as error:
            log.error("%s cannot be written (%s): %s", self._path, error.strerror, line.decode())  # noqa: TRY400
            return
        log.info("%s by key %s: %s", action, by, named)
