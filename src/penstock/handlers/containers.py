"""Documents of a container's members: one child job for each member that differs from the catalog."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from penstock import clock
from penstock.catalog.protocol import BATCH, Catalog, known_below, ledger_below
from penstock.catalog.rules.paths import at_and_above
from penstock.catalog.rules.publication import FailedReading, ReadFile, failed_generation
from penstock.catalog.values import FailureKind, KnownSource, LedgerEntry, LedgerKind, Removal, Source, Touch
from penstock.handlers.context import MAX_CHILDREN, Context
from penstock.handlers.file_request import FileComparison, FileRequest
from penstock.handlers.generations import MAX_DOCUMENTS
from penstock.handlers.members import (
    MAX_DEPTH,
    NOT_READ,
    Container,
    FileContent,
    may_hold_members,
    safely_named,
)
from penstock.handlers.reindex import OUTDATED, file_job
from penstock.handlers.removal import remove_all
from penstock.pipeline.draft import keep_reading
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.protocol import Attachment, Content
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.walk.ignore import Rule, WalkRules, rule_of_folder, rule_of_name
from penstock.queue import payloads
from penstock.queue.job import NewJob
from penstock.queue.payloads import FilePayload
from penstock.vocabulary import how_many


def _member_job(
    context: Context, request: FileRequest, path: str, size: int, *, archives: bool | None = None
) -> NewJob:
    """A child job for one file inside a container. ``archives``: by default as for the container."""
    payload = FilePayload(
        file_path=path,
        size_bytes=size,
        chunk_size=context.payload.get("chunk_size"),
        chunk_overlap=context.payload.get("chunk_overlap"),
        graph=request.graph,
        gate=request.gate.value,
        archives=request.archives if archives is None else archives,
        ocr=request.ocr,
    )
    metadata = context.metadata | {payloads.ASKED_AT: context.asked_at.isoformat()}
    if request.retry_failed:
        metadata[payloads.RETRY_FAILED] = True
    if request.delivered is not None:
        read_from = request.read_from + path[len(request.path) :]
        delivered = msgspec.structs.replace(request.delivered, read_from=read_from, source_type=None)
        metadata[payloads.ARRIVAL] = msgspec.to_builtins(delivered)
    encoded = msgspec.json.encode(metadata).decode()
    priority = payloads.child_priority(context.claim.priority)
    return file_job(context, clock.new_id(), "ingest", payload, priority=priority, metadata=encoded)


def send_outdated(
    catalog: Catalog, pipeline: Pipeline, context: Context, request: FileRequest, known: Source, mtime_ns: int
) -> bool:
    """Send jobs for outdated members of an unchanged container; False: none is outdated.

    They failed and are to be tried again, their jobs were lost, or another way of making documents was asked
    for.
    ``mtime_ns``: the time of the container, which its members have too.
    """
    # A reindex sends the members itself.
    if context.metadata.get(OUTDATED) or not may_hold_members(request.path):
        return False
    # The content of the container is known to be the same, and with it that of its members.
    asked = context.metadata | {"checksum": False, payloads.RETRY_FAILED: request.retry_failed}
    graph = context.payload.get("graph")
    comparison = FileComparison(pipeline, request.sizes, asked, graph=graph, ocr=request.ocr)
    found = _outdated(catalog, comparison, known, mtime_ns)
    for start in range(0, len(found), MAX_CHILDREN):
        some = found[start : start + MAX_CHILDREN]
        context.expand(
            [
                # An archive is known only because it was to be opened.
                _member_job(context, request, one.path, one.size, archives=_opens(request, one.path))
                for one in some
            ]
        )
    return bool(found)


def _outdated(
    catalog: Catalog, comparison: FileComparison, known: Source, mtime_ns: int
) -> list[KnownSource]:
    """Outdated members. A member inside another outdated one is left to the job of that one."""
    found: dict[str, KnownSource] = {}
    for member in known_below(catalog, known.place, known.path, after=known.path):
        live = member.published_id is not None or member.building_id is not None
        left = found.keys().isdisjoint(at_and_above(member.path))
        if live and left and comparison.member_outdated(member, mtime_ns):
            found[member.path] = member
    return list(found.values())


def _opens(request: FileRequest, path: str) -> bool:
    return request.archives or file_types.is_archive_name(path)


NAMED = 10
_TOO_LONG = 4_000
"""Bytes of a path above which the system refuses it."""


class _Member(msgspec.Struct, frozen=True):
    path: str
    size: int
    content_hash: str


class ContainerMembers:
    """The members of one container, as read by a job.

    They are compared before the container itself is stored. If the process dies in between, the container is
    read again. Every member has a source from then on, with the time of the container: a walk sees by it
    which members are not up to date, without opening the container.
    """

    def __init__(
        self, catalog: Catalog, pipeline: Pipeline, context: Context, request: FileRequest, read: FileContent
    ) -> None:
        self._catalog = catalog
        self._pipeline = pipeline
        self._context = context
        self._request = request
        self._read = read
        self.sent = False
        """The job has child jobs for members."""
        self._left_out: list[str] = []
        self._ledger: list[LedgerEntry] = []

    def update(self, attachments: Iterable[Attachment], known: Source | None) -> tuple[str, ...]:
        """Send child jobs for new and changed members, and remove the others; returns warnings.

        ``known``: the source of the container; there may be members of its former version.
        """
        request = self._request
        archive = file_types.is_archive_name(request.name)
        if not attachments and not archive and not _had_members(known, request.name):
            return ()
        if not may_hold_members(request.path):
            self._left_out = [one.name for one in attachments]
            attachments = ()
        attachments = safely_named(attachments)
        if archive:
            attachments = Container(self._pipeline, Content(request.name, self._read.data)).each()
        wanted = self._wanted(attachments)
        sources = {
            source.path: source
            for source in known_below(self._catalog, request.place, request.path)
            if source.path != request.path
            and (source.published_id is not None or source.building_id is not None)
        }
        self._remove(wanted, sources)
        kept = [member for member in wanted.values() if self._keeps(member, sources.get(member.path))]
        self._touch(kept, sources)
        changed = wanted.keys() - {member.path for member in kept}
        self._send([member for member in wanted.values() if member.path in changed], sources)
        self._note(wanted, known)
        return self._warnings()

    def _wanted(self, attachments: Iterable[Attachment]) -> dict[str, _Member]:
        """Members to index, by path. Those excluded by their names are recorded with the rule."""
        rules = WalkRules(archives=self._request.archives)
        wanted: dict[str, _Member] = {}
        for number, one in enumerate(attachments):
            if number % 100 == 0:
                self._context.checkpoint()
            path = f"{self._request.path}/{one.name}"
            rule = _rule_of(one.name, rules)
            if self._read.depth >= MAX_DEPTH or len(path.encode()) > _TOO_LONG:
                rule = Rule.TOO_DEEP
            if rule is not None:
                self._skip(path, one.name, rule)
                continue
            marked = f"{one.error}: {one.message}".encode() if one.error else one.data
            wanted[path] = _Member(path, len(one.data), hashlib.sha256(marked).hexdigest())
        return wanted

    def _skip(self, path: str, name: str, rule: Rule) -> None:
        self._left_out.append(name)
        self._ledger.append(
            LedgerEntry(
                place=self._request.place,
                path=path,
                kind=LedgerKind.SKIPPED,
                rule=str(rule),
                cause=f"inside more than {MAX_DEPTH} files" if rule is Rule.TOO_DEEP else rule.meaning,
                job_id=self._context.job_id,
            )
        )

    def _remove(self, wanted: Mapping[str, _Member], sources: Mapping[str, KnownSource]) -> None:
        """Remove members missing from the container, except those inside a kept inner container."""
        for path in sources:
            if wanted.keys().isdisjoint(at_and_above(path)):
                self._context.checkpoint()
                self._remove_path(path)

    def _remove_path(self, path: str) -> None:
        place = self._request.place
        remove_all(
            self._catalog,
            Removal(
                tenant_id=place.tenant_id,
                collection=place.collection,
                branch=place.branch,
                path=path,
                asked_at=self._context.asked_at,
            ),
        )

    def _keeps(self, member: _Member, known: KnownSource | None) -> bool:
        """Check whether a member has the same content as before, made into text in the same way."""
        if known is None or self._request.rebuild or known.published_id is None or known.partial:
            return False
        # With a failure, the content of the source is not the newest.
        if known.content_hash != member.content_hash or known.building_id is not None:
            return False
        request = self._request
        wanted = self._pipeline.fingerprints(member.path, request.sizes, graph=request.graph, ocr=request.ocr)
        fingerprints = keep_reading(wanted, known.fingerprints)
        return known.fingerprints == fingerprints or bool(self._context.metadata.get(OUTDATED))

    def _touch(self, kept: list[_Member], sources: Mapping[str, KnownSource]) -> None:
        """Give kept members, and all inside them, the time of the container."""
        same = {member.path for member in kept}
        touched = [source for path, source in sources.items() if not same.isdisjoint(at_and_above(path))]
        _touch(self._catalog, touched, self._read.mtime_ns, self._context.asked_at)

    def _send(self, members: list[_Member], sources: Mapping[str, KnownSource]) -> None:
        for start in range(0, len(members), MAX_CHILDREN):
            some = members[start : start + MAX_CHILDREN]
            new = [self._unread(member) for member in some if member.path not in sources]
            for first in range(0, len(new), MAX_DOCUMENTS):
                self._catalog.store(new[first : first + MAX_DOCUMENTS])
            self.sent = True
            self._context.expand(
                [_member_job(self._context, self._request, member.path, member.size) for member in some]
            )

    def _unread(self, member: _Member) -> Any:
        """A source for a new, unread member: if the job is lost, the next walk sends another."""
        return failed_generation(
            FailedReading(
                place=self._request.place,
                path=member.path,
                code=NOT_READ,
                message="this file inside another has not been read yet",
                file=ReadFile(member.size, self._read.mtime_ns, ""),
                asked_at=self._context.asked_at,
                read_at=clock.now(),
                fault=FailureKind.OUTAGE,
                file_type=file_types.suffix_of(member.path),
            )
        )

    def _note(self, wanted: Mapping[str, _Member], known: Source | None) -> None:
        """Record the paths left out, and delete the records of members no longer in the container."""
        for start in range(0, len(self._ledger), BATCH):
            self._catalog.note(self._ledger[start : start + BATCH])
        if known is None:
            return
        left_out = {entry.path for entry in self._ledger}
        for entry in ledger_below(self._catalog, self._request.place, self._request.path):
            above = at_and_above(entry.path)
            kept = entry.path == self._request.path or not left_out.isdisjoint(above)
            if not kept and wanted.keys().isdisjoint(above):
                self._remove_path(entry.path)

    def _warnings(self) -> tuple[str, ...]:
        if not self._left_out:
            return ()
        names = ", ".join(self._left_out[:NAMED])
        more = len(self._left_out) - NAMED
        count = how_many(len(self._left_out), "file inside it is", "files inside it are")
        return (f"{count} left out by a rule: {names}{f' and {more:,} more' if more > 0 else ''}",)


def _had_members(known: Source | None, name: str) -> bool:
    """Check whether the former version may have had members. A rename may have changed the type."""
    # A folder of this name may have been there before, so that an unknown file is no exception.
    return may_hold_members(name) or (known is not None and known.file_type != file_types.suffix_of(name))


def touch_members(catalog: Catalog, known: Source, mtime_ns: int, asked_at: datetime) -> None:
    """Give the members of an unchanged container the new time of the container."""
    if known.mtime_ns != mtime_ns and may_hold_members(known.path):
        inside = known_below(catalog, known.place, known.path, after=known.path)
        same = [source for source in inside if _time_of(source) == known.mtime_ns]
        _touch(catalog, same, mtime_ns, asked_at)


def _failed(member: KnownSource) -> bool:
    return member.failed_with is not None and member.building_id is not None


def _time_of(member: KnownSource) -> int | None:
    """Time of the container when the member was last read, successfully or not."""
    return member.failed_mtime_ns if _failed(member) else member.mtime_ns


def _touch(catalog: Catalog, members: list[KnownSource], mtime_ns: int, asked_at: datetime) -> None:
    touches = [
        Touch(member.source_id, member.failed_size or 0, mtime_ns, failed=True)
        if _failed(member)
        else Touch(member.source_id, member.size, mtime_ns, asked_at)
        for member in members
    ]
    for start in range(0, len(touches), BATCH):
        catalog.touch(touches[start : start + BATCH])


def _rule_of(name: str, rules: WalkRules) -> Rule | None:
    """The rule by which a walk would skip a file of this name, or a folder above."""
    *folders, last = name.split("/")
    by_folder = next(filter(None, (rule_of_folder(folder, rules) for folder in folders)), None)
    return by_folder or rule_of_name(last, rules)
