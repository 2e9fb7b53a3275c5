"""Requests and responses of the producers' side."""

from __future__ import annotations

from typing import Any

import msgspec

CONNECTED_S = 5.0
"""By the contract, a gateway with a heartbeat younger than this is connected."""


class SubmitRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a submission. None: derived from the file, or the contract's default."""

    source_type: str | None = None
    reindex: bool = False
    skip_validation: bool = False
    preserve_metadata: bool = True
    priority: str | None = None
    max_retries: int | None = None
    submitted_by: str = "cli"
    tags: tuple[str, ...] = ()


class PreparedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A checked message and the target list."""

    message: dict[str, Any]
    key: str
    collection: str
    moves: bool
    """The file is in the inbox and will be moved."""


class GatewayHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The last heartbeat of a gateway. ``beat_age_s`` None: stopped. ``workers``: living ones."""

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
    """Health of the lists and gateways.

    ``gateway_connected``: a gateway has a fresh heartbeat. ``worker_connected``: it also sees a living worker
    behind it. ``queued``: messages in lists. ``accepted``: messages whose jobs have not started.
    ``waiting``: messages by RAG that only a gateway which serves the RAG can take. ``misplaced``: keys of
    lists that hold another Redis type, with that type.
    """

    queue_name: str
    connection: str
    queue_length: int
    processing: int
    queued: int
    accepted: int
    dead_letters: int
    gateway_connected: bool
    worker_connected: bool
    heartbeat_age_s: float | None
    lists: dict[str, int]
    waiting: dict[str, int]
    misplaced: dict[str, str]
    gateways: list[GatewayHealth]
