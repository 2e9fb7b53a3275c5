"""Projects in the library: what a search covers, documents that were left behind, and schedules."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from penstock import Penstock, config
from penstock.assembly import Assembly
from penstock.errors import InvalidRequest, UnknownDocument, UnknownProject
from penstock.queue.job import Job, Status
from penstock.worker.upkeep import ScheduleRunner

REMOTE = "git@example.org:ours/mill.git"
TENANT = hashlib.sha256(b"example.org/ours/mill").hexdigest()


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Penstock]:
    settings = config.load(
        {}, state_dir=tmp_path / "state", embedder="hashing", sqlite_synchronous="NORMAL", poll_s=0.05
    )
    with Penstock(settings=settings) as opened:
        yield opened


@pytest.fixture
def mill(tmp_path: Path) -> Path:
    """A work tree on branch main, beside a plain folder."""
    root = tmp_path / "mill"
    (root / ".git" / "refs" / "heads").mkdir(parents=True)
    (root / ".git" / "config").write_text(f'[remote "origin"]\n url = {REMOTE}\n')
    check_out(root, "main")
    (root / "weir.md").write_text("The weir holds back the water.")
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "barn.md").write_text("Water is carried to the barn.")
    return root


def check_out(root: Path, branch: str) -> None:
    (root / ".git" / "HEAD").write_text(f"ref: refs/heads/{branch}\n")
    (root / ".git" / "refs" / "heads" / branch).write_text("0" * 40)


def indexed(app: Penstock, *paths: Path, **options: object) -> list[Job]:
    with app.worker_thread():
        receipts = [app.index(path, **options) for path in paths]  # type: ignore[arg-type]
        jobs = [app.wait(receipt.job_id, timeout=60) for receipt in receipts]
    assert {Status.DONE} == {job.status for job in jobs}
    return jobs


def names(app: Penstock, **options: object) -> list[str]:
    return sorted(Path(hit.path).name for hit in app.search("water", **options))  # type: ignore[arg-type]


def test_a_search_covers_the_default_tenant_a_project_or_all(
    app: Penstock, mill: Path, monkeypatch: pytest.MonkeyPatch
):
    indexed(app, mill, mill.parent / "plain")

    assert ["barn.md"] == names(app) == names(app, project=False)
    assert ["weir.md"] == names(app, project="ours/mill") == names(app, project=TENANT)
    assert ["weir.md"] == names(app, project=str(mill)) == names(app, tenant_id=TENANT)
    assert ["barn.md", "weir.md"] == names(app, all=True)
    monkeypatch.chdir(mill)
    assert ["weir.md"] == names(app, project=True)
    assert ["weir.md"] == [Path(one.path).name for one in app.documents.sources(project=True)]
    assert [str(mill / "weir.md")] == [one.path for one in app.context("weir", project=True).passages]
    with pytest.raises(UnknownProject):
        names(app, project="theirs")
    for two in ({"project": "ours/mill", "all": True}, {"tenant_id": "a", "project": "b"}):
        with pytest.raises(InvalidRequest, match="give one of them"):
            names(app, **two)


def test_an_answer_says_what_was_searched(app: Penstock, mill: Path):
    indexed(app, mill, mill.parent / "plain")

    def parts(**options: object) -> list[tuple[str, str | None, str | None]]:
        covered = app.ask("water", **options).covered  # type: ignore[arg-type]
        assert bool(options.get("all")) is covered.everything
        return [(one.tenant_id, one.project, one.branch) for one in covered.parts]

    assert [("default", None, None)] == parts()
    assert [(TENANT, "ours/mill", "main")] == parts(project="ours/mill")
    assert {("default", None, None), (TENANT, "ours/mill", "main")} == set(parts(all=True))
    assert parts() == [(one.tenant_id, one.project, one.branch) for one in app.context("water").covered.parts]


def test_what_a_search_covers_is_known_without_a_look_at_the_projects(
    app: Penstock, mill: Path, monkeypatch: pytest.MonkeyPatch
):
    """A search takes the same statements as before."""
    indexed(app, mill.parent / "plain")
    seen: list[str] = []

    def looked(*_: object) -> list[object]:
        seen.append("projects")
        return []

    projects = app.documents.catalog.projects
    monkeypatch.setattr(projects, "all", looked)
    monkeypatch.setattr(projects, "at", looked)

    app.search("water")
    app.search("water", tenant_id="default")

    assert [] == seen


def test_documents_of_a_project_are_found_by_their_paths(app: Penstock, mill: Path):
    indexed(app, mill)
    weir = str(mill / "weir.md")

    assert "indexed" == app.why(weir).verdict
    assert TENANT == app.documents.source(weir).place.tenant_id
    assert ["indexed"] == [entry.what for entry in app.documents.history(weir)]
    assert "The weir" in app.documents.page(weir, 1).text
    assert TENANT == app.documents.removal(weir)["tenant_id"]
    assert "unknown" == app.why(weir, project=False).verdict
    with pytest.raises(UnknownDocument):
        app.documents.source(weir, tenant_id="default")


def test_why_says_that_a_path_is_in_another_tenant(app: Penstock, mill: Path):
    barn = mill.parent / "plain" / "barn.md"
    indexed(app, barn, tenant_id="acme")

    reason = app.why(barn)
    assert ("unknown", "not in tenant default, but in tenant acme, branch main") == (
        reason.verdict,
        reason.cause,
    )
    assert "--all" in reason.remedy
    assert "indexed" == app.why(barn, all=True).verdict
    # Who names a tenant is not told about others.
    assert "acme" not in app.why(barn, tenant_id="bakery").cause


def test_documents_that_a_request_without_a_project_left_are_not_passed_over(app: Penstock, mill: Path):
    indexed(app, mill, project=False)

    (note,) = app.index(mill).notes
    assert f"documents below {mill} are also in tenant default, branch main" in note
    command = f"penstock delete {mill} --tenant default --collection default"
    assert note.endswith(command)
    assert () == app.index(mill / "weir.md").notes
    with closing(Assembly(app.settings)) as assembly:
        (check,) = [one for one in assembly.diagnosis().checks if one.subject == "projects"]
    assert ("note", f"Remove them: {command}") == (check.status, check.remedy)

    with app.worker_thread():
        removal = app.documents.removal(str(mill), tenant_id="default", collection="default")
        app.wait(app.submit(exact=True, **removal).job_id, timeout=60)
        app.wait(app.index(mill).job_id, timeout=60)
    assert () == app.index(mill).notes
    assert ["weir.md"] == names(app, project="ours/mill")
    assert [] == names(app)


def test_a_project_is_scanned_and_deleted_in_its_tenant(app: Penstock, mill: Path):
    documents = app.documents
    payload = {"project_root": str(mill)}
    with app.worker_thread():
        scan = documents.placed({"item_type": "project", "op": "scan", "payload": payload})
        scanned = app.wait(app.submit(**scan).job_id, timeout=60)
    (child,) = app.jobs(parent_id=scanned.queue_id)
    assert (Status.DONE, TENANT, "main") == (scanned.status, scanned.tenant_id, scanned.branch)
    assert (3, TENANT, "main") == (child.priority, child.tenant_id, child.branch)
    assert ["weir.md"] == names(app, project="ours/mill")

    with app.worker_thread():
        delete = documents.placed({"item_type": "project", "op": "delete", "payload": payload})
        app.wait(app.submit(**delete).job_id, timeout=60)
    assert [] == names(app, project="ours/mill")


def test_a_schedule_of_a_project_indexes_the_branch_that_is_checked_out(app: Penstock, mill: Path):
    made = app.schedules.add_index("@daily", mill)
    file = app.schedules.add_index("@daily", mill / "weir.md", name="weir")
    assert TENANT == made.tenant_id == app.schedules.show("weir").tenant_id
    assert made.next_at is not None
    assert file.next_at is not None
    check_out(mill, "wip")
    (mill / "gate.md").write_text("The gate lets in the water.")

    ScheduleRunner(app.queue).run(made.next_at)
    with app.worker_thread():
        ids = [str(app.schedules.show(name).last_job_id) for name in (made.name, "weir")]
        jobs = [app.wait(job_id, timeout=60) for job_id in ids]
    assert [Status.DONE] * 2 == [job.status for job in jobs]
    assert ["gate.md", "weir.md"] == names(app, tenant_id=TENANT, branch="wip")
    assert [] == names(app, tenant_id=TENANT, branch="main")

    check_out(mill, "main")
    ScheduleRunner(app.queue).run(made.next_at + timedelta(days=1))
    with app.worker_thread():
        app.wait(str(app.schedules.show(made.name).last_job_id), timeout=60)
    assert ["gate.md", "weir.md"] == names(app, tenant_id=TENANT, branch="main")


def test_a_schedule_that_several_tenants_have_is_named_by_its_tenant(app: Penstock, mill: Path):
    for tenant in ("acme", "bakery"):
        app.schedules.add_index("@daily", mill, name="nightly", tenant_id=tenant)

    with pytest.raises(InvalidRequest, match="2 tenants have a schedule"):
        app.schedules.show("nightly")
    assert "acme" == app.schedules.show("nightly", tenant_id="acme").tenant_id
