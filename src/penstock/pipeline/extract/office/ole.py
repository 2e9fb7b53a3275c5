"""Containers of Office 97 to 2003, through olefile: their streams and properties."""

from __future__ import annotations

import datetime
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.errors import DocumentDamaged, UnreadableDocument
from penstock.pipeline.extract.protocol import Properties
from penstock.pipeline.extract.stated_values import one_line, stated_title

if TYPE_CHECKING:
    from olefile import OleFileIO


@contextmanager
def opened(data: bytes) -> Iterator[OleFileIO]:
    """Open a container. Any error of the library inside becomes ``DocumentDamaged``."""
    import olefile

    try:
        with olefile.OleFileIO(io.BytesIO(data)) as container:
            yield container
    except (UnreadableDocument, MemoryError):
        raise
    except Exception as error:
        raise DocumentDamaged(f"the document is a damaged container: {str(error)[:300]}") from error


def stream(container: OleFileIO, name: str) -> bytes | None:
    """Read the stream of this name; None if missing."""
    if not container.exists(name):
        return None
    data: bytes = container.openstream(name).read()
    return data


def properties(container: OleFileIO) -> tuple[str | None, Properties]:
    if not container.exists("\x05SummaryInformation"):
        return None, Properties()
    try:
        about = container.get_metadata()
    except Exception:  # noqa: BLE001 - damaged properties do not make the text unreadable
        return None, Properties()
    encoding = f"cp{about.codepage & 0xFFFF}" if isinstance(about.codepage, int) else "cp1252"
    return stated_title(_text(about.title, encoding)), Properties(
        author=one_line(_text(about.author, encoding)),
        created=_date(about.create_time),
        modified=_date(about.last_saved_time),
    )


def _text(value: object, encoding: str) -> str:
    if not isinstance(value, bytes):
        return value if isinstance(value, str) else ""
    names = {"cp65001": "utf-8", "cp1200": "utf-16-le", "cp10000": "mac_roman"}
    try:
        text = value.decode(names.get(encoding, encoding), "replace")
    except LookupError:
        text = value.decode("cp1252", "replace")
    return text.partition("\0")[0]


def _date(value: object) -> str:
    if not isinstance(value, datetime.datetime) or value.year < 1970:
        return ""
    return value.replace(microsecond=0).isoformat() + "Z"
