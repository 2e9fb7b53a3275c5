"""Text unfit for a database: refused in an add, not found in a query."""

import pytest

from penstock.errors import InvalidText
from penstock.queue import transitions
from penstock.queue.job import JobQuery, Status
from tests.conformance.conftest import T0, new, put, row, running

UNSTORABLE = {"NUL": "a\0b", "a lone surrogate": "a\ud800b"}
FIELDS = (
    "queue_id tenant_id collection branch idempotency_key payload_json metadata lock_key submitted_by".split()
)
texts = pytest.mark.parametrize("text", UNSTORABLE.values(), ids=UNSTORABLE)


@texts
@pytest.mark.parametrize("field", FIELDS)
def test_a_job_with_such_a_text_is_refused_with_its_batch(queue, field, text):
    with pytest.raises(InvalidText):
        queue.add(
            [new("fine"), new(**({"key": text} if field == "idempotency_key" else {field: text}))], now=T0
        )
    assert {} == queue.count(JobQuery())


@texts
def test_a_child_with_such_a_text_is_refused_with_its_settle(queue, text):
    parent = running(queue, new("parent", item_type="folder"))
    with pytest.raises(InvalidText):
        queue.settle([transitions.waits(parent, children=(new("c"), new("d", metadata=text)))], now=T0)
    assert {(): 1} == queue.count(JobQuery())
    assert parent.claim_number == row(queue, parent.queue_id).claim_number


@texts
def test_nothing_has_such_an_id_or_name(queue, text):
    (queue_id,) = put(queue, new())
    assert queue.get(text) is None
    assert queue.position(text) is None
    assert [] == queue.find(JobQuery(tenant_id=text))
    assert [] == queue.find(JobQuery(prefix=text))
    assert {} == queue.count(JobQuery(lock_key=text))
    assert [True, False] == [answer.refused for answer in queue.cancel([text, queue_id], now=T0)]
    assert [True, False] == [answer.refused for answer in queue.requeue([text, queue_id], now=T0)]
    assert Status.PENDING is row(queue, queue_id).status


QUOTES = [
    '"',
    "'",
    "\\",
    "{",
    "}",
    ",",
    "NULL",
    '\\"',
    "%s",
    "%(now)s",
    "?",
    "\n\t\r",
    "\u2028é☃\U0001f600",
    " ",
]


@pytest.mark.parametrize("text", QUOTES)
def test_any_other_text_comes_back_as_it_was(queue, text):
    key = f"k{text}k"
    (queue_id,) = put(queue, new(key, tenant_id=text, metadata=text, payload_json=text, lock_key=text))
    job = row(queue, queue_id)
    assert (key, text, text, text, text) == (
        job.idempotency_key,
        job.tenant_id,
        job.metadata,
        job.payload_json,
        job.lock_key,
    )
    assert [queue_id] == [found.queue_id for found in queue.find(JobQuery(tenant_id=text, lock_key=text))]
    assert [queue_id] == put(queue, new(key, tenant_id=text))
