"""Traces of jobs by OpenTelemetry: spans from the call over the worker to the webhook.

Only where the process uses OpenTelemetry itself, that is, has imported it and set a provider. Nothing of it
is imported here, so a process without it pays one look into the table of loaded modules. The context of a job
is in its metadata, in the form of the W3C Trace Context.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from importlib import import_module
from typing import Any

import msgspec

from penstock.queue.job import Claim, Job, NewJob, Settlement, Status
from penstock.queue.transitions import TRACEPARENT

_API = "opentelemetry.trace"
_PROPAGATION = "opentelemetry.trace.propagation.tracecontext"
_MOST_UNSETTLED = 10_000
"""Spans of results on their way to the store that are kept."""


class _Trace(msgspec.Struct, frozen=True):
    traceparent: Any = None
    tracestate: Any = None


_read = msgspec.json.Decoder(_Trace).decode


def tracer() -> Any:
    """The tracer of this process; None without OpenTelemetry or without a provider."""
    api: Any = sys.modules.get(_API)
    if api is None:
        return None
    provider = api.get_tracer_provider()
    return None if isinstance(provider, api.ProxyTracerProvider) else provider.get_tracer("penstock")


def trace_id() -> str | None:
    """The trace of the current span, as 32 hex digits; None outside of one."""
    api: Any = sys.modules.get(_API)
    context = api.get_current_span().get_span_context() if api is not None else None
    return f"{context.trace_id:032x}" if context is not None and context.is_valid else None


def stored_trace_id(metadata: Mapping[str, Any]) -> str | None:
    """The trace in the metadata of a job."""
    parts = str(metadata.get(TRACEPARENT, "")).split("-")
    return parts[1] if len(parts) == 4 and len(parts[1]) == 32 else None


def job_fields(job: Claim | Job) -> dict[str, str | None]:
    """Fields of a job for a log line in JSON."""
    try:
        name = _name(job.item_type, job.op, job.payload_json)
        trace = stored_trace_id(msgspec.json.decode(job.metadata))
    except (msgspec.DecodeError, AttributeError):  # a payload may be anything
        name, trace = f"{job.item_type} {job.op}", None
    return {"job_id": job.queue_id, "function": name, "tenant_id": job.tenant_id, "trace_id": trace}


def _propagator() -> Any:
    return import_module(_PROPAGATION).TraceContextTextMapPropagator()


def headers() -> dict[str, str]:
    """Headers that carry the current span to another program; none outside of one."""
    carried: dict[str, str] = {}
    if trace_id() is not None:
        _propagator().inject(carried)
    return carried


def _parent(metadata: str) -> Any:
    """The context in the metadata of a job, or an empty one."""
    found = _read(metadata.encode()) if TRACEPARENT in metadata else _Trace()
    fields = {name: value for name, value in msgspec.structs.asdict(found).items() if isinstance(value, str)}
    return _propagator().extract(fields, context=_empty())


def _empty() -> Any:
    return import_module("opentelemetry.context").Context()


@contextmanager
def enqueued(new: Sequence[NewJob]) -> Iterator[Sequence[NewJob]]:
    """Surround the addition of jobs with a span; yields the jobs with its context in their metadata."""
    current = tracer()
    if current is None or not new:
        yield new
        return
    name = _name(new[0].item_type, new[0].op, new[0].payload_json)
    attributes = {**_attributes(new[0], name), "messaging.operation.type": "send"}
    if len(new) > 1:
        attributes["messaging.batch.message_count"] = len(new)
    kind = sys.modules[_API].SpanKind.PRODUCER
    with current.start_as_current_span(f"enqueue {name}", kind=kind, attributes=attributes):
        carried = headers()
        yield [msgspec.structs.replace(each, metadata=_with(each.metadata, carried)) for each in new]


def _with(metadata: str, carried: Mapping[str, str]) -> str:
    found: dict[str, Any] = msgspec.json.decode(metadata)
    return msgspec.json.encode({**found, **carried}).decode()


def _name(item_type: str, op: str, payload_json: str) -> str:
    if item_type != "function":
        return f"{item_type} {op}"
    name = msgspec.json.decode(payload_json).get("function_name")
    return str(name)[:255]


def _attributes(job: NewJob | Claim, name: str) -> dict[str, Any]:
    return {
        "messaging.system": "penstock",
        "messaging.destination.name": name,
        "messaging.message.id": job.queue_id,
        "penstock.tenant": job.tenant_id,
        "penstock.collection": job.collection,
    }


_unsettled: dict[tuple[str, int], Any] = {}
"""Spans of results on their way to the store, by claim."""


class RunSpan:
    """The span of one handler call, and the span of the wait before."""

    def __init__(self, current: Any, claims: Sequence[Claim]) -> None:
        self._tracer = current
        first = claims[0]
        self._api: Any = sys.modules[_API]
        parent = _parent(first.metadata)
        name = _name(first.item_type, first.op, first.payload_json)
        attributes = _attributes(first, name)
        if not first.retry_count:
            waited = current.start_span(
                f"wait {name}",
                context=parent,
                attributes=attributes,
                start_time=_nanoseconds(first.created_at),
            )
            waited.end()
        others = [
            self._api.get_current_span(_parent(each.metadata)).get_span_context() for each in claims[1:]
        ]
        self._span = current.start_span(
            f"run {name}",
            context=parent,
            kind=self._api.SpanKind.CONSUMER,
            links=[self._api.Link(each) for each in others if each.is_valid],
            attributes={
                **attributes,
                "messaging.operation.type": "process",
                "penstock.attempt": first.retry_count + 1,
                "messaging.batch.message_count": len(claims),
            },
        )

    def current(self) -> Any:
        """A context manager in which the span is the current one."""
        return self._api.use_span(self._span, record_exception=False, set_status_on_exception=False)

    def end(self, settlements: Sequence[Settlement], error: BaseException | None) -> None:
        """End the span, and start those of the results' way to the store."""
        if error is not None:
            self._span.record_exception(error)
        for settlement in settlements[:1]:
            self._span.set_attribute("penstock.outcome", settlement.what)
            if error is not None and settlement.error_message is not None:
                status = self._api.Status(self._api.StatusCode.ERROR, settlement.error_message[:500])
                self._span.set_status(status)
        self._span.end()
        inside = self._api.set_span_in_context(self._span, _empty())
        for each in settlements:
            if len(_unsettled) < _MOST_UNSETTLED:
                span = self._tracer.start_span("settle", context=inside)
                span.set_attribute("messaging.message.id", each.queue_id)
                _unsettled[each.queue_id, each.claim_number] = span


def running(claims: Sequence[Claim]) -> RunSpan | None:
    """Begin the span of a run; None without a tracer."""
    current = tracer()
    return None if current is None else RunSpan(current, claims)


def settled(results: Sequence[Settlement], statuses: Sequence[Status | None]) -> None:
    """End the spans of results accepted by the store, or refused as too late."""
    if not _unsettled:
        return
    for result, status in zip(results, statuses, strict=True):
        span = _unsettled.pop((result.queue_id, result.claim_number), None)
        if span is not None:
            span.set_attribute("penstock.status", "too late" if status is None else status.value)
            span.end()


def sent(name: str, attributes: Mapping[str, Any]) -> Any:
    """Surround a request to another program with a span; a null context without a tracer."""
    current = tracer()
    if current is None:
        return nullcontext()
    kind = sys.modules[_API].SpanKind.CLIENT
    return current.start_as_current_span(name, kind=kind, attributes=dict(attributes))


def flush() -> None:
    """Send the provider's collected spans, before the process ends."""
    api: Any = sys.modules.get(_API)
    force = getattr(api.get_tracer_provider(), "force_flush", None) if api is not None else None
    if force is not None:
        force(2_000)


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1_000
