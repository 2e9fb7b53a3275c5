"""Functions of an application as jobs: registration, checks and execution."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from penstock.errors import InvalidName, InvalidPayload, InvalidRequest, UnknownEntity, UnknownFunction
from penstock.handlers.context import Context
from penstock.handlers.registry import NotHandledHere, Registry
from penstock.job import Claim
from penstock.payloads import FunctionPayload, read_payload
from penstock.retry import FUNCTION_BACKOFF, Backoff

Exists: TypeAlias = Callable[[str], bool]
BackoffGiven: TypeAlias = Backoff | int | Sequence[int]

MAX_RETRIES = 1000
MAX_TIMEOUT_S = 365 * 86_400
MAX_BACKOFF_S = 86_400
LABEL = "function run payload"


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A registered function. Instead of None, the value of the call counts, then the setting."""

    name: str
    call: Callable[..., Any]
    wants_context: bool
    requires: tuple[str, ...] = ()
    max_retries: int | None = None
    timeout_s: int | None = None
    backoff: Backoff = FUNCTION_BACKOFF

    def missing(self, payload: Mapping[str, Any]) -> list[str]:
        return [field for field in self.requires if field not in payload]

    def check(self, payload: Mapping[str, Any]) -> None:
        """Refuse a payload without a required field."""
        if not isinstance(payload, dict | Mapping):
            raise InvalidPayload(f"payload of {self.name}: expected an object, got {type(payload).__name__}")
        if missing := self.missing(payload):
            raise InvalidPayload(
                f"payload of {self.name}: missing required field {missing[0]!r}",
                remedy=f"{self.name} requires {', '.join(self.requires)}.",
            )

    def run(self, payload: Mapping[str, Any], context: Context) -> Any:
        answer = self.call(payload, context) if self.wants_context else self.call(payload)
        if not inspect.iscoroutine(answer):
            return answer
        import asyncio  # slow to import, and most functions are not async

        return asyncio.run(answer)


class Functions:
    """Functions by name, and entity types. Registration is explicit; importing registers nothing."""

    def __init__(self) -> None:
        self._functions: dict[str, Function] = {}
        self._entity_types: dict[str, Exists | None] = {}

    def add(
        self,
        name: str,
        call: Callable[..., Any],
        *,
        requires: Iterable[str] = (),
        max_retries: int | None = None,
        timeout: int | None = None,
        backoff: BackoffGiven | None = None,
    ) -> Function:
        _check_name("function name", name)
        if name in self._functions:
            raise InvalidRequest(
                f"a function named {name!r} is already registered", remedy="Choose another name."
            )
        function = Function(
            name=name,
            call=call,
            wants_context=_wants_context(name, call),
            requires=_fields(name, requires),
            max_retries=_whole(name, "max_retries", max_retries, 0, MAX_RETRIES),
            timeout_s=_whole(name, "timeout", timeout, 1, MAX_TIMEOUT_S),
            backoff=_backoff(name, backoff),
        )
        self._functions[name] = function
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

    def register_in(self, registry: Registry) -> None:
        registry.register("function", "run", self.handle, backoff=self.backoff_of)

    def handle(self, context: Context) -> Any:
        """Run a function job. The payload is checked again, since the code may be newer than the job."""
        request = _request(context)
        function = self.find(request.function_name)
        if function is None:
            raise NotHandledHere(
                f"no function {request.function_name!r} here (this worker runs {self._listed()})"
            )
        payload = request.payload or {}
        function.check(payload)
        return function.run(payload, context)

    def backoff_of(self, claim: Claim) -> Backoff:
        function = self.find(claim.payload.get("function_name", ""))
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
    steps = (
        backoff.steps if isinstance(backoff, Backoff) else (backoff,) if isinstance(backoff, int) else backoff
    )
    whole = isinstance(steps, Sequence) and all(
        isinstance(step, int) and not isinstance(step, bool) and 0 <= step <= MAX_BACKOFF_S for step in steps
    )
    if not whole or not steps:
        raise InvalidRequest(
            f"function {name}: backoff must be seconds, or a list of them, got {backoff!r:.80}",
            remedy="Use 5 for 5, 8, 16 … seconds, or [5, 60, 600].",
        )
    return backoff if isinstance(backoff, Backoff) else Backoff(tuple(steps), cap=max(300, *steps))
