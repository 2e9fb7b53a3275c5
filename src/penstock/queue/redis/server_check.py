"""Checks of a server: version, settings, and the format of a stored queue."""

from __future__ import annotations

import re

from penstock.errors import RestoreUnfinished, SchemaMismatch, StateDamaged, StoreReadOnly, StoreUnavailable
from penstock.queue.redis import codec
from penstock.queue.redis.server import Server

FORMAT = 2
RESTORING = b"restoring"
"""Stands for the format while the queue is restored."""
_GLOB = re.compile(r"[][*?\\^-]")
OLDEST = (6, 2)

TYPES = {
    "zset": "all live failed cancelled ready paused lockers limiters later backoff lease waiting awaited "
    "next results ended:done ended:failed ended:cancelled",
    "hash": "locks keys counts backlog pauses workers schedules limits",
    "string": "format version",
}
"""Keys of every queue by type. Checked before the first write, as a script cannot be rolled back."""


LARGE = "-" * 65
"""A member too long for the compact form of small hashes and zsets, in which each access is a linear search.
No id, key or lock has this value."""


def prepare(server: Server, *, restoring: bool = False) -> None:
    """Write the format of the queue, if missing, and refuse an unknown one.

    ``restoring``: a queue whose restore was not finished is not refused.
    """
    refuse_old(server)
    _refuse_foreign(server)
    written = server.call("GET", server.key("format"))
    if written is None:
        first = [*_first_keys(server), ("SET", server.key("format"), FORMAT, "NX")]
        server.run("commands", codec.encode(first))
        written = server.call("GET", server.key("format"))
    if not (restoring and written == RESTORING):
        _refuse_unknown(server, written)


def _first_keys(server: Server) -> list[tuple[object, ...]]:
    return [
        ("HSET", server.key("locks"), LARGE, ""),
        ("HSET", server.key("keys"), LARGE, ""),
        ("ZADD", server.key("lease"), "+inf", LARGE),
    ]


def begin_restore(server: Server) -> None:
    """Mark the queue as unfinished, then delete all keys but the mark."""
    marker = server.key("format").encode()
    server.call("SET", marker, RESTORING)
    cursor = b"0"
    pattern = _GLOB.sub(r"\\\g<0>", server.prefix) + "*"
    while True:
        cursor, found = server.call("SCAN", cursor, "MATCH", pattern, "COUNT", 1_000)
        found = [key for key in found if key != marker]
        if found:
            server.call("UNLINK", *found)
        if int(cursor) == 0:
            break
    server.run("commands", codec.encode(_first_keys(server)))


def end_restore(server: Server) -> None:
    """Replace the mark by the format: the queue can be opened."""
    server.call("SET", server.key("format"), FORMAT)


def is_marked(server: Server) -> bool:
    """Check whether a restore of the queue was not finished."""
    return bool(server.call("GET", server.key("format")) == RESTORING)


def warnings(server: Server) -> list[str]:
    """Check the format of the queue, then list settings of the server which could lose jobs.

    The format is missing after FLUSHALL under an open queue, which goes on with new jobs.
    """
    written = server.call("GET", server.key("format"))
    if written is None:
        return [f"{server.label} was emptied while it was open: its jobs are gone", *find_risks(server)]
    _refuse_unknown(server, written)
    return find_risks(server)


def find_risks(server: Server) -> list[str]:
    """List settings of the server which could lose jobs. The server need not hold a queue."""
    info = _info(server, "persistence") | _info(server, "memory") | _info(server, "replication")
    if info.get("role") == "slave":
        raise StoreReadOnly(
            f"{server.label} is a replica that cannot be written",
            remedy="Point the URL at the primary server.",
        )
    found = []
    if info.get("aof_enabled") == "0":
        found.append(f"{server.label} would lose its newest jobs in a crash: set appendonly yes")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        found.append(f"{server.label} may throw jobs away ({policy}): set maxmemory-policy noeviction")
    return found


def _info(server: Server, section: str) -> dict[str, str]:
    answer = server.call("INFO", section)
    if isinstance(answer, dict):
        return {str(name): str(value) for name, value in answer.items()}
    lines = answer.decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def refuse_old(server: Server) -> None:
    version = _info(server, "server").get("redis_version", "")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < OLDEST:
        raise StoreUnavailable(
            f"{server.label} is Redis {version or 'of an unknown version'}; Penstock needs 6.2 or newer",
            remedy="Upgrade the server, or use another store.",
        )


def _refuse_foreign(server: Server) -> None:
    expected = [(name, kind) for kind, names in TYPES.items() for name in names.split()]
    answers = server.calls([("TYPE", server.key(name)) for name, _ in expected])
    for (name, kind), answer in zip(expected, answers, strict=True):
        found = answer.decode() if isinstance(answer, bytes) else str(answer)
        if found not in ("none", kind):
            raise StateDamaged(
                f"{server.label}: {server.key(name)} is a {found}, not a {kind}",
                remedy="Choose another name= in the URL, or remove the foreign key.",
            )


def _refuse_unknown(server: Server, written: bytes | None) -> None:
    if written == RESTORING:
        raise RestoreUnfinished(f"{server.label} was being restored, and the restore did not finish")
    text = "" if written is None else written.decode(errors="replace")
    if not text.isdigit():
        raise SchemaMismatch(f"{server.label} is not a Penstock queue (format {text[:20]!r})")
    if int(text) != FORMAT:
        raise SchemaMismatch(f"{server.label} has format {text}, this version knows only {FORMAT}")
