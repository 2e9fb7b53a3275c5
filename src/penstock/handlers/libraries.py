"""Jobs of item type ``library``, and of folders given as web pages.

The documents of a library are below ``library://NAME/VERSION``. Versions stay beside each other; an update
removes the others once the new one is indexed.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from penstock import clock
from penstock.catalog.protocol import BATCH, Catalog, known_below
from penstock.catalog.values import KnownSource, LedgerEntry, LedgerKind, Removal, Touch
from penstock.errors import (
    AddressRefused,
    DocumentTooLarge,
    InvalidUrl,
    NothingToIndex,
    PageMissing,
    PageRefused,
    PageUnavailable,
    PenstockError,
    PermanentFailure,
    UnsupportedType,
)
from penstock.handlers.context import Context, Later, NotHandledHere, ProgressReport, Wait
from penstock.handlers.file_request import FileComparison
from penstock.handlers.members import Container, behind_link, read_file
from penstock.handlers.notes import ModelCheck
from penstock.handlers.reindex import OUTDATED, Reindex, TypeCounts, WalkCounts, file_job
from penstock.handlers.removal import OpenQueue, remove_all
from penstock.handlers.source_files import FetchedFile, FetchedFiles
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.protocol import Content
from penstock.pipeline.pipeline import Pipeline, chunk_sizes
from penstock.pipeline.walk.ignore import (
    Directory,
    FoundFile,
    PathRules,
    PatternList,
    Report,
    Rule,
    Skipped,
    Unreadable,
    WalkRules,
)
from penstock.pipeline.walk.no_links import BehindLink
from penstock.pipeline.walk.walker import walk
from penstock.pipeline.web import robots, urls
from penstock.pipeline.web.robots import Robots
from penstock.queue import payloads, retry
from penstock.queue.job import NewJob
from penstock.queue.payloads import (
    ContentOrigin,
    Crawled,
    FilePayload,
    FolderPayload,
    LibraryPayload,
    library_path,
)
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.pipeline.web.fetch import Fetcher


AT_ONCE = 50
"""Files whose children are sent together: indexing begins while a crawl is still going on."""
_MOST_NOTED = 1_000
"""Skipped paths that are recorded for each rule; the others are only counted."""


class OriginFile(msgspec.Struct, frozen=True):
    """A file or page with the document's path, and the size and time of the content."""

    path: str
    origin: ContentOrigin
    size: int
    mtime_ns: int


class OriginFiles:
    """The files of one job. ``root``: path above all of their documents."""

    def __init__(
        self, catalog: Catalog, pipeline: Pipeline, context: Context, payload: Crawled, root: str
    ) -> None:
        self._catalog = catalog
        self._context = context
        self._payload = payload
        self._root = root
        sizes = chunk_sizes(payload.chunk_size, payload.chunk_overlap)
        self._comparison = FileComparison(
            pipeline, sizes, context.metadata, graph=payload.graph, ocr=payload.ocr
        )
        self._waiting: list[OriginFile] = []
        self._children: list[NewJob] = []
        self._ledger: list[LedgerEntry] = []
        self.counts = WalkCounts()
        self._types = TypeCounts()
        self._had_any = bool(self.known_at_and_below(root, limit=1))

    def known_at_and_below(self, path: str, *, after: str = "", limit: int = BATCH) -> list[KnownSource]:
        """Documents at and below a path, by path."""
        with self._catalog.snapshot() as snapshot:
            return snapshot.known(self._context.place, path, after=after, limit=limit)

    def add(self, file: OriginFile) -> None:
        """Queue a file for comparison with the document; a difference sends a child job."""
        self.counts.seen += 1
        self._waiting.append(file)
        if len(self._waiting) >= AT_ONCE:
            self.send(file.path)

    def add_missing(self, path: str, origin: ContentOrigin) -> None:
        """Send a child job for a page that failed to download: the job tries again."""
        self.counts.seen += 1
        self.counts.changed += 1
        self._send_file(OriginFile(path, origin, 0, 0))

    def remove(self, path: str) -> None:
        """Send a child job to remove a document."""
        self.counts.vanished += 1
        payload = FilePayload(file_path=path)
        self._children.append(
            file_job(self._context, clock.new_id(), "delete", payload, priority=self._priority)
        )

    def skip(self, path: str, rule: Rule, detail: str = "", *, recorded: bool = True) -> None:
        """Count a path left out by a rule, and record the path up to a limit per rule."""
        self.counts.skip(rule)
        if not recorded or self.counts.skipped_by[rule] > _MOST_NOTED:
            return
        cause = f"{rule.meaning} ({detail})" if detail else rule.meaning
        self._ledger.append(
            LedgerEntry(
                place=self._context.place,
                path=path,
                kind=LedgerKind.SKIPPED,
                rule=str(rule),
                cause=cause,
                job_id=self._context.job_id,
            )
        )

    def send(self, current: str | None = None) -> None:
        """Compare the files collected so far, and send child jobs for changed ones."""
        waiting, self._waiting = self._waiting, []
        touched: list[Touch] = []
        for file in waiting:
            known = next(iter(self.known_at_and_below(file.path, limit=1)), None)
            if known is None or known.path != file.path:
                self.counts.added += 1
                self._send_file(file)
                continue
            found = FoundFile(file.path, file.size, file.mtime_ns)
            if self._comparison.fails_again(found, known):
                self.counts.failed_before += 1
                self.counts.without_job += 1
            elif self._comparison.unchanged(found, known):
                self.counts.unchanged += 1
                self.counts.without_job += 1
                self._types.add(file.origin.name, "unchanged")
                touched.append(Touch(known.source_id, file.size, file.mtime_ns, self._context.asked_at))
            else:
                self.counts.changed += 1
                self._send_file(file)
        if touched:
            self._catalog.touch(touched)
        self._flush(current)

    def _send_file(self, file: OriginFile) -> None:
        payload = FilePayload(
            file_path=file.path,
            size_bytes=file.size or None,
            chunk_size=self._payload.chunk_size,
            chunk_overlap=self._payload.chunk_overlap,
            graph=self._payload.graph,
            gate=self._payload.gate,
            ocr=self._payload.ocr,
        )
        self._types.add(file.origin.name, "read")
        self.counts.bytes += file.size
        metadata = self._context.metadata | {payloads.ASKED_AT: self._context.asked_at.isoformat()}
        metadata[payloads.ORIGIN] = msgspec.to_builtins(file.origin)
        encoded = msgspec.json.encode(metadata).decode()
        self._children.append(
            file_job(
                self._context, clock.new_id(), "ingest", payload, priority=self._priority, metadata=encoded
            )
        )

    @property
    def _priority(self) -> int:
        return payloads.child_priority(self._context.claim.priority)

    def _flush(self, current: str | None) -> None:
        for start in range(0, len(self._ledger), BATCH):
            self._catalog.note(self._ledger[start : start + BATCH])
        self._ledger = []
        children, self._children = self._children, []
        self.counts.sent += len(children)
        progress = self.progress(current)
        for start in range(0, len(children), BATCH):
            self._context.expand(children[start : start + BATCH], progress=progress)
        self._context.report(progress)

    def progress(self, current: str | None, *, stage: str = "walking") -> ProgressReport:
        """The progress of the job, at a path."""
        counts = self.counts.as_dict(waiting=len(self._children) + len(self._waiting))
        total = None if stage == "walking" else counts["total"]
        return ProgressReport(self.counts.without_job, total, stage, current, counts)

    def finish(self) -> dict[str, Any]:
        """Send the rest; returns the result of the job. Raises ``NothingToIndex`` without any file."""
        self.send()
        if not self.counts.seen and not self._had_any and not self._context.metadata.get("allow_empty"):
            skipped = f" ({self.counts.skipped:,} skipped)" if self.counts.skipped else ""
            raise NothingToIndex(f"{self._root}: there is nothing to index{skipped}")
        outcome = "indexed" if self.counts.sent else "unchanged"
        counts = self.counts.as_dict() | {"types": self._types.as_dict()}
        return {"outcome": outcome, "include_code": self._payload.include_code} | counts

    def ended(self, result: dict[str, Any]) -> Any:
        """The answer of the handler: the result, after all child jobs."""
        if not self.counts.sent:
            return result
        self._context.report(self.progress(None, stage="indexing"))
        return Wait(
            progress_json=self._context.last_progress, result_json=msgspec.json.encode(result).decode()
        )


FoundOrSkipped: TypeAlias = OriginFile | Skipped | Unreadable

_NOT_INSTALLED = "ERR_LIBRARY_NOT_INSTALLED"
FAILURE_CODES = {
    _NOT_INSTALLED: "Install this version beside Penstock, or name a folder, an archive or a URL with --from."
}
_INVENTORY = "objects.inv"
_RECORDS = frozenset(
    "RECORD INSTALLER WHEEL REQUESTED top_level.txt entry_points.txt direct_url.json".split()
)
"""Files of a distribution about its installation."""


class LibraryFiles:
    """Finds the files of one version: in a folder, in an archive, or as a distribution is installed.

    ``root``: path of the version's documents.
    """

    def __init__(
        self, pipeline: Pipeline, rules: WalkRules, root: str, source: str, *, pictures: bool = False
    ) -> None:
        """``pictures``: text in pictures is wanted; most of those in a documentation are logos."""
        self._pipeline = pipeline
        self._rules = rules
        self._root = root
        self._source = source
        self._pictures = pictures

    def found_at(self, path: str) -> Iterator[FoundOrSkipped]:
        """Files of a folder, members of an archive, or one file. Raises OSError if there is nothing.

        The path has no links in it, as no stored one has.
        """
        if os.path.isdir(path):  # noqa: PTH112 - it never raises
            return self._in_folder(path)
        status = Path(path).stat()
        if file_types.is_archive_name(path):
            return self._in_archive(path)
        name = path.rpartition("/")[2]
        return iter([self._file(name, path, status.st_size, status.st_mtime_ns)])

    def _file(self, inside: str, read_from: str, size: int, mtime_ns: int) -> OriginFile | Skipped:
        if inside.rpartition("/")[2] == _INVENTORY:
            return Skipped(inside, Rule.BINARY, False, "the inventory of a documentation")
        if file_types.is_picture_name(inside) and not self._pictures:
            return Skipped(inside, Rule.BINARY, False, "a picture; text in pictures was not asked for")
        origin = ContentOrigin(read_from=read_from, name=inside.rpartition("/")[2], source=self._source)
        return OriginFile(f"{self._root}/{inside}", origin, size, mtime_ns)

    def _in_folder(self, folder: str) -> Iterator[FoundOrSkipped]:
        sphinx = Path(folder, _INVENTORY).is_file()
        for report in self._walk(folder):
            if isinstance(report, FoundFile):
                if sphinx and robots.is_generated(report.path):
                    yield Skipped(report.path, Rule.GENERATED, False, "a list of pages, or a source")
                    continue
                yield self._file(report.path, f"{folder}/{report.path}", report.size, report.mtime_ns)
            elif isinstance(report, Skipped | Unreadable):
                yield report

    def _walk(self, folder: str) -> Iterator[Report]:
        try:
            yield from walk(folder, self._rules)
        except BehindLink:
            raise behind_link(folder) from None

    def _in_archive(self, archive: str) -> Iterator[FoundOrSkipped]:
        """Members of an archive, without a common top folder."""
        limits = self._pipeline.limits
        read = read_file(archive, limits, lambda _: False)
        if read is None:
            return
        container = Container(self._pipeline, Content(archive, read.data))
        members = sorted((member.name, len(member.data), member.error) for member in container.each())
        if not members:
            raise UnsupportedType(f"{archive} has no file inside")
        top = _common_folder([name for name, _, _ in members])
        rules = _MemberRules(self._rules)
        sphinx = any(name == f"{top}{_INVENTORY}" for name, _, _ in members)
        for name, size, error in members:
            inside = name[len(top) :]
            skipped = rules.skipped(inside, size)
            if skipped is None and sphinx and robots.is_generated(inside):
                skipped = Skipped(inside, Rule.GENERATED, False, "a list of pages, or a source")
            if skipped is None and error == "DocumentTooLarge":
                skipped = Skipped(inside, Rule.TOO_LARGE)
            yield skipped or self._file(inside, f"{archive}/{name}", size, read.mtime_ns)

    def installed(self, name: str, version: str) -> Iterator[FoundOrSkipped]:
        """Files of an installed distribution. Raises ``PermanentFailure`` for another version."""
        distribution = _find_distribution(name)
        if distribution is None or distribution.version != version:
            there = f"version {distribution.version}" if distribution is not None else "no version"
            raise PermanentFailure(
                f"{name} {version} is not installed beside Penstock, which has {there} of it",
                code=_NOT_INSTALLED,
                remedy=FAILURE_CODES[_NOT_INSTALLED],
            )
        rules = _MemberRules(self._rules)
        for file in sorted(map(str, distribution.files or ())):
            path = os.path.realpath(str(distribution.locate_file(file)))
            inside = os.path.normpath(file)
            last = inside.rpartition("/")[2]
            if inside.startswith("..") or (".dist-info/" in inside and last in _RECORDS):
                continue
            try:
                status = Path(path).stat()
            except OSError:
                continue
            skipped = rules.skipped(inside, status.st_size)
            yield skipped or self._file(inside, path, status.st_size, status.st_mtime_ns)


def _find_distribution(name: str) -> metadata.Distribution | None:
    """The installed distribution of this name."""
    try:
        return metadata.distribution(name)
    except (metadata.PackageNotFoundError, ValueError):
        return None


class _MemberRules:
    """Rules of a walk for members of an archive: by names, patterns and sizes."""

    def __init__(self, rules: WalkRules) -> None:
        self._rules = PathRules("/nonexistent", rules)
        self._top = self._rules.top([], opened=None)
        self._folders: dict[str, Directory | Skipped] = {"": self._top}

    def skipped(self, path: str, size: int) -> Skipped | None:
        above, _, name = path.rpartition("/")
        folder = self._folder(above)
        if isinstance(folder, Skipped):
            return Skipped(path, folder.rule, False, folder.detail)
        return self._rules.skipped_file(folder, name, path, size)

    def _folder(self, path: str) -> Directory | Skipped:
        found = self._folders.get(path)
        if found is None:
            above = self._folder(path.rpartition("/")[0])
            if isinstance(above, Directory):
                skipped = self._rules.skipped_directory(above, path)
                found = skipped or self._rules.enter(
                    path + "/", [], above.ignores, above.depth + 1, opened=None
                )
            else:
                found = above
            self._folders[path] = found
        return found


def _common_folder(names: list[str]) -> str:
    """The common top folder of all members, with a slash; empty without one."""
    top, slash, _ = names[0].partition("/")
    return top + "/" if slash and all(name.startswith(top + "/") for name in names) else ""


_DEPTH = 3
"""Links that are followed from the start page, unless the request says otherwise."""
MAX_PAGES = 1_000
_MAX_SITEMAPS = 20
_MAX_VARIANTS = 50
"""Queries of one page that are followed."""
_SEEN_PER_PAGE = 200
"""Links that are remembered for each page of the limit."""
_INDEXES = ("index.html", "index.htm")


class CrawlScope:
    """The pages of a crawl, from a start page along links and within limits, and their documents' paths.

    A crawl that was interrupted asks for no page twice: a page that was checked after the request was made
    counts as visited. A page is removed only if its server says that it is gone, and after a complete crawl.
    """

    def __init__(self, payload: Crawled, start: str, root: str | None = None) -> None:
        """``root``: path of the documents of a library, whose pages lie in the folder of the start page.

        None: pages are documents under their own address, and may lie anywhere on their host.
        """
        self.root = root
        self.depth = payload.recursive_depth if payload.recursive_depth is not None else _DEPTH
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
        return Rule.QUERY if urls.has_long_query(url) or self._variants[page] > _MAX_VARIANTS else None

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


class _Visit(msgspec.Struct, frozen=True):
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
        if url in self._seen or len(self._seen) >= _SEEN_PER_PAGE * self._scope.max_pages:
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
        while pending and len(read) < _MAX_SITEMAPS:
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
        return self._site.robots(self._scope.start).sitemaps[:_MAX_SITEMAPS]

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


_AGAIN = timedelta(seconds=1)
_SENT = "sent"
"""Cursor of an update whose files are all sent: what is left is to remove the other versions."""
_BEING_INDEXED = "the new version is being indexed; the others are removed after it"


class LibraryJobs:
    """Handlers of libraries and of crawls."""

    def __init__(
        self,
        catalog: Catalog,
        pipeline: Pipeline,
        fetched: FetchedFiles,
        state_dirs: tuple[str, ...],
        open_queue: OpenQueue | None,
    ) -> None:
        self._catalog = catalog
        self._pipeline = pipeline
        self._fetched = fetched
        self._state_dirs = state_dirs
        self._open_queue = open_queue
        self._model = ModelCheck(catalog, pipeline.embedder)

    def crawl(self, context: Context) -> Any:
        """Index a web page, and the linked pages."""
        self._model.check()
        payload = msgspec.convert(context.payload, FolderPayload)
        start = urls.canonical(payload.folder_path)
        scope = CrawlScope(payload, start)
        files = OriginFiles(self._catalog, self._pipeline, context, payload, start)
        return files.ended(Crawl(context, self._fetched, files, scope).run())

    def ingest(self, context: Context) -> Any:
        """Index a version of a library, beside the others."""
        self._model.check()
        payload = msgspec.convert(context.payload, LibraryPayload)
        if context.metadata.get(OUTDATED):
            return Reindex(self._catalog, self._pipeline, context, payload.root).run()
        files, result = self._index(context, payload)
        return files.ended(result)

    def update(self, context: Context) -> Any:
        """Index a version of a library, then remove the others."""
        self._model.check()
        payload = msgspec.convert(context.payload, LibraryPayload)
        cursor = context.cursor
        if not isinstance(cursor, dict) or _SENT not in cursor:
            _, result = self._index(context, payload)
            cursor = {_SENT: {name: result[name] for name in result if name != "types"}}
            context.expand([], cursor)
        if self._open_children(context):
            return Later(_BEING_INDEXED, _AGAIN)
        result = cursor[_SENT] | self._remove_others(context, payload)
        return Wait(result_json=msgspec.json.encode(result).decode())

    def delete(self, context: Context) -> dict[str, Any]:
        """Remove a version of a library."""
        payload = msgspec.convert(context.payload, LibraryPayload)
        return {"outcome": "removed", "removed": self._remove(context, payload.root)}

    def _index(self, context: Context, payload: LibraryPayload) -> tuple[OriginFiles, dict[str, Any]]:
        try:
            return self._index_files(context, payload)
        except PenstockError as error:
            if payload.source_name is not None and retry.classify(error).kind == "permanent":
                self._drop_archive(context, payload)
            raise

    def _drop_archive(self, context: Context, payload: LibraryPayload) -> None:
        """Remove an unreadable archive of a library without documents: nothing else would remove the file."""
        if not any(True for _ in known_below(self._catalog, context.place, payload.root)):
            self._fetched.remove(context.place, payload.root, asked_at=context.asked_at)

    def _index_files(self, context: Context, payload: LibraryPayload) -> tuple[OriginFiles, dict[str, Any]]:
        files = OriginFiles(self._catalog, self._pipeline, context, payload, payload.root)
        if payload.source_url is not None and not _names_archive(payload.source_url):
            scope = CrawlScope(payload, urls.canonical(payload.source_url), payload.root)
            return files, Crawl(context, self._fetched, files, scope).run()
        seen: set[str] = set()
        unreadable = False
        for found in self._found(context, payload):
            if isinstance(found, OriginFile):
                seen.add(found.path)
                files.add(found)
            elif isinstance(found, Unreadable):
                unreadable = True
            else:
                files.skip(f"{payload.root}/{found.path}", found.rule, found.detail)
        if seen and not unreadable and payload.operation == "index":
            for known in known_below(self._catalog, context.place, payload.root):
                if known.path not in seen and known.published_id is not None:
                    files.remove(known.path)
        return files, files.finish()

    def _found(self, context: Context, payload: LibraryPayload) -> Iterator[FoundOrSkipped]:
        rules = WalkRules(
            include=payload.patterns,
            exclude=payload.ignore_patterns,
            include_code=payload.include_code,
            max_bytes=self._pipeline.limits.file_bytes,
            max_depth=payload.recursive_depth if payload.recursive else 1,
            use_gitignore=False,
            state_dirs=self._state_dirs,
        )
        source = payload.source_url or payload.source_name or payload.source_path or "installed"
        found = LibraryFiles(self._pipeline, rules, payload.root, source, pictures=bool(payload.ocr))
        if payload.source_path is not None:
            if payload.source_name is not None:
                self._fetched.take(context.place, payload.root, payload.source_path)
            return found.found_at(payload.source_path)
        if payload.source_url is None:
            return found.installed(payload.library_name, payload.library_version)
        archive = self._fetched.fetch(
            context.place,
            lambda _: payload.root,
            urls.canonical(payload.source_url),
            lambda url: self._fetched.wait_turn(urls.host_of(url), 0.0, context.checkpoint),
        )
        return found.found_at(os.path.realpath(archive.body))

    def _open_children(self, context: Context) -> bool:
        if self._open_queue is None:
            raise NotHandledHere("an update of a library needs the queue")
        with self._open_queue() as queue:
            job = queue.get(context.job_id)
        return job is not None and job.children_open > 0

    def _remove_others(self, context: Context, payload: LibraryPayload) -> dict[str, Any]:
        """Remove the other versions, unless nothing of the new one could be indexed."""
        name = library_path(payload.library_name)
        versions: dict[str, bool] = {}
        for known in known_below(self._catalog, context.place, name):
            version = "/".join(known.path[len(name) + 1 :].split("/")[:1])
            versions[version] = versions.get(version, False) or known.published_id is not None
        if not versions.pop(payload.library_version, False):
            return {"note": "no file of the new version was indexed; the others stay"}
        removed = sum(self._remove(context, f"{name}/{version}") for version in versions)
        return {"removed": removed, "replaced": sorted(version for version, live in versions.items() if live)}

    def _remove(self, context: Context, root: str) -> int:
        claim = context.claim
        removal = Removal(
            tenant_id=claim.tenant_id,
            collection=claim.collection,
            branch=claim.branch,
            path=root,
            asked_at=context.asked_at,
        )
        removed = remove_all(self._catalog, removal)
        # A downloaded or uploaded archive has no document of its own.
        self._fetched.remove(context.place, root, asked_at=context.asked_at)
        return removed


def _names_archive(url: str) -> bool:
    return file_types.is_archive_name(url.partition("#")[0].partition("?")[0])
