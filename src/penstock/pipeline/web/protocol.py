"""Requests for web pages and their answers. The client is in ``fetch``, whose modules take long to load."""

from __future__ import annotations

import msgspec

from penstock.named_tuple import NamedTuple


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


class Validators(NamedTuple):
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
