"""Redis keys of the contract, and the order in which lists are served."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from penstock.named_tuple import NamedTuple

QUEUE = "rag:ingest:queue"
DEAD_LETTER = f"{QUEUE}:dead-letter"
GATEWAYS = "rag:ingest:gateways"
"""Hash: gateway → its last heartbeat as JSON."""
OPEN = "rag:ingest:open"
"""Hash: job → the gateway that mirrors it."""

RAGS = "rag:ingest:rags"
"""Hash: RAG → when a gateway last announced that it serves the RAG, in milliseconds of the server's clock."""
WAITING_PREFIX = "rag:ingest:waiting:"
RECENT = "rag:ingest:recent"
"""Sorted set: job → when its hash is compared with ``RECENT_FIELDS`` next."""
RECENT_FIELDS = "rag:ingest:recent:fields"
"""Hash: job → the fields that a gateway wrote last, as JSON."""
FILE_PREFIX = "rag:ingest:file:"

PRIORITIES: Mapping[str, int] = MappingProxyType({"high": 8, "normal": 5, "low": 1})
NORMAL = PRIORITIES["normal"]
RESERVED = frozenset({*PRIORITIES, "dead-letter"})
"""Names that no RAG can have, because the lists of these names have another meaning."""

KEPT_S = 604_800
"""Seconds that the hash of a job is kept after the job ended."""
LOWEST_FIRST_EVERY = 16
"""One take in so many begins with the lowest list, so that many urgent messages do not starve the others."""


def job_key(job_id: str) -> str:
    return f"rag:ingest:job:{job_id}"


def list_key(rag_id: str) -> str:
    """List: messages for one RAG. Only gateways which serve the RAG take them."""
    return f"{QUEUE}:{rag_id}"


def waiting_key(rag_id: str) -> str:
    """List: messages passed on to the gateways which serve this RAG, by a gateway which does not."""
    return f"{WAITING_PREFIX}{rag_id}"


def ttl_key(job_id: str) -> str:
    return f"{job_key(job_id)}:ttl"


def file_key(rag_id: str, known_as: str) -> str:
    """Set: the jobs of one file."""
    named = hashlib.sha256(f"{rag_id}\n{known_as}".encode("utf-8", "surrogateescape")).hexdigest()
    return f"{FILE_PREFIX}{named[:16]}"


def processing_key(gateway: str, priority: int) -> str:
    """List: messages taken by a gateway and not yet handed over.

    There is one list per priority, because a message does not contain its priority.
    """
    return f"rag:ingest:processing:{gateway}:{priority}"


class ServedList(NamedTuple):
    key: str
    priority: int


def served_lists(rag_ids: Iterable[str]) -> list[ServedList]:
    """List all served lists, most urgent first."""
    of_rags = [key for rag_id in rag_ids for key in (waiting_key(rag_id), list_key(rag_id))]
    middle = [QUEUE, f"{QUEUE}:normal", *of_rags]
    high, low = ServedList(f"{QUEUE}:high", PRIORITIES["high"]), ServedList(f"{QUEUE}:low", PRIORITIES["low"])
    return [high, *(ServedList(key, NORMAL) for key in middle), low]


def rotate_lists(lists: list[ServedList], turn: int) -> list[ServedList]:
    """Order the lists for one take: lists of normal priority rotate, and sometimes the lowest comes first."""
    middle = [one for one in lists if one.priority == NORMAL]
    start = turn % len(middle)
    order = [lists[0], *middle[start:], *middle[:start], lists[-1]]
    return order[::-1] if turn % LOWEST_FIRST_EVERY == LOWEST_FIRST_EVERY - 1 else order
