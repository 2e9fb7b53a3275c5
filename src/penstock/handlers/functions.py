"""Functions of an application as jobs: registration, checks and execution, maps and backups."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import re
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeAlias, TypedDict, Unpack

import msgspec
from msgspec import Meta

from penstock import clock
from penstock.errors import InvalidName, InvalidPayload, InvalidRequest, UnknownEntity, UnknownFunction
from penstock.handlers.context import MAX_CHILDREN, Context, NotHandledHere, ProgressReport, Registry, Wait
from penstock.handlers.webhooks import WEBHOOK_BACKOFF, WebhookOptions, deliver, hook_event, is_webhook
from penstock.queue import payloads
from penstock.queue.job import LONGEST_TTL_S, Claim, NewJob
from penstock.queue.payloads import FunctionPayload, normal_path, read_payload
from penstock.queue.retry import FUNCTION_BACKOFF, Backoff
from penstock.queue.transitions import BACKUP, HOOK, HOOK_FIELDS, RESERVED, WEBHOOK
from penstock.vocabulary import how_many

MAP = "penstock.map"
"""Function name of the parent job."""
MAP_INDEX = "map_index"
"""In the metadata of a child job: the position of its payload."""

_encode = msgspec.json.Encoder().encode


class MapRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of the parent job of a map: the function, the payloads, and the options of each call."""

    function: str
    payloads: list[dict[str, Any]]
    max_retries: int
    timeout_s: int
    limit: str | None = None
    result_ttl_s: int | None = None


def _expand_map(context: Context, payload: dict[str, Any], find: Callable[[str], object | None]) -> Wait:
    """Add the missing child jobs, a batch at a time, and wait for all of them."""
    request = msgspec.convert(payload, MapRequest)
    if find(request.function) is None:
        raise NotHandledHere(f"no function {request.function!r} here")
    total = len(request.payloads)
    for start in range(context.cursor or 0, total, MAX_CHILDREN):
        batch = request.payloads[start : start + MAX_CHILDREN]
        ids = clock.new_ids(len(batch))
        children = [_child(context, request, queue_id, start + number) for number, queue_id in enumerate(ids)]
        context.expand(children, start + len(batch), progress=_progress(start + len(batch), total))
    return Wait(result_json=_encode({"function": request.function, "calls": total}).decode())


def _progress(added: int, total: int) -> ProgressReport:
    return ProgressReport(added, total, f"{added:,} of {total:,} calls added")


def _child(context: Context, request: MapRequest, queue_id: str, index: int) -> NewJob:
    claim = context.claim
    body = {"function_name": request.function, "payload": request.payloads[index]}
    return NewJob(
        queue_id=queue_id,
        item_type="function",
        op="run",
        tenant_id=claim.tenant_id,
        collection=claim.collection,
        branch=claim.branch,
        # The same in every attempt: a child that was added before a crash is not added twice.
        idempotency_key=payloads.function_key(claim.collection, f"{claim.queue_id}:{index}"),
        payload_json=_encode(body).decode(),
        priority=payloads.child_priority(claim.priority),
        metadata=_encode(context.metadata | {MAP_INDEX: index}).decode(),
        max_retries=request.max_retries,
        timeout_s=request.timeout_s,
        submitted_by=claim.submitted_by,
        limit_key=request.limit,
        result_ttl_s=request.result_ttl_s,
    )


_PLAIN_NAMES = re.compile(
    r"(typing\.|t\.|collections\.abc\.|abc\.)?(Mapping|MutableMapping|dict|Dict|Any|object)\b"
)
"""Annotations of payloads that stay mappings, also where their names are imported for type checkers only."""


class PayloadModel:
    """The annotated class of a function's payload. Errors name the function and the first wrong field.

    Dataclasses, msgspec structs, attrs classes and typed dicts are converted by msgspec, pydantic models by
    pydantic. Pydantic is never imported here: a class that is a pydantic model has imported it already.
    """

    def __init__(self, label: str, model: type) -> None:
        self._label = label
        self.type = model
        self._pydantic = _is_pydantic(model)
        self._known = (
            frozenset(field.name for field in dataclasses.fields(model))
            if dataclasses.is_dataclass(model) and not self._pydantic
            else None
        )
        if not self._pydantic:
            try:
                msgspec.json.Decoder(model)
            except (TypeError, RuntimeError) as error:
                raise InvalidRequest(
                    f"{label}: {model.__name__} cannot be checked: {error}",
                    remedy="Use types that JSON can hold, or annotate the payload as dict.",
                ) from None

    def as_mapping(self, payload: object) -> Mapping[str, Any]:
        """The payload in stored form: an instance of the model becomes a mapping."""
        if isinstance(payload, Mapping) or not isinstance(payload, self.type):
            return typing.cast("Mapping[str, Any]", payload)
        if self._pydantic:
            dumped: Mapping[str, Any] = payload.model_dump(mode="json")  # type: ignore[attr-defined]
            return dumped
        try:
            built: Mapping[str, Any] = msgspec.to_builtins(payload)
        except (TypeError, ValueError) as error:
            raise InvalidPayload(f"{self._label}: {error}") from None
        return built

    def convert(self, payload: Mapping[str, Any]) -> Any:
        """Build the model of a stored payload; raises ``InvalidPayload``."""
        if self._known is not None and not self._known.issuperset(payload):
            unknown = sorted(map(str, set(payload) - self._known))[0]
            raise InvalidPayload(f"{self._label}: unknown field {unknown[:80]!a}", remedy=self._remedy())
        try:
            if self._pydantic:
                return self.type.model_validate(payload)  # type: ignore[attr-defined]
            return msgspec.convert(payload, self.type)
        except msgspec.ValidationError as error:
            raise InvalidPayload(f"{self._label}: {_readable(str(error))}", remedy=self._remedy()) from None
        except ValueError as error:
            if not self._pydantic:
                raise
            raise InvalidPayload(f"{self._label}: {_pydantic_text(error)}", remedy=self._remedy()) from None

    def _remedy(self) -> str:
        hints = getattr(self.type, "__annotations__", {})
        fields = ", ".join(
            f"{name}: {hint if isinstance(hint, str) else getattr(hint, '__name__', hint)}"
            for name, hint in list(hints.items())[:12]
        )
        return f"{self.type.__name__} has {fields or 'no fields'}."


def _model_of(name: str, call: Callable[..., Any]) -> PayloadModel | None:
    """The model of a function's payload; None if the function takes a plain mapping."""
    try:
        first = next(iter(inspect.signature(call).parameters.values()), None)
    except ValueError:
        return None  # some built-in functions have no signature
    if first is None or first.annotation is first.empty:
        return None
    annotation = first.annotation
    if isinstance(annotation, str):
        annotation = _resolved(name, call, first.name, annotation)
    if not isinstance(annotation, type) or not _is_model(annotation):
        return None
    return PayloadModel(f"payload of {name}", annotation)


def _resolved(name: str, call: Callable[..., Any], parameter: str, text: str) -> object:
    owner: Any = inspect.unwrap(call)
    while isinstance(owner, functools.partial):
        owner = inspect.unwrap(owner.func)
    if not hasattr(owner, "__globals__") and not hasattr(owner, "__func__"):
        owner = type(owner).__call__  # an object with this method
    owner = getattr(owner, "__func__", owner)
    names = dict(getattr(owner, "__globals__", {}))
    closure = getattr(owner, "__closure__", None) or ()
    for free, cell in zip(
        getattr(getattr(owner, "__code__", None), "co_freevars", ()), closure, strict=False
    ):
        try:
            names[free] = cell.cell_contents
        except ValueError:  # the variable has no value yet
            continue
    try:
        return typing.get_type_hints(_Annotated(parameter, text), names)[parameter]
    except Exception:  # noqa: BLE001 - an annotation is code of the application
        if _PLAIN_NAMES.match(text):
            return dict
        raise InvalidRequest(
            f"function {name}: the type {text[:80]!a} of its payload cannot be found",
            remedy="Define it in the module, outside of TYPE_CHECKING, or annotate the payload as dict.",
        ) from None


class _Annotated:
    """A holder of one annotation, to resolve only this one."""

    def __init__(self, name: str, text: str) -> None:
        self.__annotations__ = {name: text}


def _is_model(annotation: type) -> bool:
    return (
        dataclasses.is_dataclass(annotation)
        or issubclass(annotation, msgspec.Struct)
        or typing.is_typeddict(annotation)
        or hasattr(annotation, "__attrs_attrs__")
        or _is_pydantic(annotation)
    )


def _is_pydantic(model: type) -> bool:
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(model, type) and issubclass(model, pydantic.BaseModel)


def _readable(complaint: str) -> str:
    """A complaint of msgspec with the field first."""
    what, _, where = complaint.partition(" - at ")
    match = re.search(r"\$\.?([^`]+)", where)
    missing = re.fullmatch(r"Object missing required field `(.+)`", what)
    unknown = re.fullmatch(r"Object contains unknown field `(.+)`", what)
    place = match[1] if match else ""
    if missing or unknown:
        field = ".".join(part for part in (place, (missing or unknown)[1]) if part)  # type: ignore[index]
        return f"missing required field {field!r}" if missing else f"unknown field {field!r}"
    plain = what.replace("`", "").replace("Expected", "expected")
    return f"field {place!r}: {plain}" if place else plain


def _pydantic_text(error: ValueError) -> str:
    first = error.errors()[0]  # type: ignore[attr-defined]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return f"missing required field {field!r}"
    return f"field {field!r}: {first['msg']}" if field else str(first["msg"])


_BACKUP_BACKOFF = Backoff((60, 300, 900), cap=3_600)
"""Seconds between attempts: a full disk, or a store that is away, is not repaired within seconds."""
BACKUP_TIMEOUT_S = 86_400
MOST_KEPT = 100_000
_RESULT_FIELDS = ("path", "id", "created_at", "size", "jobs", "documents")


class WriteBackup(Protocol):
    """Writes a backup of the stores to a file, or into a directory, and returns a report."""

    def __call__(
        self, destination: Path, *, keep: int | None, on_progress: Callable[[str, int, float], None]
    ) -> Any: ...


class BackupRequest(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Payload of a backup. ``keep``: backups to keep in the directory, the new one included; None: all."""

    directory: str
    keep: Annotated[int, Meta(ge=1, le=MOST_KEPT)] | None = None


def backup_request(directory: str, keep: int | None) -> BackupRequest:
    """Check the directory and the number of backups to keep."""
    if not directory.startswith("/"):
        raise InvalidRequest(f"directory: expected an absolute path, got {directory[:200]!r}")
    return _backup_request({"directory": normal_path(directory), "keep": keep})


def _backup_request(payload: Mapping[str, Any]) -> BackupRequest:
    try:
        return msgspec.convert(payload, BackupRequest)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"backup: {error}") from None


def _run_backup(write: WriteBackup, context: Context, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Write the backup of a job. The result has the path, size and contents of the file."""
    request = _backup_request(payload)
    directory = Path(request.directory)
    if not os.path.isdir(directory):  # noqa: PTH112 - it never raises
        raise InvalidRequest(
            f"{directory} is not a directory on this host",
            remedy="Create or mount it for the user of the workers, then retry the job.",
        )
    written, last = 0, ("", 0)

    def report(part: str, rows: int, _share: float) -> None:
        nonlocal written, last
        # Rows are counted from the start of each part.
        written += rows - (last[1] if last[0] == part else 0)
        last = part, rows
        context.report(ProgressReport(written, None, f"{part}: {how_many(rows, 'row')}"))

    made = write(directory, keep=request.keep, on_progress=report)
    found: dict[str, Any] = {name: getattr(made, name) for name in _RESULT_FIELDS}
    return found | {"removed": list(made.removed)}


Exists: TypeAlias = Callable[[str], bool]
BackoffGiven: TypeAlias = Backoff | float | Sequence[float]
Middleware: TypeAlias = Callable[[Context], AbstractContextManager[Any]]

MAX_RETRIES = 1000
MAX_TIMEOUT_S = 365 * 86_400
_MAX_BACKOFF_S = 86_400
_MAX_QUEUE_LIMIT = 1_000_000
_LABEL = "function run payload"


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
            queue_limit=_whole(name, "queue_limit", options.get("queue_limit"), 1, _MAX_QUEUE_LIMIT),
            result_ttl_s=_whole(name, "result_ttl", options.get("result_ttl"), 1, LONGEST_TTL_S),
            model=_model_of(name, call),
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
        request = _function_payload(context)
        if request.function_name == MAP:
            return _expand_map(context, request.payload or {}, self.find)
        if request.function_name == WEBHOOK:
            return deliver(context, request.payload or {}, webhooks)
        if request.function_name == BACKUP and self.write_backup is not None:
            return _run_backup(self.write_backup, context, request.payload or {})
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
            return _BACKUP_BACKOFF
        function = self.find(name)
        return function.backoff if function else FUNCTION_BACKOFF


_decode_request = msgspec.json.Decoder(FunctionPayload).decode


def _function_payload(context: Context) -> FunctionPayload:
    """Decode and check in one step: half the cost of checking the decoded payload."""
    try:
        return _decode_request(context.claim.payload_json)
    except msgspec.MsgspecError:
        # Only this way says what is wrong.
        request = read_payload(FunctionPayload, "run", context.payload, label=_LABEL)
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
        isinstance(step, int | float) and not isinstance(step, bool) and 0 <= step <= _MAX_BACKOFF_S
        for step in steps
    )
    if not valid or not steps:
        raise InvalidRequest(
            f"function {name}: backoff must be seconds, or a list of them, got {backoff!r:.80}",
            remedy="Use 5 for 5, 8, 16 … seconds, 0.2 for parts of one, or [5, 60, 600].",
        )
    return backoff if isinstance(backoff, Backoff) else Backoff(tuple(steps), cap=max(300, *steps))
