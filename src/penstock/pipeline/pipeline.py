"""The pipeline of one process: extractors, chunkers and the embedder, with the fingerprints of their work."""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from penstock import clock
from penstock.catalog.rules.phases import EXTRACTING
from penstock.catalog.values import Fingerprints, NewPage
from penstock.errors import InvalidPayload, MemoryBudgetExceeded
from penstock.pipeline.budget import FileLimiter, MemoryShare, Work
from penstock.pipeline.chunk.languages import MORE_GRAMMARS, grammar_installed
from penstock.pipeline.chunk.text import CHARS_PER_TOKEN, ChunkSizes
from penstock.pipeline.draft import (
    NO_PICTURES,
    OCR_OFF,
    Draft,
    awaiting_ocr,
    build_draft,
    fingerprints,
    keep_reading,
    ocr_in,
    reader_in,
    with_reader,
    without_ocr,
)
from penstock.pipeline.embed import space_of
from penstock.pipeline.embed.protocol import Embedder
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.charset import whole_lines
from penstock.pipeline.extract.factory import extract, is_plain, is_sandboxed
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits
from penstock.pipeline.ocr.pages import OcrSetup, combined, page_memory, with_warning_if_poor
from penstock.strict_json import fingerprint
from penstock.vocabulary import shown_size

if TYPE_CHECKING:
    from penstock.pipeline.extract.sandbox.sandbox import Sandbox
    from penstock.pipeline.graph.llm import LlmExtractor

PICTURES = frozenset(["pdf", "image"])
"""Extractors of files whose pages may be pictures: other settings of OCR may give them another text."""
COMPONENTS = ("rapidocr",)
"""Modules of extras that extractors use: once one is installed, files that failed without it are read."""

LOOK_AGAIN_S = 5.0
"""Seconds after which a running worker looks again for languages of OCR."""


class Pipeline:
    """Turns documents into chunks and vectors. Each process has one, with an embedder and a sandbox."""

    def __init__(
        self,
        embedder: Embedder,
        *,
        limits: ExtractLimits | None = None,
        memory: MemoryShare | None = None,
        isolated: bool = False,
        ocr: OcrSetup | None = None,
        graph: bool = False,
        llm: LlmExtractor | None = None,
        vectors_outside: bool = False,
    ) -> None:
        """``isolated``: all but plain text is parsed in the sandbox, since this process must not crash.

        ``ocr``: how pictures are read; None: by Tesseract, but only if a request asks for it. ``graph``:
        entities and relations are extracted, unless a request says otherwise. ``llm``: finds those of prose;
        None: by rules. ``vectors_outside``: a store outside the catalog holds a copy of the vectors, so only
        tasks embed.
        """
        self.vectors_outside = vectors_outside
        self._graph = graph
        self.llm = llm
        self.embedder = embedder
        self._isolated = isolated
        self._ocr = ocr if ocr is not None else OcrSetup(enabled=False)
        self.limits = limits or ExtractLimits()
        self._limiter = FileLimiter(memory)
        self._fingerprints: dict[tuple[str, ChunkSizes, bool, str | None, str, bool], Fingerprints] = {}
        """Computed once for all files with the same extractor and sizes."""
        self._failure_fingerprints: dict[tuple[str | None, tuple[str, ...]], str] = {}
        self._languages_seen: tuple[float, tuple[str, ...]] = (-math.inf, ())

    @cached_property
    def _sandbox(self) -> Sandbox:
        # Loaded with the first file to be parsed: a walk of unchanged files parses none.
        from penstock.pipeline.extract.sandbox.sandbox import Sandbox

        return Sandbox(self.limits)

    @property
    def space(self) -> str:
        """Vector space of the embedder. Vectors compare only within one space."""
        return space_of(self.embedder)

    def fingerprints(
        self,
        name: str,
        sizes: ChunkSizes,
        reader: str | None = None,
        *,
        graph: bool | None = None,
        ocr: bool | None = None,
    ) -> Fingerprints:
        """Fingerprints for a file of this name. Nothing is read.

        ``reader``: the extractor of the content, where it is known; by default the one of the name.
        ``graph``, ``ocr``: whether entities and the text of pictures are wanted; None: as the setting says.
        """
        file_type = file_types.by_name(name) or file_types.TEXT
        by_name, language = file_type.extractor, file_type.language
        grammar = language if language in MORE_GRAMMARS and grammar_installed(language) else None
        extracted = self.graph_fingerprint(name) if (self._graph if graph is None else graph) else ""
        wants_ocr = self._ocr.enabled if ocr is None else ocr
        named = reader in (None, by_name)
        key = (reader or by_name, sizes, named, grammar, extracted, wants_ocr)
        found = self._fingerprints.get(key)
        if found is None:
            found = self._made_with(reader or by_name, sizes, grammar, named=named, wants_ocr=wants_ocr)
            found = replace(found, **{EXTRACTING.value: extracted})
            self._fingerprints[key] = found
        return found

    def _made_with(
        self, extractor_name: str, sizes: ChunkSizes, grammar: str | None, *, named: bool, wants_ocr: bool
    ) -> Fingerprints:
        ocr = (self._ocr.fingerprint if wants_ocr else OCR_OFF) if extractor_name in PICTURES else None
        return fingerprints(
            sizes, self.embedder, extractor_name=extractor_name, named=named, grammar=grammar, ocr=ocr
        )

    def keep_graph(self, wanted: Fingerprints, made: Fingerprints, name: str) -> Fingerprints:
        """The wanted fingerprints of a source made before: entities, once wanted, stay until refused."""
        if getattr(wanted, EXTRACTING) or not getattr(made, EXTRACTING):
            return wanted
        return replace(wanted, **{EXTRACTING.value: self.graph_fingerprint(name)})

    def keep_paid_graph(self, wanted: Fingerprints, made: Fingerprints) -> Fingerprints:
        """The wanted fingerprints of a source made before, without a change that needs a paid model."""
        if self.llm is None or not getattr(made, EXTRACTING):
            return wanted
        from penstock.pipeline.graph.factory import fingerprints_here

        if getattr(wanted, EXTRACTING) not in fingerprints_here(self.llm) - fingerprints_here():
            return wanted
        return replace(wanted, **{EXTRACTING.value: getattr(made, EXTRACTING)})

    def graph_fingerprint(self, name: str) -> str:
        """Fingerprint of the extractor of entities for a file of this name; empty without one."""
        # Imported here: most processes extract no entities.
        from penstock.pipeline.graph.factory import graph_fingerprint

        return graph_fingerprint(name, self.llm)

    def recognizes(self, name: str, sizes: ChunkSizes, made: Fingerprints) -> bool | None:
        """Check whether pictures of a document are read; None for a document of another pipeline."""
        wants_ocr = ocr_in(made.ocr) != OCR_OFF
        wanted = self.fingerprints(name, sizes, reader_in(made.ocr), ocr=wants_ocr)
        return wants_ocr if keep_reading(wanted, made).ocr == made.ocr else None

    def _languages(self) -> tuple[str, ...]:
        """Installed languages of OCR: pages that failed for want of one are read once it is there."""
        at, languages = self._languages_seen
        if clock.elapsed_s() - at > LOOK_AGAIN_S:
            languages = self._ocr.languages
            self._languages_seen = clock.elapsed_s(), languages
        return languages

    def of_size(self, wanted: Fingerprints, name: str, size: int) -> Fingerprints:
        """Fingerprints of a file of this size: of a text read in part, they depend on the limit.

        With another limit only those texts are read again that it concerns.
        """
        if size <= self.limits.text_bytes or not file_types.may_be_read_in_part(name):
            return wanted
        reading, *sizes = wanted.ocr.split(":")
        reading = fingerprint({"reading": reading, "first_bytes": self.limits.text_bytes})
        return replace(wanted, ocr=":".join((reading, *sizes)))

    def failure_fingerprint(self, wanted: Fingerprints) -> str:
        """Fingerprint of a failure: another parser, other limits or a new component may read the file."""
        languages = () if ocr_in(wanted.ocr) in (None, OCR_OFF, NO_PICTURES) else self._languages()
        found = self._failure_fingerprints.get((wanted.ocr, languages))
        if found is None:
            found = fingerprint(
                {
                    "ocr": wanted.ocr,
                    "detection": file_types.DETECTION,
                    "limits": msgspec.structs.asdict(self.limits),
                    "components": [name for name in COMPONENTS if find_spec(name) is not None],
                    "languages": languages,
                }
            )
            found = with_reader(found, reader_in(wanted.ocr))
            self._failure_fingerprints[wanted.ocr, languages] = found
        return found

    def draft(
        self, content: Content, sizes: ChunkSizes, *, pages: range | None = None, ocr: bool | None = None
    ) -> Draft:
        """Extract a file and cut the text into chunks, within the file's budget.

        ``ocr``: pages that are pictures are left to be recognized, or fail; None: as the setting says.
        Raises an ``UnreadableDocument`` if the file cannot be read or exceeds its budget, and ``MemoryInUse``
        while another large file is being parsed.
        """
        if content.size is not None and content.size > len(content.data):
            return self._draft_of_beginning(content, content.size, sizes)
        limits, size = self.limits, len(content.data)
        complete, isolated = pages is None, self._isolated and not is_plain(content)

        def finished(draft: Draft) -> Draft:
            wanted = self._ocr.enabled if ocr is None else ocr
            return awaiting_ocr(draft) if wanted else without_ocr(draft, complete=complete)

        def in_process(memory_bytes: int | None) -> Draft:
            file_type = file_types.detect(content.name, content.data)
            if isolated or is_sandboxed(file_type.extractor):
                return self._sandbox.draft(content, sizes, pages=pages, memory_bytes=memory_bytes)
            return build_draft(extract(content, limits, pages=pages), sizes, complete=complete)

        def in_sandbox(memory_bytes: int) -> Draft:
            # This process holds the file and the result as well.
            memory_bytes -= 2 * size
            return self._sandbox.draft(
                content,
                sizes,
                pages=pages,
                memory_bytes=memory_bytes,
                alone=complete or self._isolated,
                last_attempt=True,
            )

        work, seconds = Work(in_process, in_sandbox), limits.seconds_for(size)
        if isolated:
            draft = self._limiter.run_isolated(size, work)
        elif not complete:
            draft = self._limiter.run_pages(seconds, hash(content.data), work, self._sandbox.close)
        else:
            draft = self._limiter.run(seconds, size, work)
        return _with_misnaming(content, finished(draft))

    def recognize(self, content: Content, sizes: ChunkSizes, page: int) -> NewPage | None:
        """Recognize the text of one page and cut it into chunks; None if there is no such page.

        Raises errors as ``draft`` does, and others while an endpoint is unavailable.
        """
        most = self._limiter.most_bytes
        wanted = page_memory(self._ocr, most, 2 * len(content.data))

        def recognized(memory_bytes: int) -> ExtractedText:
            # This process holds the file as well.
            return self._recognized(content, page, wanted.setup, memory_bytes - len(content.data))

        run, free = self._limiter.run_recognition, self._sandbox.close
        try:
            extracted = run(wanted.memory_bytes, recognized, free)
        except MemoryBudgetExceeded:
            if most is None or wanted.memory_bytes >= most:
                raise
            extracted = run(most, recognized, free)
        if wanted.left_out:
            extracted = with_warning_if_poor(extracted, self._ocr.options.min_confidence, wanted.left_out)
        return next(iter(build_draft(extracted, sizes, complete=False).pages), None)

    def _recognized(self, content: Content, page: int, setup: OcrSetup, memory_bytes: int) -> ExtractedText:
        from penstock.pipeline.ocr.endpoint import VisionEndpoint

        options, endpoint = setup.options, setup.endpoint
        extracted = self._sandbox.extract(
            content,
            pages=range(page, page + 1),
            memory_bytes=memory_bytes,
            ocr=options if endpoint is None else None,
        )
        if endpoint is None or not extracted.needs_ocr:
            return extracted
        image = self._sandbox.image(content, page, options.dpi, memory_bytes=memory_bytes)
        found = VisionEndpoint(endpoint).recognize(image)
        pages = tuple(combined(each, found) for each in extracted.pages)
        return replace(extracted, pages=pages)

    def pause(self) -> None:
        """Free the memory kept for further pages, if another process waits for some."""
        self._limiter.pause()

    def rest(self) -> None:
        """Free the memory kept for further pages, when there are none for now."""
        self._limiter.rest()

    def _draft_of_beginning(self, content: Content, whole: int, sizes: ChunkSizes) -> Draft:
        """Draft the first lines of a text too large to be indexed as a whole."""
        file_type = file_types.by_name(content.name) or file_types.TEXT
        data = whole_lines(content.data, quoted=file_type.extractor == "table")
        draft = self.draft(Content(content.name, data), sizes)
        read = f"indexed the first {shown_size(len(content.data))} of {shown_size(whole)}"
        return replace(draft, warnings=(read, *draft.warnings))

    def embed(self, texts: list[str]) -> list[bytes]:
        vectors = self.embedder.embed(texts)
        return [vector.astype("<f4", copy=False).tobytes() for vector in vectors]

    def close(self) -> None:
        self._limiter.close()
        if "_sandbox" in self.__dict__:
            self._sandbox.close()


def _with_misnaming(content: Content, draft: Draft) -> Draft:
    """The draft with a warning, if the name is of another type than the content."""
    name, found = content.name, file_types.stored_type("", draft.media_type)
    if file_types.detect(name, content.data) == file_types.COMPRESSED:
        # The draft is of the file inside, which the suffix before the last one names.
        warning = file_types.misnaming(file_types.uncompressed_name(name), found)
        return replace(draft, other_type=True, warnings=(*filter(None, [warning]), *draft.warnings))
    warning = file_types.misnaming(name, found)
    if warning is None:
        return draft
    return replace(draft, misnamed=True, other_type=True, warnings=(warning, *draft.warnings))


@lru_cache(64)
def chunk_sizes(size: int | None, overlap: int | None) -> ChunkSizes:
    """Chunk sizes in characters, from the tokens of a request."""
    default = ChunkSizes()
    try:
        return ChunkSizes(
            default.size if size is None else size * CHARS_PER_TOKEN,
            default.overlap if overlap is None else overlap * CHARS_PER_TOKEN,
        )
    except ValueError as error:
        raise InvalidPayload(f"chunk_size and chunk_overlap: {error}") from None
