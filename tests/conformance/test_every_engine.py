"""Every engine that a URL can name takes part in the suites."""

from __future__ import annotations

from typing import get_args

from penstock.store_url import Engine
from tests.conformance import conftest, durable_engines
from tests.servers import stores

NAMES = set(get_args(Engine))


def test_every_engine_is_in_the_conformance_suite():
    assert NAMES == set(conftest.ENGINES)


def test_every_engine_but_memory_is_among_the_durable_ones():
    assert NAMES - {"memory"} == set(durable_engines.DURABLE) == set(stores.DURABLE)
