"""Jobs of item type ``file``: bring the index to the state of the file when the job runs.

A call takes many jobs, so that small files share a write. An error in one file affects only its own job.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from penstock import clock
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules.publication import (
    MAX_MESSAGE,
    FailedReading,
    ReadFile,
    becomes_document,
    failed_generation,
    remedy_for,
)
from penstock.catalog.values import (
    LedgerEntry,
    LedgerKind,
    NewGeneration,
    Phase,
    Place,
    Source,
    StoredProperties,
    Touch,
)
from penstock.errors import PenstockError, PermanentFailure, UnsupportedType
from penstock.handlers.containers import ContainerMembers, send_outdated, touch_members
from penstock.handlers.context import Context, Later, Wait
from penstock.handlers.file_request import FailedBefore, FileRequest, file_mismatches
from penstock.handlers.folders import other_branch, scheduled_for_another
from penstock.handlers.generations import MAX_TEXTS, DraftedGeneration, GenerationBatch, adopted, stored_since
from penstock.handlers.members import FileContent, MemberReader, container_of, may_hold_members, on_disk
from penstock.handlers.missing_files import (
    CAREFUL,
    MoveDetection,
    awaits_move,
    unchanged_at,
    unknown_at,
    unmounted_reason,
)
from penstock.handlers.notes import ModelCheck
from penstock.handlers.reindex import OUTDATED, from_catalog
from penstock.handlers.removal import removal_of_one, remove_all
from penstock.pipeline.budget import MemoryInUse
from penstock.pipeline.draft import Draft, outdated, with_all_pages, without_pictures
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.protocol import Content
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.walk.repository import WORK_TREE
from penstock.pipeline.web import urls
from penstock.queue import retry
from penstock.queue.payloads import ContentOrigin, is_off_disk, normal_path, origin_of
from penstock.vocabulary import split_remedy

if TYPE_CHECKING:
    from penstock.handlers.source_files import FetchedFile, FetchedFiles


PAGES_PER_CALL = 32
"""Pages of a document that are read in its job; the others become tasks."""
MAX_OPEN_TASKS = 5_000
"""While more tasks of a lane are open, files that would add to them wait. Small files continue."""


def _draft_file(pipeline: Pipeline, request: FileRequest, read: FileContent) -> Draft:
    """Draft a file. Of a long document only the first pages; the others become tasks."""
    content = Content(request.name, read.data, read.size)
    paged = file_types.detect(request.name, read.data) == file_types.PDF
    pages = range(1, PAGES_PER_CALL + 1) if paged else None
    draft = pipeline.draft(content, request.sizes, pages=pages, ocr=request.ocr)
    failed = not draft.chunks and not draft.unread
    if paged and failed and len(draft.pages) >= draft.page_count:
        # Once more without a range: only a complete document can be refused for having no text.
        return pipeline.draft(content, request.sizes, ocr=request.ocr)
    return with_all_pages(draft, request.read_from if request.read_from != request.path else None)


def _lanes_of(draft: Draft) -> list[Phase]:
    """The lanes with tasks from a draft: for unread pages, and for more chunks than a job embeds."""
    lanes = [Phase.OCR] if draft.unread else []
    return [*lanes, Phase.VECTOR] if len(draft.chunks) > MAX_TEXTS else lanes


def _too_many_tasks(catalog: Catalog, lanes: Sequence[Phase]) -> bool:
    """Check whether a file that adds tasks to these lanes has to wait.

    Each lane counts alone: a scan does not wait for the chunks of a large log.
    """
    if not lanes:
        return False
    with catalog.snapshot() as snapshot:
        return any(snapshot.open_tasks(lane) > MAX_OPEN_TASKS for lane in lanes)


FAILED_BEFORE = "failed before"
"""Outcome of a file that failed in an earlier run and is unchanged since."""


class FailedFiles:
    """The failed files of one call: recorded as failed documents and explained in the ledger, in two
    transactions.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._generations: list[NewGeneration] = []
        self._ledger_entries: list[LedgerEntry] = []

    def add(
        self,
        context: Context,
        request: FileRequest | Exception,
        error: Exception,
        *,
        known: Source | None,
        read: ReadFile | None,
        stored: bool,
    ) -> None:
        """Add a final failure; others are ignored. ``stored``: the catalog already has the generation."""
        classified = retry.classify(error)
        if classified.kind != "permanent" and context.claim.retry_count < context.claim.max_retries:
            return
        if classified.kind == "cancelled":
            return
        entry = LedgerEntry(
            place=context.place,
            path=normal_path(context.payload["file_path"]),
            kind=LedgerKind.FAILED,
            rule=classified.code,
            cause=str(error)[:MAX_MESSAGE] or type(error).__name__,
            remedy=error.remedy if isinstance(error, PenstockError) else "",
            job_id=context.job_id,
        )
        self._ledger_entries.append(entry)
        if stored or isinstance(request, Exception):
            return
        file = read or _file_at(request)
        if file is not None and becomes_document(entry.rule, known=known is not None):
            self._generations.append(_failed_generation(context, request, entry, file))

    def write(self) -> None:
        if self._generations:
            self._catalog.store(self._generations)
        if self._ledger_entries:
            self._catalog.note(self._ledger_entries)


def _failed_generation(
    context: Context, request: FileRequest, entry: LedgerEntry, file: ReadFile
) -> NewGeneration:
    return failed_generation(
        FailedReading(
            place=request.place,
            path=request.path,
            code=entry.rule,
            message=entry.cause,
            file=file,
            asked_at=context.asked_at,
            read_at=clock.now(),
            job_id=context.job_id,
            fingerprints=request.fingerprints,
            file_type=file_types.suffix_of(request.name),
        )
    )


def _file_at(request: FileRequest) -> ReadFile | None:
    """State of a file refused before reading; None: there is no file."""
    container = container_of(request.read_from, any_name=True)
    if container is not None:
        return ReadFile(0, container.mtime_ns, request.read_with)
    try:
        found = os.lstat(request.read_from)
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return ReadFile(found.st_size, found.st_mtime_ns, request.read_with)


def failed_before(context: Context, known: Source) -> Any:
    """The result of a job for an unchanged file with an earlier failure; nothing is read.

    A job for this file alone fails as it did before. The child of a folder is done: its failure is counted
    and shown with the folder, and is not a new one.
    """
    failure = known.failure
    code, _, message = (failure.error or "ERR_UNREADABLE: the file cannot be read").partition(": ")
    message, remedy = split_remedy(message)
    since = f"{failure.at:%Y-%m-%d %H:%M}" if failure.at is not None else "the last run"
    if context.claim.parent_id is not None:
        return {"outcome": FAILED_BEFORE, "code": code, "error": message, "since": since}
    return PermanentFailure(
        f"{message} (unchanged since {since}, not read again)",
        code=code,
        remedy=remedy or remedy_for(code),
    )


class OtherBranches:
    """Documents at the same paths in other branches, for files without one in their own branch.

    An unchanged file of a new branch is not read or embedded again. In another work tree of the project, the
    same path is the one from its top folder.
    """

    def __init__(self, catalog: Catalog, pipeline: Pipeline) -> None:
        self._catalog = catalog
        self._pipeline = pipeline
        self._found: dict[tuple[Place, str], list[Source]] = {}

    def look_up(
        self,
        contexts: Sequence[Context],
        requests: Sequence[FileRequest | Exception],
        known: Mapping[tuple[Place, str], Source],
    ) -> None:
        """Find the documents of other branches for the new files of projects."""
        wanted: dict[Place, dict[str, str]] = {}
        for context, request in zip(contexts, requests, strict=True):
            root = context.metadata.get(WORK_TREE)
            if isinstance(request, Exception) or not isinstance(root, str):
                continue
            if (request.place, request.path) not in known:
                wanted.setdefault(request.place, {})[request.path] = root
        if not wanted:
            return
        roots = self._catalog.projects.all()
        with self._catalog.snapshot() as snapshot:
            for place, paths in wanted.items():
                others = [each.root for each in roots if each.tenant_id == place.tenant_id]
                same = _same_paths(paths, others)
                for branch in snapshot.branches(place.tenant_id, place.collection):
                    other = Place(place.tenant_id, place.collection, branch)
                    for path, source in snapshot.find_all(other, same).items() if other != place else ():
                        if source.published_id is not None:
                            self._found.setdefault((place, same[path]), []).append(source)

    def source_id(self, request: FileRequest) -> str | None:
        """A document in another branch, to share texts and vectors with."""
        found = self._found.get((request.place, request.path), ())
        in_place = [source for source in found if source.path == request.path]
        return (in_place or found)[-1].source_id if found else None

    def copy(self, context: Context, request: FileRequest) -> DraftedGeneration | None:
        """The document of another branch made of the same file, by size and time."""
        for source in self._found.get((request.place, request.path), ()):
            asked = request.as_known(source, self._pipeline)
            if (
                source.path == request.path
                and not (
                    request.rebuild or request.checksum or source.partial or may_hold_members(request.path)
                )
                and unchanged_at(request.path, source.size, source.mtime_ns)
                and asked.fingerprints == source.fingerprints
            ):
                drafted = from_catalog(
                    self._catalog, source, context, source.fingerprints, self._pipeline.space
                )
                if drafted is not None:
                    generation = msgspec.structs.replace(
                        drafted.generation, place=request.place, related_id=source.source_id
                    )
                    return msgspec.structs.replace(drafted, generation=generation)
        return None


def _same_paths(paths: Mapping[str, str], roots: Iterable[str]) -> dict[str, str]:
    """Paths by themselves, and by the same path in each of the other top folders."""
    same = {
        f"{other}{path.removeprefix(root)}": path
        for other in roots
        for path, root in paths.items()
        if path.startswith(f"{root}/")
    }
    return same | {path: path for path in paths}


Origins: TypeAlias = Callable[[Context], ContentOrigin | None]
"""Finds the origin of the document of a job; None: it is a file."""


def _in_metadata(context: Context) -> ContentOrigin | None:
    return origin_of(context.metadata)


NO_ORIGINS: Origins = _in_metadata


def origins_with(fetched: FetchedFiles) -> Origins:
    """Origins of documents with content from elsewhere than their path: web pages, files of libraries.

    Web pages are in the fetched files, and fetched again where these are missing. Files of a library are in
    its folder or archive.
    """

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


class ReadArticle(msgspec.Struct, frozen=True):
    """The content of a document, with the URL and heading anchors of the web page, if any."""

    content: FileContent
    url: str = ""
    anchors: dict[str, str] = {}

    def described(self, properties: StoredProperties) -> StoredProperties:
        """The properties with the address of the page and the anchors of the headings."""
        return msgspec.structs.replace(properties, url=self.url, anchors=self.anchors)


def _article_of(request: FileRequest, read: FileContent) -> ReadArticle:
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
    content = msgspec.structs.replace(read, data=article.data, size=len(article.data))
    return ReadArticle(content, origin.url or request.path, article.anchors)


def _missing_origin(request: FileRequest) -> PermanentFailure:
    """The error for a document without content on this machine."""
    where = request.origin.read_from if request.origin is not None else request.path
    return PermanentFailure(
        f"{where} does not exist on this machine",
        code="ERR_FILE_NOT_FOUND",
        remedy="Index the web page, or add the library, again.",
    )


_RETRY_DELAY = timedelta(seconds=2)
_UNCHANGED = {"outcome": "unchanged"}
_WATCHERS = ("watcher", "active_project")
"""Doors whose jobs may name files that are gone by the time they run."""


class Files:
    def __init__(self, catalog: Catalog, pipeline: Pipeline, origins: Origins = NO_ORIGINS) -> None:
        self._catalog = catalog
        self._pipeline = pipeline
        self._origins = origins
        self._model = ModelCheck(catalog, pipeline.embedder)
        self._reader = MemberReader(pipeline)

    def ingest(self, contexts: Sequence[Context]) -> list[Any]:
        """Index files: one result or exception per job."""
        self._model.check()
        tools = (self._catalog, self._pipeline, self._reader, self._origins)
        answers = _IngestCall(*tools, contexts).answers()
        self._reader.close_unused()
        return answers

    def delete(self, context: Context) -> dict[str, Any]:
        """Remove a file from the index, whether or not the file still exists."""
        place, path = context.place, normal_path(context.payload["file_path"])
        removed = remove_all(self._catalog, removal_of_one(place, path, context.asked_at))
        return {"outcome": "removed" if removed else "was not indexed", "removed": removed}


class _IngestCall:
    """One call of the batch handler. Answers are filled in one by one."""

    def __init__(
        self,
        catalog: Catalog,
        pipeline: Pipeline,
        reader: MemberReader,
        origins: Origins,
        contexts: Sequence[Context],
    ) -> None:
        self._origins = origins
        self._catalog = catalog
        self._pipeline = pipeline
        self._reader = reader
        self._space = pipeline.space
        self._contexts = contexts
        self._answers: list[Any] = [None] * len(contexts)
        self._batch = GenerationBatch(catalog, pipeline)
        self._branches = OtherBranches(catalog, pipeline)
        self._batched: list[tuple[int, str | None]] = []
        self._touched: list[tuple[int, Touch]] = []
        self._expected: list[tuple[Place, str, str]] = []
        self._read: dict[int, ReadFile] = {}
        """Each file read, to be recorded if it fails."""
        self._known_failures: set[int] = set()
        """Jobs for files that failed in an earlier run and are unchanged."""
        self._stored: set[int] = set()
        """Jobs whose generation the catalog keeps back, or refused."""
        self._mismatches: dict[int, list[str]] = {}
        self._containers: set[int] = set()
        """Jobs with child jobs, which may have failed already: they end with their children."""

    def answers(self) -> list[Any]:
        requests = [self._request(context) for context in self._contexts]
        known = self._known(requests)
        if self._move_unknown(requests, known):
            known = self._known(requests)
        self._branches.look_up(self._contexts, requests, known)
        for index, (context, request) in enumerate(zip(self._contexts, requests, strict=True)):
            try:
                context.checkpoint()
                if isinstance(request, Exception):
                    raise request
                source = known.get((request.place, request.path))
                self._answers[index] = self._ingest_here(index, context, request, source)
            except MemoryInUse as wait:
                self._answers[index] = Later(str(wait), _RETRY_DELAY)
            except Exception as error:  # noqa: BLE001 - an error in one file must not fail the others
                self._answers[index] = error
        self._write()
        self._record_failures(requests, known)
        self._touch()
        for index, mismatches in self._mismatches.items():
            answer = self._answers[index]
            if mismatches and isinstance(answer, dict):
                self._answers[index] = answer | {"mismatches": mismatches}
        for index in self._containers:
            if isinstance(self._answers[index], dict):
                self._answers[index] = Wait(result_json=msgspec.json.encode(self._answers[index]).decode())
        return self._answers

    def _touch(self) -> None:
        """Record the new request for unchanged files: an older delete must not remove them."""
        if not self._touched:
            return
        live = self._catalog.touch([touch for _, touch in self._touched])
        for (index, touch), found in zip(self._touched, live, strict=True):
            answer = self._answers[index]
            unchanged = isinstance(answer, dict) and _UNCHANGED.items() <= answer.items()
            if not found and touch.asked_at is not None and unchanged:
                self._answers[index] = Later(
                    "the document was removed while its file was checked", _RETRY_DELAY
                )

    def _request(self, context: Context) -> FileRequest | Exception:
        try:
            return FileRequest.from_job(context, self._pipeline, self._origins(context))
        except Exception as error:  # noqa: BLE001 - an error in one job must not fail the others
            return error

    def _known(self, requests: Sequence[FileRequest | Exception]) -> dict[tuple[Place, str], Source]:
        paths: dict[Place, list[str]] = {}
        for request in requests:
            if isinstance(request, FileRequest):
                paths.setdefault(request.place, []).append(request.path)
        known: dict[tuple[Place, str], Source] = {}
        with self._catalog.snapshot() as snapshot:
            for place, some in paths.items():
                for path, source in snapshot.find_all(place, some).items():
                    known[place, path] = source
        return known

    def _move_unknown(
        self, requests: Sequence[FileRequest | Exception], known: dict[tuple[Place, str], Source]
    ) -> bool:
        """Rename known sources moved to these paths. Children of a walk were checked by the walk."""
        unknown: dict[Place, list[Context]] = {}
        for context, request in zip(self._contexts, requests, strict=True):
            if context.claim.parent_id is not None or isinstance(request, Exception) or other_branch(context):
                continue
            if (request.place, request.path) not in known:
                unknown.setdefault(request.place, []).append(context)
        moved = False
        for place, contexts in unknown.items():
            detection = MoveDetection(self._catalog, place, limits=self._pipeline.limits)
            files = [file for context in contexts for file in unknown_at(context.payload["file_path"])]
            moved |= bool(detection.move(files, min(context.asked_at for context in contexts)))
        return moved

    def _ingest_here(self, index: int, context: Context, request: FileRequest, known: Source | None) -> Any:
        """Index a file if the branch is checked out: from a copy in another branch, or from the disk."""
        elsewhere = scheduled_for_another(context) or other_branch(context)
        if elsewhere is not None and known is not None and context.metadata.get(OUTDATED):
            return self._missing(index, context, request, known)
        copied = None if elsewhere or known else self._branches.copy(context, request)
        if copied is None:
            return elsewhere or self._ingest_one(index, context, request, known)
        return self._add_to_batch(index, copied, request.path)

    def _ingest_one(self, index: int, context: Context, request: FileRequest, known: Source | None) -> Any:
        request = request.checked_before(known, self._pipeline)
        as_known = request.as_known(known, self._pipeline) if known is not None else request
        try:
            read = as_known.read(known, self._reader)
        except FailedBefore:
            assert known is not None
            self._known_failures.add(index)
            return failed_before(context, known)
        except (FileNotFoundError, NotADirectoryError):
            return self._missing(index, context, request, known)
        except UnsupportedType:
            if known is None or request.delivered is not None or container_of(request.path):
                raise
            return self._remove(context, request.path, "it is no longer a file")
        if read is None and known is not None:
            self._mismatches[index] = as_known.mismatches(context, known, whole=as_known is request)
            return self._keep(index, context, as_known, known, (known.size, known.mtime_ns))
        assert read is not None
        request = request.checked(read, self._pipeline)
        content_hash = hashlib.sha256(read.data).hexdigest()
        whole = len(read.data) == read.size
        self._mismatches[index] = file_mismatches(context, read.size, content_hash if whole else None)
        as_good = request.as_good_as(known, self._pipeline) if known is not None else request
        if known is not None and not request.rebuild and as_good.is_up_to_date(known, content_hash):
            touch_members(self._catalog, known, read.mtime_ns, context.asked_at)
            return self._keep(index, context, as_good, known, (read.size, read.mtime_ns))
        if known is not None and request.failed_before(known, content_hash):
            self._touched.append((index, Touch(known.source_id, read.size, read.mtime_ns, failed=True)))
            self._known_failures.add(index)
            return failed_before(context, known)
        if known is not None and not request.rebuild:
            reused = adopted(self._catalog, context, known, request.fingerprints, content_hash)
            if reused is not None:
                self._send_members(index, context, request, known, read.mtime_ns)
                return reused
        return self._build(index, context, request, known, read, content_hash)

    def _build(
        self,
        index: int,
        context: Context,
        request: FileRequest,
        known: Source | None,
        read: FileContent,
        content_hash: str,
    ) -> Any:
        if (elsewhere := other_branch(context)) is not None:
            return elsewhere
        read_at = clock.now()
        self._read[index] = ReadFile(read.size, read.mtime_ns, request.read_with, content_hash)
        seconds = self._pipeline.limits.seconds_for(len(read.data))
        with context.file(seconds, read.size, read.mtime_ns, request.read_with):
            article = _article_of(request, read)
            draft = _draft_file(self._pipeline, request, article.content)
        if _too_many_tasks(self._catalog, _lanes_of(draft)):
            return Later(
                f"waiting: more than {MAX_OPEN_TASKS:,} page and chunk tasks are pending", _RETRY_DELAY
            )
        members = ContainerMembers(self._catalog, self._pipeline, context, request, read)
        draft = draft.with_warnings(members.update(draft.attachments, known))
        self._containers |= {index} if members.sent else set()
        fingerprints = without_pictures(request.fingerprints) if draft.all_layers else request.fingerprints
        tags, metadata = request.tags_and_metadata(known)
        related_id = None if known else self._branches.source_id(request)
        generation = NewGeneration(
            place=request.place,
            path=request.path,
            content_hash=content_hash,
            asked_at=context.asked_at,
            read_at=read_at,
            pages=draft.pages,
            space=self._space,
            gate=request.gate,
            fingerprints=fingerprints,
            size=read.size,
            mtime_ns=read.mtime_ns,
            file_type=draft.suffix(request.name),
            title=draft.title,
            tags=tags,
            metadata=metadata,
            properties=article.described(draft.stored_properties),
            related_id=related_id,
            job_id=context.job_id,
            priority=context.claim.priority,
            max_retries=context.claim.max_retries,
            read_with=request.read_with,
        )
        drafted = DraftedGeneration(
            generation=generation,
            tokens=draft.tokens,
            warnings=draft.warnings,
            known_id=known.source_id if known else related_id,
        )
        if request.delivered is not None and request.read_from != request.path:
            self._expected.append((request.place, request.path, request.read_from))
        on_disk_now = request.delivered is None and request.origin is None
        return self._add_to_batch(index, drafted, request.path if on_disk_now else None)

    def _add_to_batch(self, index: int, drafted: DraftedGeneration, read_from: str | None = None) -> None:
        """Add a generation to the batch. The answer comes with the write."""
        if not self._batch.fits(drafted):
            self._write()
        self._batch.add(drafted)
        self._batched.append((index, read_from))

    def _keep(
        self, index: int, context: Context, request: FileRequest, known: Source, state: tuple[int, int]
    ) -> Any:
        """Keep the stored text of an unchanged file; read outdated files inside."""
        answer = self._reuse_text(index, context, request, known, state)
        if not isinstance(answer, Later):
            self._send_members(index, context, request, known, state[1])
        return answer

    def _send_members(
        self, index: int, context: Context, request: FileRequest, known: Source, mtime_ns: int
    ) -> None:
        if send_outdated(self._catalog, self._pipeline, context, request, known, mtime_ns):
            self._containers.add(index)

    def _reuse_text(
        self, index: int, context: Context, request: FileRequest, known: Source, state: tuple[int, int]
    ) -> Any:
        """Keep the stored chunks, with new vectors for a new model. ``state``: size and time of the file."""
        # A reindex for a new model is not a request for the file.
        asked_at = None if context.metadata.get(OUTDATED) else context.asked_at
        self._touched.append((index, Touch(known.source_id, *state, asked_at)))
        if outdated(known.fingerprints, request.fingerprints) is None:
            return _UNCHANGED | stored_since(context, known)
        reused = adopted(self._catalog, context, known, request.fingerprints, known.content_hash)
        if reused is not None:
            return reused
        drafted = from_catalog(self._catalog, known, context, request.fingerprints, self._space)
        if drafted is None or (drafted.texts > MAX_TEXTS and _too_many_tasks(self._catalog, [Phase.VECTOR])):
            return Later(
                f"waiting: the document has just changed, or more than {MAX_OPEN_TASKS:,} tasks are pending",
                _RETRY_DELAY,
            )
        return self._add_to_batch(index, drafted)

    def _missing(self, index: int, context: Context, request: FileRequest, known: Source | None) -> Any:
        if request.delivered is not None:
            # The sender named this file. A document indexed under its name came from elsewhere and stays.
            raise PermanentFailure(f"{request.read_from} does not exist", code="ERR_FILE_NOT_FOUND")
        if known is not None and context.metadata.get(OUTDATED):
            # A reindex does not ask whether the file exists: its disk may be unmounted.
            if request.is_up_to_date(known, known.content_hash):
                return self._reuse_text(index, context, request, known, (known.size, known.mtime_ns))
            return {"outcome": "kept", "note": "the file does not exist; its document is kept"}
        if is_off_disk(request.path):
            raise _missing_origin(request)
        if known is not None:
            if awaits_move(self._catalog, known):
                return {"outcome": "kept", "note": "its file is about to be moved here"}
            if (
                context.metadata.get(CAREFUL)
                and (reason := unmounted_reason(self._catalog, known)) is not None
            ):
                return {"outcome": "kept", "note": reason}
            return other_branch(context) or self._remove(context, request.path, "the file is gone")
        if context.claim.parent_id is not None or context.claim.submitted_by in _WATCHERS:
            return {"outcome": "vanished"}
        raise PermanentFailure(f"{request.path} does not exist", code="ERR_FILE_NOT_FOUND")

    def _remove(self, context: Context, path: str, note: str) -> dict[str, Any]:
        remove_all(self._catalog, removal_of_one(context.place, path, context.asked_at))
        return {"outcome": "removed", "note": note}

    def _write(self) -> None:
        batched, expected, self._batched, self._expected = self._batched, self._expected, [], []
        try:
            if expected:
                self._catalog.expect(expected)
            answers = self._batch.write()
        except Exception as error:  # noqa: BLE001 - the store is unavailable: all jobs try again
            answers = [error] * len(batched)
        for (index, read_from), answer in zip(batched, answers, strict=True):
            self._answers[index] = answer
            if isinstance(answer, Exception):
                self._stored.add(index)
            if read_from is not None and isinstance(answer, dict) and not on_disk(read_from):
                # A walk in between found the file missing or moved, and nothing here to remove.
                self._answers[index] = self._remove(
                    self._contexts[index], read_from, "it was deleted while it was read"
                )

    def _record_failures(
        self, requests: Sequence[FileRequest | Exception], known: dict[tuple[Place, str], Source]
    ) -> None:
        """Record final failures, to be shown until the file is indexed or gone."""
        failed = FailedFiles(self._catalog)
        for index, (context, request) in enumerate(zip(self._contexts, requests, strict=True)):
            answer = self._answers[index]
            if not isinstance(answer, Exception) or index in self._known_failures:
                continue
            source = known.get((request.place, request.path)) if isinstance(request, FileRequest) else None
            stored = index in self._stored
            failed.add(context, request, answer, known=source, read=self._read.get(index), stored=stored)
        failed.write()
