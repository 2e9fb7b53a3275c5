"""A stream of server-sent events of a live server."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from tests.http.live_server import WAIT_S, LiveServer


class Event(NamedTuple):
    number: int
    kind: str
    data: Any


class EventStream:
    """An open stream; ``close`` it, or use it as a context manager."""

    def __init__(self, server: LiveServer, path: str, headers: Mapping[str, str] | None = None) -> None:
        host, _, port = server.address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=WAIT_S)
        lines = [f"GET {path} HTTP/1.1", f"Host: {server.address}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        self._file = self.socket.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        self.headers: dict[str, str] = {}
        while line := self._file.readline().strip():
            name, _, value = line.decode().partition(": ")
            self.headers[name.lower()] = value
        self._chunks = self._lines()

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def _lines(self) -> Iterator[str]:
        """Lines of the body, which comes in chunks; it ends with the stream."""
        rest = ""
        while size := int(self._file.readline() or b"0", 16):
            rest += self._file.read(size + 2)[:-2].decode()
            *complete, rest = rest.split("\n")
            yield from complete

    def events(self) -> Iterator[Event]:
        fields: dict[str, str] = {}
        for line in self._chunks:
            name, _, value = line.partition(": ")
            if name:
                fields[name] = value
            elif not line:
                if "event" in fields:
                    yield Event(int(fields["id"]), fields["event"], json.loads(fields["data"]))
                fields = {}

    def until(self, reached: Callable[[Event], bool]) -> list[Event]:
        """Read until an event; return all up to it."""
        found: list[Event] = []
        for event in self.events():
            found.append(event)
            if reached(event):
                return found
        raise AssertionError(found)
