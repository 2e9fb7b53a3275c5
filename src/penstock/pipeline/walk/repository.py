"""Git repositories, read from their files (git need not be installed), and other source trees."""

from __future__ import annotations

import hashlib
import os
import re
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

DETACHED = "HEAD"
"""The branch name of a repository with a detached HEAD."""

PROJECT_FILES = (
    "pyproject.toml",
    "setup.py",
    "package.json",
    "deno.json",
    "Cargo.toml",
    "go.mod",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
    "build.sbt",
    "CMakeLists.txt",
    "meson.build",
    "configure.ac",
    "Gemfile",
    "composer.json",
    "mix.exs",
    "Package.swift",
    "pubspec.yaml",
    "dune-project",
    "stack.yaml",
    "*.cabal",
    "*.csproj",
    "*.sln",
)
"""Names of files in the top folder of a source tree. No Makefile: folders of documents have one, too."""

_MAX_BYTES = 1_000_000
_SECTION = re.compile(r'\[\s*([\w.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_SCP = re.compile(r"(?:[^@/]+@)?(\[[^\]]+\]|[^:/]+):(.*)", re.DOTALL)


class GitRepository(msgspec.Struct, frozen=True):
    """A work tree. ``git_dir`` belongs to this tree; ``common_dir`` is shared by all work trees."""

    root: str
    git_dir: str
    common_dir: str


def find_repository(path: str) -> GitRepository | None:
    """The repository around ``path``, if any."""
    here = Path(os.path.realpath(path))
    for directory in (here, *here.parents):
        found = _at(directory)
        if found is not None:
            return found
    return None


def branch_of(repository: GitRepository) -> str:
    """The checked-out branch, even without a commit."""
    head = _text(Path(repository.git_dir, "HEAD")).strip()
    name = head.removeprefix("ref:").strip().removeprefix("refs/heads/") if head.startswith("ref:") else ""
    return DETACHED if name in ("", ".invalid") else name


def remote_of(repository: GitRepository) -> str | None:
    """The URL of ``origin``, or of the first remote."""
    urls = _remotes(_text(Path(repository.common_dir, "config")))
    return urls.get("origin") or next(iter(urls.values()), None)


def normalised_remote(url: str) -> str:
    """Normalise a URL to ``host/path``: ssh and https name the same repository."""
    url = url.strip()
    if "://" in url:
        parts = urlsplit(url)
        host, path = _host(parts.netloc), unquote(parts.path)
        if parts.scheme.lower() == "file":
            host = ""
    else:
        scp = None if url.startswith(("/", ".")) else _SCP.fullmatch(url)
        host, path = (scp[1].lower(), scp[2]) if scp else ("", url)
    path = re.sub(r"/+", "/", path).strip("/").removesuffix(".git").rstrip("/")
    return f"{host}/{path}"


def tenant_of(path: str) -> str:
    """Tenant of a project: SHA-256 of the normalised remote, or of the project's path without a remote."""
    repository = find_repository(path)
    remote = remote_of(repository) if repository else None
    identity = (
        normalised_remote(remote) if remote else os.path.realpath(repository.root if repository else path)
    )
    return hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()


def code_reason(folder: str) -> str | None:
    """The reason to index source code below a folder; None where the folder is no source tree."""
    if find_repository(folder) is not None:
        return "the folder is in a git repository"
    try:
        names = sorted(path.name for path in Path(folder).iterdir() if path.is_file())
    except OSError:
        return None
    found = (name for pattern in PROJECT_FILES for name in names if fnmatchcase(name, pattern))
    name = next(found, None)
    return None if name is None else f"the folder has a {name}"


def _at(directory: Path) -> GitRepository | None:
    mark = directory / ".git"
    if mark.is_dir():
        git_dir = mark
    else:
        # In an added work tree or a submodule, ``.git`` is a file that names the directory.
        named = _text(mark).strip()
        if not named.startswith("gitdir:"):
            return None
        git_dir = Path(os.path.normpath(directory / named.removeprefix("gitdir:").strip()))
    if not (git_dir / "HEAD").is_file():
        return None
    common = _text(git_dir / "commondir").strip()
    common_dir = os.path.normpath(git_dir / common) if common else str(git_dir)
    return GitRepository(str(directory), str(git_dir), common_dir)


def _text(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        try:
            return file.read(_MAX_BYTES).decode("utf-8", "surrogateescape")
        except (OSError, TypeError):
            return ""


def _remotes(config: str) -> dict[str, str]:
    """Remote URLs by name, in the order of the file. Included files are not read."""
    urls: dict[str, str] = {}
    name: str | None = None
    for line in config.splitlines():
        stripped = line.strip()
        section = _SECTION.match(stripped)
        if section:
            name = re.sub(r"\\(.)", r"\1", section[2] or "") if section[1].lower() == "remote" else None
            continue
        key, separator, value = stripped.partition("=")
        if name and separator and key.strip().lower() == "url":
            urls.setdefault(name, _unquoted(value.strip()))
    return urls


def _unquoted(value: str) -> str:
    if value.startswith('"'):
        return re.sub(r"\\(.)", r"\1", value[1:].partition('"')[0])
    return re.split(r"\s[#;]", value, maxsplit=1)[0].strip()


def _host(netloc: str) -> str:
    """Host name without user and port."""
    host = netloc.rpartition("@")[2].lower()
    return re.sub(r":\d*$", "", host)
