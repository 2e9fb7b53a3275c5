"""The scripts by name: a file of its own for each, put together with the parts it builds on."""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple

_TURNS = ("rows", "turns")
_AFTERMATH = (*_TURNS, "transitions", "aftermath")
_SETTLING = (*_TURNS, "adding", "transitions", "aftermath", "settling")

PARTS: dict[str, tuple[str, ...]] = {
    "add": (*_TURNS, "adding"),
    "claim": (*_AFTERMATH, "claiming"),
    "settle": _SETTLING,
    "exchange": (*_SETTLING, "claiming"),
    "renew": ("rows",),
    "cancel": (*_AFTERMATH, "cancelling"),
    "stop_children": (*_AFTERMATH, "cancelling"),
    "requeue": (*_TURNS, "transitions", "requeueing"),
    "return_children": (*_TURNS, "transitions", "requeueing"),
    "release": (*_AFTERMATH, "claiming", "ranks"),
    "prune": ("rows",),
    "reconcile": (*_AFTERMATH, "requeueing"),
    "scan": ("rows",),
    "position": ("rows", "ranks"),
}


class Script(NamedTuple):
    source: str
    sha: str


@cache
def script(name: str) -> Script:
    folder = files(__package__).joinpath("scripts")
    source = "\n".join(
        folder.joinpath(f"{part}.lua").read_text(encoding="utf-8") for part in (*PARTS[name], name)
    )
    # The name by which Redis knows a script; nothing secret.
    return Script(source, sha1(source.encode(), usedforsecurity=False).hexdigest())
