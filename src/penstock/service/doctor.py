"""Diagnosis of an installation: machine, stores, models, parsers, workers; with safe repairs."""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import timedelta
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from penstock import clock, extensions
from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Phase, Place
from penstock.config import Settings, unknown_variables
from penstock.errors import ComponentMissing, PenstockError
from penstock.extensions import EXTRAS, install_command
from penstock.graph_stores.protocol import GraphCopy
from penstock.handlers.outside_stores import unfilled_stores
from penstock.handlers.source_files import FETCHED, uploads_directory
from penstock.pipeline.extract.factory import formats
from penstock.pipeline.extract.sandbox.server import supported
from penstock.pipeline.ocr import protocol
from penstock.pipeline.ocr.engines import engine_versions
from penstock.queue import transitions
from penstock.queue.job import JobQuery
from penstock.queue.protocol import Queue, living_workers
from penstock.service import keys
from penstock.service.documents import left_behind
from penstock.service.runtime_file import RuntimeFile
from penstock.service.upkeep import Models
from penstock.service.uploads import INCOMING, RESERVED_BYTES
from penstock.state_directory import make_private
from penstock.vector_stores.protocol import VectorStore
from penstock.vocabulary import how_many

Verdict: TypeAlias = Literal["ok", "note", "failed", "fixed"]
FEW_BYTES = 1 << 30
"""Free space below which a check is a note. Below ``RESERVED_BYTES`` uploads are refused."""
_DRIFT = timedelta(seconds=5)
_FORGOTTEN_AFTER = timedelta(hours=1)
"""Age of the last report of a worker that is not listed any more."""
_FEW_WATCHES, _FEW_INSTANCES = 65_536, 128
INOTIFY = Path("/proc/sys/fs/inotify")
_LEFTOVER_AFTER_S = 86_400
_SHOWN = 3


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a diagnosis. A ``note`` is a limit that may matter; only ``failed`` prevents work."""

    subject: str
    status: Verdict = "ok"
    detail: str
    remedy: str = ""
    fixable: bool = False
    """Check that ``penstock doctor --fix`` repairs."""


class Finding(msgspec.Struct, frozen=True):
    """A check with an optional repair. The repair returns a description of the changes."""

    check: Check
    fix: Callable[[], str] | None = None

    def settled(self, *, fix: bool) -> Check:
        """The check; with ``fix``, after the repair."""
        if self.fix is None:
            return self.check
        if not fix:
            remedy = self.check.remedy or "Run `penstock doctor --fix`."
            return msgspec.structs.replace(self.check, fixable=True, remedy=remedy)
        return Check(subject=self.check.subject, status="fixed", detail=self.fix())


def _note(subject: str, detail: str, remedy: str = "", fix: Callable[[], str] | None = None) -> Finding:
    return Finding(Check(subject=subject, status="note", detail=detail, remedy=remedy), fix)


class Diagnosis(msgspec.Struct, frozen=True):
    """All checks, in the order of the report."""

    checks: list[Check]

    @property
    def healthy(self) -> bool:
        return all(check.status != "failed" for check in self.checks)


class Installation(msgspec.Struct, frozen=True):
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
            *(found.settled(fix=fix) for found in _machine(settings)),
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


def _machine(settings: Settings) -> Iterator[Finding]:
    """Disk space, limits of watchers, and files in the state directory."""
    yield _disk(settings.state_dir)
    yield from _inotify(INOTIFY)
    yield from _private_keys(settings.state_dir)
    yield from _runtime_file(settings.state_dir)
    yield from _leftovers(settings)


def _disk(directory: Path) -> Finding:
    try:
        free = shutil.disk_usage(directory).free
    except OSError as error:
        return _note("disk", f"the free space of {directory} cannot be read ({error.strerror})")
    detail = f"{free / (1 << 30):.1f} GB free in {directory}"
    remedy = "Free some space, or move the state directory to another disk (PENSTOCK_STATE)."
    if free < RESERVED_BYTES:
        return Finding(Check(subject="disk", status="failed", detail=detail, remedy=remedy))
    if free < FEW_BYTES:
        return _note("disk", detail, remedy)
    return Finding(Check(subject="disk", detail=detail))


def _inotify(directory: Path) -> Iterator[Finding]:
    if not sys.platform.startswith("linux"):
        return
    for name, few, what in (
        ("max_user_watches", _FEW_WATCHES, "folders"),
        ("max_user_instances", _FEW_INSTANCES, "watchers"),
    ):
        try:
            limit = int((directory / name).read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        if limit < few:
            remedy = f"As root: sysctl fs.inotify.{name}={few * 8}"
            yield _note("inotify", f"`penstock watch` can watch {limit:,} {what} of this user", remedy)


def _private_keys(state_dir: Path) -> Iterator[Finding]:
    path, found = state_dir / keys.KEYS_FILE, keys.Keys(state_dir)
    with suppress(OSError):
        mode = path.stat().st_mode & 0o777
        if mode & 0o077:

            def fix() -> str:
                path.chmod(0o600)
                return f"{path} is for this user only"

            yield _note("keys", f"{path} can be read by others (mode {mode:o})", f"chmod 600 {path}", fix)
    try:
        if found.ever_made() and not found.exist():
            remedy = "Make a key with `penstock keys create NAME`, or put the file back from a backup."
            yield _note("keys", f"there is no key, and every request needs one ({path})", remedy)
    except PenstockError as error:
        yield _note("keys", error.message, error.remedy)


def _runtime_file(state_dir: Path) -> Iterator[Finding]:
    runtime = RuntimeFile(state_dir)
    if runtime.is_stale():

        def fix() -> str:
            runtime.take()
            runtime.release()
            return "the address of the server that has died was removed"

        yield _note("server", "a server of this state directory has died without an end", fix=fix)


def _leftovers(settings: Settings) -> Iterator[Finding]:
    long_ago = clock.now().timestamp() - _LEFTOVER_AFTER_S
    found = [
        path for path in (settings.state_dir / "vectors").glob("*/*.young") if path.stat().st_mtime < long_ago
    ]
    if found:

        def fix() -> str:
            for path in found:
                path.unlink(missing_ok=True)
            return f"{how_many(len(found), 'unfinished vector file')} removed"

        yield _note(
            "leftover files", f"{how_many(len(found), 'unfinished vector file')} of dead processes", fix=fix
        )
    for directory in (Path(uploads_directory(settings)), settings.state_dir / FETCHED):
        incoming = directory / INCOMING
        received = sum(1 for path in incoming.glob("*/*") if path.is_file()) if incoming.is_dir() else 0
        if received and RuntimeFile(settings.state_dir).find() is None:
            yield _note(
                "uploads",
                f"{how_many(received, 'file')} of interrupted uploads in {incoming}",
                "Start the server: it finishes or removes them.",
            )


def _queue_state(
    queue: Queue, settings: Settings, release_dead: Callable[[], int] | None
) -> Iterator[Finding]:
    """Clocks, warnings of the store, and claims of dead workers.

    ``release_dead`` releases the claims of dead workers of this host; None: there are no dead workers.
    """
    yield from (_note("queue", warning) for warning in queue.check())
    yield from _clocks(queue)
    if release_dead is not None:
        release = release_dead
        yield _note(
            "dead workers",
            "a worker of this host has died; the next one releases its jobs",
            fix=lambda: f"{how_many(release(), 'job or task', 'jobs and tasks')} released",
        )
    yield from _expired(queue)
    yield from _silent_workers(queue, settings)


def _clocks(queue: Queue) -> Iterator[Finding]:
    server, here = queue.now(), clock.now()
    remedy = "Set the clocks of this machine and of the server by NTP."
    if abs(server - here) > _DRIFT:
        seconds = abs((server - here).total_seconds())
        which = "ahead of" if server > here else "behind"
        yield _note("clock", f"the server's clock is {seconds:,.0f} s {which} that of this machine", remedy)
    newest = queue.find(JobQuery(newest_first=True, limit=1))
    if newest and newest[0].updated_at > server + _DRIFT:
        ahead = (newest[0].updated_at - server).total_seconds()
        yield _note("clock", f"a job was changed {ahead:,.0f} s in the future: a clock was set back", remedy)


def _expired(queue: Queue) -> Iterator[Finding]:
    found = queue.expired(limit=100)
    if not found:
        return

    def fix() -> str:
        released = 0
        while lost := queue.expired(limit=100):
            settled = queue.settle([transitions.lease_ended(job) for job in lost])
            released += sum(status is not None for status in settled)
            if not any(settled):
                break
        return f"{how_many(released, 'job')} of workers that stopped renewing their leases released"

    number = f"{len(found)} or more" if len(found) == 100 else str(len(found))
    yield _note("leases", f"{number} jobs are held by workers that stopped renewing their leases", fix=fix)


def _silent_workers(queue: Queue, settings: Settings) -> Iterator[Finding]:
    now = queue.now()
    silent = [
        report
        for report in queue.workers()
        if not report.alive(now, settings.heartbeat_s)
        and (report.seen_at is None or now - report.seen_at > _FORGOTTEN_AFTER)
    ]
    if silent:
        names = ", ".join(report.worker_id for report in silent[:_SHOWN])
        yield _note(
            "worker reports",
            f"{how_many(len(silent), 'worker')} silent for more than an hour ({names})",
            fix=lambda: f"{how_many(queue.forget_workers(silent), 'report')} removed",
        )


def _catalog_state(catalog: Catalog) -> Iterator[Finding]:
    """Rows without owners, wrong counts, and texts without words or vectors."""
    complaints = catalog.audit()
    if not complaints:
        return

    def fix() -> str:
        repaired = 0
        while changed := catalog.repair():
            repaired += changed
        return f"{how_many(repaired, 'row')} of the catalog repaired"

    more = f" and {len(complaints) - _SHOWN} more" if len(complaints) > _SHOWN else ""
    yield _note("catalog rows", "; ".join(complaints[:_SHOWN]) + more, fix=fix)


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
        for found in _queue_state(queue, settings, release):
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
        rows = [found.settled(fix=fix) for found in _catalog_state(catalog)]
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
    found = supported()
    return Check(
        subject="sandbox", status="ok" if found.complete else "note", detail=f"parsers have {found.summary()}"
    )


def _ocr(settings: Settings) -> Check:
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
            installed = next(extra for extra in EXTRAS if extra.name == "usearch").installed
            detail = "exact, and approximate by usearch for very many chunks" if installed else "exact"
            return Check(subject="vector search", detail=detail)
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


def _formats() -> Iterator[Check]:
    """Formats not readable without an extra."""
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
