"""The extractor that asks a language model: requests, answers that cannot be true, and failures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.catalog.graph import MAX_NAME, Entity, Extraction, Relation
from penstock.errors import PermanentFailure, ServiceUnavailable
from penstock.pipeline.endpoint import BadAnswer, EndpointOptions, EndpointSilent
from penstock.pipeline.graph import llm
from penstock.pipeline.graph.factory import extractor_for, fingerprints_here, graph_fingerprint
from penstock.pipeline.graph.llm import LlmExtractor, LlmOptions
from penstock.pipeline.graph.protocol import GraphChunk, GraphDocument
from tests.pipeline.chat_server import TOKENS_A_CALL, ChatServer, chat_server, graph_answer
from tests.pipeline.scripted_endpoint import Answer, completion

TEXT = "Ann Marlow of Acme Inc. went to Porto. Ann Marlow liked Porto."


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as running:
        yield running


def extractor(server: ChatServer, *, timeout_s: float = 20.0, model: str = "m") -> LlmExtractor:
    return LlmExtractor(
        LlmOptions(address=EndpointOptions(url=server.url, model=model, key="k", timeout_s=timeout_s))
    )


def extracted(made: LlmExtractor, text: str = TEXT) -> Extraction:
    (found,) = made.extract(GraphDocument("/a.txt", [GraphChunk(text)]), [0])
    return found


def answered(found: object, text: str = TEXT) -> Extraction:
    return llm.extraction(llm.decoded(json.dumps(found)), text)


def named(*names: str) -> dict[str, Any]:
    return {"entities": [{"name": name, "kind": "person"} for name in names], "relations": []}


def test_a_request_has_the_schema_and_the_text_apart_from_the_prompt(server):
    made = extractor(server)
    found = extracted(made)
    assert found.entities == {
        Entity("Ann Marlow", "person"): 2,
        Entity("Acme Inc", "person"): 1,
        Entity("Porto", "person"): 2,
    }
    assert Relation(Entity("Ann Marlow", "person"), "knows", Entity("Acme Inc", "person")) in found.relations
    (request,) = server.requests
    assert server.paths == ["/v1/chat/completions"]
    assert server.keys == ["Bearer k"]
    assert request["response_format"]["json_schema"]["schema"] == llm.SCHEMA
    assert [message["role"] for message in request["messages"]] == ["system", "user"]
    assert request["messages"][1]["content"] == TEXT
    assert (made.take_tokens(), made.take_tokens()) == (TOKENS_A_CALL, 0)


def test_a_text_without_words_is_not_sent(server):
    assert extracted(extractor(server), " \n ").entities == {}
    assert server.requests == []


def test_the_fingerprint_has_the_model_and_the_version_of_the_prompt(server, monkeypatch):
    one, other = extractor(server), extractor(server, model="other")
    assert one.fingerprint != other.fingerprint
    assert graph_fingerprint("a.txt", one) != graph_fingerprint("a.txt")
    assert graph_fingerprint("a.md", one) != graph_fingerprint("a.md", other)
    assert graph_fingerprint("a.py", one) == graph_fingerprint("a.py")
    names = ("a.txt", "a.md", "a.py")
    assert {graph_fingerprint(name, one) for name in names} == fingerprints_here(one)
    monkeypatch.setattr(LlmExtractor, "version", llm.PROMPT_VERSION + 1)
    assert extractor(server).fingerprint != one.fingerprint


def test_markdown_keeps_its_sections_and_code_its_rules(server):
    made = extractor(server)
    markdown = extractor_for("a.md", made)
    assert markdown is not None
    document = GraphDocument("/a.md", [GraphChunk("# Guide\n\nAnn Marlow met [Bob](b.md).")])
    (found,) = markdown.extract(document, [0])
    assert {(entity.name, entity.kind) for entity in found.entities} >= {
        ("/a.md", "document"),
        ("/a.md#Guide", "section"),
        ("/b.md", "document"),
        ("Ann Marlow", "person"),
    }
    assert extractor_for("a.py", made) is extractor_for("a.py")
    assert extractor_for("a.csv", made) is None


@pytest.mark.parametrize(
    "found",
    [
        named("Bob Nowhere"),
        named("Ann Mar"),
        named("x" * (MAX_NAME + 1)),
        named("", "   ", "...", "\x00"),
    ],
    ids=["elsewhere", "part of a word", "too long", "empty"],
)
def test_names_that_do_not_stand_in_the_text_are_left_out(found):
    assert answered(found, TEXT + "x" * (MAX_NAME + 1)).entities == {}


def test_names_are_written_in_one_line_without_control_characters():
    found = answered(named("Ann\x00 \nMarlow", "\x1b[31mPorto"), TEXT)
    assert {entity.name for entity in found.entities} == {"Ann Marlow"}


def test_kinds_are_from_the_list_whatever_the_text_told_the_model():
    found = answered(
        {
            "entities": [
                {"name": "Ann Marlow", "kind": "module"},
                {"name": "ann marlow", "kind": "person"},
                {"name": "Porto", "kind": "PLACE "},
            ]
        }
    )
    assert found.entities == {Entity("Ann Marlow", "name"): 2, Entity("Porto", "place"): 2}


def test_relations_join_two_known_entities_once():
    relation = {"source": "ann marlow", "kind": "Went to!", "target": "Porto"}
    found = answered(
        named("Ann Marlow", "Porto")
        | {
            "relations": [
                relation,
                relation,
                {"source": "Ann Marlow", "kind": "knows", "target": "Bob"},
                {"source": "Porto", "kind": "is", "target": "porto"},
                {"source": "Porto", "kind": "\x00", "target": "Ann Marlow"},
                {"source": "Porto", "kind": "k" * 10_000, "target": "Ann Marlow"},
            ]
        }
    )
    kinds = [relation.kind for relation in found.relations]
    assert kinds == ["went_to", "related", "k" * llm.MAX_RELATION_NAME]


def test_an_answer_of_hostile_size_is_cut():
    names = [f"N{number}" for number in range(2_000)]
    relations = [{"source": names[0], "kind": f"k{n}", "target": names[1]} for n in range(5_000)]
    found = answered(named(*names) | {"relations": relations}, " ".join(names))
    assert (len(found.entities), len(found.relations)) == (
        llm.MAX_ENTITIES,
        llm.MAX_RELATIONS,
    )


def test_words_of_scripts_without_spaces_are_found_inside():
    assert answered(named("東京"), "彼は東京に住んでいる").entities == {Entity("東京", "person"): 1}


@pytest.mark.parametrize(
    "content",
    ['{"entities": [', "[]", "no entities here", "[" * 100_000, '{"entities": [{"name": 5}]}', ""],
    ids=["cut", "list", "words", "deep", "number", "empty"],
)
def test_malformed_json_may_be_tried_again(server, content):
    server.always = Answer(body=completion(content, tokens=3))
    made = extractor(server)
    with pytest.raises(BadAnswer, match="the answer of the graph endpoint is malformed"):
        extracted(made)
    assert made.take_tokens() == 3


@pytest.mark.parametrize("body", [b"", b"{}", b'{"choices": []}', b"\xff", b"[" * 100_000])
def test_an_answer_that_is_no_completion_may_be_tried_again(server, body):
    server.always = Answer(body=body)
    with pytest.raises(BadAnswer, match="malformed"):
        extracted(extractor(server))


def test_json_in_a_fence_is_read(server):
    server.always = Answer(body=completion(f"```json\n{json.dumps(named('Porto'))}\n```"))
    assert set(extracted(extractor(server)).entities) == {Entity("Porto", "person")}


def test_an_answer_cut_off_or_refused_fails_for_good(server):
    server.script = [
        Answer(body=graph_answer(named("Porto"), finish_reason="length")),
        Answer(body=completion(None, finish_reason="content_filter")),
        Answer(400),
    ]
    made = extractor(server)
    for message in (
        "cut off at 4,096 tokens, also",
        "refused this text",
        "answered 400 Bad Request",
    ):
        with pytest.raises(PermanentFailure, match=message):
            extracted(made)


LONG = "Anna lives in Porto. " * 12


@pytest.mark.parametrize("cut", [graph_answer({}, finish_reason="length"), completion('{"entities": [')])
def test_a_text_whose_answer_is_cut_off_is_asked_for_in_halves(server, cut):
    server.script = [Answer(body=cut), Answer(body=graph_answer(named("Anna")))]
    server.always = Answer(body=graph_answer(named("Porto")))
    made = extractor(server)
    found = extracted(made, LONG)
    # Counted in the whole text, whatever part of it the model named them for.
    assert found.entities == {Entity("Anna", "person"): 12, Entity("Porto", "person"): 12}
    first, *parts = server.texts
    assert first == LONG
    assert [len(part) for part in parts] == [126, 126]


def test_a_text_is_halved_at_most_twice(server):
    server.always = Answer(body=graph_answer({}, finish_reason="length"))
    with pytest.raises(PermanentFailure, match="also for parts"):
        extracted(extractor(server), 8 * LONG)
    assert len(server.requests) == 3


def test_a_broken_connection_and_500_may_be_tried_again(server):
    server.script = [Answer(left_out=10), Answer(500)]
    made = extractor(server)
    for message in ("the answer ended too early", "answered 500"):
        with pytest.raises(BadAnswer, match=message):
            extracted(made)


@pytest.mark.parametrize("part", ["body", "head"])
def test_a_slow_stream_ends_at_the_timeout(server, part):
    server.always = Answer(drips=part)
    made = extractor(server, timeout_s=0.3)
    with pytest.raises(EndpointSilent, match=r"did not answer within 0.3 s"):
        extracted(made)
    assert not made.answers()
    server.always = Answer(500)
    assert made.answers()


def test_429_has_the_wait_of_the_header(server):
    server.always = Answer(429, headers=(("Retry-After", "40"),))
    with pytest.raises(ServiceUnavailable) as caught:
        extracted(extractor(server))
    assert caught.value.retry_after is not None
    assert caught.value.retry_after.total_seconds() == 40
