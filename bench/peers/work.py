"""The work itself, the same for every contender."""

from __future__ import annotations

import hashlib
import os
import socket
import time
from functools import cache
from pathlib import Path

from bench.peers.contract import Payload, place
from bench.peers.marks import Marks

STAYS_S = 3_600.0
"""How long a job takes that waits to be killed."""


def run(payload: Payload) -> int:
    kind = payload["kind"]
    if kind == "noop":
        _marks(os.getpid()).set(payload["number"])
    elif kind == "moment":
        _tell(time.monotonic())
    elif kind == "stay":
        _stay()
    return 1


def listen(directory: Path) -> socket.socket:
    """Where the moments arrive."""
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ear.bind(_address(directory))
    return ear


def _address(directory: Path) -> str:
    """No file: the path of one may have a hundred characters at most."""
    return "\0penstock-peers-" + hashlib.sha256(bytes(directory)).hexdigest()[:24]


@cache
def _marks(_process: int) -> Marks:
    return Marks(place())


@cache
def _voice() -> socket.socket:
    voice = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    voice.connect(_address(place()))
    return voice


def _tell(moment: float) -> None:
    _voice().send(str(moment).encode())


def _stay() -> None:
    """The first to run it stays until it is killed; who runs it again only says so."""
    try:
        (place() / "stayed").touch(exist_ok=False)
    except FileExistsError:
        _tell(time.monotonic())
        return
    _tell(time.monotonic())
    time.sleep(STAYS_S)
