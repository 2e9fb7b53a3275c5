"""The keys of the contract, and in which order its lists are served."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

QUEUE = "rag:ingest:queue"
DEAD_LETTER = f"{QUEUE}:dead-letter"
GATEWAYS = "rag:ingest:gateways"
"""Hash: gateway → what it last said of itself, and when."""
OPEN = "rag:ingest:open"
"""Hash: job → the gateway that mirrors it."""

RAGS = "rag:ingest:rags"
"""Hash: RAG → when a gateway last said that it serves it, in milliseconds of the server's clock."""
WAITING_PREFIX = "rag:ingest:waiting:"
FILE_PREFIX = "rag:ingest:file:"

PRIORITIES: Mapping[str, int] = MappingProxyType({"high": 8, "normal": 5, "low": 1})
NORMAL = PRIORITIES["normal"]
RESERVED = frozenset({*PRIORITIES, "dead-letter"})
"""Names that no RAG can have: their lists mean something else."""

KEPT_S = 604_800
"""How long the hash of a job stays after its end."""
TURNS = 16
"""Every so many takes begin with the lowest list, so that a flood of urgent messages starves nobody."""


def job_key(job_id: str) -> str:
    return f"rag:ingest:job:{job_id}"


def list_key(rag_id: str) -> str:
    """Messages for one RAG, which only gateways that know it take."""
    return f"{QUEUE}:{rag_id}"


def waiting_key(rag_id: str) -> str:
    """List: messages that a gateway took which does not serve their RAG. Only gateways that do take them."""
    return f"{WAITING_PREFIX}{rag_id}"


def ttl_key(job_id: str) -> str:
    return f"{job_key(job_id)}:ttl"


def file_key(rag_id: str, known_as: str) -> str:
    """Set: the jobs that are about one file."""
    named = hashlib.sha256(f"{rag_id}\n{known_as}".encode("utf-8", "surrogateescape")).hexdigest()
    return f"{FILE_PREFIX}{named[:16]}"


def processing_key(gateway: str, priority: int) -> str:
    """Messages a gateway has taken and not yet handed over: one list a priority, which no message tells."""
    return f"rag:ingest:processing:{gateway}:{priority}"


class Served(NamedTuple):
    key: str
    priority: int


def served(rag_ids: Iterable[str]) -> list[Served]:
    """All lists, most urgent first."""
    of_rags = [key for rag_id in rag_ids for key in (waiting_key(rag_id), list_key(rag_id))]
    middle = [QUEUE, f"{QUEUE}:normal", *of_rags]
    high, low = Served(f"{QUEUE}:high", PRIORITIES["high"]), Served(f"{QUEUE}:low", PRIORITIES["low"])
    return [high, *(Served(key, NORMAL) for key in middle), low]


def in_turn(lists: list[Served], turn: int) -> list[Served]:
    """The order of one take: lists of one priority go round, and now and then the last comes first."""
    middle = [one for one in lists if one.priority == NORMAL]
    start = turn % len(middle)
    order = [lists[0], *middle[start:], *middle[:start], lists[-1]]
    return order[::-1] if turn % TURNS == TURNS - 1 else order
