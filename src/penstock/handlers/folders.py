"""Jobs of item types ``folder`` and ``project``: compare the disk with the catalog, and send what differs.

Both are read in the order of their paths, side by side, so that a million files need no more memory than ten.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from penstock import clock, items
from penstock.catalog.pagination import known_below
from penstock.catalog.protocol import BATCH, Catalog
from penstock.catalog.values import FailedFile, Fingerprints, LedgerEntry, LedgerKind, Removal, Walk
from penstock.catalog.views import KnownSource
from penstock.errors import NothingToIndex
from penstock.handlers.catalog_cursor import CatalogCursor, FailedFileCursor
from penstock.handlers.child_jobs import MOVED_AWAY, file_job
from penstock.handlers.context import MOST_CHILDREN, Context
from penstock.handlers.declared_facts import warn_of_mismatches
from penstock.handlers.model_check import ModelCheck
from penstock.handlers.move_detection import MoveDetection, UnknownFile, gone_for_sure, missing
from penstock.handlers.registry import Wait
from penstock.handlers.reindex import OUTDATED, Reindex
from penstock.handlers.removal import remove_all
from penstock.job import NewJob
from penstock.payloads import FilePayload, FolderPayload, ProjectPayload, Walked
from penstock.pipeline.extract import file_types
from penstock.pipeline.pipeline import Pipeline, chunk_sizes
from penstock.pipeline.walk.protocol import (
    BINDING,
    FoundFile,
    Repository,
    Rule,
    Skipped,
    Unreadable,
    WalkRules,
)
from penstock.pipeline.walk.walker import walk


class WalkCounts(msgspec.Struct):
    """What a walk found, in the words of its result."""

    seen: int = 0
    unchanged: int = 0
    failed_before: int = 0
    """Failed for good in an earlier walk, and unchanged since: not read again."""
    changed: int = 0
    added: int = 0
    moved: int = 0
    vanished: int = 0
    skipped: int = 0
    unreadable: int = 0
    bytes: int = 0
    """Of the files sent: what is left of them says how long it may take."""

    def told(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


class Folders:
    def __init__(
        self, catalog: Catalog, recipe: Pipeline, state_dirs: tuple[str, ...], checkpoint_interval: int
    ) -> None:
        self.catalog = catalog
        self.recipe = recipe
        self.state_dirs = state_dirs
        self.checkpoint_interval = checkpoint_interval
        self._model = ModelCheck(catalog, recipe.embedder)

    def ingest(self, context: Context) -> Any:
        self._model.refuse_another()
        if context.metadata.get(OUTDATED):
            return Reindex(self.catalog, self.recipe, context, _payload(context).identifier).run()
        return _FolderWalk(self, context).run()

    def scan(self, context: Context) -> Any:
        """The same, for later: the children have the priority of a scan."""
        self._model.refuse_another()
        walk_ = _FolderWalk(self, context)
        walk_.priority = items.SCAN
        return walk_.run()

    def delete(self, context: Context) -> dict[str, Any]:
        claim, root = context.claim, _payload(context).identifier
        removal = Removal(
            tenant_id=claim.tenant_id,
            collection=claim.collection,
            branch=claim.branch,
            path=root,
            asked_at=context.asked_at,
        )
        return {"outcome": "removed", "removed": remove_all(self.catalog, removal)}


class _ChildFile(NamedTuple):
    """A file to look at, or (``delete``) one that the rules no longer want."""

    path: str
    op: str
    size: int | None = None


class _FolderWalk:
    """One job's walk."""

    def __init__(self, folders: Folders, context: Context) -> None:
        claim, payload = context.claim, _payload(context)
        self._catalog = folders.catalog
        self._recipe = folders.recipe
        self._context = context
        self._payload = payload
        self._state_dirs = folders.state_dirs
        self._checkpoint_interval = folders.checkpoint_interval
        self._place = context.place
        self._root = payload.identifier
        self._metadata: dict[str, Any] = msgspec.json.decode(claim.metadata)
        self._sizes = chunk_sizes(payload.chunk_size, payload.chunk_overlap)
        self._fingerprints: dict[str, Fingerprints] = {}
        self._children: list[_ChildFile] = []
        self._added: list[FoundFile] = []
        self._known_root = False
        self._missed: tuple[str, str] | None = None
        """The first and the last path known but not found; which of those between are gone is asked later."""
        self._notes: list[LedgerEntry] = []
        self._kept: set[str] = set()
        """Folders the system would not show: what is known below them stays."""
        self._ignored: set[str] = set()
        """What a file of rules leaves out, or a link has taken the place of: should it, or what is below it,
        be known from before, it goes."""
        self._outgrown: set[str] = set()
        """Too large to be read: should it be known from before, its job says so."""
        self._tally = WalkCounts()
        self.priority = items.child_priority(claim.priority)

    def run(self) -> Any:
        _refuse_missing(self._root)
        warn_of_mismatches(self._context, self._payload)
        self._announce()
        known = CatalogCursor(self._catalog, self._place, self._root)
        had_any = self._known_root = known.any
        failed_before = FailedFileCursor(self._catalog, self._place, self._root)
        for found in self._found():
            for source in known.before(found.path):
                self._miss(source)
            before, failed = known.at(found.path), failed_before.at(found.path)
            if failed is not None and self._fails_again(found, failed):
                self._tally.failed_before += 1
            else:
                self._compare(found, before)
            if self._tally.seen % self._checkpoint_interval == 0:
                self._tell()
        self._send_added()
        if self._tally.seen or self._tally.skipped or self._metadata.get(MOVED_AWAY):
            # An empty root removes nothing: it may be a disk that is not mounted.
            for source in known.rest():
                self._miss(source)
            self._send_vanished()
        self._flush()
        if not self._tally.seen and not had_any and not self._metadata.get("allow_empty"):
            raise NothingToIndex(
                f"{self._root}: nothing in it can be indexed ({self._tally.skipped:,} skipped)"
            )
        sent = self._tally.changed + self._tally.added + self._tally.vanished
        if not sent:
            return {"outcome": "moved" if self._tally.moved else "unchanged"} | self._tally.told()
        self._tell()
        return Wait(progress_json=self._context.told)

    def _announce(self) -> None:
        """Before the first look: what is found unchanged leaves no other trace that somebody asked for it."""
        rules = msgspec.json.encode(self._rules()).decode()
        self._catalog.announce(
            Walk(place=self._place, root=self._root, rules=rules, asked_at=self._context.asked_at)
        )

    # What the disk has.

    def _found(self) -> Iterator[FoundFile]:
        for report in walk(self._root, self._rules()):
            match report:
                case FoundFile():
                    self._tally.seen += 1
                    yield FoundFile(f"{self._root}/{report.path}", report.size, report.mtime_ns)
                case Skipped():
                    self._tally.skipped += 1
                    if report.rule in BINDING:
                        self._ignored.add(self._below(report.path))
                    elif report.rule is Rule.TOO_LARGE:
                        self._outgrown.add(self._below(report.path))
                    self._note(report)
                case Unreadable():
                    self._tally.unreadable += 1
                    self._kept.add(self._below(report.path))
                    self._note(report)
                case Repository():
                    continue

    def _rules(self) -> WalkRules:
        payload = self._payload
        depth = payload.recursive_depth if payload.recursive else 1
        return WalkRules(
            include=payload.patterns,
            exclude=payload.ignore_patterns,
            include_code=payload.include_code,
            max_bytes=self._recipe.limits.file_bytes,
            max_depth=depth,
            state_dirs=self._state_dirs,
        )

    def _below(self, path: str) -> str:
        return f"{self._root}/{path}" if path not in ("", ".") else self._root

    def _note(self, report: Skipped | Unreadable) -> None:
        skipped = isinstance(report, Skipped)
        rule = str(report.rule) if isinstance(report, Skipped) else report.code
        cause = report.rule.meaning if isinstance(report, Skipped) else report.reason
        if isinstance(report, Skipped) and report.detail:
            cause = f"{cause} ({report.detail})"
        self._notes.append(
            LedgerEntry(
                place=self._place,
                path=self._below(report.path),
                kind=LedgerKind.SKIPPED if skipped else LedgerKind.FAILED,
                rule=rule,
                cause=cause,
                job_id=self._context.job_id,
            )
        )
        if len(self._notes) >= BATCH:
            self._write_notes()

    # What differs.

    def _compare(self, found: FoundFile, known: KnownSource | None) -> None:
        if known is None:
            self._added.append(found)
            if len(self._added) >= MOST_CHILDREN:
                self._send_added()
        elif self._unchanged(found, known):
            self._tally.unchanged += 1
        else:
            self._tally.changed += 1
            self._send(_ChildFile(found.path, "ingest", found.size))

    def _send_added(self) -> None:
        """What is known under another path, where it is no more, is renamed at once and needs no job."""
        added, self._added = self._added, []
        if not added:
            return
        twins = MoveDetection(
            self._catalog,
            self._place,
            most_bytes=self._recipe.limits.file_bytes,
            gone=self._gone,
            # Into a folder that is new here files come by a move, which keeps their times, or are new.
            other_times=self._known_root,
        )
        files = [UnknownFile(found.path, found.size, found.mtime_ns) for found in added]
        moved = twins.move(files, self._context.asked_at)
        self._tally.moved += len(moved)
        for found in added:
            was = moved.get(found.path)
            if was is None:
                self._tally.added += 1
            elif self._unchanged(found, was, moved=True):
                continue
            else:
                self._tally.changed += 1
            self._send(_ChildFile(found.path, "ingest", found.size))

    def _gone(self, path: str) -> bool:
        if not path.startswith(f"{self._root}/"):
            return gone_for_sure(path)
        # This root was just walked: it is no disk that is away.
        return missing(path) and not _covered(path, self._kept)

    def _unchanged(self, found: FoundFile, known: KnownSource, *, moved: bool = False) -> bool:
        """``moved``: its content was just compared."""
        if self._metadata.get("rebuild") or (self._metadata.get("checksum") and not moved):
            return False
        wanted = self._wanted(found.path)
        same = moved or (known.size, known.mtime_ns) == (found.size, found.mtime_ns)
        made_so = (known.ocr_fingerprint, known.vector_fingerprint) == (wanted.ocr, wanted.vector)
        return same and made_so and known.published_id is not None and not known.partial

    def _fails_again(self, found: FoundFile, failed: FailedFile) -> bool:
        if self._metadata.get("rebuild") or self._metadata.get("checksum"):
            return False
        same = (failed.size, failed.mtime_ns) == (found.size, found.mtime_ns)
        return same and failed.made_with == self._recipe.made_with(self._wanted(found.path))

    def _wanted(self, path: str) -> Fingerprints:
        """By suffix: asked for once, not once a file."""
        name = path.rpartition("/")[2]
        suffix = name.rpartition(".")[2]
        if file_types.known_by_whole_name(name):
            suffix = name
        found = self._fingerprints.get(suffix)
        if found is None:
            found = self._fingerprints[suffix] = self._recipe.fingerprints(path, self._sizes)
        return found

    def _miss(self, known: KnownSource) -> None:
        first, _ = self._missed or (known.path, "")
        self._missed = (first, known.path)

    def _send_vanished(self) -> None:
        """Last of all, and asked anew: what turned up elsewhere is not under its old path any more. Only the
        ends of the stretch are remembered, so that a million files need no more memory than ten."""
        if self._missed is None:
            return
        first, last = self._missed
        for known in known_below(self._catalog, self._place, self._root, after=first[:-1]):
            if known.path > last:
                return
            self._vanished(known)

    def _vanished(self, known: KnownSource) -> None:
        """Known, but not found by the walk. Only what is gone, no file any more, or newly ignored, goes: a
        request with a narrower filter removes nothing.
        """
        if _covered(known.path, self._kept):
            return
        try:
            still_a_file = stat.S_ISREG(os.lstat(known.path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            op = "ingest"
        except OSError:
            # Nobody knows; it may be back tomorrow.
            return
        else:
            if still_a_file and known.path in self._outgrown:
                self._tally.changed += 1
                self._send(_ChildFile(known.path, "ingest"))
                return
            if still_a_file and not _covered(known.path, self._ignored):
                return
            op = "delete"
        self._tally.vanished += 1
        self._send(_ChildFile(known.path, op))

    def _send(self, child: _ChildFile) -> None:
        self._tally.bytes += child.size or 0
        self._children.append(child)
        if len(self._children) >= MOST_CHILDREN:
            self._flush()

    def _flush(self) -> None:
        self._write_notes()
        if not self._children:
            return
        children, self._children = self._children, []
        ids = clock.new_ids(len(children))
        new = [self._job(queue_id, child) for queue_id, child in zip(ids, children, strict=True)]
        self._context.expand(new)
        self._tell()

    def _job(self, queue_id: str, child: _ChildFile) -> NewJob:
        payload = FilePayload(
            file_path=child.path,
            size_bytes=child.size,
            chunk_size=self._payload.chunk_size,
            chunk_overlap=self._payload.chunk_overlap,
        )
        return file_job(self._context, queue_id, child.op, payload, priority=self.priority)

    def _write_notes(self) -> None:
        notes, self._notes = self._notes, []
        if notes:
            self._catalog.note(notes)

    def _tell(self) -> None:
        self._context.progress(self._tally.seen, None, "walking", **self._tally.told())


def _payload(context: Context) -> Walked:
    model = FolderPayload if context.claim.item_type == "folder" else ProjectPayload
    return msgspec.convert(context.payload, model)


def _refuse_missing(root: str) -> None:
    """A root that is gone, or is no directory, removes nothing: it may be a disk that is not mounted."""
    with os.scandir(root):
        return


def _covered(path: str, folders: set[str]) -> bool:
    """Whether the path, or a folder it lies in, is among these."""
    while path:
        if path in folders:
            return True
        path = path.rpartition("/")[0]
    return False
