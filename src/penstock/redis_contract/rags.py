"""RAGs: the configuration with collection, inbox and allowed folders of each, and file moves in the inbox.

A file goes from ``incoming`` to ``processed`` or ``failed``, and nothing is overwritten. Every move can be
repeated: after a kill, another gateway starts again from the beginning.
"""

from __future__ import annotations

import errno
import filecmp
import logging
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from penstock.errors import DriverMissing, InvalidName, InvalidRags, OutsideRag, UnknownRag
from penstock.extensions import install_remedy
from penstock.queue import payloads
from penstock.redis_contract.lists import RESERVED
from penstock.service.paths import real_path
from penstock.store_url import StoreUrl

_INCOMING, _PROCESSED, FAILED = "incoming", "processed", "failed"
_RAG_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ERROR_SUFFIX = ".error.json"
_MAX_RECORD = 1 << 20
FileTest = Callable[[os.stat_result], bool]
log = logging.getLogger("penstock.gateway")


class FilePlace(msgspec.Struct, frozen=True, kw_only=True):
    """Path of a file on disk and in the catalog. ``managed``: the file is in the inbox, and is moved."""

    read_from: str
    known_as: str
    managed: bool


class Rag(msgspec.Struct, frozen=True, kw_only=True):
    """One RAG. ``inbox`` holds ``incoming``, ``processed``, ``failed``; ``folders`` are only read."""

    rag_id: str
    collection: str
    tenant_id: str | None = None
    inbox: str | None = None
    folders: tuple[str, ...] = ()

    def folder(self, name: str) -> Path | None:
        return Path(self.inbox, name) if self.inbox is not None else None

    def place(self, source_path: str, filename: str) -> FilePlace:
        """Locate a file. Raises ``OutsideRag`` if the real path is in no folder of the RAG."""
        try:
            real = real_path(source_path)
        except (OSError, ValueError):
            real = ""
        incoming = self._real(_INCOMING)
        if incoming is not None and _below(real, incoming):
            beside = os.path.relpath(os.path.dirname(real), incoming)  # noqa: PTH120 - text in, text out
            known_as = os.path.normpath(f"{self._real(_PROCESSED)}/{beside}/{filename}")
            return FilePlace(read_from=real, known_as=known_as, managed=True)
        # A processed file can be submitted again from its folder.
        own = [self._real(_PROCESSED), *map(real_path, self.folders)]
        if any(folder is not None and _below(real, folder) for folder in own):
            return FilePlace(read_from=real, known_as=real, managed=False)
        allowed = ", ".join(filter(None, [incoming, *own])) or "none"
        raise OutsideRag(f"{source_path[:200]!a} lies in no folder of RAG {self.rag_id!r}; it has {allowed}")

    def _real(self, name: str) -> str | None:
        folder = self.folder(name)
        return None if folder is None else real_path(str(folder))


class Rags(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration: RAGs by id, and optionally the Redis server.

    ``sources`` holds the inboxes of all RAGs without an own one, also of RAGs that another gateway serves.
    """

    by_id: Mapping[str, Rag]
    redis_url: str | None = None
    sources: str | None = None

    def get(self, rag_id: str) -> Rag:
        found = self.by_id.get(rag_id)
        if found is None:
            known = ", ".join(sorted(self.by_id)) or "none"
            raise UnknownRag(f"there is no RAG {rag_id[:80]!a}; known are {known}")
        return found

    def delivered(self, source_path: str) -> Path | None:
        """Return the real path of a regular file in the ``incoming`` folder of an inbox, else None.

        Records of refused messages are written only there.
        """
        try:
            real = real_path(source_path)
            if not stat.S_ISREG(os.lstat(real).st_mode):
                return None
        except (OSError, ValueError):
            return None
        folders = [rag.folder(_INCOMING) for rag in self.by_id.values()]
        if any(folder is not None and _below(real, real_path(str(folder))) for folder in folders):
            return Path(real)
        return Path(real) if self._is_in_sources(real) else None

    def _is_in_sources(self, real: str) -> bool:
        """Check whether a path is in the default inbox of a RAG not configured here."""
        if self.sources is None or not _below(real, real_path(self.sources)):
            return False
        rag_id, *rest = Path(real).relative_to(real_path(self.sources)).parts
        unknown = rag_id not in self.by_id and rag_id not in RESERVED and _RAG_ID.fullmatch(rag_id)
        return bool(unknown) and len(rest) > 1 and rest[0] == _INCOMING

    def incoming(self) -> dict[str, os.stat_result]:
        """List all files in ``incoming`` folders by real path."""
        found: dict[str, os.stat_result] = {}
        for rag in self.by_id.values():
            folder = rag.folder(_INCOMING)
            for directory, _, names in os.walk(real_path(str(folder))) if folder is not None else ():
                for path in (f"{directory}/{name}" for name in names):
                    with suppress(OSError):
                        found[path] = os.lstat(path)
        return found


def _below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def load(path: Path) -> Rags:
    """Read the YAML file. Raises ``InvalidRags`` with the invalid entry."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRags(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    try:
        return _rags(_parsed(text), path.parent)
    except (InvalidRags, InvalidName) as error:
        raise InvalidRags(f"{path}: {error.message}") from None


def _parsed(text: str) -> dict[str, Any]:
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise DriverMissing(
            "the RAG configuration needs the package PyYAML",
            remedy=install_remedy("redis"),
        ) from error
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidRags(f"not YAML: {_yaml_problem(error)}") from None
    if not isinstance(found, dict):
        raise InvalidRags("expected a mapping with 'rags' in it")
    return found


def _yaml_problem(error: Exception) -> str:
    """Describe a YAML error by position. The text of the library may quote a password."""
    problem = getattr(error, "problem", None) or type(error).__name__
    mark = getattr(error, "problem_mark", None)
    return f"{problem} (line {mark.line + 1}, column {mark.column + 1})" if mark else str(problem)


def _rags(given: dict[str, Any], beside: Path) -> Rags:
    _refuse_unknown("the file", given, {"redis", "sources", "rags"})
    sources = _directory("sources", given.get("sources"), beside)
    listed = given.get("rags")
    if not isinstance(listed, dict) or not listed:
        raise InvalidRags("'rags' names no RAG; expected RAG ids with their settings")
    built = (_rag(str(rag_id), fields, sources, beside) for rag_id, fields in listed.items())
    by_id = {rag.rag_id: rag for rag in built}
    redis_url = _redis(given.get("redis"))
    return Rags(by_id=MappingProxyType(by_id), redis_url=redis_url, sources=sources)


def _rag(rag_id: str, fields: Any, sources: str | None, beside: Path) -> Rag:
    where = f"rags.{rag_id}"
    if not _RAG_ID.fullmatch(rag_id) or rag_id in RESERVED:
        raise InvalidRags(
            f"{where}: a RAG id is up to 64 letters, digits, . _ or -, not {', '.join(sorted(RESERVED))}"
        )
    fields = {} if fields is None else fields
    if not isinstance(fields, dict):
        raise InvalidRags(f"{where}: expected a mapping, got {type(fields).__name__}")
    _refuse_unknown(where, fields, {"collection", "tenant", "inbox", "folders"})
    inbox = _directory(f"{where}.inbox", fields.get("inbox"), beside)
    if inbox is None and sources is not None and "inbox" not in fields:
        inbox = f"{sources}/{rag_id}"
    rag = Rag(
        rag_id=rag_id,
        collection=payloads.validate_name("collection", fields.get("collection") or rag_id),
        tenant_id=None
        if fields.get("tenant") is None
        else payloads.validate_name("tenant_id", fields["tenant"]),
        inbox=inbox,
        folders=tuple(_folders(f"{where}.folders", fields.get("folders"), beside)),
    )
    if rag.inbox is None and not rag.folders:
        raise InvalidRags(f"{where}: has neither an inbox nor folders, so no file could be its own")
    return rag


def _folders(where: str, given: Any, beside: Path) -> Iterator[str]:
    if given is not None and not isinstance(given, list):
        raise InvalidRags(f"{where}: expected a list of directories")
    for folder in given or []:
        found = _directory(where, folder, beside)
        if found is None:
            raise InvalidRags(f"{where}: expected directories, got null")
        yield found


def _directory(where: str, given: Any, beside: Path) -> str | None:
    if given is None:
        return None
    if not isinstance(given, str) or not given or "\0" in given:
        raise InvalidRags(f"{where}: expected a directory, got {str(given)[:80]!a}")
    # Relative paths start at the configuration file, not at the working directory.
    return os.path.normpath(beside.absolute() / Path(given).expanduser())


def _redis(given: Any) -> str | None:
    if given is None:
        return None
    if not isinstance(given, dict):
        raise InvalidRags("redis: expected a mapping with 'url' in it")
    _refuse_unknown("redis", given, {"url", "password", "db"})
    url, password, db = given.get("url"), given.get("password"), given.get("db")
    if not isinstance(url, str) or not StoreUrl(url).is_redis_server:
        raise InvalidRags("redis.url: expected redis://HOST:PORT/DB")
    if db is not None and (type(db) is not int or db < 0):
        raise InvalidRags(f"redis.db: expected the number of a database, got {str(db)[:80]!a}")
    if password is not None and not isinstance(password, str | int):
        raise InvalidRags("redis.password: expected a text")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InvalidRags("redis.url: expected redis://HOST:PORT/DB") from None
    if password is not None and "@" not in parts.netloc:
        parts = parts._replace(netloc=f":{quote(str(password), safe='')}@{parts.netloc}")
    if db is not None and parts.scheme != "unix" and not parts.path.strip("/"):
        parts = parts._replace(path=f"/{db}")
    # Not with urlunsplit, which turns unix:///path into unix:/path.
    return f"{parts.scheme}://{parts.netloc}{parts.path}" + (f"?{parts.query}" if parts.query else "")


def _refuse_unknown(where: str, given: dict[Any, Any], known: set[str]) -> None:
    unknown = sorted(map(str, set(given) - known))
    if unknown:
        raise InvalidRags(f"{where} has {unknown[0]!a}; known are {', '.join(sorted(known))}")


class Moved(msgspec.Struct, frozen=True):
    """The current path of a file, and why the move failed, if so."""

    path: str
    error: str = ""


def move(source: Path, target: Path, *, part: str, is_same_file: FileTest) -> Moved:
    """Move ``source``, a path without links, to ``target``.

    ``is_same_file`` recognizes the file that was indexed: a newer file is left to its own message. An older
    file at the target is renamed, see ``find_free_name``. ``part`` names an unfinished copy.
    """
    try:
        try:
            found = source.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return Moved(str(target if target.exists() else source))
        if not stat.S_ISREG(found.st_mode):
            return Moved(str(source), "it is not a regular file")
        if source.parent.resolve() != source.parent:
            return Moved(str(source), "its folder has become a link")
        if not is_same_file(found):
            return Moved(str(source), "it was changed since; a later message has to bring it")
        target.parent.mkdir(parents=True, exist_ok=True)
        _make_room(source, target)
        if not _rename(source, target):
            _copy(source, target, found, part)
        return _check_moved(source, target, found)
    except OSError as error:
        log.warning("%s could not be moved to %s: %s", source, target, error.strerror or error)
        return Moved(str(source), f"it could not be moved: {error.strerror or error}")


def _make_room(source: Path, target: Path) -> None:
    """Rename an older file at the target, unless the content is equal."""
    if target.exists() and not (target.is_file() and filecmp.cmp(source, target, shallow=False)):
        target.rename(find_free_name(target))


def find_free_name(path: Path) -> Path:
    """Find the first free name such as ``report.1.pdf``."""
    for number in range(1, 1_000_000):
        free = path.with_name(f"{path.stem}.{number}{path.suffix}")
        if not os.path.lexists(free):
            return free
    raise OSError(errno.EEXIST, "too many files of this name")


def _rename(source: Path, target: Path) -> bool:
    """Rename a file. False: source and target are on different file systems."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return False
    return True


def _copy(source: Path, target: Path, found: os.stat_result, part: str) -> None:
    """Copy under a temporary name, then rename; the source is removed once the copy is on disk."""
    copy = target.with_name(f".{part}.part")
    try:
        shutil.copy2(source, copy)
        with copy.open("rb") as written:
            os.fsync(written.fileno())
    except OSError:
        # Nothing else would remove a partial copy from a full disk.
        copy.unlink(missing_ok=True)
        raise
    if _same(source.lstat(), found):
        copy.replace(target)
        source.unlink()
    else:
        copy.unlink()


def _check_moved(source: Path, target: Path, found: os.stat_result) -> Moved:
    """Check which file was moved. A newer file, come in during the move, is moved back."""
    now = target.lstat() if target.exists() else None
    if now is not None and now.st_size == found.st_size and now.st_mtime_ns == found.st_mtime_ns:
        return Moved(str(target))
    if now is not None and not source.exists():
        target.rename(source)
    return Moved(str(source), "it was changed while it was moved; a later message has to bring it")


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_ino, one.st_size, one.st_mtime_ns) == (other.st_ino, other.st_size, other.st_mtime_ns)


def write_error_file(folder: Path, filename: str, record: Mapping[str, Any]) -> str:
    """Write ``<filename>.error.json``. The file and record of an earlier job are renamed first."""
    path = folder / f"{filename}{_ERROR_SUFFIX}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if path.exists() and not _is_of(path, record["job_id"]):
            free = find_free_name(folder / filename)
            if (folder / filename).exists():
                (folder / filename).rename(free)
            path.rename(free.with_name(free.name + _ERROR_SUFFIX))
        draft = path.with_name(f".{record['job_id']}{_ERROR_SUFFIX}")
        draft.write_bytes(_encode(record))
        draft.replace(path)
    except OSError as error:
        log.warning("%s could not be written: %s", path, error.strerror or error)
        return f"{path.name} could not be written: {error.strerror or error}"
    return ""


def write_record_beside(file: Path, record: Mapping[str, Any]) -> None:
    """Write ``<file>.error.json`` for a refused message; the file stays.

    Only a record that a gateway wrote before is replaced.
    """
    path = file.with_name(file.name + _ERROR_SUFFIX)
    try:
        if os.path.lexists(path) and not _record_at(path):
            log.warning("%s is not an error record, and is left unchanged", path)
            return
        draft = path.with_name(f".{record['job_id'] or 'refused'}{_ERROR_SUFFIX}")
        draft.write_bytes(_encode(record))
        draft.replace(path)
    except OSError as error:
        log.warning("%s could not be written: %s", path, error.strerror or error)


def remove_record_beside(file: Path, filename: str) -> None:
    """Remove the record of an earlier refused message, after the file was indexed."""
    path = file.with_name(file.name + _ERROR_SUFFIX)
    try:
        if os.path.lexists(path) and _record_at(path).get("filename") in (filename, file.name):
            path.unlink()
    except OSError as error:
        log.warning("%s could not be removed: %s", path, error.strerror or error)


def _encode(record: Mapping[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def _is_of(path: Path, job_id: str) -> bool:
    return _record_at(path).get("job_id") == job_id


def _record_at(path: Path) -> dict[str, Any]:
    """Read the error record in a file; empty if the file holds something else."""
    try:
        found = msgspec.json.decode(path.read_bytes()) if path.stat().st_size <= _MAX_RECORD else None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) and "job_id" in found else {}
