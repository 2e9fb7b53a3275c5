"""Change notifications: one subscription for each waiting thread."""

from __future__ import annotations

import threading
import time
from weakref import WeakSet

from redis.client import PubSub

from penstock.errors import StoreError
from penstock.queue.redis.server import Server

CHECK_EVERY_S = 15.0
"""Seconds between reads of the version counter: a dead connection may go unnoticed on both ends."""


class Subscriptions:
    """The subscriptions of all threads of this process."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.after_fork()

    def wait(self, timeout: float) -> bool:
        subscription: Subscription | None = getattr(self._local, "subscription", None)
        if subscription is None:
            subscription = self._local.subscription = Subscription(self._server)
            with self._lock:
                self._all.add(subscription)
        return subscription.wait(timeout)

    def close(self) -> None:
        with self._lock:
            subscriptions = list(self._all)
        for subscription in subscriptions:
            subscription.close()

    def after_fork(self) -> None:
        self._local = threading.local()
        self._lock = threading.Lock()
        self._all: WeakSet[Subscription] = WeakSet()


class Subscription:
    """Reports each new version once. Subscribes before the first read, so no change is missed."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listener: PubSub | None = None
        self._seen = -1
        self._checked_at = 0.0
        self._departures = 0

    def wait(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while True:
            try:
                return self._wait(deadline)
            except StoreError:
                # Notifications may be lost: subscribe again and read the version, unless the server is away.
                if self._listener is None:
                    raise
                self.close()

    def _wait(self, deadline: float) -> bool:
        if self._departures != self._server.departures:
            self.close()
        listener = self._listener
        if listener is None:
            self._departures = self._server.departures
            listener = self._server.subscribe("news")
            self._listener, self._checked_at = listener, 0.0
        while True:
            now = time.monotonic()
            if now - self._checked_at >= CHECK_EVERY_S:
                self._checked_at = now
                version = int(self._server.call("GET", self._server.key("version")) or 0)
                # Also if the version is lower than before: the server may have lost its data.
                changed = version != self._seen
            else:
                left = max(0.0, min(deadline, self._checked_at + CHECK_EVERY_S) - now)
                message = self._server.next_message(listener, left)
                version = self._seen if message is None else int(message)
                changed = version > self._seen
            if changed:
                self._seen = version
                self._skip_old(listener)
                return True
            if time.monotonic() >= deadline:
                return False

    def _skip_old(self, listener: PubSub) -> None:
        """Skip older notifications: all changes up to now count as one."""
        while (version := self._server.next_message(listener, 0)) is not None:
            self._seen = max(self._seen, int(version))

    def close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
