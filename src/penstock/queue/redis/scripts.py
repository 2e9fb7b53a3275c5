"""The scripts by name: a file of its own for each, put together with the parts it builds on."""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple

_RULES = ("rows", "turns", "pauses", "resumes", "transitions", "locks", "aftermath")
_MOVING = (*_RULES, "ranks", "holding", "moves")
_ADDING = ("rows", "turns", "locks", "pauses", "resumes", "adding")
_REQUEUEING = ("rows", "turns", "pauses", "resumes", "transitions", "requeueing")

PARTS: dict[str, tuple[str, ...]] = {
    "add": _ADDING,
    "claim": ("pauses", "claiming"),
    "settle": ("finishing",),
    "exchange": ("finishing", "pauses", "claiming"),
    "renew": ("rows",),
    "upcoming": (),
    "start": ("rows", "pauses"),
    "cancel": (*_RULES, "cancelling"),
    "stop_children": (*_RULES, "cancelling"),
    "requeue": _REQUEUEING,
    "return_children": _REQUEUEING,
    "resume": _MOVING,
    "step": _MOVING,
    "stranded": _MOVING,
    "prune": ("rows",),
    "purge": _RULES,
    "reconcile": (*_RULES, "requeueing"),
    "scan": ("rows",),
    "busy": ("rows", "pauses"),
    "position": ("rows", "ranks"),
    "together": (),
}
"""All begin with keys.lua."""

_HOLDING = "promote = promote, hold = hold"
_SETTLING = "settle = settle_rest, taken_child = taken_child"
RARE: dict[str, tuple[tuple[str, ...], str]] = {
    "claim": ((*_RULES, "holding"), _HOLDING),
    "settle": ((*_ADDING, "transitions", "aftermath", "settling"), _SETTLING),
    "exchange": (
        (*_ADDING, "transitions", "aftermath", "settling", "holding"),
        f"{_HOLDING}, {_SETTLING}",
    ),
}
"""Parts that the hot scripts build only when they need them, by ``rest()``, and what it gives: making the
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

_CONSTANTS = re.compile(r"^--@constants\n(.*?)^--@end\n", re.MULTILINE | re.DOTALL)
_CONSTANT = re.compile(r"^local ([A-Z_, ]+) = (.+)$", re.MULTILINE)
_TOKEN = re.compile(r"'[^'\n]*'|--[^\n]*|\b[A-Z][A-Z_]*\b")


class Script(NamedTuple):
    source: str
    sha: str


@cache
def script(name: str) -> Script:
    text = _read("keys")
    if name in RARE:
        parts, exports = RARE[name]
        text += _REST.format(parts="\n".join(map(_read, parts)), exports=exports)
    source = _resolved("\n".join([text, *map(_read, PARTS[name]), _read(name)]))
    # The name by which Redis knows a script; nothing secret.
    return Script(source, sha1(source.encode(), usedforsecurity=False).hexdigest())


def _read(part: str) -> str:
    return files(__package__).joinpath("scripts", f"{part}.lua").read_text(encoding="utf-8")


def _resolved(source: str) -> str:
    """Constants in place of their names, no comments."""
    constants: dict[str, str] = {}
    for block in _CONSTANTS.findall(source):
        for names, values in _CONSTANT.findall(block):
            constants |= dict(zip(names.split(", "), values.split(", "), strict=True))
    return _TOKEN.sub(lambda found: _replacement(found[0], constants), _CONSTANTS.sub("", source))


def _replacement(token: str, constants: dict[str, str]) -> str:
    return "" if token.startswith("--") else constants.get(token, token)
