"""Messages above the size limit: refused on the server, and reported by their id."""

from __future__ import annotations

import json

import pytest

from penstock.redis_contract.messages import OversizedMessage
from tests.redis_contract.conftest import NOTHING_LEFT, QUEUE, Town


def test_a_message_of_a_hundred_megabytes_never_leaves_the_server(town: Town):
    town.redis.lpush(QUEUE, b'{"job_id": "' + bytes(100 << 20))

    assert "done" == town.done(town.message(town.put("a.txt", "Water.")))["status"]

    (letter,) = town.letters()
    assert ("ERR_PAYLOAD_TOO_LARGE", (100 << 20) + 12) == (letter["code"], letter["message_bytes"])
    assert letter["message_beginning"].startswith('{"job_id": "??')


def test_a_message_that_is_too_long_has_a_hash_when_its_id_can_be_read(town: Town):
    path = town.put("a.txt", "Water.")
    message = town.message(path)
    inner = {"job_id": "another", "rag_id": "another_rag"}
    town.push({"tags": [], **message, "metadata": {"text": "J\u00fcrgen " * 200_000, **inner}})

    town.gateway().run_round()

    shown = town.hash(message["job_id"])
    assert ("failed", "ERR_PAYLOAD_TOO_LARGE", "a.txt") == tuple(
        shown[name] for name in ("status", "error_code", "filename")
    )
    assert 1 == len(list(town.redis.scan_iter("rag:ingest:job:*[0-9a-f]")))
    assert message["job_id"] == json.loads(path.with_name("a.txt.error.json").read_text())["job_id"]
    (letter,) = town.letters()
    assert (message["rag_id"], QUEUE) == (letter["rag_id"], letter["list"])
    assert NOTHING_LEFT == town.left_over()


HEADS = {
    '{"job_id": "a", "retry_count": 12': {"job_id": "a"},
    ' {"job_id": "a" , "metadata": {"job_id": "b"': {"job_id": "a"},
    '{"metadata": {"job_id": "b"': {},
    '[{"job_id": "b"}, ': {},
    '{"job_id": "a': {},
    '{"job_id" "a", "rag_id": "b"}': {},
    '{"job_id": "\\ud800", "\\ud800": "a", "tags": ["a"], "rag_id": "r", ': {
        "job_id": "\ufffd",
        "rag_id": "r",
    },
    '{"a": ' + "[" * 60_000: {},
    '{"a": ' + "9" * 60_000 + "}": {},
    "": {},
}


@pytest.mark.parametrize("head", HEADS, ids=range(len(HEADS)))
def test_the_fields_of_a_truncated_message_are_those_before_the_cut(head: str):
    assert HEADS[head] == OversizedMessage(2_000_000, QUEUE, head.encode()).fields()


def test_half_a_character_in_a_message_that_is_too_long_stops_nothing(town: Town):
    bad = json.dumps(town.message("/a\ud800", filename="\ud800") | {"metadata": {"text": "x" * (1 << 20)}})
    town.push(bad)

    assert "done" == town.done(town.message(town.put("a.txt", "Water.")))["status"]

    assert 1 == len(town.letters())
