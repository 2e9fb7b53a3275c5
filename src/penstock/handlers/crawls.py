"""Crawls: pages of a site, from a start page along links, within limits.

A crawl that was interrupted asks for no page twice: a page that was checked after the request was made
counts as visited. A page is removed only if its server says that it is gone, and after a complete crawl.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.errors import (
    AddressRefused,
    DocumentTooLarge,
    InvalidUrl,
    PageMissing,
    PageRefused,
    PageUnavailable,
    UnsupportedType,
)
from penstock.handlers.context import Context
from penstock.handlers.fetched_files import FetchedFile, FetchedFiles
from penstock.handlers.origin_files import OriginFile, OriginFiles
from penstock.items import ContentOrigin
from penstock.named_tuple import NamedTuple
from penstock.payloads import Crawled
from penstock.pipeline.extract import file_types
from penstock.pipeline.walk.ignore import PatternList, Rule
from penstock.pipeline.web import robots, urls
from penstock.pipeline.web.robots import Robots
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.pipeline.web.fetch import Fetcher

DEPTH = 3
"""Links that are followed from the start page, unless the request says otherwise."""
MAX_PAGES = 1_000
MAX_SITEMAPS = 20
MAX_VARIANTS = 50
"""Queries of one page that are followed."""
SEEN_PER_PAGE = 200
"""Links that are remembered for each page of the limit."""
_INDEXES = ("index.html", "index.htm")


class CrawlScope:
    """The pages of a crawl, and the paths of their documents."""

    def __init__(self, payload: Crawled, start: str, root: str | None = None) -> None:
        """``root``: path of the documents of a library, whose pages lie in the folder of the start page.

        None: pages are documents under their own address, and may lie anywhere on their host.
        """
        self.root = root
        self.depth = payload.recursive_depth if payload.recursive_depth is not None else DEPTH
        if not payload.recursive:
            self.depth = 0
        self.max_pages = payload.max_pages or MAX_PAGES
        self._pictures = bool(payload.ocr)
        self._named = {host.lower() for host in payload.hosts}
        self._include = PatternList(payload.patterns) if payload.patterns else None
        self._exclude = PatternList(payload.ignore_patterns) if payload.ignore_patterns else None
        self._variants: dict[str, int] = {}
        self.start = start
        self.hosts: set[str] = set()
        self.begin_at(start)

    def begin_at(self, start: str) -> None:
        """Take the address at which the start page was found."""
        self.start, self.folder = start, urls.folder_of(start)
        self.hosts = self._named | {urls.host_of(start)}

    def path_of(self, url: str) -> str:
        """Path of the document of a page."""
        if self.root is None:
            return url
        inside = url[len(self.folder) :] if url.startswith(self.folder) else url.partition("://")[2]
        address, mark, query = inside.partition("?")
        if not address or address.endswith("/"):
            address += _INDEXES[0]
        return f"{self.root}/{address}{mark}{query}"

    def rule_against(self, url: str) -> Rule | None:
        """The rule against a page, decided by the address alone."""
        if urls.host_of(url) not in self.hosts:
            return Rule.OTHER_HOST
        own_host = urls.host_of(url) == urls.host_of(self.start)
        if self.root is not None and own_host and not url.startswith(self.folder):
            return Rule.OTHER_FOLDER
        path = url.partition("://")[2].partition("/")[2].partition("?")[0]
        if self.root is not None and robots.is_generated(path):
            return Rule.GENERATED
        if self._exclude is not None and self._exclude.matches(path):
            return Rule.EXCLUDED
        if self._include is not None and url != self.start and not self._include.matches(path):
            return Rule.NOT_INCLUDED
        name = path.rpartition("/")[2]
        without_text = file_types.is_binary_name(name) or file_types.is_archive_name(name)
        if without_text or (file_types.is_picture_name(name) and not self._pictures):
            return Rule.MEDIA_TYPE
        return self._rule_of_query(url)

    def _rule_of_query(self, url: str) -> Rule | None:
        page, mark, _ = url.partition("?")
        if not mark:
            return None
        self._variants[page] = self._variants.get(page, 0) + 1
        return Rule.QUERY if urls.has_long_query(url) or self._variants[page] > MAX_VARIANTS else None

    def places(self) -> list[str]:
        """Paths above the documents of the crawl."""
        if self.root is not None:
            return [self.root]
        return [f"{scheme}://{host}" for host in sorted(self.hosts) for scheme in ("http", "https")]


class _LeftOut(Exception):
    """A redirect to a page left out by a rule."""

    def __init__(self, url: str, rule: Rule) -> None:
        super().__init__(url)
        self.url = url
        self.rule = rule


class _Site:
    """The rules of the hosts of a crawl for crawlers, each read once."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._known: dict[str, Robots] = {}

    def robots(self, url: str) -> Robots:
        """Rules for the host of a page. Raises ``PageUnavailable`` if the host does not say."""
        at = urls.linked(url, "/robots.txt") or url
        if at not in self._known:
            try:
                answer = self._fetcher.get(at, max_bytes=robots.MAX_ROBOTS_BYTES)
                text = (answer.body or b"").decode("utf-8", "replace")
            except PageRefused:
                # Also a page that is missing: the host has no rules (RFC 9309, 2.3.1.3).
                text = ""
            except DocumentTooLarge:
                text = "User-agent: *\nDisallow: /"
            self._known[at] = Robots(text)
        return self._known[at]


class _Visit(NamedTuple):
    url: str
    depth: int


class Crawl:
    """The crawl of one job."""

    def __init__(
        self, context: Context, fetched: FetchedFiles, files: OriginFiles, scope: CrawlScope
    ) -> None:
        self._context = context
        self._fetched = fetched
        self._files = files
        self._scope = scope
        self._site = _Site(fetched.fetcher)
        self._frontier: deque[_Visit] = deque()
        self._seen: set[str] = set()
        self._indexed: set[str] = set()
        """Paths of pages that were found."""
        self._gone: list[str] = []
        self._complete = True
        self._pages = 0

    def run(self) -> dict[str, Any]:
        """Visit all pages; returns the result of the job."""
        start = self._scope.start
        found = self._fetch(start)
        self._seen |= {start, found.url}
        # The start page may redirect to its host's usual name.
        self._scope.begin_at(found.url)
        self._take(found, _Visit(found.url, 0))
        for page in self._listed_pages():
            self._consider(page, 1)
        while self._frontier:
            visit = self._frontier.popleft()
            if self._pages >= self._scope.max_pages:
                self._leave_out(visit.url, Rule.PAGE_LIMIT, how_many(self._scope.max_pages, "page"))
                self._complete = False
                continue
            self._visit(visit)
        if self._complete:
            self._check_unlinked()
            for path in self._gone:
                self._files.remove(path)
        return self._files.finish()

    def _visit(self, visit: _Visit) -> None:
        path = self._scope.path_of(visit.url)
        try:
            found = self._fetch(visit.url)
        except _LeftOut as left_out:
            rule = left_out.rule
            self._leave_out(visit.url, rule, "" if left_out.url == visit.url else left_out.url)
        except PageMissing:
            self._gone += [path] if self._is_known(path) else []
            self._leave_out(visit.url, Rule.GONE)
        except UnsupportedType as error:
            self._leave_out(visit.url, Rule.MEDIA_TYPE, error.message)
        except (PageRefused, PageUnavailable, AddressRefused, DocumentTooLarge) as error:
            # Its own job asks once more, and fails with this error if nothing has changed.
            self._complete = self._complete and not isinstance(error, PageUnavailable)
            self._pages += 1
            self._indexed.add(path)
            self._files.add_missing(path, self._origin(visit.url, f"{path}.html"))
        else:
            if found.url == visit.url:
                self._take(found, visit)
                return
            self._leave_out(visit.url, Rule.REDIRECT, found.url)
            if found.url not in self._seen:
                self._seen.add(found.url)
                self._take(found, _Visit(found.url, visit.depth))

    def _fetch(self, url: str) -> FetchedFile:
        """Fetch a page, unless an interrupted attempt at this request did."""
        known = self._fetched.find(self._context.place, self._scope.path_of(url))
        if known is not None and known.url == url and known.checked_at >= self._context.asked_at:
            return known
        return self._fetched.fetch(self._context.place, self._scope.path_of, url, self._before)

    def _before(self, url: str) -> None:
        """Refuse or delay a request, including the target of a redirect."""
        self._context.checkpoint()
        if url != self._scope.start and self._seen:
            rule = self._scope.rule_against(url) if url not in self._seen else None
            if rule is not None:
                raise _LeftOut(url, rule)
        rules = self._site.robots(url)
        if not rules.allows(url):
            if not self._seen:
                raise PageRefused(f"the robots.txt of {urls.host_of(url)} forbids {urls.shown(url)}")
            raise _LeftOut(url, Rule.ROBOTS)
        self._fetched.wait_turn(urls.host_of(url), rules.delay_s, self._context.checkpoint)

    def _take(self, found: FetchedFile, visit: _Visit) -> None:
        """Index a fetched page, and follow the links."""
        page, path = found.page, self._scope.path_of(found.url)
        self._pages += 1
        copy_of = page.canonical if page.canonical not in (None, found.url) else None
        if page.noindex or file_types.is_archive_name(found.body):
            self._fetched.remove(self._context.place, path)
            self._gone += [path] if self._is_known(path) else []
            self._leave_out(found.url, Rule.NOINDEX if page.noindex else Rule.ARCHIVE)
        elif copy_of is not None and visit.depth and self._scope.rule_against(copy_of) is None:
            self._fetched.remove(self._context.place, path)
            self._leave_out(found.url, Rule.CANONICAL, copy_of)
            if copy_of not in self._seen:
                self._seen.add(copy_of)
                self._frontier.append(_Visit(copy_of, visit.depth))
        elif path not in self._indexed:
            self._indexed.add(path)
            origin = self._origin(found.url, found.body)
            self._files.add(OriginFile(path, origin, found.size, found.mtime_ns))
        if not page.nofollow:
            for link in page.links:
                self._consider(link, visit.depth + 1)

    def _origin(self, url: str, body: str) -> ContentOrigin:
        name = body.rpartition("/")[2]
        return ContentOrigin(
            read_from=body, name=f"page.{name.partition('.')[2]}", url=url, source=self._scope.start
        )

    def _consider(self, url: str, depth: int) -> None:
        """Visit a page later, unless already seen or left out by a rule."""
        if url in self._seen or len(self._seen) >= SEEN_PER_PAGE * self._scope.max_pages:
            return
        self._seen.add(url)
        rule = self._scope.rule_against(url)
        if rule is not None:
            self._leave_out(url, rule)
        elif depth > self._scope.depth:
            self._leave_out(url, Rule.TOO_DEEP, f"more than {self._scope.depth} links away")
        else:
            self._frontier.append(_Visit(url, depth))

    def _leave_out(self, url: str, rule: Rule, detail: str = "") -> None:
        self._files.skip(self._scope.path_of(url), rule, detail)
        self._context.report(self._files.progress(url))

    def _is_known(self, path: str) -> bool:
        known = self._files.known_at_and_below(path, limit=1)
        return bool(known) and known[0].path == path and known[0].published_id is not None

    # Pages that no link leads to.

    def _listed_pages(self) -> Iterator[str]:
        """Pages listed by the site: in sitemaps and, for a documentation, in the inventory."""
        if not self._scope.depth:
            return
        folder = self._scope.folder
        if self._scope.root is not None:
            inventory = self._list(f"{folder}objects.inv")
            yield from (robots.read_inventory(folder, inventory) or {}) if inventory else ()
        sitemaps = [url for url in map(urls.linked, [folder] * 20, self._robots_sitemaps()) if url]
        pending = deque(dict.fromkeys([*sitemaps, *filter(None, [urls.linked(folder, "/sitemap.xml")])]))
        read: set[str] = set()
        while pending and len(read) < MAX_SITEMAPS:
            at = pending.popleft()
            if at in read:
                continue
            read.add(at)
            data = self._list(at) if urls.host_of(at) in self._scope.hosts else None
            found = robots.read_sitemap(at, data) if data else robots.Sitemap([], [])
            pending.extend(found.sitemaps)
            # Of a whole site only the pages of this folder; those elsewhere are found along links.
            yield from (page for page in found.pages if page.startswith(folder))

    def _robots_sitemaps(self) -> list[str]:
        return self._site.robots(self._scope.start).sitemaps[:MAX_SITEMAPS]

    def _list(self, url: str) -> bytes | None:
        """Fetch a list of pages; None if the site has none."""
        try:
            return self._fetched.fetcher.get(
                url, max_bytes=robots.MAX_SITEMAP_BYTES, before=self._before_list
            ).body
        except (PageRefused, PageUnavailable, AddressRefused, DocumentTooLarge, InvalidUrl, _LeftOut):
            return None

    def _before_list(self, url: str) -> None:
        self._context.checkpoint()
        if urls.host_of(url) not in self._scope.hosts:
            raise _LeftOut(url, Rule.OTHER_HOST)
        self._fetched.wait_turn(urls.host_of(url), self._site.robots(url).delay_s, self._context.checkpoint)

    def _check_unlinked(self) -> None:
        """Request known pages no longer linked. Pages still present are kept."""
        left = self._scope.max_pages - self._pages
        for place in self._scope.places():
            after = ""
            while page := self._files.known_at_and_below(place, after=after):
                after = page[-1].path
                for known in page:
                    if known.path in self._indexed or known.path in self._gone or known.published_id is None:
                        continue
                    left -= 1
                    if left < 0:
                        return
                    self._check_one(known.path)

    def _check_one(self, path: str) -> None:
        stored = self._fetched.find(self._context.place, path)
        url = stored.url if stored is not None else path
        if not urls.is_web_url(url) or self._scope.rule_against(url) is not None:
            return
        try:
            found = self._fetch(url)
        except PageMissing:
            self._gone.append(path)
        except (_LeftOut, PageRefused, PageUnavailable, AddressRefused, DocumentTooLarge, UnsupportedType):
            return
        else:
            if found.url == url:
                self._indexed.add(path)
                origin = self._origin(url, found.body)
                self._files.add(OriginFile(path, origin, found.size, found.mtime_ns))
