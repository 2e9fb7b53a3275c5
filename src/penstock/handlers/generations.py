"""Batches of drafted documents: new texts are embedded, and paid for, and generations stored together."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock import clock
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules.publication import UNFINISHED, Portions
from penstock.catalog.values import (
    Adoption,
    Fingerprints,
    Gate,
    NewChunk,
    NewGeneration,
    NewPage,
    Outcome,
    Source,
    StoreResult,
    TokenUse,
)
from penstock.errors import NoText, StoreError, TokenLimitReached
from penstock.handlers.context import Context, Wait
from penstock.pipeline.draft import same_reading
from penstock.pipeline.embed.protocol import MeteredEmbedder
from penstock.pipeline.endpoint import TokenMeter
from penstock.pipeline.pipeline import Pipeline
from penstock.vocabulary import how_many


class OwnedText(msgspec.Struct, frozen=True):
    """A text to be sent. The tokens are those of the tenant, and of the job if one waits for the text."""

    tenant_id: str
    job_id: str | None
    text: str


def embed_texts(catalog: Catalog, pipeline: Pipeline, texts: Sequence[OwnedText]) -> list[bytes]:
    """Embed texts and count their tokens. Raises ``TokenLimitReached`` before anything is sent."""
    embedder = pipeline.embedder
    if not isinstance(embedder, MeteredEmbedder):
        return pipeline.embed([one.text for one in texts])
    check_limit(catalog, embedder, {one.tenant_id for one in texts})
    try:
        return pipeline.embed([one.text for one in texts])
    finally:
        # After a failure in the middle, the batches before it were still paid for.
        tokens = embedder.take_tokens()
        if tokens:
            catalog.add_tokens(_shares(texts, embedder.service, _month(), tokens))


def check_limit(catalog: Catalog, meter: TokenMeter, tenants: set[str]) -> None:
    """Raise ``TokenLimitReached`` for a tenant who has used all tokens of this month."""
    limit = meter.token_limit
    if limit is None:
        return  # as for local models, which charge nothing
    month = _month()
    with catalog.snapshot() as snapshot:
        for tenant_id in tenants:
            used = snapshot.tokens_used(tenant_id, meter.service, month)
            if used >= limit:
                raise TokenLimitReached(
                    f"tenant {tenant_id!r} has used {used:,} tokens of the {meter.service} in {month}; "
                    f"the limit is {limit:,}",
                    remedy=f"Raise {meter.token_variable}, or wait for the next month; then run "
                    "`penstock index PATH --retry-failed`.",
                )


def count_tokens(catalog: Catalog, meter: TokenMeter, used: Sequence[tuple[OwnedText, int]]) -> None:
    """Count the tokens of calls with one text each."""
    uses = Counter[tuple[str, str]]()
    for text, tokens in used:
        uses[text.tenant_id, text.job_id or ""] += tokens
    if uses.total():
        month = _month()
        catalog.add_tokens(
            [TokenUse(tenant, meter.service, month, job, tokens) for (tenant, job), tokens in uses.items()]
        )


def _month() -> str:
    # The store's own month would cost a statement; hosts agree on the month but for a moment.
    return clock.format_time(clock.now())[:7]


def _shares(texts: Sequence[OwnedText], service: str, month: str, tokens: int) -> list[TokenUse]:
    """Divide the tokens of a call by the lengths of the texts. The shares add up to the total."""
    chars = Counter[tuple[str, str]]()
    for text in texts:
        chars[text.tenant_id, text.job_id or ""] += len(text.text)
    uses, left, left_chars = [], tokens, chars.total()
    for (tenant_id, job_id), count in chars.items():
        share = left * count // left_chars if left_chars else left
        left, left_chars = left - share, left_chars - count
        uses.append(TokenUse(tenant_id, service, month, job_id, share))
    return uses


MAX_TEXTS = 256
"""Texts embedded between two writes: the most that a crash costs. Larger documents are built by tasks."""

log = logging.getLogger("penstock.worker")


class PageOwner(msgspec.Struct, frozen=True):
    """Tenant, source and job of some pages; ``source_id`` is None for a new source."""

    tenant_id: str
    source_id: str | None
    job_id: str | None = None


class EmbeddedTexts(msgspec.Struct, frozen=True):
    by_hash: dict[str, bytes]
    new_hashes: set[str]
    """Hashes of the texts that were not embedded before."""

    def add_to(self, pages: Iterable[NewPage]) -> tuple[NewPage, ...]:
        return tuple([_page_with(page, self.by_hash) for page in pages])


def embed(
    catalog: Catalog, pipeline: Pipeline, wanted: Sequence[tuple[PageOwner, Sequence[NewPage]]]
) -> EmbeddedTexts:
    if pipeline.vectors_outside:
        # Only tasks write to the outside store, and they embed.
        return EmbeddedTexts({}, set())
    by_tenant: dict[str, dict[str, OwnedText]] = {}
    found: dict[str, bytes] = {}
    with catalog.snapshot() as snapshot:
        for owner, pages in wanted:
            texts = by_tenant.setdefault(owner.tenant_id, {})
            texts_of_owner = [
                (chunk.text_hash, OwnedText(owner.tenant_id, owner.job_id, chunk.text))
                for page in pages
                for chunk in page.chunks or ()
            ]
            texts.update(texts_of_owner)
            if owner.source_id is not None:
                # Vectors of its last generation. The cache is read below, for all owners at once.
                hashes = list(dict(texts_of_owner))
                found |= snapshot.vectors(owner.tenant_id, pipeline.space, hashes, source_id=owner.source_id)
        for tenant_id, texts in by_tenant.items():
            hashes = [text_hash for text_hash in texts if text_hash not in found]
            found |= snapshot.vectors(tenant_id, pipeline.space, hashes)
    unknown = {
        text_hash: text
        for texts in by_tenant.values()
        for text_hash, text in texts.items()
        if text_hash not in found
    }
    embedded = _embed_new(catalog, pipeline, unknown) if unknown else {}
    return EmbeddedTexts(found | embedded, set(embedded))


def _embed_new(catalog: Catalog, pipeline: Pipeline, unknown: dict[str, OwnedText]) -> dict[str, bytes]:
    try:
        return dict(zip(unknown, embed_texts(catalog, pipeline, list(unknown.values())), strict=True))
    except Exception as error:  # noqa: BLE001 - one bad text, or a passing failure: the tasks find out
        log.warning(
            "embedding failed, %s left to tasks: %s: %s",
            how_many(len(unknown), "text is", "texts are"),
            type(error).__name__,
            error,
        )
        return {}


def _page_with(page: NewPage, vectors: dict[str, bytes]) -> NewPage:
    if not page.chunks:
        return page
    chunks = [
        chunk if (vector := vectors.get(chunk.text_hash)) is None else replace(chunk, vector=vector)
        for chunk in page.chunks
    ]
    return replace(page, chunks=tuple(chunks))


EMBEDDED = "embedded"
"""In the progress of a job that waits for its document: chunks that the job has embedded itself."""
CHANGED = "the file changed while it was read"
OTHER_MODEL = "the model changed while it was embedded"
RESTART_NOTES = frozenset({CHANGED, OTHER_MODEL, UNFINISHED})
"""Notes of dropped generations whose jobs start again."""


MAX_DOCUMENTS = 100
MAX_CHARS = 8 << 20
"""Characters of waiting chunks above which the batch is written early, to bound its memory."""


class DraftedGeneration(msgspec.Struct, frozen=True, kw_only=True):
    """A generation to store, with details for the result of the job."""

    generation: NewGeneration
    tokens: int
    warnings: tuple[str, ...] = ()
    known_id: str | None = None
    """Id of the source, if it exists already."""

    @property
    def owner(self) -> PageOwner:
        return PageOwner(self.generation.place.tenant_id, self.known_id, self.generation.job_id)

    @property
    def chunks(self) -> Iterator[NewChunk]:
        return (chunk for page in self.generation.pages for chunk in page.chunks or ())

    @property
    def texts(self) -> int:
        return sum([len(page.chunks) for page in self.generation.pages if page.chunks])

    @property
    def chars(self) -> int:
        return sum([len(chunk.text) for chunk in self.chunks])

    @property
    def embedded_here(self) -> int:
        """Number of texts to embed in the job; 0 if too many, or held by the document gate: left to tasks."""
        texts = self.texts
        return texts if texts <= MAX_TEXTS and not self._held_by_gate else 0

    @property
    def _held_by_gate(self) -> bool:
        if self.generation.gate is Gate.PAGE:
            return False
        return any(page.chunks is None and page.failure is None for page in self.generation.pages)


class GenerationBatch:
    """Collects the drafts of one call. If ``fits`` is False, call ``write`` before ``add``."""

    def __init__(self, catalog: Catalog, pipeline: Pipeline) -> None:
        self._catalog = catalog
        self._pipeline = pipeline
        self._waiting: list[DraftedGeneration] = []
        self._embedded: list[tuple[PageOwner, Sequence[NewPage]]] = []
        self._texts = self._chars = 0

    def fits(self, drafted: DraftedGeneration) -> bool:
        some = len(self._waiting) < MAX_DOCUMENTS and self._chars < MAX_CHARS
        return some and self._texts + drafted.embedded_here <= MAX_TEXTS

    def add(self, drafted: DraftedGeneration) -> None:
        self._waiting.append(drafted)
        self._chars += drafted.chars
        texts = drafted.embedded_here
        if texts:
            self._texts += texts
            self._embedded.append((drafted.owner, drafted.generation.pages))

    def write(self) -> list[Any]:
        """Store all added generations; returns the handler's answer for each."""
        waiting, self._waiting, self._texts, self._chars = self._waiting, [], 0, 0
        wanted, self._embedded = self._embedded, []
        if not waiting:
            return []
        vectors = embed(self._catalog, self._pipeline, wanted)
        ready = [
            msgspec.structs.replace(drafted.generation, pages=vectors.add_to(drafted.generation.pages))
            for drafted in waiting
        ]
        return [
            stored if isinstance(stored, Exception) else _result(drafted, stored, vectors.new_hashes)
            for drafted, stored in zip(waiting, self._store_all(ready), strict=True)
        ]

    def _store_all(self, ready: list[NewGeneration]) -> list[StoreResult | Exception]:
        """Store generations in the groups of one transaction each: an error affects one group only."""
        return [stored for group in Portions().groups(ready) for stored in self._store(group)]

    def _store(self, ready: Sequence[NewGeneration]) -> Sequence[StoreResult | Exception]:
        """Store generations together, or one by one if the catalog refuses one of them."""
        try:
            return self._catalog.store(ready)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - one generation is at fault: stored alone, each shows whether it is
            if len(ready) == 1:
                return [error]
        return [stored for one in ready for stored in self._store([one])]


def _result(drafted: DraftedGeneration, stored: StoreResult, embedded: set[str]) -> Any:
    embedded_count = len(embedded & {chunk.text_hash for chunk in drafted.chunks})
    if stored.outcome is Outcome.BUILDING:
        # At the end, only texts embedded by tasks are counted; these were embedded before.
        progress = msgspec.json.encode({EMBEDDED: embedded_count}).decode() if embedded_count else None
        return Wait(waiting_for=str(stored.document_id), progress_json=progress)
    if stored.outcome is Outcome.REMOVED:
        return {"outcome": "removed while indexing"}
    if stored.outcome is Outcome.SUPERSEDED:
        return {"outcome": "superseded"}
    if stored.outcome is Outcome.KEPT_BACK:
        return NoText(f"none of {how_many(len(drafted.generation.pages), 'page')} could be read")
    result = {
        "outcome": "indexed",
        "pages": len(drafted.generation.pages),
        "chunks": stored.chunks,
        "kept": stored.kept,
        "embedded": embedded_count,
        "tokens": drafted.tokens,
    }
    if stored.failed:
        result |= {"partial": True, "failed": stored.failed}
    if not stored.chunks and not stored.failed:
        result["note"] = "blank"
    if drafted.warnings:
        result["warnings"] = list(drafted.warnings[:10])
    return result


def stored_since(context: Context, known: Source) -> dict[str, Any]:
    """Chunks of a child's file already stored by an interrupted attempt at the same request."""
    at = known.published_at
    if context.claim.parent_id is None or at is None or at < context.asked_at:
        return {}
    return {"chunks": known.chunk_count}


def adopted(
    catalog: Catalog, context: Context, known: Source, wanted: Fingerprints, content_hash: str
) -> Wait | None:
    """Adopt an unfinished or partial generation of the same content: only missing parts are done."""
    for document_id in filter(None, (known.building_id, known.published_id if known.partial else None)):
        with catalog.snapshot() as snapshot:
            document = snapshot.document(document_id)
        if document is None or document.content_hash != content_hash:
            continue
        if not same_reading(wanted, document.fingerprints):
            continue
        adoption = Adoption(
            document_id=document_id,
            asked_at=context.asked_at,
            read_at=clock.now(),
            job_id=context.job_id,
            priority=context.claim.priority,
        )
        if catalog.adopt(adoption):
            return Wait(waiting_for=str(document_id))
    return None
