"""Metrics in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from penstock import clock
from penstock.job import JobQuery, Status
from penstock.named_tuple import NamedTuple
from penstock.service.access import Principal
from penstock.service.documents import Documents
from penstock.service.explanations import living_workers
from penstock.service.jobs import Jobs
from penstock.service.server_status import JOBS_LANE, StatusReader
from penstock.service.throughput import LANES, Throughput
from penstock.service.worker_records import breaker_records
from penstock.store_outage import STORE

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "penstock_"
MOST_TENANTS = 200
TOKENS = "Tokens sent to endpoints this month."


class Metric(NamedTuple):
    """One metric: its samples are pairs of labels and a value."""

    name: str
    kind: Literal["gauge", "counter", "summary"]
    help: str
    samples: list[tuple[Mapping[str, str], float]]


class Metrics:
    """Metrics of the queue, its lanes and its workers."""

    def __init__(
        self, jobs: Jobs, documents: Documents, status: StatusReader, throughput: Throughput
    ) -> None:
        self._jobs = jobs
        self._documents = documents
        self._status = status
        self._throughput = throughput

    def text(self, *, by_tenant: bool) -> str:
        """All metrics; ``by_tenant`` adds those that name tenants."""
        metrics = [*self._queue_metrics(), *self._work_metrics()]
        if by_tenant:
            metrics.append(self._tenant_metric())
        return "".join(_written(metric) for metric in metrics)

    def own_text(self, principal: Principal) -> str:
        """Metrics of the tenants of a key: their jobs and tokens. Rates and workers are of all tenants."""
        tenants = principal.tenants
        stats = self._status.stats(principal)
        jobs: list[tuple[Mapping[str, str], float]] = [
            ({"status": status, "item_type": item_type}, number)
            for item_type, counts in stats.by_item_type.items()
            for status, number in counts.items()
        ]
        metrics = [
            Metric("queue_jobs", "gauge", "Jobs by status and item type.", jobs),
            Metric(
                "lane_waiting",
                "gauge",
                "Jobs or tasks that wait.",
                [({"lane": one.lane}, one.waiting) for one in stats.lanes],
            ),
            Metric("tokens_total", "counter", TOKENS, [*self._tokens(tenants)]),
            self._tenant_metric(tenants),
        ]
        return "".join(_written(metric) for metric in metrics)

    def _queue_metrics(self) -> Iterator[Metric]:
        stats = self._jobs.stats()
        samples: list[tuple[Mapping[str, str], float]] = [
            ({"status": self._jobs.word(Status(status)), "item_type": item_type}, number)
            for item_type, counts in stats.by_item_type.items()
            for status, number in counts.items()
        ]
        yield Metric("queue_jobs", "gauge", "Jobs by status and item type.", samples)
        yield Metric(
            "queue_oldest_seconds",
            "gauge",
            "Age of the oldest pending job.",
            [({}, stats.oldest_pending_age_s or 0.0)],
        )
        lanes = self._status.lanes((None,))
        waiting: list[tuple[Mapping[str, str], float]] = [({"lane": one.lane}, one.waiting) for one in lanes]
        yield Metric("lane_waiting", "gauge", "Jobs or tasks that wait.", waiting)
        left = [({"lane": one.lane}, one.time_left_s) for one in lanes]
        known = [(labels, seconds) for labels, seconds in left if seconds is not None]
        yield Metric("time_left_seconds", "gauge", "Estimated time until a lane is empty.", [*known])
        workers = living_workers(self._jobs.queue, self._jobs.settings.heartbeat_s)
        yield Metric("workers", "gauge", "Workers that reported lately.", [({}, len(workers))])
        breakers: list[tuple[Mapping[str, str], float]] = [
            ({"name": one.name}, float(one.state == "open" or one.name == STORE))
            for one in breaker_records(workers)
        ]
        yield Metric("breaker_open", "gauge", "1 while a service is not called after failures.", breakers)

    def _work_metrics(self) -> Iterator[Metric]:
        totals = self._throughput.totals()

        def total(name: str) -> float:
            return totals.get(name, 0)

        yield Metric("claims_total", "counter", "Jobs claimed by workers.", [({}, total("claims"))])
        yield Metric(
            "settled_total",
            "counter",
            "Jobs ended by workers.",
            [({"outcome": outcome}, total(f"{JOBS_LANE}_{outcome}")) for outcome in ("done", "failed")],
        )
        yield Metric("retries_total", "counter", "Attempts to be repeated.", [({}, total("retries"))])
        yield Metric("leases_lost_total", "counter", "Results that came too late.", [({}, total("lost"))])
        yield Metric(
            "lane_tasks_total",
            "counter",
            "Jobs and tasks ended, by lane.",
            [
                ({"lane": lane, "outcome": outcome}, total(f"{lane}_{outcome}"))
                for lane in LANES
                for outcome in ("done", "failed")
            ],
        )
        yield _summary("claim_seconds", "Duration of claims.", {"": (total("claim_us"), total("claims"))})
        runs = {
            lane: (total(f"{lane}_us"), total(f"{lane}_done") + total(f"{lane}_failed")) for lane in LANES
        }
        yield _summary("run_seconds", "Time spent on jobs and tasks.", runs)
        yield Metric("tokens_total", "counter", TOKENS, [*self._tokens((None,))])

    def _tokens(self, tenants: Sequence[str | None]) -> Iterator[tuple[Mapping[str, str], float]]:
        month = clock.now().strftime("%Y-%m")
        with self._documents.catalog.snapshot() as snapshot:
            uses = [use for tenant in tenants for use in snapshot.token_uses(tenant, month)]
        by_service: dict[str, int] = {}
        for use in uses:
            by_service[use.service] = by_service.get(use.service, 0) + use.tokens
        return (({"endpoint": name}, number) for name, number in sorted(by_service.items()))

    def _tenant_metric(self, tenants: Sequence[str | None] = (None,)) -> Metric:
        live = frozenset({Status.PENDING, Status.IN_PROGRESS, Status.FAILED})
        counts: dict[tuple[str, Status], int] = {}
        for tenant in tenants:
            query = JobQuery(tenant_id=tenant, statuses=live)
            counts |= self._jobs.queue.count(query, by=("tenant_id", "status"))
        most = sorted(counts.items(), key=lambda one: -one[1])[:MOST_TENANTS]
        samples: list[tuple[Mapping[str, str], float]] = [
            ({"tenant": tenant, "status": self._jobs.word(status)}, number)
            for (tenant, status), number in most
        ]
        return Metric("tenant_jobs", "gauge", "Open and failed jobs by tenant, of the largest ones.", samples)


def _summary(name: str, text: str, sums: Mapping[str, tuple[float, float]]) -> Metric:
    """Sum and count of durations, given in microseconds, by kind."""
    samples: list[tuple[Mapping[str, str], float]] = []
    for kind, (microseconds, number) in sums.items():
        labels = {"kind": kind} if kind else {}
        samples += [({**labels, "__suffix__": "_sum"}, microseconds / 1_000_000)]
        samples += [({**labels, "__suffix__": "_count"}, number)]
    return Metric(name, "summary", text, samples)


def _written(metric: Metric) -> str:
    name = PREFIX + metric.name
    lines = [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}"]
    lines += (_sample(name, labels, value) for labels, value in metric.samples)
    return "\n".join(lines) + "\n"


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    shown = {label: text for label, text in labels.items() if label != "__suffix__"}
    listed = ",".join(f'{label}="{_escaped(text)}"' for label, text in shown.items())
    number = repr(float(value)) if value != int(value) else str(int(value))
    return f"{name}{labels.get('__suffix__', '')}{f'{{{listed}}}' if listed else ''} {number}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
