"""Jobs of item type ``content``: notes, with their text in the payload. Equal texts are one note."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from penstock import clock
from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Gate, NewGeneration, NewPage, Phase, Place, Removal, Rename, Source
from penstock.errors import FingerprintMismatch, UnknownDocument
from penstock.handlers.context import Context, Later, NotHandledHere
from penstock.handlers.removal import remove_all
from penstock.pipeline.budget import MemoryInUse
from penstock.pipeline.embed import space_of
from penstock.pipeline.embed.protocol import Embedder
from penstock.pipeline.extract.protocol import Content
from penstock.pipeline.pipeline import Pipeline, chunk_sizes
from penstock.queue.payloads import NOTES, ContentPayload, note_path

if TYPE_CHECKING:
    from penstock.handlers.generations import DraftedGeneration

log = logging.getLogger("penstock.worker")


class ModelCheck:
    """This worker's embedding model, compared with the catalog's.

    One model makes all vectors of a catalog, and only a command changes the model.
    """

    def __init__(self, catalog: Catalog, embedder: Embedder) -> None:
        self._catalog = catalog
        self._embedder = embedder
        self._logged = ""

    def check(self) -> None:
        """Release the jobs, without using a retry, if the catalog has another model."""
        try:
            _check_model(self._catalog, self._embedder)
        except FingerprintMismatch as mismatch:
            if mismatch.message != self._logged:
                log.warning("this worker indexes nothing: %s %s", mismatch.message, mismatch.remedy)
            self._logged = mismatch.message
            raise NotHandledHere(f"{mismatch.message}. {mismatch.remedy}") from None
        self._logged = ""


def _check_model(catalog: Catalog, embedder: Embedder) -> None:
    """Raise ``FingerprintMismatch`` if the catalog has another model.

    For a catalog without documents, record this model.
    """
    own_space = space_of(embedder)
    with catalog.snapshot() as snapshot:
        catalog_space = snapshot.fingerprints().get(Phase.VECTOR)
        if catalog_space == own_space:
            return
        if catalog_space is not None and any(one.sources for one in snapshot.tenants()):
            raise model_mismatch(catalog_space, own_space)
    catalog.set_fingerprints({Phase.VECTOR: own_space}, replace=catalog_space is not None)


def model_mismatch(catalog_space: str, own_space: str) -> FingerprintMismatch:
    return FingerprintMismatch(
        f"the catalog's vectors are made with {catalog_space}, but the settings here use {own_space}"
    )


_TYPE = "md"
_RETRY_DELAY = timedelta(seconds=2)


class Notes:
    def __init__(self, catalog: Catalog, pipeline: Pipeline) -> None:
        self._catalog = catalog
        self._pipeline = pipeline
        self._model = ModelCheck(catalog, pipeline.embedder)

    def ingest(self, contexts: Sequence[Context]) -> list[Any]:
        self._model.check()
        # Imported here: a walk in which no file has changed loads this module as well.
        from penstock.handlers.generations import GenerationBatch

        batch = GenerationBatch(self._catalog, self._pipeline)
        answers: list[Any] = [None] * len(contexts)
        batched: list[int] = []

        def write() -> None:
            for index, answer in zip(batched, batch.write(), strict=True):
                answers[index] = answer
            batched.clear()

        for index, context in enumerate(contexts):
            try:
                with context.file(self._pipeline.limits.seconds_for(len(context.claim.payload_json)), 0):
                    note = self._draft(context)
            except MemoryInUse as wait:
                answers[index] = Later(str(wait), _RETRY_DELAY)
                continue
            except Exception as error:  # noqa: BLE001 - an error in one note must not fail the others
                answers[index] = error
                continue
            if not batch.fits(note):
                write()
            batch.add(note)
            batched.append(index)
        write()
        return answers

    def update(self, context: Context) -> Any:
        """Replace the text of a note, given by id. History and, without new ones, tags stay."""
        self._model.check()
        payload = _payload(context)
        place = context.place
        source = self._source(place, payload)
        path = note_path(payload.content or "")
        if source.path != path:
            asked_at = context.asked_at
            self._catalog.rename(Rename(place=place, old=source.path, new=path, asked_at=asked_at))
        from penstock.handlers.generations import GenerationBatch

        batch = GenerationBatch(self._catalog, self._pipeline)
        batch.add(self._draft(context, former_tags=() if payload.drop_tags else source.tags))
        (answer,) = batch.write()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def delete(self, context: Context) -> dict[str, Any]:
        """Delete a note, by id or by the exact text."""
        payload, place = _payload(context), context.place
        source = self._source(place, payload)
        removal = Removal(tenant_id=place.tenant_id, source_id=source.source_id, asked_at=context.asked_at)
        return {"outcome": "removed", "removed": remove_all(self._catalog, removal)}

    def _source(self, place: Place, payload: ContentPayload) -> Source:
        with self._catalog.snapshot() as snapshot:
            if payload.document_id is not None:
                found = snapshot.identified(payload.document_id)
            else:
                found = snapshot.find(place, note_path(payload.content or ""))
        if found is None or not found.live or found.place != place or not found.path.startswith(NOTES):
            what = payload.document_id or "with this text"
            raise UnknownDocument(
                f"no note {what} in collection {place.collection} of tenant {place.tenant_id}"
            )
        return found

    def _draft(self, context: Context, former_tags: tuple[str, ...] = ()) -> DraftedGeneration:
        payload = _payload(context)
        text = payload.content or ""
        sizes = chunk_sizes(payload.chunk_size, payload.chunk_overlap)
        draft = self._pipeline.draft(Content("note.md", text.encode("utf-8", "backslashreplace")), sizes)
        generation = NewGeneration(
            place=context.place,
            path=note_path(text),
            content_hash=hashlib.sha256(text.encode()).hexdigest(),
            asked_at=context.asked_at,
            read_at=clock.now(),
            pages=_with_text(draft.pages, text),
            space=self._pipeline.space,
            gate=Gate(payload.gate),
            fingerprints=self._pipeline.fingerprints("note.md", sizes),
            size=len(text.encode()),
            file_type=_TYPE,
            title=draft.title or _first_line(text),
            tags=_tags(payload) or former_tags,
            metadata=msgspec.json.encode({"source_type": payload.source_type}).decode(),
            properties=draft.stored_properties,
            job_id=context.job_id,
            priority=context.claim.priority,
        )
        from penstock.handlers.generations import DraftedGeneration

        return DraftedGeneration(generation=generation, tokens=draft.tokens)


def _with_text(pages: tuple[NewPage, ...], text: str) -> tuple[NewPage, ...]:
    """Store the text with the first page: there is no file to read again."""
    return (msgspec.structs.replace(pages[0], text=text), *pages[1:]) if pages else ()


def _payload(context: Context) -> ContentPayload:
    return msgspec.convert(context.payload, ContentPayload)


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:80] if text.strip() else ""


def _tags(payload: ContentPayload) -> tuple[str, ...]:
    """Tags of a note, each once."""
    main = payload.full_tag or payload.main_tag
    return tuple(dict.fromkeys([*([main] if main else []), *payload.tags]))
