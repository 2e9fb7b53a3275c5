"""Declared facts: details of a file or project in a request, compared with the disk.

A difference is reported and does not stop the job: the index follows the disk, and of two requests for one
path that became one job only the first one's facts are known.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from penstock.handlers.context import Context
from penstock.payloads import FilePayload, ProjectPayload, Walked
from penstock.pipeline.extract import file_types
from penstock.pipeline.walk.repository import find_repository, normalised_remote, remote_of

_DECLARED = frozenset(["file_type", "file_hash", "size_bytes"])
_CODE, _NOT_CODE = "code", ("document", "config")
_MARKS = {
    "rust": ("Cargo.toml",),
    "python": ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt"),
}
MIXED = "mixed"


def file_mismatches(context: Context, size: int, content_hash: str | None) -> list[str]:
    """Log and return declared facts not true of the file.

    ``content_hash`` is SHA-256 in hex; None if only the beginning of the file was read.
    """
    if context.claim.parent_id is not None or _DECLARED.isdisjoint(context.payload):
        # The size that a walk gives its children is an estimate for the display of progress.
        return []
    payload = msgspec.convert(context.payload, FilePayload)
    found = list(_of_file(payload, size, content_hash))
    for mismatch in found:
        context.log.warning("%s is not as declared: %s", payload.file_path, mismatch)
    return found


def _of_file(payload: FilePayload, size: int, content_hash: str | None) -> Iterator[str]:
    if payload.size_bytes not in (None, size):
        yield f"size_bytes: declared {payload.size_bytes:,}, found {size:,}"
    if content_hash is not None and payload.file_hash not in (None, f"sha256:{content_hash}"):
        yield f"file_hash: declared {payload.file_hash}, found sha256:{content_hash}"
    is_code = file_types.is_code_name(payload.file_path)
    if (payload.file_type == _CODE and not is_code) or (payload.file_type in _NOT_CODE and is_code):
        yield f"file_type: declared {payload.file_type}, found {_CODE if is_code else 'no code'}"


def warn_of_mismatches(context: Context, payload: Walked) -> None:
    """Log wrong declared facts of a project."""
    if isinstance(payload, ProjectPayload):
        for mismatch in project_mismatches(payload):
            context.log.warning("%s is not as declared: %s", payload.project_root, mismatch)


def project_mismatches(payload: ProjectPayload) -> Iterator[str]:
    """Declared facts not true of the project's directory."""
    if payload.git_remote is not None:
        repository = find_repository(payload.identifier)
        remote = remote_of(repository) if repository is not None else None
        if remote is None or normalised_remote(remote) != normalised_remote(payload.git_remote):
            yield f"git_remote: declared {payload.git_remote}, found {remote or 'none'}"
    if payload.project_type is not None:
        languages = _languages(payload.identifier)
        actual = languages[0] if len(languages) == 1 else MIXED
        if languages and payload.project_type != actual:
            yield f"project_type: declared {payload.project_type}, found {actual}"


def _languages(root: str) -> list[str]:
    """Languages with build files in the root."""
    return [name for name, marks in _MARKS.items() if any(Path(root, mark).is_file() for mark in marks)]
