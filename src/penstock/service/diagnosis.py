"""Diagnosis of an installation: versions, stores, sandbox, OCR, optional parts and workers."""

from __future__ import annotations

import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from importlib import metadata

import msgspec

from penstock import extensions
from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Phase, Place
from penstock.config import Settings, unknown_variables
from penstock.errors import ComponentMissing, PenstockError
from penstock.extras import EXTRAS, install_command
from penstock.graph_stores.protocol import GraphCopy
from penstock.handlers.outside_stores import unfilled_stores
from penstock.named_tuple import NamedTuple
from penstock.queue.protocol import Queue
from penstock.service import machine_checks
from penstock.service.documents import left_behind
from penstock.service.explanations import living_workers
from penstock.service.machine_checks import Check
from penstock.state_directory import make_private
from penstock.vector_stores.protocol import VectorStore
from penstock.vocabulary import how_many


class Diagnosis(msgspec.Struct, frozen=True):
    """All checks, in the order of the report."""

    checks: list[Check]

    @property
    def healthy(self) -> bool:
        return all(check.status != "failed" for check in self.checks)


class Installation(NamedTuple):
    """Functions to open the parts of an installation, and to check or repair the state of workers."""

    open_queue: Callable[[], Queue]
    open_catalog: Callable[[], Catalog]
    open_vector_store: Callable[[], VectorStore | None]
    open_graph_store: Callable[[], GraphCopy | None]
    check_model: Callable[[], None]
    """Raises if the embedding model is missing or damaged."""
    any_dead_worker: Callable[[], bool]
    release_dead: Callable[[Queue, Catalog], int]


def diagnose(settings: Settings, parts: Installation, *, fix: bool = False) -> Diagnosis:
    """Check everything that Penstock needs. Stores are opened and closed; only ``fix`` changes something."""
    return Diagnosis(
        [
            Check(subject="penstock", detail=f"{metadata.version('penstock')} in {sys.prefix}"),
            Check(subject="python", detail=f"{platform.python_version()} on {platform.system()}"),
            *_variables(),
            _state_directory(settings),
            *(found.settled(fix=fix) for found in machine_checks.machine(settings)),
            *_queue(settings, parts, fix=fix),
            *_catalog(settings, parts.open_catalog, fix=fix),
            _embedder(settings, parts),
            _sandbox(),
            _ocr(settings),
            _vector_search(parts.open_vector_store),
            *_graph_store(parts.open_graph_store),
            *_formats(),
            *_extras(),
            *_extensions(),
        ]
    )


def _failed(subject: str, error: PenstockError) -> Check:
    return Check(subject=subject, status="failed", detail=error.message, remedy=error.remedy)


def _variables() -> Iterator[Check]:
    for variable in unknown_variables():
        detail = f"{variable.name} is not a setting and has no effect"
        yield Check(subject="environment", status="note", detail=detail, remedy=variable.remedy)


def _state_directory(settings: Settings) -> Check:
    place = settings.state_dir
    try:
        make_private(place)
        with tempfile.TemporaryFile(dir=place):
            return Check(subject="state directory", detail=f"{place}, writable")
    except OSError as error:
        return Check(
            subject="state directory",
            status="failed",
            detail=f"{place} cannot be written ({error.strerror})",
            remedy="Make it writable, or choose another one with PENSTOCK_STATE.",
        )


def _queue(settings: Settings, parts: Installation, *, fix: bool) -> Iterator[Check]:
    try:
        queue = parts.open_queue()
    except PenstockError as error:
        yield _failed("queue", error)
        return
    try:
        workers = living_workers(queue, settings.heartbeat_s)
        yield Check(subject="queue", detail=f"{settings.store.masked}, schema current")
        alive = f"{how_many(len(workers), 'worker')} alive"
        yield Check(subject="workers", detail=alive if workers else "none: commands do the work themselves")
        release = partial(_release_dead, parts, queue) if parts.any_dead_worker() else None
        for found in machine_checks.queue_state(queue, settings, release):
            yield found.settled(fix=fix)
    except PenstockError as error:
        yield _failed("queue", error)
    finally:
        queue.close()


def _release_dead(parts: Installation, queue: Queue) -> int:
    with closing(parts.open_catalog()) as catalog:
        return parts.release_dead(queue, catalog)


def _catalog(settings: Settings, open_catalog: Callable[[], Catalog], *, fix: bool) -> Iterator[Check]:
    try:
        catalog = open_catalog()
    except PenstockError as error:
        yield _failed("catalog", error)
        return
    try:
        with catalog.snapshot() as snapshot:
            model = snapshot.fingerprints().get(Phase.VECTOR)
        unfilled = unfilled_stores(catalog.outside, settings)
        rows = [found.settled(fix=fix) for found in machine_checks.catalog_state(catalog)]
        rows += _left_behind(catalog, settings)
    except PenstockError as error:
        yield _failed("catalog", error)
        return
    finally:
        catalog.close()
    yield _model(settings, model)
    yield from rows
    for what in unfilled:
        remedy = "A worker fills it; `penstock verify --fix` does it at once."
        yield Check(subject="catalog", status="note", detail=what, remedy=remedy)


def _left_behind(catalog: Catalog, settings: Settings) -> Iterator[Check]:
    """Folders of projects with documents in the default tenant as well, from requests without a project."""
    roots = catalog.projects.all()
    with catalog.snapshot() as snapshot:
        for one in snapshot.tenants(settings.tenant_id) if roots else ():
            place = Place(one.tenant_id, one.collection, one.branch)
            for root in roots:
                if root.tenant_id != place.tenant_id and snapshot.known(place, root.root, limit=1):
                    what, remedy = left_behind(place, root.root)
                    yield Check(subject="projects", status="note", detail=what, remedy=remedy)


def _model(settings: Settings, model: str | None) -> Check:
    detail = f"schema current, model {model or settings.embedder}"
    if model is not None and not model.startswith(f"{settings.embedder}-"):
        return Check(
            subject="catalog",
            status="note",
            detail=f"{detail}; the settings name {settings.embedder}",
            remedy="Set PENSTOCK_EMBEDDER to the model of the catalog, or run `penstock rebuild`.",
        )
    return Check(subject="catalog", detail=detail)


def _embedder(settings: Settings, parts: Installation) -> Check:
    from penstock.service.models import Models

    (used,) = (model for model in Models(settings, parts.open_catalog).states() if model.in_use)
    if used.usable:
        try:
            parts.check_model()
        except PenstockError as error:
            return _failed("embedder", error)
    return Check(
        subject="embedder",
        status="ok" if used.usable else "failed",
        detail=f"{used.name}: {used.description}" + ("" if used.usable else ", not ready"),
        remedy=used.missing,
    )


def _sandbox() -> Check:
    from penstock.pipeline.extract.sandbox.server import supported

    found = supported()
    return Check(
        subject="sandbox", status="ok" if found.complete else "note", detail=f"parsers have {found.summary()}"
    )


def _ocr(settings: Settings) -> Check:
    from penstock.pipeline.ocr import protocol
    from penstock.pipeline.ocr.engines import engine_versions

    if not settings.ocr:
        return Check(subject="ocr", status="note", detail="switched off (PENSTOCK_OCR)")
    if settings.ocr_endpoint_url:
        return Check(subject="ocr", detail=f"by the endpoint with model {settings.ocr_endpoint_model}")
    packages = {"tesseract": "tesserocr"}
    engines = ", ".join(f"{packages.get(name, name)} {found}" for name, found in engine_versions().items())
    folder = str(settings.ocr_tessdata_dir or "")
    try:
        protocol.find_models(settings.ocr_languages.replace("+", " ").split(), folder)
    except ComponentMissing as error:
        return _failed("ocr", error)
    found = ", ".join(protocol.installed(folder))
    if not engines:
        remedy = "Install Penstock again: tesserocr is one of its dependencies."
        return Check(subject="ocr", status="failed", detail="no engine is installed", remedy=remedy)
    return Check(
        subject="ocr", detail=f"{engines}; languages {found} installed, {settings.ocr_languages} in use"
    )


def _vector_search(open_vector_store: Callable[[], VectorStore | None]) -> Check:
    try:
        store = open_vector_store()
        if store is None:
            return _vector_index()
        return Check(subject="vector search", detail=f"{store.check()}, {store.address}")
    except PenstockError as error:
        return _failed("vector search", error)


def _graph_store(open_graph_store: Callable[[], GraphCopy | None]) -> Iterator[Check]:
    try:
        store = open_graph_store()
        if store is not None:
            with closing(store):
                store.ping()
                yield Check(subject="graph store", detail=store.address)
    except PenstockError as error:
        yield _failed("graph store", error)


def _vector_index() -> Check:
    installed = next(extra for extra in EXTRAS if extra.name == "usearch").installed
    detail = "exact, and approximate by usearch for very many chunks" if installed else "exact"
    return Check(subject="vector search", detail=detail)


def _formats() -> Iterator[Check]:
    """Formats not readable without an extra."""
    from penstock.pipeline.extract.factory import formats

    missing = {extra.name for extra in EXTRAS if not extra.installed}
    for one in formats():
        if one.extra in missing:
            yield Check(
                subject="formats",
                status="note",
                detail=f"{one.name} ({', '.join(one.suffixes)}) cannot be read",
                remedy=install_command(one.extra or ""),
            )


def _extras() -> Iterator[Check]:
    for extra in EXTRAS:
        detail = extra.purpose
        if extra.installed:
            yield Check(subject=f"extra {extra.name}", detail=f"{detail}, installed")
        else:
            yield Check(
                subject=f"extra {extra.name}",
                status="note",
                detail=f"{detail}, not installed ({extra.size_mb} MB)",
                remedy=install_command(extra.name),
            )


def _extensions() -> Iterator[Check]:
    """Check extensions of other packages, and list those that cannot be loaded."""
    loaded: dict[str, list[str]] = {}
    for extension in extensions.installed():
        try:
            extension.load()
        except PenstockError as error:
            yield _failed("extensions", error)
        else:
            package = f"{extension.package} {extension.version}"
            loaded.setdefault(package, []).append(extension.title)
    if loaded:
        detail = "; ".join(f"{package}: {', '.join(titles)}" for package, titles in loaded.items())
        yield Check(subject="extensions", detail=detail)
