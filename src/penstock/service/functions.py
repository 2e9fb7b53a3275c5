"""Use cases about an application's functions: register, call, read results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, Unpack, cast, overload

import msgspec

from penstock import clock, items, results, traces, vocabulary
from penstock.config import Settings
from penstock.end_hooks import HOOK_FIELDS, HookCall
from penstock.errors import InvalidRequest, NoResult, ResultExpired
from penstock.handlers.context import Registry
from penstock.handlers.functions import Exists, Function, FunctionOptions, Functions
from penstock.handlers.webhooks import webhook_options
from penstock.job import AddResult, NewJob, QueueLimits, Status
from penstock.named_tuple import NamedTuple
from penstock.queue.protocol import Queue
from penstock.retry import JOB_BACKOFF, Backoff
from penstock.service.call_fields import PLAIN, Call, CallOptions, read_entity, refuse_misshapen
from penstock.service.function_handle import FunctionHandle
from penstock.service.function_records import FunctionRecords, function_records
from penstock.service.jobs import Jobs
from penstock.service.mapped_calls import MappedCall, MapProgress, map_payload, map_progress, map_results
from penstock.service.options import refuse_unknown
from penstock.service.requests import Submission
from penstock.service.responses import Receipt
from penstock.service.tasks import Tasks
from penstock.strict_json import encode_strictly

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")


class _Template(NamedTuple):
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
        door: items.Source = "library",
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
                if type(call) is not dict or not PLAIN.issuperset(call):
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
        payload, entity = call.get("payload"), read_entity(call.get("entity"))
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
            parsed = items.parse_payload(new.item_type, new.op, body)
            lock_key = items.lock_key(
                parsed, tenant_id=new.tenant_id, branch=new.branch, collection=new.collection
            )
        return msgspec.structs.replace(
            new,
            queue_id=queue_id,
            idempotency_key=items.own_key(new.collection, queue_id),
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
        refuse_misshapen(call)
        function = self.functions.get(call["name"])
        payload = function.stored(call.get("payload"))
        function.check({} if payload is None else payload)
        body: dict[str, Any] = {"function_name": function.name, "payload": payload}
        entity = read_entity(call.get("entity"))
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
        refuse_misshapen(call)
        parent = self._submission_of(function, call, {})
        retries, timeout, limit = parent["max_retries"], parent["timeout_s"], parent["limit"]
        # The calls have it: the parent only adds them.
        parent["limit"] = None
        parent["payload"] = map_payload(
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
        return map_progress(self.queue, self.job(id_or_prefix))

    def map_results(self, id_or_prefix: str) -> list[MappedCall]:
        """The calls of a ``map`` in the order of their payloads, ended or not."""
        return map_results(self.queue, self.job(id_or_prefix))

    def known(self) -> FunctionRecords:
        """The registered functions and types of entities."""
        return function_records(self.functions)

    def result(self, id_or_prefix: str) -> Any:
        """The function's return value. Raises ``NoResult`` unless the job is done and has its result."""
        job = self.job(id_or_prefix)
        if job.status is Status.DONE:
            if results.expired(job, self.queue.now()):
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
