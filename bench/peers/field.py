"""Who is measured, on which stores, and how each is set up. Nothing here imports a contender."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata

import msgspec

from bench.peers.places import kind

OURS = "Penstock"
FLOOR = "floor"
MISSING = "not installed"


class Contender(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    module: str
    """Below ``bench.peers.sides``."""
    stores: tuple[str, ...]
    packages: tuple[str, ...] = ()
    """The distributions it needs, the one whose version counts first."""
    workers: str
    """How its workers are set up."""
    bulk: str
    """What its bulk call is."""
    again: str
    """What happens by default to the job of a worker that was killed."""
    most_workers: int = 2
    recovers: bool = True
    """Whether it is worth waiting for a killed worker's job."""


FIELD = (
    Contender(
        name=OURS,
        module="ours",
        stores=("postgres", "redis", "sqlite"),
        workers="`penstock worker --processes n`, defaults",
        bulk="`call_many`",
        again="given back as soon as its process is known to be gone, else when its lease ends",
    ),
    Contender(
        name=FLOOR,
        module="floor",
        stores=("postgres", "redis", "sqlite"),
        workers="the hand-written loop of [benchmarks](benchmarks.md), 100 a batch, payloads not decoded",
        bulk="one transaction or script",
        again="a loop without recovery",
        recovers=False,
    ),
    Contender(
        name="Procrastinate",
        module="with_procrastinate",
        stores=("postgres",),
        packages=("procrastinate",),
        workers="async task, `--concurrency 10`, LISTEN/NOTIFY (default)",
        bulk="`batch_defer`",
        again="never: stalled jobs are found and retried by a periodic task its user writes",
        recovers=False,
    ),
    Contender(
        name="PgQueuer",
        module="with_pgqueuer",
        stores=("postgres",),
        packages=("pgqueuer", "asyncpg"),
        workers="`PgQueuer.run(batch_size=100)`, asyncpg, LISTEN/NOTIFY (default)",
        bulk="`enqueue` of lists",
        again="taken again after 30 s without a heartbeat",
    ),
    Contender(
        name="SAQ",
        module="with_saq",
        stores=("postgres", "redis"),
        packages=("saq",),
        workers="concurrency 100",
        bulk="none: 100 calls gathered",
        again="swept every 60 s once older than its timeout (10 s); with `retries` at its default of 1 it is "
        "aborted, not run again",
    ),
    Contender(
        name="DBOS",
        module="with_dbos",
        stores=("postgres",),
        packages=("dbos",),
        workers="workflow without steps, `worker_concurrency` 500, polling every 0.05 s (default 1 s)",
        bulk="`enqueue_in_transaction`, 1,000 a transaction",
        again="when an executor with the same id starts again",
    ),
    Contender(
        name="huey",
        module="with_huey",
        stores=("sqlite",),
        packages=("huey",),
        workers="`huey_consumer -k process`, polling every 0.01 s (default 0.1 s, growing to 10 s), WAL, "
        "synchronous FULL, results kept",
        bulk="none: one by one",
        again="never: taking a task deletes it",
        recovers=False,
    ),
    Contender(
        name="litequeue",
        module="with_litequeue",
        stores=("sqlite",),
        packages=("litequeue",),
        workers="no workers: a loop of `pop` and `done` that looks every 10 ms; synchronous NORMAL "
        "(default): a power cut may take the last commits",
        bulk="`put` in a transaction",
        again="never: its user lists what is locked and retries it",
        recovers=False,
    ),
    Contender(
        name="persist-queue",
        module="with_persistqueue",
        stores=("sqlite",),
        packages=("persist-queue",),
        workers="no workers: a loop of `get` and `ack` on `SQLiteAckQueue` that looks every 10 ms; two "
        "processes may take the same job, so only one is measured",
        bulk="none: one by one",
        again="when the queue is opened again",
        most_workers=1,
    ),
    Contender(
        name="dramatiq",
        module="with_dramatiq",
        stores=("redis",),
        packages=("dramatiq",),
        workers="8 threads a process (default), no results",
        bulk="none: one by one",
        again="given back once the worker's heartbeat is 60 s old and another worker tidies up",
    ),
    Contender(
        name="taskiq",
        module="with_taskiq",
        stores=("redis",),
        packages=("taskiq", "taskiq-redis"),
        workers="`RedisStreamBroker` (acknowledges), 100 tasks at once (default), results kept",
        bulk="none: 100 calls gathered",
        again="after 10 minutes idle (`idle_timeout`)",
    ),
    Contender(
        name="Celery",
        module="with_celery",
        stores=("redis",),
        packages=("celery",),
        workers="prefork, prefetch 4 (default), without gossip and mingle, results kept",
        bulk="none: one by one",
        again="never: acknowledged before it runs; with `acks_late` after 1 hour (`visibility_timeout`)",
        recovers=False,
    ),
    Contender(
        name="RQ",
        module="with_rq",
        stores=("redis",),
        packages=("rq",),
        workers="`SimpleWorker`: no fork for each job, results kept",
        bulk="`enqueue_many`",
        again="marked as failed when its registry is tidied up; not retried unless asked to",
    ),
    Contender(
        name="arq",
        module="with_arq",
        stores=("redis",),
        packages=("arq",),
        workers="`max_jobs` 100, `poll_delay` 0.01 s (default 0.5 s), results kept",
        bulk="none: 100 calls gathered",
        again="after `job_timeout` (300 s) and 10 s more",
    ),
)


def on(store: str, names: Iterable[str] = ()) -> list[Contender]:
    wanted = set(names)
    return [each for each in FIELD if kind(store) in each.stores and (not wanted or each.name in wanted)]


def version(contender: Contender) -> str | None:
    """None: not installed."""
    try:
        found = [metadata.version(package) for package in contender.packages]
    except metadata.PackageNotFoundError:
        return None
    return found[0] if found else metadata.version("penstock")
