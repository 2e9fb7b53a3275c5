"""Delivered files: facts in a job's metadata about a file which another program put into an inbox."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

ARRIVAL = "arrival"
"""Key in a job's metadata."""


class DeliveredFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that is read at ``read_from`` and known by the job's path, where it is moved later.

    ``sent_at`` is the time of the message. ``source_type`` is the required type of the content, None: any.
    ``tags`` and ``about`` go to the document, in addition to those of its former version or (``keep`` false)
    instead of them.
    """

    read_from: str
    source_type: str | None = None
    tags: tuple[str, ...] = ()
    about: dict[str, Any] = {}
    keep: bool = True
    sent_at: datetime | None = None


def delivered_file_of(metadata: Mapping[str, Any]) -> DeliveredFile | None:
    found = metadata.get(ARRIVAL)
    return None if found is None else msgspec.convert(found, DeliveredFile)
