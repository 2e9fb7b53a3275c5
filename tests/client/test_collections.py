"""Collections of a server: by the client, and by commands through the server."""

from __future__ import annotations

import pytest

from penstock import errors
from tests.client.conftest import Indexed, MakeClient
from tests.client.test_command_line import command


def test_collections_have_the_methods_of_the_library(connect: MakeClient, indexed: Indexed):
    client = connect(indexed.server.url)
    client.wait(client.note("The gate of a collection.", collection="gates").job_id)
    collections, local = client.collections, indexed.app.collections

    assert collections.list() == local.list()
    assert collections.show("gates") == local.show("gates")
    assert 1 == collections.show("gates").documents
    job = client.wait(collections.clear("gates").job_id)
    assert {"outcome": "removed", "removed": 1} == job.result
    with pytest.raises(errors.CollectionNotFound):
        collections.show("gates")


def test_a_collection_is_cleared_through_a_server(connect: MakeClient, indexed: Indexed):
    client = connect(indexed.server.url)
    client.wait(client.note("The gate of a collection.", collection="halls").job_id)
    server = ("--server", indexed.server.url)
    assert "halls" in command(indexed, *server, "collection", "list", code=0).output
    shown = command(indexed, *server, "collection", "show", "halls", code=0).output
    assert shown == command(indexed, "--no-server", "collection", "show", "halls", code=0).output
    refused = command(indexed, *server, "collection", "clear", "halls", code=1)
    assert "confirmation is required" in refused.output + refused.stderr
    queued = command(indexed, *server, "collection", "clear", "halls", "--yes", code=0).output
    client.wait(queued.split()[-1])
    assert "halls" not in command(indexed, *server, "collection", "list", code=0).output
