"""A file that was brought to Penstock by somebody else, beyond its path: what a job's metadata says of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

ARRIVAL = "arrival"
"""Where it stands in the metadata of a job."""


class DeliveredFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``read_from``: where the file lies now; it is known by the job's own path, and moves there later.

    ``sent_at``: when that was said. ``source_type``: what its content has to be, None: whatever it is.
    ``tags`` and ``about`` go to the document, beside those of the version before it or (``keep`` false) in
    their place.
    """

    read_from: str
    source_type: str | None = None
    tags: tuple[str, ...] = ()
    about: dict[str, Any] = {}
    keep: bool = True
    sent_at: datetime | None = None


def arrival_of(metadata: Mapping[str, Any]) -> DeliveredFile | None:
    found = metadata.get(ARRIVAL)
    return None if found is None else msgspec.convert(found, DeliveredFile)
