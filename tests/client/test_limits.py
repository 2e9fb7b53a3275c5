"""Limits of a server: by the client, and by commands through the server."""

from __future__ import annotations

import pytest

from penstock import errors
from tests.client.conftest import Indexed, MakeClient
from tests.client.test_command_line import command


def test_limits_have_the_methods_of_the_library(connect: MakeClient, indexed: Indexed):
    limits, local = connect(indexed.server.url).limits, indexed.app.limits
    made = limits.set("api", concurrent=2, rate="60/min")
    try:
        assert [made] == limits.list() == local.list()
        assert made == limits.show("api")
        with pytest.raises(errors.InvalidLimit):
            limits.set("api", rate="often")
    finally:
        limits.remove("api")
    with pytest.raises(errors.LimitNotFound):
        limits.remove("api")


def test_a_limit_is_set_through_a_server(indexed: Indexed):
    server = ("--server", indexed.server.url)
    made = command(indexed, *server, "limit", "set", "api", "--rate", "5/s", code=0)
    try:
        assert "Limit api: 5/s started" in made.output
        shown = command(indexed, *server, "limit", "show", "api", code=0).output
        assert shown == command(indexed, "--no-server", "limit", "show", "api", code=0).output
    finally:
        command(indexed, *server, "limit", "remove", "api", code=0)
    assert "There are no limits" in command(indexed, "--no-server", "limit", "list").output
