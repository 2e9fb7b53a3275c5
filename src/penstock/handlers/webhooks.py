"""Delivery of webhooks, and the events of ended jobs that hooks are called with."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from penstock import clock, traces
from penstock.config import Settings
from penstock.errors import (
    AddressRefused,
    EndedJobGone,
    PageRefused,
    PageUnavailable,
    ServiceUnavailable,
    WebhookAddressRefused,
    WebhookFailed,
    WebhookGone,
    WebhookUnsigned,
)
from penstock.handlers.context import Context, Later
from penstock.queue.job import Claim, Job
from penstock.queue.retry import Backoff
from penstock.queue.transitions import HOOK, SMALL_RESULT, WEBHOOK, concerns, dependencies_of, job_event

WEBHOOK_BACKOFF = Backoff((5, 30, 120, 300, 900, 1_800, 3_600), cap=14_400)
"""After an answer with an error: sent again for about two days."""
_GIVE_UP_AFTER = timedelta(days=3)
"""Age of the event after which a receiver that does not answer at all is given up."""
_ANSWER_TIMEOUT_S = 15.0
_LEAST_SECRET = 16
"""Bytes of the secret."""
_PREFIX = "whsec_"
_PAYLOAD_START = f'{{"function_name":"{WEBHOOK}"'
_GONE = 410
_LIVE_AGAIN = timedelta(seconds=60)


class WebhookOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of webhooks. The secret is text, or the path of a file with it."""

    secret: str | None = None
    secret_file: str | None = None
    private: bool = False

    def key(self) -> bytes:
        """The key of the signature. A file is read each time, so that a new secret needs no restart."""
        return read_secret(self._text())

    def _text(self) -> str:
        if self.secret is not None:
            return self.secret
        if self.secret_file is None:
            raise WebhookUnsigned("no secret for webhooks is set")
        try:
            return Path(self.secret_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            cause = error.strerror if isinstance(error, OSError) else "it is not text"
            raise WebhookUnsigned(f"the file with the secret for webhooks cannot be read: {cause}") from None


def webhook_options(settings: Settings) -> WebhookOptions:
    return WebhookOptions(
        secret=settings.webhook_key,
        secret_file=settings.webhook_key_file,
        private=settings.webhook_private,
    )


def is_webhook(claim: Claim) -> bool:
    """Tell by the text of the payload, which costs less than to decode it."""
    return claim.payload_json.startswith(_PAYLOAD_START)


def read_secret(text: str) -> bytes:
    """The bytes of a secret: base64 after ``whsec_``, else the text itself. No message quotes it."""
    try:
        found = (
            base64.b64decode(text.removeprefix(_PREFIX), validate=True)
            if text.startswith(_PREFIX)
            else text.encode()
        )
    except (binascii.Error, ValueError):
        raise WebhookUnsigned(f"the secret for webhooks is not base64 after {_PREFIX}") from None
    if len(found) < _LEAST_SECRET:
        raise WebhookUnsigned(
            f"the secret for webhooks has {len(found)} bytes; at least {_LEAST_SECRET} count"
        )
    return found


def signature(key: bytes, event_id: str, timestamp: int, body: bytes) -> str:
    """The signature of a delivery, as in the header ``webhook-signature`` of Standard Webhooks."""
    signed = b".".join([event_id.encode(), str(timestamp).encode(), body])
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def _ended_job(context: Context) -> Job | Later:
    """The job with this hook; ``Later`` if the job was retried meanwhile."""
    own = context.read_job(context.job_id)
    after = dependencies_of(own).after if own is not None else ()
    job = context.read_job(after[0]) if after else None
    # A handwritten hook must not read the jobs of other tenants.
    if job is None or job.tenant_id != context.claim.tenant_id:
        raise EndedJobGone(f"the job {after[0] if after else '?'} was removed before its hook ran")
    if not job.ended:
        return Later(f"job {job.queue_id} was retried and has not ended", _LIVE_AGAIN)
    return job


def hook_event(context: Context) -> dict[str, Any] | Later | None:
    """The event for a function after the end of a job; None: not for this end."""
    job = _ended_job(context)
    if isinstance(job, Later):
        return job
    return job_event(job) if concerns(str(context.metadata[HOOK]), job.status) else None


def deliver(context: Context, payload: Mapping[str, Any], options: WebhookOptions) -> object:
    """Send the event of an ended job to the URL of the webhook. The result is the receiver's status."""
    job = _ended_job(context)
    if isinstance(job, Later):
        return job
    url = str(payload.get("url"))
    ended_at = job.finished_at or job.updated_at
    # The same for every attempt at one end of the job: by this the receiver knows a repeated delivery.
    event_id = f"{job.queue_id}.{int(ended_at.timestamp() * 1000)}"
    event = {
        "type": f"job.{job.status}",
        "timestamp": ended_at,
        "data": job_event(job, largest_result=SMALL_RESULT),
    }
    body = msgspec.json.encode(event)
    return {"status": _send(context, url, event_id, body, options, waited=clock.now() - ended_at)}


def _send(
    context: Context, url: str, event_id: str, body: bytes, options: WebhookOptions, *, waited: timedelta
) -> int:
    # Loaded with the first webhook: the modules of HTTP take long to load.
    from penstock.pipeline.web import fetch, urls
    from penstock.pipeline.web.urls import FetchLimits

    key, timestamp = options.key(), int(clock.now().timestamp())
    headers = {
        "Content-Type": "application/json",
        "webhook-id": event_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(key, event_id, timestamp, body),
    }
    limits = FetchLimits(timeout_s=_ANSWER_TIMEOUT_S, private=options.private)
    host = urls.host_of(url)
    service = f"webhooks of {host}"
    with context.service(service):
        try:
            with traces.sent(f"POST {host}", {"http.request.method": "POST", "server.address": host}):
                answer = fetch.post(urls.receiver(url), body, headers | traces.headers(), limits)
        except AddressRefused as refusal:
            raise WebhookAddressRefused(refusal.message) from None
        except PageRefused as refusal:
            raise WebhookFailed(refusal.message) from None
        except PageUnavailable as outage:
            if waited > _GIVE_UP_AFTER:
                raise WebhookGone(f"{outage.message}; given up after {waited.days} days") from None
            # Others for the same host wait, too, instead of keeping the workers busy one by one.
            raise ServiceUnavailable(service, outage.message) from None
    if 200 <= answer.status < 300:
        return answer.status
    if answer.status == _GONE:
        raise WebhookGone(f"{urls.shown(url)} answered 410: it wants no more webhooks")
    raise WebhookFailed(f"{urls.shown(url)} answered {answer.status}", retry_after=answer.retry_after)
