"""Files over HTTP: multipart bodies, uploads written while they arrive, and the routes of files and pages."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Path, Query
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from penstock import clock
from penstock.catalog.values import Source
from penstock.errors import InvalidRequest, PenstockError, RequestTooSlow
from penstock.http.index_routes import QUEUED
from penstock.http.problems import described, problem_response, respond
from penstock.http.request_bodies import IndexFields, LibraryUploadFields, UploadFields
from penstock.http.request_context import Reader, Sender, Writer, reads, writes
from penstock.service.pages import MAX_WIDTH, WIDTHS, PageFrames, ShownPage
from penstock.service.shares import Taker
from penstock.service.uploads import Upload, UploadRecord, Uploads, refuse_name

MOST_PARTS = 64
_MOST_HEADER = 8 * 1024
_BOUNDARY = re.compile(
    r"""multipart/form-data\s*;(?:.*;)?\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))""", re.I
)
_PARAMETER = re.compile(r""";\s*(name|filename)=(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))""", re.I)


class PartBegins(msgspec.Struct, frozen=True):
    """A part begins. ``filename``: as the sender gives it, None for a field."""

    name: str
    filename: str | None


class PartData(msgspec.Struct, frozen=True):
    """Bytes of the part that began last."""

    data: bytes


class BodyEnds(msgspec.Struct, frozen=True):
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
        if at < 0 or at > _MOST_HEADER:
            if len(self._buffer) > _MOST_HEADER:
                raise InvalidRequest(f"a part of the body has a header of more than {_MOST_HEADER:,} bytes")
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


SILENCE_S = 30.0
"""Time in which the next piece of a body has to arrive."""
_LEAST_RATE = 4 * 1024
"""Least bytes a second, over ``SILENCE_S``: a slower sender would hold the place of others for hours. A modem
of 56 kbit/s is above."""
_WHOLE_S = 3600.0
"""Time for a whole body."""
_AT_ONCE = 1 << 20
"""Bytes that are written at once."""
_MOST_FIELD = 64 * 1024
_DRAINED_BYTES, _DRAINED_S = 16 << 20, 5.0
"""Bytes and time that are read after a refusal: a sender may look for the answer only after sending."""
_LISTS = frozenset(["patterns", "exclude"])
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
            async with asyncio.timeout(_WHOLE_S):
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
        left = _DRAINED_BYTES
        try:
            async with asyncio.timeout(_DRAINED_S):
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
        if self._arrived < _LEAST_RATE * self._waited_s:
            raise RequestTooSlow(
                f"{self._arrived:,} bytes of the body arrived in {self._waited_s:.0f} seconds, "
                f"and the least is {_LEAST_RATE:,} a second",
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
        elif part.name in _LISTS:
            self._parts.setdefault(part.name, []).append(b"")
        elif part.name in self._parts:
            raise InvalidRequest(f"{part.name[:80]}: given twice")
        else:
            self._parts[part.name] = b""
        return part.name

    def _add(self, field: str, data: bytes) -> None:
        if field in _LISTS:
            self._parts[field][-1] += data
        else:
            self._parts[field] += data
        if sum(map(_size, self._parts.values())) > _MOST_FIELD:
            raise InvalidRequest(f"the fields of the form have more than {_MOST_FIELD:,} bytes")

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
        if self._waiting_bytes >= _AT_ONCE:
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


router = APIRouter(tags=["documents"])

_WIDTHS = f"{', '.join(map(str, WIDTHS[:-1]))} or {MAX_WIDTH}"
_SourceId = Annotated[str, Path(description="Id of a document.", max_length=512)]
_PageNumber = Annotated[int, Path(description="Number of a page, from 1.", ge=1, le=10_000_000)]
_Width = Annotated[
    int,
    Query(description=f"Least width in pixels; the picture has the next of {_WIDTHS}.", ge=1, le=MAX_WIDTH),
]
_PICTURE = described(ShownPage, refused=(404,)) | {
    200: {
        "description": "The picture.",
        "content": {"image/png": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.get(
    "/documents/{source_id}/pages/{page}",
    operation_id="pages_get",
    responses=described(ShownPage, refused=(404,)),
    summary="Show a page",
)
@reads
def page(sender: Reader, source_id: _SourceId, page: _PageNumber) -> Response:
    """Show the text of a page as it was read, with engine and confidence where it was recognized."""
    own = sender.shared.document_records.own(source_id, sender.principal.tenants)
    place = own.place
    found = sender.shared.documents.page(
        own.source_id, page, tenant_id=place.tenant_id, collection=place.collection, branch=place.branch
    )
    return respond(found)


@router.get(
    "/documents/{source_id}/pages/{page}/image",
    operation_id="pages_get_image",
    responses=_PICTURE,
    response_class=Response,
    summary="Draw a page",
)
async def image(sender: Reader, source_id: _SourceId, page: _PageNumber, width: _Width = 900) -> Response:
    """Draw a page of a PDF or picture in gray, from its file as it was indexed.

    It is as wide as the next of three widths, unless the page is smaller.
    """
    own, drawn = await _find_picture(sender, source_id, page, width)
    if drawn is None:
        images, key = sender.shared.page_images, sender.taker.key
        drawn = await sender.shared.drawings.run(key, lambda: images.png(own, page, width))
    return Response(drawn, media_type="image/png")


@reads
def _find_picture(sender: Sender, source_id: str, page: int, width: int) -> tuple[Source, bytes | None]:
    """The document, and the picture of its page if it was drawn before."""
    own = sender.shared.document_records.own(source_id, sender.principal.tenants)
    return own, sender.shared.page_images.kept(own, page, width)


@router.get(
    "/documents/{source_id}/pages/{page}/frames",
    operation_id="pages_get_frames",
    responses=described(
        PageFrames,
        refused=(404,),
        example={
            "source_id": "01a1ed58",
            "page": 1,
            "frames": [{"chunk_id": "c1", "boxes": [[0.1, 0.12, 0.9, 0.4]]}],
        },
    ),
    summary="Find chunks on the picture of a page",
)
async def frames(sender: Reader, source_id: _SourceId, page: _PageNumber) -> Response:
    """Find the chunks of a PDF page on its picture, by the words of its text layer."""

    def find() -> PageFrames:
        own = sender.shared.document_records.own(source_id, sender.principal.tenants)
        return sender.shared.page_images.frames(own, page)

    return respond(await sender.shared.drawings.run(sender.taker.key, find))


_FILE = {"type": "string", "format": "binary"}
_OPTIONS = IndexFields.model_json_schema()["properties"]
UPLOADED = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": _FILE, **_OPTIONS},
                }
            },
            "application/octet-stream": {"schema": _FILE},
        },
    }
}


@router.post(
    "/files",
    operation_id="files_upload",
    status_code=202,
    responses=described(
        UploadRecord, 202, example={**QUEUED, "path": "/srv/uploads/acme/docs/main/mill.pdf", "size": 4096}
    ),
    openapi_extra=UPLOADED,
    summary="Upload a file",
    tags=["index"],
)
async def upload(request: Request, sender: Writer, query: Annotated[UploadFields, Query()]) -> Response:
    """Receive a file and queue it. The same name in the same collection replaces the file before.

    The body is the file itself, with its `name` in the query, or a form with the part `file` and the options
    as further parts.
    """
    stream = UploadStream(request, sender.shared.uploads, query, sender.taker)
    return await received_upload(stream, lambda received, fields: _finish(sender, received, fields))


@writes
def _finish(sender: Sender, received: Upload, fields: UploadFields) -> Response:
    tenant = sender.tenant(fields.tenant_id)
    sender.check_jobs(fields.after)
    given: dict[str, Any] = fields.model_dump(exclude={"name", "patterns", "tenant_id"})
    given["limit"] = sender.limit(fields.limit, tenant)
    return respond(received.finish(tenant_id=tenant, include=fields.patterns, **given), 202)
