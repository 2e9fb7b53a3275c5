"""Routes of files: pages of documents, their pictures, and uploads."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from penstock.catalog.values import Source
from penstock.http.answers import described, respond
from penstock.http.index_routes import QUEUED
from penstock.http.request_bodies import IndexFields, UploadFields
from penstock.http.request_context import Reader, Sender, Writer
from penstock.http.thread_pools import reads, writes
from penstock.http.upload_stream import UploadStream, received_upload
from penstock.service.pages import MAX_WIDTH, WIDTHS, PageFrames, ShownPage
from penstock.service.uploads import Upload, UploadRecord

router = APIRouter(tags=["documents"])

_WIDTHS = f"{', '.join(map(str, WIDTHS[:-1]))} or {MAX_WIDTH}"
SourceId = Annotated[str, Path(description="Id of a document.", max_length=512)]
PageNumber = Annotated[int, Path(description="Number of a page, from 1.", ge=1, le=10_000_000)]
Width = Annotated[
    int,
    Query(description=f"Least width in pixels; the picture has the next of {_WIDTHS}.", ge=1, le=MAX_WIDTH),
]
PICTURE = described(ShownPage, refused=(404,)) | {
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
def page(sender: Reader, source_id: SourceId, page: PageNumber) -> Response:
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
    responses=PICTURE,
    response_class=Response,
    summary="Draw a page",
)
async def image(sender: Reader, source_id: SourceId, page: PageNumber, width: Width = 900) -> Response:
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
async def frames(sender: Reader, source_id: SourceId, page: PageNumber) -> Response:
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
