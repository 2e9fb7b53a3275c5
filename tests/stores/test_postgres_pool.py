"""The pool of PostgreSQL connections, shared by the threads of one process."""

from __future__ import annotations

import threading
import time

from penstock.database.postgres import PostgresConnections

PATIENCE_S = 120


def test_threads_get_connections_in_the_order_they_came(url: str) -> None:
    connections = PostgresConnections(url, size=1, pooled=False, timeout_s=PATIENCE_S)
    served, taken = threading.Event(), 0

    def wait_once() -> None:
        with connections.borrowed():
            served.set()

    thread = threading.Thread(target=wait_once)
    with connections.borrowed():
        thread.start()
        while not connections.has_waiting():
            time.sleep(0.001)
    while not served.is_set():
        with connections.borrowed():
            taken += 1
    thread.join()
    connections.close()

    assert taken <= 1
