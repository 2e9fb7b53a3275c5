"""Functions of an application as jobs: registration, checks and execution."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, TypeAlias, TypedDict, Unpack

import msgspec

from penstock.end_hooks import BACKUP, HOOK, HOOK_FIELDS, RESERVED, WEBHOOK
from penstock.errors import InvalidName, InvalidPayload, InvalidRequest, UnknownEntity, UnknownFunction
from penstock.handlers.backup_job import BACKUP_BACKOFF, WriteBackup, run_backup
from penstock.handlers.context import Context
from penstock.handlers.function_map import MAP, expand_map
from penstock.handlers.payload_model import PayloadModel, model_of
from penstock.handlers.registry import NotHandledHere, Registry
from penstock.handlers.webhooks import WEBHOOK_BACKOFF, WebhookOptions, deliver, hook_event, is_webhook
from penstock.job import Claim
from penstock.payloads import FunctionPayload, read_payload
from penstock.results import LONGEST_TTL_S
from penstock.retry import FUNCTION_BACKOFF, Backoff

Exists: TypeAlias = Callable[[str], bool]
BackoffGiven: TypeAlias = Backoff | float | Sequence[float]
Middleware: TypeAlias = Callable[[Context], AbstractContextManager[Any]]

MAX_RETRIES = 1000
MAX_TIMEOUT_S = 365 * 86_400
MAX_BACKOFF_S = 86_400
MAX_QUEUE_LIMIT = 1_000_000
LABEL = "function run payload"


class FunctionOptions(TypedDict, total=False):
    """Options of a function. Options of a call count before these, settings after them."""

    requires: Iterable[str]
    max_retries: int | None
    timeout: int | None
    backoff: BackoffGiven | None
    priority: int | None
    limit: str | None
    queue_limit: int | None
    result_ttl: int | None
    webhook: str | None
    on_success: str | Callable[..., Any] | None
    on_failure: str | Callable[..., Any] | None


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A registered function. Instead of None, the value of the call counts, then the setting."""

    name: str
    call: Callable[..., Any]
    wants_context: bool
    requires: tuple[str, ...] = ()
    max_retries: int | None = None
    timeout_s: int | None = None
    backoff: Backoff = FUNCTION_BACKOFF
    priority: int | None = None
    limit: str | None = None
    queue_limit: int | None = None
    result_ttl_s: int | None = None
    model: PayloadModel | None = None
    webhook: str | None = None
    on_success: str | None = None
    on_failure: str | None = None
    has_hooks: bool = False
    """A webhook or another function follows the end of each call."""

    def missing(self, payload: Mapping[str, Any]) -> list[str]:
        return [field for field in self.requires if field not in payload]

    def stored(self, payload: object) -> Any:
        """The payload in stored form: an instance of the function's model becomes a mapping."""
        return payload if self.model is None or payload is None else self.model.as_mapping(payload)

    def check(self, payload: Mapping[str, Any]) -> None:
        """Refuse a payload without a required field, or with a value not accepted by the model."""
        if not isinstance(payload, dict | Mapping):
            raise InvalidPayload(f"payload of {self.name}: expected an object, got {type(payload).__name__}")
        if missing := self.missing(payload):
            raise InvalidPayload(
                f"payload of {self.name}: missing required field {missing[0]!r}",
                remedy=f"{self.name} requires {', '.join(self.requires)}.",
            )
        if self.model is not None:
            self.model.convert(payload)

    def run(self, payload: Mapping[str, Any], context: Context) -> Any:
        given = payload if self.model is None else self.model.convert(payload)
        answer = self.call(given, context) if self.wants_context else self.call(given)
        if not inspect.iscoroutine(answer):
            return answer
        from penstock.handlers import async_run  # asyncio is slow to import, and most functions are not async

        return async_run.run(answer, context)


class Functions:
    """Functions by name, and entity types. Registration is explicit; importing registers nothing."""

    def __init__(self) -> None:
        self._functions: dict[str, Function] = {}
        self.queue_limits: dict[str, int] = {}
        """Largest numbers of pending calls, of the functions that have one."""
        self._entity_types: dict[str, Exists | None] = {}
        self._middleware: list[Middleware] = []
        self.write_backup: WriteBackup | None = None
        """Writes the backups of schedules; None where the stores cannot be read."""

    def add(self, name: str, call: Callable[..., Any], **options: Unpack[FunctionOptions]) -> Function:
        _check_name("function name", name)
        if name.startswith(RESERVED):
            raise InvalidName(f"function name must not start with {RESERVED!r}, got {name[:80]!a}")
        if name in self._functions:
            raise InvalidRequest(
                f"a function named {name!r} is already registered", remedy="Choose another name."
            )
        function = Function(
            name=name,
            call=call,
            wants_context=_wants_context(name, call),
            requires=_fields(name, options.get("requires", ())),
            max_retries=_whole(name, "max_retries", options.get("max_retries"), 0, MAX_RETRIES),
            timeout_s=_whole(name, "timeout", options.get("timeout"), 1, MAX_TIMEOUT_S),
            backoff=_backoff(name, options.get("backoff")),
            priority=_whole(name, "priority", options.get("priority"), 0, 10),
            limit=options.get("limit"),
            queue_limit=_whole(name, "queue_limit", options.get("queue_limit"), 1, MAX_QUEUE_LIMIT),
            result_ttl_s=_whole(name, "result_ttl", options.get("result_ttl"), 1, LONGEST_TTL_S),
            model=model_of(name, call),
            webhook=options.get("webhook"),
            on_success=_other(name, "on_success", options.get("on_success")),
            on_failure=_other(name, "on_failure", options.get("on_failure")),
            has_hooks=any(options.get(hook) is not None for hook in HOOK_FIELDS),
        )
        self._functions[name] = function
        if function.queue_limit is not None:
            self.queue_limits[name] = function.queue_limit
        return function

    def find(self, name: str) -> Function | None:
        return self._functions.get(name) if isinstance(name, str) else None

    def get(self, name: str) -> Function:
        """The function of this name; raises ``UnknownFunction``."""
        function = self.find(name)
        if function is None:
            raise UnknownFunction(f"no function named {str(name)[:80]!a} is registered{self._hint(name)}")
        return function

    def names(self) -> list[str]:
        return sorted(self._functions)

    def _hint(self, name: object) -> str:
        import difflib

        close = difflib.get_close_matches(str(name)[:255], self._functions, n=1)
        return f" (did you mean {close[0]!r}?)" if close else f"; known are {self._listed()}"

    def _listed(self) -> str:
        names = self.names()
        return ", ".join(names[:10]) + (", …" if len(names) > 10 else "") if names else "none"

    def add_middleware(self, enter: Callable[[Context], Any]) -> None:
        """Surround every run with a context manager; a generator function becomes one."""
        if not callable(enter):
            raise InvalidRequest(f"middleware: {type(enter).__name__} cannot be called")
        if inspect.iscoroutinefunction(enter) or inspect.isasyncgenfunction(enter):
            raise InvalidRequest(
                "middleware: it must not be async", remedy="Write def; async functions run inside of it, too."
            )
        self._middleware.append(contextmanager(enter) if inspect.isgeneratorfunction(enter) else enter)

    # Entities.

    def add_entity_type(self, name: str, exists: Exists | None = None) -> None:
        _check_name("entity type", name)
        if ":" in name:
            # The lock name has a colon after the entity type.
            raise InvalidName(f"entity type must not contain ':', got {name[:80]!r}")
        self._entity_types[name] = exists

    def entity_types(self) -> list[str]:
        return sorted(self._entity_types)

    def check_entity(self, entity_type: str, entity_id: str) -> None:
        """Refuse an entity of an unknown type, or a missing entity."""
        if not self._entity_types:
            return
        if entity_type not in self._entity_types:
            known = ", ".join(sorted(self._entity_types))
            raise UnknownEntity(f"unknown entity type {str(entity_type)[:80]!a}; known are {known}")
        exists = self._entity_types[entity_type]
        if exists is not None and not exists(entity_id):
            raise UnknownEntity(f"there is no {entity_type} {str(entity_id)[:80]!a}")

    # Running.

    def register_in(self, registry: Registry, webhooks: WebhookOptions) -> None:
        registry.register(
            "function", "run", partial(self.handle, webhooks), backoff=self.backoff_of, beside=is_webhook
        )

    def handle(self, webhooks: WebhookOptions, context: Context) -> Any:
        """Run a function job. The payload is checked again, since the code may be newer than the job."""
        request = _request(context)
        if request.function_name == MAP:
            return expand_map(context, request.payload or {}, self.find)
        if request.function_name == WEBHOOK:
            return deliver(context, request.payload or {}, webhooks)
        if request.function_name == BACKUP and self.write_backup is not None:
            return run_backup(self.write_backup, context, request.payload or {})
        function = self.find(request.function_name)
        if function is None and not self._functions:
            raise NotHandledHere("no handler for function/run here: start a worker with --app MODULE:NAME")
        if function is None:
            raise NotHandledHere(
                f"no function {request.function_name!r} here (this worker runs {self._listed()})"
            )
        payload = request.payload or {}
        if HOOK in context.metadata:
            event = hook_event(context)
            if not isinstance(event, dict):
                return event
            payload = event
        if function.model is None:
            function.check(payload)
        return (
            self._surrounded(function, payload, context)
            if self._middleware
            else function.run(payload, context)
        )

    def _surrounded(self, function: Function, payload: Mapping[str, Any], context: Context) -> Any:
        """Run inside all middleware, the first registered outermost. An error is never swallowed."""
        failure: BaseException | None = None
        with ExitStack() as stack:
            for enter in self._middleware:
                stack.enter_context(enter(context))
            try:
                return function.run(payload, context)
            except BaseException as error:
                failure = error
                raise
        raise failure

    def backoff_of(self, claim: Claim) -> Backoff:
        name = claim.payload.get("function_name", "")
        if name == WEBHOOK:
            return WEBHOOK_BACKOFF
        if name == BACKUP:
            return BACKUP_BACKOFF
        function = self.find(name)
        return function.backoff if function else FUNCTION_BACKOFF


_decode_request = msgspec.json.Decoder(FunctionPayload).decode


def _request(context: Context) -> FunctionPayload:
    """Decode and check in one step: half the cost of checking the decoded payload."""
    try:
        return _decode_request(context.claim.payload_json)
    except msgspec.MsgspecError:
        # Only this way says what is wrong.
        request = read_payload(FunctionPayload, "run", context.payload, label=LABEL)
        assert isinstance(request, FunctionPayload)
        return request


def _check_name(what: str, name: object) -> None:
    if not isinstance(name, str) or not 1 <= len(name) <= 255:
        raise InvalidName(f"{what} must be text of 1 to 255 characters, got {str(name)[:80]!a}")
    if not name.isprintable() or name != name.strip():
        raise InvalidName(f"{what} must be printable, without blanks at its ends, got {name[:80]!a}")


def _wants_context(name: str, call: object) -> bool:
    """Check whether to call ``call(payload, context)`` or ``call(payload)``."""
    if not callable(call):
        raise InvalidRequest(f"function {name}: {type(call).__name__} cannot be called")
    try:
        parameters = list(inspect.signature(call).parameters.values())
    except ValueError:
        return False  # some built-in functions have no signature
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    if len(required) > 2 or any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters):
        raise InvalidRequest(f"function {name}: expected {name}(payload) or {name}(payload, context)")
    if not positional and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        raise InvalidRequest(f"function {name}: it takes no payload; expected {name}(payload)")
    # A second parameter with a default is not for the context, unless it is named so.
    return len(required) == 2 or (len(positional) >= 2 and positional[1].name == "context")


def _fields(name: str, requires: Iterable[str]) -> tuple[str, ...]:
    if isinstance(requires, str) or not isinstance(requires, Iterable):
        raise InvalidRequest(f"function {name}: requires must be a list of field names")
    fields = tuple(requires)
    if not all(isinstance(field, str) and field for field in fields):
        raise InvalidRequest(f"function {name}: requires must hold names of fields, got {fields!r}")
    return fields


def _other(name: str, what: str, value: object) -> str | None:
    if value is None:
        return None
    # A handle of a function has its name.
    found = getattr(value, "name", value)
    if not isinstance(found, str):
        raise InvalidRequest(
            f"function {name}: {what} must be the name of a function, got {type(value).__name__}"
        )
    return found


def _whole(name: str, what: str, value: int | None, low: int, high: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidRequest(
            f"function {name}: {what} must be a whole number from {low} to {high}, got {str(value)[:80]!r}"
        )
    return value


def _backoff(name: str, backoff: BackoffGiven | None) -> Backoff:
    if backoff is None:
        return FUNCTION_BACKOFF
    steps = backoff.steps if isinstance(backoff, Backoff) else backoff
    if isinstance(steps, int | float):
        steps = (steps,)
    valid = isinstance(steps, Sequence) and all(
        isinstance(step, int | float) and not isinstance(step, bool) and 0 <= step <= MAX_BACKOFF_S
        for step in steps
    )
    if not valid or not steps:
        raise InvalidRequest(
            f"function {name}: backoff must be seconds, or a list of them, got {backoff!r:.80}",
            remedy="Use 5 for 5, 8, 16 … seconds, 0.2 for parts of one, or [5, 60, 600].",
        )
    return backoff if isinstance(backoff, Backoff) else Backoff(tuple(steps), cap=max(300, *steps))
