"""A second branch of a project: unchanged files are neither read nor embedded again."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, config
from penstock.pipeline.embed.static import HashingEmbedder
from penstock.service.requests import Where
from tests.cli.test_projects import check_out


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "mill"
    (made / ".git" / "refs" / "heads").mkdir(parents=True)
    check_out(made, "main")
    return made


def test_a_new_branch_costs_what_differs(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (root / "same.md").write_text("# Same\n\nThe wheel turns all day.\n")
    (root / "edited.md").write_text("# One\n\nThe weir.\n\n# Two\n\nThe gate.\n")
    embedded: list[str] = []
    embed = HashingEmbedder.embed

    def counted(self: HashingEmbedder, texts: Any) -> Any:
        embedded.extend(texts)
        return embed(self, texts)

    monkeypatch.setattr(HashingEmbedder, "embed", counted)
    settings = config.load({}, state_dir=tmp_path / "state", embedder="hashing", sqlite_synchronous="NORMAL")
    with Penstock(settings=settings) as app, app.worker_thread():
        app.wait(app.index(root, project=True).job_id)
        before = len(embedded)
        check_out(root, "wip")
        (root / "edited.md").write_text("# One\n\nThe weir.\n\n# Two\n\nThe gate was mended.\n")
        # Other bytes of the same size and time: whoever reads the file shows them.
        time_ns = (root / "same.md").stat().st_mtime_ns
        (root / "same.md").write_text("# Same\n\nThe wheel stops at once.\n")
        os.utime(root / "same.md", ns=(time_ns, time_ns))
        app.wait(app.index(root, project=True).job_id)

        project = app.documents.projects.all()[0]
        assert ["main", "wip"] == [one.branch for one in project.branches]
        assert [2, 2] == [one.sources for one in project.branches]
        assert all("mended" in text or "gate" in text for text in embedded[before:])
        assert 1 >= len(embedded) - before
        where: Where = {"tenant_id": project.tenant_id, "branch": "wip"}
        assert "turns all day" in app.documents.page(str(root / "same.md"), 1, **where).text
        assert {"wip"} == {hit.branch for hit in app.search("wheel mended", **where)}
        assert {"main"} == {hit.branch for hit in app.search("wheel mended", **(where | {"branch": "main"}))}
    # The text of the unchanged file is stored once; of the edited one, both versions.
    with closing(sqlite3.connect(tmp_path / "state" / "penstock.db")) as file:
        texts = [text for (text,) in file.execute("SELECT text FROM catalog_content")]
    assert len(set(texts)) == len(texts)
