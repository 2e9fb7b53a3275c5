"""Multipart bodies (RFC 7578), read part by part while they arrive. Pure: bytes in, events out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from penstock.errors import InvalidRequest
from penstock.named_tuple import NamedTuple

MOST_PARTS = 64
MOST_HEADER = 8 * 1024
_BOUNDARY = re.compile(
    r"""multipart/form-data\s*;(?:.*;)?\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))""", re.I
)
_PARAMETER = re.compile(r""";\s*(name|filename)=(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))""", re.I)


class PartBegins(NamedTuple):
    """A part begins. ``filename``: as the sender gives it, None for a field."""

    name: str
    filename: str | None


class PartData(NamedTuple):
    """Bytes of the part that began last."""

    data: bytes


class BodyEnds(NamedTuple):
    """The last part has ended. Data after the last part is ignored."""


Event = PartBegins | PartData | BodyEnds


def is_upload(content_type: str) -> bool:
    """Tell whether a body is a file, or a form with one."""
    return content_type.lower().startswith(("multipart/form-data", "application/octet-stream"))


def boundary_of(content_type: str) -> bytes | None:
    """The boundary of a multipart body; None for another type of content."""
    if not content_type.lower().startswith("multipart/form-data"):
        return None
    found = _BOUNDARY.match(content_type)
    if found is None:
        raise InvalidRequest("Content-Type: multipart/form-data needs a boundary of at most 70 characters")
    return (found[1] or found[2]).encode("latin-1")


class MultipartReader:
    """Splits a body into parts. Buffers at most a header or a boundary."""

    def __init__(self, boundary: bytes) -> None:
        # The first boundary may stand at the very beginning, without a line break before it.
        self._buffer = b"\r\n"
        self._mark = b"\r\n--" + boundary
        self._parts = 0
        self._state = "before"

    @property
    def complete(self) -> bool:
        """True after the last boundary."""
        return self._state == "after"

    def feed(self, data: bytes) -> Iterator[Event]:
        """Take the next bytes of the body."""
        self._buffer += data
        while self._state != "after":
            step = self._header() if self._state == "header" else self._content()
            if step is None:
                return
            yield from step
        self._buffer = b""

    def _content(self) -> list[Event] | None:
        """Read up to the next boundary; bytes before the first one do not count."""
        found: list[Event] = []
        at = self._buffer.find(self._mark)
        if at < 0:
            # The end may be the beginning of a boundary.
            safe = len(self._buffer) - len(self._mark) + 1
            if safe <= 0:
                return None
            if self._state == "part":
                found.append(PartData(self._buffer[:safe]))
            self._buffer = self._buffer[safe:]
            return found or None
        after = at + len(self._mark)
        ending = self._buffer[after : after + 2]
        if len(ending) < 2:
            return None
        if self._state == "part" and at:
            found.append(PartData(self._buffer[:at]))
        self._buffer = self._buffer[after + 2 :]
        if ending == b"--":
            self._state = "after"
            found.append(BodyEnds())
        elif ending == b"\r\n":
            self._state = "header"
            self._parts += 1
            if self._parts > MOST_PARTS:
                raise InvalidRequest(f"the body has more than {MOST_PARTS} parts")
        else:
            raise InvalidRequest("the body is not valid multipart: there is text after a boundary")
        return found

    def _header(self) -> list[Event] | None:
        at = self._buffer.find(b"\r\n\r\n")
        if at < 0 or at > MOST_HEADER:
            if len(self._buffer) > MOST_HEADER:
                raise InvalidRequest(f"a part of the body has a header of more than {MOST_HEADER:,} bytes")
            return None
        lines = self._buffer[:at].decode("utf-8", "replace").split("\r\n")
        self._buffer = self._buffer[at + 4 :]
        self._state = "part"
        for line in lines:
            label, _, value = line.partition(":")
            if label.strip().lower() == "content-disposition":
                given = {key.lower(): _unquoted(text, bare) for key, text, bare in _PARAMETER.findall(value)}
                if "name" in given:
                    return [PartBegins(given["name"], given.get("filename"))]
        raise InvalidRequest("a part of the body has no name")


def _unquoted(text: str, bare: str) -> str:
    # Browsers write %22 for a quote, other senders a backslash.
    return re.sub(r"\\(.)", r"\1", text).replace("%22", '"') if text else bare
