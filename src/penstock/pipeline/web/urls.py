"""URLs of web pages: the normal form, and links to follow in a crawl."""

from __future__ import annotations

import posixpath
import re
from urllib.parse import SplitResult, parse_qsl, quote, urljoin, urlsplit, urlunsplit

from penstock.errors import InvalidUrl
from penstock.lazy_pattern import lazy_pattern

MAX_URL = 2_000
"""Characters of a URL. Web servers refuse longer ones."""
MAX_QUERY = 300
MAX_PARAMETERS = 6
_PORTS = {"http": 80, "https": 443}
_IN_PATHS = "/%:@!$&'()*+,;=~-._"
_IN_QUERIES = _IN_PATHS + "?"
_ESCAPE = lazy_pattern(r"%([0-9a-fA-F]{2})")
_UNRESERVED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")
_SPACES = lazy_pattern(r"[\t\n\r]")
_WITHOUT_MEANING = lazy_pattern(r"utm_\w+|gclid|fbclid|mc_cid|mc_eid|msclkid|igshid|_ga", re.I)
"""Parameters that say where a visitor comes from; the page is the same without them."""


def is_web_url(text: str) -> bool:
    """Check whether a user's path is the URL of a web page."""
    return text[:8].lower().startswith(("http://", "https://"))


def canonical(url: str) -> str:
    """The normal form of a URL: no fragment, no default port, no ``..``, plain escapes.

    Raises ``InvalidUrl`` for anything but an http or https URL, and for one with a user or a password.
    """
    try:
        parts = urlsplit(_SPACES.sub("", url.strip()))
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
    path = quote(_ESCAPE.sub(_plain, path), safe=_IN_PATHS) or "/"
    ends = path.endswith(("/", "/.", "/.."))
    # Empty parts, as in "a//b", are dropped: no page is known to need them.
    path = posixpath.normpath("/" + path.lstrip("/"))
    return path + "/" if ends and path != "/" else path


def _query(query: str) -> str:
    kept = (part for part in query.split("&") if part and not _WITHOUT_MEANING.fullmatch(part.split("=")[0]))
    return quote(_ESCAPE.sub(_plain, "&".join(kept)), safe=_IN_QUERIES)


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
    url = _SPACES.sub("", url)[:MAX_URL]
    url = re.sub(r"^([a-zA-Z][a-zA-Z0-9+.-]*:)?//[^/?#]*@", r"\1//***@", url)
    address, mark, query = url.partition("?")
    return f"{address}?…" if mark and query else address
