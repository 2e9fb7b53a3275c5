"""Git repositories, read from their files (git need not be installed), and other source trees."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from penstock import clock

DETACHED = "detached"
"""Start of the branch name of a detached HEAD; the first 12 digits of its commit follow, if it has one."""

WORK_TREE = "work_tree"
"""Key in a job's metadata: the top folder of a work tree, whose branch the job's documents are of."""

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
"""Names and suffixes of files in the top folder of a source tree; earlier ones are reported first. No
Makefile: folders of documents have one, too."""
_PROJECT_RANKS = {pattern: rank for rank, pattern in enumerate(PROJECT_FILES)}

SWITCHING = "waiting: a git command is changing files of the work tree"
LOCK_S = 60.0
"""Time after which the lock of a git command counts as left over."""
_MAX_BYTES = 1_000_000
_MAX_REFS_BYTES = 64_000_000
_MAX_BRANCHES = 100_000
_MAX_NAME = 200
"""Longest name of a branch or project; a longer one is cut, and ends with a part of its hash."""
_BRANCHES = "refs/heads/"
_SECTION = r'\[\s*([\w.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]'
_SCP = r"(?s)(?:[^@/]+@)?(\[[^\]]+\]|[^:/]+):(.*)"


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
    """The checked-out branch, even without a commit; during a rebase the branch being rebased."""
    git_dir = Path(repository.git_dir)
    head = _text(git_dir / "HEAD").strip()
    if not head.startswith("ref:"):
        for rebase in ("rebase-merge", "rebase-apply"):
            rebased = _text(git_dir / rebase / "head-name").strip()
            if rebased.startswith(_BRANCHES):
                return readable_name(rebased.removeprefix(_BRANCHES))
        return f"{DETACHED}-{head[:12]}" if re.fullmatch(r"[0-9a-f]{40}([0-9a-f]{24})?", head) else DETACHED
    name = head.removeprefix("ref:").strip().removeprefix(_BRANCHES)
    return DETACHED if name in ("", ".invalid") else readable_name(name)


def branches_of(repository: GitRepository) -> frozenset[str] | None:
    """All possible results of ``branch_of`` in the work trees of a repository; None: not readable."""
    names = set()
    common = Path(repository.common_dir)
    if not os.path.isfile(common / "HEAD") or os.path.isdir(common / "reftable"):
        # Branches in a reftable, or in a repository that is gone, are not known: none counts as deleted.
        return None
    heads = common / "refs" / "heads"
    try:
        for found in heads.rglob("*"):
            if found.is_file() and not found.name.endswith(".lock"):
                names.add(found.relative_to(heads).as_posix())
            if len(names) > _MAX_BRANCHES:
                return None
        packed = common / "packed-refs"
        if packed.exists() and packed.stat().st_size > _MAX_REFS_BYTES:
            return None
    except OSError:
        return None
    for line in _text(packed, _MAX_REFS_BYTES).splitlines():
        _, _, name = line.partition(" ")
        if name.startswith(_BRANCHES):
            names.add(name.removeprefix(_BRANCHES))
    trees = [GitRepository(repository.root, str(tree), str(common)) for tree in _git_dirs(common)]
    return frozenset(map(readable_name, names)) | {branch_of(tree) for tree in trees}


def _git_dirs(common: Path) -> list[Path]:
    """The git directories of all work trees of a repository."""
    try:
        added = [tree for tree in (common / "worktrees").iterdir() if (tree / "HEAD").is_file()]
    except OSError:
        added = []
    return [common, *added]


def readable_name(name: str) -> str:
    """A name with unprintable characters as ``%XX``; a long one is cut, with a hash at the end."""
    written = "".join(
        each
        if each.isprintable()
        else "".join(f"%{byte:02X}" for byte in each.encode("utf-8", "surrogateescape"))
        for each in name
    ).strip()
    if len(written) <= _MAX_NAME:
        return written or DETACHED
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{written[: _MAX_NAME - 13].rstrip()}-{digest[:12]}"


def other_state(root: str, branch: str) -> str | None:
    """The reason why the files of a work tree may not be those of a branch now; None: they are."""
    found = find_repository(root)
    if found is None or found.root != root:
        return None
    if branch_of(found) != branch:
        return f"branch {branch} is not checked out in {root}"
    return SWITCHING if is_switching(found) else None


def checked_out(root: str) -> str | None:
    """The branch that is checked out in the work tree with this top folder; None without one."""
    found = find_repository(root)
    return None if found is None or found.root != root else branch_of(found)


def is_switching(repository: GitRepository) -> bool:
    """Check whether a git command is changing files: the index lock exists, and is not left from a crash."""
    try:
        changed_at = Path(repository.git_dir, "index.lock").stat().st_mtime
    except OSError:
        return False
    return clock.now().timestamp() - changed_at < LOCK_S


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
        scp = None if url.startswith(("/", ".")) else re.fullmatch(_SCP, url)
        host, path = (scp[1].lower(), scp[2]) if scp else ("", url)
    path = re.sub(r"/+", "/", path).strip("/").removesuffix(".git").rstrip("/")
    return f"{host}/{path}"


def tenant_of(path: str) -> str:
    """Tenant of a project: SHA-256 of the normalised remote, or of the project's path without a remote."""
    repository = find_repository(path)
    remote = remote_of(repository) if repository else None
    return tenant_from(remote, repository.root if repository else path)


def tenant_from(remote: str | None, root: str) -> str:
    """Tenant of a project with this remote and top folder."""
    identity = normalised_remote(remote) if remote else os.path.realpath(root)
    return hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()


def project_name(remote: str | None, root: str) -> str:
    """Readable name of a project: the path of the remote without the host, or else the folder."""
    path = normalised_remote(remote).partition("/")[2] if remote else ""
    return readable_name(path or Path(root).name or root)


def code_reason(folder: str) -> str | None:
    """The reason to index source code below a folder; None where the folder is no source tree."""
    if find_repository(folder) is not None:
        return "the folder is in a git repository"
    try:
        with os.scandir(folder) as entries:
            found = [
                (rank, entry.name)
                for entry in entries
                if (rank := _project_rank(entry.name)) is not None and entry.is_file()
            ]
    except OSError:
        return None
    return f"the folder has the file {min(found)[1]}" if found else None


def _project_rank(name: str) -> int | None:
    """Return the index in ``PROJECT_FILES`` of the pattern that a name matches, or None."""
    _, dot, suffix = name.rpartition(".")
    return _PROJECT_RANKS.get(name, _PROJECT_RANKS.get(f"*.{suffix}") if dot else None)


def _at(directory: Path) -> GitRepository | None:
    mark = directory / ".git"
    if os.path.isdir(mark):  # not Path.is_dir, which raises if the directory may not be read
        git_dir = mark
    else:
        # In an added work tree or a submodule, ``.git`` is a file that names the directory.
        named = _text(mark).strip()
        if not named.startswith("gitdir:"):
            return None
        git_dir = Path(os.path.normpath(directory / named.removeprefix("gitdir:").strip()))
    if not os.path.isfile(git_dir / "HEAD"):
        return None
    common = _text(git_dir / "commondir").strip()
    common_dir = os.path.normpath(git_dir / common) if common else str(git_dir)
    return GitRepository(str(directory), str(git_dir), common_dir)


def _text(path: Path, most: int = _MAX_BYTES) -> str:
    try:
        with open(path, "rb", opener=_open) as file:
            return file.read(most).decode("utf-8", "surrogateescape")
    except (OSError, TypeError, ValueError):  # a directory, or a pipe with nothing in it
        return ""


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _remotes(config: str) -> dict[str, str]:
    """Remote URLs by name, in the order of the file. Included files are not read."""
    urls: dict[str, str] = {}
    name: str | None = None
    for line in config.splitlines():
        stripped = line.strip()
        section = re.match(_SECTION, stripped)
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
