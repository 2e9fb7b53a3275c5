"""Paths below a folder, deletes covering a path, and ids derived from content. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from penstock.catalog.values import Place, Removal, Walk

PARKED = "\x01"
"""First character of the path of a source replaced by another, until swept. No requested path has it."""


def below(folder: str, path: str) -> bool:
    """Check whether a path is the folder, or lies in the folder."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def at_and_above(path: str) -> list[str]:
    """The path and every folder above: the names of deletes covering the path."""
    ends = [at for at, char in enumerate(path) if char == "/" and at and path[at - 1] != "/"]
    return [path, *(path[:at] for at in ends), *(["/"] if path.startswith("/") else [])]


def span(folder: str) -> tuple[str, str]:
    """Paths p with first <= p < last are those inside the folder (not the folder itself)."""
    first = folder.rstrip("/") + "/"
    return first, first[:-1] + "0"  # "0" follows "/"


def moved(old: str, new: str, path: str) -> str:
    """The path after a rename of the path or of a folder above."""
    return new.rstrip("/") + path[len(old.rstrip("/")) :]


def covers(removal: Removal, place: Place, path: str, source_id: str | None, asked_at: datetime) -> bool:
    """Check whether a delete wins over a generation: requested at the same time or later."""
    return (
        removal.asked_at >= asked_at
        and removal.tenant_id == place.tenant_id
        and removal.collection in (None, place.collection)
        and removal.branch in (None, place.branch)
        and removal.source_id in (None, source_id)
        and (removal.path in (None, path) or _in_its_path(removal, path))
    )


def _in_its_path(removal: Removal, path: str) -> bool:
    return removal.below and removal.path is not None and below(removal.path, path)


def contests(walk: Walk, removal: Removal, path: str | None) -> bool:
    """Check whether a walk may want paths of an earlier delete.

    ``path``: of the delete, or of the source it names.
    """
    return path is None or below(walk.root, path) or (removal.below and below(path, walk.root))


def covered(
    removals: Iterable[Removal], place: Place, path: str, source_id: str | None, asked_at: datetime
) -> bool:
    return any(covers(removal, place, path, source_id, asked_at) for removal in removals)
