"""A catalog in a file behind a queue for many hosts: other hosts refuse documents."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, config
from penstock.assembly import Assembly
from penstock.config import Settings
from penstock.database.factory import refuse_second_host
from penstock.errors import DocumentsElsewhere
from penstock.queue.job import DOCUMENT_FILE, WorkerReport
from tests.servers.stores import ON_SERVERS, given_back, store_url


@pytest.fixture(params=ON_SERVERS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield store_url(request.param, tmp_path)
    given_back(tmp_path)


def settings_of(url: str, tmp_path: Path, **given: Any) -> Settings:
    given = {"catalog_url": f"sqlite:///{tmp_path}/catalog.db"} | given
    return config.load({}, url=url, state_dir=tmp_path / "state", **given)


@pytest.fixture
def app(url: str, tmp_path: Path) -> Iterator[Penstock]:
    with Penstock(settings=settings_of(url, tmp_path)) as opened:
        yield opened


def report_as(app: Penstock, host: str, *, housed: bool = True, ago_s: float = 0) -> None:
    """Report as a worker of the given host."""
    now = app.queue.now()
    info = json.dumps(dict(DOCUMENT_FILE) if housed else {})
    report = WorkerReport(worker_id=f"{host}-1", host=host, pid=1, started_at=now, info_json=info)
    app.queue.report(report, now=now - timedelta(seconds=ago_s))


def test_a_second_host_is_refused_by_name(app: Penstock) -> None:
    report_as(app, "mill")

    with pytest.raises(DocumentsElsewhere, match=r"in a file on mill.*mill-1") as refused:
        app.index(".")
    assert "PENSTOCK_CATALOG_URL=postgresql://" in refused.value.remedy
    with pytest.raises(DocumentsElsewhere):
        app.search("gate")
    with pytest.raises(DocumentsElsewhere):
        Assembly(app.settings).worker().run()
    assert app.jobs() == []


@pytest.mark.parametrize(("housed", "ago_s"), [(False, 0), (True, 3600)], ids=["none there", "long ago"])
def test_others_may_have_them_here(app: Penstock, housed: bool, ago_s: float) -> None:
    report_as(app, "mill", housed=housed, ago_s=ago_s)

    assert app.search("gate") == []


def test_a_catalog_on_a_server_has_no_host(app: Penstock, tmp_path: Path) -> None:
    report_as(app, "mill")

    refuse_second_host(settings_of(app.settings.url, tmp_path, catalog_url="postgresql://db/x"), app.queue)


def test_a_worker_says_that_it_has_documents_once_it_has_some(app: Penstock, tmp_path: Path) -> None:
    def has_file() -> set[bool]:
        return {worker.has_document_file for worker in app.queue.workers()}

    Assembly(app.settings).worker(until_idle=True).run()
    assert has_file() == {False}
    (tmp_path / "mill.md").write_text("The gate sticks when it freezes.")
    app.index(tmp_path / "mill.md")

    Assembly(app.settings).worker(until_idle=True).run()

    assert has_file() == {False, True}


def test_functions_run_on_every_host(app: Penstock, tmp_path: Path) -> None:
    settings = app.settings
    state, catalog = str(settings.state_dir), settings.catalog_url
    (tmp_path / "tasks.py").write_text(
        "from penstock import Penstock, config\n"
        f"settings = config.load({{}}, url={settings.url!r}, state_dir={state!r}, catalog_url={catalog!r})\n"
        "app = Penstock(settings=settings)\n"
        "app.function('double')(lambda payload: payload['n'] * 2)\n"
    )
    app.function("double")(lambda payload: None)
    call = app.call("double", {"n": 21})
    report_as(app, "mill")

    command = [sys.executable, "-m", "penstock", "worker", "--app", "tasks:app", "--until-idle"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)

    assert app.result(call.job_id) == 42
    assert "functions only: the documents of" in ran.stderr
