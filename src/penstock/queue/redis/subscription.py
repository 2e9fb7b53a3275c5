"""Hearing that there is news: one subscription for each thread that waits."""

from __future__ import annotations

import threading
import time
from weakref import WeakSet

from redis.client import PubSub

from penstock.errors import StoreUnavailable
from penstock.queue.redis.server import Server

LOOK_EVERY_S = 15.0
"""Look at the counter itself this often: a connection may be dead without either end being told."""


class Subscriptions:
    def __init__(self, server: Server) -> None:
        self._server = server
        self.after_fork()

    def wait(self, timeout: float) -> bool:
        ear: Subscription | None = getattr(self._own, "ear", None)
        if ear is None:
            ear = self._own.ear = Subscription(self._server)
            with self._listing:
                self._ears.add(ear)
        return ear.wait(timeout)

    def close(self) -> None:
        with self._listing:
            ears = list(self._ears)
        for ear in ears:
            ear.close()

    def after_fork(self) -> None:
        self._own = threading.local()
        self._listing = threading.Lock()
        self._ears: WeakSet[Subscription] = WeakSet()


class Subscription:
    """Hears each new version once. Subscribes before it looks, so that no change is slept through."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listener: PubSub | None = None
        self._seen = -1
        self._looked_at = 0.0

    def wait(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while True:
            try:
                return self._wait(deadline)
            except StoreUnavailable:
                # What was said meanwhile nobody heard. If the server is back, look; if not, so be it.
                if self._listener is None:
                    raise
                self.close()

    def _wait(self, deadline: float) -> bool:
        listener = self._listener
        if listener is None:
            listener = self._server.subscribed("bell")
            self._listener, self._looked_at = listener, 0.0
        while True:
            now = time.monotonic()
            if now - self._looked_at >= LOOK_EVERY_S:
                self._looked_at = now
                version = int(self._server.call("GET", self._server.key("version")) or 0)
                # Also when it is less than before: the server may have lost its data.
                news = version != self._seen
            else:
                left = max(0.0, min(deadline, self._looked_at + LOOK_EVERY_S) - now)
                heard = self._server.heard(listener, left)
                version = self._seen if heard is None else int(heard)
                news = version > self._seen
            if news:
                self._seen = version
                self._skip_old(listener)
                return True
            if time.monotonic() >= deadline:
                return False

    def _skip_old(self, listener: PubSub) -> None:
        """What was said up to now is one piece of news."""
        while (version := self._server.heard(listener, 0)) is not None:
            self._seen = max(self._seen, int(version))

    def close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
