"""The body of an upload: received piece by piece, written in threads, with limits on its time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from anyio import to_thread
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from penstock import clock
from penstock.errors import InvalidRequest, PenstockError, RequestTooSlow
from penstock.http.library_bodies import LibraryUploadFields
from penstock.http.multipart import MultipartReader, PartBegins, PartData, boundary_of
from penstock.http.problems import problem_response
from penstock.http.request_bodies import UploadFields
from penstock.service.shares import Taker
from penstock.service.uploads import Upload, Uploads, refuse_name

SILENCE_S = 30.0
"""Time in which the next piece of a body has to arrive."""
LEAST_RATE = 4 * 1024
"""Least bytes a second, over ``SILENCE_S``: a slower sender would hold the place of others for hours. A modem
of 56 kbit/s is above."""
WHOLE_S = 3600.0
"""Time for a whole body."""
AT_ONCE = 1 << 20
"""Bytes that are written at once."""
MOST_FIELD = 64 * 1024
DRAINED_BYTES, DRAINED_S = 16 << 20, 5.0
"""Bytes and time that are read after a refusal: a sender may look for the answer only after sending."""
LISTS = frozenset(["patterns", "exclude"])
F = TypeVar("F", bound=UploadFields | LibraryUploadFields)


class UploadStream(Generic[F]):
    """Reads one request. ``ended``: the whole body was read."""

    def __init__(self, request: Request, uploads: Uploads, query: F, taker: Taker) -> None:
        self._receive = request.receive
        self._headers = request.headers
        self._uploads = uploads
        self._query = query
        self._taker = taker
        self._waited_s, self._arrived = 0.0, 0
        """Time waited for the body, and its bytes, since the last check of the rate."""
        self._upload: Upload | None = None
        self._parts: dict[str, Any] = {}
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self.ended = False

    async def read(self) -> Upload:
        """Receive the file. The caller closes this stream in any case."""
        content_type = self._headers.get("content-type", "")
        try:
            async with asyncio.timeout(WHOLE_S):
                boundary = boundary_of(content_type)
                await (self._read_form(boundary) if boundary is not None else self._read_raw())
        except TimeoutError:
            raise RequestTooSlow("the file did not arrive in time") from None
        assert self._upload is not None
        await self._flush()
        return self._upload

    def fields(self) -> F:
        """The options: those of the query, replaced by those of the form."""
        given = self._query.model_dump(exclude_unset=True)
        try:
            found: F = type(self._query).model_validate({**given, **self._parts})  # type: ignore[assignment]
            return found
        except ValidationError as error:
            wrong = [{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_url=False)]
            raise RequestValidationError(wrong) from None

    async def drain(self) -> None:
        """Read a little more of a refused body."""
        left = DRAINED_BYTES
        try:
            async with asyncio.timeout(DRAINED_S):
                while left > 0 and (piece := await self._next()) is not None:
                    left -= len(piece)
        except (TimeoutError, RequestTooSlow):
            return

    async def close(self) -> None:
        """Remove the received data, unless already moved to the final path."""
        if self._upload is not None:
            await to_thread.run_sync(self._upload.discard)

    async def _next(self) -> bytes | None:
        """The next piece of the body; None at its end."""
        if self.ended:
            return None
        began = clock.elapsed_s()
        try:
            message = await asyncio.wait_for(self._receive(), SILENCE_S)
        except TimeoutError:
            raise RequestTooSlow(f"nothing of the body arrived for {SILENCE_S:g} seconds") from None
        if message["type"] == "http.disconnect":
            self.ended = True
            raise RequestTooSlow("the sender left before the body was complete")
        self.ended = not message.get("more_body")
        piece: bytes = message.get("body", b"")
        self._check_rate(clock.elapsed_s() - began, len(piece))
        return piece

    def _check_rate(self, waited_s: float, arrived: int) -> None:
        """Refuse a sender who keeps the server waiting. The time that the server takes does not count."""
        self._waited_s += waited_s
        self._arrived += arrived
        if self._waited_s < SILENCE_S or self.ended:
            return
        if self._arrived < LEAST_RATE * self._waited_s:
            raise RequestTooSlow(
                f"{self._arrived:,} bytes of the body arrived in {self._waited_s:.0f} seconds, "
                f"and the least is {LEAST_RATE:,} a second",
                remedy="Send the file over a faster connection, or in parts.",
            )
        self._waited_s, self._arrived = 0.0, 0

    async def _read_raw(self) -> None:
        name = self._query.name
        if name is None:
            raise InvalidRequest("name: missing", remedy="Name the file, as in ?name=mill.pdf.")
        await self._begin(name, self._stated())
        while (piece := await self._next()) is not None:
            await self._write(piece)

    async def _read_form(self, boundary: bytes) -> None:
        reader, field = MultipartReader(boundary), ""
        while (piece := await self._next()) is not None:
            for event in reader.feed(piece):
                if isinstance(event, PartBegins):
                    field = await self._part(event)
                elif isinstance(event, PartData) and field == "file":
                    await self._write(event.data)
                elif isinstance(event, PartData):
                    self._add(field, event.data)
        if not reader.complete:
            raise InvalidRequest("the body ends inside a part")
        if self._upload is None:
            raise InvalidRequest("file: missing", remedy="Send the file as a part named file.")
        self._decode()

    async def _part(self, part: PartBegins) -> str:
        if part.name == "file":
            if self._upload is not None:
                raise InvalidRequest("file: given twice", remedy="Send one file in each request.")
            if (name := self._query.name or part.filename) is None:
                raise InvalidRequest("file: the part has no filename")
            await self._begin(name, None)
        elif part.name in LISTS:
            self._parts.setdefault(part.name, []).append(b"")
        elif part.name in self._parts:
            raise InvalidRequest(f"{part.name[:80]}: given twice")
        else:
            self._parts[part.name] = b""
        return part.name

    def _add(self, field: str, data: bytes) -> None:
        if field in LISTS:
            self._parts[field][-1] += data
        else:
            self._parts[field] += data
        if sum(map(_size, self._parts.values())) > MOST_FIELD:
            raise InvalidRequest(f"the fields of the form have more than {MOST_FIELD:,} bytes")

    def _decode(self) -> None:
        for name, value in self._parts.items():
            try:
                self._parts[name] = (
                    [each.decode() for each in value] if isinstance(value, list) else value.decode()
                )
            except UnicodeDecodeError:
                raise InvalidRequest(f"{name[:80]}: not UTF-8") from None

    def _stated(self) -> int | None:
        stated = self._headers.get("content-length", "")
        return int(stated) if stated.isdecimal() and len(stated) <= 20 else None

    async def _begin(self, name: str, size: int | None) -> None:
        refuse_name(name)
        self._upload = await to_thread.run_sync(self._uploads.begin, name, size, self._taker)

    async def _write(self, data: bytes) -> None:
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= AT_ONCE:
            await self._flush()

    async def _flush(self) -> None:
        assert self._upload is not None
        data, self._waiting, self._waiting_bytes = b"".join(self._waiting), [], 0
        if data:
            await to_thread.run_sync(self._upload.write, data)


async def received_upload(
    stream: UploadStream[F], finish: Callable[[Upload, F], Awaitable[Response]]
) -> Response:
    """Receive a file and answer with the result of ``finish``, or with the refusal."""
    try:
        received = await stream.read()
        return await finish(received, stream.fields())
    except PenstockError as error:
        await stream.drain()
        # What is left of the body would be taken for the next request.
        headers = {} if stream.ended else {"Connection": "close"}
        return problem_response(error, headers=headers)
    finally:
        await asyncio.shield(stream.close())


def _size(value: bytes | list[bytes]) -> int:
    return len(value) if isinstance(value, bytes) else sum(map(len, value))
