"""Upkeep of the index: re-indexing after a change of model, comparison with the disk, and the models."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import msgspec

from penstock import clock
from penstock.catalog.protocol import BATCH, Catalog, known_below
from penstock.catalog.values import KnownSource, Phase, Place, TokenUse
from penstock.config import Settings
from penstock.errors import InvalidRequest, InvalidSetting
from penstock.extensions import install_remedy, is_installed, refuse_missing
from penstock.handlers.members import container_of, hash_of
from penstock.handlers.missing_files import CAREFUL, maybe_unmounted
from penstock.handlers.outside_stores import GraphCopies, StoreComparison
from penstock.handlers.reindex import OUTDATED, why_outdated
from penstock.pipeline.embed import fastembed, space_of
from penstock.pipeline.embed.fastembed import FastembedOptions
from penstock.pipeline.embed.minilm import download, model_files
from penstock.pipeline.extract.protocol import ExtractLimits
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.vectors.protocol import VectorCopies
from penstock.pipeline.walk.repository import WORK_TREE, other_state
from penstock.queue.payloads import delivered_file_of, validate_name
from penstock.service.jobs import Jobs
from penstock.service.projects import followed
from penstock.service.requests import Receipt, Submission, submission_at
from penstock.service.why import FailedPath, failed_paths

REASONS = {
    "model": "vectors of another model",
    "reading": "older version of parser or chunker",
    "graph": "entities of another extractor",
}
_EVERYTHING = "/"
_PRIORITY = 0
"""Background work: every other request goes first."""
_FORMER_VERSION = "cannot be read in its new version; search still finds the former one"
_INSTALLABLE = (model_files.NAME, fastembed.NAME)


class Cost(msgspec.Struct, kw_only=True):
    """Documents and chunks to process; chunks with cached vectors are not embedded again."""

    documents: int = 0
    chunks: int = 0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Documents to re-index, by reason. ``roots`` are the folders above them."""

    space: str
    total: Cost
    by_reason: dict[str, Cost]
    roots: tuple[tuple[Place, str], ...]
    looked_at: int
    """All documents at or below the given paths, outdated or not."""


class Rebuilder:
    """Plans and starts re-indexing after a change of model, parser or chunker; writes nothing before."""

    def __init__(self, catalog: Catalog, jobs: Jobs, pipeline: Pipeline) -> None:
        self._catalog = catalog
        self._jobs = jobs
        self._pipeline = pipeline

    def plan(
        self, paths: Sequence[str] = (), *, tenant_id: str | None = None, collection: str | None = None
    ) -> Plan:
        if tenant_id is not None:
            validate_name("tenant_id", tenant_id)
        total, by_reason = Cost(), {reason: Cost() for reason in REASONS}
        roots, looked_at = [], 0
        for place, root in self._roots(paths, tenant_id, collection):
            before = total.documents
            for known in known_below(self._catalog, place, None if root == _EVERYTHING else root):
                looked_at += known.published_id is not None
                reason = why_outdated(known, self._pipeline) if known.published_id is not None else None
                if reason is not None:
                    for cost in (total, by_reason[reason]):
                        cost.documents += 1
                        cost.chunks += known.chunk_count
            if total.documents > before:
                roots.append((place, root))
        return Plan(
            space=space_of(self._pipeline.embedder),
            total=total,
            by_reason={reason: cost for reason, cost in by_reason.items() if cost.documents},
            roots=tuple(roots),
            looked_at=looked_at,
        )

    def _roots(
        self, paths: Sequence[str], tenant_id: str | None, collection: str | None
    ) -> Iterator[tuple[Place, str]]:
        with self._catalog.snapshot() as snapshot:
            tenants = snapshot.tenants(tenant_id)
        for one in tenants:
            if collection in (None, one.collection):
                place = Place(one.tenant_id, one.collection, one.branch)
                yield from ((place, root) for root in paths or (_EVERYTHING,))

    def start(self, plan: Plan) -> list[Receipt]:
        """Make this process's model the catalog's, and queue the jobs.

        Published documents stay until their successors are published. Workers with another model stop
        indexing from now on.
        """
        self._catalog.set_fingerprints({Phase.VECTOR: plan.space}, replace=True)
        submissions: list[Submission] = [
            {
                **submission_at(place, "folder", "ingest", {"folder_path": root}),
                "priority": _PRIORITY,
                "metadata": {OUTDATED: True} | self._work_tree(place),
                # An ordinary index job of the same folder does not re-index unchanged files.
                "dedupe": False,
            }
            for place, root in plan.roots
        ]
        # Without limits: a refusal here would leave the new model without jobs.
        return self._jobs.submit_many(submissions, limited=False, exact=True)

    def _work_tree(self, place: Place) -> dict[str, str]:
        """The metadata for keeping files of another branch out of a project's documents."""
        found = [one.root for one in self._catalog.projects.all() if one.tenant_id == place.tenant_id]
        return {WORK_TREE: found[0]} if found else {}


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A difference between files and catalog. ``path`` is None for a fault inside the catalog."""

    what: str
    place: Place | None = None
    path: str | None = None
    left_alone: str | None = None
    """The reason why ``fix`` leaves the path alone: the disk may be unmounted, or the file be unreadable."""
    content: bool = False
    """Found by the checksum alone: size and time are unchanged."""


class Verifier:
    """Compares the index with itself and the disk, page by page; only ``repair`` and ``fix`` write."""

    def __init__(
        self,
        catalog: Catalog,
        jobs: Jobs,
        vector_copies: VectorCopies,
        limits: ExtractLimits,
        vector_store: StoreComparison | None = None,
        graph_copies: GraphCopies | None = None,
    ) -> None:
        """``limits``: of the workers; they decide which part of a large text is compared.

        ``vector_store``, ``graph_copies``: the stores outside the catalog, if there are any.
        """
        self._graph_copies = graph_copies
        self._catalog = catalog
        self._jobs = jobs
        self._vector_copies = vector_copies
        self._limits = limits
        self._vector_store = vector_store

    def differences(self, tenant_id: str | None = None, *, checksum: bool = False) -> Iterator[Difference]:
        """List all differences; ``checksum`` reads every file, also those with unchanged size and time.

        for difference in app.verifier.differences(checksum=True):
            print(difference.path, difference.what)
        """
        if tenant_id is not None:
            validate_name("tenant_id", tenant_id)
        for complaint in self._catalog.audit():
            yield Difference(what=complaint)
        # Copies, not part of the index: only damage is reported.
        for path in self._vector_copies.damaged():
            yield Difference(what=f"a copy of vectors is damaged: {path}")
        for store in (self._vector_store, self._graph_copies):
            for what in store.differences() if store is not None else ():
                yield Difference(what=what)
        with self._catalog.snapshot() as snapshot:
            places = [Place(one.tenant_id, one.collection, one.branch) for one in snapshot.tenants(tenant_id)]
        elsewhere = self._other_roots(places)
        for place in places:
            roots = _Roots(self._catalog, place)
            for known in known_below(self._catalog, place):
                if known.path.startswith(elsewhere.get(place, ())):
                    continue
                found = _differs(known, place, roots, self._limits if checksum else None)
                if found is not None and not self._on_its_way(known):
                    yield found

    def _other_roots(self, places: list[Place]) -> dict[Place, tuple[str, ...]]:
        """Folders in which another branch than a place's is checked out: their files are not the place's."""
        projects = self._catalog.projects.all()
        return {
            place: tuple(
                f"{one.root.rstrip('/')}/"
                for one in projects
                if one.tenant_id == place.tenant_id and other_state(one.root, place.branch) is not None
            )
            for place in places
        }

    def close(self) -> None:
        """Close the connection to a graph store outside the catalog."""
        if self._graph_copies is not None:
            self._graph_copies.close()

    def unreadable(self, tenant_id: str | None = None) -> list[FailedPath]:
        """Files with unreadable content, by place and path. No differences: search has nothing of them."""
        with self._catalog.snapshot() as snapshot:
            places = [
                Place(one.tenant_id, one.collection, one.branch)
                for one in snapshot.tenants(tenant_id)
                if one.failed
            ]
        return [one for place in places for one in failed_paths(self._catalog, place) if one.remembered]

    def _on_its_way(self, known: KnownSource) -> bool:
        """Tell whether a delivered file was indexed, but not moved to the final path yet.

        Indexing its path now would bring back the former file, or none.
        """
        with self._catalog.snapshot() as snapshot:
            document = snapshot.document(known.published_id) if known.published_id is not None else None
        job = self._jobs.queue.get(document.job_id) if document is not None and document.job_id else None
        delivered = delivered_file_of(msgspec.json.decode(job.metadata)) if job is not None else None
        if delivered is None or delivered.read_from == known.path:
            return False
        try:
            found = Path(delivered.read_from).lstat()
        except OSError:
            return False
        return (found.st_size, found.st_mtime_ns) == (known.size, known.mtime_ns)

    def repair(self) -> int:
        """Repair faults of the catalog and its copies without reading source files; return the number of
        rows, files and vectors.

        Chunks without a vector become tasks of the vector lane.
        """
        damaged_files = self._vector_copies.damaged()
        for path in damaged_files:
            self._vector_copies.discard(path)
        total = len(damaged_files)
        while repaired := self._catalog.repair():
            total += repaired
        # After the catalog, which the stores are to be equal to.
        if self._vector_store is not None:
            total += self._vector_store.fix()
        if self._graph_copies is not None:
            total += self._graph_copies.repair()
        return total

    def fix(self, found: list[Difference]) -> list[Receipt]:
        """Queue a job for every path different on the disk, unless the disk may be unmounted."""
        submissions: list[Submission] = [
            {
                **submission_at(one.place, "file", "ingest", {"file_path": one.path}),
                # Size and time are unchanged: a plain request, which would skip the file, is not the same.
                "dedupe": not one.content,
                # The disk may be unmounted, or another branch checked out, by the time the job runs.
                "metadata": {CAREFUL: True}
                | followed(self._catalog, one.place, one.path)
                | ({"checksum": True} if one.content else {}),
            }
            for one in found
            if one.path is not None and one.place is not None and one.left_alone is None
        ]
        # Without limits: it is one request, and half a repair is no repair.
        batches = (submissions[start : start + BATCH] for start in range(0, len(submissions), BATCH))
        receipts = [self._jobs.submit_many(batch, limited=False, exact=True) for batch in batches]
        return [receipt for batch in receipts for receipt in batch]


class _Roots:
    """Roots of earlier walks above a file."""

    def __init__(self, catalog: Catalog, place: Place) -> None:
        self._catalog = catalog
        self._place = place
        self._known: tuple[str, list[str]] = ("", [])

    def above(self, path: str) -> list[str]:
        """Roots above a path, cached for the folder: consecutive files are mostly in one folder."""
        folder = path.rpartition("/")[0] or "/"
        if folder != self._known[0]:
            with self._catalog.snapshot() as snapshot:
                self._known = (folder, [walk.root for walk in snapshot.walks(self._place, folder)])
        return self._known[1]


def _differs(
    known: KnownSource, place: Place, roots: _Roots, limits: ExtractLimits | None
) -> Difference | None:
    """Compare one source with the disk: by size and time, with limits by content too. Notes have no file."""

    def difference(what: str, left_alone: str | None = None, *, content: bool = False) -> Difference:
        return Difference(what=what, place=place, path=known.path, left_alone=left_alone, content=content)

    failed = known.building_id is not None and known.failed_with is not None
    if not known.path.startswith("/") or (known.published_id is None and not failed):
        return None
    if (container := container_of(known.path)) is not None:
        # A file inside another has the other's time. Its content is part of the other's.
        same = container.mtime_ns in (known.mtime_ns, known.failed_mtime_ns)
        return None if same else difference("is inside a file that has changed since")
    return _file_difference(known, roots, difference, limits, failed=failed)


def _file_difference(
    known: KnownSource,
    roots: _Roots,
    difference: Callable[..., Difference],
    limits: ExtractLimits | None,
    *,
    failed: bool,
) -> Difference | None:
    try:
        found = Path(known.path).lstat()
        if not stat.S_ISREG(found.st_mode):
            return difference("is indexed, but is not a file any more")
        if failed:
            if (found.st_size, found.st_mtime_ns) != (known.failed_size, known.failed_mtime_ns):
                return difference("has changed since it could not be read")
            return difference(_FORMER_VERSION, _FORMER_VERSION) if known.published_id is not None else None
        if (found.st_size, found.st_mtime_ns) != (known.size, known.mtime_ns):
            return difference("has changed since it was indexed")
        if limits is not None and hash_of(known.path, limits) != known.content_hash:
            return difference("has changed content, but the same size and time", content=True)
    except (FileNotFoundError, NotADirectoryError):
        return difference(
            "is indexed, but not on the disk", maybe_unmounted(known.path, roots.above(known.path))
        )
    except OSError as error:
        why = os.strerror(error.errno or 0)
        return difference(f"is indexed, but cannot be read: {why}", f"cannot be read: {why}")
    return None


class ModelState(msgspec.Struct, frozen=True, kw_only=True):
    """An embedder: usable here or not, and the missing parts."""

    name: str
    description: str
    usable: bool
    in_use: bool
    missing: str = ""


class Models:
    """Embedding models, their installation, and the tokens used. The catalog is opened only for tokens."""

    def __init__(self, settings: Settings, open_catalog: Callable[[], Catalog]) -> None:
        self._settings = settings
        self._open_catalog = open_catalog

    @property
    def directory(self) -> Path:
        return self._settings.models_dir

    def states(self) -> list[ModelState]:
        """All embedders, the default first."""
        chosen = self._settings.embedder
        url = self._settings.embed_endpoint_url
        found = [
            ("static", "table of word pieces, the default", ""),
            ("minilm", "all-MiniLM-L6-v2 in 8 bits, on onnxruntime", self._missing_of_minilm()),
            (
                "fastembed",
                f"ONNX model of fastembed: {self._settings.fastembed_model}",
                self._missing_of_fastembed(),
            ),
            (
                "endpoint",
                "endpoint compatible with OpenAI's",
                "" if url else "Set PENSTOCK_EMBED_ENDPOINT_URL.",
            ),
            ("hashing", "hashed words, for tests", ""),
        ]
        return [
            ModelState(
                name=name, description=what, usable=not missing, in_use=name == chosen, missing=missing
            )
            for name, what, missing in found
        ]

    def install(self, name: str, source: Path | None, tell: Callable[[str], None]) -> Path:
        """Install a model, from a file or folder if one is given, else from the network.

        Returns the directory. Raises ModelDamaged if the content is not the published one; nothing is
        installed then.
        """
        if name not in _INSTALLABLE:
            raise InvalidRequest(f"no model {name!r} to install; there is {', '.join(_INSTALLABLE)}")
        if name == fastembed.NAME:
            return self._install_fastembed(source, tell)
        parts = download.read_archive(source) if source else download.download(download.ModelSources(), tell)
        model_files.install(self.directory, parts.weights, parts.vocabulary)
        return self.directory

    def _install_fastembed(self, source: Path | None, tell: Callable[[str], None]) -> Path:
        if source is not None:
            raise InvalidRequest(
                "fastembed: a model in a directory is used from there, and not installed",
                remedy=f"Set PENSTOCK_FASTEMBED_MODEL={source.resolve()}.",
            )
        refuse_missing(fastembed.NAME, "embedder = 'fastembed'")
        options = self._fastembed()
        tell(f"Downloading {options.model} from the model hub")
        return fastembed.download(options, self.directory)

    def token_uses(self, tenant_id: str | None = None, month: str | None = None) -> list[TokenUse]:
        """Tokens of a month (by default this one), by tenant, service and job."""
        with self._open_catalog().snapshot() as snapshot:
            return snapshot.token_uses(tenant_id, month or clock.format_time(clock.now())[:7])

    def _fastembed(self) -> FastembedOptions:
        return FastembedOptions(self._settings.fastembed_model, self._settings.fastembed_pooling)

    def _missing_of_fastembed(self) -> str:
        if not is_installed(fastembed.NAME):
            return install_remedy(fastembed.NAME)
        try:
            fastembed.find_files(self._fastembed(), self.directory)
        except InvalidSetting as error:
            return error.remedy
        return ""

    def _missing_of_minilm(self) -> str:
        if find_spec("onnxruntime") is None:
            return install_remedy("minilm")
        return "" if model_files.is_installed(self.directory) else model_files.INSTALL
