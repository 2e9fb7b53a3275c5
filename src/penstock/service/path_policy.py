"""Path policy of a server: files and folders allowed in requests."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from penstock.config import Settings
from penstock.errors import PathNotFound, PathOutside, WebOff
from penstock.pipeline.web import urls
from penstock.service import paths
from penstock.service.real_path import real_path


class PathPolicy:
    """Roots below which a server may index. Links are followed before the comparison.

    ``allow_external``: a request may name any path. ``allow_web``: it may name web pages.
    ``state_dir`` is refused in every case: it has the keys and the texts of all tenants.
    """

    def __init__(
        self, roots: Sequence[str], state_dir: str, *, allow_external: bool, allow_web: bool = False
    ) -> None:
        self.roots = tuple(real_path(root) for root in roots)
        self._allow_external = allow_external
        self._allow_web = allow_web
        self._state_dir = real_path(state_dir)

    @classmethod
    def of(cls, settings: Settings) -> PathPolicy:
        """The policy of the settings; by default the working directory is the root."""
        roots = settings.roots or (str(Path.cwd()),)
        return cls(
            roots,
            str(settings.state_dir),
            allow_external=settings.allow_external,
            allow_web=settings.allow_web,
        )

    def named(self, path: str) -> str:
        """The absolute path meant by a request: relative ones begin at the first root."""
        paths.refuse_unusable(path)
        if (known := paths.off_disk(path)) is not None:
            return known
        return os.path.join(self.roots[0], path)  # noqa: PTH118 - Path would take away a last slash

    def allowed(self, path: str, *, allow_external: bool = False) -> str:
        """The real path; raise ``PathOutside`` for other paths, existing or not.

        Raises ``WebOff`` for a web page, unless the setting lets requests name them.
        """
        if urls.is_web_url(path):
            if not self._allow_web:
                raise WebOff("this server fetches no web pages for requests")
            return urls.canonical(path)
        real = real_path(self.named(path))
        external = allow_external and self._allow_external
        inside = external or any(_below(real, root) for root in self.roots)
        if not inside or _below(real, self._state_dir):
            raise PathOutside(f"Path '{path}' is outside project. Use --allow-external to override.")
        return real

    def allowed_directory(self, path: str, *, allow_external: bool = False) -> str:
        """The real path of a directory that exists; raise ``PathOutside`` or ``PathNotFound``."""
        if paths.off_disk(path) is not None:
            raise PathNotFound(f"{path[:200]!a} is not a directory")
        real = self.allowed(path, allow_external=allow_external)
        if not os.path.isdir(real):  # noqa: PTH112 - it never raises
            raise PathNotFound(f"{path[:200]!a} is not a directory of the server")
        return real


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
