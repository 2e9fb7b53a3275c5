"""Static files of the dashboard, with the headers that keep a browser from running anything else.

Each file is a route of its own, so no path of a request is ever joined to a folder.
"""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path

from fastapi import FastAPI, Request
from starlette.responses import Response

FOLDER = Path(__file__).parent / "dashboard"
INDEX = "index.html"
HEADERS = {
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
TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".svg": "image/svg+xml"}
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
    headers = {**HEADERS, "ETag": tag}
    if known == tag:
        return Response(status_code=304, headers=headers)
    kind = TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return Response(content, headers=headers, media_type=kind)
