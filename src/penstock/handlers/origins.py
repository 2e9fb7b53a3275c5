"""Origins of documents with content from elsewhere than their path: web pages, files of libraries.

Web pages are in the files fetched by a crawl, and fetched again where these are missing. Files of a library
are in its folder or archive.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from penstock.catalog.rules.properties import StoredProperties
from penstock.errors import PermanentFailure, UnsupportedType
from penstock.handlers.context import Context
from penstock.handlers.file_reader import FileContent
from penstock.items import ContentOrigin, origin_of
from penstock.named_tuple import NamedTuple
from penstock.payloads import is_off_disk
from penstock.pipeline.extract import file_types
from penstock.pipeline.web import urls

if TYPE_CHECKING:
    from penstock.handlers.fetched_files import FetchedFile, FetchedFiles
    from penstock.handlers.file_request import FileRequest

Origins: TypeAlias = Callable[[Context], ContentOrigin | None]
"""Finds the origin of the document of a job; None: it is a file."""


def _in_metadata(context: Context) -> ContentOrigin | None:
    return origin_of(context.metadata)


NO_ORIGINS: Origins = _in_metadata


def origins_with(fetched: FetchedFiles) -> Origins:
    """Origins of documents, with the fetched files of this machine."""

    def find(context: Context) -> ContentOrigin | None:
        path = context.payload.get("file_path", "")
        origin = origin_of(context.metadata)
        if not is_off_disk(path) or (origin is not None and (not origin.url or _exists(origin.read_from))):
            return origin
        # Without an origin, the stored content is what a reindex reads.
        known = fetched.find(context.place, path) if origin is None else None
        url = origin.url if origin is not None else path
        if known is None and (origin is not None or _may_fetch(context, path)):
            known = fetched.fetch(
                context.place,
                lambda _: path,
                urls.canonical(url),
                lambda address: fetched.wait_turn(urls.host_of(address), 0.0, context.checkpoint),
            )
        return _origin_of_file(known, origin.source if origin is not None else url) if known else origin

    return find


def _may_fetch(context: Context, path: str) -> bool:
    """Check whether a job without an origin is a request for a page, and not for another model."""
    return urls.is_web_url(path) and context.claim.parent_id is None


def _origin_of_file(found: FetchedFile, source: str) -> ContentOrigin:
    suffix = found.body.rpartition("/")[2].partition(".")[2]
    return ContentOrigin(read_from=found.body, name=f"page.{suffix}", url=found.url, source=source)


def _exists(path: str) -> bool:
    return os.path.lexists(path)


class ReadArticle(NamedTuple):
    """The content of a document, with the URL and heading anchors of the web page, if any."""

    content: FileContent
    url: str = ""
    anchors: dict[str, str] = {}  # noqa: RUF012 - never changed

    def described(self, properties: StoredProperties) -> StoredProperties:
        """The properties with the address of the page and the anchors of the headings."""
        return msgspec.structs.replace(properties, url=self.url, anchors=self.anchors)


def article_of(request: FileRequest, read: FileContent) -> ReadArticle:
    """The content of a web page, or of one of a library, without navigation. Files stay as they are."""
    origin = request.origin
    if origin is None:
        return ReadArticle(read)
    try:
        extractor = file_types.detect(request.name, read.data).extractor
    except UnsupportedType:
        return ReadArticle(read, origin.url)
    if extractor != "html":
        return ReadArticle(read, origin.url)
    # Late: the parser of HTML is loaded for the first page.
    from penstock.pipeline.web.urls import read_article

    article = read_article(read.data)
    content = read._replace(data=article.data, size=len(article.data))
    return ReadArticle(content, origin.url or request.path, article.anchors)


def missing_origin(request: FileRequest) -> PermanentFailure:
    """The error for a document without content on this machine."""
    where = request.origin.read_from if request.origin is not None else request.path
    return PermanentFailure(
        f"{where} does not exist on this machine",
        code="ERR_FILE_NOT_FOUND",
        remedy="Index the web page, or add the library, again.",
    )
