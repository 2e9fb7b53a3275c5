"""Shares of a thing of which a server has a limited number, such as open streams or uploads.

One key, and one machine, may have a part of all of it. Without these parts the first sender who takes
everything locks out all others, and is not even hindered by it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import TooManyAtOnce
from penstock.named_tuple import NamedTuple


class Taker(NamedTuple):
    """Who takes a share: the name of the key, and the address of the machine.

    ``key`` None: a server without keys, which belongs to one person. ``peer`` None: this machine itself, or a
    proxy that names no other one. For None only the total counts.
    """

    key: str | None = None
    peer: str | None = None


NOBODY = Taker()


class Shares:
    """The number in use, in total, of each key and of each machine. Threads may share one.

    ``refusal`` has the words for what is counted, such as "streams of events are open".
    """

    def __init__(
        self,
        refusal: type[TooManyAtOnce],
        *,
        total: int | None = None,
        per_key: int | None = None,
        per_peer: int | None = None,
    ) -> None:
        self._refusal = refusal
        self._most = {"total": total, "key": per_key, "peer": per_peer}
        self._lock = threading.Lock()
        self._taken: Counter[tuple[str, str]] = Counter()

    def take(self, taker: Taker) -> None:
        """Count one more; raise the refusal, which names what is used up, if there are too many."""
        with self._lock:
            for kind, name in _counts(taker):
                most = self._most[kind]
                if most is not None and self._taken[kind, name] >= most:
                    raise self._refusal.of(kind, name, most)
            self._taken.update(_counts(taker))

    def give_back(self, taker: Taker) -> None:
        """Count one less."""
        with self._lock:
            for count in _counts(taker):
                self._taken[count] -= 1
                if not self._taken[count]:
                    del self._taken[count]

    @contextmanager
    def held(self, taker: Taker) -> Iterator[None]:
        """Hold one for a while."""
        self.take(taker)
        try:
            yield
        finally:
            self.give_back(taker)


def _counts(taker: Taker) -> list[tuple[str, str]]:
    """What is counted for a sender. The own part comes first: it is the more useful message."""
    found = [("key", taker.key), ("peer", taker.peer), ("total", "")]
    return [(kind, name) for kind, name in found if name is not None]
