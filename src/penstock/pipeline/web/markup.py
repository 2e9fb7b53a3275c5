"""Markup of a web page: links, anchors of headings, and the page without navigation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import DocumentDamaged
from penstock.pipeline.extract import html
from penstock.pipeline.extract.charset import clean, decode, markup_label
from penstock.pipeline.extract.html import check_cost
from penstock.pipeline.web import urls
from penstock.pipeline.web.protocol import PageLinks

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

MAX_LINKS = 5_000
"""Links of a page that are read."""
MAX_ANCHORS = 500
MAX_ANCHOR = 200
"""Characters of an anchor, and of a heading that has one."""
MIN_CONTENT = 200
"""Characters of text from which on an element counts as the content of the page."""
_CONTENT = 'main, [role="main"], article'
_CHROME = (
    'nav, [role="navigation"], [role="search"], [role="banner"], [role="contentinfo"], '
    "a.headerlink, .sphinxsidebar, .toctree-wrapper + .rst-footer-buttons, .rst-footer-buttons"
)
_HEADINGS = "h1, h2, h3, h4, h5, h6"
_MARK = re.compile(r"[¶#§\U0001f517]\s*\Z")
"""Sign of a link beside a heading that leads to the heading itself."""


def read_links(url: str, data: bytes) -> PageLinks:
    """Read the links of an HTML page; none if the page cannot be parsed."""
    tree = _parsed(data)
    if tree is None:
        return PageLinks()
    place = tree.css_first("head > base[href]")
    start = (urls.linked(url, place.attributes.get("href") or "") if place is not None else None) or url
    found: dict[str, None] = {}
    for node in tree.css("a[href], area[href], iframe[src], frame[src]")[: 4 * MAX_LINKS]:
        attributes = node.attributes
        if "nofollow" in (attributes.get("rel") or "").lower():
            continue
        link = urls.linked(start, attributes.get("href") or attributes.get("src") or "")
        if link is not None and link != url:
            found.setdefault(link)
        if len(found) >= MAX_LINKS:
            break
    wanted = tree.css_first('head > link[rel="canonical"][href]')
    canonical = urls.linked(start, wanted.attributes.get("href") or "") if wanted is not None else None
    said = _robots(tree)
    return PageLinks(
        links=tuple(found),
        canonical=canonical,
        noindex="noindex" in said or "none" in said,
        nofollow="nofollow" in said or "none" in said,
    )


class Article(msgspec.Struct, frozen=True):
    """The content of a page without navigation, and the anchors of the headings."""

    data: bytes
    anchors: dict[str, str]
    """Anchors by path of headings, as chunks have it: ``Gates > Opening``."""


def read_article(data: bytes) -> Article:
    """The content of an HTML page; unchanged if the page cannot be parsed."""
    tree = _parsed(data)
    if tree is None or tree.body is None:
        return Article(data, {})
    for node in tree.css("a.headerlink"):
        node.decompose()
    anchors = _anchors(tree)
    content = max(tree.css(_CONTENT), key=lambda node: len(node.text()), default=None)
    if content is not None and len(content.text(strip=True)) >= MIN_CONTENT:
        body = content.html or ""
    else:
        body = tree.body.inner_html or ""
    head = tree.head.html if tree.head is not None else ""
    shell = _parsed(f"<html{_language(tree)}>{head}<body>{body}</body></html>".encode())
    if shell is None:
        return Article(data, anchors)
    for node in shell.css(_CHROME):
        node.decompose()
    return Article((shell.html or "").encode(), anchors)


def _parsed(data: bytes) -> LexborHTMLParser | None:
    from selectolax.lexbor import LexborHTMLParser, SelectolaxError

    markup = html.simplified(clean(decode(data, markup_label).text))
    try:
        check_cost(markup)
        return LexborHTMLParser(markup)
    except (SelectolaxError, DocumentDamaged):
        # The extractor refuses the page as well, and says why.
        return None


def _language(tree: LexborHTMLParser) -> str:
    language = (tree.root.attributes.get("lang") if tree.root is not None else None) or ""
    return f' lang="{language}"' if re.fullmatch(r"[A-Za-z0-9-]{1,40}", language) else ""


def _robots(tree: LexborHTMLParser) -> str:
    names = ('meta[name="robots" i][content]', 'meta[name="penstock" i][content]')
    found = [node.attributes.get("content") or "" for name in names for node in tree.css(name)[:5]]
    return ",".join(found).lower()


def _anchors(tree: LexborHTMLParser) -> dict[str, str]:
    """Anchors of headings: of the heading, of the section around, or of a mark inside."""
    found: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for node in tree.css(_HEADINGS)[: 4 * MAX_ANCHORS]:
        text = _MARK.sub("", " ".join(node.text().split())).strip()
        level = int((node.tag or "h1")[1])
        while path and path[-1][0] >= level:
            path.pop()
        if not text:
            continue
        path.append((level, text))
        anchor = _anchor_of(node)
        if anchor and len(text) <= MAX_ANCHOR and len(found) < MAX_ANCHORS:
            found.setdefault(" > ".join(each for _, each in path), anchor)
    return found


def _anchor_of(node: LexborNode) -> str:
    own = node.attributes.get("id")
    inside = node.css_first("[id], a[name]")
    above = node.parent
    candidates = [own]
    if inside is not None:
        candidates.append(inside.attributes.get("id") or inside.attributes.get("name"))
    if above is not None and above.tag in ("section", "div", "article", "header"):
        candidates.append(above.attributes.get("id"))
    found = next(filter(None, candidates), "")
    return found if len(found) <= MAX_ANCHOR and not re.search(r"\s", found) else ""
