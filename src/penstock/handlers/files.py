"""Jobs of item type ``file``: bring the index to the state of the file when the job runs.

A call takes many jobs, so that small files share a write. An error in one file affects only its own job.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from penstock import clock
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules.failures import ReadFile
from penstock.catalog.values import NewGeneration, Phase, Place, Touch
from penstock.catalog.views import Source
from penstock.errors import PermanentFailure, UnsupportedType
from penstock.handlers.chunk_vectors import MAX_TEXTS
from penstock.handlers.container_members import ContainerMembers, touch_members
from penstock.handlers.container_paths import container_of, on_disk
from penstock.handlers.context import Context
from penstock.handlers.declared_facts import file_mismatches
from penstock.handlers.failed_files import FailedFiles, failed_before
from penstock.handlers.file_draft import MAX_OPEN_TASKS, draft_file, lanes_of, too_many_tasks
from penstock.handlers.file_reader import FileContent
from penstock.handlers.file_request import FailedBefore, FileRequest
from penstock.handlers.generation_batch import DraftedGeneration, GenerationBatch, adopted, stored_since
from penstock.handlers.member_jobs import send_outdated
from penstock.handlers.members import MemberReader
from penstock.handlers.missing_files import CAREFUL, awaits_move, unmounted_reason
from penstock.handlers.model_check import ModelCheck
from penstock.handlers.move_detection import MoveDetection, unknown_at
from penstock.handlers.origins import NO_ORIGINS, Origins, article_of, missing_origin
from penstock.handlers.other_branches import OtherBranches
from penstock.handlers.registry import Later, Wait
from penstock.handlers.reindex import OUTDATED, from_catalog
from penstock.handlers.removal import removal_of_one, remove_all
from penstock.handlers.work_trees import other_branch, scheduled_for_another
from penstock.payloads import is_off_disk, normal_path
from penstock.pipeline.budget import MemoryInUse
from penstock.pipeline.draft import outdated, without_pictures
from penstock.pipeline.pipeline import Pipeline

RETRY_DELAY = timedelta(seconds=2)
UNCHANGED = {"outcome": "unchanged"}
WATCHERS = ("watcher", "active_project")
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
                self._answers[index] = Later(str(wait), RETRY_DELAY)
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
            unchanged = isinstance(answer, dict) and UNCHANGED.items() <= answer.items()
            if not found and touch.asked_at is not None and unchanged:
                self._answers[index] = Later(
                    "the document was removed while its file was checked", RETRY_DELAY
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
            article = article_of(request, read)
            draft = draft_file(self._pipeline, request, article.content)
        if too_many_tasks(self._catalog, lanes_of(draft)):
            return Later(
                f"waiting: more than {MAX_OPEN_TASKS:,} page and chunk tasks are pending", RETRY_DELAY
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
            return UNCHANGED | stored_since(context, known)
        reused = adopted(self._catalog, context, known, request.fingerprints, known.content_hash)
        if reused is not None:
            return reused
        drafted = from_catalog(self._catalog, known, context, request.fingerprints, self._space)
        if drafted is None or (drafted.texts > MAX_TEXTS and too_many_tasks(self._catalog, [Phase.VECTOR])):
            return Later(
                f"waiting: the document has just changed, or more than {MAX_OPEN_TASKS:,} tasks are pending",
                RETRY_DELAY,
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
            raise missing_origin(request)
        if known is not None:
            if awaits_move(self._catalog, known):
                return {"outcome": "kept", "note": "its file is about to be moved here"}
            if (
                context.metadata.get(CAREFUL)
                and (reason := unmounted_reason(self._catalog, known)) is not None
            ):
                return {"outcome": "kept", "note": reason}
            return other_branch(context) or self._remove(context, request.path, "the file is gone")
        if context.claim.parent_id is not None or context.claim.submitted_by in WATCHERS:
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
