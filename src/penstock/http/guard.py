"""Checks before a request is read by a route: host, origin, key, rate, and the size of the body.

A page in a browser can send requests to a server on the same machine. The Host header shows a name that was
pointed at this address (DNS rebinding), the Origin header a page of another site.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
from collections.abc import Collection, Iterable
from contextlib import ExitStack
from typing import Literal
from urllib.parse import urlsplit

import msgspec
from fastapi import APIRouter
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.config import Settings
from penstock.errors import (
    HostRefused,
    InvalidRequest,
    KeyRequired,
    OriginRefused,
    PenstockError,
    RequestHeadTooLarge,
    RequestTooLarge,
    RequestTooSlow,
    TooManyRequests,
)
from penstock.http.connections import HEAD_BYTES, PROVE, Peers
from penstock.http.problems import described, problem, problem_response, respond
from penstock.http.request_bodies import SessionBody
from penstock.http.request_context import Reader, signs
from penstock.http.uploads import is_upload
from penstock.queue.payloads import EVERY
from penstock.service.access import LOCAL, KeyScope, Principal
from penstock.service.keys import LIFETIME, Keys, Sessions
from penstock.service.shares import RateLimit, RefusedKeys, Shares, Taker

_OPEN_TO_ALL = frozenset([("GET", "/health"), ("POST", "/session"), ("DELETE", "/session")])
"""Routes that need no key, besides the files of the dashboard."""
_COOKIE = "penstock_session"
_STREAMED = frozenset([("POST", "/files"), ("POST", "/library")])
"""Routes that read the body of an upload themselves, with limits of their own."""
REQUESTS_PER_KEY = 200
"""Requests of one key that are answered at the same time: bodies that arrive slowly hold connections, and a
burst fills the thread pools. Streams of events have a limit of their own, from their begin on."""
_STREAM = "/events"
"""End of the paths of streams."""
_TAKER = "penstock.taker"
"""Key of the scope of a request, with whom to count it for; see ``Taker``."""
_OPEN_BODY_BYTES = 16 * 1024
"""Size of the body of a request that needs no key: who may send it is unknown, and so is how many do."""
BODY_TIME_S = 30.0
"""Time for a body to arrive."""
_DISCARDED = 16 * 1024 * 1024
"""Bytes above the limit that are read all the same: a sender may look for the answer only after sending."""
log = logging.getLogger("penstock.http")
_LOOPBACK_NAMES = frozenset(["localhost"])
_FORWARDING = frozenset(
    [
        b"forwarded",
        b"forwarded-for",
        b"via",
        b"client-ip",
        b"true-client-ip",
        b"proxy-client-ip",
        b"wl-proxy-client-ip",
        b"x-proxyuser-ip",
        b"x-real-ip",
        b"x-client-ip",
        b"x-cluster-client-ip",
        b"x-remote-ip",
        b"x-remote-addr",
        b"x-originating-ip",
        b"x-rewrite-url",
        b"x-scheme",
        b"x-url-scheme",
        b"front-end-https",
        b"cdn-loop",
        b"cf-connecting-ip",
        b"cf-ray",
        b"do-connecting-ip",
        b"fastly-client-ip",
        b"fly-client-ip",
        b"x-amz-cf-id",
        b"x-appengine-user-ip",
        b"x-arr-log-id",
        b"x-envoy-external-address",
        b"x-nf-client-connection-ip",
    ]
)
_FORWARDING_STARTS = (b"x-forwarded", b"x-original-", b"x-azure-", b"tailscale-")
"""Headers that proxies add: such a request comes from another machine, whatever its address is."""
_ENCRYPTED = ("x-forwarded-proto", "x-forwarded-scheme", "x-url-scheme", "x-forwarded-ssl", "front-end-https")
"""Headers with which proxies say that the browser uses TLS."""
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::(?P<port>\d{1,5}))?")


class GuardOptions(msgspec.Struct, frozen=True):
    """Options of a guard. ``hosts``: names besides ``localhost`` and IP addresses.

    ``requires_keys`` False: nobody needs a key. ``is_open``: a request needs none as long as no key was ever
    made, and unless it came through a proxy. ``files``: paths of the dashboard's files, which need no key.
    """

    keys: Keys
    sessions: Sessions
    rate: RateLimit
    hosts: Collection[str]
    body_limit: int
    requires_keys: bool
    is_open: bool
    files: Collection[str] = ()
    metrics_public: bool = False
    peers: Peers = Peers()

    @classmethod
    def of(cls, settings: Settings, keys: Keys, host: str, *, requires_keys: bool) -> GuardOptions:
        """The options from the settings, for a server on this host."""
        return cls(
            keys=keys,
            sessions=Sessions(settings.state_dir, keys),
            rate=RateLimit(settings.rate_limit),
            hosts=frozenset([*settings.hosts, host.lower()]),
            body_limit=settings.body_limit_mb * 1024 * 1024,
            requires_keys=requires_keys,
            is_open=is_loopback(host) and not settings.hosts,
            metrics_public=settings.metrics_public,
            peers=Peers(settings.proxies),
        )


class Guard:
    """Middleware: refuses requests with a problem document, and adds the sender to others."""

    def __init__(self, app: ASGIApp, options: GuardOptions) -> None:
        self._app = app
        self._options = options
        self._refused = RefusedKeys()
        self._requests = Shares(TooManyRequests, per_key=REQUESTS_PER_KEY)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # Neither web sockets nor start-up events are served.
            return
        headers = Headers(scope=scope)
        send = self._private(scope, headers, send)
        try:
            _refuse_large_head(scope)
            self._refuse_host(headers)
            self._refuse_origin(scope["method"], headers)
            scope = {**scope, "path": _without_slash(scope)}
            principal = scope["penstock.principal"] = self._principal(scope, headers)
            scope["penstock.valid"] = lambda: self._is_still(principal, scope, headers)
            taker = scope[_TAKER] = self._taker(scope, principal)
            self._requests.take(taker)
        except PenstockError as error:
            await problem_response(error, headers={"Connection": "close"})(scope, receive, send)
            return
        if scope["path"].endswith(_STREAM):
            await self._follow(scope, headers, receive, send)
            return
        try:
            await self._pass_on(scope, headers, receive, send)
        finally:
            self._requests.give_back(taker)

    async def _follow(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        """Answer a request for a stream, which counts as a request until it begins: then it counts itself."""
        with ExitStack() as counted:
            counted.callback(self._requests.give_back, scope[_TAKER])

            async def begin(message: Message) -> None:
                if message["type"] == "http.response.start" and message["status"] == 200:
                    counted.close()
                await send(message)

            await self._pass_on(scope, headers, receive, begin)

    async def _pass_on(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        try:
            if not _is_streamed(scope, headers):
                limit = _OPEN_BODY_BYTES if self._needs_no_key(scope) else self._options.body_limit
                receive = _replay(await _body(headers, receive, limit), receive)
        except PenstockError as error:
            await problem_response(error, headers={"Connection": "close"})(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _private(self, scope: Scope, headers: Headers, send: Send) -> Send:
        """Add headers to an answer; one that refuses a key is logged, and sent later to a peer with many."""
        if scope["path"] in self._options.files and scope["method"] in ("GET", "HEAD"):
            return send

        async def send_private(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = _with_private(message["headers"])
                if message["status"] == 401:
                    await self._note_refusal(scope, headers)
            await send(message)

        return send_private

    async def _note_refusal(self, scope: Scope, headers: Headers) -> None:
        """Log a refused key or session without its text, and wait. Without either there is nothing to log."""
        begins = (scope["method"], scope["path"].rstrip("/")) == ("POST", "/session")
        if not begins and _key(headers) is None and _COOKIE not in Request(scope).cookies:
            return
        what = "a session" if not begins and _key(headers) is None else "a key"
        direct = (scope.get("client") or ("an unknown address",))[0]
        peer = self._options.peers.of_request(scope.get("client"), scope["headers"]) or direct
        delay, number = self._refused.count(peer)
        if number is not None:
            through = headers.get("x-forwarded-for") or headers.get("forwarded")
            place = f"{direct} (for {through[:200]})" if through else direct
            more = f", and {number - 1:,} more" if number > 1 else ""
            log.warning(
                "refused %s from %s: %s %s%s", what, place, scope["method"], scope["path"][:200], more
            )
        if delay:
            await asyncio.sleep(delay)

    def _taker(self, scope: Scope, principal: Principal) -> Taker:
        """Whom to count a request for."""
        peer = self._options.peers.of_request(scope.get("client"), scope["headers"])
        return Taker(None if principal.auth == "none" else principal.name, peer)

    def _refuse_host(self, headers: Headers) -> None:
        given = headers.getlist("host")
        match = _HOST.fullmatch(given[0]) if len(given) == 1 else None
        if match is None:
            raise HostRefused("the request needs one Host header with a name and a port")
        name = match["name"].lower().rstrip(".")
        # DNS rebinding needs a name. An IP address cannot be pointed at another machine, so any is allowed.
        if name not in _LOOPBACK_NAMES and name not in self._options.hosts and not _is_address(name):
            raise HostRefused(f"this server is not called {name[:80]!r}")

    def _refuse_origin(self, method: str, headers: Headers) -> None:
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != headers["host"].lower():
            raise OriginRefused(f"requests from pages of {origin[:80]!r} are not accepted")
        crossed = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        if origin is None and crossed and method not in ("GET", "HEAD"):
            raise OriginRefused("requests from pages of other sites are not accepted")

    def _principal(self, scope: Scope, headers: Headers) -> Principal:
        options = self._options
        if self._needs_no_key(scope):
            return LOCAL
        found = self._find(scope, headers)
        if found is None:
            raise KeyRequired("the key is not valid" if _key(headers) else "the request needs a key")
        if found.auth == "session":
            _refuse_forged(scope["method"], headers)
        if found.auth != "none":
            options.rate.count(found.name)
        if (prove := scope.get(PROVE)) is not None:
            prove()
        return found

    def _needs_no_key(self, scope: Scope) -> bool:
        """Tell whether everybody may send the request."""
        method, path = scope["method"], scope["path"]
        if (method, path) in _OPEN_TO_ALL or (method in ("GET", "HEAD") and path in self._options.files):
            return True
        return self._options.metrics_public and (method, path) == ("GET", "/metrics")

    def _find(self, scope: Scope, headers: Headers) -> Principal | None:
        """The owner of the key, or of the session; None for an unknown one. Also asked during a stream."""
        options = self._options
        if not options.requires_keys:
            return LOCAL
        if not options.keys.ever_made() and options.is_open and not _is_forwarded(scope):
            return LOCAL
        if key := _key(headers):
            return options.keys.find(key)
        return self._session(scope, headers)

    def _is_still(self, principal: Principal, scope: Scope, headers: Headers) -> bool:
        """Tell whether the sender of a stream is the same; not while the keys cannot be read."""
        try:
            return self._find(scope, headers) == principal
        except PenstockError:
            return False

    def _session(self, scope: Scope, headers: Headers) -> Principal | None:
        """The owner of the session whose cookie the browser sent."""
        token = Request(scope).cookies.get(_COOKIE) if "cookie" in headers else None
        return self._options.sessions.find(token) if token else None


async def _body(headers: Headers, receive: Receive, limit: int) -> bytes:
    """Read the whole body, up to the limit."""
    stated = headers.get("content-length", "0")
    if not stated.isdecimal() or len(stated) > 20:
        raise InvalidRequest("Content-Length: expected a number")
    if int(stated) > limit + _DISCARDED:
        raise RequestTooLarge(f"the body has {int(stated):,} bytes, the limit is {limit:,}")
    if int(stated) == 0 and "transfer-encoding" not in headers:
        return b""
    try:
        async with asyncio.timeout(BODY_TIME_S):
            return await _read(receive, limit)
    except TimeoutError:
        raise RequestTooSlow(f"the body did not arrive within {BODY_TIME_S:g} seconds") from None


async def _read(receive: Receive, limit: int) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestTooSlow("the sender left before the body was complete")
        part = message.get("body", b"")
        size += len(part)
        if size <= limit:
            parts.append(part)
        ended = not message.get("more_body")
        if size > limit + (0 if ended else _DISCARDED):
            raise RequestTooLarge(f"the body has more than {limit:,} bytes")
        if ended:
            return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Give the body already read, then the messages after it."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _refuse_forged(method: str, headers: Headers) -> None:
    """Refuse changes by a session cookie, unless sent by the server's own page."""
    own = "origin" in headers or headers.get("sec-fetch-site") == "same-origin"
    if method not in ("GET", "HEAD") and not own:
        raise OriginRefused(
            "a change by the cookie of a session needs the Origin header of the server's own page",
            remedy="Send the key in the Authorization header instead.",
        )


def _refuse_large_head(scope: Scope) -> None:
    """Refuse a complete head above the limit; incomplete ones are ended by the connection."""
    size = len(scope["path"]) + len(scope.get("query_string", b""))
    if size + sum(len(name) + len(value) for name, value in scope["headers"]) > HEAD_BYTES:
        raise RequestHeadTooLarge(f"the head of the request has more than {HEAD_BYTES:,} bytes")


def _is_streamed(scope: Scope, headers: Headers) -> bool:
    route = (scope["method"], scope["path"])
    # A form of any type is streamed to /files, and refused there by its type.
    return route in _STREAMED and (route[1] == "/files" or is_upload(headers.get("content-type", "")))


def _without_slash(scope: Scope) -> str:
    """The path without slashes at its end; one that was sent as %2F belongs to a name."""
    path: str = scope["path"]
    sent: bytes = scope.get("raw_path") or path.encode()
    slashes = len(sent) - len(sent.rstrip(b"/"))
    return path[: len(path) - slashes] or "/"


def _with_private(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of an answer that browsers and proxies do not keep, also with what its route says."""
    found, kept = [], b"no-store"
    for name, value in headers:
        if name.lower() == b"cache-control":
            kept = value if b"no-store" in value else value + b", no-store"
        elif name.lower() != b"x-content-type-options":
            found.append((name, value))
    return [*found, (b"cache-control", kept), (b"x-content-type-options", b"nosniff")]


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches an address, or the name of one."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_forwarded(scope: Scope) -> bool:
    """Tell whether a proxy has passed on a request.

    nginx adds no header of its own, but speaks HTTP/1.0 unless it is told otherwise, as no program does.
    """
    if scope.get("http_version") == "1.0":
        return True
    for name, _ in scope["headers"]:  # noqa: SIM110 - for every request, and half the price of any()
        if name in _FORWARDING or name.startswith(_FORWARDING_STARTS):
            return True
    return False


def _is_encrypted(scope: Scope) -> bool:
    """Tell whether the browser uses TLS: with this server, with a proxy that says so, or by its own word."""
    if scope["scheme"] == "https":
        return True
    headers = Headers(scope=scope)
    forwarded = [part.strip().lower() for part in headers.get("forwarded", "").split(",")[0].split(";")]
    named = [headers.get(name, "").split(",")[0].strip().lower() for name in _ENCRYPTED]
    own_page = headers.get("origin", "").lower().startswith("https://")
    return (
        own_page or bool({"https", "on"} & {*named}) or bool({"proto=https", 'proto="https"'} & {*forwarded})
    )


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _key(headers: Headers) -> str | None:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    return headers.get("x-api-key")


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
    secure = _is_encrypted(request.scope)
    age = int(LIFETIME.total_seconds())
    answer.set_cookie(_COOKIE, token, max_age=age, httponly=True, samesite="strict", secure=secure)
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
    token = request.cookies.get(_COOKIE)
    if token:
        request.app.state.shared.sessions.end(token)
    answer = Response(status_code=204)
    secure = _is_encrypted(request.scope)
    answer.delete_cookie(_COOKIE, httponly=True, samesite="strict", secure=secure)
    return answer
