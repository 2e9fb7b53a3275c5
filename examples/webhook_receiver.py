"""A receiver of Penstock's webhooks, without dependencies: copy it, or port it to your own web framework.

    PENSTOCK_WEBHOOK_KEY=… python examples/webhook_receiver.py [PORT]

It refuses a delivery with a wrong signature or an old timestamp, and takes a repeated one for the first.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOLERANCE_S = 300
MOST_BYTES = 1 << 20
KEPT_IDS = 10_000


class Refused(Exception):
    """The delivery is not from Penstock, or not of now."""


def key_of(secret: str) -> bytes:
    """The key of a secret: base64 after ``whsec_``, else the text itself."""
    if secret.startswith("whsec_"):
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    return secret.encode()


def verify(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> dict[str, Any]:
    """Return the event of a genuine delivery; raise ``Refused`` for any other."""
    event_id, stamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not stamp.isdecimal() or abs(now - int(stamp)) > TOLERANCE_S:
        raise Refused("the timestamp is missing, or too old")
    signed = b".".join([event_id.encode(), stamp.encode(), body])
    expected = base64.b64encode(hmac.digest(key_of(secret), signed, hashlib.sha256)).decode()
    # Several signatures, while a secret is replaced by another one.
    given = [part.removeprefix("v1,") for part in headers.get("webhook-signature", "").split()]
    if not any(hmac.compare_digest(expected.encode(), each.encode()) for each in given):
        raise Refused("the signature is wrong")
    event: dict[str, Any] = json.loads(body)
    return event


class Receiver:
    """Verifies deliveries, and hands each event on once."""

    def __init__(
        self, secret: str, handle: Callable[[dict[str, Any]], None], clock: Callable[[], float] = time.time
    ) -> None:
        self._secret = secret
        self._handle = handle
        self._clock = clock
        self._seen: dict[str, None] = {}

    def receive(self, headers: Mapping[str, str], body: bytes) -> tuple[int, str]:
        """The status and text of the answer."""
        try:
            event = verify(self._secret, headers, body, self._clock())
        except Refused as refusal:
            return 401, str(refusal)
        except ValueError:
            return 400, "the body is not JSON"
        event_id = headers["webhook-id"]
        if event_id not in self._seen:
            # An error here is answered with 500, and Penstock sends the event again.
            self._handle(event)
            self._seen[event_id] = None
            if len(self._seen) > KEPT_IDS:
                del self._seen[next(iter(self._seen))]
        return 200, "ok"


def server(receiver: Receiver, port: int) -> ThreadingHTTPServer:
    """A web server around a receiver, on the loopback address."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_POST(self) -> None:
            size = self.headers.get("Content-Length", "")
            if not size.isdecimal() or int(size) > MOST_BYTES:
                self._answer(413, "too large")
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            self._answer(*receiver.receive(headers, self.rfile.read(int(size))))

        def _answer(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            """Print events only."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def show(event: dict[str, Any]) -> None:
    """Print one line about an event."""
    job = event["data"]
    error = f": {job['error_message']}" if job["error_message"] else ""
    print(f"{event['type']}  {job['job_id']}  {job['function'] or job['item_type']}{error}", flush=True)


def main() -> None:
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8099
    with server(Receiver(os.environ["PENSTOCK_WEBHOOK_KEY"], show), port) as running:
        print(f"waiting for webhooks at http://127.0.0.1:{running.server_address[1]}/", flush=True)
        running.serve_forever()


if __name__ == "__main__":
    main()
