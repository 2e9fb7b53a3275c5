"""Jobs of item types ``folder`` and ``project``: compare the disk with the catalog, one child per difference.

Both sides are read in the order of paths, so that a million files need no more memory than ten.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec

from penstock import clock
from penstock.catalog.protocol import Catalog, CatalogCursor, known_below, ledger_below
from penstock.catalog.values import KnownSource, Removal, Walk
from penstock.errors import NothingToIndex, PermanentFailure
from penstock.handlers.context import MAX_CHILDREN, Context, Later, ProgressReport, Wait
from penstock.handlers.file_request import FileComparison, warn_of_mismatches
from penstock.handlers.members import ContainerFile, behind_link, container_of, published_members
from penstock.handlers.missing_files import MoveDetection, UnknownFile, gone_for_sure, missing
from penstock.handlers.notes import ModelCheck
from penstock.handlers.reindex import (
    MOVED_AWAY,
    OUTDATED,
    Reindex,
    TypeCounts,
    WalkCounts,
    WalkLedger,
    file_job,
    same_job,
)
from penstock.handlers.removal import remove_all
from penstock.pipeline.pipeline import Pipeline, chunk_sizes
from penstock.pipeline.walk.ignore import (
    BINDING,
    FoundFile,
    Repository,
    Rule,
    Skipped,
    Unreadable,
    WalkRules,
)
from penstock.pipeline.walk.no_links import BehindLink, open_folder
from penstock.pipeline.walk.repository import SWITCHING, WORK_TREE, checked_out, other_state
from penstock.pipeline.walk.walker import walk
from penstock.queue import payloads
from penstock.queue.job import NewJob
from penstock.queue.payloads import FilePayload, FolderPayload, ProjectPayload, Walked
from penstock.queue.schedules import SCHEDULE

_SWITCH_DELAY = timedelta(seconds=1)


def other_branch(context: Context) -> dict[str, Any] | Later | None:
    """The result of a job for a branch not, or not yet, checked out; None: the job can go on."""
    root = context.metadata.get(WORK_TREE)
    reason = other_state(root, context.claim.branch) if isinstance(root, str) else None
    if reason is None:
        return None
    return Later(reason, _SWITCH_DELAY) if reason == SWITCHING else {"outcome": "kept", "note": reason}


def scheduled_for_another(context: Context) -> Wait | None:
    """Let a child do the work of a schedule's job, which is for the branch that is checked out at its time.

    None: the job is of no schedule, or its branch is checked out.
    """
    root = context.metadata.get(WORK_TREE)
    if not isinstance(root, str) or SCHEDULE not in context.metadata or context.claim.parent_id is not None:
        return None
    branch = checked_out(root)
    if branch is None or branch == context.claim.branch:
        return None
    context.expand([same_job(context, clock.new_id(), branch)])
    result = {"outcome": "indexed", "note": f"branch {branch} is checked out"}
    return Wait(progress_json=context.last_progress, result_json=msgspec.json.encode(result).decode())


class Folders:
    def __init__(
        self, catalog: Catalog, pipeline: Pipeline, state_dirs: tuple[str, ...], checkpoint_interval: int
    ) -> None:
        self.catalog = catalog
        self.pipeline = pipeline
        self.state_dirs = state_dirs
        self.checkpoint_interval = checkpoint_interval
        self._model = ModelCheck(catalog, pipeline.embedder)

    def ingest(self, context: Context) -> Any:
        self._model.check()
        if context.metadata.get(OUTDATED):
            return Reindex(self.catalog, self.pipeline, context, _payload(context).identifier).run()
        elsewhere = scheduled_for_another(context) or other_branch(context)
        return elsewhere or _FolderWalk(self, context).run()

    def scan(self, context: Context) -> Any:
        """Like ``ingest``, but the children have the priority of a scan."""
        self._model.check()
        if (elsewhere := scheduled_for_another(context) or other_branch(context)) is not None:
            return elsewhere
        folder_walk = _FolderWalk(self, context)
        folder_walk.priority = payloads.SCAN
        return folder_walk.run()

    def delete(self, context: Context) -> dict[str, Any]:
        claim, payload = context.claim, _payload(context)
        everything = isinstance(payload, FolderPayload) and payload.whole_collection
        removal = Removal(
            tenant_id=claim.tenant_id,
            collection=claim.collection,
            branch=None if everything else claim.branch,
            path=None if everything else payload.identifier,
            asked_at=context.asked_at,
        )
        return {"outcome": "removed", "removed": remove_all(self.catalog, removal)}


class _ChildFile(msgspec.Struct, frozen=True):
    """A file to index, or (``delete``) to remove because of a rule."""

    path: str
    op: str
    size: int | None = None
    inside: bool = False
    """The file is inside another one."""


class _FolderWalk:
    """The walk of one job."""

    def __init__(self, folders: Folders, context: Context) -> None:
        payload = _payload(context)
        self._catalog = folders.catalog
        self._pipeline = folders.pipeline
        self._context = context
        self._payload = payload
        self._state_dirs = folders.state_dirs
        self._checkpoint_interval = folders.checkpoint_interval
        self._place = context.place
        self._root = payload.identifier
        self._metadata = context.metadata
        sizes = chunk_sizes(payload.chunk_size, payload.chunk_overlap)
        self._comparison = FileComparison(
            folders.pipeline, sizes, context.metadata, graph=payload.graph, ocr=payload.ocr
        )
        self._children: list[_ChildFile] = []
        self._added: list[FoundFile] = []
        self._root_is_known = False
        self._missing_range: tuple[str, str] | None = None
        """First and last path known but not found; those between are read again later, to save memory."""
        self._ledger = WalkLedger(folders.catalog, context, payload.identifier)
        self._unreadable: set[str] = set()
        """Folders that could not be read: known sources below them are kept."""
        self._ignored: set[str] = set()
        """Paths excluded by an ignore file or replaced by a link: known sources there are removed."""
        self._too_large: set[str] = set()
        """Files above the size limit. A job for a known one reports the failure."""
        self._counts = WalkCounts()
        self._types = TypeCounts()
        self.priority = payloads.child_priority(context.claim.priority)

    def run(self) -> Any:
        _refuse_missing(self._root)
        warn_of_mismatches(self._context, self._payload)
        self._announce()
        self._count_earlier_run()
        known = CatalogCursor(self._catalog, self._place, self._root)
        had_any = self._root_is_known = known.any
        for found in self._found():
            for source in known.before(found.path):
                self._record_missing(source)
            self._compare(found, known.at(found.path))
            if self._counts.seen % self._checkpoint_interval == 0:
                self._report_progress(found.path)
        self._send_added()
        removes = self._payload.operation == "index"
        if removes and (self._counts.seen or self._counts.skipped or self._metadata.get(MOVED_AWAY)):
            # An empty root removes nothing: it may be an unmounted disk.
            for source in known.rest():
                self._record_missing(source)
            self._send_vanished()
        self._send_archives()
        self._flush()
        if not self._counts.seen and not had_any and not self._metadata.get("allow_empty"):
            skipped = f" ({self._counts.skipped:,} skipped)" if self._counts.skipped else ""
            raise NothingToIndex(f"{self._root}: the folder holds nothing to index{skipped}")
        if not self._counts.sent:
            outcome = "indexed" if self._counts.resumed else "moved" if self._counts.moved else "unchanged"
            return self._result(outcome)
        self._report_progress(stage="indexing")
        result = msgspec.json.encode(self._result("indexed")).decode()
        return Wait(progress_json=self._context.last_progress, result_json=result)

    def _result(self, outcome: str) -> dict[str, Any]:
        counts = self._counts.as_dict() | {"types": self._types.as_dict()}
        return {"outcome": outcome, "include_code": self._payload.include_code} | counts

    def _count_earlier_run(self) -> None:
        """Count the files indexed by the former run of this job after this run was requested."""
        if self._context.claim.run > 1:
            with self._catalog.snapshot() as snapshot:
                where = (self._place, self._root, self._context.asked_at)
                self._counts.resume(snapshot.published_since(*where), published_members(snapshot, *where))

    def _announce(self) -> None:
        """Record this walk before the start: unchanged files leave no other trace of the request."""
        rules = msgspec.json.encode(self._rules()).decode()
        self._catalog.announce(
            Walk(place=self._place, root=self._root, rules=rules, asked_at=self._context.asked_at)
        )

    # Files on disk.

    def _found(self) -> Iterator[FoundFile]:
        for report in walk(self._root, self._rules()):
            match report:
                case FoundFile():
                    self._counts.seen += 1
                    yield FoundFile(f"{self._root}/{report.path}", report.size, report.mtime_ns)
                case Skipped():
                    self._counts.skip(report.rule)
                    if not report.directory:
                        self._types.add(report.path, "skipped")
                    if report.rule in BINDING:
                        self._ignored.add(self._ledger.path_of(report))
                    elif report.rule is Rule.TOO_LARGE:
                        self._too_large.add(self._ledger.path_of(report))
                    self._ledger.record(report)
                case Unreadable():
                    self._counts.unreadable += 1
                    self._unreadable.add(self._ledger.path_of(report))
                    self._ledger.record(report)
                case Repository():
                    continue

    def _rules(self) -> WalkRules:
        payload = self._payload
        depth = payload.recursive_depth if payload.recursive else 1
        return WalkRules(
            include=payload.patterns,
            exclude=payload.ignore_patterns,
            include_code=payload.include_code,
            archives=payload.archives,
            max_bytes=self._pipeline.limits.file_bytes,
            max_depth=depth,
            state_dirs=self._state_dirs,
        )

    # Differences.

    def _compare(self, found: FoundFile, known: KnownSource | None) -> None:
        if known is None:
            self._added.append(found)
            if len(self._added) >= MAX_CHILDREN:
                self._send_added()
        elif self._comparison.fails_again(found, known):
            self._counts.failed_before += 1
            self._counts.without_job += 1
        elif self._comparison.unchanged(found, known):
            self._counts.unchanged += 1
            self._counts.without_job += 1
            self._counts.other_extractor = self._comparison.other_extractor
            self._types.add(found.path, "unchanged")
        else:
            self._counts.changed += 1
            self._send(_ChildFile(found.path, "ingest", found.size))

    def _send_added(self) -> None:
        """Send children for new files. Moved files are renamed at once and need no job."""
        added, self._added = self._added, []
        if not added:
            return
        detection = MoveDetection(
            self._catalog,
            self._place,
            limits=self._pipeline.limits,
            gone=self._gone,
            # Files in a new folder are new, or moved with their modification times.
            other_times=self._root_is_known,
        )
        files = [UnknownFile(found.path, found.size, found.mtime_ns) for found in added]
        moved = detection.move(files, self._context.asked_at)
        self._counts.moved += len(moved)
        for found in added:
            source = moved.get(found.path)
            if source is None:
                self._counts.added += 1
            elif self._comparison.unchanged(found, source, moved=True):
                self._counts.without_job += 1
                self._types.add(found.path, "unchanged")
                continue
            else:
                self._counts.changed += 1
            self._send(_ChildFile(found.path, "ingest", found.size))

    def _gone(self, path: str) -> bool:
        if not path.startswith(f"{self._root}/"):
            return gone_for_sure(path)
        # This root was just walked: it is mounted.
        return missing(path) and not _covered(path, self._unreadable)

    def _record_missing(self, known: KnownSource) -> None:
        first, _ = self._missing_range or (known.path, "")
        self._missing_range = (first, known.path)

    def _send_vanished(self) -> None:
        """Send children for known sources not found. Runs last, after moved files were renamed."""
        if self._missing_range is None:
            return
        first, last = self._missing_range
        for known in known_below(self._catalog, self._place, self._root, after=first[:-1]):
            if known.path > last:
                return
            self._vanished(known)

    def _vanished(self, known: KnownSource) -> None:
        """Send a child for a missing, replaced or newly ignored file. A narrower filter removes nothing."""
        if _covered(known.path, self._unreadable):
            return
        container = container_of(known.path)
        if container is not None and not _covered(known.path, self._ignored):
            self._check_member(known, container)
            return
        try:
            status = os.lstat(known.path)
            still_a_file = stat.S_ISREG(status.st_mode)
        except (FileNotFoundError, NotADirectoryError):
            op = "ingest"
        except OSError:
            # Unknown: the path may be readable again later.
            return
        else:
            if still_a_file and known.path in self._too_large:
                found = FoundFile(known.path, status.st_size, status.st_mtime_ns)
                if self._comparison.fails_again(found, known):
                    self._counts.failed_before += 1
                    return
                self._counts.changed += 1
                self._send(_ChildFile(known.path, "ingest"))
                return
            if still_a_file and not _covered(known.path, self._ignored):
                return
            op = "delete"
        self._counts.vanished += 1
        self._send(_ChildFile(known.path, op))

    def _send_archives(self) -> None:
        """Send children for archives inside mail skipped by an earlier walk."""
        if not self._payload.archives:
            return
        for entry in ledger_below(self._catalog, self._place, self._root):
            if entry.rule == Rule.ARCHIVE and container_of(entry.path) is not None:
                self._send(_ChildFile(entry.path, "ingest", inside=True))

    def _check_member(self, known: KnownSource, container: ContainerFile) -> None:
        """Send a child for an outdated member of an up-to-date container."""
        if self._comparison.reads_all or not self._comparison.member_outdated(known, container.mtime_ns):
            return
        with self._catalog.snapshot() as snapshot:
            above = next(iter(snapshot.known(self._place, container.path, limit=1)), None)
        # Otherwise the job of the container sends its members.
        if (
            above is not None
            and above.path == container.path
            and self._comparison.unchanged(
                FoundFile(container.path, container.size, container.mtime_ns), above
            )
        ):
            self._send(_ChildFile(known.path, "ingest", known.size, inside=True))

    def _send(self, child: _ChildFile) -> None:
        self._counts.bytes += child.size or 0
        if child.inside:
            self._counts.inside += 1
        elif child.size is not None:
            self._types.add(child.path, "read")
        self._children.append(child)
        if len(self._children) >= MAX_CHILDREN:
            self._flush()

    def _flush(self) -> None:
        self._ledger.write()
        if not self._children:
            return
        children, self._children = self._children, []
        ids = clock.new_ids(len(children))
        new = [self._job(queue_id, child) for queue_id, child in zip(ids, children, strict=True)]
        self._counts.sent += len(new)
        self._context.expand(new, progress=self._progress(children[-1].path))
        self._report_progress(children[-1].path)

    def _job(self, queue_id: str, child: _ChildFile) -> NewJob:
        payload = FilePayload(
            file_path=child.path,
            size_bytes=child.size,
            chunk_size=self._payload.chunk_size,
            chunk_overlap=self._payload.chunk_overlap,
            graph=self._payload.graph,
            gate=self._payload.gate,
            archives=self._payload.archives,
            ocr=self._payload.ocr,
        )
        return file_job(self._context, queue_id, child.op, payload, priority=self.priority)

    def _report_progress(self, current_file: str | None = None, *, stage: str = "walking") -> None:
        self._context.report(self._progress(current_file, stage=stage))

    def _progress(self, current_file: str | None, *, stage: str = "walking") -> ProgressReport:
        counts = self._counts.as_dict(waiting=len(self._children) + len(self._added))
        total = None if stage == "walking" else counts["total"]
        return ProgressReport(self._counts.without_job, total, stage, current_file, counts)


def _payload(context: Context) -> Walked:
    model = FolderPayload if context.claim.item_type == "folder" else ProjectPayload
    return msgspec.convert(context.payload, model)


def _refuse_missing(root: str) -> None:
    """Raise for a missing root, maybe on an unmounted disk, and for a link: nothing is removed then."""
    try:
        os.close(open_folder(root))
    except FileNotFoundError:
        raise PermanentFailure(f"{root} does not exist", code="ERR_FILE_NOT_FOUND") from None
    except BehindLink:
        raise behind_link(root) from None


def _covered(path: str, folders: set[str]) -> bool:
    """Check whether the path, or a folder above, is among these."""
    while path:
        if path in folders:
            return True
        path = path.rpartition("/")[0]
    return False
