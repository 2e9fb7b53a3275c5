"""What producers of the contract ask and are answered."""

from __future__ import annotations

from typing import Any

import msgspec

CONNECTED_S = 5.0
"""A worker whose last heartbeat is younger is connected, says the contract."""


class SubmitRequest(msgspec.Struct, frozen=True, kw_only=True):
    """How a file is to be ingested. What is None is told from the file, or the contract's default."""

    source_type: str | None = None
    reindex: bool = False
    skip_validation: bool = False
    preserve_metadata: bool = True
    priority: str | None = None
    max_retries: int | None = None
    submitted_by: str = "cli"
    tags: tuple[str, ...] = ()


class PreparedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A checked message, and the list it goes to."""

    message: dict[str, Any]
    key: str
    collection: str
    moves: bool
    """The file lies in the inbox and will be moved."""


class GatewayHealth(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway, as it last said. ``beat_age_s`` None: it has left. ``workers``: of its queue."""

    name: str
    host: str
    pid: int
    beat_age_s: float | None
    queued: int
    processing: int
    workers: int

    @property
    def connected(self) -> bool:
        return self.beat_age_s is not None and self.beat_age_s < CONNECTED_S


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """``queued`` are messages in lists, ``accepted`` those that became jobs nobody has begun yet.
    ``waiting``: messages by RAG that only a gateway which serves it can take. ``misplaced``: keys of
    lists that hold something else, with its Redis type."""

    queue_name: str
    connection: str
    queue_length: int
    processing: int
    queued: int
    accepted: int
    dead_letters: int
    worker_connected: bool
    heartbeat_age_s: float | None
    lists: dict[str, int]
    waiting: dict[str, int]
    misplaced: dict[str, str]
    gateways: list[GatewayHealth]
