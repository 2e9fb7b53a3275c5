"""Named statements: their files, the columns of records in them, and ``Statements``, which runs them.

SQL files have blocks headed ``-- name: xyz``, of the same names in every dialect.
"""

from __future__ import annotations

import enum
import re
import sqlite3
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from functools import cache
from importlib import import_module
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Generic,
    Protocol,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from penstock.catalog import values
from penstock.catalog.rules.phases import CHUNK_PHASES, LATER_PHASES, PHASES, PhaseRule, Unit
from penstock.catalog.values import Fingerprints, Phase, Place, StoredProperties
from penstock.clock import read_time

Row: TypeAlias = tuple[Any, ...]
T = TypeVar("T")

_NAMES_OF_PARTS = {Place: "{part}", Fingerprints: "{part}_fingerprint"}
_BIGINT = frozenset(
    "key family_key source_key document_id page_id chunk_key content_id text_key published_id size mtime_ns "
    "change_seq task_id".split()
)
_SQL_TYPES = {int: "int", str: "text", bool: "boolean", bytes: "bytea", float: "float8"}


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


def _columns_of(field: str, hint: Any) -> Iterator[tuple[str, Any]]:
    """Names and types of the columns of a field."""
    phases, each = _phases(hint)
    if phases:
        for phase in phases:
            if _is_record(each):
                yield from _columns_of(phase, each)
            else:
                yield f"{phase}_{field}", each
        return
    if not _is_record(hint):
        yield field, hint
        return
    name = _NAMES_OF_PARTS.get(hint, "{field}_{part}")
    for part, type_ in get_type_hints(hint).items():
        yield name.format(field=field, part=part), type_


def _decode_tags(text: str) -> tuple[str, ...]:
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
        convert = _decode_tags
    elif kept is StoredProperties:
        convert = values.decode
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
    """The values in the columns of a record, or of a field with a value for each phase."""
    if isinstance(value, dict):
        return [part for each in value.values() for part in _parts(each)]
    return msgspec.structs.astuple(value) if isinstance(value, msgspec.Struct) else (value,)


_ROW_TYPES: dict[str, RowType[Any]] = {}
"""By the name of the record class, which stands for the columns in SQL files."""
_DERIVED = frozenset(["columns", "columns_of", "decode", "encode", "values_of", "_types", "_groups_at"])


class RowType(Generic[T]):
    """One record class as rows: ``columns`` in order, ``decode`` from a row, ``encode`` to a row.

    A field of a plain type is one column of the same name. A field that is itself a record is several
    columns: ``place`` is ``tenant_id, collection, branch``, ``fingerprints`` is ``ocr_fingerprint, …``, and
    any other is named after field and part: ``ocr: PhaseState`` is ``ocr_status, ocr_started_at, …``. A field
    per phase is named after the phases: ``counts: PerPhase[PartCounts]`` is ``ocr_processing, …,
    vector_processing, …``. ``StoredProperties`` are one column of JSON.

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
        _ROW_TYPES[self.name] = self

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
            field: {names.get(name, name): type_ for name, type_ in _columns_of(field, hint)}
            for field, hint in hints.items()
        }
        self.columns_of = {field: tuple(some) for field, some in by_field.items()}
        self._types = {name: type_ for some in by_field.values() for name, type_ in some.items()}
        self.columns = tuple(self._types)
        self._groups_at = [at for at, hint in enumerate(hints.values()) if _is_grouped(hint)][::-1]
        self.decode = self._decoder(record, hints, by_field)
        self.encode = self._flat if self._groups_at else msgspec.structs.astuple  # type: ignore[assignment]
        self.values_of = attrgetter(*hints)

    def _decoder(
        self, record: type[T], hints: Mapping[str, Any], by_field: Mapping[str, Mapping[str, Any]]
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
            return lambda row: make_record(*row)

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


_HERE = Path(__file__).parent
_HEADER = re.compile(r"(\w+)(?: per (phase|chunk phase|later phase))?(?: \((.+)\))?")

_TABLES = {
    Unit.PAGE: {"table": "task_queue_page", "index": "idx_tqp", "page_id": "id"},
    Unit.CHUNK: {"table": "task_queue_chunk", "index": "idx_tqc", "page_id": "page_id"},
}


def _free(rule: PhaseRule) -> str:
    """The condition of claimable tasks, as in the partial index."""
    conditions = [f"{rule.phase}_status = 'pending'"]
    if rule.unit is Unit.CHUNK:
        if rule.after in CHUNK_PHASES:
            conditions.append(f"{rule.after}_status = 'completed'")
        conditions.append(f"{rule.phase}_held IS NULL")
    return " AND ".join(conditions)


def _gate(rule: PhaseRule) -> dict[str, str]:
    """The status that must be completed first: of a chunk ``c`` or its page ``p``, and of the document."""
    if rule.after is None:
        return {}
    before = PHASES[rule.after]
    table = "c" if before.unit is Unit.CHUNK else "p"
    return {
        "after": str(before.phase),
        "gate": f"{table}.{before.phase}_status",
        "gate_status": before.document_status,
    }


_WORDS = {
    phase: {
        "phase": str(phase),
        "document_status": rule.document_status,
        "free": _free(rule),
        **_gate(rule),
        **_TABLES[rule.unit],
    }
    for phase, rule in PHASES.items()
}
"""Words in statements that differ from phase to phase."""


@cache
def load(dialect: str) -> Mapping[str, str]:
    """Every statement of a dialect by name. Those ``per phase`` come out as name_ocr, name_vector, …; those
    ``per chunk phase`` without the first, those ``per later phase`` without the first two."""
    blocks: dict[str, _Block] = {}
    queries = _HERE / "queries"
    found = [file for folder in ("both", dialect) for file in (queries / folder).iterdir()]
    for file in sorted(found, key=lambda file: file.name):
        # Split as text: an expression looks at every line, which takes ten times as long.
        _, *parts = f"\n{file.read_text(encoding='utf-8')}".split("\n-- name: ")
        for part in parts:
            header, _, text = part.partition("\n")
            name, per_phase, parameters = _split_header(header)
            made = {name: _Block(text, parameters)}
            if per_phase:
                made = {f"{name}_{phase}": _Block(text, parameters, phase) for phase in _PHASES_OF[per_phase]}
            if made.keys() & blocks.keys():
                raise AssertionError(f"{dialect} has two statements named {name}")
            blocks |= made
    return Expanded(blocks, dialect)


def _split_header(header: str) -> Sequence[str]:
    """Split ``name per phase (parameters)``; most statements have a name alone."""
    if header.isidentifier():
        return header, "", ""
    found = _HEADER.fullmatch(header)
    if found is None:
        raise AssertionError(f"not the head of a statement: {header}")
    return found.groups("")


class _Block(msgspec.Struct, frozen=True):
    """A statement as written in the file, with the phase if the statement is for one phase only."""

    text: str
    parameters: str | None
    phase: Phase | None = None


class Expanded(Mapping[str, str]):
    """Statements in the store's SQL, each expanded at the first use: a command uses few of them."""

    def __init__(self, blocks: Mapping[str, _Block], dialect: str) -> None:
        self._blocks = blocks
        self._dialect = dialect
        self._statements: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        statement = self._statements.get(name)
        if statement is None:
            block = self._blocks[name]
            text = _EACH_PHASE.sub(_each_phase, block.text.strip())
            text = _of_phase(text, block.phase) if block.phase is not None else text
            statement = _expanded(text, block.parameters, self._dialect)
            for word in ("first_of_family_where", "visible_where", "filtered", "filters"):
                if f"{{{word}}}" in statement:
                    statement = statement.replace(f"{{{word}}}", self[word])
            self._statements[name] = statement
        return statement

    def __iter__(self) -> Iterator[str]:
        return iter(self._blocks)

    def __len__(self) -> int:
        return len(self._blocks)


def _of_phase(text: str, phase: Phase) -> str:
    for word, meaning in _WORDS[phase].items():
        text = text.replace(f"{{{word}}}", meaning)
    return text


def _each_phase(found: re.Match[str]) -> str:
    """Repeat ``[[chunk phase,| text]]`` for each phase, joined by the text before the bar."""
    phases, between, text = found.groups()
    return f"{between} ".join(_of_phase(text, phase) for phase in _PHASES_OF[phases])


_PHASES_OF = {"phase": tuple(PHASES), "chunk phase": CHUNK_PHASES, "later phase": LATER_PHASES}
_EACH_PHASE = re.compile(r"\[\[(phase|chunk phase|later phase)(.*?)\|\s(.*?)\]\]", re.DOTALL)
_RECORD = re.compile(r"\{([A-Z]\w+)((?: [^};]+)?)((?:;[^}]*)?)\}")
_ROWS = r"\brows\(([^)]*)\)"
_NUMBERS = r"\bnumbers\((\$\d+)\)"
_TEXTS = r"\btexts\((\$\d+)\)"
_NAMED = re.compile(r"\$([a-z]\w*)")
_FAILED = {
    "failed_for_good": "f.failed_count > 0 AND f.outage_count = 0 AND f.unwritten = 0 AND f.ocr_waiting = 0 "
    "AND f.ocr_processing = 0 AND f.vector_waiting = 0 AND f.vector_processing = 0",
    "failed_id": "CASE WHEN s.building_id IS NOT NULL OR s.partial "
    "THEN coalesce(s.building_id, s.published_id) END",
}
"""A generation ``f`` with nothing left to do, of which all or part failed by its content; and the generation
of a source ``s`` that may be such a one."""
_KEYS = {
    "sqlite": {"false": "0", "true": "1", "id": "id", "document_id": "document_id", "page_key": "page_id"},
    "postgres": {
        "false": "false",
        "true": "true",
        "id": "key",
        "document_id": "document_key",
        "page_key": "page_key",
    },
}
"""Documents, pages and chunks are known by a number: in PostgreSQL ``id`` is a UUID beside it."""
_CAST = re.compile(r"::\w+")
_HINT = r" INDEXED BY \w+|\nINDEXED BY \w+"
_IN_LIST = re.compile(r"\bIN (numbers|texts)\((\$\d+)\)")
_NUMBERED = re.compile(r"\$(\d+)")


def _row_type(name: str) -> RowType[Any]:
    """The record class of this name. A command runs the statements of modules that it has loaded; the others
    are loaded when all statements are expanded."""
    if name not in _ROW_TYPES:
        for module in ("snapshot", "ledger", "store", "removals"):
            import_module(f"{__package__}.{module}")
    return _ROW_TYPES[name]


def _expanded(statement: str, header: str | None, dialect: str) -> str:
    """Expand one statement to the store's SQL.

    ``{Record}`` stands for the columns of a record, ``{Record s.}`` for the same with ``s.`` before each.
    What follows says where columns come from: ``; id = s.key`` or ``; place: s.``. ``{Record set}``: each
    column is set to its parameter; ``{Record values}``: the parameters. ``$name``: one parameter.

    For PostgreSQL ``rows()`` are the parameters given as an array a column, ``numbers($1)`` and ``texts($1)``
    what ``listed`` makes of a list.
    """
    statement = _in_dialect(statement, dialect)
    parameters = dict(_parameters(header)) if header else {}
    many = "rows()" in statement

    def mark(name: str) -> str:
        return f"v.{name}" if many else f"${list(parameters).index(name) + 1}"

    def columns(found: re.Match[str]) -> str:
        row, form, sources = _row_type(found[1]), found[2].strip(), _sources(found[3])
        if form == "values":
            return ", ".join(mark(column) for column in row.columns)
        if form == "set":
            # Other columns than those of the key, which ``sources`` names.
            return ", ".join(f"{column} = {mark(column)}" for column in row.columns if column not in sources)
        return ", ".join(_selected(row, form, sources))

    statement = _RECORD.sub(columns, statement)
    statement = _NAMED.sub(lambda found: mark(found[1]), statement) if parameters else statement
    if dialect == "sqlite":
        return _NUMBERED.sub(r"?\1", statement)
    if many:
        given = ", ".join(f"{name} {kind}" for name, kind in parameters.items())
        statement = statement.replace("rows()", f"rows({given})")
    statement = re.sub(_ROWS, lambda found: _unnested(found[1]), statement)
    statement = re.sub(_NUMBERS, r"ARRAY(SELECT json_array_elements_text(\1::json)::bigint)", statement)
    return re.sub(_TEXTS, r"ARRAY(SELECT json_array_elements_text(\1::json))", statement)


def _in_dialect(statement: str, dialect: str) -> str:
    """Common SQL in one dialect: names of key columns, hints, casts, lists and batches."""
    for word, name in (_KEYS[dialect] | _FAILED).items():
        statement = statement.replace(f"{{{word}}}", name)
    if dialect == "sqlite":
        statement = _CAST.sub("", statement).replace("FROM rows() ", "")
        return _IN_LIST.sub(r"IN (SELECT value FROM json_each(\2))", statement)
    return _IN_LIST.sub(r"= ANY(\1(\2))", re.sub(_HINT, "", statement))


def _parameters(header: str) -> Iterator[tuple[str, str]]:
    """Names and types of the parameters, in order: ``Record, name type, …``."""
    for part in header.split(", "):
        name, _, kind = part.partition(" ")
        if kind:
            yield name, kind
        else:
            row = _row_type(name)
            yield from ((column, row.sql_type(column)) for column in row.columns)


def _sources(text: str) -> dict[str, str]:
    """Sources of columns: ``id = s.key`` an expression, ``place: s.`` a text before each name."""
    sources = {}
    for part in filter(None, (each.strip() for each in text.split(";"))):
        names, equal, expression = part.partition(" = ")
        if equal:
            sources[names] = expression
            continue
        names, _, before = part.partition(":")
        sources |= {name.strip(): before.strip() + "*" for name in names.split(",")}
    return sources


def _selected(row: RowType[Any], before: str, sources: Mapping[str, str]) -> Iterator[str]:
    for field, columns in row.columns_of.items():
        for column in columns:
            source = sources.get(column, sources.get(field, f"{before}*"))
            yield source[:-1] + column if source.endswith("*") else source


def _unnested(columns: str) -> str:
    pairs = [column.split() for column in columns.split(",")]
    arrays = ", ".join(f"${number}::{kind}[]" for number, (_, kind) in enumerate(pairs, 1))
    return f"unnest({arrays}) AS v({', '.join(name for name, _ in pairs)})"


def migrations(dialect: str) -> list[tuple[int, str]]:
    """Numbered schema changes, oldest first. Files of the same number are one change."""
    folder = _HERE / "migrations" / dialect
    changes: dict[int, str] = {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name[:4].isdigit():
            number = int(file.name[:4])
            changes[number] = changes.get(number, "") + file.read_text(encoding="utf-8")
    return list(changes.items())


class Statements(Protocol):
    """The named statements of a dialect, inside one transaction."""

    statements: Mapping[str, str]
    references_checked_late: bool
    """True if a row may be written before the row it refers to, within one transaction."""

    def run(self, name: str, *values: object) -> int:
        """Run a statement and return the number of changed rows."""

    def send(self, name: str, *values: object) -> None:
        """Run a statement without counting changed rows."""

    def many(self, name: str, rows: Sequence[Sequence[Any]]) -> None: ...

    def one(self, name: str, *values: object) -> Row | None: ...

    def all(self, name: str, *values: object) -> list[Row]: ...

    def value(self, name: str, *values: object) -> Any: ...

    def joined(self, columns: str, where: str, *values: object) -> list[Row]:
        """The rows of a select list and a condition, joined."""

    def batches(self, name: str, size: int, *values: object) -> Iterator[list[Row]]:
        """Answers too many to be had at once."""

    def numbers(self, name: str, count: int) -> Sequence[int]:
        """Reserve unique numbers."""

    def hold(self, name: str, *values: object) -> None:
        """Lock rows until the end of the transaction, where several writers are possible.
        Lock order: tasks, tenants, sources, documents, pages, families."""

    def notify(self) -> None:
        """Notify waiting workers after the commit, where the store needs a signal."""

    def whole_tables(self) -> AbstractContextManager[None]:
        """Plan the statements inside for reading whole tables: each table once, joined by hashing."""


class SqliteStatements:
    """Statements on SQLite. A writing transaction is alone, so no locks are needed."""

    references_checked_late = False

    def __init__(self, connection: sqlite3.Connection, statements: Mapping[str, str]) -> None:
        self._cursor = connection.cursor()
        self.statements = statements

    def run(self, name: str, *values: Any) -> int:
        return self._cursor.execute(self.statements[name], values).rowcount

    def send(self, name: str, *values: Any) -> None:
        self._cursor.execute(self.statements[name], values)

    def many(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self._cursor.executemany(self.statements[name], rows)

    def one(self, name: str, *values: Any) -> Row | None:
        row: Row | None = self._cursor.execute(self.statements[name], values).fetchone()
        return row

    def all(self, name: str, *values: Any) -> list[Row]:
        return self._cursor.execute(self.statements[name], values).fetchall()

    def value(self, name: str, *values: Any) -> Any:
        found = self.one(name, *values)
        return next(iter(found)) if found else None

    def joined(self, columns: str, where: str, *values: Any) -> list[Row]:
        statement = f"{self.statements[columns]}\n{self.statements[where]}"
        return self._cursor.execute(statement, values).fetchall()

    def batches(self, name: str, size: int, *values: Any) -> Iterator[list[Row]]:
        cursor = self._cursor.connection.cursor()
        cursor.execute(self.statements[name], values)
        while batch := cursor.fetchmany(size):
            yield batch

    def numbers(self, name: str, count: int) -> Sequence[int]:
        last: int = self.value("next_numbers", count, name)
        return range(last - count + 1, last + 1)

    def hold(self, name: str, *values: object) -> None:
        pass

    def notify(self) -> None:
        pass

    def whole_tables(self) -> AbstractContextManager[None]:
        return nullcontext()


def listed(values: Iterable[object]) -> str:
    """A list as one parameter."""
    return msgspec.json.encode(list(values)).decode()


def readable(text: str) -> str:
    """A message without characters no store accepts, such as quotes of a broken file."""
    text = text.replace("\0", "\ufffd")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
