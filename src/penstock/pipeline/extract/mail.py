"""Mail: messages, mailboxes and messages of Outlook as Markdown, with their attachments as separate files."""

from __future__ import annotations

import email
import email.generator
import email.policy
import email.utils
import io
import mimetypes
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from email.message import EmailMessage, Message
from typing import Any

import msgspec

from penstock.errors import DocumentDamaged, DocumentTooLarge, UnreadableDocument, UnsupportedType
from penstock.pipeline.extract.charset import clean, decode, wide_encoding
from penstock.pipeline.extract.member_names import MemberNames
from penstock.pipeline.extract.protocol import (
    Attachment,
    Content,
    ExtractedText,
    ExtractLimits,
    FileType,
    Page,
    Properties,
    Shape,
)
from penstock.vocabulary import how_many

MAX_ATTACHMENTS = 1_000
"""Attachments of one message or mailbox that become documents."""
MAX_PARTS = 10_000
NAMED = 10
"""Names of attachments listed in a warning."""
_HEADERS = ("From", "To", "Cc", "Date")
_MAX_HEADER = 2_000
_PARSED_HEADER = 2 * _MAX_HEADER
"""Characters of a header that are shown, and that are parsed."""
_SIGNATURES = frozenset(
    ["application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature"]
)
_LABELS = {"windows-950": "cp950", "windows-949": "cp949", "windows-936": "gbk", "windows-932": "cp932"}
if not mimetypes.inited:
    # Without the files of the machine: a confined process cannot read them.
    mimetypes.init([])
_KINDS = mimetypes.MimeTypes()
"""Media types as Python knows them: the same bytes give the same names everywhere."""
_START = re.compile(rb"(?:\A|\n)From [^\n]*\d{4}[^\n]*\n")


class _Policy(email.policy.EmailPolicy):
    """Cuts long headers before they are parsed, which takes more than linear time."""

    def header_fetch_parse(self, name: str, value: str) -> Any:
        return super().header_fetch_parse(name, value if hasattr(value, "name") else value[:_PARSED_HEADER])


class _ReadMessage(msgspec.Struct, frozen=True):
    """One message: the text with the main headers, and the attachments."""

    title: str
    text: str
    properties: Properties
    attachments: tuple[Attachment, ...]
    warnings: tuple[str, ...]


class MailExtractor:
    """Subject, main headers and body of a message. A message without a body is no error."""

    name = "mail"
    version = "1"

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
    ) -> ExtractedText:
        return _one_message(read_message(_as_bytes(content.data), limits), file_type, limits)


class MailboxExtractor:
    """A mailbox: one page per message."""

    name = "mailbox"
    version = "1"

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
    ) -> ExtractedText:
        data = _as_bytes(content.data).replace(b"\r\n", b"\n")
        starts = list(_START.finditer(data))
        if not starts:
            raise DocumentDamaged("the mailbox holds no message: no line begins with 'From '")
        if len(starts) > limits.pages:
            found_messages = how_many(len(starts), "message")
            raise DocumentTooLarge(f"the mailbox has {found_messages}; the limit is {limits.pages:,}")
        ends = [found.start() for found in starts[1:]] + [len(data)]
        messages = [
            read_message(data[found.end() : end], limits, f"message {number}/")
            for number, (found, end) in enumerate(zip(starts, ends, strict=True), 1)
        ]
        if sum(len(message.text) for message in messages) > limits.text_chars:
            raise DocumentTooLarge(f"the text has more than {limits.text_chars:,} characters")
        attachments = [one for message in messages for one in message.attachments]
        return ExtractedText(
            pages=tuple(
                Page(number, message.text, warnings=message.warnings)
                for number, message in enumerate(messages, 1)
            ),
            file_type=file_type,
            shape=Shape.MARKDOWN,
            page_count=len(messages),
            warnings=_left_out([one.name for one in attachments[MAX_ATTACHMENTS:]]),
            attachments=tuple(attachments[:MAX_ATTACHMENTS]),
        )


def _one_message(message: _ReadMessage, file_type: FileType, limits: ExtractLimits) -> ExtractedText:
    if len(message.text) > limits.text_chars:
        raise DocumentTooLarge(
            f"the text has {len(message.text):,} characters; the limit is {limits.text_chars:,}"
        )
    return ExtractedText(
        pages=(Page(1, message.text),),
        file_type=file_type,
        shape=Shape.MARKDOWN,
        page_count=1,
        title=message.title or None,
        warnings=message.warnings,
        properties=message.properties,
        attachments=message.attachments,
    )


def _as_bytes(data: bytes) -> bytes:
    """The message as ASCII with raw bytes. Some programs save messages as UTF-16."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or wide_encoding(data[:8192]) is not None:
        return decode(data).text.encode("utf-8", "replace")
    return data.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n\t ")


def read_message(data: bytes, limits: ExtractLimits, folder: str = "") -> _ReadMessage:
    """Read one message. ``folder``: for the names of the attachments."""
    try:
        message = email.message_from_bytes(data, policy=_Policy())
        assert isinstance(message, EmailMessage)
        return _Reader(message, limits, folder).read()
    except RecursionError as error:
        raise DocumentDamaged("the parts of the message are nested too deeply") from error


class _Reader:
    def __init__(self, message: EmailMessage, limits: ExtractLimits, folder: str) -> None:
        self._message = message
        self._limits = limits
        self._folder = folder
        self._names = MemberNames()
        self._attachments: list[Attachment] = []
        self._left_out: list[str] = []
        self._texts: list[str] = []
        self._warnings: list[str] = []
        self._encoding, self._replaced = "", 0

    def read(self) -> _ReadMessage:
        body = self._body()
        for part, alternative in _leaves(self._message):
            if part is body:
                self._texts.append(self._text(part))
            elif not (alternative and part.get_content_maintype() == "text" and not _filename(part)):
                self._other_part(part)
        headers = [(name, header(self._message, name)) for name in _HEADERS]
        subject = header(self._message, "Subject")
        return _ReadMessage(
            subject,
            _message_text(subject, headers, self._texts, [one.name for one in self._attachments]),
            Properties(
                author=header(self._message, "From"),
                created=_iso_date(header(self._message, "Date")),
                encoding=self._encoding,
                replaced=self._replaced,
            ),
            tuple(self._attachments),
            (*self._warnings, *_left_out(self._left_out)),
        )

    def _body(self) -> Message | None:
        try:
            body = self._message.get_body(("plain", "html"))
            if body is not None and body.get_content_type() == "text/plain" and not _payload(body).strip():
                body = self._message.get_body(("html",)) or body
        except (AttributeError, KeyError, LookupError, TypeError, ValueError):
            return None
        return body

    def _other_part(self, part: Message) -> None:
        kind = part.get_content_type()
        filename = _filename(part)
        if kind in _SIGNATURES:
            return
        inline = part.get_content_maintype() == "text" and part.get_content_disposition() != "attachment"
        if inline and not filename and kind in ("text/plain", "text/html"):
            self._texts.append(self._text(part))
            return
        data = _message_bytes(part) if kind == "message/rfc822" else _payload(part)
        name = self._folder + (filename or _invented_name(part, len(self._attachments) + 1))
        if data is None or len(self._attachments) >= MAX_ATTACHMENTS or len(data) > self._limits.file_bytes:
            self._left_out.append(name)
        elif data:
            if kind == "message/rfc822" and not name.lower().endswith((".eml", ".msg")):
                name += ".eml"
            self._attachments.append(Attachment(self._names.add(name), data))

    def _text(self, part: Message) -> str:
        data, label = _payload(part), _charset(part)
        try:
            decoded = decode(data, _LABELS.get(label, label) or None)
            if part.get_content_type() == "text/html":
                return _html_text(decoded.text, self._limits)
        except UnsupportedType:
            self._warnings.append("a part of the body is not text, and was left out")
            return ""
        if decoded.encoding not in ("utf-8", "utf-8-sig"):
            self._encoding = decoded.encoding
        self._replaced += decoded.replaced
        if decoded.replaced:
            self._warnings.append(
                f"{how_many(decoded.replaced, 'character is', 'characters are')} "
                f"not {decoded.encoding}, and replaced"
            )
        return clean(decoded.text)


def _html_text(markup: str, limits: ExtractLimits) -> str:
    """The text of an HTML body, as Markdown."""
    from penstock.pipeline.extract.file_types import HTML
    from penstock.pipeline.extract.html import HtmlExtractor

    # With a mark: a charset named in the markup was that of the bytes.
    content = Content("body.html", b"\xef\xbb\xbf" + markup.encode("utf-8", "replace"))
    try:
        return HtmlExtractor().extract(content, HTML, limits).pages[0].text
    except UnreadableDocument:
        return clean(re.sub(r"<[^>]*>", " ", markup))


def _message_text(
    subject: str, headers: list[tuple[str, str]], texts: list[str], attachments: list[str]
) -> str:
    """Subject as a heading, headers, names of attachments, then the body."""
    lines = [f"{name}: {value}" for name, value in headers if value]
    if attachments:
        named = ", ".join(attachments[:NAMED])
        more = len(attachments) - NAMED
        lines.append(f"Attachments: {named}{f' and {more:,} more' if more > 0 else ''}")
    blocks = [f"# {subject}" if subject else "", "\n".join(lines), *(text.strip() for text in texts)]
    return clean("\n\n".join(block for block in blocks if block))


def header(message: Message, name: str) -> str:
    """The value of a header on one line, also if the header is malformed."""
    try:
        value = str(message.get(name, ""))
    except Exception:  # noqa: BLE001 - the parser of headers raises many errors on malformed ones
        raw = {key.lower(): text for key, text in message.raw_items()}
        value = str(raw.get(name.lower(), ""))
    value = value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return clean(" ".join(value.split()))[:_MAX_HEADER]


def _iso_date(text: str) -> str:
    try:
        return email.utils.parsedate_to_datetime(text).isoformat() if text else ""
    except (TypeError, ValueError, IndexError, OverflowError):
        return ""


def _leaves(message: Message) -> Iterator[tuple[Message, bool]]:
    """Leaf parts in order; True: inside a group of alternatives. No recursion."""
    stack: list[tuple[Message, bool]] = [(message, False)]
    for _ in range(MAX_PARTS):
        if not stack:
            return
        part, alternative = stack.pop()
        payload: Any = part.get_payload()
        if part.get_content_maintype() == "multipart" and isinstance(payload, list):
            alternative = alternative or part.get_content_type() == "multipart/alternative"
            stack += [(inner, alternative) for inner in reversed(payload)]
        else:
            yield part, alternative


def _payload(part: Message) -> bytes:
    try:
        payload = part.get_payload(decode=True)
    except (AssertionError, LookupError, ValueError):
        payload = None
    return payload if isinstance(payload, bytes) else b""


def _message_bytes(part: Message) -> bytes | None:
    """The bytes of an attached message; None if they cannot be restored."""
    payload: Any = part.get_payload()
    inner = payload[0] if isinstance(payload, list) and payload else None
    if not isinstance(inner, Message):
        return _payload(part) or None
    out = io.BytesIO()
    try:
        email.generator.BytesGenerator(
            out, mangle_from_=False, maxheaderlen=0, policy=email.policy.compat32
        ).flatten(inner)
    except (LookupError, UnicodeError, ValueError, TypeError, AttributeError):
        return None
    return out.getvalue()


def _filename(part: Message) -> str:
    try:
        return part.get_filename("") or ""
    except (LookupError, TypeError, ValueError, AttributeError):
        return ""


def _charset(part: Message) -> str:
    try:
        return str(part.get_content_charset("") or "")
    except (LookupError, UnicodeError, TypeError, ValueError):
        return ""


def _invented_name(part: Message, number: int) -> str:
    if part.get_content_type() == "message/rfc822":
        payload: Any = part.get_payload()
        inner = payload[0] if isinstance(payload, list) and payload else None
        subject = header(inner, "Subject") if isinstance(inner, Message) else ""
        return f"{subject.replace('/', '_') or f'message {number}'}.eml"
    suffix = _KINDS.guess_extension(part.get_content_type()) or ""
    return f"attachment {number}{suffix}"


def _left_out(names: list[str]) -> tuple[str, ...]:
    if not names:
        return ()
    shown = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED:,} more" if len(names) > NAMED else "")
    left_out = how_many(len(names), "attachment is", "attachments are")
    return (f"{left_out} left out, unreadable or beyond the limits: {shown}",)


_SUBJECT, _OUTLOOK_HEADERS, _BODY, _HTML, _RTF = 0x0037, 0x007D, 0x1000, 0x1013, 0x1009
_SENDER, _SENDER_ADDRESS, _TO, _CC = 0x0C1A, 0x0C1F, 0x0E04, 0x0E03
_SENT, _RECEIVED = 0x0039, 0x0E06
_DATA, _LONG_NAME, _SHORT_NAME, _SHOWN_NAME = 0x3701, 0x3707, 0x3704, 0x3001
_EMBEDDED = "__substg1.0_3701000D"
_CODEPAGES = (0x3FDE, 0x3FFD)
_MAX_DEPTH = 8
_NAMED_PAGES = {950: "cp950", 949: "cp949", 936: "gbk", 932: "cp932", 65001: "utf-8", 20127: "ascii"}


class OutlookExtractor:
    """A message of Outlook (``.msg``), from its properties; the container is read by python-oxmsg."""

    name = "outlook"
    version = "2"

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
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
        return _one_message(_Outlook(root, limits, header_bytes=32).read(), file_type, limits)


class _Outlook:
    """One message of Outlook: at the top (``header_bytes`` 32) or attached to another one (24)."""

    def __init__(self, storage: Any, limits: ExtractLimits, *, header_bytes: int, depth: int = 0) -> None:
        self._storage = storage
        self._streams = {stream.name: stream.bytes_ for stream in storage.streams}
        self._limits = limits
        self._depth = depth
        self._numbers = _fixed_properties(self._streams.get("__properties_version1.0", b""), header_bytes)
        pages = [self._numbers.get(page, 0) & 0xFFFFFFFF for page in _CODEPAGES]
        page = next((one for one in pages if one), 1252)
        self._label = _NAMED_PAGES.get(page) or (f"cp{page}" if page < 2000 else f"windows-{page}")

    def read(self) -> _ReadMessage:
        subject = self._line(_SUBJECT)
        sender, address = self._line(_SENDER), self._line(_SENDER_ADDRESS)
        author = f"{sender} <{address}>" if "@" in address and address != sender else sender or address
        date = self._date()
        headers = [("From", author), ("To", self._line(_TO)), ("Cc", self._line(_CC)), ("Date", date)]
        attachments, warnings = self._attachments()
        text = _message_text(subject, headers, [self._body()], [one.name for one in attachments])
        properties = Properties(author=author, created=date)
        return _ReadMessage(subject, text, properties, attachments, warnings)

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
        raw = self._text(_OUTLOOK_HEADERS).encode("utf-8", "replace")
        return _iso_date(str(email.message_from_bytes(raw).get("Date", ""))) if raw else ""

    def _body(self) -> str:
        plain = self._text(_BODY)
        if plain.strip():
            return clean(plain)
        html = self._streams.get(f"__substg1.0_{_HTML:04X}0102")
        markup = self._decoded(html) if html is not None else self._text(_HTML)
        if markup.strip():
            return _html_text(markup, self._limits)
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
