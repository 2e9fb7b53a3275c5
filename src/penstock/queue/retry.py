"""Back-off schedules, and the classification of errors as transient or permanent.

Pure: the caller draws the ``jitter`` and adds the time.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Iterator, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Literal, TypeAlias

import msgspec

from penstock import errors

_Kind: TypeAlias = Literal["transient", "permanent", "cancelled"]

_JITTER = 0.1
"""Share by which a delay varies, so that jobs failed together do not return together."""

MAX_RETRY_AFTER = timedelta(hours=1)
"""Longest accepted Retry-After of a server."""


class Backoff(msgspec.Struct, frozen=True):
    """Seconds before the first retries; then the powers of two above the last of them, up to ``cap``."""

    steps: tuple[float, ...]
    cap: float = 300

    def seconds(self, retry_number: int) -> float:
        """The delay before the n-th retry, counted from 1, without jitter."""
        if retry_number < 1:
            raise ValueError(f"retries are numbered from 1, got {retry_number}")
        if retry_number <= len(self.steps):
            return self.steps[retry_number - 1]
        # frexp gives the exponent of the next power of two above a number, also above 0.1 and 0.
        exponent = math.frexp(self.steps[-1])[1] + retry_number - len(self.steps) - 1
        # 2**exponent is not computed beyond the cap: callers choose the number of retries.
        return self.cap if exponent >= math.frexp(self.cap)[1] else min(2**exponent, self.cap)

    def summary(self) -> str:
        """The first three delays and the longest, such as ``1, 2, 4 … 300``."""
        return f"{', '.join(f'{self.seconds(number):g}' for number in (1, 2, 3))} … {self.cap:g}"


JOB_BACKOFF = Backoff((5, 10, 30))
"""For jobs and tasks: three steps, then powers of two up to the cap."""

FUNCTION_BACKOFF = Backoff((1,))
"""For functions: powers of two up to the cap."""


def delay(schedule: Backoff, retry_number: int, *, jitter: float) -> timedelta:
    """The delay before the n-th retry; the caller draws ``jitter`` from [-1, 1]."""
    if not -1 <= jitter <= 1:
        raise ValueError(f"jitter must lie in [-1, 1], got {jitter}")
    # Stores keep whole milliseconds.
    return timedelta(milliseconds=round(1000 * schedule.seconds(retry_number) * (1 + _JITTER * jitter)))


class Classification(msgspec.Struct, frozen=True):
    """Class of a failure: transient or permanent, and the error code for the row."""

    kind: _Kind
    code: str
    retry_after: timedelta | None = None


FAILURE_CODES: Mapping[str, str] = MappingProxyType(
    {
        "ERR_BAD_PATH": "The path is too long, loops, or takes a file for a directory or the reverse.",
        "ERR_BUSY": "The resource was in use.",
        "ERR_CERTIFICATE": "The server's certificate was not accepted; check its name, date and authority.",
        "ERR_DISK_FULL": "No space was left; free some.",
        "ERR_FILE_NOT_FOUND": "The file is not there.",
        "ERR_IO": "The device reported an error.",
        "ERR_NETWORK": "The other side could not be reached, or the connection broke.",
        "ERR_NOT_FOUND": "The service does not have the requested thing (404, 410).",
        "ERR_OUT_OF_MEMORY": "The process ran out of memory; run fewer workers, or smaller batches.",
        "ERR_PARSE": "The content does not match its type, or is damaged.",
        "ERR_PERMISSION": "This user may not read the file, or the service refused the credentials.",
        "ERR_RATE_LIMITED": "The service asked for fewer requests (429).",
        "ERR_READ_ONLY": "The file system is mounted read-only.",
        "ERR_REFUSED": "The service refused the request as wrong (4xx).",
        "ERR_SERVICE": "The service failed (5xx).",
        "ERR_TIMEOUT": "A call took too long.",
        "ERR_TOO_LARGE": "The file or request is larger than allowed (413).",
        "ERR_TOO_MANY_FILES": "Too many files were open; raise the limit or run fewer workers.",
        "ERR_UNKNOWN": "An error without an entry in the table; see the message.",
        "ERR_UNSUPPORTED_TYPE": "The service does not take this type of content (415).",
    }
)
"""Values of ``error_code`` besides those of the error classes and of applications."""

# None as the code: the error's own. Classes costly to import are given by name. The most specific class of an
# error decides, so the order of the rows has no meaning.
_TYPES: tuple[tuple[_Kind, str | None, tuple[type[BaseException] | str, ...]], ...] = (
    ("permanent", "ERR_FILE_NOT_FOUND", (FileNotFoundError,)),
    ("permanent", "ERR_BAD_PATH", (IsADirectoryError, NotADirectoryError)),
    ("permanent", "ERR_PERMISSION", (PermissionError,)),
    ("permanent", "ERR_CERTIFICATE", ("ssl.SSLCertVerificationError",)),
    ("permanent", "ERR_PARSE", (UnicodeError, "json.decoder.JSONDecodeError", "msgspec.DecodeError")),
    ("permanent", "ERR_PARSE", ("zipfile.BadZipFile", "gzip.BadGzipFile", "zlib.error", "_lzma.LZMAError")),
    ("permanent", "ERR_PARSE", ("tarfile.ReadError", "_csv.Error", "tomllib.TOMLDecodeError")),
    ("permanent", "ERR_PARSE", ("xml.etree.ElementTree.ParseError", "xml.parsers.expat.ExpatError")),
    ("permanent", None, (errors.InvalidRequest, errors.ConfigError, errors.PermanentFailure)),
    ("permanent", None, (errors.StoreVanished, errors.SchemaMismatch, errors.StateDamaged)),
    ("transient", None, (errors.PenstockError,)),
    ("transient", "ERR_OUT_OF_MEMORY", (MemoryError,)),
    ("transient", "ERR_TIMEOUT", (TimeoutError, "subprocess.TimeoutExpired")),
    ("transient", "ERR_NETWORK", (ConnectionError, "http.client.HTTPException")),
    # These two have numbers of their own instead of an errno.
    ("transient", "ERR_NETWORK", ("socket.gaierror", "ssl.SSLError")),
    ("cancelled", None, (errors.Cancelled,)),
)

_ERRNOS: tuple[tuple[_Kind, str, tuple[int, ...]], ...] = (
    ("permanent", "ERR_BAD_PATH", (errno.ENAMETOOLONG, errno.ELOOP)),
    ("permanent", "ERR_READ_ONLY", (errno.EROFS,)),
    ("permanent", "ERR_TOO_LARGE", (errno.EFBIG,)),
    ("transient", "ERR_DISK_FULL", (errno.ENOSPC, errno.EDQUOT)),
    ("transient", "ERR_TOO_MANY_FILES", (errno.EMFILE, errno.ENFILE)),
    ("transient", "ERR_OUT_OF_MEMORY", (errno.ENOMEM,)),
    ("transient", "ERR_IO", (errno.EIO,)),
    ("transient", "ERR_BUSY", (errno.EAGAIN, errno.EBUSY, errno.ETXTBSY, errno.ESTALE)),
    ("transient", "ERR_NETWORK", (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN)),
)

_STATUSES: tuple[tuple[_Kind, str, tuple[int, ...]], ...] = (
    ("permanent", "ERR_PERMISSION", (401, 403, 407)),
    ("permanent", "ERR_NOT_FOUND", (404, 410)),
    ("permanent", "ERR_TOO_LARGE", (413, 414)),
    ("permanent", "ERR_UNSUPPORTED_TYPE", (415,)),
    ("transient", "ERR_TIMEOUT", (408, 504)),
    ("transient", "ERR_BUSY", (409, 423, 425)),
    ("transient", "ERR_RATE_LIMITED", (429,)),
)


def _qualified(known: type[BaseException] | str) -> str:
    return known if isinstance(known, str) else f"{known.__module__}.{known.__qualname__}"


_BY_TYPE = {_qualified(known): (kind, code) for kind, code, types in _TYPES for known in types}
_BY_ERRNO = {number: (kind, code) for kind, code, numbers in _ERRNOS for number in numbers}
_BY_STATUS = {status: (kind, code) for kind, code, statuses in _STATUSES for status in statuses}


def classify(error: BaseException) -> Classification:
    """Classify an error. One not in the table has the class of its cause, else is transient."""
    for link in _chain(error):
        found = _by_status(link) or _by_type(link)
        if found is not None:
            return found
    return Classification("transient", "ERR_UNKNOWN")


def error_summary(error: BaseException) -> str:
    """The text of an error for people. An error of Penstock has a code, so its class is not named."""
    text = str(error)
    if isinstance(error, errors.PenstockError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes, from ``raise … from`` and URLError's ``reason``."""
    seen: set[int] = set()
    link: object = error
    while isinstance(link, BaseException) and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or getattr(link, "reason", None)


def _by_type(error: BaseException) -> Classification | None:
    for known in type(error).__mro__:
        name = _qualified(known)
        if name in _BY_TYPE:
            kind, code = _BY_TYPE[name]
            after = _retry_after(error) if kind == "transient" else None
            return Classification(kind, code or _own_code(error), after)
        if known is OSError:
            found = _BY_ERRNO.get(getattr(error, "errno", None) or 0)
            return None if found is None else Classification(*found)
    return None


def _own_code(error: BaseException) -> str:
    if isinstance(error, errors.PermanentFailure):
        return error.error_code
    return error.code if isinstance(error, errors.PenstockError) else "ERR_UNKNOWN"


def _by_status(error: BaseException) -> Classification | None:
    """Classify by an HTTP status, in the attributes of the common client libraries."""
    response = getattr(error, "response", None)
    candidates = (getattr(error, name, None) for name in ("status_code", "status", "code"))
    for status in (*candidates, getattr(response, "status_code", None), getattr(response, "status", None)):
        # SystemExit.code and process exit codes are small numbers; only HTTP errors count.
        if isinstance(status, int) and 400 <= status <= 599:
            fallback: tuple[_Kind, str] = (
                ("permanent", "ERR_REFUSED") if status < 500 else ("transient", "ERR_SERVICE")
            )
            kind, code = _BY_STATUS.get(status, fallback)
            after = _retry_after(error) or _retry_after(response)
            return Classification(kind, code, after if kind == "transient" else None)
    return None


def _retry_after(source: object) -> timedelta | None:
    """Read a ``retry_after`` attribute or a Retry-After header in seconds; dates are ignored."""
    value = getattr(source, "retry_after", None)
    if value is None:
        headers = getattr(source, "headers", None)
        get = getattr(headers, "get", None)
        value = (get("Retry-After") or get("retry-after")) if callable(get) else None
    if isinstance(value, timedelta):
        return max(value, timedelta(0))  # chosen by the application, not by a server
    try:
        seconds = float(value) if isinstance(value, int | float | str) else -1.0
    except ValueError:
        return None
    return timedelta(seconds=min(seconds, MAX_RETRY_AFTER.total_seconds())) if seconds >= 0 else None
