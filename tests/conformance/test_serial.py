"""Serial jobs: one at a time in a collection, in order, with their children."""

import pytest

from penstock import config
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest
from penstock.service.jobs import Jobs
from tests.conformance.conftest import new


def claimed(queue):
    return [claim.payload["folder_path"] for claim in queue.claim(ClaimRequest("w1", 10))]


def test_serial_folders_of_a_collection_run_one_after_the_other(queue, tmp_path):
    jobs = Jobs(queue, config.load({}, state_dir=tmp_path))

    def submit(path, collection="docs", *, serial=True):
        payload = {"folder_path": path}
        jobs.submit(item_type="folder", op="scan", payload=payload, collection=collection, serial=serial)

    for path in ("/a", "/b", "/c"):
        submit(path)
    submit("/other", "notes")
    submit("/free", serial=False)
    first, *rest = queue.claim(ClaimRequest("w1", 10))
    assert "/a" == first.payload["folder_path"]
    assert {"/other", "/free"} == {claim.payload["folder_path"] for claim in rest}

    child = new("child", tenant_id=first.tenant_id, payload_json='{"folder_path": "/a/child"}')
    queue.settle([transitions.waits(first, children=(child,))])
    (running,) = queue.claim(ClaimRequest("w1", 10))
    assert ("/a/child", []) == (running.payload["folder_path"], claimed(queue))
    queue.settle([transitions.done(running)])
    assert ["/b"] == claimed(queue)


@pytest.mark.parametrize(
    ("setting", "asked", "expected"), [("true", None, 1), ("true", False, 2), ("false", None, 2)]
)
def test_the_setting_is_the_default(queue, tmp_path, setting, asked, expected):
    jobs = Jobs(queue, config.load({"PENSTOCK_SERIAL": setting}, state_dir=tmp_path))
    for path in ("/a", "/b"):
        jobs.submit(item_type="folder", op="scan", payload={"folder_path": path}, serial=asked)

    assert expected == len(claimed(queue))
