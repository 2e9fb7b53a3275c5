"""File types: decided by the name of a file and checked against the signature of its content.

ZIP-based formats are recognized by the names of members, OLE formats by the names of streams. Only
directories are read, within limits; nothing is unpacked. Extensions add formats.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

import msgspec

from penstock import extensions
from penstock.errors import UnsupportedType
from penstock.extensions import Extension, ExtensionKind
from penstock.pipeline.extract.charset import SNIFFED, looks_binary
from penstock.pipeline.extract.protocol import Extractor, FileType


class _Signature(msgspec.Struct, frozen=True):
    """Type of a content. ``suffix``: usual suffix of the type, also of unsupported types."""

    what: str
    suffix: str = ""


_ZIP = _Signature("a ZIP archive", "zip")
_OLE = _Signature("an OLE document")
_ENCRYPTED = _Signature("an encrypted Office document")

_START: tuple[tuple[bytes, _Signature], ...] = (
    (b"%PDF-", _Signature("a PDF", "pdf")),
    (b"{\\rtf", _Signature("an RTF document", "rtf")),
    (b"\x89PNG\r\n", _Signature("a PNG image", "png")),
    (b"\xff\xd8\xff", _Signature("a JPEG image", "jpg")),
    (b"GIF87a", _Signature("a GIF image", "gif")),
    (b"GIF89a", _Signature("a GIF image", "gif")),
    (b"II*\x00", _Signature("a TIFF image", "tiff")),
    (b"MM\x00*", _Signature("a TIFF image", "tiff")),
    (b"\x1f\x8b", _Signature("gzip data", "gz")),
    *((b"BZh%d1AY&SY" % level, _Signature("bzip2 data", "bz2")) for level in range(1, 10)),
    (b"\xfd7zXZ\x00", _Signature("xz data", "xz")),
    (b"(\xb5/\xfd", _Signature("zstd data", "zst")),
    (b"7z\xbc\xaf", _Signature("a 7z archive", "7z")),
    (b"Rar!\x1a\x07", _Signature("a RAR archive", "rar")),
    (b"\x7fELF", _Signature("an ELF program")),
    (b"MZ\x90", _Signature("a Windows program")),
    (b"\xca\xfe\xba\xbe", _Signature("a Java class or Mach-O program")),
    (b"SQLite format 3\x00", _Signature("an SQLite database")),
    (b"OggS\x00", _Signature("Ogg media")),
    *((b"ID3%c" % version, _Signature("MP3 audio")) for version in (2, 3, 4)),
    (b"\x00asm", _Signature("WebAssembly")),
)
_STARTS_OF_BYTE: dict[bytes, tuple[tuple[bytes, _Signature], ...]] = {
    first: tuple(each for each in _START if each[0][:1] == first)
    for first in {each[0][:1] for each in _START}
}
"""The entries of ``_START`` by first byte: most files are texts, whose first byte is in none of them."""
_OLE_START = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_BITMAP_HEADERS = frozenset([12, 40, 52, 56, 64, 108, 124])

_IN_ZIP: tuple[tuple[str, _Signature], ...] = (
    ("word/", _Signature("a Word document", "docx")),
    ("xl/", _Signature("an Excel workbook", "xlsx")),
    ("ppt/", _Signature("a PowerPoint presentation", "pptx")),
)
_BY_MIME = {
    b"application/epub+zip": _Signature("an EPUB book", "epub"),
    b"application/vnd.oasis.opendocument.text": _Signature("an OpenDocument text", "odt"),
    b"application/vnd.oasis.opendocument.spreadsheet": _Signature("an OpenDocument spreadsheet", "ods"),
    b"application/vnd.oasis.opendocument.presentation": _Signature("an OpenDocument presentation", "odp"),
}
"""Types of archives whose first member, ``mimetype``, is not compressed."""
_IN_OLE: tuple[tuple[str, _Signature], ...] = (
    ("EncryptedPackage", _ENCRYPTED),
    ("__properties_version1.0", _Signature("an Outlook message", "msg")),
    ("WordDocument", _Signature("a Word 97 document", "doc")),
    ("Book", _Signature("an Excel 95 workbook", "xls")),
    ("Workbook", _Signature("an Excel 97 workbook", "xls")),
    ("PowerPoint Document", _Signature("a PowerPoint 97 presentation", "ppt")),
)

_WEBP = _Signature("a WebP image", "webp")
_BMP = _Signature("a BMP image", "bmp")
_TAR = _Signature("a tar archive", "tar")

_LABELS = {
    found.suffix: found.what
    for found in (
        *(found for _, found in (*_START, *_IN_ZIP, *_IN_OLE)),
        *(*_BY_MIME.values(), _ZIP, _WEBP, _BMP, _TAR),
    )
    if found.suffix
}
"""Types whose content always has a signature, by suffix: without it, the name is wrong."""
_TEXT_LABELS = {"html": "HTML", "xml": "XML", "tsv": "a table", "csv": "a table", "txt": "plain text"}
"""Names of the types found by ``text_suffix``."""

MAX_MEMBERS = 4_096
MAX_STREAMS = 4_096
_END_RECORD = b"PK\x05\x06"
_END_SIZE = 22
_FREE = 0xFFFFFFFA
"""Numbers from here on are no sectors and no entries, but marks."""


def signature(data: bytes) -> _Signature | None:
    """The kind of a content; None for text and for everything unknown."""
    for start, found in _STARTS_OF_BYTE.get(data[:1], ()):
        if data.startswith(start):
            return found
    if data.startswith(b"PK\x03\x04"):
        return _zip_kind(data)
    if data.startswith(_OLE_START):
        return _ole_kind(data)
    if data.startswith(b"RIFF"):
        return _WEBP if data[8:12] == b"WEBP" else _Signature("RIFF media")
    if data.startswith(b"BM") and data[6:10] == bytes(4) and _number(data, 14, "<I") in _BITMAP_HEADERS:
        return _BMP
    if data[257:262] == b"ustar":
        return _TAR
    return None


_TEXTS = (
    (rb"(?i)<!doctype html|<html|<(?:!--|meta|head|body|table|div|p)\b", "html"),
    (rb"<\?xml", "xml"),
    (rb"(?:[^\t\r\n]{0,200}\t[^\r\n]*\r?\n){2}", "tsv"),
    (rb"(?:[^,;\r\n]{0,200}[,;][^\r\n]*\r?\n){2}", "csv"),
)


def text_suffix(head: bytes) -> str:
    """Suffix for the text in a misnamed file: html, xml, tsv, csv or txt."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:4096]
    return next((suffix for pattern, suffix in _TEXTS if re.match(pattern, start)), "txt")


def _zip_kind(data: bytes) -> _Signature | None:
    """The kind of a ZIP archive; None without a directory: the name decides then."""
    length = _number(data, 26, "<H")
    if data[30 : 30 + length] == b"mimetype":
        size, extra = _number(data, 18, "<I"), _number(data, 28, "<H")
        start = 30 + length + extra
        found = _BY_MIME.get(data[start : start + min(size, 200)].strip())
        if found is not None:
            return found
    names = list(_members(data))
    if not names:
        return None
    if "[Content_Types].xml" in names:
        for folder, found in _IN_ZIP:
            if any(name.startswith(folder) for name in names):
                return found
    return _ZIP


def _members(data: bytes) -> Iterator[str]:
    """Names in the directory of an archive, at most ``MAX_MEMBERS``."""
    end = data.rfind(_END_RECORD, max(0, len(data) - _END_SIZE - 0xFFFF))
    if end < 0:
        return
    at = end - _number(data, end + 12, "<I")
    for _ in range(MAX_MEMBERS):
        if at < 0 or data[at : at + 4] != b"PK\x01\x02":
            return
        name, extra, comment = (_number(data, at + offset, "<H") for offset in (28, 30, 32))
        yield data[at + 46 : at + 46 + name].decode("utf-8", "replace").replace("\\", "/")
        at += 46 + name + extra + comment


def _ole_kind(data: bytes) -> _Signature:
    names = set(_streams(data))
    return next((found for name, found in _IN_OLE if name in names), _OLE)


class _Entry(msgspec.Struct, frozen=True):
    name: str
    left: int
    right: int
    child: int


def _streams(data: bytes) -> Iterator[str]:
    """Names directly below the root of an OLE file. Those of embedded documents lie deeper."""
    entries = _entries(data)
    waiting = [entries[0].child] if entries else []
    seen: set[int] = set()
    while waiting:
        number = waiting.pop()
        if number in seen or number >= len(entries):
            continue
        seen.add(number)
        entry = entries[number]
        yield entry.name
        waiting += (entry.left, entry.right)


def _entries(data: bytes) -> list[_Entry]:
    size = 1 << min(_number(data, 30, "<H"), 12)
    if size < 512:
        return []
    tables = [_number(data, 76 + 4 * place, "<I") for place in range(109)]
    sector, entries = _number(data, 48, "<I"), list[_Entry]()
    while sector < _FREE and len(entries) < MAX_STREAMS:
        part = data[(sector + 1) * size : (sector + 2) * size]
        if not part:
            break
        entries += [_entry(part[at : at + 128]) for at in range(0, len(part) - 127, 128)]
        table, place = divmod(sector, size // 4)
        if table >= len(tables) or tables[table] >= _FREE:
            break
        sector = _number(data, (tables[table] + 1) * size + 4 * place, "<I", _FREE)
    return entries


def _entry(part: bytes) -> _Entry:
    length = max(0, min(_number(part, 64, "<H"), 64) - 2)
    left, right, child = struct.unpack_from("<III", part, 68)
    return _Entry(part[:length].decode("utf-16-le", "replace"), left, right, child)


def _number(data: bytes, at: int, form: str, missing: int = 0) -> int:
    """One number of a binary header; ``missing`` at the end of the data."""
    try:
        found: int = struct.unpack_from(form, data, at)[0]
    except struct.error:
        return missing
    return found


_SUFFIXES_OF_LANGUAGES = {
    "python": "py pyi pyw",
    "javascript": "js mjs cjs jsx",
    "typescript": "ts mts cts",
    "tsx": "tsx",
    "go": "go",
    "rust": "rs",
    "java": "java",
    "c": "c h",
    "cpp": "cc cpp cxx c++ hh hpp hxx h++ ipp inl cu cuh",
    "csharp": "cs",
    "kotlin": "kt kts",
    "scala": "scala sc",
    "swift": "swift",
    "ruby": "rb rake gemspec",
    "php": "php",
    "perl": "pl pm t",
    "lua": "lua",
    "r": "r",
    "julia": "jl",
    "haskell": "hs lhs",
    "ocaml": "ml mli",
    "elixir": "ex exs",
    "erlang": "erl hrl",
    "clojure": "clj cljs cljc edn",
    "lisp": "lisp cl el scm rkt",
    "shell": "sh bash zsh fish ksh",
    "powershell": "ps1 psm1",
    "batch": "bat cmd",
    "sql": "sql",
    "css": "css scss sass less",
    "vue": "vue svelte astro",
    "dart": "dart",
    "zig": "zig",
    "nim": "nim",
    "objc": "m mm",
    "solidity": "sol",
    "d": "d",
    "fortran": "f f90 f95 for",
    "pascal": "pas pp",
    "ada": "adb ads",
    "assembly": "s asm",
    "verilog": "v sv svh vhd vhdl",
    "protobuf": "proto",
    "graphql": "graphql gql",
    "thrift": "thrift",
    "terraform": "tf tfvars hcl",
    "nix": "nix",
    "cmake": "cmake",
    "make": "mk mak",
    "gradle": "gradle groovy",
    "jinja": "j2 jinja jinja2 tmpl",
}

_LANGUAGES_OF_NAMES = {
    "makefile": "make",
    "gnumakefile": "make",
    "dockerfile": "docker",
    "containerfile": "docker",
    "cmakelists.txt": "cmake",
    "rakefile": "ruby",
    "gemfile": "ruby",
    "jenkinsfile": "gradle",
    "build.bazel": "python",
    "sconstruct": "python",
}


class AddedFormat(msgspec.Struct, frozen=True):
    """A format of an extension: file type, suffixes and extractor.

    The extractor always runs in the sandbox. Its name is the one of the entry point, and the suffixes must
    be none that Penstock reads itself.
    """

    file_type: FileType
    suffixes: tuple[str, ...]
    extractor: Callable[[], Extractor]


def _load_formats(own_extractors: Collection[str], own_suffixes: Collection[str]) -> dict[str, AddedFormat]:
    """Load the formats of all extensions, by the name of the extractor.

    Raises ``ExtensionFailed`` for one that has a name or a suffix of Penstock, or is no format.
    """
    found: dict[str, AddedFormat] = {}
    for name in extensions.names(ExtensionKind.FORMAT):
        extension = extensions.find(ExtensionKind.FORMAT, name)
        if extension is not None:
            found[name] = _checked(extension, own_extractors, own_suffixes)
    return found


def _checked(
    extension: Extension, own_extractors: Collection[str], own_suffixes: Collection[str]
) -> AddedFormat:
    added = extension.load()
    if not isinstance(added, AddedFormat):
        raise extension.failure(f"is not an AddedFormat, but {type(added).__name__}")
    if extension.name in own_extractors:
        raise extension.failure("has the name of an extractor of Penstock")
    if added.file_type.extractor != extension.name:
        raise extension.failure(f"has a file type of the extractor {added.file_type.extractor!r}")
    taken = [suffix for suffix in added.suffixes if suffix in own_suffixes]
    if taken:
        raise extension.failure(f"has the suffix .{taken[0]}, which Penstock reads itself")
    if not added.suffixes:
        raise extension.failure("has no suffix")
    return added


TEXT = FileType("text/plain", "text")
MARKDOWN = FileType("text/markdown", "markdown")
HTML = FileType("text/html", "html", position_unit="paragraph")
PDF = FileType("application/pdf", "pdf")
DOCX = FileType(
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "docx",
    position_unit="paragraph",
)
PPTX = FileType(
    "application/vnd.openxmlformats-officedocument.presentationml.presentation", "pptx", page_unit="slide"
)
XLSX = FileType(
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "sheets",
    page_unit="sheet",
    position_unit="row",
)
XLS = FileType("application/vnd.ms-excel", "sheets", page_unit="sheet", position_unit="row")
_OPENDOCUMENT = "application/vnd.oasis.opendocument"
ODT = FileType(f"{_OPENDOCUMENT}.text", "opendocument", position_unit="paragraph")
ODS = FileType(f"{_OPENDOCUMENT}.spreadsheet", "opendocument", page_unit="sheet", position_unit="row")
ODP = FileType(f"{_OPENDOCUMENT}.presentation", "opendocument", page_unit="slide")
EPUB = FileType("application/epub+zip", "epub", page_unit="chapter", position_unit="paragraph")
RTF = FileType("application/rtf", "rtf", position_unit="paragraph")
DOC = FileType("application/msword", "doc", position_unit="paragraph")
PPT = FileType("application/vnd.ms-powerpoint", "ppt", page_unit="slide")
CSV = FileType("text/csv", "table")
TSV = FileType("text/tab-separated-values", "table")
JSON = FileType("application/json", "json")
JSON_LINES = FileType("application/jsonl", "rows")
XML = FileType("application/xml", "xml")
NOTEBOOK = FileType("application/x-ipynb+json", "notebook", position_unit="cell")
MAIL = FileType("message/rfc822", "mail")
MAILBOX = FileType("application/mbox", "mailbox", page_unit="message")
OUTLOOK = FileType("application/vnd.ms-outlook", "outlook")
ZIP = FileType("application/zip", "archive")
TAR = FileType("application/x-tar", "archive")
COMPRESSED = FileType("application/gzip", "compressed")

_DOCUMENTS = {
    TEXT: "txt text log asc tex bib po pot diff patch vcf ics",
    MARKDOWN: "md markdown mdown mkd mdx rmd qmd",
    HTML: "html htm xhtml xht shtml",
    PDF: "pdf",
    DOCX: "docx docm",
    PPTX: "pptx pptm ppsx",
    XLSX: "xlsx xlsm",
    XLS: "xls",
    ODT: "odt ott",
    ODS: "ods ots",
    ODP: "odp otp",
    EPUB: "epub",
    RTF: "rtf",
    DOC: "doc dot",
    PPT: "ppt pps",
    CSV: "csv",
    TSV: "tsv tab",
    JSON: "json json5 jsonc geojson webmanifest",
    JSON_LINES: "jsonl ndjson",
    XML: "xml rss atom xsd xsl xslt svg plist opml kml gpx wsdl",
    NOTEBOOK: "ipynb",
    MAIL: "eml",
    MAILBOX: "mbox",
    OUTLOOK: "msg",
    ZIP: "zip whl egg",
    TAR: "tar tgz tbz tbz2 txz",
    COMPRESSED: "gz bz2 xz",
    FileType("image/png", "image"): "png",
    FileType("image/jpeg", "image"): "jpg jpeg",
    FileType("image/tiff", "image"): "tif tiff",
    FileType("image/webp", "image"): "webp",
    FileType("image/bmp", "image"): "bmp",
    FileType("image/gif", "image"): "gif",
    FileType("application/x-subrip", "subtitles"): "srt",
    FileType("text/vtt", "subtitles"): "vtt",
    FileType("text/x-rst", "text"): "rst",
    FileType("text/asciidoc", "text"): "adoc asciidoc",
    FileType("text/x-org", "text"): "org",
    FileType("text/yaml", "text"): "yaml yml",
    FileType("text/toml", "text"): "toml",
    FileType("text/x-ini", "text"): "ini cfg conf properties env editorconfig",
}

CLASSES: Mapping[str, str] = MappingProxyType(
    {
        "doc": "office.doc.DocExtractor",
        "epub": "office.epub.EpubExtractor",
        "archive": "archives.ArchiveExtractor",
        "compressed": "archives.CompressedExtractor",
        "html": "html.HtmlExtractor",
        "image": "image.ImageExtractor",
        "json": "structured.JsonExtractor",
        "mail": "mail.MailExtractor",
        "mailbox": "mail.MailboxExtractor",
        "notebook": "structured.NotebookExtractor",
        "docx": "office.docx.DocxExtractor",
        "opendocument": "office.odf.OpenDocumentExtractor",
        "outlook": "mail.OutlookExtractor",
        "pdf": "pdf.document.PdfExtractor",
        "pptx": "office.slides.PptxExtractor",
        "ppt": "office.slides.PptExtractor",
        "rtf": "office.rtf.RtfExtractor",
        "sheets": "office.sheets.SheetExtractor",
        "subtitles": "structured.SubtitleExtractor",
        "table": "structured.TableExtractor",
        "xml": "structured.XmlExtractor",
    }
)
"""Module and class of each extractor. Those of other names are kinds of plain text."""

EXTRACTORS = ("text", "markdown", "code", "rows", *CLASSES)
"""The names of Penstock's own extractors; extensions add others."""

READ_IN_PART = frozenset(["code", "markdown", "rows", "subtitles", "table", "text"])
"""Extractors that can read the beginning of a file: one line does not need the lines after it."""


_BINARY_SUFFIXES = frozenset(
    "ico avif heic psd xcf ai eps mp3 wav flac ogg opus m4a aac mp4 "
    "m4v mkv avi mov webm wmv zst lz4 7z rar jar war ear deb rpm "
    "apk dmg iso img exe dll so dylib a o obj lib pyc pyo pyd class wasm beam elc node ttf otf woff woff2 "
    "eot bin dat db sqlite sqlite3 mdb parquet feather arrow orc avro npy npz pt pth onnx safetensors "
    "gguf h5 hdf5 pkl pickle mo swp swo lockb ds_store pack idx rev gpg pgp p12 pfx jks "
    "keystore der crt".split()
)

_OFFICE_SUFFIXES = frozenset("xlsb odg vsd vsdx pub mobi azw azw3 djvu numbers".split())
"""Documents that cannot be read yet: reported as unsupported, not skipped as binary."""


def _code(language: str) -> FileType:
    return FileType(f"text/x-{language}", "code", language)


BY_SUFFIX: Mapping[str, FileType] = MappingProxyType(
    {suffix: file_type for file_type, suffixes in _DOCUMENTS.items() for suffix in suffixes.split()}
    | {
        suffix: _code(language)
        for language, suffixes in _SUFFIXES_OF_LANGUAGES.items()
        for suffix in suffixes.split()
    }
)

_COMPRESSED_SUFFIXES = frozenset(suffix for suffix, each in BY_SUFFIX.items() if each is COMPRESSED)
_BY_MEDIA_TYPE = {file_type.media_type: file_type for file_type in BY_SUFFIX.values()}


@functools.cache
def added_formats() -> Mapping[str, AddedFormat]:
    """The formats of extensions, by the name of the extractor. Raises ``ExtensionFailed`` for a wrong one."""
    return _load_formats(EXTRACTORS, BY_SUFFIX)


@functools.cache
def _added_suffixes() -> Mapping[str, FileType]:
    return {suffix: one.file_type for one in added_formats().values() for suffix in one.suffixes}


def stored_type(suffix: str, media_type: str = "") -> FileType:
    """Type of a stored document: by the content of a misnamed file, else by the suffix."""
    return _BY_MEDIA_TYPE.get(media_type) or _by_suffix(suffix) or TEXT


def _by_suffix(suffix: str) -> FileType | None:
    """Type of a suffix, of Penstock itself or of an extension."""
    return BY_SUFFIX.get(suffix) or (_added_suffixes().get(suffix) if suffix else None)


def _types_of(suffixes: Iterable[str]) -> frozenset[FileType]:
    return frozenset(BY_SUFFIX[suffix] for suffix in suffixes if suffix in BY_SUFFIX)


_SIGNED = _types_of(_LABELS)
"""Types whose content always has a signature: without it, the name is wrong."""
_PACKED = frozenset([ZIP, TAR, COMPRESSED])
"""Types that hold other files. They are opened only under a name that says so."""
_ZIPPED = _types_of(found.suffix for found in (*(found for _, found in _IN_ZIP), *_BY_MIME.values()))
"""Types that are ZIP archives of a certain content."""
_COMPOUND = _types_of(found.suffix for _, found in _IN_OLE)

DETECTION = "2"
"""Version of the rules below. A new one reads files again that failed before."""


def suffix_of(name: str) -> str:
    """Suffix of a name, in lower case, without the dot. ``.bashrc`` and ``Makefile`` have none."""
    head, dot, suffix = name.rpartition("/")[2].rpartition(".")
    return suffix.lower() if dot and head else ""


@functools.lru_cache(512)
def by_name(name: str) -> FileType | None:
    """Type of a file by name; None if the name does not decide."""
    language = _LANGUAGES_OF_NAMES.get(name.rpartition("/")[2].lower())
    if language:
        return _code(language)
    found = _by_suffix(suffix_of(name))
    return TAR if found is COMPRESSED and suffix_of(uncompressed_name(name)) == "tar" else found


def uncompressed_name(name: str) -> str:
    """Name of the file inside a compressed one: ``notes.txt`` for ``notes.txt.gz``."""
    return name[: -len(suffix_of(name)) - 1]


def is_compressed_name(name: str) -> bool:
    return BY_SUFFIX.get(suffix_of(name)) is COMPRESSED


def type_key(name: str) -> str:
    """The part of a name that decides the type: the suffix, or ``/`` and the whole name where more counts,
    as in ``CMakeLists.txt``, which is code, and ``notes.txt.gz``."""
    head, _, suffix = name.rpartition(".")
    if name.lower() in _LANGUAGES_OF_NAMES or suffix.lower() in _COMPRESSED_SUFFIXES:
        return f"/{name}"
    return suffix if head else ""


def is_archive_name(name: str) -> bool:
    """Check whether files of this name are opened as folders, where this is asked for."""
    return by_name(name) in (ZIP, TAR)


_DELIVERED_TYPES: Mapping[str, FileType] = MappingProxyType(
    {"pdf": PDF, "txt": TEXT, "md": MARKDOWN, "docx": DOCX}
)


def named_as(name: str, suffix: str) -> str:
    """The name, with ``suffix`` added unless the name already has a suffix of the same type."""
    expected = _DELIVERED_TYPES.get(suffix) or BY_SUFFIX.get(suffix)
    return name if expected is None or by_name(name) == expected else f"{name}.{suffix}"


def refuse_other_than(suffix: str, name: str, head: bytes) -> None:
    """Raise UnsupportedType if the content does not have the announced type."""
    found = detect(named_as(name, suffix), head)
    if found != _DELIVERED_TYPES[suffix]:
        raise UnsupportedType(f"{_shown(name)} is {found.media_type}, not {suffix} as announced")


def is_binary_name(name: str) -> bool:
    """Check whether the suffix alone excludes text."""
    if is_compressed_name(name) and not is_archive_name(name):
        return suffix_of(uncompressed_name(name)) in _BINARY_SUFFIXES
    suffix = suffix_of(name)
    return suffix in _BINARY_SUFFIXES and suffix not in _added_suffixes()


def is_picture_name(name: str) -> bool:
    """Check by the name whether a file is a picture, to be read by OCR."""
    file_type = by_name(name)
    return file_type is not None and file_type.extractor == "image"


def is_unreadable_name(name: str) -> bool:
    """Check whether the file is a document of a type not readable yet."""
    suffix = suffix_of(name)
    return suffix in _OFFICE_SUFFIXES and suffix not in _added_suffixes()


def may_be_read_in_part(name: str) -> bool:
    """Check whether the beginning of a file may be enough, by name: text, or an unknown type."""
    file_type = by_name(name)
    return not is_binary_name(name) and (file_type or TEXT).extractor in READ_IN_PART


def is_code_name(name: str) -> bool:
    file_type = by_name(name)
    return file_type is not None and file_type.extractor == "code"


_REMEMBERED_BYTES = 1 << 20
_NOTHING: tuple[str | None, bytes, FileType] = (None, b"", TEXT)
_last_detected = _NOTHING


def detect(name: str, data: bytes) -> FileType:
    """Type of a file by name and content. The content wins over a wrong name, where it can be read.

    ``data`` may be only the start of a file; of an archive the name then decides. Raises UnsupportedType if
    the file cannot be read. Handler, extractor and draft ask about the same file one after the other, so
    the last answer is remembered, for the same object of at most a megabyte.
    """
    global _last_detected  # one assignment of a tuple: safe between threads
    last_name, last_data, found = _last_detected
    if data is not last_data or name != last_name:
        found = _detect(name, data)
        _last_detected = (name, data, found) if len(data) <= _REMEMBERED_BYTES else _NOTHING
    return found


def forget_types() -> None:
    """Forget what was found by names and contents: other formats are installed."""
    global _last_detected
    _last_detected = _NOTHING
    for known in (added_formats, _added_suffixes, by_name):
        known.cache_clear()


def _detect(name: str, data: bytes) -> FileType:
    expected, suffix = by_name(name), suffix_of(name)
    if suffix not in BY_SUFFIX and expected is not None and expected.extractor in added_formats():
        # Its extractor says whether the content is right.
        return expected
    seen = signature(data)
    found = BY_SUFFIX.get(seen.suffix) if seen is not None else None
    if expected is not None and _may_hold(expected, seen, data):
        return expected
    if found is not None and found not in _PACKED:
        return found
    if expected in _SIGNED or suffix in _OFFICE_SUFFIXES:
        return _misnamed(name, suffix, data)
    if seen is not None or looks_binary(data):
        raise UnsupportedType(f"{_shown(name)} holds {seen.what if seen else 'binary data'}, not text")
    return expected if expected is not None else _by_content(data)


def misnaming(name: str, found: FileType) -> str | None:
    """Warning about a name of another type than the content."""
    expected, suffix = by_name(name), suffix_of(name)
    known = expected is not None or suffix in _OFFICE_SUFFIXES
    alike = expected is not None and expected.extractor == found.extractor != "image"
    if not known or alike or expected == found:
        return None
    return f"named {f'.{suffix}' if suffix else _shown(name)}, but is {_label(found)}"


def _label(file_type: FileType) -> str:
    labels = _LABELS | _TEXT_LABELS
    return next((labels[each] for each in labels if BY_SUFFIX.get(each) == file_type), file_type.media_type)


def _may_hold(expected: FileType, seen: _Signature | None, data: bytes) -> bool:
    """Check whether a content that does not show its type may be of the type of the name.

    The extractor then says what is wrong with it, such as a missing part or a password.
    """
    if seen in (_ENCRYPTED, _OLE):
        return expected in _ZIPPED or expected in _COMPOUND
    if seen is _ZIP or (seen is None and data.startswith((b"PK\x03\x04", b"PK\x05\x06"))):
        return expected in _ZIPPED or expected is ZIP
    if seen is not None and BY_SUFFIX.get(seen.suffix) in _PACKED:
        return expected in (TAR, COMPRESSED)
    # Some producers write a line or two before the header; readers accept it within the first kilobyte.
    return expected is PDF and seen is None and b"%PDF-" in data[:1024]


def _misnamed(name: str, suffix: str, data: bytes) -> FileType:
    """Type of a file without the signature of the suffix: possibly text."""
    # UTF-16 without a mark is a guess, which a wrong name makes no likelier.
    wide = b"\x00" in data[:SNIFFED] and not data.startswith((b"\xff\xfe", b"\xfe\xff"))
    if data and signature(data) is None and not wide and not looks_binary(data):
        return MAIL if BY_SUFFIX.get(suffix) is OUTLOOK else BY_SUFFIX[text_suffix(data)]
    if not data:
        raise UnsupportedType(f"{_shown(name)} is empty: there is nothing to read in it")
    if suffix in _OFFICE_SUFFIXES:
        raise UnsupportedType(f"{_shown(name)}: .{suffix} files cannot be read yet")
    raise UnsupportedType(f"{_shown(name)} is not {_label(BY_SUFFIX[suffix])}, in spite of its name")


def _by_content(head: bytes) -> FileType:
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:256].lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return HTML
    if start.startswith(b"<?xml"):
        return XML
    if start.startswith(b"#!"):
        line = start.split(b"\n", 1)[0]
        for marker, language in ((b"python", "python"), (b"node", "javascript"), (b"sh", "shell")):
            if marker in line:
                return _code(language)
    return TEXT


def _shown(name: str) -> str:
    return repr(name.rpartition("/")[2])
