"""The services that all routes share, the sender of a request, and the thread pools of handlers."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable
from functools import cached_property
from inspect import isclass
from typing import TYPE_CHECKING, Annotated, Literal, ParamSpec, TypeAlias, TypeVar, Unpack

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel

from penstock.errors import NotAllowed, UnknownDocument
from penstock.http.event_hub import EventHub
from penstock.http.problems import VALUES
from penstock.queue.job import Job
from penstock.service.access import KeyScope, PathPolicy, Principal
from penstock.service.bulk_actions import BulkActions
from penstock.service.collections import Collections
from penstock.service.documents import DocumentRecords
from penstock.service.functions import FunctionJobs
from penstock.service.job_views import JobRecords, find_job
from penstock.service.keys import ActionLog, Sessions
from penstock.service.limits import Limits, tenant_limit
from penstock.service.live_changes import LiveChanges, Throughput
from penstock.service.pages import DRAWN_AT_ONCE, DRAWN_PER_KEY
from penstock.service.schedules import Schedules
from penstock.service.server import Metrics, StatusReader
from penstock.service.shares import NOBODY, Taker

if TYPE_CHECKING:
    from penstock.assembly import Assembly
    from penstock.catalog.values import Source
    from penstock.service.documents import Documents
    from penstock.service.requests import PathPlace


_Given = ParamSpec("_Given")
Answer = TypeVar("Answer")

_Pool: TypeAlias = Literal["read", "write", "sign", "draw"]
_THREADS: dict[_Pool, int] = {"read": 16, "write": 8, "sign": 1, "draw": DRAWN_AT_ONCE}
_limiters: RunVar[dict[str, CapacityLimiter]] = RunVar("penstock_limiters")


def _limiter(pool: _Pool) -> CapacityLimiter:
    """The limit of a pool, one for each event loop."""
    try:
        return _limiters.get()[pool]
    except LookupError:
        _limiters.set({name: CapacityLimiter(number) for name, number in _THREADS.items()})
        return _limiters.get()[pool]


def _in_pool(pool: _Pool, handler: Callable[_Given, Answer]) -> Callable[_Given, Awaitable[Answer]]:
    @functools.wraps(handler)
    async def run(*given: _Given.args, **named: _Given.kwargs) -> Answer:
        call = functools.partial(handler, *given, **named)
        return await to_thread.run_sync(call, limiter=_limiter(pool))

    return run


def reads(handler: Callable[_Given, Answer]) -> Callable[_Given, Awaitable[Answer]]:
    """Run a read-only handler in a thread."""
    return _in_pool("read", handler)


def writes(handler: Callable[_Given, Answer]) -> Callable[_Given, Awaitable[Answer]]:
    """Run a writing handler in a separate thread pool."""
    return _in_pool("write", handler)


def signs(handler: Callable[_Given, Answer]) -> Callable[_Given, Awaitable[Answer]]:
    """Run a sign-in, which takes turns with all others in any case, and not in the threads of writers."""
    return _in_pool("sign", handler)


class Drawings:
    """The pages that are drawn at the same time, in one event loop. A key waits for its own ones first."""

    def __init__(self) -> None:
        self._limiters: dict[str, CapacityLimiter] = {}

    async def run(self, key: str | None, draw: Callable[[], Answer]) -> Answer:
        """Draw for a key in a thread of its own pool. None: there are no keys, and only the pool counts."""
        if key is None:
            return await to_thread.run_sync(draw, limiter=_limiter("draw"))
        limiter = self._limiters.setdefault(key, CapacityLimiter(DRAWN_PER_KEY))
        try:
            async with limiter:
                # In the line of the pool, a key has no more places than it may have drawn at once.
                return await to_thread.run_sync(draw, limiter=_limiter("draw"))
        finally:
            statistics = limiter.statistics()
            if not statistics.borrowed_tokens and not statistics.tasks_waiting:
                self._limiters.pop(key, None)


class Shared:
    """Services of one server, shared by all threads."""

    def __init__(self, assembly: Assembly, policy: PathPolicy, sessions: Sessions) -> None:
        self.assembly = assembly
        self.policy = policy
        self.sessions = sessions
        self.settings = assembly.settings
        self.jobs = assembly.jobs
        self.documents = assembly.documents
        # Without an application there are no functions, and each name is unknown.
        self.functions = (
            assembly.jobs
            if isinstance(assembly.jobs, FunctionJobs)
            else FunctionJobs(assembly.queue, assembly.settings, door="http")
        )
        self.schedules = Schedules(self.functions, lambda: assembly.documents)
        self.limits = Limits(assembly.queue)
        self.collections = Collections(assembly.documents.catalog, assembly.jobs)
        self.job_records = JobRecords(assembly.jobs)
        self.bulk = BulkActions(assembly.jobs, self.job_records)
        self.document_records = DocumentRecords(assembly.documents)
        self.status = StatusReader(assembly.jobs, assembly.documents)
        self.throughput = Throughput(assembly.jobs.queue, self.status.waiting, assembly.settings.state_dir)
        self.status.throughput = self.throughput
        self.metrics = Metrics(assembly.jobs, assembly.documents, self.status, self.throughput)
        self.audit = ActionLog(assembly.settings.state_dir)
        self.closing: list[Callable[[], object]] = []
        self.page_images = assembly.open_page_images()
        self.drawings = Drawings()
        self.uploads = assembly.uploads
        self.library_uploads = assembly.library_uploads
        changes = LiveChanges(assembly.jobs, self.job_records, assembly.documents)
        self.events = EventHub(changes, self.status, assembly.jobs.queue.wait)

    def close(self) -> None:
        """Close the parts used only by a server; the assembly stays open."""
        for close in (*self.closing, self.page_images.close):
            close()


class Sender:
    """The sender of a request, with the services and access rules for the sender."""

    def __init__(
        self, principal: Principal, shared: Shared, *, taker: Taker = NOBODY, wants_values: bool = False
    ) -> None:
        """``wants_values``: the sender accepts the library's own values; see ``problems.VALUES``."""
        self.principal = principal
        self.shared = shared
        self.taker = taker
        self.wants_values = wants_values

    @cached_property
    def documents(self) -> Documents:
        """The documents as the sender sees them: a path is placed within the tenants of the key."""
        return self.shared.documents.seen_by(self.principal)

    @property
    def policy(self) -> PathPolicy:
        """The paths that the sender may name."""
        return self.shared.policy.of_key(self.principal)

    def document(self, path: str, **where: Unpack[PathPlace]) -> str:
        """The absolute path of a document at its place; see ``PathPolicy.document``."""
        return self.policy.document(path, lambda named: self.documents.knows(named, **where))

    def document_at(self, path_or_id: str, **where: Unpack[PathPlace]) -> Source:
        """The document with an id, of the tenant named or of any of the key's; or at a path."""
        tenant = where.get("tenant_id")
        tenants = self.principal.tenants if tenant is None else (self.tenant(tenant),)
        try:
            return self.shared.document_records.own(path_or_id, tenants)
        except UnknownDocument:
            try:
                named = self.document(path_or_id, **where)
            except NotAllowed:
                if "/" in path_or_id:
                    raise
                named = None
            if named is None:
                # Not a path: to the sender, the id does not exist.
                raise
            return self.documents.source(named, **where)

    def limit(self, key: str | None, tenant_id: str) -> str | None:
        """The limit that a request names for its job: of a bound sender, one of the tenant's own."""
        return key if key is None or not self.principal.bound else tenant_limit(tenant_id, key)

    def job(self, job_id: str) -> Job:
        """The job with this id, if it exists for the sender. As in the library, clients may shorten it."""
        if self.wants_values:
            return find_job(self.shared.jobs, job_id, self.principal.tenants)
        return self.shared.job_records.own(job_id, self.principal.tenants)

    def check_jobs(self, ids: Iterable[str]) -> None:
        """Refuse ids of other tenants' jobs, as if they did not exist."""
        for job_id in ids:
            self.job(job_id)

    def tenant(self, given: str | None) -> str:
        """The tenant of the request; see ``Principal.tenant``."""
        return self.principal.tenant(given, self.shared.settings.tenant_id)


def _sender(scope: KeyScope) -> object:
    async def find(request: Request) -> Sender:
        principal: Principal = request.scope["penstock.principal"]
        principal.require(scope)
        if request.scope["query_string"]:
            _refuse_unknown(request)
        accepted = request.headers.get("accept", "")
        taker = request.scope["penstock.taker"]
        return Sender(principal, request.app.state.shared, taker=taker, wants_values=VALUES in accepted)

    return Depends(find)


def _refuse_unknown(request: Request) -> None:
    """Refuse options in the query that the route does not take there: a tenant would be ignored.

    Routes whose query is a model refuse them by it.
    """
    route: APIRoute = request.scope["route"]
    declared = route.dependant.query_params
    types = [one.field_info.annotation for one in declared]
    if any(isclass(one) and issubclass(one, BaseModel) for one in types):
        return
    unknown = request.query_params.keys() - {one.alias for one in declared}
    if unknown:
        said = _IN_BODY if route.dependant.body_params else _UNKNOWN
        errors = [{"type": "unknown", "loc": ("query", name), "msg": said} for name in sorted(unknown)]
        raise RequestValidationError(errors)


_UNKNOWN = "unknown field"
_IN_BODY = "not an option of the query of this route, which takes its options in the body"

Reader = Annotated[Sender, _sender("read")]
"""A sender whose key may read."""
Writer = Annotated[Sender, _sender("write")]
"""A sender whose key may write."""
