"""An application's functions: registered, called, mapped over payloads, and seen as a queue of tasks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import (
    Any,
    Generic,
    ParamSpec,
    Required,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

import msgspec

from penstock import clock, traces, vocabulary
from penstock.config import Settings
from penstock.errors import (
    InvalidRequest,
    InvalidTime,
    InvalidTransition,
    LeaseLost,
    LiveTwin,
    NoResult,
    ResultExpired,
    TaskNotFound,
    UnknownEntity,
    UnknownStatus,
)
from penstock.handlers.context import Registry
from penstock.handlers.functions import MAP, MAP_INDEX, Exists, Function, FunctionOptions, Functions
from penstock.handlers.webhooks import webhook_options
from penstock.queue import payloads, transitions
from penstock.queue.job import (
    AddResult,
    ClaimRequest,
    Job,
    JobQuery,
    NewJob,
    QueueLimits,
    Settlement,
    Status,
    expired,
)
from penstock.queue.protocol import Queue
from penstock.queue.retry import JOB_BACKOFF, Backoff
from penstock.queue.transitions import HOOK_FIELDS, HookCall
from penstock.service.job_views import cancelled_children
from penstock.service.jobs import Jobs
from penstock.service.limits import checked_key
from penstock.service.requests import Receipt, Submission, refuse_unknown, unknown_option
from penstock.strict_json import encode_strictly

_MAX_RETRIES = 3
_STALE_MESSAGE = "Task timed out and was reset"
_PAGE = 1_000
_BY_HAND = "by-hand"
"""Worker id of tasks started by ``update_task_status``."""
_TRANSITIONS: Mapping[str, tuple[str, ...]] = {
    "PENDING": ("IN_PROGRESS",),
    "IN_PROGRESS": ("COMPLETED", "FAILED"),
    "FAILED": ("PENDING",),
    "COMPLETED": (),
}
"""Transitions open to callers. A worker may also release a task, from IN_PROGRESS to PENDING."""
_FIELDS = {"entity_type", "entity_id", "function_name", "payload", "max_retries"}
P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class FunctionHandle(Generic[P, R]):
    """A function of an application.

    @app.function
    def resize(payload): ...

    resize({"image": "a.png"})  # runs it here and now
    resize.call({"image": "a.png"}, delay=60)  # queues a call
    """

    def __init__(self, app: FunctionJobs, name: str, function: Callable[P, R]) -> None:
        functools.update_wrapper(self, function)
        self._app = app
        self._function = function
        self.name = name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def call(
        self,
        payload: Any = None,
        *,
        entity: tuple[str, str] | None = None,
        connection: Any = None,
        **options: Unpack[CallOptions],
    ) -> Receipt:
        """Queue one call; see ``Penstock.call``."""
        return self._app.call(self.name, payload, entity=entity, connection=connection, **options)

    def call_many(
        self, payloads: Iterable[Any], *, connection: Any = None, **options: Unpack[CallOptions]
    ) -> list[Receipt]:
        """Queue one call for each payload, in one transaction: all, or none. All have the same options."""
        calls = [{"name": self.name, "payload": payload, **options} for payload in payloads]
        return self._app.call_many(calls, connection=connection)  # type: ignore[arg-type]

    def map(self, payloads: Iterable[Any], **options: Unpack[CallOptions]) -> Receipt:
        """Queue one parent job with a call for each payload; see ``Penstock.map``."""
        return self._app.map(self.name, payloads, **options)

    def __reduce__(self) -> str:
        # Like a plain function, by its name: pools of processes may be given it.
        return getattr(self, "__qualname__", self.name)

    def __repr__(self) -> str:
        return f"<function {self.name!r} of an application>"


class FunctionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A function of the application. ``requires``: fields of its payload. None: the setting counts."""

    name: str
    requires: tuple[str, ...]
    max_retries: int | None
    timeout_s: int | None
    priority: int | None = None
    limit: str | None = None
    queue_limit: int | None = None
    result_ttl_s: int | None = None


class FunctionRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Functions by name, and the types of entities that calls may have; none: any type."""

    functions: list[FunctionRecord]
    entity_types: list[str]


class MapProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a ``map``: all calls, and those done, failed, cancelled and open."""

    total: int
    done: int
    failed: int
    open: int
    cancelled: int = 0

    @property
    def percent(self) -> float:
        return 100.0 if not self.total else round((self.total - self.open) / self.total * 100, 1)


class MappedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a ``map``: its position, its job and the result or the error."""

    index: int
    job_id: str
    status: Status
    result: Any = None
    error: str | None = None


class CallOptions(TypedDict, total=False):
    """Options of a call; defaults come from the function, then from the settings."""

    tenant_id: str | None
    collection: str | None
    priority: int | None
    run_at: datetime | str | None
    delay: timedelta | float | None
    key: str | None
    metadata: Mapping[str, Any] | None
    max_retries: int | None
    timeout: int | None
    job_id: str | None
    after: Sequence[str] | None
    on_dependency_failure: str | None
    limit: str | None
    result_ttl: int | None
    webhook: str | None
    on_success: str | Callable[..., Any] | None
    on_failure: str | Callable[..., Any] | None


class Call(CallOptions, total=False):
    """One of many calls."""

    name: Required[str]
    payload: Any
    entity: tuple[str, str] | None


_KNOWN = Call.__required_keys__ | Call.__optional_keys__
_PLAIN = frozenset({"name", "payload", "entity"})
"""Fields of calls that differ from the template of their function in payload, entity and id only."""


class _Template(msgspec.Struct, frozen=True):
    """A checked call with the function's defaults; ``takes_any``: any mapping is a valid payload."""

    function: Function
    settings: Settings
    new: NewJob
    takes_any: bool


class FunctionJobs(Jobs):
    """Jobs, and an application's functions among them; ``functions`` are those of another one."""

    def __init__(
        self,
        queue: Queue,
        settings: Settings,
        *,
        door: payloads.Source = "library",
        functions: Functions | None = None,
    ) -> None:
        super().__init__(queue, settings, door=door)
        self.functions = functions or Functions()
        self._templates: dict[str, _Template] = {}
        self._registry = Registry()
        self.functions.register_in(self._registry, webhook_options(settings))

    @overload
    def function(self, name: Callable[P, R], /) -> FunctionHandle[P, R]: ...

    @overload
    def function(
        self, name: str | None = None, **options: Unpack[FunctionOptions]
    ) -> Callable[[Callable[P, R]], FunctionHandle[P, R]]: ...

    def function(self, name: Any = None, **options: Unpack[FunctionOptions]) -> Any:
        """Register a function for workers to run, under a name or under its own.

            @app.function(max_retries=5, timeout=60)
            def send_mail(payload: Mail, context): ...

            send_mail.call(Mail(to="miller@example.org"), delay=60)

        It may be async, and may leave out ``context``. A dataclass, msgspec struct or pydantic model as the
        type of the payload is checked at the call, and passed. The return value, as JSON, is the result.
        ``requires`` names fields of a plain payload. ``timeout`` is in seconds. ``priority``: 0 to 10.
        ``limit``: key of a limit that its calls count for; see ``Limits``. ``queue_limit``: calls that may be
        pending; further ones raise ``QueueFull``. ``result_ttl``: seconds for which results are kept.
        ``backoff`` is the seconds before the first retry, or a list of them; after these come the powers of
        two above the last. By default 1, 2, 4 … 300 seconds. ``webhook``, ``on_success`` and ``on_failure``
        are as for ``call``, for each call.
        """
        refuse_unknown("function", options, FunctionOptions)
        if callable(name):
            return self._register(None, name, {})
        if name is not None and not isinstance(name, str):
            raise InvalidRequest(
                f"function: expected a name, got {type(name).__name__}",
                remedy='Write @app.function or @app.function("name").',
            )
        return lambda call: self._register(name, call, options)

    def _register(
        self, name: str | None, call: Callable[P, R], options: FunctionOptions
    ) -> FunctionHandle[P, R]:
        if name is None:
            name = getattr(call, "__name__", None)
            if name is None or name == "<lambda>":
                raise InvalidRequest(
                    "function: a lambda or a partial has no name",
                    remedy='Write app.function("name")(function).',
                )
        call = call._function if isinstance(call, FunctionHandle) else call
        self.functions.add(name, call, **options)
        return FunctionHandle(self, name, call)

    def middleware(self, enter: F) -> F:
        """Surround every run of a function with a context manager, for logging and context.

            @app.middleware
            def logged(context):
                print("before", context.job_id)
                try:
                    yield
                except Exception as error:
                    print("failed", error)
                    raise

        A function of the context that yields once, or that returns a context manager. The first registered
        is the outermost. An error always fails the job, also one that the middleware does not raise again.
        """
        self.functions.add_middleware(enter)
        return enter

    def handler(
        self, item_type: str, op: str, *, batch: int = 0, backoff: Backoff = JOB_BACKOFF
    ) -> Callable[[F], F]:
        """Register a handler for jobs of this item type and operation.

            @app.handler("content", "ingest", batch=50)
            def keep(contexts): return [store(context.payload) for context in contexts]

        A handler gets a ``Context`` and returns the job's result, or raises. With ``batch`` it gets up to so
        many at once, and returns a list: for each the result, or an exception.
        """

        def register(call: F) -> F:
            self._registry.register(item_type, op, call, batch=batch, backoff=backoff)
            return call

        return register

    def entity_type(self, name: str, *, exists: Exists | None = None) -> None:
        """Allow entities of this type; ``exists(entity_id)`` says which there are.

            app.entity_type("planner", exists=planners.__contains__)

        Until the first is registered every type is allowed, from then on only those that are.
        """
        self.functions.add_entity_type(name, exists)

    def call(
        self,
        name: str,
        payload: Any = None,
        *,
        entity: tuple[str, str] | None = None,
        connection: Any = None,
        **options: Unpack[CallOptions],
    ) -> Receipt:
        """Queue one call of a registered function.

            app.call("send_mail", {"to": "miller@example.org"}, entity=("customer", "c1"), delay=60)

        Calls with the same entity run one at a time; those of equal priority in order, also while one of them
        waits for a retry. A higher priority goes first, and a call for later once its time has come.
        ``key``: calls with the same key are one job while it lives. ``connection``, on SQL engines, adds the
        call in the caller's own transaction. ``webhook`` is a URL that the end of the job is sent to;
        ``on_success`` and ``on_failure`` name functions that are called with it.
        """
        call: Call = {"name": name, "payload": payload, "entity": entity, **options}
        new = self._plain_calls([call]) if connection is None else None
        if new is not None:
            return self._receipt(self._add_plain(new)[0], None)
        return self._submit(self._submission(call), connection, counted=False)

    def call_many(self, calls: Sequence[Call], *, connection: Any = None) -> list[Receipt]:
        """Queue many calls in one transaction: all, or none.

        app.call_many([{"name": "resize", "payload": {"image": path}} for path in paths])
        """
        new = self._plain_calls(calls) if connection is None else None
        if new:
            return [self._receipt(added, None) for added in self._add_plain(new)]
        submissions = []
        for number, call in enumerate(calls, 1):
            try:
                submissions.append(self._submission(call))
            except InvalidRequest as refusal:
                if len(calls) == 1:
                    raise
                message = f"call {number} of {len(calls)}: {refusal.message}"
                raise type(refusal)(message, remedy=refusal.remedy) from None
        return self.submit_many(submissions, connection=connection)

    def _plain_calls(self, calls: Sequence[Call]) -> list[NewJob] | None:
        """Build the rows of calls without options, from templates: less than half the cost of submissions.

        None: a call has options, or is refused; then the general path says why.
        """
        new, template = [], None
        try:
            for call, queue_id in zip(calls, clock.new_ids(len(calls)), strict=True):
                if type(call) is not dict or not _PLAIN.issuperset(call):
                    return None
                if template is None or call["name"] != template.function.name:
                    template = self._template(call["name"])
                    if template.function.has_hooks:
                        return None
                new.append(self._plain_call(template, call, queue_id))
        except (InvalidRequest, KeyError):
            return None
        return new

    def _add_plain(self, new: Sequence[NewJob]) -> list[AddResult]:
        """Add rows without hooks; directly if there is no tracer, as in most processes."""
        if traces.tracer() is None:
            return self.queue.add(new, limits=self._limits())
        return self.add_all(new, self._limits())

    def _plain_call(self, template: _Template, call: Call, queue_id: str) -> NewJob:
        function, new = template.function, template.new
        payload, entity = call.get("payload"), _read_entity(call.get("entity"))
        if not (template.takes_any and type(payload) is dict):
            payload = function.stored(payload)
            function.check({} if payload is None else payload)
        body: dict[str, Any] = {"function_name": function.name, "payload": payload}
        lock_key = None
        if entity is not None:
            self.functions.check_entity(*entity)
            body["entity_type"], body["entity_id"] = entity
        if entity is not None or type(payload) is not dict:
            # Otherwise the fields are known to be right; the encoding refuses what JSON would change.
            parsed = payloads.parse_payload(new.item_type, new.op, body)
            lock_key = payloads.lock_key(
                parsed, tenant_id=new.tenant_id, branch=new.branch, collection=new.collection
            )
        return msgspec.structs.replace(
            new,
            queue_id=queue_id,
            idempotency_key=payloads.own_key(new.collection, queue_id),
            payload_json=encode_strictly("payload", body, max_bytes=self.settings.max_payload_bytes),
            lock_key=lock_key,
        )

    def _template(self, name: str) -> _Template:
        function = self.functions.get(name)
        found = self._templates.get(name)
        if found is None or found.function is not function or found.settings is not self.settings:
            submission = self._submission_of(function, {"name": name}, {"function_name": name})
            (new,) = self._new([submission], joins=False)
            takes_any = function.model is None and not function.requires
            found = self._templates[name] = _Template(function, self.settings, new, takes_any)
        return found

    def _limits(self) -> QueueLimits:
        limits, by_key = super()._limits(), self.functions.queue_limits
        return msgspec.structs.replace(limits, by_key=by_key) if by_key else limits

    def _new(self, submissions: Sequence[Submission], *, joins: bool, own: bool = False) -> list[NewJob]:
        new = super()._new(submissions, joins=joins, own=own)
        if not self.functions.queue_limits:
            return new
        names = [each["payload"].get("function_name") for each in submissions]
        return [
            msgspec.structs.replace(each, backlog_key=name) if name in self.functions.queue_limits else each
            for each, name in zip(new, names, strict=True)
        ]

    def call_submission(self, call: Mapping[str, Any]) -> Submission:
        """Build the submission of a call. Without any registered function, it is not checked."""
        if not self.functions.names():
            return super().call_submission(call)
        return self._submission(cast("Call", call))

    def _submission(self, call: Call) -> Submission:
        _refuse_misshapen(call)
        function = self.functions.get(call["name"])
        payload = function.stored(call.get("payload"))
        function.check({} if payload is None else payload)
        body: dict[str, Any] = {"function_name": function.name, "payload": payload}
        entity = _read_entity(call.get("entity"))
        if entity is not None:
            self.functions.check_entity(*entity)
            body["entity_type"], body["entity_id"] = entity
        return self._submission_of(function, call, body)

    def _submission_of(self, function: Function, call: Call, body: Mapping[str, Any]) -> Submission:
        timeout, retries, priority = call.get("timeout"), call.get("max_retries"), call.get("priority")
        submission = Submission(
            item_type="function",
            op="run",
            payload=body,
            tenant_id=call.get("tenant_id"),
            collection=call.get("collection"),
            priority=function.priority if priority is None else priority,
            run_at=call.get("run_at"),
            delay=call.get("delay"),
            key=call.get("key"),
            metadata=call.get("metadata"),
            max_retries=function.max_retries if retries is None else retries,
            timeout_s=function.timeout_s if timeout is None else timeout,
            job_id=call.get("job_id"),
            after=call.get("after"),
            on_dependency_failure=call.get("on_dependency_failure"),
            limit=function.limit if call.get("limit") is None else call.get("limit"),
            result_ttl=function.result_ttl_s if call.get("result_ttl") is None else call.get("result_ttl"),
        )
        if function.has_hooks or not HOOK_FIELDS.isdisjoint(call):
            submission["webhook"] = call.get("webhook") or function.webhook
            submission["on_success"] = self.hook_call(call.get("on_success") or function.on_success)
            submission["on_failure"] = self.hook_call(call.get("on_failure") or function.on_failure)
        return submission

    def hook_call(self, name: Any) -> HookCall | None:
        """The call of a function that follows a job, with the options of that function."""
        if name is None or not self.functions.names():
            return super().hook_call(name)
        function = self.functions.get(getattr(name, "name", name))
        retries, timeout = function.max_retries, function.timeout_s
        return HookCall(
            function.name,
            self.settings.max_retries if retries is None else retries,
            self.settings.job_timeout_s if timeout is None else timeout,
        )

    # One function over many payloads.

    def map(self, name: str, payloads: Iterable[Any], **options: Unpack[CallOptions]) -> Receipt:
        """Queue one parent job with a call of the function for each payload.

            receipt = app.map("resize", [{"image": path} for path in paths])
            app.wait(receipt.job_id)
            print([call.result for call in app.map_results(receipt.job_id)])

        All payloads are checked now and stored with the parent; a worker adds the calls as its children. The
        parent is done when all are done, and fails if one failed. A cancel of the parent cancels all.
        """
        function = self.functions.get(name)
        call: Call = {"name": name, **options}  # type: ignore[typeddict-item]
        _refuse_misshapen(call)
        parent = self._submission_of(function, call, {})
        retries, timeout, limit = parent["max_retries"], parent["timeout_s"], parent["limit"]
        # The calls have it: the parent only adds them.
        parent["limit"] = None
        parent["payload"] = _map_payload(
            function,
            payloads,
            max_retries=self.settings.max_retries if retries is None else retries,
            timeout_s=self.settings.job_timeout_s if timeout is None else timeout,
            limit=limit,
            result_ttl_s=parent.get("result_ttl"),
        )
        return self._submit(parent, None, counted=False)

    def map_progress(self, id_or_prefix: str) -> MapProgress:
        """Count the calls of a ``map`` that are done, failed, cancelled and open."""
        job = _mapping(self.job(id_or_prefix))
        total = len(job.payload["payload"]["payloads"])
        added = (job.progress or {}).get("cursor", 0)
        if job.waiting or job.result_json is not None:
            added = total
        ended = max(added - job.children_open - job.children_failed, 0)
        # The columns of the parent lack the cancelled calls.
        cancelled = min(cancelled_children(self.queue, job), ended) if ended else 0
        # A cancelled parent adds no more calls.
        never_added = total - added if job.status is Status.CANCELLED else 0
        return MapProgress(
            total=total,
            done=ended - cancelled,
            failed=job.children_failed,
            open=total - added + job.children_open - never_added,
            cancelled=cancelled + never_added,
        )

    def map_results(self, id_or_prefix: str) -> list[MappedCall]:
        """The calls of a ``map`` in the order of their payloads, ended or not."""
        job = _mapping(self.job(id_or_prefix))
        calls = [
            MappedCall(
                index=msgspec.json.decode(child.metadata)[MAP_INDEX],
                job_id=child.queue_id,
                status=child.status,
                result=child.result if child.status is Status.DONE else None,
                error=child.error_message,
            )
            for child in _all(self.queue, JobQuery(parent_id=job.queue_id))
            if child.parent_run == job.run
        ]
        return sorted(calls, key=lambda call: call.index)

    def known(self) -> FunctionRecords:
        """The registered functions and types of entities."""
        found = [self.functions.get(name) for name in self.functions.names()]
        return FunctionRecords(
            functions=[
                FunctionRecord(**{name: getattr(one, name) for name in FunctionRecord.__struct_fields__})
                for one in found
            ],
            entity_types=self.functions.entity_types(),
        )

    def result(self, id_or_prefix: str) -> Any:
        """The function's return value. Raises ``NoResult`` unless the job is done and has its result."""
        job = self.job(id_or_prefix)
        if job.status is Status.DONE:
            if expired(job, self.queue.now()):
                raise ResultExpired(f"the result of job {job.queue_id} was kept for {job.result_ttl_s:,} s")
            return job.result
        state = f"job {job.queue_id} is {vocabulary.speak(job.status, 'cli')}"
        raise NoResult(f"{state}: {job.error_message}" if job.error_message else state)

    @property
    def tasks(self) -> Tasks:
        """The same jobs in the words of a function task queue: PENDING, IN_PROGRESS, COMPLETED, FAILED."""
        return Tasks(self)

    def handlers(self) -> Registry:
        """Handlers for a worker of this application."""
        return self._registry.copy()


def _map_payload(
    function: Function,
    payloads: Iterable[Any],
    *,
    max_retries: int,
    timeout_s: int,
    limit: str | None = None,
    result_ttl_s: int | None = None,
) -> dict[str, Any]:
    """Check all payloads and build the payload of the parent job."""
    stored = []
    if not isinstance(payloads, Iterable):
        raise InvalidRequest(
            f"map: expected payloads, got {type(payloads).__name__}", remedy="Give one payload for each call."
        )
    for number, given in enumerate(payloads, 1):
        payload = function.stored(given)
        payload = {} if payload is None else payload
        try:
            function.check(payload)
        except InvalidRequest as refusal:
            raise type(refusal)(f"payload {number}: {refusal.message}", remedy=refusal.remedy) from None
        stored.append(dict(payload))
    if not stored:
        raise InvalidRequest("map: there are no payloads", remedy="Give one payload for each call.")
    request: dict[str, Any] = {
        "function": function.name,
        "payloads": stored,
        "max_retries": max_retries,
        "timeout_s": timeout_s,
    }
    if limit is not None:
        request["limit"] = checked_key(limit)
    if result_ttl_s is not None:
        request["result_ttl_s"] = result_ttl_s
    return {"function_name": MAP, "payload": request}


def _all(queue: Queue, query: JobQuery) -> Iterator[Job]:
    query = msgspec.structs.replace(query, limit=_PAGE)
    while page := queue.find(query):
        yield from page
        query = msgspec.structs.replace(query, after=page[-1].queue_id)


def _mapping(job: Job) -> Job:
    """The parent job of a map; refuses any other."""
    if job.payload.get("function_name") != MAP:
        raise InvalidRequest(
            f"job {job.queue_id} was not added by map", remedy="Use the id that map returned."
        )
    return job


def _refuse_misshapen(call: Call) -> None:
    if not isinstance(call, dict | Mapping):
        raise InvalidRequest(f"a call is a mapping of fields, got {type(call).__name__}")
    if not _KNOWN.issuperset(call):
        raise unknown_option("call", sorted(map(str, set(call) - _KNOWN))[0], _KNOWN)
    if "name" not in call:
        raise InvalidRequest("missing field 'name'", remedy="Name the function to call.")


def _read_entity(given: tuple[str, str] | None) -> tuple[str, str] | None:
    if given is None:
        return None
    pair = tuple(given) if isinstance(given, tuple | list) else ()
    if len(pair) != 2 or not all(isinstance(part, str) and part for part in pair):
        raise InvalidRequest(
            f"entity: expected a type and an id, got {str(given)[:80]!a}",
            remedy='Write entity=("worker", "w1").',
        )
    return pair[0], pair[1]


class Tasks:
    """Function jobs as a task queue for agents: the same rows with its columns and statuses.

    ``docs/guides/functions.md`` lists the differences between the two.
    """

    def __init__(self, app: FunctionJobs) -> None:
        self._app = app
        self._queue = app.queue

    # Checks; each returns True or False.

    def validate_function_name(self, function_name: str) -> bool:
        return self._app.functions.find(function_name) is not None

    def validate_entity_exists(self, entity_type: str, entity_id: str) -> bool:
        """Tell whether a task may name this entity; any, while no entity type is registered."""
        if not all(isinstance(part, str) and part for part in (entity_type, entity_id)):
            return False
        try:
            self._app.functions.check_entity(entity_type, entity_id)
        except UnknownEntity:
            return False
        return True

    def validate_task_payload(self, function_name: str, payload: Mapping[str, Any] | None) -> bool:
        """Tell whether the payload has the required fields; False for an unknown function."""
        function = self._app.functions.find(function_name)
        if function is None or not isinstance(payload, Mapping | None):
            return False
        return not function.missing(payload or {})

    def validate_status_transition(self, current_status: str, new_status: str) -> bool:
        try:
            return _word(new_status) in _TRANSITIONS[_word(current_status)]
        except UnknownStatus:
            return False

    def should_retry_task(self, task: Mapping[str, Any]) -> bool:
        """Tell whether a task returned by ``get_task`` failed with retries left."""
        left = task.get("retry_count", 0) < task.get("max_retries", _MAX_RETRIES)
        return task.get("status") == "FAILED" and left

    # Submission.

    def enqueue_task(
        self,
        entity_type: str,
        entity_id: str,
        function_name: str,
        payload: Mapping[str, Any] | None = None,
        max_retries: int | None = None,
        *,
        task_id: str | None = None,
    ) -> str:
        """Queue one task and return the task id. ``max_retries`` defaults to the function's own, else 3."""
        call = self._call(entity_type, entity_id, function_name, payload, max_retries)
        if task_id is not None:
            call["job_id"] = task_id
        return self._app.call_many([call])[0].job_id

    def enqueue_multiple_tasks(self, tasks: Sequence[Mapping[str, Any]]) -> list[str]:
        """Queue many tasks in one transaction: all, or none. Each has the arguments of ``enqueue_task``."""
        calls = [self._call(**_fields(task)) for task in tasks]
        return [receipt.job_id for receipt in self._app.call_many(calls)]

    def _call(
        self,
        entity_type: str,
        entity_id: str,
        function_name: str,
        payload: Mapping[str, Any] | None = None,
        max_retries: int | None = None,
    ) -> Call:
        function = self._app.functions.find(function_name)
        own = function.max_retries if function else None
        retries = max_retries if max_retries is not None else own if own is not None else _MAX_RETRIES
        return {
            "name": function_name,
            "payload": payload,
            "entity": (entity_type, entity_id),
            "max_retries": retries,
            "job_id": clock.new_task_id(),
        }

    # Queries.

    def get_task(self, task_id: str) -> dict[str, Any]:
        """One task as a row of ``task_queue``. Raises ``TaskNotFound``, a ``ValueError``."""
        return _as_task(self._task(task_id))

    def get_pending_tasks(self, limit: int = 100) -> list[dict[str, Any]]:
        """Tasks ready to start, oldest first: one for each entity, none for a busy entity.

        Of more than ``limit``, those that workers would claim first. An entity is also busy while one of its
        tasks waits for a retry. Workers do not use this: they claim.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InvalidRequest(f"limit: expected a whole number from 1, got {str(limit)[:80]!r}")
        found = self._queue.upcoming(item_type="function", limit=limit)
        return [_as_task(job) for job in sorted(found, key=lambda job: (job.created_at, job.turn))]

    def _task(self, task_id: str) -> Job:
        job = self._queue.get(task_id) if isinstance(task_id, str) else None
        if job is None or job.item_type != "function":
            raise TaskNotFound(f"Task {str(task_id)[:80]!a} not found")
        return job

    # Changes.

    def update_task_status(self, task_id: str, new_status: str, error_message: str | None = None) -> None:
        """Change the status of a task by hand: start, end, or retry.

        Raises ``TaskNotFound`` or ``InvalidTransition``, both ``ValueError``. A task started here belongs to
        the caller until its timeout: no worker claims it, and other tasks of its entity wait. Of two callers
        that start one task, one is refused. FAILED spends a retry. If a task is ended here, the result of its
        worker is refused.
        """
        job = self._task(task_id)
        current, new = _word(job.status), _word(new_status)
        if not self.validate_status_transition(current, new):
            raise InvalidTransition(f"Invalid status transition: {current} → {new}")
        if new == "IN_PROGRESS":
            self._start(job)
        elif new == "PENDING":
            self._put_back(task_id)
        elif new == "COMPLETED":
            self._settle(transitions.done(job))
        elif isinstance(error_message, str) and error_message:
            self._settle(transitions.failed_by_hand(job, "ERR_UNKNOWN", error_message))
        else:
            raise InvalidRequest("error_message: a text is required for the status FAILED")

    def _start(self, job: Job) -> None:
        lease = timedelta(seconds=job.timeout_s)
        paused = any(scope.covers(job.tenant_id, job.collection) for scope in self._queue.paused())
        if paused or self._queue.start(job.queue_id, ClaimRequest(_BY_HAND, lease=lease)) is None:
            why = "is paused" if paused else "has changed, or another task of its entity is in progress"
            raise InvalidTransition(f"Task {job.queue_id} {why}")

    def _settle(self, settlement: Settlement) -> None:
        if self._queue.settle([settlement]) == [None]:
            raise LeaseLost(f"Task {settlement.queue_id} has changed")

    def _put_back(self, task_id: str) -> None:
        (answer,) = self._queue.requeue([task_id], keep_retries=True)
        if answer.twin is not None:
            raise LiveTwin(f"job {answer.twin} with the same key is live", twin=answer.twin)
        if answer.refused:
            raise InvalidTransition(f"Task {task_id} has changed")

    def enqueue_retry(self, task_id: str) -> bool:
        """Retry a failed task; spent retries stay spent. Returns False when no retry is allowed."""
        try:
            if not self.should_retry_task(self.get_task(task_id)):
                return False
            self._put_back(task_id)
        except (TaskNotFound, InvalidTransition, LiveTwin):
            return False
        return True

    def detect_stale_tasks(self, threshold_minutes: float = 30) -> list[str]:
        """Ids of tasks in progress without any update for so long; their workers may be alive."""
        silent_since = self._queue.now() - _duration("threshold_minutes", minutes=threshold_minutes)
        running = JobQuery(item_type="function", statuses=frozenset({Status.IN_PROGRESS}))
        return [job.queue_id for job in _all(self._queue, running) if job.updated_at < silent_since]

    def cleanup_stale_tasks(self, stale_task_ids: Sequence[str]) -> int:
        """Take tasks from their workers and make them PENDING, no retry spent; returns their number."""
        found = [self._queue.get(task_id) for task_id in stale_task_ids if isinstance(task_id, str)]
        stale = [
            transitions.released(job, _STALE_MESSAGE, code="ERR_STALE")
            for job in found
            if job is not None and job.item_type == "function" and job.lease_until is not None
        ]
        return sum(status is not None for status in self._queue.settle(stale)) if stale else 0

    def cleanup_completed_tasks(self, retention_days: float = 7) -> int:
        """Remove tasks which ended longer ago, and return their number. Other jobs stay."""
        before = self._queue.now() - _duration("retention_days", days=retention_days)
        ends = dict.fromkeys((Status.DONE, Status.FAILED, Status.CANCELLED), before)
        removed = 0
        while gone := self._queue.prune(ends, item_type="function"):
            removed += gone
        return removed


def _as_task(job: Job) -> dict[str, Any]:
    """A function job in the columns of ``task_queue``, and no others."""
    payload = job.payload
    return {
        "task_id": job.queue_id,
        "entity_type": payload.get("entity_type"),
        "entity_id": payload.get("entity_id"),
        "function_name": payload["function_name"],
        "payload": payload.get("payload"),
        "status": vocabulary.speak(job.status, "function"),
        "error_message": job.error_message,
        "retry_count": job.retry_count,
        "max_retries": job.max_retries,
        "created_at": job.created_at,
        "updated_at": job.updated_at,
    }


def _word(status: str) -> str:
    return vocabulary.speak(vocabulary.understand(status), "function")


def _fields(task: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(task, Mapping):
        raise InvalidRequest(f"a task is a mapping of fields, got {type(task).__name__}")
    missing = sorted({"entity_type", "entity_id", "function_name"} - set(task))
    unknown = sorted(map(str, set(task) - _FIELDS))
    if missing or unknown:
        what = f"missing field {missing[0]!r}" if missing else f"unknown field {unknown[0]!r}"
        raise InvalidRequest(f"task: {what}; known are {', '.join(sorted(_FIELDS))}")
    return dict(task)


def _duration(name: str, **amount: float) -> timedelta:
    try:
        duration = timedelta(**amount)
    except (TypeError, ValueError, OverflowError):
        duration = timedelta(-1)
    if not timedelta(0) <= duration <= timedelta(days=36_500):
        raise InvalidTime(
            f"{name}: expected 0 or more, got {str(*amount.values())[:80]!r}", remedy="Use 0 for all."
        )
    return duration
