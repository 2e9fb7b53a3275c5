"""Parts of the composition root for a server: functions of an application, pictures of pages, uploads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock import pipeline_assembly

if TYPE_CHECKING:
    from penstock.assembly import Assembly
    from penstock.config import Settings
    from penstock.queue.protocol import Queue
    from penstock.service.jobs import Jobs
    from penstock.service.pages import PageImages
    from penstock.service.uploads import LibraryUploads, UploadQuota, Uploads


def app_jobs(settings: Settings, app: str | None) -> tuple[Settings, Callable[[Queue], Jobs] | None]:
    """Settings and jobs of a server whose requests may call functions of an application, ``MODULE:NAME``.

    The application's settings count; without one, these do.
    """
    if app is None:
        return settings, None
    from penstock.application import load_app
    from penstock.service.functions import FunctionJobs
    from penstock.worker.launch import common_settings

    loaded = load_app(app)
    own = common_settings(settings, loaded.settings)
    return own, lambda queue: FunctionJobs(queue, own, door="http", functions=loaded.functions)


def page_images(assembly: Assembly) -> PageImages:
    """Pictures of pages. Nothing is started before the first one."""
    from penstock.handlers.source_files import IMAGES
    from penstock.service.pages import PageImages

    return PageImages(
        assembly.catalog,
        pipeline_assembly.extract_limits(assembly.settings),
        assembly.settings.state_dir / IMAGES,
    )


def upload_quota(assembly: Assembly) -> UploadQuota:
    """The quota of uploaded files, of all kinds together."""
    from penstock.service.uploads import UploadQuota

    quota = assembly.settings.upload_quota_mb
    return UploadQuota(None if quota is None else quota << 20)


def uploads(assembly: Assembly, quota: UploadQuota) -> Uploads:
    """Uploaded files of all tenants."""
    from penstock.handlers.source_files import uploads_directory
    from penstock.service.uploads import Uploads

    settings = assembly.settings
    return Uploads(
        assembly.documents,
        assembly.jobs,
        uploads_directory(settings),
        owner=str(settings.state_dir),
        most_bytes=settings.max_file_mb << 20,
        quota=quota,
    )


def library_uploads(assembly: Assembly, quota: UploadQuota) -> LibraryUploads:
    """Uploaded archives of libraries of all tenants."""
    from penstock.handlers.source_files import fetched_files
    from penstock.service.uploads import LibraryUploads

    settings = assembly.settings
    return LibraryUploads(
        assembly.documents,
        assembly.jobs,
        fetched_files(settings),
        owner=str(settings.state_dir),
        most_bytes=settings.max_file_mb << 20,
        quota=quota,
    )
