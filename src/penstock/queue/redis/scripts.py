"""Lua scripts by name: each script is one file, joined with the required parts.

Constants are replaced by their values. Those that Python knows, too, come from Python (``_VALUES``).
"""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any

from penstock.queue.job import CHILDREN, RETURNED, SUSPECT, Held, Status
from penstock.queue.limits import AHEAD
from penstock.queue.protocol import POSITION_CAP
from penstock.queue.redis import codec
from penstock.queue.rules.addition import COUNT_CAP, RESOLVED_AT_ONCE
from penstock.queue.rules.held_jobs import ADMITTED_AT_ONCE, PASSED_AT_ONCE
from penstock.queue.rules.rows import DUE_AT_ONCE, HELD_BACK_AT_ONCE, ROUNDS, PauseState
from penstock.queue.rules.settlement import MOST_CHUNKS, NAMED_FAILURES
from penstock.queue.transitions import (
    AND_MORE,
    CANCELLED_MESSAGE,
    CHILD_NOUNS,
    CHILDREN_FAILED,
    DEPENDENCY_FAILED,
    DEPENDENCY_MESSAGE,
    FOLLOW_UP_NOTE,
    HISTORY_LIMIT,
    OTHER_CHILDREN,
)

_LIMITS = ("rows", "turns", "pauses", "resumes", "locks", "limits")
_RULES = (*_LIMITS, "transitions", "dependencies", "aftermath")
_MOVES = (*_RULES, "ranks", "holds", "moves")
_NEW_ROWS = ("rows", "turns", "locks", "pauses", "resumes", "limits", "new_rows")
_REQUEUES = (*_LIMITS, "transitions", "dependencies", "requeues")

_PARTS: dict[str, tuple[str, ...]] = {
    "add": (*_NEW_ROWS, "additions"),
    "add_plain": (),
    "add_waiting": (*_NEW_ROWS, "transitions", "dependencies", "additions"),
    "restore": _NEW_ROWS,
    "claim": ("pauses", "claims"),
    "settle": ("plain_ends",),
    "exchange": ("plain_ends", "pauses", "claims"),
    "renew": ("rows",),
    "upcoming": (),
    "start": ("rows", "pauses"),
    "cancel": (*_RULES, "cancellations"),
    "stop_children": (*_RULES, "cancellations"),
    "requeue": _REQUEUES,
    "return_children": _REQUEUES,
    "resume": _MOVES,
    "advance_resume": _MOVES,
    "stranded": _MOVES,
    "prune": ("rows",),
    "purge": _RULES,
    "reconcile": (*_RULES, "requeues"),
    "resolve": _RULES,
    "unresolved": ("rows",),
    "scan": ("rows",),
    "expire_results": ("rows",),
    "busy": ("rows", "pauses"),
    "position": ("rows", "ranks"),
    "commands": (),
    "forget_workers": (),
    "put_schedule": (),
    "drop_schedule": (),
    "due_schedules": (),
    "admit": _LIMITS,
    "put_limit": _LIMITS,
    "recall": _LIMITS,
}
"""Parts of each script, after keys.lua and before the script itself."""

_HOLDS = "promote = promote, hold_by_id = hold_by_id, pass_over_limited = pass_over_limited"
_SETTLEMENTS = "settle = settle_rest, taken_child = taken_child"
_RARE: dict[str, tuple[tuple[str, ...], str]] = {
    "claim": ((*_RULES, "holds"), _HOLDS),
    "settle": ((*_NEW_ROWS, "transitions", "dependencies", "aftermath", "settlements"), _SETTLEMENTS),
    "exchange": (
        (*_NEW_ROWS, "transitions", "dependencies", "aftermath", "settlements", "holds"),
        f"{_HOLDS}, {_SETTLEMENTS}",
    ),
}
"""Parts that the hot scripts load only on demand, by ``rest()``, and the functions it returns. Creating the
functions of all parts takes longer than claiming a few jobs."""

_REST = """
local function general()
{parts}
return {{{exports}}}
end
local loaded
local function rest()
  loaded = loaded or general()
  return loaded
end
"""

_LUA_STATUSES = {
    Status.PENDING: "PENDING",
    Status.IN_PROGRESS: "RUNNING",
    Status.DONE: "DONE",
    Status.FAILED: "FAILED",
    Status.CANCELLED: "CANCELLED",
}
_LUA_HELD = {
    None: "FREE",
    Held.TIME: "TIMED",
    Held.LOCK: "PARKED",
    Held.PAUSE: "PAUSED",
    Held.AFTER: "DEPENDENT",
    Held.LIMIT: "LIMITED",
}

_CONSTANTS = re.compile(r"^--@constants\n(.*?)^--@end\n", re.MULTILINE | re.DOTALL)
_CONSTANT = re.compile(r"^local ([A-Z_, ]+) = (.+)$", re.MULTILINE)
_TOKEN = re.compile(r"'[^'\n]*'|--[^\n]*|\b[A-Z][A-Z_]*\b")


_VALUES: dict[str, Any] = {
    **{_LUA_STATUSES[status]: number for status, number in codec.NUMBER_OF.items()},
    **{_LUA_HELD[held]: number for held, number in codec.HELD_NUMBER.items()},
    **{f"{_LUA_STATUSES[status]}_FREE": f"{number}:0:" for status, number in codec.NUMBER_OF.items()},
    **{f"PHASE_{phase.name}": phase.value for phase in PauseState},
    "STATUS_NAMES": tuple(map(str, codec.STATUSES)),
    "FIELDS": codec.FIELDS,
    "SUSPECT": SUSPECT,
    "RETURNED": RETURNED,
    "CHILDREN": CHILDREN,
    "FUNCTION": "function",
    "POSITION_CAP": POSITION_CAP,
    "HISTORY_LIMIT": HISTORY_LIMIT,
    "FOLLOW_UP_NOTE": FOLLOW_UP_NOTE,
    "CANCELLED_MESSAGE": CANCELLED_MESSAGE,
    "CANCELLED_CODE": "ERR_CANCELLED",
    "DEPENDENCY_FAILED": DEPENDENCY_FAILED,
    "DEPENDENCY_MESSAGE": DEPENDENCY_MESSAGE,
    "RESOLVED_AT_ONCE": RESOLVED_AT_ONCE,
    "CHILDREN_FAILED_CODE": "ERR_CHILDREN_FAILED",
    "CHILDREN_FAILED": CHILDREN_FAILED,
    "CHILD_NOUNS": CHILD_NOUNS,
    "OTHER_CHILDREN": OTHER_CHILDREN,
    "AND_MORE": AND_MORE,
    "NAMED_FAILURES": NAMED_FAILURES,
    "MOST_CHUNKS": MOST_CHUNKS,
    "ROUNDS": ROUNDS,
    "HELD_BACK_AT_ONCE": HELD_BACK_AT_ONCE,
    "DUE_AT_ONCE": DUE_AT_ONCE,
    "COUNT_CAP": COUNT_CAP,
    "ADMITTED_AT_ONCE": ADMITTED_AT_ONCE,
    "PASSED_AT_ONCE": PASSED_AT_ONCE,
    "AHEAD": codec.duration(AHEAD),
}
"""Constants of the scripts that Python defines."""


@cache
def script(name: str) -> tuple[str, str]:
    """The source of a script as sent to the server, and the SHA-1 by which EVALSHA identifies it."""
    text = _read("keys")
    if name in _RARE:
        parts, exports = _RARE[name]
        text += _REST.format(parts="\n".join(map(_read, parts)), exports=exports)
    source = _resolved("\n".join([text, *map(_read, _PARTS[name]), _read(name)]))
    return source, sha1(source.encode(), usedforsecurity=False).hexdigest()


def _read(part: str) -> str:
    return files(__package__).joinpath("scripts", f"{part}.lua").read_text(encoding="utf-8")


def _resolved(source: str) -> str:
    """Replace constants by their values, and remove comments."""
    constants = {name: _lua(value) for name, value in _VALUES.items()}
    for block in _CONSTANTS.findall(source):
        for names, values in _CONSTANT.findall(block):
            constants |= dict(zip(names.split(", "), values.split(", "), strict=True))
    return _TOKEN.sub(lambda found: _replacement(found[0], constants), _CONSTANTS.sub("", source))


def _lua(value: Any) -> str:
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key} = {_lua(each)}' for key, each in value.items())}}}"
    return str(value) if isinstance(value, int) else f"{{{', '.join(map(_lua, value))}}}"


def _replacement(token: str, constants: dict[str, str]) -> str:
    return "" if token.startswith("--") else constants.get(token, token)
