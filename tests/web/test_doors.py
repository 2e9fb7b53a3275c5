"""Web pages and libraries at the doors: commands, requests to a server, and agents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock import Penstock
from penstock.assembly import Assembly
from penstock.cli.main import cli
from penstock.errors import InvalidPayload, PathOutside, WebOff
from penstock.mcp.server import Toolbox
from penstock.service.access import PathPolicy
from tests.web.conftest import Indexer, Site, page, settings_of
from tests.web.test_libraries import sdist


def test_a_server_takes_urls_only_where_its_setting_says_so(tmp_path: Path):
    closed = PathPolicy.of(settings_of(tmp_path, roots=(str(tmp_path),)))
    with pytest.raises(WebOff):
        closed.allowed("http://169.254.169.254/latest", allow_external=True)
    with pytest.raises(WebOff):
        closed.allowed("HTTPS://example.org/")
    with pytest.raises(PathOutside):
        closed.allowed("library://mill/1")
    opened = PathPolicy.of(settings_of(tmp_path, roots=(str(tmp_path),), allow_web=True))
    assert "https://example.org/a" == opened.allowed("HTTPS://Example.org/x/../a#part")


def test_a_password_in_a_url_of_a_job_is_refused(indexer: Indexer):
    url = "https://alice:hunter2@example.org/"
    library = {"library_name": "mill", "library_version": "1", "source_url": url}
    for item_type, payload in [("folder", {"folder_path": url}), ("library", library)]:
        with pytest.raises(InvalidPayload) as refused:
            indexer.app.submit(item_type=item_type, op="ingest", payload=payload)
        assert "hunter2" not in str(refused.value)
    assert [] == indexer.app.jobs()


def test_an_agent_on_this_machine_indexes_and_reads_pages(tmp_path: Path, site: Site):
    site.put("/", page("Gates", "The sluice gate opens in spring."))
    settings = settings_of(tmp_path)
    with Penstock(settings=settings) as app:
        tools = Toolbox(Assembly(settings, door="mcp"))
        receipt = tools.index_path(f"{site.url}/")
        with app.worker_thread():
            app.wait(receipt.job_id, timeout=120)
        assert f"{site.url}/" in tools.search("sluice", library=None)
        assert "indexed" in tools.why(f"{site.url}/")
        nothing = "No hits.\nSearched tenant default. Search everything with: all=true"
        assert nothing == tools.search("sluice", library="mill==1")


def test_commands_add_list_and_remove_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PENSTOCK_EMBEDDER", "hashing")
    archive = sdist(tmp_path, "1.0", "rye")

    def run(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(cli, ["--state", str(tmp_path / "state"), *arguments])
        assert code == result.exit_code, result.output
        return result.stdout

    assert "No library is indexed" in run("library", "list")
    added = json.loads(run("--json", "library", "add", "mill", "--from", str(archive), "--serial"))
    assert "done" == added["status"]
    (found,) = json.loads(run("--json", "library", "list"))["libraries"]
    assert ("mill", "1.0", 2, str(archive)) == tuple(
        found[key] for key in ("name", "version", "documents", "source")
    )
    hits = json.loads(run("--json", "--no-server", "search", "--library", "mill==1.0", "gate"))["hits"]
    assert "library://mill/1.0/docs/gate.md" in [hit["path"] for hit in hits]
    (removal,) = json.loads(run("--json", "library", "remove", "mill"))["removals"]
    assert ("mill==1.0", "done", 2) == (removal["library"], removal["status"], removal["result"]["removed"])
    assert "ERR_UNKNOWN_LIBRARY" in run("--json", "library", "show", "mill", code=4)
