"""Documents: indexed, removed, renamed, listed, explained; and their records for programs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack, cast

import msgspec

from penstock import clock
from penstock.catalog.protocol import BATCH, Catalog, CatalogSnapshot
from penstock.catalog.rules.phases import CHUNK_PHASES
from penstock.catalog.values import (
    ChunkState,
    ChunkView,
    Document,
    Filters,
    GenerationState,
    PageState,
    Phase,
    Place,
    Progress,
    RecognizedPages,
    Source,
    StoredProperties,
    TaskStatus,
    TenantCount,
    time_key,
)
from penstock.config import Settings
from penstock.errors import InvalidRequest, UnknownDocument
from penstock.handlers.outside_stores import StoreProgress, store_progress, unfilled_stores
from penstock.pipeline.walk.repository import code_reason
from penstock.queue import payloads
from penstock.queue.job import Job, Status
from penstock.queue.payloads import LIBRARIES, is_off_disk, library_path, parse_requirement, validate_name
from penstock.service import paths, why
from penstock.service.access import LOCAL, Principal
from penstock.service.folders import Preview, index_submission, placed_payload, preview_of
from penstock.service.jobs import Jobs
from penstock.service.paths import real_path
from penstock.service.projects import Placement, Projects, WantedPlace
from penstock.service.requests import (
    DocumentFilters,
    HistoryEntry,
    IndexOptions,
    ListFilters,
    PathPlace,
    Receipt,
    Submission,
    Where,
    WhyOptions,
    path_place,
    refuse_unknown,
    submission_at,
)
from penstock.service.why import (
    LOW_CONFIDENCE,
    Below,
    FailedPath,
    Reason,
    Verdict,
    failed_paths,
    with_page_warnings,
)

if TYPE_CHECKING:
    from penstock.service.libraries import Libraries
    from penstock.service.notes import Notebook
    from penstock.service.pages import ExportedPages, ShownPage
    from penstock.service.requests import MovedWhere

_MAX_DOCUMENTS = 1_000
_MAX_PAGES = 1_000
_PHASE_NAMES = [str(phase) for phase in Phase]
_LETTERS = {"pending": "p", "processing": "r", "completed": "d", "failed": "f", "skipped": "s"}
_PREVIEW = 200
_ABSENT = ("unknown", "removed", "moved")
_UNKNOWN = dict.fromkeys(("time_left_s", "rate", "rate_window_s", "rate_unit"))
_OPEN = (TaskStatus.PENDING, TaskStatus.PROCESSING)


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Documents and open tasks of the catalog."""

    tenants: list[TenantCount]
    tasks: dict[str, dict[str, int]]
    model: str | None
    """The catalog's embedding model; None before the first document."""
    spaces: dict[str, int]
    """Published chunks by embedding model."""
    stores: list[StoreProgress] = []
    """Stores outside the catalog, and how far they are filled."""


class Documents:
    """The documents of one catalog, as one door and one sender see them.

    The place of a document that is named by its path is decided by ``Places``, for every door.
    """

    def __init__(
        self, catalog: Catalog, jobs: Jobs, settings: Settings, principal: Principal = LOCAL
    ) -> None:
        self.catalog = catalog
        self._jobs = jobs
        self._settings = settings
        self._principal = principal
        self.projects = Projects(catalog, jobs, settings, principal)

    def seen_by(self, principal: Principal) -> Documents:
        """The same documents for the sender of a request, within the tenants of the key."""
        return Documents(self.catalog, self._jobs, self._settings, principal)

    @cached_property
    def notes(self) -> Notebook:
        """Use cases about notes."""
        from penstock.service.notes import Notebook

        return Notebook(self.catalog, self._jobs, self._settings)

    @cached_property
    def libraries(self) -> Libraries:
        """Use cases about libraries."""
        from penstock.service.libraries import Libraries

        return Libraries(self.catalog, self._jobs, self.notes.place_of)

    # Requests.

    def index(self, path: str | os.PathLike[str], **options: Unpack[IndexOptions]) -> Receipt:
        """Index a file, everything below a folder, or a web page with the pages that it links to.

            receipt = app.index("docs", collection="handbook", exclude=["drafts/"])
            app.wait(receipt.job_id)

        Source code is included where ``include_code`` says so and, without a word about it, in a git
        repository or beside a project file such as ``pyproject.toml``. Unchanged files, and those that
        failed by their content, are not read again. ``force`` reads all, ``retry_failed`` the failed ones;
        ``checksum`` compares contents even where size and time are equal. ``archives`` opens zip and tar
        archives as folders, ``ocr`` recognizes text in pictures; by default the settings of the same names
        decide. ``graph`` extracts entities and relations, or removes them; without it, they stay. The
        ``operation`` "add" removes nothing: documents whose files are gone stay. Of a web page, links are
        followed up to ``depth`` (3), on its host and ``hosts``, up to ``max_pages`` (1,000).

        In a git work tree the documents are of its project: a tenant by its remote, and the checked-out
        branch. ``tenant_id`` and ``branch`` win, and ``project=False`` indexes the path like any other;
        ``project=True`` makes a folder without git a project as well.
        """
        refuse_unknown("index", options, IndexOptions)
        named = os.fspath(path)
        placement = self.placement(path, **options)
        submission = index_submission(named, options, self._settings, placement)
        recorded = self.projects.record(placement)
        if recorded.tenant_id != placement.tenant_id:
            # Another request recorded the folder meanwhile, with another remote.
            submission = index_submission(named, options, self._settings, recorded)
        receipt = self._jobs.submit(exact=True, **submission)
        return self._with_left_behind(receipt, submission, recorded)

    def placement(self, path: str | os.PathLike[str], **options: Unpack[IndexOptions]) -> Placement:
        """Tenant and branch of the documents of ``index``."""
        refuse_unknown("index", options, IndexOptions)
        paths.refuse_unusable(os.fspath(path))
        wanted = WantedPlace(options.get("tenant_id"), options.get("branch"), options.get("project"))
        return self.projects.for_index(os.fspath(path), wanted)

    def submission(self, path: str | os.PathLike[str], **options: Unpack[IndexOptions]) -> Submission:
        """Build the submission of ``index`` without submitting it."""
        refuse_unknown("index", options, IndexOptions)
        return index_submission(os.fspath(path), options, self._settings, self.placement(path, **options))

    def placed(self, submission: Submission, *, project: bool | None = None) -> Submission:
        """The submission with the place of its path, as ``index`` would decide it; notes and calls stay.

            app.submit(**app.documents.placed({"item_type": "project", "op": "ingest", "payload": payload}))

        ``submit`` itself adds a row as it is given. The item type ``project`` makes a folder without git a
        project as well. The project is recorded here, unless the operation is ``delete``.
        """
        path = placed_payload(submission)
        if path is None:
            return submission
        wanted = WantedPlace(submission.get("tenant_id"), submission.get("branch"), project)
        if submission["op"] == "delete":
            placement = self.projects.for_reading(path, wanted)
        else:
            container = submission["item_type"] == "project" and project is not False
            remote = submission["payload"].get("git_remote")
            found = self.projects.for_index(path, wanted, container=container, remote=remote)
            placement = self.projects.record(found)
        given = submission.get("metadata") or {}
        metadata = {**placement.metadata, **given}
        if metadata:
            submission = {**submission, "metadata": metadata}
        return cast("Submission", {**submission, **placement.names})

    def _with_left_behind(self, receipt: Receipt, submission: Submission, placement: Placement) -> Receipt:
        """The receipt, with a note about documents of this folder that are outside of the project."""
        if placement.project is None or submission["item_type"] == "file":
            return receipt
        root = placement.project.root
        outside = self.notes.place_of(collection=submission.get("collection"))
        with self.catalog.snapshot() as snapshot:
            if not snapshot.known(outside, root, limit=1):
                return receipt
        note = ". ".join(left_behind(outside, root))
        return msgspec.structs.replace(receipt, notes=(*receipt.notes, note))

    def note(
        self,
        text: str,
        *,
        tag: str | Sequence[str] | None = None,
        update: str | None = None,
        delete: bool = False,
        drop_tags: bool = False,
        **where: Unpack[Where],
    ) -> Receipt:
        """Add a note, replace the note with the id ``update``, or remove the note with this text or id.

        ``tag``: one or several. A replaced note keeps its tags, unless given a ``tag`` or ``drop_tags``.
        """
        refuse_unknown("note", where, Where)
        place, tags = self.place(**where), [tag] if isinstance(tag, str) else list(tag or ())
        if delete:
            return self.notes.remove(text, place)
        if update is not None:
            return self.notes.replace(update, text, place, tags=tags, drop_tags=drop_tags)
        return self.notes.add(text, place, tags=tags)

    def removal(self, path_or_id: str, **where: Unpack[PathPlace]) -> Submission:
        """Build the submission to remove a document or folder, whether or not the files still exist.

        Raises ``UnknownDocument`` if there is no such document, nor a live job that may index it.
        """
        refuse_unknown("removal", where, PathPlace)
        if (source_id := self._id_of(path_or_id)) is not None:
            place = self.place(**_where(where))
            return submission_at(place, "delete_document", "delete", {"document_id": source_id})
        place, names = self.place_at(path_or_id, where), (paths.shown(path_or_id), paths.real(path_or_id))
        with self.catalog.snapshot() as snapshot:
            found = (snapshot.find(place, name) for name in names)
            document = next((source.path for source in found if source is not None and source.live), None)
            folder = next((name for name in names if snapshot.known(place, name, limit=1)), None)
        if names[0].startswith(("http://", "https://")) and names[0].endswith("/"):
            # The address of a folder: all pages below it.
            document, folder = None, names[0].rstrip("/")
        if document is None and folder is None and os.path.isdir(path_or_id):  # noqa: PTH112 - it never raises
            # Nothing below it is known yet, but jobs already queued must not add documents after the removal.
            folder = names[1]
        if document is None and folder is not None:
            return submission_at(place, "folder", "delete", {"folder_path": folder})
        if document is None:
            self._refuse_unless_awaited(path_or_id, place, names)
        by_name = os.sep in path_or_id or os.path.lexists(path_or_id)
        meant = document or (names[0] if by_name else path_or_id)
        return submission_at(place, "delete_document", "delete", {"document_id": meant})

    def _refuse_unless_awaited(self, path_or_id: str, place: Place, names: Sequence[str]) -> None:
        if any(why.awaited(self._jobs.queue, name, place) for name in names):
            return
        # A job that ended since the first look may have made the document.
        with self.catalog.snapshot() as snapshot:
            found = [snapshot.find(place, name) for name in names]
        if not any(source is not None and source.live for source in found):
            raise UnknownDocument(f"no document {path_or_id[:200]!r}")

    def _id_of(self, text: str) -> str | None:
        """The id of the document that this id means. A file with such a name is meant by its name."""
        by_name = text.isdecimal() and os.path.lexists(text)
        with self.catalog.snapshot() as snapshot:
            found = snapshot.get(text) if by_name else snapshot.identified(text)
        return None if found is None else found.source_id

    def why_code(self, path: str | os.PathLike[str], **options: Unpack[IndexOptions]) -> str | None:
        """The reason why ``index`` includes code by default; None if it does not, or if options decide."""
        refuse_unknown("why_code", options, IndexOptions)
        decided = options.get("include_code") is not None or options.get("project")
        if decided or is_off_disk(os.fspath(path)) or not os.path.isdir(path):  # noqa: PTH112 - as in `removal`
            return None
        return code_reason(real_path(os.fspath(path)))

    def preview(self, path: str | os.PathLike[str], **options: Unpack[IndexOptions]) -> Preview:
        """Count the files ``index`` would compare, by size and time alone; nothing is written."""
        submission = self.submission(path, **options)
        place = self.place(
            tenant_id=submission.get("tenant_id"),
            collection=submission.get("collection"),
            branch=submission.get("branch"),
        )
        return preview_of(self.catalog, place, submission, self._settings)

    def retry(self, id_or_prefix: str) -> Job:
        """Retry a failed or cancelled job; a job that left a partial document is submitted again.

            app.documents.retry(receipt.job_id)

        Successful parts are not repeated, and unchanged files are not read again.
        """
        job = self._jobs.job(id_or_prefix)
        partial = job.item_type != "function" and job.result_fields.get("partial")
        if job.status is not Status.DONE or not partial:
            return self._jobs.retry(job.queue_id)
        receipt = self._jobs.submit(
            exact=True,
            item_type=job.item_type,
            op=job.op,
            payload=job.payload,
            tenant_id=job.tenant_id,
            collection=job.collection,
            branch=job.branch,
            priority=job.priority,
            metadata={payloads.RETRY_FAILED: True},
        )
        return self._jobs.job(receipt.job_id)

    # Queries.

    def refuse_another_model(self) -> None:
        """Raise ``FingerprintMismatch`` when the settings name another embedder than the catalog has.

        Compared by name, so that no model is loaded.
        """
        with self.catalog.snapshot() as snapshot:
            model = snapshot.fingerprints().get(Phase.VECTOR)
            same = model is None or model.startswith(f"{self._settings.embedder}-")
            if model is not None and not same and any(one.sources for one in snapshot.tenants()):
                from penstock.handlers.notes import model_mismatch

                raise model_mismatch(model, self._settings.embedder)

    def why(self, path: str | os.PathLike[str], **where: Unpack[WhyOptions]) -> Reason:
        """Explain why search does or does not find a path; for a folder, count the states below it.

            print(app.documents.why("docs/mill.md").cause)

        ``project``: as for ``index``, or the name of a project. ``all``: look in every tenant.
        """
        refuse_unknown("why", where, WhyOptions)
        if where.get("all") and (where.get("tenant_id") is not None or where.get("project") is not None):
            raise InvalidRequest("tenant_id, project and all: give one of them")
        place = self.place_at(path, path_place(where))
        reason = self._why(paths.shown(os.fspath(path)), place)
        if reason.verdict != "unknown" or where.get("tenant_id") is not None:
            return reason
        with self.catalog.snapshot() as snapshot:
            others = why.in_other_tenants(snapshot, place, reason.path, self._principal.owns)
        if not others:
            return reason
        if where.get("all"):
            return self._why(reason.path, others[0])
        names = self.projects.names()
        return why.elsewhere_text(reason, place, others[0], names.get(others[0].tenant_id))

    def _why(self, absolute: str, place: Place) -> Reason:
        with self.catalog.snapshot() as snapshot:
            found = why.of_path(snapshot, place, absolute) or why.of_folder(snapshot, place, absolute)
            past = why.of_the_past(snapshot, place, absolute) if found is None else None
            elsewhere = why.elsewhere(snapshot, place, absolute) if found is None else []
        queued = (
            why.queued(self._jobs.queue, absolute, place)
            if found is None or found.verdict == "folder"
            else None
        )
        if found is not None and queued is not None:
            return msgspec.structs.replace(
                found, cause=f"{found.cause}; {queued.cause}", job_id=queued.job_id
            )
        if found is not None and found.verdict in ("indexed", "partial"):
            unfilled = unfilled_stores(self.catalog.outside, self._settings)
            found = msgspec.structs.replace(found, warnings=(*found.warnings, *unfilled))
        return found or queued or past or why.unknown(absolute, place, elsewhere)

    def knows(self, path: str, **where: Unpack[PathPlace]) -> bool:
        """Tell whether a document of the place is or was at a path, or a live job is about it.

        No document is read from the disk.
        """
        refuse_unknown("knows", where, PathPlace)
        place = self.place_at(path, where)
        with self.catalog.snapshot() as snapshot:
            if snapshot.find(place, path) is not None or snapshot.formerly(place, path) is not None:
                return True
        return why.queued(self._jobs.queue, path, place) is not None

    def sources(self, *, after: str = "", limit: int = 50, **narrowed: Unpack[ListFilters]) -> list[Source]:
        """Documents, also failed ones (``Source.failed``), ordered by id.

        for source in app.documents.sources(author="curie", created_after="1900"):
            print(source.path, source.properties.author)
        """
        refuse_unknown("sources", narrowed, ListFilters)
        given: dict[str, Any] = {**narrowed}
        if (project := given.pop("project", None)) is not None:
            scope = self.projects.search_scope(
                tenant_id=given.get("tenant_id"), branch=given.get("branch"), project=project
            )
            given |= scope.filters[0]
        filters = catalog_filters(self._settings.tenant_id, **given)
        with self.catalog.snapshot() as snapshot:
            return snapshot.sources(filters, after=after, limit=limit, failed=True)

    def failures(self, path: str | os.PathLike[str], **where: Unpack[PathPlace]) -> list[FailedPath]:
        """Files at or below a path that failed, by path.

        for failure in app.documents.failures("docs"):
            print(failure.path, failure.code, failure.remedy)
        """
        refuse_unknown("failures", where, PathPlace)
        return failed_paths(self.catalog, self.place_at(path, where), paths.real(os.fspath(path)))

    def source(self, path_or_id: str, **where: Unpack[PathPlace]) -> Source:
        """A document of the tenant: by its id from any collection, or by its path in one collection.

        The id is that of ``sources``, or that of one of its versions in ``documents``.
        """
        refuse_unknown("source", where, PathPlace)
        place = self.place_at(path_or_id, where)
        with self.catalog.snapshot() as snapshot:
            found = self._by_id(snapshot.get(path_or_id), place, where)
            if found is None:
                found = snapshot.find(place, paths.real(path_or_id))
            if found is None:
                found = self._by_id(snapshot.identified(path_or_id), place, where)
            if found is None or not found.live:
                raise UnknownDocument(f"no document {path_or_id[:200]!r}")
            return with_page_warnings(snapshot, found)

    def history(self, path_or_id: str, **where: Unpack[PathPlace]) -> list[HistoryEntry]:
        """Events of a document, oldest first; of a removed document for as long as they are kept.

        for entry in app.documents.history("docs/mill.md"):
            print(entry.at, entry.what, entry.note)
        """
        refuse_unknown("history", where, PathPlace)
        path = paths.shown(path_or_id)
        place = self.place_at(path_or_id, where)
        with self.catalog.snapshot() as snapshot:
            source = self._by_id(snapshot.get(path_or_id), place, where) or snapshot.find(place, path)
            source = source or self._by_id(snapshot.identified(path_or_id), place, where)
            source_id = source.source_id if source else snapshot.formerly(place, path) or path_or_id
            source = source or _of_tenant(snapshot.get(source_id), place.tenant_id)
            events = snapshot.events(source.place.tenant_id if source else place.tenant_id, source_id)
            generations = snapshot.generations(source_id) if source else []
        if source is None and not events:
            raise UnknownDocument(f"no document {path_or_id[:200]!r}, now or in the history")
        return why.history_of(source, events, generations)

    def generations(self, source_id: str) -> list[Document]:
        with self.catalog.snapshot() as snapshot:
            return snapshot.generations(source_id)

    def pages(self, document_id: int, *, limit: int = 100) -> list[PageState]:
        with self.catalog.snapshot() as snapshot:
            return snapshot.pages(document_id, limit=limit)

    def page(self, path_or_id: str, number: int, **where: Unpack[PathPlace]) -> ShownPage:
        """One page as it was read, with engine and confidence where its text was recognized.

        print(app.documents.page("scans/contract.pdf", 3).text)
        """
        from penstock.service.pages import shown_page

        refuse_unknown("page", where, PathPlace)
        source = self.source(path_or_id, **where)
        with self.catalog.snapshot() as snapshot:
            return shown_page(snapshot, source, number)

    def export(
        self, directory: str | os.PathLike[str], *, path: str | None = None, **where: Unpack[Where]
    ) -> ExportedPages:
        """Write the text of each page of the documents in search to a file; ``path`` is a glob."""
        refuse_unknown("export", where, Where)

        def chosen() -> Iterator[Source]:
            found = self.sources(path=path, limit=BATCH, **where)
            while found:
                yield from found
                found = self.sources(path=path, after=found[-1].source_id, limit=BATCH, **where)

        from penstock.service.pages import export_pages

        return export_pages(self.catalog, chosen(), Path(directory))

    def recognized(self, of: Job | Source) -> RecognizedPages:
        """Count recognized pages: of a document, or at and below a job's path since the submission."""
        if isinstance(of, Source):
            place, path, since = of.place, of.path, why.EARLIEST
        else:
            place, since = Place(of.tenant_id, of.collection, of.branch), of.created_at
            path = why.path_of(of) or ""
        with self.catalog.snapshot() as snapshot:
            found = snapshot.recognized(place, path, since, LOW_CONFIDENCE) if path else None
        return found or RecognizedPages(0)

    def progress(self, document_id: int) -> Progress | None:
        """Progress of a generation under construction."""
        with self.catalog.snapshot() as snapshot:
            return snapshot.progress(document_id)

    def overview(self, tenant_id: str | None = None) -> Overview:
        if tenant_id is not None:
            payloads.validate_name("tenant_id", tenant_id)
        stores = self.outside_stores()  # inside the snapshot, threads could wait for each other's connection
        with self.catalog.snapshot() as snapshot:
            return Overview(
                tenants=snapshot.tenants(tenant_id),
                tasks=_task_counts(snapshot),
                model=snapshot.fingerprints().get(Phase.VECTOR),
                spaces={space.name: space.chunks for space in snapshot.spaces(tenant_id)},
                stores=stores,
            )

    def outside_stores(self) -> list[StoreProgress]:
        """Stores outside the catalog, and how far they are filled."""
        return store_progress(self.catalog.outside, self._settings)

    def tenant_counts(self, tenant_id: str | None = None) -> list[TenantCount]:
        """Searchable documents and chunks of each collection, of one tenant or of all."""
        with self.catalog.snapshot() as snapshot:
            return snapshot.tenants(tenant_id)

    def task_counts(self) -> dict[str, dict[str, int]]:
        """Tasks of pages and chunks by type and status."""
        with self.catalog.snapshot() as snapshot:
            return _task_counts(snapshot)

    def place(self, **where: Unpack[Where]) -> Place:
        """The place with these names; by default the tenant of the key or of the settings."""
        refuse_unknown("place", where, Where)
        tenant = self._principal.tenant(where.get("tenant_id"), self._settings.tenant_id)
        return self.notes.place_of(tenant, where.get("collection"), where.get("branch"))

    def place_at(self, path: str | os.PathLike[str], where: PathPlace) -> Place:
        """The place of a document that is named by its path, to read or remove it."""
        paths.refuse_unusable(os.fspath(path))
        wanted = WantedPlace(where.get("tenant_id"), where.get("branch"), where.get("project"))
        found = self.projects.for_reading(os.fspath(path), wanted)
        return self.place(tenant_id=found.tenant_id, collection=where.get("collection"), branch=found.branch)

    def _by_id(self, found: Source | None, place: Place, where: PathPlace) -> Source | None:
        """A document found by its id, if of the tenant asked for, or else of the settings."""
        if found is None or found.place.tenant_id == place.tenant_id:
            return found
        named = where.get("tenant_id") is not None or where.get("project") is not None
        return None if named else _of_tenant(found, self.place().tenant_id)


def catalog_filters(default_tenant: str, **given: Unpack[DocumentFilters]) -> Filters:
    """Check filters and bring them into the form of the catalog."""
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            raise InvalidRequest(f"{name}: expected a text, got {type(value).__name__}")
    file_type = given.get("file_type")
    return Filters(
        tenant_id=validate_name("tenant_id", given.get("tenant_id") or default_tenant),
        collection=given.get("collection"),
        branch=given.get("branch"),
        path=_path(given.get("path"), given.get("library")),
        file_type=file_type.removeprefix(".").lower() if file_type else None,
        tag=given.get("tag"),
        author=given.get("author"),
        title=given.get("title"),
        language=given.get("language"),
        created_from=_time("created_after", given.get("created_after")),
        created_before=_time("created_before", given.get("created_before")),
    )


def _path(path: str | None, library: str | None) -> str | None:
    if library is None:
        return path
    if path is not None:
        raise InvalidRequest("path and library: give one of them", remedy=f"Use the path {LIBRARIES}NAME/*.")
    name, version = parse_requirement(library)
    return f"{library_path(name, version or '')}/*"


def _time(name: str, text: str | None) -> str | None:
    if text is None:
        return None
    found = time_key(text)
    if not found:
        raise InvalidRequest(
            f"{name}: {text[:40]!r} is not a date", remedy="Write a date like 2024-05-01, or a year."
        )
    return found


def renaming(documents: Documents, old: str, new: str, where: MovedWhere) -> Submission:
    """Build the submission to record that a file or folder was moved; nothing is submitted.

    Raises ``UnknownDocument`` where the index has nothing at the old path.
    """
    wanted = WantedPlace(where.get("tenant_id"), None, where.get("project"))
    found = documents.projects.for_reading(old, wanted)
    place = documents.place(
        tenant_id=found.tenant_id, collection=where.get("collection"), branch=found.branch
    )
    # The catalog knows the old path by its name, even if that is a link to somewhere else by now.
    old_path, new_path = paths.shown(old), paths.real(new)
    with documents.catalog.snapshot() as snapshot:
        known = bool(snapshot.known(place, old_path, limit=1))
        recorded = bool(snapshot.known(place, new_path, limit=1))
    if not known:
        _refuse_absent(documents, old, place, recorded=recorded)
    is_folder = os.path.isdir(new) or os.path.isdir(old)  # noqa: PTH112 - it never raises
    payload = {"old_path": old_path, "new_path": new_path, "is_folder": is_folder}
    return {**submission_at(place, "rename", "update", payload), "metadata": found.metadata or None}


def _refuse_absent(documents: Documents, old: str, place: Place, *, recorded: bool) -> None:
    """Refuse a path without a document. A pending job may add one, and a move may be recorded already."""
    reason = documents.why(old, tenant_id=place.tenant_id, collection=place.collection, branch=place.branch)
    if reason.verdict not in _ABSENT or (reason.verdict == "moved" and recorded):
        return
    raise UnknownDocument(
        f"{reason.path} cannot be renamed: {reason.cause}",
        remedy=reason.remedy or "Check the path and the collection.",
    )


def _task_counts(snapshot: CatalogSnapshot) -> dict[str, dict[str, int]]:
    tasks: dict[str, dict[str, int]] = {}
    for (task_type, status), number in snapshot.statistics().items():
        tasks.setdefault(task_type, {})[str(status)] = number
    return tasks


def left_behind(outside: Place, root: str) -> tuple[str, str]:
    """The fact that documents of a project's folder are in another tenant as well, and what to do."""
    command = ["penstock", "delete", root, "--tenant", outside.tenant_id, "--collection", outside.collection]
    return (
        f"documents below {root} are also in tenant {outside.tenant_id}, branch {outside.branch}, from "
        "requests without a project: searches of that tenant find them, and requests of the project do not "
        "update them",
        f"Remove them: {shlex.join(command)}",
    )


def _where(where: Mapping[str, Any]) -> Where:
    return {
        "tenant_id": where.get("tenant_id"),
        "collection": where.get("collection"),
        "branch": where.get("branch"),
    }


def _of_tenant(source: Source | None, tenant_id: str) -> Source | None:
    """The source, unless of another tenant: ids are known outside, in exports and logs."""
    return source if source is not None and source.place.tenant_id == tenant_id else None


DocumentStatus: TypeAlias = Literal["indexed", "partial", "failed", "indexing"]


class DocumentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A document. ``error`` is the failure of its newest content; then search has the former one, or none."""

    source_id: str
    path: str
    title: str
    file_type: str
    tags: tuple[str, ...]
    tenant_id: str
    collection: str
    branch: str
    status: DocumentStatus
    error: str | None
    size: int
    pages: int
    chunks: int
    created_at: datetime
    indexed_at: datetime | None
    properties: StoredProperties


class GenerationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a document, with the status of each phase."""

    number: int
    state: GenerationState
    current: bool
    note: str | None
    job_id: str | None
    pages: int
    chunks: int
    failed: int
    phases: dict[str, TaskStatus]
    created_at: datetime
    published_at: datetime | None


class PageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the newest version."""

    number: int
    chunks: int
    phases: dict[str, TaskStatus]
    engine: str | None
    confidence: float | None
    warnings: tuple[str, ...]
    error: str | None


class DocumentDetail(DocumentRecord, frozen=True, kw_only=True):
    """A document with its versions, newest first, and progress and pages of the newest one.

    ``progress`` has ``filename``, the status of each phase, and its counts of pages and chunks.
    ``time_left_s``: estimate of the time until the newest version is searchable, from the ``rate`` of its
    slowest phase in ``rate_unit`` (pages or chunks) a second, over ``rate_window_s``.
    ``next_page``: the page from which to go on, None at the end.
    """

    generations: list[GenerationRecord]
    progress: dict[str, str | int]
    time_left_s: float | None
    rate: float | None
    rate_window_s: int | None
    rate_unit: str | None
    tree: list[PageRecord]
    next_page: int | None


ChunkRecord = msgspec.defstruct(
    "ChunkRecord",
    [
        ("chunk_id", str),
        ("heading", str | None),
        ("preview", str | None),
        ("first_line", int | None),
        ("last_line", int | None),
        *((str(phase), TaskStatus) for phase in CHUNK_PHASES),
        ("error", str | None),
    ],
    namespace={"__doc__": "A chunk in a tree, with its status by phase."},
    frozen=True,
    kw_only=True,
)


class TreePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page in a tree, with its chunks."""

    page: int
    chunks: list[ChunkRecord]  # type: ignore[valid-type]


class DocumentTree(msgspec.Struct, frozen=True, kw_only=True):
    """The newest version of a document: the status of all pages, and chunks of some.

    ``states`` has one letter a page: p pending, r running, d done, f failed, s skipped, c cancelled, - none.
    """

    source_id: str
    page_count: int
    phases: list[str]
    states: dict[str, str]
    pages: list[TreePage]


class DocumentPage(msgspec.Struct, frozen=True, kw_only=True):
    """Documents, ordered by id. ``next``: the cursor of the next page, None at the end."""

    documents: list[DocumentRecord]
    limit: int
    next: str | None


class ProjectRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that was indexed as a project, and the tenant of its documents."""

    root: str
    tenant_id: str
    name: str
    remote: str


class ProjectList(msgspec.Struct, frozen=True, kw_only=True):
    """The folders of projects, by name and folder."""

    projects: list[ProjectRecord]


class ReasonRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why search does or does not find a path; for a folder with counts, and paths below it."""

    path: str
    verdict: Verdict
    cause: str
    remedy: str
    job_id: str | None
    source_id: str | None
    warnings: tuple[str, ...]
    missing: tuple[str, ...]
    failed_inside: tuple[FailedPath, ...]
    counts: dict[str, int]
    below: tuple[Below, ...]


def reason_record(reason: Reason) -> ReasonRecord:
    """The record of a reason."""
    shared = {name: getattr(reason, name) for name in ReasonRecord.__struct_fields__ if name != "source_id"}
    return ReasonRecord(**shared, source_id=reason.source.source_id if reason.source else None)


class DocumentRecords:
    """Records of documents, as shown by the HTTP server and other interfaces."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def own(self, source_id: str, tenants: Sequence[str]) -> Source:
        """The document with this id (of ``sources`` or ``documents``), of these tenants (none: of any)."""
        with self._documents.catalog.snapshot() as snapshot:
            found = snapshot.identified(source_id)
        if found is None or not found.live or (tenants and found.place.tenant_id not in tenants):
            raise UnknownDocument(f"no document {source_id[:80]!a}")
        return found

    def page(self, *, cursor: str = "", limit: int = 50, **narrowed: Unpack[DocumentFilters]) -> DocumentPage:
        """A page of the documents of one tenant."""
        if not 1 <= limit <= _MAX_DOCUMENTS:
            raise InvalidRequest(f"limit: expected 1 to {_MAX_DOCUMENTS:,}, got {limit}")
        found = self._documents.sources(after=cursor, limit=limit + 1, **narrowed)
        return DocumentPage(
            documents=[DocumentRecord(**_columns(source)) for source in found[:limit]],
            limit=limit,
            next=found[limit - 1].source_id if len(found) > limit else None,
        )

    def ready(
        self, phase: Phase, tenant_id: str, *, collection: str | None = None, limit: int = 50
    ) -> DocumentPage:
        """Documents ready for a phase, oldest first, out of the first 1,000 of all tenants."""
        found: list[DocumentRecord] = []
        with self._documents.catalog.snapshot() as snapshot:
            for progress in snapshot.ready(phase, limit=_MAX_DOCUMENTS):
                document = snapshot.document(progress.document_id)
                source = snapshot.get(document.source_id) if document is not None else None
                if source is None or source.place.tenant_id != tenant_id:
                    continue
                if collection is None or source.place.collection == collection:
                    found.append(DocumentRecord(**_columns(source)))
                if len(found) == limit:
                    break
        return DocumentPage(documents=found, limit=limit, next=None)

    def detail(self, source: Source, *, from_page: int = 1, limit: int = 100) -> DocumentDetail:
        """One document with a part of the pages."""
        if from_page < 1 or not 1 <= limit <= _MAX_PAGES:
            raise InvalidRequest(f"pages: expected a page from 1 on, and a limit of 1 to {_MAX_PAGES:,}")
        with self._documents.catalog.snapshot() as snapshot:
            generations = snapshot.generations(source.source_id)
            newest = generations[0].document_id if generations else None
            progress = snapshot.progress(newest) if newest is not None else None
            pages = snapshot.pages(newest, after=from_page - 1, limit=limit + 1) if newest is not None else []
        return DocumentDetail(
            **_columns(source),
            generations=[_generation(each) for each in generations],
            progress=_progress(progress) if progress is not None else {},
            **time_estimate(generations[0], progress, clock.now()) if progress is not None else _UNKNOWN,
            tree=[_page(page) for page in pages[:limit]],
            next_page=pages[limit].number if len(pages) > limit else None,
        )

    def tree(self, source: Source, *, first: int = 1, last: int = 200) -> DocumentTree:
        """The newest version of one document in compact form; pages first to last have their chunks."""
        if first < 1 or not 0 <= last - first < _MAX_PAGES:
            raise InvalidRequest(f"first, last: expected a range of 1 to {_MAX_PAGES:,} pages")
        with self._documents.catalog.snapshot() as snapshot:
            generations = snapshot.generations(source.source_id)
            if not generations:
                return DocumentTree(
                    source_id=source.source_id, page_count=0, phases=_PHASE_NAMES, states={}, pages=[]
                )
            newest = generations[0].document_id
            statuses = snapshot.page_statuses(newest)
            pages = snapshot.pages(newest, after=first - 1, limit=last - first + 1)
            chunks = {page.number: snapshot.chunks(page.page_id) for page in pages}
            shown = [chunk.content_id for page in chunks.values() for chunk in page]
            texts = dict(zip(shown, snapshot.hydrate(shown), strict=True))
        return DocumentTree(
            source_id=source.source_id,
            page_count=len(statuses),
            phases=_PHASE_NAMES,
            states=_letters(statuses),
            pages=[
                TreePage(page=number, chunks=[_chunk(chunk, texts[chunk.content_id]) for chunk in own])
                for number, own in chunks.items()
                if number <= last
            ],
        )


def _letters(statuses: Sequence[tuple[int, Sequence[str]]]) -> dict[str, str]:
    """One letter for each page from the first number on, by phase."""
    numbers = [row[0] for row in statuses]
    found = {phase: ["-"] * (max(numbers) - min(numbers) + 1 if numbers else 0) for phase in _PHASE_NAMES}
    for number, states in statuses:
        for phase, state in zip(_PHASE_NAMES, states, strict=True):
            found[phase][number - numbers[0]] = _LETTERS.get(state, "-")
    return {phase: "".join(letters) for phase, letters in found.items()}


def _chunk(chunk: ChunkState, text: ChunkView | None) -> Any:
    states = {str(phase): state for phase, state in chunk.phases.items()}
    errors = [state.error for state in states.values() if state.status is TaskStatus.FAILED]
    return ChunkRecord(
        chunk_id=chunk.chunk_id,
        heading=text.heading_path or None if text else None,
        preview=text.text[:_PREVIEW] if text else None,
        first_line=text.first_line if text else None,
        last_line=text.last_line if text else None,
        **{phase: state.status for phase, state in states.items()},
        error=next((error for error in errors if error), None),
    )


def _columns(source: Source) -> dict[str, Any]:
    return {
        "source_id": source.source_id,
        "path": source.path,
        "title": source.title,
        "file_type": source.file_type,
        "tags": source.tags,
        "tenant_id": source.place.tenant_id,
        "collection": source.place.collection,
        "branch": source.place.branch,
        "status": _status(source),
        "error": source.failure.error,
        "size": source.size,
        "pages": source.page_count,
        "chunks": source.chunk_count,
        "created_at": source.created_at,
        "indexed_at": source.published_at,
        "properties": source.properties,
    }


def _status(source: Source) -> DocumentStatus:
    if source.failed:
        return "failed"
    if source.published_id is None:
        return "indexing"
    return "partial" if source.partial else "indexed"


def _generation(document: Document) -> GenerationRecord:
    return GenerationRecord(
        number=document.document_id,
        state=document.state,
        current=document.current,
        note=document.note,
        job_id=document.job_id,
        pages=document.page_count,
        chunks=document.chunk_count,
        failed=document.failed_count,
        phases={str(phase): state.status for phase, state in document.phases.items()},
        created_at=document.created_at,
        published_at=document.published_at,
    )


def time_estimate(document: Document, progress: Progress, now: datetime) -> dict[str, Any]:
    """The time until a version is searchable; unknown before every phase has completed a page or chunk."""
    if document.state is not GenerationState.BUILDING:
        return _UNKNOWN
    window = max((now - document.created_at).total_seconds(), 1.0)
    pages = progress.ocr_completed_pages + progress.ocr_failed_pages
    reads = progress.status[Phase.OCR] in _OPEN
    # Pages that are not yet read will have chunks as well.
    chunks = (
        progress.total_chunks * progress.total_pages / pages if reads and pages else progress.total_chunks
    )
    embedded = progress.completed_chunks[Phase.VECTOR]
    phases: list[tuple[str, float, int]] = [("pages", progress.total_pages, pages)] if reads else []
    if progress.status[Phase.VECTOR] in _OPEN:
        phases.append(("chunks", chunks, embedded))
    if not phases or any(not ended for _, _, ended in phases):
        return _UNKNOWN
    left, unit, ended = max(
        (max(total - ended, 0) * window / ended, unit, ended) for unit, total, ended in phases
    )
    return {
        "time_left_s": round(left, 1),
        "rate": round(ended / window, 3),
        "rate_window_s": round(window),
        "rate_unit": unit,
    }


def _page(page: PageState) -> PageRecord:
    return PageRecord(
        number=page.number,
        chunks=page.chunk_count,
        phases={str(phase): state.status for phase, state in page.phases.items()},
        engine=page.engine or None,
        confidence=page.confidence,
        warnings=page.warnings,
        error=page.error,
    )


def _progress(progress: Progress) -> dict[str, str | int]:
    found: dict[str, str | int] = {"filename": progress.filename}
    found |= {f"{phase}_status": str(status) for phase, status in progress.status.items()}
    for name in ("total_pages", "ocr_completed_pages", "ocr_failed_pages", "total_chunks"):
        found[name] = getattr(progress, name)
    found |= {f"{phase}_completed_chunks": number for phase, number in progress.completed_chunks.items()}
    return found
