"""Uploaded archives of libraries: kept beside downloaded ones, and removed with their version."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.errors import InvalidRequest
from penstock.handlers.source_files import FetchedFiles
from penstock.payloads import library_path, parse_requirement
from penstock.pipeline.extract import file_types
from penstock.service.documents import Documents
from penstock.service.jobs import Jobs
from penstock.service.libraries import version_in_name
from penstock.service.requests import Submission
from penstock.service.upload_quota import UploadQuota
from penstock.service.uploads import Uploads, folder_name
from penstock.state_directory import make_private

TENANTS = ".tenants"
"""Folder with a link to each uploaded archive, by tenant: the names of the archives do not show it."""


class LibraryUploads(Uploads):
    """Archives of libraries received by one server: one archive for each version."""

    def __init__(
        self,
        documents: Documents,
        jobs: Jobs,
        files: FetchedFiles,
        *,
        owner: str,
        most_bytes: int,
        quota: UploadQuota,
    ) -> None:
        super().__init__(documents, jobs, files.directory, owner=owner, most_bytes=most_bytes, quota=quota)
        self._files = files

    def _plan(self, received: Path, name: str, options: Mapping[str, Any]) -> tuple[Path, Submission]:
        given = dict(options)
        library, version = parse_requirement(given.pop("requirement"))
        if not file_types.is_archive_name(name):
            raise InvalidRequest(
                f"file: expected an archive of a library, got {name[:80]!a}",
                remedy="Send a wheel, a zip or tar file, or name the file: name=mill-1.2.tar.gz.",
            )
        version = version or version_in_name(name, library)
        submission = self._documents.libraries.submission(
            f"{library}=={version}", source=str(received), **given
        )
        place = self._place(options)
        target = self._files.archive_place(place, library_path(library, version), name)
        submission["payload"] = {
            **submission["payload"],
            "source_path": str(target),
            "source_name": name,
        }
        return target, submission

    def _count(self, tenant_id: str) -> int:
        """Bytes of all stored archives of a tenant. There are few, and workers remove them at any time."""
        size = 0
        with suppress(FileNotFoundError), os.scandir(self._links(tenant_id)) as links:
            for link in links:
                try:
                    size += link.stat().st_size
                except FileNotFoundError:
                    os.unlink(link)  # noqa: PTH108 - the archive was removed with its version
        return size

    def _note(self, tenant_id: str, target: Path, _more: int) -> None:
        folder = self._links(tenant_id)
        make_private(folder)
        with suppress(FileExistsError):
            # Relative: the state directory may be moved.
            (folder / target.name).symlink_to(os.path.relpath(target, folder))

    def _links(self, tenant_id: str) -> Path:
        return self.directory / TENANTS / folder_name(tenant_id)

    def _known_as(self, _target: Path, submission: Submission) -> str:
        payload = submission["payload"]
        return library_path(payload["library_name"], payload["library_version"])
