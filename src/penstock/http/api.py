"""The application of all routes, and its OpenAPI document."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import ASGIApp

from penstock.http import (
    collection_routes,
    dashboard_files,
    document_routes,
    event_routes,
    file_routes,
    health_routes,
    index_routes,
    job_routes,
    library_routes,
    limit_routes,
    note_routes,
    problems,
    queue_routes,
    schedule_routes,
    search_routes,
    session_routes,
    upkeep_routes,
)
from penstock.http.answers import portable, schemas
from penstock.http.guard import Guard, GuardOptions
from penstock.http.quick_notes import QuickNotes
from penstock.http.request_context import Shared

DESCRIPTION = """Index files, folders and notes, follow the jobs, and search.

Errors are problem documents (RFC 9457) with a stable `code` and a `remedy`. A trailing slash is optional."""
ROUTES = (
    health_routes,
    job_routes,
    event_routes,
    index_routes,
    document_routes,
    file_routes,
    search_routes,
    queue_routes,
    note_routes,
    schedule_routes,
    library_routes,
    limit_routes,
    collection_routes,
    upkeep_routes,
    session_routes,
)
"""Most used routes first: a request is compared with one route after the other."""
_UNUSED = ("HTTPValidationError", "ValidationError")


class Api(FastAPI):
    """The application, with an OpenAPI document including the schemas of answers."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            document = super().openapi()
            components = document["components"]
            kept = {name: one for name, one in components["schemas"].items() if name not in _UNUSED}
            components["schemas"] = {**kept, **schemas()}
            components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{"key": []}, {}]
            self.openapi_schema = portable(document)
        assert self.openapi_schema is not None
        return self.openapi_schema


def make_api(shared: Shared, guard: GuardOptions, mcp: ASGIApp | None = None) -> ASGIApp:
    """The application behind the guard. ``mcp`` answers the requests of agents."""
    api = Api(
        title="Penstock",
        version=metadata.version("penstock"),
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    api.state.shared = shared
    for routes in ROUTES:
        api.include_router(routes.router)
    api.include_router(health_routes.metrics_router)
    if mcp is not None:
        api.router.routes.append(Route("/mcp", mcp, include_in_schema=False))
    problems.add_handlers(api)
    files = dashboard_files.add_routes(api)
    return Guard(QuickNotes(api, shared), guard._replace(files=files))
