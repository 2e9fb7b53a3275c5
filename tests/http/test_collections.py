"""Collections over HTTP: listed, shown and cleared, by keys of their tenants."""

from __future__ import annotations

from urllib.parse import quote

from tests.http.live_server import LiveServer

SERVE = ("--processes", "1")


def test_a_collection_is_listed_shown_and_cleared(server: LiveServer):
    admin = server.make_key("collections-admin", "admin")
    body = {"content": "The gate of the collection.", "tenant_id": "acme", "collection": "gates/old"}
    made = server.ask("POST", "/content", body, key=admin).body
    server.ended(made["job_id"], key=admin)

    (listed,) = server.ask("GET", "/collections?tenant_id=acme", key=admin).body["collections"]
    assert ("acme", "gates/old", 1, None) == (
        listed["tenant_id"],
        listed["collection"],
        listed["documents"],
        listed["open_jobs"],
    )
    target = f"/collections/{quote('gates/old', safe='')}?tenant_id=acme"
    assert listed | {"open_jobs": 0} == server.ask("GET", target, key=admin).body

    cleared = server.ask("DELETE", target, key=admin)
    assert (202, "pending") == (cleared.status, cleared.body["status"])
    assert {"outcome": "removed", "removed": 1} == server.ended(cleared.body["job_id"], key=admin)["result"]
    assert (404, "ERR_COLLECTION_NOT_FOUND") == (
        (gone := server.ask("GET", target, key=admin)).status,
        gone.code,
    )


def test_keys_see_and_clear_collections_of_their_tenants_only(server: LiveServer):
    bound = server.make_key("collections-acme", "write", "acme")
    reader = server.make_key("collections-reader", "read")
    admin = server.make_key("collections-all", "admin")
    for tenant in ("acme", "other"):
        body = {"content": "The gate.", "tenant_id": tenant, "collection": "gates"}
        server.ended(server.ask("POST", "/content", body, key=admin).body["job_id"], key=admin)

    assert ["acme"] == [
        one["tenant_id"] for one in server.ask("GET", "/collections", key=bound).body["collections"]
    ]
    assert 403 == server.ask("DELETE", "/collections/gates?tenant_id=other", key=bound).status
    assert 403 == server.ask("GET", "/collections?tenant_id=other", key=bound).status
    assert 403 == server.ask("DELETE", "/collections/gates?tenant_id=acme", key=reader).status
    assert 202 == server.ask("DELETE", "/collections/gates", key=bound).status


def test_a_slash_at_the_end_of_a_name_belongs_to_the_name(server: LiveServer):
    admin = server.make_key("collections-slash", "admin")
    kept, cleared = ({"tenant_id": "slashes", "collection": name} for name in ("mills", "mills/"))
    for place in (kept, cleared):
        body = {"content": f"The gate of {place['collection']}.", **place}
        server.ended(server.ask("POST", "/content", body, key=admin).body["job_id"], key=admin)

    target = f"/collections/{quote('mills/', safe='')}?tenant_id=slashes"
    assert "mills/" == server.ask("GET", target, key=admin).body["collection"]
    job_id = server.ask("DELETE", target, key=admin).body["job_id"]
    assert "done" == server.ended(job_id, key=admin)["status"]

    listed = server.ask("GET", "/collections/?tenant_id=slashes", key=admin).body["collections"]
    assert ["mills"] == [one["collection"] for one in listed]
    assert 200 == server.ask("GET", "/collections/mills/?tenant_id=slashes", key=admin).status
