"""Routes that queue work: files and folders, notes, and calls of functions."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from penstock.errors import NotAllowed
from penstock.http.problems import described, respond, respond_values
from penstock.http.request_bodies import CallBody, ContentBody, IndexBody
from penstock.http.request_context import Reader, Sender, Writer, reads, writes
from penstock.service.functions import FunctionRecords
from penstock.service.job_views import CallRecord, SubmitRecord
from penstock.service.requests import Receipt

router = APIRouter(tags=["index"])

QUEUED = {
    "job_id": "job_0660f5b1a2c3d4e5f60718",
    "status": "pending",
    "queue_position": 0,
    "queue_length": 1,
    "message": "Job queued",
    "dedupe_hit": False,
    "run": 1,
    "run_at": None,
}
ACCEPTED = described(SubmitRecord, 202, refused=(404,), example=QUEUED, value=True)
_Force = Annotated[bool, Query(description="Run a duplicate, and index unchanged files again.")]
AllowExternal = Annotated[
    bool, Query(description="Allow a path outside the roots; counts only if the server's settings allow it.")
]


@router.post(
    "/index",
    operation_id="paths_index",
    status_code=202,
    responses=ACCEPTED,
    summary="Index a file or folder",
)
@writes
def index(
    sender: Writer, body: IndexBody, force: _Force = False, allow_external: AllowExternal = False
) -> Response:
    """Queue a file or folder. A request that is pending or running already gets the same job.

    Documents whose files have vanished from the folder are removed.
    """
    return _index(sender, body, {"force": force}, allow_external)


@router.post(
    "/index/add",
    operation_id="paths_add",
    status_code=202,
    responses=ACCEPTED,
    summary="Add a file or folder",
)
@writes
def add(
    sender: Writer, body: IndexBody, force: _Force = False, allow_external: AllowExternal = False
) -> Response:
    """Queue a file or folder: documents are added and updated, and none is removed."""
    return _index(sender, body, {"force": force, "operation": "add"}, allow_external)


def _index(sender: Sender, body: IndexBody, options: dict[str, Any], allow_external: bool) -> Response:
    sender.check_jobs(body.after)
    path = sender.policy.allowed(body.folder_path, allow_external=allow_external)
    sender.policy.require_hosts(body.hosts)
    given = body.model_dump(exclude={"folder_path", "patterns"})
    if body.limit is not None and sender.principal.bound:
        placement = sender.documents.placement(
            path, tenant_id=body.tenant_id, branch=body.branch, project=body.project
        )
        given["limit"] = sender.limit(body.limit, placement.tenant_id or sender.tenant(None))
    receipt = sender.documents.index(path, include=body.patterns, **given, **options)
    return accepted(sender, receipt)


def accepted(sender: Sender, receipt: Receipt) -> Response:
    """The answer to a submission."""
    if sender.wants_values:
        return respond_values(receipt, 202)
    return respond(sender.shared.job_records.receipt(receipt), 202)


@router.post("/content", operation_id="notes_add", status_code=202, responses=ACCEPTED, summary="Add a note")
@writes
def content(sender: Writer, body: ContentBody) -> Response:
    """Queue a note. Equal texts are one note."""
    receipt = sender.shared.documents.note(
        body.content,
        tag=body.tag,
        tenant_id=sender.tenant(body.tenant_id),
        collection=body.collection,
        branch=body.branch,
    )
    return accepted(sender, receipt)


@router.get(
    "/functions",
    operation_id="functions_list",
    responses=described(FunctionRecords),
    summary="List functions",
    tags=["functions"],
)
@reads
def functions(sender: Reader) -> Response:
    """List the functions of the application that the server was started with."""
    return respond(sender.shared.functions.known())


@router.post(
    "/functions/{name}",
    operation_id="functions_call",
    status_code=202,
    responses=described(CallRecord, 202, refused=(404,), value=True),
    summary="Call a function",
    tags=["functions"],
)
@writes
def call(
    sender: Writer,
    name: Annotated[str, Path(description="Name of a function.", max_length=255)],
    body: CallBody,
) -> Response:
    """Queue a call of a function. Its return value is the `result` of the job."""
    sender.check_jobs(body.after)
    tenant = sender.tenant(body.tenant_id)
    given = body.model_dump(exclude={"payload", "entity", "tenant_id", "timeout_s"})
    given["limit"] = sender.limit(body.limit, tenant)
    if (
        body.limit is not None
        and sender.principal.bound
        and sender.shared.functions.functions.get(name).limit
    ):
        raise NotAllowed(
            f"limit: calls of {name[:80]!r} count for the limit of the function",
            remedy="Leave out limit, or use a key without tenants.",
        )
    receipt = sender.shared.functions.call(
        name,
        body.payload,
        entity=(body.entity[0], body.entity[1]) if body.entity else None,
        tenant_id=tenant,
        timeout=body.timeout_s,
        **given,
    )
    if sender.wants_values:
        return respond_values(receipt, 202)
    return respond(sender.shared.job_records.call_receipt(receipt), 202)
