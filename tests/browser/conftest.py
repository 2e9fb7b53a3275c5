"""A browser and a server for each module."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.browser.chromium import Tab, browser, find_browser
from tests.http.conftest import server as server

MISSING = "no Chromium: apt-get install chromium, or make browser as root"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Tab]:
    """A browser, which costs no more to start than to keep for a minute while other tests run."""
    program = find_browser()
    if program is None:
        if os.environ.get("CI"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    with browser(program) as tab:
        yield tab


@pytest.fixture
def tab(chromium: Tab) -> Iterator[Tab]:
    """A tab of 1,600 px without errors before, and without any after the test."""
    chromium.resize(1600)
    chromium.errors.clear()
    chromium.requests.clear()
    yield chromium
    chromium.open("about:blank#end")
    assert [] == chromium.errors
