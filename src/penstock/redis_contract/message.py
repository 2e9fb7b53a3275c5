"""Messages of the contract: fields, defaults and validation. Unknown fields are kept."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from penstock.errors import InvalidMessage, InvalidRequest, UnsupportedSource
from penstock.queue import payloads

SourceType: TypeAlias = Literal["pdf", "txt", "md", "docx"]
SOURCE_TYPES = ("pdf", "txt", "md", "docx")
SUBMITTERS = ("cli", "api", "scheduled")
MAX_BYTES = 1 << 20
"""Limit of a message. A path and some options take a few hundred bytes."""
MAX_RETRIES = 1000
MAX_DEPTH = 100
MAX_PATH = 4095
MAX_PART = 255
"""Limits of a path and of one name in it, in bytes. Resolving longer paths can take minutes."""

_Text: TypeAlias = Annotated[str, Meta(min_length=1)]
_Retries: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_RETRIES)]
_OPTIONAL = ("submitted_by", "options", "retry_count", "max_retries", "tags", "metadata")


class MessageOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a message.

    ``reindex``: index again even if nothing changed, then remove the documents of the collection that were
    asked for before. ``skip_validation``: detect the content type and ignore ``source_type``.
    ``preserve_metadata``: keep the existing tags and metadata of the document.
    """

    reindex: bool = False
    skip_validation: bool = False
    preserve_metadata: bool = True


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Request to index one file. ``tags`` and ``metadata`` are Penstock's additions to the contract."""

    job_id: _Text
    rag_id: _Text
    source_path: _Text
    source_type: SourceType
    filename: _Text
    submitted_at: _Text
    submitted_by: Literal["cli", "api", "scheduled"] = "cli"
    options: MessageOptions = MessageOptions()
    retry_count: _Retries = 0
    max_retries: _Retries = 3
    tags: tuple[_Text, ...] = ()
    metadata: dict[str, Any] = {}

    @property
    def retries_left(self) -> int:
        return max(self.max_retries - self.retry_count, 0)


def decode(raw: bytes) -> dict[str, Any]:
    """Decode the JSON object of a message, with any fields."""
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidMessage(f"the message is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidMessage(f"the message is not a JSON object, but {_type_name(found)}")
    _refuse_deep(found)
    return found


def _refuse_deep(found: dict[str, Any]) -> None:
    """Refuse deep nesting: inside a job's metadata, or with a deeper stack, decoding would fail later."""
    level: list[Any] = [found]
    for _ in range(MAX_DEPTH):
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
        if not level:
            return
    raise InvalidMessage(f"the message is nested more than {MAX_DEPTH} deep")


def read(given: Mapping[str, Any]) -> Message:
    """Validate a message. Raises ``InvalidMessage`` with the invalid field."""
    fields = {key: value for key, value in given.items() if value is not None or key not in _OPTIONAL}
    source_type = fields.get("source_type")
    if isinstance(source_type, str):
        fields["source_type"] = source_type = source_type.strip().lower()
        if source_type not in SOURCE_TYPES:
            known = ", ".join(SOURCE_TYPES)
            raise UnsupportedSource(f"field 'source_type': expected one of {known}, got {source_type[:80]!a}")
    try:
        message = msgspec.convert(fields, Message)
        payloads.validate_name("job_id", message.job_id)
    except msgspec.ValidationError as error:
        raise InvalidMessage(_field_first(str(error))) from None
    except InvalidRequest as error:
        raise InvalidMessage(f"field 'job_id': {error.message}", remedy=error.remedy) from None
    _refuse_bad_path(message)
    _refuse_bad_name(message.filename)
    _refuse_bad_time(message.submitted_at)
    return message


def _refuse_bad_path(message: Message) -> None:
    if not posixpath.isabs(message.source_path) or "\0" in message.source_path:
        shown = message.source_path[:200]
        raise InvalidMessage(f"field 'source_path': expected an absolute path, got {shown!a}")
    written = message.source_path.encode("utf-8", "replace")
    if len(written) > MAX_PATH or max(map(len, written.split(b"/"))) > MAX_PART:
        raise InvalidMessage(
            f"field 'source_path': no path is longer than {MAX_PATH} bytes, no name in it than {MAX_PART}"
        )


def _refuse_bad_name(filename: str) -> None:
    """Refuse names which cannot be file names in the inbox folders."""
    plain = "/" not in filename and "\0" not in filename and filename not in (".", "..")
    # Room for `.error.json` and a number within the 255 bytes that file systems allow.
    if not plain or len(filename.encode("utf-8", "replace")) > 230:
        raise InvalidMessage(f"field 'filename': expected a name without a folder, got {filename[:200]!a}")


def _refuse_bad_time(submitted_at: str) -> None:
    try:
        parse_time(submitted_at)
    except (ValueError, OverflowError):
        raise InvalidMessage(
            f"field 'submitted_at': expected ISO 8601 in UTC, got {submitted_at[:80]!a}",
            remedy="Write it as 2026-01-31T12:00:00.000000Z.",
        ) from None


def parse_time(submitted_at: str) -> datetime:
    """Parse a time of the contract. Times without a zone are UTC."""
    moment = datetime.fromisoformat(submitted_at.strip())
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _field_first(complaint: str) -> str:
    """Reword a msgspec error to begin with the field."""
    what, _, where = complaint.partition(" - at ")
    match = re.search(r"\$\.([^`]+)", where)
    if match is None:
        return what.removeprefix("Object ").replace("`", "'")
    if what.startswith("Invalid enum value") and match[1] == "submitted_by":
        what = f"expected one of {', '.join(SUBMITTERS)}"
    return f"field '{match[1]}': {what.replace('`', '').replace('Expected', 'expected')}"


def _type_name(value: object) -> str:
    words = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return words.get(type(value), "a number")
