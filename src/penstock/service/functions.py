"""Use cases about an application's functions: register, call, read results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Required, TypedDict, TypeVar, Unpack

import msgspec

from penstock import clock, items, vocabulary
from penstock.config import Settings
from penstock.errors import InvalidRequest, NoResult
from penstock.handlers.functions import BackoffGiven, Exists, Function, Functions
from penstock.handlers.registry import Registry
from penstock.job import NewJob, Status
from penstock.payloads import encode_payload
from penstock.queue.protocol import Queue
from penstock.retry import JOB_BACKOFF, Backoff
from penstock.service.jobs import Jobs
from penstock.service.requests import Submission
from penstock.service.responses import Receipt
from penstock.service.tasks import Tasks

F = TypeVar("F", bound=Callable[..., Any])


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


class Call(CallOptions, total=False):
    """One of many calls."""

    name: Required[str]
    payload: Mapping[str, Any] | None
    entity: tuple[str, str] | None


class FunctionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A function of the application. ``requires``: fields of its payload. None: the setting counts."""

    name: str
    requires: tuple[str, ...]
    max_retries: int | None
    timeout_s: int | None


class FunctionRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Functions by name, and the types of entities that calls may have; none: any type."""

    functions: list[FunctionRecord]
    entity_types: list[str]


class _Template(NamedTuple):
    """A checked call of a function with its defaults, from which calls without options are made."""

    function: Function
    settings: Settings
    new: NewJob


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
        self.functions.register_in(self._registry)

    def function(
        self,
        name: str,
        *,
        requires: Iterable[str] = (),
        max_retries: int | None = None,
        timeout: int | None = None,
        backoff: BackoffGiven | None = None,
    ) -> Callable[[F], F]:
        """Register a function for workers to run.

            @app.function("send_mail", requires=["to"], max_retries=5, timeout=60)
            def send_mail(payload, context): ...

        It may be async, and may leave out ``context``. Its return value, as JSON, is the job's result.
        ``timeout`` is in seconds. ``backoff`` is the seconds before the first retry, or a list of them; after
        these come the powers of two above the last. By default 1, 2, 4 … 300 seconds.
        """
        if not isinstance(name, str):
            raise InvalidRequest("function: the name is missing", remedy='Write @app.function("name").')

        def register(call: F) -> F:
            self.functions.add(
                name, call, requires=requires, max_retries=max_retries, timeout=timeout, backoff=backoff
            )
            return call

        return register

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
        payload: Mapping[str, Any] | None = None,
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
        call in the caller's own transaction.
        """
        call: Call = {"name": name, "payload": payload, "entity": entity, **options}
        new = self._plain_calls([call]) if connection is None else None
        if new is not None:
            return self._receipt(self.queue.add(new, limits=self._limits())[0], None)
        return self._submit(self._submission(call), connection, counted=False)

    def call_many(self, calls: Sequence[Call], *, connection: Any = None) -> list[Receipt]:
        """Queue many calls in one transaction: all, or none.

        app.call_many([{"name": "resize", "payload": {"image": path}} for path in paths])
        """
        new = self._plain_calls(calls) if connection is None else None
        if new:
            return [self._receipt(added, None) for added in self.queue.add(new, limits=self._limits())]
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
        new = []
        try:
            for call, queue_id in zip(calls, clock.new_ids(len(calls)), strict=True):
                if type(call) is not dict or not _PLAIN.issuperset(call):
                    return None
                new.append(self._plain_call(call, queue_id))
        except (InvalidRequest, KeyError):
            return None
        return new

    def _plain_call(self, call: Call, queue_id: str) -> NewJob:
        function, _, new = self._template(call["name"])
        payload, entity = call.get("payload"), _entity(call.get("entity"))
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
            idempotency_key=items.function_key(new.collection, queue_id),
            payload_json=encode_payload(body, max_bytes=self.settings.max_payload_bytes),
            lock_key=lock_key,
        )

    def _template(self, name: str) -> _Template:
        function = self.functions.get(name)
        found = self._templates.get(name)
        if found is None or found.function is not function or found.settings is not self.settings:
            # The required fields have to be there; their values are replaced.
            submission = self._submission({"name": name, "payload": dict.fromkeys(function.requires)})
            (new,) = self._new([submission], joins=False)
            found = self._templates[name] = _Template(function, self.settings, new)
        return found

    def _submission(self, call: Call) -> Submission:
        _refuse_misshapen(call)
        function = self.functions.get(call["name"])
        payload = call.get("payload")
        function.check({} if payload is None else payload)
        body: dict[str, Any] = {"function_name": function.name, "payload": payload}
        entity = _entity(call.get("entity"))
        if entity is not None:
            self.functions.check_entity(*entity)
            body["entity_type"], body["entity_id"] = entity
        timeout, retries = call.get("timeout"), call.get("max_retries")
        return Submission(
            item_type="function",
            op="run",
            payload=body,
            tenant_id=call.get("tenant_id"),
            collection=call.get("collection"),
            priority=call.get("priority"),
            run_at=call.get("run_at"),
            delay=call.get("delay"),
            key=call.get("key"),
            metadata=call.get("metadata"),
            max_retries=function.max_retries if retries is None else retries,
            timeout_s=function.timeout_s if timeout is None else timeout,
            job_id=call.get("job_id"),
        )

    def known(self) -> FunctionRecords:
        """The functions and types of entities that were registered."""
        found = [self.functions.get(name) for name in self.functions.names()]
        return FunctionRecords(
            functions=[
                FunctionRecord(
                    name=one.name, requires=one.requires, max_retries=one.max_retries, timeout_s=one.timeout_s
                )
                for one in found
            ],
            entity_types=self.functions.entity_types(),
        )

    def result(self, id_or_prefix: str) -> Any:
        """The function's return value. Raises ``NoResult`` unless the job is done."""
        job = self.job(id_or_prefix)
        if job.status is Status.DONE:
            return job.result
        state = f"job {job.queue_id} is {vocabulary.speak(job.status, 'cli')}"
        raise NoResult(f"{state}: {job.error_message}" if job.error_message else state)

    @property
    def tasks(self) -> Tasks:
        """The same jobs in the words of a function task queue: PENDING, IN_PROGRESS, COMPLETED, FAILED."""
        return Tasks(self)

    def _has_handler(self, item_type: str, op: str) -> bool:
        return self._registry.find(item_type, op) is not None

    def handlers(self) -> Registry:
        """Handlers for a worker of this application."""
        return self._registry.copy()


_KNOWN = Call.__required_keys__ | Call.__optional_keys__
_PLAIN = frozenset({"name", "payload", "entity"})
"""Fields of calls that differ from the template of their function in payload, entity and id only."""


def _refuse_misshapen(call: Call) -> None:
    if not isinstance(call, dict | Mapping):
        raise InvalidRequest(f"a call is a mapping of fields, got {type(call).__name__}")
    if not _KNOWN.issuperset(call):
        unknown = sorted(map(str, set(call) - _KNOWN))
        raise InvalidRequest(f"unknown field {unknown[0]!r}; known are {', '.join(sorted(_KNOWN))}")
    if "name" not in call:
        raise InvalidRequest("missing field 'name'", remedy="Name the function to call.")


def _entity(given: tuple[str, str] | None) -> tuple[str, str] | None:
    if given is None:
        return None
    pair = tuple(given) if isinstance(given, tuple | list) else ()
    if len(pair) != 2 or not all(isinstance(part, str) and part for part in pair):
        raise InvalidRequest(
            f"entity: expected a type and an id, got {str(given)[:80]!a}",
            remedy='Write entity=("worker", "w1").',
        )
    return pair[0], pair[1]
