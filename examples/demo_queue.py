"""Tour of the queue on a real SQLite file with real processes. Every printed statement is asserted.

Run it with ``make tour``. The handlers are trivial: the tour shows claims, retries, locks and recovery.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from penstock import Penstock, clock
from penstock.queue import payloads, retry, transitions
from penstock.queue.job import Claim, ClaimRequest, NewJob, Status

WORKER = ClaimRequest(worker_id="worker-1", limit=10)


def main() -> None:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as place:
        database = Path(place) / "queue.db"
        with Penstock(f"sqlite:///{database}") as app:
            show_submitting(app)
            show_claiming(app)
            show_children(app)
            show_retrying(app)
            show_locking(app)
            show_following_up(app)
            show_losing_a_worker(app, database)
            show_the_end(app)
    print(f"\nEvery step above was asserted, in {time.monotonic() - started:.1f} seconds.")


def show_submitting(app: Penstock) -> None:
    title("1. Submit jobs")
    for name in ("mills.pdf", "rivers.pdf"):
        receipt = app.submit(item_type="file", op="ingest", payload={"file_path": f"/srv/papers/{name}"})
        assert receipt.status is Status.PENDING
        say(f"{name}: {receipt.message}, {receipt.queue_position} ahead")
    note = app.submit(item_type="content", op="ingest", payload={"content": "The mill runs at dawn."})
    assert note.queue_position == 0
    say("a note: it has a higher priority, so it is next")

    again = app.submit(item_type="file", op="ingest", payload={"file_path": "/srv/papers/mills.pdf"})
    assert again.dedupe_hit
    assert len(app.jobs()) == 3
    say(f"mills.pdf again: {again.message}")


def show_claiming(app: Penstock) -> None:
    title("2. A worker claims and settles")
    claims = app.queue.claim(WORKER)
    assert [claim.item_type for claim in claims] == ["content", "file", "file"]
    for claim in claims:
        say(f"claimed {about(claim)}, priority {claim.priority}, claim number {claim.claim_number}")
    answers = app.queue.settle([transitions.done(claim) for claim in claims])
    assert answers == [Status.DONE] * 3
    say("settled all three as done, in one transaction")


def show_children(app: Penstock) -> None:
    title("3. A folder becomes one job per file")
    folder = app.submit(item_type="folder", op="ingest", payload={"folder_path": "/srv/notes"})
    (claim,) = app.queue.claim(WORKER)
    children = tuple(child(claim, f"/srv/notes/{number}.md") for number in range(1, 4))
    app.queue.settle([transitions.waits(claim, children=children)])
    say(f"the folder {app.details(folder.job_id).reason}")
    claims = app.queue.claim(WORKER)
    app.queue.settle([transitions.done(each) for each in claims])
    assert len(claims) == 3
    assert app.job(folder.job_id).status is Status.DONE
    say("the last file is done, so the folder is done")


def show_retrying(app: Penstock) -> None:
    title("4. Failed jobs are retried, or keep their error")
    flaky = app.submit(item_type="file", op="ingest", payload={"file_path": "/srv/papers/far.pdf"})
    (claim,) = app.queue.claim(WORKER)
    failure = ConnectionError("no route to host")
    app.queue.settle([transitions.failed_attempt(claim, retry.classify(failure), str(failure))])
    details = app.details(flaky.job_id)
    assert details.job.retry_count == 1
    assert details.job.held == "time"
    say(f"no route to host: {details.reason}")
    assert app.queue.claim(WORKER) == []

    again = app.submit(item_type="file", op="ingest", payload={"file_path": "/srv/papers/far.pdf"})
    assert again.dedupe_hit
    (claim,) = app.queue.claim(WORKER)
    say("the same request again: it ends the back-off, and the job is claimed at once")
    app.queue.settle([transitions.failed(claim, "ERR_PARSE", "the page is torn")])
    assert app.job(flaky.job_id).status is Status.FAILED
    say("the page is torn: a permanent error, so the job has failed and stays in the list")

    app.retry(flaky.job_id)
    app.queue.settle([transitions.done(each) for each in app.queue.claim(WORKER)])
    assert app.job(flaky.job_id).status is Status.DONE
    say("the page is repaired: `penstock retry` puts the job back, and it is done")
    say(f"history: {', '.join(entry.what for entry in app.history(flaky.job_id))}")


def show_locking(app: Penstock) -> None:
    title("5. Jobs of one entity never overlap")
    account = {"function_name": "bill", "entity_type": "account", "entity_id": "7"}
    first, second = (app.submit(item_type="function", op="run", payload=account) for _ in range(2))
    (claim,) = app.queue.claim(WORKER)
    details = app.details(second.job_id)
    assert claim.queue_id == first.job_id
    assert details.job.held == "lock"
    say(f"one of two is claimed; the other is {details.reason}")
    app.queue.settle([transitions.done(claim)])
    (claim,) = app.queue.claim(WORKER)
    assert claim.queue_id == second.job_id
    app.queue.settle([transitions.done(claim)])
    say("the first has ended, so the second is claimed")


def show_following_up(app: Penstock) -> None:
    title("6. A change during a run is not lost")
    path = {"file_path": "/srv/papers/draft.md"}
    first = app.submit(item_type="file", op="ingest", payload=path)
    (claim,) = app.queue.claim(WORKER)
    second = app.submit(item_type="file", op="update", payload=path)
    assert (second.job_id, second.run) == (first.job_id, 2)
    say(f"draft.md changed during the run: {second.message}; run {second.run} will see the change")
    app.queue.settle([transitions.done(claim)])
    (claim,) = app.queue.claim(WORKER)
    assert (claim.queue_id, claim.run, claim.op) == (first.job_id, 2, "update")
    app.queue.settle([transitions.done(claim)])
    assert app.wait(second.job_id, run=second.run, timeout=0).status is Status.DONE
    say("run 1 ended, and run 2 started automatically")


CHILD = """
import sys, time
from datetime import timedelta
from penstock import Penstock
from penstock.queue.job import ClaimRequest

app = Penstock(sys.argv[1])
(claim,) = app.queue.claim(ClaimRequest("worker-2", lease=timedelta(seconds=0.5)))
print(claim.queue_id, flush=True)
time.sleep(60)
"""


def show_losing_a_worker(app: Penstock, database: Path) -> None:
    title("7. A worker is killed during a job")
    receipt = app.submit(item_type="file", op="ingest", payload={"file_path": "/srv/papers/big.pdf"})
    command = [sys.executable, "-c", CHILD, f"sqlite:///{database}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == receipt.job_id
        lost = app.job(receipt.job_id)
        assert lost.status is Status.IN_PROGRESS
        say(f"worker-2, another process (pid {process.pid}), holds big.pdf under a lease of 0.5 seconds")
        process.send_signal(signal.SIGKILL)
    say("kill -9: worker-2 can no longer report")

    deadline = time.monotonic() + 10
    while not (expired := app.queue.expired()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    app.queue.settle([transitions.lease_lost(job) for job in expired])
    say("the lease ran out, so any worker may put the job back; this spends one retry")
    (claim,) = app.queue.claim(WORKER)
    assert (claim.queue_id, claim.claim_number, claim.retry_count) == (receipt.job_id, 2, 1)
    say(f"worker-1 holds the job now, with claim number {claim.claim_number}")
    assert app.queue.settle([transitions.done(lost)]) == [None]
    say("a late result of worker-2, with claim number 1, is refused")
    assert app.queue.settle([transitions.done(claim)]) == [Status.DONE]
    say("the result of worker-1 is accepted: done")


def show_the_end(app: Penstock) -> None:
    title("8. No job lost, no job done twice")
    counts = app.stats().by_status
    assert counts == {"pending": 0, "in_progress": 0, "done": 12, "failed": 0, "cancelled": 0}
    say(f"{counts['done']} jobs done, none pending, none failed")


def child(parent: Claim, path: str) -> NewJob:
    """Build the child job for one file of a folder."""
    payload = payloads.parse_payload("file", "ingest", {"file_path": path})
    place = {"tenant_id": parent.tenant_id, "branch": parent.branch, "collection": parent.collection}
    return NewJob(
        queue_id=clock.new_id(),
        item_type="file",
        op="ingest",
        tenant_id=parent.tenant_id,
        collection=parent.collection,
        branch=parent.branch,
        idempotency_key=payloads.idempotency_key("file", parent.collection, payload),
        lock_key=payloads.lock_key(payload, **place),
        payload_json=f'{{"file_path":"{path}"}}',
        priority=payloads.child_priority(parent.priority),
    )


def about(claim: Claim) -> str:
    return str(claim.payload.get("file_path") or claim.payload.get("content"))


def title(text: str) -> None:
    print(f"\n{text}")


def say(text: str) -> None:
    print(f"   {text}")


if __name__ == "__main__":
    main()
