"""What a contender has to offer, and what every process of a session is told."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

URL = "BENCH_PEER_URL"
"""Where the store is: a database's URL, or for SQLite a directory."""
PLACE = "BENCH_PEER_PLACE"
"""The session's own directory, known to the one who measures and to the workers."""

AT_ONCE = 100

Payload = dict[str, Any]
Command = tuple[str, ...]


class Side:
    """One contender on an empty store. ``one`` and ``many`` return once the library calls it durable.

    All calls are coroutines, because half of the libraries have no others.
    """

    def __init__(self) -> None:
        self.url = os.environ[URL]

    async def prepare(self) -> None:
        """Make tables, connect: never timed."""

    async def one(self, payload: Payload) -> None:
        raise NotImplementedError

    async def many(self, payloads: Sequence[Payload]) -> None:
        """By the library's bulk call; without one, one after another."""
        for payload in payloads:
            await self.one(payload)

    async def close(self) -> None:
        """Leave nothing unsent."""

    def workers(self, count: int) -> list[Command]:
        """The commands that start so many worker processes."""
        raise NotImplementedError


class GatheringSide(Side):
    """A library without a bulk call whose calls can wait together."""

    async def many(self, payloads: Sequence[Payload]) -> None:
        for start in range(0, len(payloads), AT_ONCE):
            await asyncio.gather(*map(self.one, payloads[start : start + AT_ONCE]))


def module(name: str, *arguments: str) -> Command:
    return (sys.executable, "-m", name, *arguments)


def store_url() -> str:
    return os.environ[URL]


def place() -> Path:
    return Path(os.environ[PLACE])
