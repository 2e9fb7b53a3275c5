"""URLs of web pages, and the pages behind them: normal form, links, anchors, content without navigation.

The client is in ``fetch``, whose modules take long to load.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, quote, urljoin, urlsplit, urlunsplit

import msgspec

from penstock.errors import DocumentDamaged, InvalidUrl
from penstock.pipeline.extract.charset import clean, decode, markup_label

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode


MAX_URL = 2_000
"""Characters of a URL. Web servers refuse longer ones."""
MAX_QUERY = 300
MAX_PARAMETERS = 6
_PORTS = {"http": 80, "https": 443}
_IN_PATHS = "/%:@!$&'()*+,;=~-._"
_IN_QUERIES = _IN_PATHS + "?"
_ESCAPE = r"%([0-9a-fA-F]{2})"
_UNRESERVED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")
_SPACES = r"[\t\n\r]"
_WITHOUT_MEANING = r"(?i)utm_\w+|gclid|fbclid|mc_cid|mc_eid|msclkid|igshid|_ga"
"""Parameters that say where a visitor comes from; the page is the same without them."""


def is_web_url(text: str) -> bool:
    """Check whether a user's path is the URL of a web page."""
    return text[:8].lower().startswith(("http://", "https://"))


def canonical(url: str) -> str:
    """The normal form of a URL: no fragment, no default port, no ``..``, plain escapes.

    Raises ``InvalidUrl`` for anything but an http or https URL, and for one with a user or a password.
    """
    try:
        parts = urlsplit(re.sub(_SPACES, "", url.strip()))
        host, port = _host(parts), parts.port
        bound = _needs_interface(host)
    except (ValueError, UnicodeError):
        raise InvalidUrl(f"{shown(url)!r} is not a valid URL") from None
    if parts.scheme not in _PORTS or not host:
        raise InvalidUrl(f"{shown(url)!r} is not an http or https URL")
    if parts.username is not None or parts.password is not None:
        raise InvalidUrl(f"{shown(url)} has a user or a password, which would be stored with each page")
    if bound:
        raise InvalidUrl(
            f"{shown(url)!r} has an address that only an interface of each machine gives a meaning",
            remedy="Use a name, or another address of that server.",
        )
    at = f"[{host}]" if ":" in host else host
    if port is not None and port != _PORTS[parts.scheme]:
        at += f":{port}"
    found = urlunsplit((parts.scheme, at, _path(parts.path), _query(parts.query), ""))
    if len(found) > MAX_URL:
        raise InvalidUrl(f"the URL has {len(found):,} characters; the limit is {MAX_URL:,}")
    return found


def receiver(url: str) -> str:
    """Check the URL of a webhook receiver; returned unchanged. Raises ``InvalidUrl``."""
    canonical(url)
    if not url.isascii() or not url.isprintable() or " " in url or "#" in url or len(url) > MAX_URL:
        raise InvalidUrl(f"{shown(url)!r} has spaces, a fragment, or characters that need an escape")
    return url


def _host(parts: SplitResult) -> str:
    host = (parts.hostname or "").rstrip(".")
    if not host.isascii():
        host = host.encode("idna").decode()
    if not re.fullmatch(r"[a-z0-9._:%-]*", host):
        raise ValueError
    return host


def _needs_interface(host: str) -> bool:
    if ":" not in host:
        return False
    import ipaddress

    return "%" in host or ipaddress.IPv6Address(host).is_link_local


def _path(path: str) -> str:
    path = quote(re.sub(_ESCAPE, _plain, path), safe=_IN_PATHS) or "/"
    ends = path.endswith(("/", "/.", "/.."))
    # Empty parts, as in "a//b", are dropped: no page is known to need them.
    path = posixpath.normpath("/" + path.lstrip("/"))
    return path + "/" if ends and path != "/" else path


def _query(query: str) -> str:
    parts = filter(None, query.split("&"))
    kept = (part for part in parts if not re.fullmatch(_WITHOUT_MEANING, part.partition("=")[0]))
    return quote(re.sub(_ESCAPE, _plain, "&".join(kept)), safe=_IN_QUERIES)


def _plain(escape: re.Match[str]) -> str:
    """An escape in upper case, or the plain character for a needless escape."""
    character = chr(int(escape[1], 16))
    return character if character in _UNRESERVED else f"%{escape[1].upper()}"


def linked(page: str, link: str) -> str | None:
    """The target of a link; None: not a web page, or the link is broken."""
    try:
        return canonical(urljoin(page, link.strip()))
    except ValueError:  # also InvalidUrl
        return None


def host_of(url: str) -> str:
    """Host and port, as in the URL."""
    return urlsplit(url).netloc


def site_of(url: str) -> str:
    """Scheme, host and port."""
    return url[: url.index("://") + 3] + host_of(url)


def folder_of(url: str) -> str:
    """The URL of the folder of a page, with a slash at the end."""
    return url.partition("?")[0].rpartition("/")[0] + "/"


def has_long_query(url: str) -> bool:
    """Check for a query too long for a page: calendars and searches have endless ones."""
    query = urlsplit(url).query
    return len(query) > MAX_QUERY or len(parse_qsl(query, keep_blank_values=True)) > MAX_PARAMETERS


def shown(url: str) -> str:
    """A URL for messages and logs, without user, password and the values of the query."""
    url = re.sub(_SPACES, "", url)[:MAX_URL]
    url = re.sub(r"^([a-zA-Z][a-zA-Z0-9+.-]*:)?//[^/?#]*@", r"\1//***@", url)
    address, mark, query = url.partition("?")
    return f"{address}?…" if mark and query else address


class FetchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for one page, redirects included."""

    max_bytes: int = 64 << 20
    """Size of the content, as sent and unpacked."""
    timeout_s: float = 60.0
    """Time for everything: names, redirects and content."""
    max_redirects: int = 5
    private: bool = False
    """Private, loopback and reserved addresses may be contacted."""


class PageLinks(msgspec.Struct, frozen=True, kw_only=True):
    """Links and directives of a page, for a crawl."""

    links: tuple[str, ...] = ()
    """Pages that the page links to, in normal form, each once."""
    canonical: str | None = None
    """The URL under which the page wants to be known."""
    noindex: bool = False
    nofollow: bool = False


class Validators(msgspec.Struct, frozen=True):
    """Validators of a page (ETag, Last-Modified) for conditional requests."""

    etag: str = ""
    last_modified: str = ""


class FetchedPage(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of a web server. ``body`` None: the page is the same as the one with the validators."""

    url: str
    """The address at the end of all redirects."""
    body: bytes | None
    media_type: str = ""
    charset: str = ""
    validators: Validators = Validators()
    robots: str = ""
    """Value of X-Robots-Tag."""
    suggested_name: str = ""
    """File name of Content-Disposition."""


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
    tree = _parsed_html(data)
    if tree is None:
        return PageLinks()
    place = tree.css_first("head > base[href]")
    start = (linked(url, place.attributes.get("href") or "") if place is not None else None) or url
    found: dict[str, None] = {}
    for node in tree.css("a[href], area[href], iframe[src], frame[src]")[: 4 * MAX_LINKS]:
        attributes = node.attributes
        if "nofollow" in (attributes.get("rel") or "").lower():
            continue
        link = linked(start, attributes.get("href") or attributes.get("src") or "")
        if link is not None and link != url:
            found.setdefault(link)
        if len(found) >= MAX_LINKS:
            break
    wanted = tree.css_first('head > link[rel="canonical"][href]')
    canonical = linked(start, wanted.attributes.get("href") or "") if wanted is not None else None
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
    tree = _parsed_html(data)
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
    shell = _parsed_html(f"<html{_language(tree)}>{head}<body>{body}</body></html>".encode())
    if shell is None:
        return Article(data, anchors)
    for node in shell.css(_CHROME):
        node.decompose()
    return Article((shell.html or "").encode(), anchors)


def _parsed_html(data: bytes) -> LexborHTMLParser | None:
    from selectolax.lexbor import LexborHTMLParser, SelectolaxError

    # Imported here: every command that takes a path loads this module, and few read a page.
    from penstock.pipeline.extract.html import check_cost, simplified

    markup = simplified(clean(decode(data, markup_label).text))
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
