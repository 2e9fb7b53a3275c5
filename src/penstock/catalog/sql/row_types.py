"""Columns, parameters and decoders of rows, derived from record classes.

A field of a plain type is one column of the same name. A field that is itself a record is several columns:
``place`` is ``tenant_id, collection, branch``, ``fingerprints`` is ``ocr_fingerprint, …``, and any other is
named after field and part: ``ocr: PhaseState`` is ``ocr_status, ocr_started_at, …``. A field per phase is
named after the phases: ``counts: PerPhase[PartCounts]`` is ``ocr_processing, …, vector_processing, …``.
``StoredProperties`` are one column of JSON.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import attrgetter, itemgetter
from typing import (
    Annotated,
    Any,
    Generic,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from penstock.catalog.rules import properties
from penstock.catalog.rules.phases import PHASES
from penstock.catalog.values import Fingerprints, Phase, Place, StoredProperties
from penstock.clock import read_time
from penstock.named_tuple import NamedTuple

Row: TypeAlias = tuple[Any, ...]
T = TypeVar("T")

_NAMES_OF_PARTS = {Place: "{part}", Fingerprints: "{part}_fingerprint"}
_BIGINT = frozenset(
    "key family_key source_key document_id page_id chunk_key content_id text_key published_id size mtime_ns "
    "change_seq task_id".split()
)
_SQL_TYPES = {int: "int", str: "text", bool: "boolean", bytes: "bytea", float: "float8"}


class _Column(NamedTuple):
    name: str
    type: Any


def _without_none(hint: Any) -> tuple[Any, bool]:
    """The type behind ``type | None``, and whether None is allowed."""
    if get_origin(hint) in (Union, types.UnionType):
        (kept,) = [each for each in get_args(hint) if each is not type(None)]
        return kept, True
    return hint, False


def _is_record(hint: Any) -> bool:
    if not isinstance(hint, type) or hint is StoredProperties:
        return False
    return issubclass(hint, msgspec.Struct) or (issubclass(hint, tuple) and hasattr(hint, "_fields"))


INDEX_STATUS = {f"{phase}_status": rule.document_status for phase, rule in PHASES.items()}
"""The names of the status columns in the table of documents."""


def _phases(hint: Any) -> tuple[tuple[Phase, ...], Any]:
    """The phases of ``PerPhase[type]``, and the type; no phases for any other type."""
    if get_origin(hint) is not Annotated:
        return (), hint
    by_phase, phases = get_args(hint)
    return phases, get_args(by_phase)[1]


def _is_grouped(hint: Any) -> bool:
    return _is_record(hint) or get_origin(hint) is Annotated


def _columns_of(field: str, hint: Any) -> Iterator[_Column]:
    phases, each = _phases(hint)
    if phases:
        for phase in phases:
            if _is_record(each):
                yield from _columns_of(phase, each)
            else:
                yield _Column(f"{phase}_{field}", each)
        return
    if not _is_record(hint):
        yield _Column(field, hint)
        return
    name = _NAMES_OF_PARTS.get(hint, "{field}_{part}")
    for part, type_ in get_type_hints(hint).items():
        yield _Column(name.format(field=field, part=part), type_)


def decode_tags(text: str) -> tuple[str, ...]:
    return () if text == "[]" else msgspec.json.decode(text, type=tuple[str, ...])


def _conversion(hint: Any) -> Callable[[Any], Any] | None:
    """From the value in a column to the value of the field; None: they are the same."""
    kept, optional = _without_none(hint)
    convert: Callable[[Any], Any]
    if kept is bool:
        return lambda value: value == 1
    if kept is datetime:
        convert = read_time
    elif isinstance(kept, type) and issubclass(kept, enum.Enum):
        convert = {member.value: member for member in kept}.__getitem__
    elif get_origin(kept) is tuple:
        convert = decode_tags
    elif kept is StoredProperties:
        convert = properties.decode
    else:
        return None
    return (lambda value: None if value is None else convert(value)) if optional else convert


def _maker(made: Any, names: Sequence[str]) -> Callable[..., Any]:
    """A function from field values in their order to the record."""
    # Fields that a pattern may name by position are those that the constructor takes so.
    if len(made.__match_args__) < len(names):
        return lambda *values: made(**dict(zip(names, values, strict=True)))
    return made  # type: ignore[no-any-return]


def _group_maker(hint: Any, width: int) -> Callable[..., Any]:
    """A function from the columns of a group to the field's value."""
    phases, each = _phases(hint)
    if not phases:
        return _maker(hint, list(get_type_hints(hint)))
    if not _is_record(each):
        return lambda *values: dict(zip(phases, values, strict=True))
    make = _maker(each, list(get_type_hints(each)))
    size = width // len(phases)
    starts = [(phase, slice(at * size, (at + 1) * size)) for at, phase in enumerate(phases)]
    return lambda *values: {phase: make(*values[part]) for phase, part in starts}


def _parts(value: Any) -> Sequence[Any]:
    if isinstance(value, tuple):
        return value
    if isinstance(value, dict):
        parts: list[Any] = []
        for each in value.values():
            parts += each if isinstance(each, tuple) else (each,)
        return parts
    return msgspec.structs.astuple(value)


_DERIVED = frozenset(["columns", "columns_of", "decode", "encode", "values_of", "_types", "_groups_at"])


class RowType(Generic[T]):
    """One record class as rows: ``columns`` in order, ``decode`` from a row, ``encode`` to a row.

    ``without``: fields that are in no column. ``renamed``: columns that are not called after their field.
    """

    columns: tuple[str, ...]
    columns_of: dict[str, tuple[str, ...]]
    decode: Callable[[Row], T]
    encode: Callable[[T], Row]
    values_of: Callable[[Any], tuple[Any, ...]]
    """The field values of anything that has them by these names."""

    def __init__(
        self, record: type[T], *, without: Sequence[str] = (), renamed: Mapping[str, str] | None = None
    ) -> None:
        self.name = record.__name__
        self._record, self._without, self._renamed = record, without, renamed or {}

    def __getattr__(self, name: str) -> Any:
        """Derive all attributes at the first use of one: a short command uses few of the record classes."""
        if name not in _DERIVED:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._derive()
        return self.__dict__[name]

    def _derive(self) -> None:
        record, names = self._record, self._renamed
        hints = {
            name: hint
            for name, hint in get_type_hints(record, include_extras=True).items()
            if name not in self._without
        }
        by_field = {
            field: [_Column(names.get(name, name), type_) for name, type_ in _columns_of(field, hint)]
            for field, hint in hints.items()
        }
        columns = [column for some in by_field.values() for column in some]
        self.columns = tuple(column.name for column in columns)
        self.columns_of = {field: tuple(column.name for column in some) for field, some in by_field.items()}
        self._types = {column.name: column.type for column in columns}
        self._groups_at = [at for at, hint in enumerate(hints.values()) if _is_grouped(hint)][::-1]
        self.decode = self._decoder(record, hints, by_field)
        # SQLite binds the values of a plain tuple twice as fast as those of a named one.
        self.encode = self._flat if self._groups_at else tuple  # type: ignore[assignment]
        self.values_of = attrgetter(*hints)

    def _decoder(
        self, record: type[T], hints: Mapping[str, Any], by_field: Mapping[str, list[_Column]]
    ) -> Callable[[Row], T]:
        conversions = [
            (at, convert)
            for at, hint in enumerate(self._types.values())
            if (convert := _conversion(hint)) is not None
        ]
        groups = []
        at = 0
        for field, some in by_field.items():
            if _is_grouped(hints[field]):
                groups.append((slice(at, at + len(some)), _group_maker(hints[field], len(some))))
            at += len(some)
        groups.reverse()
        make_record: Callable[..., T] = _maker(record, list(hints))
        if not conversions and not groups:
            return getattr(record, "_make", None) or (lambda row: make_record(*row))

        def decode(row: Row) -> T:
            values = list(row)
            for at, convert in conversions:
                values[at] = convert(values[at])
            for part, make in groups:
                values[part] = (make(*values[part]),)
            return make_record(*values)

        return decode

    def decode_all(self, rows: Sequence[Row]) -> list[T]:
        return list(map(self.decode, rows))

    def _flat(self, record: T) -> Row:
        values = list(_parts(record))
        for at in self._groups_at:
            values[at : at + 1] = _parts(values[at])
        return tuple(values)

    def sql_type(self, column: str) -> str:
        """The PostgreSQL type of a parameter for this column."""
        if column in _BIGINT:
            return "bigint"
        if column == "space_id":
            return "smallint"
        if column == "at" or column.endswith("_at"):
            return "timestamptz"
        if column == "status" or column.endswith("_status"):
            return "task_status"
        return _SQL_TYPES[_without_none(self._types[column])[0]]


def column(rows: Sequence[Row]) -> list[Any]:
    """The values of a result with one column."""
    return list(map(itemgetter(0), rows))
