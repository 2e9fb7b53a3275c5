"""Libraries: versions beside each other, from folders, archives, wheels and URLs, and their removal."""

from __future__ import annotations

import io
import sqlite3
import tarfile
import zipfile
from contextlib import closing
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock
from penstock.errors import InvalidRequest, LibraryNotFound, PathNotFound, UnknownLibrary
from tests.web.conftest import WAIT_S, Answer, Indexer, Site, page, settings_of
from tests.web.test_rules import inventory

FILES = {
    "README.md": "# Mill\n\nThe mill grinds {grain}.",
    "docs/gate.md": "# Gate\n\nOpen the {grain} gate.",
}


def sdist(folder: Path, version: str, grain: str, **more: str) -> Path:
    """An archive like those of a package index: everything in one folder."""
    path = folder / f"mill-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in (FILES | more).items():
            data = text.format(grain=grain).encode()
            info = tarfile.TarInfo(f"mill-{version}/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def test_versions_stay_beside_each_other_and_are_searched_apart(indexer: Indexer, tmp_path: Path):
    indexer.add("Mill", sdist(tmp_path, "1.0", "rye"))
    job = indexer.add("mill==2.0", sdist(tmp_path, "2.0", "wheat"))

    assert ("done", 1) == (job.status, job.priority)
    found = indexer.app.documents.libraries.versions()
    assert [("mill", "1.0", 2), ("mill", "2.0", 2)] == [
        (one.name, one.version, one.documents) for one in found
    ]
    hit = indexer.app.search("gate", library="mill==2.0")[0]
    assert ("library://mill/2.0/docs/gate.md", True) == (hit.path, "wheat" in hit.text)
    assert 4 == len({hit.path for hit in indexer.app.search("mill grinds open gate", library="mill")})
    assert [] == indexer.app.search("gate", library="mill==3.0")
    assert "folder" == indexer.app.documents.why("library://mill/2.0").verdict
    assert "docs/gate.md" in indexer.app.documents.source("library://Mill/1.0/docs/gate.md").path


def test_the_same_archive_again_costs_nothing(indexer: Indexer, tmp_path: Path):
    archive = sdist(tmp_path, "1.0", "rye")
    indexer.add("mill", archive)
    job = indexer.add("mill", archive)
    assert {"outcome": "unchanged", "unchanged": 2, "sent": 0}.items() <= (job.result or {}).items()


def test_a_folder_that_became_a_link_is_refused_by_name(indexer: Indexer, tmp_path: Path):
    """The folder was checked when it was named; what stands in its place now was not."""
    for name in ("named", "secret"):
        (tmp_path / name / "docs").mkdir(parents=True)
        (tmp_path / name / "docs" / "gate.md").write_text(f"# Gate\n\nThe {name} gate.")
    receipt = indexer.app.documents.libraries.add("mill==1.0", source=str(tmp_path / "named" / "docs"))
    (tmp_path / "named").rename(tmp_path / "away")
    (tmp_path / "named").symlink_to(tmp_path / "secret")

    with indexer.app.worker_thread():
        job = indexer.app.wait(receipt.job_id, timeout=WAIT_S)

    assert ("failed", "ERR_UNSUPPORTED_TYPE") == (job.status, job.error_code)
    assert "is a link, or behind one" in str(job.error_message)
    assert [] == indexer.paths()


def test_a_file_that_is_gone_from_the_source_is_removed(indexer: Indexer, tmp_path: Path):
    indexer.add("mill", sdist(tmp_path, "1.0", "rye", **{"old.md": "# Old\n\nGone soon."}))
    assert 3 == len(indexer.paths())
    indexer.add("mill", sdist(tmp_path, "1.0", "rye"))
    assert 2 == len(indexer.paths())


def everything(app: Penstock) -> dict[str, int]:
    """Rows of each table of the catalog, and files beside it, that documents leave behind."""
    # The last two are segments of the keyword index, in which deletions are entries until they are merged.
    kept = {"fingerprints", "spaces", "tombstones", "source_history", "walks", "unified_queue"}
    kept |= {"catalog_keyword_data", "catalog_keyword_idx"}
    with closing(sqlite3.connect(app.settings.state_dir / "penstock.db")) as database:
        database.create_function("keyword_text", -1, lambda *_: "", deterministic=True)
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        counts = {name: database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}
    web = app.settings.state_dir / "web"
    counts["files"] = len([file for file in web.rglob("*") if file.is_file()]) if web.exists() else 0
    return {name: count for name, count in counts.items() if name not in kept and count}


def test_a_removed_version_leaves_nothing_in_any_store(indexer: Indexer, tmp_path: Path):
    indexer.add("mill", sdist(tmp_path, "2.0", "wheat"), graph=True)
    indexer.run(item_type="content", op="ingest", payload={"content": "A note."})
    before = everything(indexer.app)
    indexer.add("mill", sdist(tmp_path, "1.0", "rye"), graph=True)
    assert before != everything(indexer.app)

    (removal,) = indexer.app.documents.libraries.removals("mill==1.0")
    assert "done" == indexer.run(**removal).status
    sweep(indexer.app)
    assert before == everything(indexer.app)
    assert [] == indexer.app.search("rye")
    assert ["2.0"] == [one.version for one in indexer.app.documents.libraries.versions("mill")]


def sweep(app: Penstock) -> None:
    """Remove what an hour later is swept: rows of removed sources, and unused vectors."""
    from datetime import timedelta

    from penstock import clock

    catalog = app.documents.catalog
    while catalog.sweep(clock.now() + timedelta(days=365)):
        continue


def test_removing_a_library_without_a_version_removes_all(indexer: Indexer, tmp_path: Path):
    for version in ("1.0", "2.0"):
        indexer.add("mill", sdist(tmp_path, version, "rye"))
    removals = indexer.app.documents.libraries.removals("mill")
    for removal in removals:
        indexer.run(**removal)
    assert (2, []) == (len(removals), indexer.paths())
    with pytest.raises(UnknownLibrary):
        indexer.app.documents.libraries.removals("mill")


def test_an_update_removes_the_others_after_the_new_one_is_indexed(indexer: Indexer, tmp_path: Path):
    indexer.add("mill", sdist(tmp_path, "1.0", "rye"))
    job = indexer.add("mill", sdist(tmp_path, "2.0", "wheat"), replace=True)
    assert ("done", ["1.0"]) == (job.status, (job.result or {})["replaced"])
    assert ["library://mill/2.0/README.md", "library://mill/2.0/docs/gate.md"] == indexer.paths()


def test_an_update_of_which_nothing_can_be_read_keeps_the_others(indexer: Indexer, tmp_path: Path):
    indexer.add("mill", sdist(tmp_path, "1.0", "rye"))
    broken = tmp_path / "mill-2.0.zip"
    with zipfile.ZipFile(broken, "w") as archive:
        archive.writestr("manual.pdf", b"%PDF-1.7 broken")
    job = indexer.add("mill", broken, replace=True)
    assert ("failed", "1 of 1 files failed") == (job.status, (job.error_message or "")[:19])
    assert 2 == len(indexer.paths(library="mill==1.0"))


def test_a_folder_and_a_wheel_are_sources_as_well(indexer: Indexer, tmp_path: Path):
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "objects.inv").write_bytes(inventory("a std:doc -1 a.html A"))
    (folder / "a.html").write_text(page("Gates", "About the sluice gate."))
    (folder / "genindex.html").write_text(page("Index", "A list."))
    wheel = tmp_path / "mill-3.1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(
            "mill/gate.py", '"""Gates of the mill."""\n\n\ndef open_gate():\n    """Open it."""\n'
        )
        archive.writestr("mill-3.1.dist-info/METADATA", "Name: mill\nVersion: 3.1\n\nGrinds corn.\n")
    indexer.add("mill==1", folder)
    indexer.add("mill", wheel)

    assert ["library://mill/1/a.html"] == indexer.paths(library="mill==1")
    assert "library://mill/1/a.html#gates" == indexer.app.search("sluice", library="mill==1")[0].url
    assert "library://mill/3.1/mill/gate.py" in indexer.paths(library="mill==3.1")


def test_an_installed_distribution_is_the_default_source(indexer: Indexer):
    installed = metadata.version("h11")
    job = indexer.add("h11", include=["*/_events.py", "*/METADATA"])
    assert "done" == job.status
    assert ["h11"] == [one.name for one in indexer.app.documents.libraries.versions(f"h11=={installed}")]
    assert indexer.app.search("InformationalResponse", library="h11")
    with pytest.raises(LibraryNotFound, match=r"0\.0\.1 is not installed"):
        indexer.app.documents.libraries.add("h11==0.0.1")
    with pytest.raises(LibraryNotFound, match="no version is"):
        indexer.app.documents.libraries.add("no-such-library-here")


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a b", "mill==", "mill==1/2", "mill==../1"])
def test_names_that_would_be_another_path_are_refused(indexer: Indexer, name: str):
    with pytest.raises(InvalidRequest):
        indexer.app.documents.libraries.add(name, source=".")
    assert [] == indexer.app.jobs()


def test_a_source_that_is_missing_or_without_a_version_is_refused(indexer: Indexer, tmp_path: Path):
    with pytest.raises(PathNotFound):
        indexer.app.documents.libraries.add("mill==1", source=str(tmp_path / "nothing"))
    with pytest.raises(LibraryNotFound, match="version"):
        indexer.app.documents.libraries.add("mill", source=str(tmp_path))


def test_members_that_lead_out_of_the_archive_stay_below_the_library(indexer: Indexer, tmp_path: Path):
    hostile = tmp_path / "mill-1.zip"
    with zipfile.ZipFile(hostile, "w") as archive:
        archive.writestr("../../../../etc/escaped.md", "# Escaped\n\nOut of the archive.")
        archive.writestr("/etc/absolute.md", "# Absolute\n\nFrom the root.")
        archive.writestr("ok.md", "# Fine\n\nInside.")
    indexer.add("mill", hostile)
    paths = indexer.paths()
    assert 3 == len(paths)
    assert all(path.startswith("library://mill/1/") and ".." not in path for path in paths)
    assert not (tmp_path.parent / "etc").exists()


def test_a_member_that_is_a_bomb_is_left_out(indexer: Indexer, tmp_path: Path):
    bomb = tmp_path / "mill-1.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.md", b"\0" * (80 << 20))
        archive.writestr("ok.md", "# Fine\n\nInside.")
    job = indexer.add("mill", bomb)
    assert ("done", ["library://mill/1/ok.md"]) == (job.status, indexer.paths())
    assert "skipped" == indexer.app.documents.why("library://mill/1/bomb.md").verdict


def test_an_archive_is_downloaded_once_and_goes_with_its_version(
    indexer: Indexer, site: Site, tmp_path: Path
):
    data = sdist(tmp_path, "1.0", "rye").read_bytes()
    site.put("/mill-1.0.tar.gz", data, etag='"1"', Content_Type="application/gzip")
    url = f"{site.url}/mill-1.0.tar.gz"
    indexer.add("mill", url)
    indexer.add("mill", url)
    assert [("/mill-1.0.tar.gz", 200), ("/mill-1.0.tar.gz", 304)] == site.asked
    assert url == indexer.app.documents.libraries.versions()[0].source

    (removal,) = indexer.app.documents.libraries.removals("mill")
    indexer.run(**removal)
    assert "files" not in everything(indexer.app)


def test_a_documentation_is_followed_within_its_folder_only(indexer: Indexer, site: Site):
    site.put("/en/1/", page("Home", "Welcome.", "guide.html", "../2/", "/elsewhere", "genindex.html"))
    site.put("/en/1/guide.html", page("Guide", "How the sluice gate works.", "/en/1/"))
    site.put("/en/1/alone.html", page("Alone", "Only in the inventory."))
    site.put("/en/1/objects.inv", inventory("alone std:doc -1 alone.html Alone"), Content_Type="text/plain")
    site.put("/en/2/", page("Two", "The next version."))
    site.put("/elsewhere", page("Else", "No documentation."))
    indexer.add("mill==1", f"{site.url}/en/1/")

    names = ["alone.html", "guide.html", "index.html"]
    assert [f"library://mill/1/{name}" for name in names] == indexer.paths()
    assert f"{site.url}/en/1/guide.html#guide" == indexer.app.search("sluice gate")[0].url
    result = indexer.add("mill==1", f"{site.url}/en/1/").result or {}
    assert ("unchanged", 3) == (result["outcome"], result["unchanged"])


def test_a_private_source_is_refused_by_default(tmp_path: Path, site: Site):
    site.pages["/mill-1.zip"] = Answer(b"PK", headers={"Content-Type": "application/zip"})
    with Penstock(settings=settings_of(tmp_path, web_private=False)) as app:
        indexer = Indexer(app)
        for source in (f"{site.url}/mill-1.zip", f"{site.url}/docs/"):
            job = indexer.add("mill==1", source)
            assert ("failed", "ERR_WEB_ADDRESS") == (job.status, job.error_code)
    assert [] == site.asked


def test_a_filter_by_library_and_by_path_is_refused(indexer: Indexer):
    given: dict[str, Any] = {"library": "mill", "path": "*"}
    with pytest.raises(InvalidRequest, match="one of them"):
        indexer.app.search("gate", **given)
