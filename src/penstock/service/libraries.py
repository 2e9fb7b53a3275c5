"""Use cases about libraries: add a version, list versions, remove them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Unpack

import msgspec

from penstock.catalog.protocol import Catalog, known_below
from penstock.catalog.values import Place
from penstock.errors import LibraryNotFound, PathNotFound, UnknownLibrary
from penstock.pipeline.web import urls
from penstock.queue.payloads import LIBRARIES, library_path, normal_library_name, parse_requirement
from penstock.service.folders import crawl_fields, with_job_options
from penstock.service.jobs import Jobs
from penstock.service.paths import real_path
from penstock.service.projects import Placement
from penstock.service.requests import LibraryOptions, Receipt, Submission, refuse_unknown

_FILE_NAME = (
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*?)-(?P<version>v?\d[A-Za-z0-9.!+]*(?:[.-]?(?:rc|a|b|post|dev)\d+)*)"
    r"(?P<more>(?:-[A-Za-z0-9._]+)*)\.(?:whl|zip|tgz|tar(?:\.\w+)?)\Z"
)
"""Name of an archive: ``mill-1.2.tar.gz``, or ``mill-1.2-py3-none-any.whl``."""
_METADATA = ("PKG-INFO", "METADATA")


class IndexedLibrary(msgspec.Struct, frozen=True, kw_only=True):
    """One indexed version of a library. ``source``: where its documents came from."""

    name: str
    version: str
    path: str
    documents: int
    chunks: int
    failed: int
    source: str
    indexed_at: datetime | None


class Libraries:
    """The libraries of one catalog, as one door sees them."""

    def __init__(self, catalog: Catalog, jobs: Jobs, place_of: Callable[..., Place]) -> None:
        self._catalog = catalog
        self._jobs = jobs
        self._place_of = place_of

    def add(
        self,
        requirement: str,
        *,
        source: str | None = None,
        replace: bool = False,
        **options: Unpack[LibraryOptions],
    ) -> Receipt:
        """Index the documentation of a library, ``NAME`` or ``NAME==VERSION``.

            receipt = app.documents.libraries.add("mill==1.2", source="mill-1.2.tar.gz")
            app.wait(receipt.job_id)

        ``source``: a folder, an archive (also a wheel), or a URL of an archive or a start page. Without it,
        the files of the distribution that is installed beside Penstock are read. ``replace`` removes the
        other versions once this one is indexed.
        """
        submission = self.submission(requirement, source=source, replace=replace, **options)
        return self._jobs.submit(exact=True, **submission)

    def submission(
        self,
        requirement: str,
        *,
        source: str | None = None,
        replace: bool = False,
        **options: Unpack[LibraryOptions],
    ) -> Submission:
        """Build the submission of ``add`` without submitting it."""
        refuse_unknown("libraries.add", options, LibraryOptions)
        name, version = parse_requirement(requirement)
        payload: dict[str, Any] = {"library_name": normal_library_name(name)}
        if source is None:
            payload["library_version"] = _installed(name, version)
        else:
            place = _source(source)
            payload["library_version"] = version or _version_in(source, name)
            payload |= place
        payload |= crawl_fields(options)
        for option in ("include_code", "chunk_size", "chunk_overlap", "graph", "ocr"):
            if (value := options.get(option)) is not None:
                payload[option] = value
        submission: Submission = {
            "item_type": "library",
            "op": "update" if replace else "ingest",
            "payload": payload,
        }
        return with_job_options(submission, options, _placed(options))

    def versions(
        self,
        requirement: str | None = None,
        *,
        tenant_id: str | None = None,
        collection: str | None = None,
        branch: str | None = None,
    ) -> list[IndexedLibrary]:
        """Indexed versions of all libraries, or of one, by name and version."""
        name, version = parse_requirement(requirement) if requirement is not None else ("", None)
        root = library_path(name, version or "") if name else LIBRARIES.rstrip("/")
        place = self._place_of(tenant_id, collection, branch)
        found: dict[tuple[str, str], _Counted] = {}
        for known in known_below(self._catalog, place, root):
            of, _, rest = known.path[len(LIBRARIES) :].partition("/")
            if known.published_id is None and known.building_id is None:
                continue
            counted = found.setdefault((of, rest.partition("/")[0]), _Counted(known.source_id))
            counted.documents += known.published_id is not None
            counted.failed += known.published_id is None and known.failed_with is not None
            counted.chunks += known.chunk_count if known.published_id is not None else 0
        return [self._described(*key, counted) for key, counted in sorted(found.items())]

    def _described(self, name: str, version: str, counted: _Counted) -> IndexedLibrary:
        with self._catalog.snapshot() as snapshot:
            first = snapshot.get(counted.source_id)
        about = msgspec.json.decode(first.metadata) if first is not None else {}
        return IndexedLibrary(
            name=name,
            version=version,
            path=library_path(name, version),
            documents=counted.documents,
            chunks=counted.chunks,
            failed=counted.failed,
            source=str(about.get("source", "")),
            indexed_at=first.published_at if first is not None else None,
        )

    def removals(
        self,
        requirement: str,
        *,
        tenant_id: str | None = None,
        collection: str | None = None,
        branch: str | None = None,
    ) -> list[Submission]:
        """Submissions that remove one version, or all of them. Raises ``UnknownLibrary`` without any."""
        where = {"tenant_id": tenant_id, "collection": collection, "branch": branch}
        found = self.versions(requirement, **where)
        if not found:
            raise UnknownLibrary(f"no library {requirement[:120]!r} is indexed")
        return [
            with_job_options(
                {
                    "item_type": "library",
                    "op": "delete",
                    "payload": {"library_name": each.name, "library_version": each.version},
                },
                where,
                _placed(where),
            )
            for each in found
        ]


class _Counted:
    def __init__(self, source_id: str) -> None:
        self.source_id = source_id
        self.documents = self.chunks = self.failed = 0


def _placed(where: Mapping[str, Any]) -> Placement:
    """The place of a library: by default that of the settings, also in the folder of a project."""
    return Placement(where.get("tenant_id"), where.get("branch"))


def _source(source: str) -> dict[str, str]:
    if urls.is_web_url(source):
        return {"source_url": urls.canonical(source)}
    path = real_path(source)
    if not os.path.exists(path):  # noqa: PTH110 - it never raises
        raise PathNotFound(f"{source} does not exist")
    return {"source_path": path}


def _installed(name: str, version: str | None) -> str:
    """The version of an installed distribution. Raises ``LibraryNotFound`` for another one."""
    from importlib import metadata

    try:
        found = metadata.version(name)
    except (metadata.PackageNotFoundError, ValueError):
        found = None
    if found is None or (version is not None and found != version):
        wanted = f"{name} {version}" if version else name
        there = f"version {found} is" if found else "no version is"
        raise LibraryNotFound(
            f"{wanted} is not installed beside Penstock ({there})",
            remedy="Name its folder, archive or URL with --from, such as a file of `pip download`.",
        )
    return found


def _version_in(source: str, name: str) -> str:
    """The version stated by a source: in the name of an archive, or in the metadata of a folder."""
    named = re.fullmatch(_FILE_NAME, urls.shown(source).rstrip("/").rpartition("/")[2])
    if named is not None:
        return named["version"]
    if not urls.is_web_url(source):
        for file in _metadata_files(Path(source)):
            stated = re.search(r"^Version: *(\S+)", file.read_text("utf-8", "replace")[:20_000], re.M)
            if stated is not None:
                return stated[1]
    raise _unversioned(name, urls.shown(source))


def version_in_name(file: str, library: str) -> str:
    """The version in the name of an archive. Raises ``LibraryNotFound``."""
    named = re.fullmatch(_FILE_NAME, file)
    if named is None:
        raise _unversioned(library, file)
    return named["version"]


def _unversioned(name: str, source: str) -> LibraryNotFound:
    return LibraryNotFound(
        f"{source} does not state the version of {name}",
        remedy=f"Name the version: {name}==VERSION.",
    )


def _metadata_files(folder: Path) -> list[Path]:
    found = [folder / name for name in _METADATA]
    found += [*folder.glob("*.dist-info/METADATA"), *folder.glob("*.egg-info/PKG-INFO")]
    return [file for file in found if os.path.isfile(file)]  # noqa: PTH113 - it never raises
