"""The rule for tenant and branch of documents, as a table."""

from __future__ import annotations

import pytest

from penstock.catalog.parts import ProjectRoot
from penstock.service.projects import Placement, WantedPlace, WorkTree, placed, project_of

TREE = WorkTree("/src/mill", "https://me:s3cret@example.org/ours/mill.git", "wip")
FIRST = ProjectRoot("/src/mill", "first-tenant", "ours/mill", "")
NEW = project_of(TREE).tenant_id


def place_of(placement: Placement) -> tuple[str | None, str | None]:
    return placement.tenant_id, placement.branch


@pytest.mark.parametrize(
    ("wanted", "tree", "recorded", "expected"),
    [
        (WantedPlace(), None, None, (None, None)),
        (WantedPlace(), TREE, None, (NEW, "wip")),
        (WantedPlace(), TREE, FIRST, ("first-tenant", "wip")),
        (WantedPlace(branch="main"), TREE, FIRST, ("first-tenant", "main")),
        (WantedPlace(tenant_id="acme"), TREE, FIRST, ("acme", None)),
        (WantedPlace(tenant_id="acme", project=True), TREE, FIRST, ("acme", "wip")),
        (WantedPlace(tenant_id="acme", branch="b"), TREE, FIRST, ("acme", "b")),
        (WantedPlace(project=False), TREE, FIRST, (None, None)),
        (WantedPlace(branch="b"), None, None, (None, "b")),
    ],
)
def test_the_place_of_a_request_to_index(
    wanted: WantedPlace, tree: WorkTree | None, recorded: ProjectRoot | None, expected: tuple[str, str]
):
    assert expected == place_of(placed(wanted, tree, recorded))


def test_a_reader_is_in_a_project_only_once_it_was_indexed():
    assert (None, None) == place_of(placed(WantedPlace(), TREE, None, reads=True))
    assert ("first-tenant", "wip") == place_of(placed(WantedPlace(), TREE, FIRST, reads=True))


def test_a_tenant_of_the_settings_goes_before_projects_that_are_not_asked_for():
    assert (None, None) == place_of(placed(WantedPlace(), TREE, FIRST, own_tenant=True))
    assert ("first-tenant", "wip") == place_of(
        placed(WantedPlace(project=True), TREE, FIRST, own_tenant=True)
    )


def test_a_job_follows_only_the_checked_out_branch():
    assert {"work_tree": "/src/mill"} == placed(WantedPlace(), TREE, FIRST).metadata
    assert {} == placed(WantedPlace(branch="main"), TREE, FIRST).metadata
    assert {} == placed(WantedPlace(tenant_id="acme"), TREE, FIRST).metadata


def test_a_password_of_a_remote_is_in_no_part_of_a_project():
    assert "s3cret" not in repr(project_of(TREE))
    assert "example.org/ours/mill" == project_of(TREE).remote
