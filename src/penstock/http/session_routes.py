"""Routes of the sender: who it is, and a session for a browser."""

from __future__ import annotations

from typing import Literal

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from penstock.http.answers import described, problem, respond
from penstock.http.guard import COOKIE, is_encrypted
from penstock.http.request_bodies import SessionBody
from penstock.http.request_context import Reader
from penstock.http.thread_pools import signs
from penstock.queue.payloads import EVERY
from penstock.service.access import KeyScope
from penstock.service.keys import LIFETIME

router = APIRouter(tags=["session"])

REFUSED = (400, 401, 403, 408, 413, 421, 422, 429, 503)


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """The sender of the request. ``tenants`` is ``["*"]`` for a key that is not bound to tenants.

    ``roots``: folders and sites below which the key names paths. None: all of the server, or no path at all
    for a key with tenants.
    """

    name: str | None
    scopes: list[KeyScope]
    tenants: list[str]
    roots: list[str]
    auth: Literal["none", "key", "session"]


@router.get(
    "/me",
    operation_id="sender_get",
    responses=described(
        Me,
        example={"name": "ci", "scopes": ["read", "write"], "tenants": ["acme"], "roots": [], "auth": "key"},
    ),
    summary="Show the sender",
)
async def me(sender: Reader) -> Response:
    """Show what the key, or the session, of this request may do."""
    principal = sender.principal
    return respond(
        Me(
            name=None if principal.auth == "none" else principal.name,
            scopes=list(principal.scopes),
            tenants=list(principal.tenants) or [EVERY],
            roots=list(principal.roots),
            auth=principal.auth,
        )
    )


@router.post(
    "/session",
    operation_id="session_begin",
    status_code=204,
    responses={204: {"description": "The cookie is set."}, **{one: problem(one) for one in REFUSED}},
    summary="Begin a session",
)
@signs
def begin(request: Request, body: SessionBody) -> Response:
    """Turn a key into a cookie, for a browser. It counts as the key, until it ends or the key does."""
    token = request.app.state.shared.sessions.begin(body.key)
    answer = Response(status_code=204)
    secure = is_encrypted(request.scope)
    age = int(LIFETIME.total_seconds())
    answer.set_cookie(COOKIE, token, max_age=age, httponly=True, samesite="strict", secure=secure)
    return answer


@router.delete(
    "/session",
    operation_id="session_end",
    status_code=204,
    responses={204: {"description": "There is no session."}, **{one: problem(one) for one in REFUSED}},
    summary="End the session",
)
@signs
def end(request: Request) -> Response:
    """End the session of the cookie, if there is one, and remove the cookie."""
    token = request.cookies.get(COOKIE)
    if token:
        request.app.state.shared.sessions.end(token)
    answer = Response(status_code=204)
    secure = is_encrypted(request.scope)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict", secure=secure)
    return answer
