"""Real paths: one spelling for each file, whatever the case in which it was named."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.service.access import PathPolicy
from penstock.service.paths import in_disk_case, real_path


class CaseDisk:
    """A disk in memory: folders whose path begins with one of ``ignoring`` ignore case."""

    def __init__(self, paths: Sequence[str], ignoring: Sequence[str]) -> None:
        self._paths = {part for path in paths for part in self._above(path)}
        self._ignoring = ignoring
        self.listed: list[str] = []

    @staticmethod
    def _above(path: str) -> list[str]:
        return [path, *(str(one) for one in Path(path).parents)]

    def _found(self, path: str) -> str | None:
        if path == "/":
            return path
        folder, name = posixpath.split(path)
        real = self._found(folder)
        if real is None:
            return None
        ignores = any(f"{real}/".startswith(one) for one in self._ignoring)
        for entry in self.names_of(real):
            if entry == name or (ignores and entry.casefold() == name.casefold()):
                return posixpath.join(real, entry)
        return None

    def names_of(self, folder: str) -> list[str]:
        return [posixpath.basename(one) for one in self._paths if posixpath.dirname(one) == folder != one]

    def same(self, first: str, second: str) -> bool:
        found = self._found(first)
        return found is not None and found == self._found(second)

    def names(self, folder: str) -> Sequence[str]:
        self.listed.append(folder)
        return self.names_of(folder)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/Users/ana/Docs/Mill.md", "/Users/ana/Docs/Mill.md"),
        ("/users/ANA/docs/mill.MD", "/Users/ana/Docs/Mill.md"),
        ("/Users/ana/docs/new.md", "/Users/ana/Docs/new.md"),
        ("/Users/ana/docs/ÉTÉ.md", "/Users/ana/Docs/été.md"),
        ("/Users/ana/docs/STRASSE.md", "/Users/ana/Docs/STRASSE.md"),
        ("/Users/ana/disk/Mill.md", "/Users/ana/Disk/Mill.md"),
        ("/", "/"),
    ],
)
def test_a_folder_that_ignores_case_gives_its_own_spelling(given: str, expected: str):
    disk = CaseDisk(
        ["/Users/ana/Docs/Mill.md", "/Users/ana/Docs/été.md", "/Users/ana/Disk/Mill.md"], ignoring=["/"]
    )

    assert expected == in_disk_case(given, disk)


def test_only_folders_that_ignore_case_are_listed():
    disk = CaseDisk(["/srv/Docs/Mill.md", "/media/card/Docs/Mill.md"], ignoring=["/media/card/"])

    assert "/srv/docs/mill.md" == in_disk_case("/srv/docs/mill.md", disk)
    assert [] == disk.listed
    assert "/media/card/Docs/Mill.md" == in_disk_case("/media/card/docs/mill.md", disk)
    assert ["/media/card", "/media/card/Docs"] == disk.listed


def test_on_a_case_sensitive_disk_two_spellings_are_two_paths(tmp_path: Path):
    (tmp_path / "Mill.md").write_text("Water")
    if (tmp_path / "mill.md").exists():
        pytest.skip("this disk ignores case")
    os.link(tmp_path / "Mill.md", tmp_path / "mILL.MD")

    names = ["Mill.md", "mILL.MD", "mill.md"]

    assert [str(tmp_path / name) for name in names] == [real_path(f"{tmp_path}/{name}") for name in names]


def test_links_are_followed_and_missing_parts_kept(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    assert f"{tmp_path}/real/a.md" == real_path(f"{tmp_path}/link/../link/a.md")


def test_a_policy_compares_real_paths(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    policy = PathPolicy([str(tmp_path / "link")], str(tmp_path / "state"), allow_external=False)

    assert f"{tmp_path}/real/a.md" == policy.allowed(f"{tmp_path}/link/a.md")


def test_a_submitted_path_is_that_of_the_index(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.md").write_text("Water drives the mill.")
    (tmp_path / "link").symlink_to("real")
    link, real = str(tmp_path / "link"), str(tmp_path / "real")
    with Penstock("memory://", state_dir=tmp_path / "state") as app:
        submitted = app.submit(item_type="file", op="ingest", payload={"file_path": f"{link}/a.md"})
        assert {"file_path": f"{real}/a.md"} == app.job(submitted.job_id).payload
        assert app.submit_many(
            [{"item_type": "file", "op": "ingest", "payload": {"file_path": f"{real}/./a.md"}}]
        )[0].dedupe_hit
        moved = {"old_path": f"{link}/b.md", "new_path": f"{link}/a.md"}
        renamed = app.submit(item_type="rename", op="update", payload=moved)
        expected = {"old_path": f"{real}/b.md", "new_path": f"{real}/a.md"}
        assert expected == app.job(renamed.job_id).payload
        by_id = app.submit(item_type="delete_document", op="delete", payload={"document_id": "doc_1"})
        assert {"document_id": "doc_1"} == app.job(by_id.job_id).payload


@pytest.mark.parametrize("payload", [{"file_path": 7}, {"file_path": "relative.md"}, {}, None])
def test_a_payload_that_is_wrong_is_refused_as_before(tmp_path: Path, payload: object):
    with Penstock("memory://", state_dir=tmp_path) as app, pytest.raises(ValueError, match="file"):
        app.submit(item_type="file", op="ingest", payload=payload)  # type: ignore[arg-type]
