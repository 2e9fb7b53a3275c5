"""Neutral rows of other queues, and the results of mappings. Pure."""

from __future__ import annotations

import base64
import enum
import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Protocol, TypeAlias

import msgspec

from penstock.errors import InvalidRequest, UnknownStatus
from penstock.named_tuple import NamedTuple
from penstock.queue.job import Status
from penstock.vocabulary import understand

LONGEST_EXTRA = 2_000
"""Characters of a column without a meaning here that are kept in the metadata of the job."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RETIRED = "_retired"
"""Suffix of tables, keys and files that an import has set aside."""


class LegacyRow(NamedTuple):
    """A row of another queue. ``fault``: why its values could not be read."""

    table: str
    row_id: str
    values: Mapping[str, Any] = {}
    fault: str | None = None


class RowOutcome(enum.StrEnum):
    """Outcome of a row: a job to be run, a part of another job, an ended job, or nothing."""

    IMPORTED = "imported"
    MERGED = "merged"
    ENDED = "ended"
    REFUSED = "refused"


class RowReport(msgspec.Struct, frozen=True):
    """Outcome of one row, as reported by an import."""

    table: str
    id: str
    outcome: RowOutcome
    job_id: str | None = None
    reason: str | None = None


class FinishedPage(NamedTuple):
    """The text of a page that was read: a file with it, or the text itself."""

    number: int
    file_path: str | None = None
    text: str | None = None


class FinishedReading(msgspec.Struct, frozen=True, kw_only=True):
    """A document that was read completely. ``read_at`` None: unknown; ``sha256``: of the file, if known.

    ``embedded`` and ``extracted``: vectors and entities were made there. They are in other stores.
    """

    pages: tuple[FinishedPage, ...]
    read_at: datetime | None = None
    sha256: str | None = None
    embedded: bool = False
    extracted: bool = False


class PlannedJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job planned for a row. None: the default of a new job.

    ``job_id``: the id of the row, kept if it can be one. ``extra``: columns without a meaning here.
    ``note``: what changed on the way, for the report.
    """

    item_type: str
    op: str
    payload: Mapping[str, Any]
    status: Status
    tenant_id: str | None = None
    collection: str | None = None
    branch: str | None = None
    priority: int | None = None
    max_retries: int | None = None
    retry_count: int = 0
    timeout_s: int | None = None
    run_at: datetime | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    error_message: str | None = None
    error_code: str | None = None
    job_id: str | None = None
    dedupe: bool = True
    rebuild: bool = False
    path: str | None = None
    """A file that the job needs; a job whose file is gone fails at once, with this reason."""
    total_chunks: int = 0
    extra: Mapping[str, Any] = {}
    note: str | None = None
    reading: FinishedReading | None = None
    """Text of the file, which need not be read again. None: it was not read, or not completely."""


class PartOf(NamedTuple):
    """A row merged into the job of another one."""

    table: str
    row_id: str
    note: str


Planned: TypeAlias = PlannedJob | PartOf


class Unmappable(Exception):
    """A row without an equivalent job; the message is the reason."""


class LegacySource(Protocol):
    """A store of another queue, opened for reading. ``identity``: its address without user and password."""

    identity: str
    shown: str
    """The address as people gave it, without its password."""

    def count(self) -> int:
        """Count the rows, for the time left."""

    def rows(self) -> Iterator[LegacyRow]:
        """Read all rows, oldest first as far as their times tell, in bounded memory."""

    def retire(self) -> list[str]:
        """Set the tables, keys or files aside, reversibly. Returns their new names."""

    def drop(self) -> list[str]:
        """Delete the tables, keys or files, also those set aside. Returns their names."""

    def close(self) -> None: ...


class TableSource(LegacySource, Protocol):
    """Tables of a database."""

    def parts(self, table: str, column: str, values: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
        """Read the rows of another table with one of these values in a column; none without the table."""


class Columns:
    """The columns of a row by name, in any case; ``extra`` has the unread ones."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = {str(name).lower(): value for name, value in values.items()}
        self._used: set[str] = set()

    def value(self, *names: str) -> Any:
        """The first value among these columns."""
        self._used.update(names)
        return next((found for name in names if (found := self._values.get(name)) not in (None, "")), None)

    def text(self, *names: str) -> str | None:
        value = self.value(*names)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "surrogateescape")
        return None if value is None else str(value)

    def required(self, what: str, *names: str) -> str:
        found = self.text(*names)
        if found is None:
            raise Unmappable(f"it has no {what} (column {' or '.join(names)})")
        return found

    def number(self, *names: str) -> int | None:
        value = self.value(*names)
        if value is None or isinstance(value, bool):
            return None if value is None else int(value)
        try:
            return int(str(value).strip())
        except ValueError:
            raise Unmappable(f"{names[0]}: {str(value)[:80]!r} is not a whole number") from None

    def flag(self, *names: str) -> bool | None:
        value = self.value(*names)
        if value is None or isinstance(value, bool):
            return value
        word = str(value).strip().lower()
        if word not in _FLAGS:
            raise Unmappable(f"{names[0]}: {str(value)[:80]!r} is neither true nor false")
        return _FLAGS[word]

    def time(self, *names: str) -> datetime | None:
        """A time; None without a value. Times without a zone are UTC."""
        for name in names:
            if (found := self.value(name)) is not None and (moment := read_time(found)) is not None:
                return moment
        return None

    def json(self, *names: str) -> Any:
        """JSON, decoded; a database may have decoded it already."""
        value = self.value(*names)
        if not isinstance(value, str | bytes | memoryview):
            return value
        try:
            return msgspec.json.decode(bytes(value) if isinstance(value, memoryview) else value)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise Unmappable(f"{names[0]} is not JSON: {error}") from None

    def object(self, *names: str) -> dict[str, Any]:
        found = self.json(*names)
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise Unmappable(f"{names[0]}: expected a JSON object, got {type(found).__name__}")
        return found

    def ignore(self, *names: str) -> None:
        """Leave columns out of the extra ones: they have a meaning only in their own store."""
        self._used.update(names)

    def extra(self) -> dict[str, Any]:
        """Columns that were not read, as JSON values."""
        rest = {name: value for name, value in self._values.items() if name not in self._used}
        return {name: plain(value) for name, value in rest.items() if value not in (None, "", [], {})}


_FLAGS = {
    "1": True,
    "0": False,
    "true": True,
    "false": False,
    "t": True,
    "f": False,
    "yes": True,
    "no": False,
}


def plain(value: Any) -> Any:
    """A value of a database as JSON, cut if it is long."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bool | int | float) or value is None:
        return value
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes | memoryview):
        return base64.b64encode(bytes(value)[:LONGEST_EXTRA]).decode()
    text = msgspec.json.encode(value).decode() if isinstance(value, dict | list) else str(value)
    if isinstance(value, dict | list) and len(text) <= LONGEST_EXTRA:
        return value
    return storable_text(text[:LONGEST_EXTRA])


def storable_text(text: str) -> str:
    """Text storable in every engine: without NUL and lone surrogates."""
    text = text.replace("\0", "\ufffd")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def read_time(value: Any) -> datetime | None:
    """A time as databases and programs write it: ISO 8601, or seconds or milliseconds since 1970."""
    try:
        if isinstance(value, datetime):
            moment = value
        elif isinstance(value, int | float) or re.fullmatch(r"\d{9,16}(\.\d+)?", str(value).strip()):
            number = float(value)
            moment = EPOCH + timedelta(seconds=number / 1000 if number > 1e11 else number)
        else:
            moment = datetime.fromisoformat(str(value).strip())
        found = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return found if found.year >= 1971 else None


def read_status(word: str | None, default: Status = Status.PENDING, **others: Status) -> Status:
    """The status behind a word of any queue; ``others``: words of this queue only."""
    if word is None:
        return default
    known = others.get(word.strip().lower())
    if known is not None:
        return known
    try:
        return Status(understand(word))
    except (UnknownStatus, ValueError):
        raise Unmappable(f"unknown status {word[:80]!r}") from None


def refusal_reason(error: InvalidRequest | Unmappable) -> str:
    """The reason of a refused row, in one line."""
    return storable_text(" ".join(str(error).split()))[:500]


def derived_id(kind: str, source: str, row: LegacyRow, created_at: datetime | None) -> str:
    """The id of a row's job: the same at each import, in the order of creation."""
    micros = 0 if created_at is None else (created_at - EPOCH) // timedelta(microseconds=1)
    named = "\n".join((kind, source, row.table, row.row_id)).encode("utf-8", "surrogatepass")
    return f"job_{max(micros, 0):014x}{hashlib.sha256(named).hexdigest()[:16]}"
