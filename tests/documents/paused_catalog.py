"""A catalog with breakpoints: a test can act before or after a named call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.catalog.protocol import Catalog


class PausedCatalog:
    """Proxy of a catalog. An action runs once, before or after the first call of the named method."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._actions: dict[tuple[str, str], Callable[[], object]] = {}
        self._calls: dict[str, int] = {}
        self.reached: list[tuple[str, str]] = []

    def at(self, when: str, call: str, action: Callable[[], object]) -> None:
        self._actions[when, call] = action

    def counted(self, call: str) -> Callable[[], int]:
        """Counter of the calls from now on."""
        self._calls[call] = 0
        return lambda: self._calls[call]

    def _act(self, when: str, call: str) -> None:
        action = self._actions.pop((when, call), None)
        if action is not None:
            self.reached.append((when, call))
            action()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._catalog, name)
        if name not in self._calls and not any(call == name for _, call in self._actions):
            return found

        def called(*arguments: Any, **named: Any) -> Any:
            if name in self._calls:
                self._calls[name] += 1
            self._act("before", name)
            answer = found(*arguments, **named)
            self._act("after", name)
            return answer

        return called
