"""Rules for crawlers (robots.txt, RFC 9309) and lists of pages that a site publishes. Pure.

Lists are ``sitemap.xml`` and the inventory of a Sphinx documentation.
"""

from __future__ import annotations

import re
import zlib
from urllib.parse import urlsplit

import msgspec

from penstock.pipeline.web import urls

AGENT = "penstock"
MAX_ROBOTS_BYTES = 500 * 1024
"""Bytes of a robots.txt that are read."""
MAX_RULES = 2_000
LONGEST_DELAY_S = 30.0


class _Rule(msgspec.Struct, frozen=True):
    length: int
    allows: bool
    parts: tuple[str, ...]
    """Texts between the stars."""
    ends: bool
    """The last part is the end of the path."""

    def matches(self, path: str) -> bool:
        """Compare part by part, each at the first match: linear time for any number of stars."""
        if not path.startswith(self.parts[0]):
            return False
        at = len(self.parts[0])
        if len(self.parts) == 1:
            return not self.ends or at == len(path)
        for part in self.parts[1 : -1 if self.ends else None]:
            found = path.find(part, at)
            if found < 0:
                return False
            at = found + len(part)
        return not self.ends or (len(path) - len(self.parts[-1]) >= at and path.endswith(self.parts[-1]))


class Robots:
    """The rules for one crawler on one host. Without rules everything is allowed."""

    def __init__(self, text: str = "") -> None:
        groups, self.sitemaps = _groups(text)
        lines = groups.get(AGENT, groups.get("*", []))
        self.delay_s = next((_seconds(value) for name, value in lines if name == "crawl-delay"), 0.0)
        self._rules = sorted(
            (
                _rule(name, value)
                for name, value in lines[:MAX_RULES]
                if name in ("allow", "disallow") and value
            ),
            key=lambda rule: (-rule.length, not rule.allows),
        )

    def allows(self, url: str) -> bool:
        """Check whether a page may be read: the longest matching rule decides."""
        parts = urlsplit(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return next((rule.allows for rule in self._rules if rule.matches(path)), True)


def _groups(text: str) -> tuple[dict[str, list[tuple[str, str]]], list[str]]:
    """Lines for this crawler and for all, and the sitemaps. Consecutive names share the following lines.

    Lines for other crawlers are not kept: thousands of names would each get thousands of lines.
    """
    groups: dict[str, list[tuple[str, str]]] = {}
    sitemaps: list[str] = []
    names: set[str] = set()
    in_rules = False
    for line in text.splitlines():
        name, colon, value = line.partition("#")[0].partition(":")
        name, value = name.strip().lower(), value.strip()
        if not colon:
            continue
        if name == "sitemap":
            sitemaps.append(value)
        elif name == "user-agent":
            if in_rules:
                names, in_rules = set(), False
            if value.lower() in (AGENT, "*"):
                names.add(value.lower())
                groups.setdefault(value.lower(), [])
        else:
            in_rules = True
            for each in names:
                groups[each].append((name, value))
    return groups, sitemaps


def _rule(name: str, value: str) -> _Rule:
    return _Rule(len(value), name == "allow", tuple(value.removesuffix("$").split("*")), value.endswith("$"))


def _seconds(text: str) -> float:
    try:
        return min(max(float(text), 0.0), LONGEST_DELAY_S)
    except ValueError:
        return 0.0


MAX_SITEMAP_BYTES = 16 << 20
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


class Sitemap(msgspec.Struct, frozen=True):
    """Pages of a site, and other sitemaps."""

    pages: list[str]
    sitemaps: list[str]


def read_sitemap(url: str, data: bytes) -> Sitemap:
    """Read a sitemap, or an index of sitemaps. Anything else has no pages.

    Only the locations are read, by a pattern: a parser of XML would expand entities.
    """
    data = _unpacked(data) if data.startswith(b"\x1f\x8b") else data
    found: dict[str, None] = {}
    for location in _LOCATION.finditer(data[:MAX_SITEMAP_BYTES]):
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


class _Entry(msgspec.Struct, frozen=True):
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
        return stream.decompress(data, MAX_SITEMAP_BYTES)
    except zlib.error:
        return b""
