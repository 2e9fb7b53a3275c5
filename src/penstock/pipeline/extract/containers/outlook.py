"""Messages of Outlook (``.msg``), with their attachments."""

from __future__ import annotations

import email
import email.policy
import io
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import Any

from penstock.errors import DocumentDamaged, UnsupportedType
from penstock.pipeline.extract.charset import clean, decode
from penstock.pipeline.extract.containers.mail import (
    MAX_ATTACHMENTS,
    ReadMessage,
    html_text,
    iso_date,
    message_text,
    one_message,
)
from penstock.pipeline.extract.containers.member_names import MemberNames
from penstock.pipeline.extract.protocol import (
    Attachment,
    Content,
    ExtractedText,
    ExtractLimits,
    FileType,
    Properties,
)

_SUBJECT, _HEADERS, _BODY, _HTML, _RTF = 0x0037, 0x007D, 0x1000, 0x1013, 0x1009
_SENDER, _SENDER_ADDRESS, _TO, _CC = 0x0C1A, 0x0C1F, 0x0E04, 0x0E03
_SENT, _RECEIVED = 0x0039, 0x0E06
_DATA, _LONG_NAME, _SHORT_NAME, _SHOWN_NAME = 0x3701, 0x3707, 0x3704, 0x3001
_EMBEDDED = "__substg1.0_3701000D"
_CODEPAGES = (0x3FDE, 0x3FFD)
_MAX_DEPTH = 8
_NAMED_PAGES = {950: "cp950", 949: "cp949", 936: "gbk", 932: "cp932", 65001: "utf-8", 20127: "ascii"}


class OutlookExtractor:
    """Reads the properties of a message; the container is read by python-oxmsg."""

    name = "outlook"
    version = "2"

    def extract(
        self,
        content: Content,
        file_type: FileType,
        limits: ExtractLimits,
        pages: range | None = None,  # noqa: ARG002 - there is one page
    ) -> ExtractedText:
        from olefile import OleFileIO
        from oxmsg.storage import Storage

        try:
            with OleFileIO(io.BytesIO(content.data)) as container:
                root = Storage.from_ole(container)
        except (OSError, ValueError, IndexError, KeyError, AttributeError, RecursionError) as error:
            raise DocumentDamaged(f"the message is a damaged container: {error}") from error
        if not any(stream.name == "__properties_version1.0" for stream in root.streams):
            raise UnsupportedType("this is an OLE document, but no message of Outlook")
        return one_message(_Outlook(root, limits, header_bytes=32).read(), file_type, limits)


class _Outlook:
    """One message: at the top (``header_bytes`` 32) or attached to another one (24)."""

    def __init__(self, storage: Any, limits: ExtractLimits, *, header_bytes: int, depth: int = 0) -> None:
        self._storage = storage
        self._streams = {stream.name: stream.bytes_ for stream in storage.streams}
        self._limits = limits
        self._depth = depth
        self._numbers = _fixed_properties(self._streams.get("__properties_version1.0", b""), header_bytes)
        pages = [self._numbers.get(page, 0) & 0xFFFFFFFF for page in _CODEPAGES]
        page = next((one for one in pages if one), 1252)
        self._label = _NAMED_PAGES.get(page) or (f"cp{page}" if page < 2000 else f"windows-{page}")

    def read(self) -> ReadMessage:
        subject = self._line(_SUBJECT)
        sender, address = self._line(_SENDER), self._line(_SENDER_ADDRESS)
        author = f"{sender} <{address}>" if "@" in address and address != sender else sender or address
        date = self._date()
        headers = [("From", author), ("To", self._line(_TO)), ("Cc", self._line(_CC)), ("Date", date)]
        attachments, warnings = self._attachments()
        text = message_text(subject, headers, [self._body()], [one.name for one in attachments])
        properties = Properties(author=author, created=date)
        return ReadMessage(subject, text, properties, attachments, warnings)

    def _date(self) -> str:
        """Time of sending, as ISO 8601."""
        for pid in (_SENT, _RECEIVED):
            ticks = self._numbers.get(pid, 0)
            if ticks > 0:
                try:
                    sent = datetime.fromtimestamp(ticks // 10**7 - 11_644_473_600, tz=UTC)
                    return sent.isoformat(timespec="seconds")
                except (OverflowError, ValueError, OSError):
                    continue
        raw = self._text(_HEADERS).encode("utf-8", "replace")
        return iso_date(str(email.message_from_bytes(raw).get("Date", ""))) if raw else ""

    def _body(self) -> str:
        plain = self._text(_BODY)
        if plain.strip():
            return clean(plain)
        html = self._streams.get(f"__substg1.0_{_HTML:04X}0102")
        markup = self._decoded(html) if html is not None else self._text(_HTML)
        if markup.strip():
            return html_text(markup, self._limits)
        return self._rich_text()

    def _rich_text(self) -> str:
        packed = self._streams.get(f"__substg1.0_{_RTF:04X}0102")
        return rich_text(packed, self._limits) if packed else ""

    def _text(self, pid: int) -> str:
        wide = self._streams.get(f"__substg1.0_{pid:04X}001F")
        if wide is not None:
            return str(wide.decode("utf-16-le", "replace")).rstrip("\x00")
        narrow = self._streams.get(f"__substg1.0_{pid:04X}001E")
        return self._decoded(narrow).rstrip("\x00") if narrow is not None else ""

    def _decoded(self, data: bytes) -> str:
        try:
            return data.decode(self._label)
        except (LookupError, UnicodeDecodeError):
            pass
        try:
            return decode(data, self._label).text
        except UnsupportedType:
            return ""

    def _line(self, pid: int) -> str:
        return clean(" ".join(self._text(pid).split()))

    def _attachments(self) -> tuple[tuple[Attachment, ...], tuple[str, ...]]:
        names, found, left_out = MemberNames(), list[Attachment](), list[str]()
        for number, storage in enumerate(self._storage.iter_attachment_storages(), 1):
            one = _Outlook(storage, self._limits, header_bytes=8, depth=self._depth)
            one._label = self._label
            name = one._line(_LONG_NAME) or one._line(_SHORT_NAME) or one._line(_SHOWN_NAME)
            name = name or f"attachment {number}"
            data = one._streams.get(f"__substg1.0_{_DATA:04X}0102")
            embedded = next((inner for inner in storage.storages if inner.name == _EMBEDDED), None)
            if data is None and embedded is not None:
                data = self._embedded(embedded)
                name = name if name.lower().endswith(".eml") else f"{name.removesuffix('.msg')}.eml"
            if data is None or len(found) >= MAX_ATTACHMENTS or len(data) > self._limits.file_bytes:
                left_out.append(name)
            elif data:
                found.append(Attachment(names.add(name), data))
        shown = ", ".join(left_out[:10])
        return tuple(found), ((f"attachments left out, linked or too large: {shown}",) if left_out else ())

    def _embedded(self, storage: Any) -> bytes | None:
        """An attached message, as the bytes of a plain mail."""
        if self._depth >= _MAX_DEPTH:
            return None
        inner = _Outlook(storage, self._limits, header_bytes=24, depth=self._depth + 1)
        message = EmailMessage(policy=email.policy.SMTP)
        names = {"Subject": _SUBJECT, "To": _TO, "Cc": _CC}
        headers = {name: inner._line(pid) for name, pid in names.items()}
        headers["From"] = inner._line(_SENDER) or inner._line(_SENDER_ADDRESS)
        text = (
            "".join(f"{name}: {value}\r\n" for name, value in headers.items() if value)
            + "Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n"
        )
        attachments, _ = inner._attachments()
        if not attachments:
            return (text + inner._body()).encode("utf-8", "replace")
        message.set_content(inner._body().encode("utf-8", "replace").decode())
        for one in attachments:
            message.add_attachment(one.data, "application", "octet-stream", filename=one.name)
        head = text.partition("Content-Type")[0]
        return head.encode("utf-8", "replace") + message.as_bytes()


def _fixed_properties(stream: bytes, header_bytes: int) -> dict[int, int]:
    """Properties of fixed size, by their number: integers and times."""
    found: dict[int, int] = {}
    for at in range(header_bytes, len(stream) - 15, 16):
        kind = int.from_bytes(stream[at : at + 2], "little")
        number = int.from_bytes(stream[at + 2 : at + 4], "little")
        size = {0x0003: 4, 0x0040: 8}.get(kind)
        if size is not None:
            found[number] = int.from_bytes(stream[at + 8 : at + 8 + size], "little")
    return found


_RTF_START = (
    b"{\\rtf1\\ansi\\mac\\deff0\\deftab720{\\fonttbl;}{\\f0\\fnil \\froman \\fswiss \\fmodern \\fscript "
    b"\\fdecor MS Sans SerifSymbolArialTimes New RomanCourier{\\colortbl\\red0\\green0\\blue0\r\n\\par "
    b"\\pard\\plain\\f0\\fs20\\b\\i\\u\\tab\\tx"
)


def rich_text(packed: bytes, limits: ExtractLimits) -> str:
    """The text of a compressed RTF body (MS-OXRTFCP), as Markdown."""
    from penstock.pipeline.extract.office.markdown_page import MarkdownPage
    from penstock.pipeline.extract.office.rtf import RtfReader

    page = MarkdownPage(limits)
    try:
        RtfReader(page.add).read(_unpacked_rtf(packed))
    except DocumentDamaged:
        return ""
    return page.page().text


def _unpacked_rtf(packed: bytes) -> bytes:
    kind, size = packed[8:12], int.from_bytes(packed[4:8], "little")
    if kind == b"MELA":
        return packed[16 : 16 + size]
    if kind != b"LZFu":
        return b""
    window = bytearray(_RTF_START) + bytearray(4096 - len(_RTF_START))
    write, at, out = len(_RTF_START), 16, bytearray()
    while at < len(packed) and len(out) < size:
        flags, at = packed[at], at + 1
        for bit in range(8):
            if at >= len(packed) or len(out) >= size:
                break
            if not flags >> bit & 1:
                piece, at = packed[at : at + 1], at + 1
            else:
                pair, at = int.from_bytes(packed[at : at + 2], "big"), at + 2
                start, length = pair >> 4, (pair & 15) + 2
                if start == write:
                    return bytes(out)
                piece = b""
                for offset in range(length):
                    byte = window[(start + offset) % 4096]
                    window[(write + offset) % 4096] = byte
                    piece += bytes([byte])
            for byte in piece:
                window[write] = byte
                write = (write + 1) % 4096
            out += piece
    return bytes(out)
