"""The dashboard's files, with security headers against other scripts, and the routes of the server's health.

Each file is a route of its own, so no path of a request is ever joined to a folder.

The map of the scripts is here, because their size is limited. Pages (``js/pages``), and their questions:

``overview``: Does it flow? When is all of it searchable? Which lane is slow? What failed? Who works?
``jobs``: What waits, runs, ended? Whose is it? Why is it held? What did I ask today? Which may I stop?
``job``: How far, how long yet? What happened so far? Which files failed and why? What exactly was asked?
``failures``: How many causes? Which is new? Is it over? What is the remedy? Is a retry safe?
``documents``: What is searchable? What is partial? What was left out? What is rebuilt? Where is my file?
``document``: Is it searchable, since when? Which parts miss which phase, and why? What text was read?
``search``: Is it found? Where? Why this hit? What stands around it? Is the index complete here?
``schedules``: What runs by itself? When next? Did the last one work? Was one missed? Is it paused?
``workers``: Who lives? Which lanes and slots? Who was lost? Which breaker is open? Which limit bites?

``app``, ``router``: navigation, delegated handlers, and the page that the address after ``#`` names
``api``, ``stream``, ``session``: requests and refusals, live events, what the key may do
``dom``, ``parts``, ``job_parts``, ``list``, ``dialog``: elements as values, parts, dialogs and toasts
``actions``, ``keys``: what a person can do, asked where it must be; keys of the keyboard
``status``, ``format``, ``charts``, ``page_map``: status as shape and word, numbers as words, drawings
"""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path

import msgspec
from fastapi import APIRouter, FastAPI, Request
from starlette.responses import Response

from penstock.http.problems import EVERYWHERE, described, problem, respond
from penstock.http.request_context import Reader, reads
from penstock.service.server import MEDIA_TYPE, Readiness, ServerStatus

FOLDER = Path(__file__).parent / "dashboard"
INDEX = "index.html"
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Compared by its ETag each time: a page never runs with scripts of another version.
    "Cache-Control": "no-cache",
}
_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".svg": "image/svg+xml"}
"""Types by suffix, which on some machines are others or none."""


def paths(folder: Path = FOLDER) -> dict[str, Path]:
    """Files of the dashboard by the path of their route; none without an index page."""
    if not (folder / INDEX).is_file():
        return {}
    files = {f"/{one.relative_to(folder).as_posix()}": one for one in sorted(folder.rglob("*.*"))}
    return {"/": folder / INDEX} | {path: one for path, one in files.items() if one.is_file()}


def add_routes(api: FastAPI) -> frozenset[str]:
    """Add a route for each file. Returns their paths."""
    files = paths()

    async def send(request: Request) -> Response:
        return respond_file(files[request.scope["path"]], request.headers.get("if-none-match"))

    for path in files:
        api.add_api_route(path, send, methods=["GET", "HEAD"], include_in_schema=False)
    return frozenset(files)


def respond_file(path: Path, known: str | None) -> Response:
    """The file, or 304 if the browser has it. Files are small, and read each time."""
    content = path.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {**_HEADERS, "ETag": tag}
    if known == tag:
        return Response(status_code=304, headers=headers)
    kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return Response(content, headers=headers, media_type=kind)


router = APIRouter(prefix="/health", tags=["health"])
metrics_router = APIRouter(tags=["health"])


class Alive(msgspec.Struct, frozen=True):
    """The server answers."""

    status: str = "ok"


@router.get(
    "",
    operation_id="health_get",
    responses=described(Alive, example={"status": "ok"}),
    summary="Check that the server answers",
)
async def health() -> Response:
    """Answer without a key and without a look at the stores."""
    return respond(Alive())


@router.get(
    "/status", operation_id="status_get", responses=described(ServerStatus), summary="Show running jobs"
)
@reads
def status(sender: Reader) -> Response:
    """Show running jobs, the length of the queue and the sizes of the stores. Never waits for a writer."""
    return respond(sender.shared.status.status(sender.principal))


@metrics_router.get(
    "/metrics",
    operation_id="metrics_get",
    responses={
        200: {
            "description": "Metrics in the text format of Prometheus.",
            "content": {
                "text/plain": {"schema": {"type": "string"}, "example": "penstock_claims_total 12\n"}
            },
        },
        **{status: problem(status) for status in EVERYWHERE},
    },
    response_class=Response,
    summary="Metrics for Prometheus",
)
@reads
def metrics(sender: Reader) -> Response:
    """Show metrics of the installation, for admin keys by tenant. Keys with tenants get their own figures."""
    if sender.principal.bound:
        return Response(sender.shared.metrics.own_text(sender.principal), media_type=MEDIA_TYPE)
    named = sender.principal.scope == "admin" and not sender.shared.settings.metrics_public
    return Response(sender.shared.metrics.text(by_tenant=named), media_type=MEDIA_TYPE)


@router.get(
    "/ready",
    operation_id="readiness_get",
    responses=described(Readiness, also={503: "A store cannot be used, or the disk not be written."}),
    summary="Check the stores and the disk",
)
@reads
def ready(sender: Reader) -> Response:
    """Check that queue and catalog can be used, and that the state directory can be written."""
    found = sender.shared.status.readiness()
    return respond(found, 200 if found.ready else 503)
