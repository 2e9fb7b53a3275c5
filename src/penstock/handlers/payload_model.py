"""Typed payloads: the annotated class of a function's payload, for checks and conversion.

Dataclasses, msgspec structs, attrs classes and typed dicts are converted by msgspec, pydantic models by
pydantic. Pydantic is never imported here: a class that is a pydantic model has imported it already.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from penstock.errors import InvalidPayload, InvalidRequest

_PLAIN_NAMES = re.compile(
    r"(typing\.|t\.|collections\.abc\.|abc\.)?(Mapping|MutableMapping|dict|Dict|Any|object)\b"
)
"""Annotations of payloads that stay mappings, also where their names are imported for type checkers only."""


class PayloadModel:
    """The class of a function's payload. Errors name the function and the first wrong field."""

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


def model_of(name: str, call: Callable[..., Any]) -> PayloadModel | None:
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
