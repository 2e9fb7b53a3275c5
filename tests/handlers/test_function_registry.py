"""Registration of functions and handlers, and checks of their calls."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from penstock import Penstock
from penstock.errors import (
    InvalidName,
    InvalidPayload,
    InvalidRequest,
    UnknownEntity,
    UnknownFunction,
)
from penstock.handlers.context import Context
from penstock.queue.retry import Backoff
from tests.handlers.conftest import Payload, takes_payload, worked_off


@pytest.mark.parametrize(
    ("kind", "options", "reason"),
    [
        (("function", "run"), {}, "function/run already has a handler"),
        (("pamphlet", "ingest"), {}, "pamphlet"),
        (("content", "ingest"), {"batch": 101}, "a batch has 1 to 100 jobs"),
        (("content", "ingest"), {"batch": "many"}, "a batch has 1 to 100 jobs"),
    ],
)
def test_a_handler_that_makes_no_sense_is_refused(
    registering: Penstock, kind: tuple[str, str], options: Any, reason: str
):
    with pytest.raises(InvalidRequest, match=reason):
        registering.handler(*kind, **options)(lambda context: None)


def takes_both(payload: Payload, context: Context) -> str:
    return type(context).__name__


def takes_an_option(payload: Payload, verbose: bool = False) -> str:
    return f"verbose {verbose}"


def takes_an_optional_context(payload: Payload, context: Context | None = None) -> str:
    return type(context).__name__


def takes_anything(*arguments: Any) -> str:
    return f"{len(arguments)} arguments"


class Callable1:
    def __call__(self, payload: Payload, context: Context) -> str:
        return type(context).__name__


@pytest.mark.parametrize(
    ("function", "answer"),
    [
        (takes_payload, "payload"),
        (takes_both, "Context"),
        (takes_an_option, "verbose False"),
        (takes_an_optional_context, "Context"),
        (takes_anything, "1 arguments"),
        (Callable1(), "Context"),
        (partial(takes_an_option, verbose=True), "verbose True"),
        (dict, {}),
    ],
    ids=["payload", "both", "option", "optional context", "anything", "object", "partial", "dict"],
)
def test_the_signature_says_how_a_function_is_called(registering: Penstock, function: Any, answer: Any):
    registering.function("f")(function)
    receipt = registering.call("f")
    worked_off(registering, receipt)

    assert answer == registering.result(receipt.job_id)


@pytest.mark.parametrize(
    "function",
    [lambda: None, lambda a, b, c: None, lambda payload, *, must: None, "text", None],
    ids=["no parameter", "three", "keyword only", "text", "none"],
)
def test_what_cannot_be_called_with_a_payload_is_refused(registering: Penstock, function: Any):
    with pytest.raises(InvalidRequest):
        registering.function("f")(function)
    assert [] == registering.functions.names()


@pytest.mark.parametrize("name", ["", " f", "f\n", "x" * 256, "\0"], ids=repr)
def test_a_name_that_cannot_be_shown_is_refused(registering: Penstock, name: str):
    with pytest.raises(InvalidName):
        registering.function(name)(takes_payload)


def test_a_decorator_with_something_else_than_a_name_says_what_to_write(registering: Penstock):
    with pytest.raises(InvalidRequest) as refusal:
        registering.function(3)  # type: ignore[call-overload]
    assert '@app.function("name")' in refusal.value.remedy


def test_two_functions_cannot_have_one_name(registering: Penstock):
    registering.function("f")(takes_payload)

    with pytest.raises(InvalidRequest, match="already registered"):
        registering.function("f")(takes_both)


@pytest.mark.parametrize(
    "terms",
    [
        {"requires": "to"},
        {"requires": [1]},
        {"requires": 3},
        {"max_retries": -1},
        {"max_retries": True},
        {"max_retries": 1001},
        {"timeout": 0},
        {"timeout": 1.5},
        {"timeout": "60"},
        {"backoff": -1},
        {"backoff": []},
        {"backoff": [1, "2"]},
        {"backoff": "5"},
        {"backoff": float("nan")},
        {"backoff": Backoff(())},
    ],
    ids=str,
)
def test_terms_that_make_no_sense_are_refused(registering: Penstock, terms: dict[str, Any]):
    with pytest.raises(InvalidRequest):
        registering.function("f", **terms)(takes_payload)
    assert [] == registering.functions.names()


def test_an_unknown_function_is_refused_with_those_there_are(registering: Penstock):
    with pytest.raises(UnknownFunction, match="known are none"):
        registering.call("f")
    registering.function("send_mail")(takes_payload)
    with pytest.raises(UnknownFunction, match="did you mean 'send_mail'"):
        registering.call("send_mial")
    for garbage in (None, 7, ["send_mail"], "", "\0\ud800"):
        with pytest.raises(UnknownFunction):
            registering.call(garbage)  # type: ignore[arg-type]
    assert [] == registering.jobs()


# Entities.


def test_any_entity_type_may_be_named_until_one_is_registered(registering: Penstock):
    registering.function("f")(takes_payload)
    registering.call("f", entity=("anything", "a1"))
    registering.entity_type("planner", exists={"p1"}.__contains__)
    registering.entity_type("worker")

    registering.call("f", entity=("planner", "p1"))
    registering.call("f", entity=("worker", "never seen"))
    registering.call("f")
    with pytest.raises(UnknownEntity, match="known are planner, worker"):
        registering.call("f", entity=("anything", "a1"))
    with pytest.raises(UnknownEntity, match="there is no planner 'p2'"):
        registering.call("f", entity=("planner", "p2"))
    assert 4 == len(registering.jobs())


@pytest.mark.parametrize(
    "entity",
    [
        ("worker",),
        ("worker", "w1", "x"),
        "w1",
        ("worker", ""),
        ("", "w1"),
        ("worker", 7),
        {"worker": "w1"},
        7,
    ],
    ids=str,
)
def test_an_entity_that_is_no_pair_of_texts_is_refused(registering: Penstock, entity: Any):
    registering.function("f")(takes_payload)

    with pytest.raises(InvalidRequest, match="entity: expected a type and an id"):
        registering.call("f", entity=entity)


@pytest.mark.parametrize("entity", [("a:b", "w1"), ("x" * 256, "w1"), ("worker", "x" * 256)])
def test_an_entity_with_a_name_that_does_not_fit_is_refused(registering: Penstock, entity: Any):
    registering.function("f")(takes_payload)

    with pytest.raises(InvalidPayload):
        registering.call("f", entity=entity)
