"""Random requests of the OpenAPI document's shape, and of others: every answer is one the document names."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from tests.http.live_server import LiveServer

schemathesis = pytest.importorskip("schemathesis")
checks = pytest.importorskip("schemathesis.specs.openapi.checks")

SETTINGS = {"max_queue": "100000", "body_limit_mb": "1"}
# A path has to exist below the root, a time has to be one: a schema cannot say that.
EXCLUDED = [checks.positive_data_acceptance]


def operations(server: LiveServer) -> list[Any]:
    document = server.ask("GET", "/openapi.json").body
    schema = schemathesis.openapi.from_dict(document)
    found = [found.ok() for found in schema.get_all_operations()]
    # A stream has no end; `test_events` has its requests.
    return [operation for operation in found if operation.path != "/events"]


@pytest.mark.long
def test_no_random_request_gets_an_answer_that_is_not_in_the_document(server: LiveServer):
    modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
    sent = 0
    for operation in operations(server):
        for mode in modes:

            @given(case=operation.as_strategy(generation_mode=mode))
            @settings(
                max_examples=8,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            def check(case: Any) -> None:
                nonlocal sent
                sent += 1
                response = case.call(base_url=server.url)
                case.validate_response(response, excluded_checks=EXCLUDED)
                assert response.status_code < 500

            # A route without parameters has no wrong request.
            with suppress(Unsatisfiable):
                check()
    assert sent > 100
