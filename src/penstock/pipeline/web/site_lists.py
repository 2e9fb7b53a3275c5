"""Lists of pages published by a site: sitemap.xml, and the inventory of a Sphinx documentation."""

from __future__ import annotations

import re
import zlib

from penstock.named_tuple import NamedTuple
from penstock.pipeline.web import urls

MAX_BYTES = 16 << 20
"""Unpacked size of a list."""
MAX_PAGES = 50_000
MAX_LINE = 2_000
_LOCATION = re.compile(rb"<(?:\w+:)?loc>\s*(?:<!\[CDATA\[)?\s*([^<\]]{1,4000})", re.I)
_ENTITY = re.compile(r"&(?:amp|#38);")
_INVENTORY = b"# Sphinx inventory version 2"
_GENERATED = re.compile(
    r"(?:^|/)(?:_sources|_static|_modules|_images|_downloads)/|"
    r"(?:^|/)(?:genindex(?:-\w+)?|py-modindex|modindex|search)(?:\.html?|/(?:index\.html?)?)?\Z"
)
"""Pages of a Sphinx documentation that list others, or show sources."""


class Sitemap(NamedTuple):
    """Pages of a site, and other sitemaps."""

    pages: list[str]
    sitemaps: list[str]


def read_sitemap(url: str, data: bytes) -> Sitemap:
    """Read a sitemap, or an index of sitemaps. Anything else has no pages.

    Only the locations are read, by a pattern: a parser of XML would expand entities.
    """
    data = _unpacked(data) if data.startswith(b"\x1f\x8b") else data
    found: dict[str, None] = {}
    for location in _LOCATION.finditer(data[:MAX_BYTES]):
        text = _ENTITY.sub("&", location[1].decode("utf-8", "replace").strip())
        link = urls.linked(url, text)
        if link is not None:
            found.setdefault(link)
        if len(found) >= MAX_PAGES:
            break
    is_index = b"<sitemapindex" in data[:4_000]
    return Sitemap([], list(found)) if is_index else Sitemap(list(found), [])


def read_inventory(url: str, data: bytes) -> dict[str, str] | None:
    """Pages of an ``objects.inv`` with their titles, where it names them; None: it is no inventory."""
    if not data.startswith(_INVENTORY):
        return None
    lines = data.split(b"\n", 4)
    if len(lines) < 5:
        return None
    found: dict[str, str] = {}
    for line in _unpacked(lines[4]).decode("utf-8", "replace").splitlines():
        entry = _entry(line)
        page = urls.linked(url, entry.page) if entry is not None else None
        if entry is None or page is None or is_generated(page):
            continue
        found[page] = found.get(page) or entry.title
        if len(found) >= MAX_PAGES:
            break
    return found


class _Entry(NamedTuple):
    page: str
    title: str


def _entry(line: str) -> _Entry | None:
    """One object: name, role, priority, place and title. The name may have spaces."""
    words = line[:MAX_LINE].split(" ")
    for at in range(1, len(words) - 2):
        if ":" in words[at] and words[at + 1].lstrip("-").isdigit():
            name, place, title = " ".join(words[:at]), words[at + 2], " ".join(words[at + 3 :]).strip()
            place = place[:-1] + name if place.endswith("$") else place
            is_page = words[at] == "std:doc"
            return _Entry(place.partition("#")[0], (name if title == "-" else title) if is_page else "")
    return None


def is_generated(path: str) -> bool:
    """Check whether a page of a Sphinx documentation is an index of others, or shows sources."""
    return _GENERATED.search(path.partition("?")[0]) is not None


def _unpacked(data: bytes) -> bytes:
    """The beginning of packed data, up to the limit; for damaged data the readable part."""
    stream = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        return stream.decompress(data, MAX_BYTES)
    except zlib.error:
        return b""
