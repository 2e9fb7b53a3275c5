"""Commands by name, each imported at its first use: one command does not pay for the options of all."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from importlib import import_module

import click


class LazyCommands(MutableMapping[str, click.Command]):
    """The ``commands`` of a group. ``places`` gives module and function: ``{"index": "index:index"}``.

    ``former`` are former spellings: hidden copies of commands. ``prepare`` is called with each command after
    its import.
    """

    def __init__(
        self,
        places: Mapping[str, str],
        former: Mapping[str, str],
        *,
        prepare: Callable[[click.Command], None],
    ) -> None:
        self._places = {**places, **former}
        self._former = frozenset(former)
        self._prepare = prepare
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            module, _, function = self._places[name].partition(":")
            command: click.Command = getattr(import_module(f"penstock.cli.{module}"), function)
            if name in self._former:
                command = copy.copy(command)
                command.hidden = True
            self._prepare(command)
            self._loaded[name] = command
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._places.setdefault(name, "")
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._places[name]
        self._loaded.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
