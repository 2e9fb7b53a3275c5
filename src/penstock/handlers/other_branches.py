"""Texts of other branches of a project: an unchanged file of a new branch is not read or embedded again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Place
from penstock.catalog.views import Source
from penstock.handlers.container_paths import may_hold_members
from penstock.handlers.context import Context
from penstock.handlers.file_request import FileRequest
from penstock.handlers.generation_batch import DraftedGeneration
from penstock.handlers.missing_files import unchanged_at
from penstock.handlers.reindex import from_catalog
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.walk.repository import WORK_TREE


class OtherBranches:
    """Documents at the same paths in other branches, for files without one in their own branch.

    In another work tree of the project, the same path is the one from its top folder.
    """

    def __init__(self, catalog: Catalog, pipeline: Pipeline) -> None:
        self._catalog = catalog
        self._pipeline = pipeline
        self._found: dict[tuple[Place, str], list[Source]] = {}

    def look_up(
        self,
        contexts: Sequence[Context],
        requests: Sequence[FileRequest | Exception],
        known: Mapping[tuple[Place, str], Source],
    ) -> None:
        """Find the documents of other branches for the new files of projects."""
        wanted: dict[Place, dict[str, str]] = {}
        for context, request in zip(contexts, requests, strict=True):
            root = context.metadata.get(WORK_TREE)
            if isinstance(request, Exception) or not isinstance(root, str):
                continue
            if (request.place, request.path) not in known:
                wanted.setdefault(request.place, {})[request.path] = root
        if not wanted:
            return
        roots = self._catalog.projects.all()
        with self._catalog.snapshot() as snapshot:
            for place, paths in wanted.items():
                others = [each.root for each in roots if each.tenant_id == place.tenant_id]
                same = _same_paths(paths, others)
                for branch in snapshot.branches(place.tenant_id, place.collection):
                    other = Place(place.tenant_id, place.collection, branch)
                    for path, source in snapshot.find_all(other, same).items() if other != place else ():
                        if source.published_id is not None:
                            self._found.setdefault((place, same[path]), []).append(source)

    def source_id(self, request: FileRequest) -> str | None:
        """A document in another branch, to share texts and vectors with."""
        found = self._found.get((request.place, request.path), ())
        in_place = [source for source in found if source.path == request.path]
        return (in_place or found)[-1].source_id if found else None

    def copy(self, context: Context, request: FileRequest) -> DraftedGeneration | None:
        """The document of another branch made of the same file, by size and time."""
        for source in self._found.get((request.place, request.path), ()):
            asked = request.as_known(source, self._pipeline)
            if (
                source.path == request.path
                and not (
                    request.rebuild or request.checksum or source.partial or may_hold_members(request.path)
                )
                and unchanged_at(request.path, source.size, source.mtime_ns)
                and asked.fingerprints == source.fingerprints
            ):
                drafted = from_catalog(
                    self._catalog, source, context, source.fingerprints, self._pipeline.space
                )
                if drafted is not None:
                    generation = msgspec.structs.replace(
                        drafted.generation, place=request.place, related_id=source.source_id
                    )
                    return msgspec.structs.replace(drafted, generation=generation)
        return None


def _same_paths(paths: Mapping[str, str], roots: Iterable[str]) -> dict[str, str]:
    """Paths by themselves, and by the same path in each of the other top folders."""
    same = {
        f"{other}{path.removeprefix(root)}": path
        for other in roots
        for path, root in paths.items()
        if path.startswith(f"{root}/")
    }
    return same | {path: path for path in paths}
