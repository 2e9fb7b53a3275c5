"""Jobs of item type ``file``: make the index equal the file as it is when the job runs.

A call takes many jobs, so that small files share a write. What is wrong with one of them is its own answer.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from penstock import clock, retry
from penstock.catalog.protocol import Catalog
from penstock.catalog.values import (
    Adoption,
    LedgerEntry,
    LedgerKind,
    NewGeneration,
    NewPage,
    Phase,
    Place,
    Touch,
)
from penstock.catalog.views import Source
from penstock.errors import (
    ComponentMissing,
    PenstockError,
    PermanentFailure,
    UnreadableDocument,
    UnsupportedType,
)
from penstock.handlers.chunk_vectors import MOST_TEXTS
from penstock.handlers.context import Context
from penstock.handlers.declared_facts import file_mismatches
from penstock.handlers.file_reader import FileContent
from penstock.handlers.file_request import FileRequest
from penstock.handlers.generation_batch import DraftedGeneration, GenerationBatch
from penstock.handlers.missing_files import CAREFUL, doubt
from penstock.handlers.model_check import ModelCheck
from penstock.handlers.move_detection import MoveDetection, unknown_at
from penstock.handlers.registry import Later, Wait
from penstock.handlers.reindex import OUTDATED, from_catalog
from penstock.handlers.removal import removal_of_one, remove_all
from penstock.payloads import normal_path
from penstock.pipeline.budget import MemoryInUse
from penstock.pipeline.draft import Draft
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.protocol import Content
from penstock.pipeline.fingerprints import outdated
from penstock.pipeline.pipeline import Pipeline

PAGES_AT_ONCE = 32
"""Pages of a document read within its job; the others are tasks."""
MOST_OPEN_TASKS = 5_000
"""While more are to be done, files that would add to them wait. Others go on: they add none."""
TRY_AGAIN = timedelta(seconds=2)
UNCHANGED = {"outcome": "unchanged"}


class Files:
    def __init__(self, catalog: Catalog, recipe: Pipeline) -> None:
        self._catalog = catalog
        self._recipe = recipe
        self._model = ModelCheck(catalog, recipe.embedder)

    def ingest(self, contexts: Sequence[Context]) -> list[Any]:
        """One answer a job: what became of its file, or the exception that says why nothing did."""
        self._model.refuse_another()
        return _Call(self._catalog, self._recipe, contexts).answers()

    def delete(self, context: Context) -> dict[str, Any]:
        """Whatever the disk says."""
        place, path = context.place, normal_path(context.payload["file_path"])
        removed = remove_all(self._catalog, removal_of_one(place, path, context.asked_at))
        return {"outcome": "removed" if removed else "was not indexed", "removed": removed}


class _Call:
    """One call of the batch handler: answers are filled in as they come."""

    def __init__(self, catalog: Catalog, recipe: Pipeline, contexts: Sequence[Context]) -> None:
        self._catalog = catalog
        self._recipe = recipe
        self._space = recipe.space
        self._contexts = contexts
        self._answers: list[Any] = [None] * len(contexts)
        self._filing = GenerationBatch(catalog, recipe)
        self._filed: list[tuple[int, str | None]] = []
        self._touched: list[tuple[int, Touch]] = []
        self._notes: list[LedgerEntry] = []
        self._expected: list[tuple[Place, str, str]] = []
        self._failing: dict[int, tuple[int, int, str]] = {}
        """Size, time and ``made_with`` of files that were read: remembered should they fail."""
        self._mismatches: dict[int, list[str]] = {}

    def answers(self) -> list[Any]:
        wanted = [self._wanted(context) for context in self._contexts]
        known = self._known(wanted)
        if self._move_unknown(wanted, known):
            known = self._known(wanted)
        for index, (context, asked) in enumerate(zip(self._contexts, wanted, strict=True)):
            try:
                context.checkpoint()
                if isinstance(asked, Exception):
                    raise asked
                self._answers[index] = self._one(index, context, asked, known.get((asked.place, asked.path)))
            except Exception as error:  # noqa: BLE001 - one file's trouble is not the others'
                self._answers[index] = error
        self._write()
        for index, (context, answer) in enumerate(zip(self._contexts, self._answers, strict=True)):
            if isinstance(answer, Exception):
                self._note(index, context, answer)
        self._touch()
        if self._notes:
            self._catalog.note(self._notes)
        for index, mismatches in self._mismatches.items():
            answer = self._answers[index]
            if mismatches and isinstance(answer, dict):
                self._answers[index] = answer | {"mismatches": mismatches}
        return self._answers

    def _touch(self) -> None:
        """What is unchanged was asked for again all the same: a delete asked for before that leaves it."""
        if not self._touched:
            return
        live = self._catalog.touch([touch for _, touch in self._touched])
        for (index, touch), found in zip(self._touched, live, strict=True):
            if not found and touch.asked_at is not None and self._answers[index] == UNCHANGED:
                self._answers[index] = Later("it was removed while it was looked at", TRY_AGAIN)

    def _wanted(self, context: Context) -> FileRequest | Exception:
        try:
            return FileRequest.by(context, self._recipe)
        except Exception as error:  # noqa: BLE001 - one job's trouble is not the others'
            return error

    def _known(self, wanted: Sequence[FileRequest | Exception]) -> dict[tuple[Place, str], Source]:
        paths: dict[Place, list[str]] = {}
        for asked in wanted:
            if isinstance(asked, FileRequest):
                paths.setdefault(asked.place, []).append(asked.path)
        known: dict[tuple[Place, str], Source] = {}
        with self._catalog.snapshot() as snapshot:
            for place, some in paths.items():
                for path, source in snapshot.find_all(place, some).items():
                    known[place, path] = source
        return known

    def _move_unknown(
        self, wanted: Sequence[FileRequest | Exception], known: dict[tuple[Place, str], Source]
    ) -> bool:
        """Rename what is known under a path where it is no more. A walk has looked for its own files."""
        unknown: dict[Place, list[Context]] = {}
        for context, asked in zip(self._contexts, wanted, strict=True):
            if context.claim.parent_id is not None or isinstance(asked, Exception):
                continue
            if (asked.place, asked.path) not in known:
                unknown.setdefault(asked.place, []).append(context)
        moved = False
        for place, contexts in unknown.items():
            twins = MoveDetection(self._catalog, place, most_bytes=self._recipe.limits.file_bytes)
            files = [file for context in contexts for file in unknown_at(context.payload["file_path"])]
            moved |= bool(twins.move(files, min(context.asked_at for context in contexts)))
        return moved

    def _one(self, index: int, context: Context, asked: FileRequest, known: Source | None) -> Any:
        try:
            read = asked.read(known, self._recipe.limits.file_bytes)
        except (FileNotFoundError, NotADirectoryError):
            return self._missing(index, context, asked, known)
        except UnsupportedType:
            if known is None or asked.arrival is not None:
                raise
            return self._forgotten(context, asked.path, "it is no file any more")
        if read is None and known is not None:
            self._mismatches[index] = file_mismatches(context, known.size, known.content_hash)
            return self._read_before(index, context, asked, known, (known.size, known.mtime_ns))
        assert read is not None
        asked.refuse_another_type(read)
        content_hash = hashlib.sha256(read.data).hexdigest()
        self._mismatches[index] = file_mismatches(context, read.size, content_hash)
        if known is not None and not asked.rebuild and asked.made_of(known, content_hash):
            return self._read_before(index, context, asked, known, (read.size, read.mtime_ns))
        if known is not None and not asked.rebuild:
            adopted = self._adopt(context, known, asked, content_hash)
            if adopted is not None:
                return adopted
        return self._anew(index, context, asked, known, read, content_hash)

    def _anew(
        self,
        index: int,
        context: Context,
        asked: FileRequest,
        known: Source | None,
        read: FileContent,
        content_hash: str,
    ) -> Any:
        read_at = clock.now()
        about = (read.size, read.mtime_ns, self._recipe.made_with(asked.fingerprints))
        self._failing[index] = about
        try:
            with context.file(self._recipe.limits.seconds_for(read.size), *about):
                draft = self._draft(asked, read)
        except MemoryInUse as wait:
            return Later(str(wait), TRY_AGAIN)
        if _by_tasks(draft) and self._tasks_are_many():
            return Later("there are many tasks to be done before it", TRY_AGAIN)
        tags, metadata = asked.described(known)
        generation = NewGeneration(
            place=asked.place,
            path=asked.path,
            content_hash=content_hash,
            asked_at=context.asked_at,
            read_at=read_at,
            pages=draft.pages,
            space=self._space,
            fingerprints=asked.fingerprints,
            size=read.size,
            mtime_ns=read.mtime_ns,
            file_type=file_types.suffix_of(asked.name),
            title=draft.title,
            tags=tags,
            metadata=metadata,
            job_id=context.job_id,
            priority=context.claim.priority,
            max_retries=context.claim.max_retries,
        )
        filed = DraftedGeneration(
            generation=generation,
            tokens=draft.tokens,
            warnings=draft.warnings,
            known_id=known.source_id if known is not None else None,
        )
        if asked.read_from != asked.path:
            self._expected.append((asked.place, asked.path, asked.read_from))
        return self._file(index, filed, asked.path if asked.arrival is None else None)

    def _file(self, index: int, filed: DraftedGeneration, read_from: str | None = None) -> None:
        """Its answer comes with the write."""
        if not self._filing.fits(filed):
            self._write()
        self._filing.add(filed)
        self._filed.append((index, read_from))

    def _read_before(
        self, index: int, context: Context, asked: FileRequest, known: Source, seen: tuple[int, int]
    ) -> Any:
        """Its text is in the catalog, cut as it should be; at most its vectors are another model's. ``seen``:
        size and time of the file."""
        # Whoever has an old model replaced does not ask for the file.
        asked_at = None if context.metadata.get(OUTDATED) else context.asked_at
        self._touched.append((index, Touch(known.source_id, *seen, asked_at)))
        if outdated(known.fingerprints, asked.fingerprints) is None:
            return dict(UNCHANGED)
        adopted = self._adopt(context, known, asked, known.content_hash)
        if adopted is not None:
            return adopted
        filed = from_catalog(self._catalog, known, context, asked.fingerprints, self._space)
        if filed is None or (filed.texts > MOST_TEXTS and self._tasks_are_many()):
            return Later("it has just changed, or many tasks are to be done before it", TRY_AGAIN)
        return self._file(index, filed)

    def _draft(self, asked: FileRequest, read: FileContent) -> Draft:
        """A long document is read only in part; its other pages become tasks."""
        content = Content(asked.name, read.data)
        paged = file_types.by_name(asked.name) == file_types.PDF
        draft = self._recipe.draft(content, asked.sizes, pages=range(1, PAGES_AT_ONCE + 1) if paged else None)
        if len(draft.pages) >= draft.page_count:
            # Once more without a range: only the whole can be judged to have no text at all.
            return self._recipe.draft(content, asked.sizes) if paged and not draft.chunks else draft
        elsewhere = asked.read_from if asked.read_from != asked.path else None
        numbers = range(len(draft.pages) + 1, draft.page_count + 1)
        rest = tuple(NewPage(number=number, file_path=elsewhere) for number in numbers)
        return msgspec.structs.replace(draft, pages=draft.pages + rest)

    def _adopt(self, context: Context, known: Source, asked: FileRequest, content_hash: str) -> Wait | None:
        """A generation of this very content that is being built, or of which parts had failed: only what
        is missing is done, and nothing read again."""
        for document_id in filter(None, (known.building_id, known.published_id if known.partial else None)):
            with self._catalog.snapshot() as snapshot:
                document = snapshot.document(document_id)
            made_of = (content_hash, asked.fingerprints)
            if document is None or (document.content_hash, document.fingerprints) != made_of:
                continue
            adoption = Adoption(
                document_id=document_id,
                asked_at=context.asked_at,
                read_at=clock.now(),
                job_id=context.job_id,
                priority=context.claim.priority,
            )
            if self._catalog.adopt(adoption):
                return Wait(waiting_for=str(document_id))
        return None

    def _tasks_are_many(self) -> bool:
        with self._catalog.snapshot() as snapshot:
            return sum(snapshot.open_tasks(lane) for lane in (Phase.OCR, Phase.VECTOR)) > MOST_OPEN_TASKS

    def _missing(self, index: int, context: Context, asked: FileRequest, known: Source | None) -> Any:
        if asked.arrival is not None:
            # Somebody said that it lies there. What is indexed under its name came from elsewhere and stays.
            raise PermanentFailure(f"{asked.read_from} is not there", code="ERR_FILE_NOT_FOUND")
        if known is not None and context.metadata.get(OUTDATED):
            # Nobody asked whether the file is there: its disk may be away.
            if asked.made_of(known, known.content_hash):
                return self._read_before(index, context, asked, known, (known.size, known.mtime_ns))
            return {"outcome": "kept", "note": "the file is not there; what was made of it stays"}
        if known is not None and self._on_its_way(context, known):
            return {"outcome": "kept", "note": "its file is about to be moved here"}
        if known is not None:
            away = self._away(context, asked.path) if context.metadata.get(CAREFUL) else None
            if away is not None:
                return {"outcome": "kept", "note": away}
            return self._forgotten(context, asked.path, "the file is gone")
        if context.claim.parent_id is not None or context.claim.submitted_by == "watcher":
            return {"outcome": "vanished"}
        raise PermanentFailure(f"{asked.path} is not there", code="ERR_FILE_NOT_FOUND")

    def _on_its_way(self, context: Context, known: Source) -> bool:
        """It was read where somebody had put it, and still lies there."""
        with self._catalog.snapshot() as snapshot:
            read_from = snapshot.expected(context.place, known.path)
        try:
            found = os.lstat(read_from) if read_from is not None else None
        except OSError:
            return False
        return found is not None and (found.st_size, found.st_mtime_ns) == (known.size, known.mtime_ns)

    def _away(self, context: Context, path: str) -> str | None:
        with self._catalog.snapshot() as snapshot:
            return doubt(path, [walk.root for walk in snapshot.walks(context.place, path)])

    def _forgotten(self, context: Context, path: str, note: str) -> dict[str, Any]:
        remove_all(self._catalog, removal_of_one(context.place, path, context.asked_at))
        return {"outcome": "removed", "note": note}

    def _write(self) -> None:
        filed, self._filed = self._filed, []
        expected, self._expected = self._expected, []
        try:
            if expected:
                self._catalog.expect(expected)
            answers = self._filing.write()
        except Exception as error:  # noqa: BLE001 - the store is away: all of them try again
            answers = [error] * len(filed)
        for (index, read_from), answer in zip(filed, answers, strict=True):
            self._answers[index] = answer
            if read_from is not None and isinstance(answer, dict) and not os.path.lexists(read_from):
                # A walk that came in between found it nowhere, or elsewhere, and nothing here to remove.
                self._answers[index] = self._forgotten(
                    self._contexts[index], read_from, "it went while it was read"
                )

    def _note(self, index: int, context: Context, error: Exception) -> None:
        """Only what will not be tried again: `why` shows it until the file is indexed or gone."""
        classified = retry.classify(error)
        if classified.kind != "permanent" and context.claim.retry_count < context.claim.max_retries:
            return
        if classified.kind == "cancelled":
            return
        # By its content: what else may be wrong, a look at the file tomorrow may find mended.
        by_content = isinstance(error, UnreadableDocument) and not isinstance(error, ComponentMissing)
        about = self._failing.get(index) if by_content else None
        size, mtime_ns, made_with = about or (None, None, None)
        self._notes.append(
            LedgerEntry(
                place=context.place,
                path=normal_path(context.payload["file_path"]),
                kind=LedgerKind.FAILED,
                rule=classified.code,
                cause=str(error)[:1000] or type(error).__name__,
                remedy=error.remedy if isinstance(error, PenstockError) else "",
                job_id=context.job_id,
                size=size,
                mtime_ns=mtime_ns,
                made_with=made_with,
            )
        )


def _by_tasks(draft: Draft) -> bool:
    unread = bool(draft.pages) and draft.pages[-1].chunks is None and draft.pages[-1].failure is None
    return unread or len(draft.chunks) > MOST_TEXTS
