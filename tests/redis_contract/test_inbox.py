"""Files on their way from incoming to processed or failed: nothing is overwritten, twice is like once."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import clock
from penstock.redis_contract import rags
from tests.redis_contract.conftest import Town


def always(_: os.stat_result) -> bool:
    return True


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def moved(source: Path, target: Path) -> rags.Moved:
    return rags.move(source, target, part="job", is_same_file=always)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "a.pdf"
    path.write_text("new")
    return path


@pytest.fixture
def other_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on another file system, or one for which rename fails in the same way."""
    memory = Path("/dev/shm")
    if memory.is_dir() and memory.stat().st_dev != tmp_path.stat().st_dev:
        with tempfile.TemporaryDirectory(dir=memory) as folder:
            yield Path(folder)
        return
    rename = Path.rename

    def refuse(self: Path, target: Any) -> Path:
        if self.parent != Path(target).parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    (tmp_path / "out").mkdir()
    yield tmp_path / "out"


@pytest.fixture(params=["same", "other"])
def out(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "other":
        found: Path = request.getfixturevalue("other_file_system")
        return found
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def test_a_move_keeps_content_and_time(file: Path, out: Path):
    os.utime(file, ns=(10**18, 10**18))
    target = out / "deep" / "a.pdf"

    assert rags.Moved(str(target)) == moved(file, target)

    assert ("new", 10**18, False) == (target.read_text(), target.stat().st_mtime_ns, file.exists())
    assert ["a.pdf"] == names(target.parent)
    assert rags.Moved(str(target)) == moved(file, target)


def test_a_name_that_is_taken_makes_room(file: Path, out: Path):
    target = out / "a.pdf"
    for number, text in enumerate(["oldest", "older"]):
        target.write_text(text)
        if not number:
            target.rename(rags.find_free_name(target))

    moved(file, target)

    found = {path.name: path.read_text() for path in target.parent.iterdir()}
    assert {"a.pdf": "new", "a.1.pdf": "oldest", "a.2.pdf": "older"} == found


def test_the_same_content_is_kept_once(file: Path, tmp_path: Path):
    target = tmp_path / "a.pdf"
    target.write_text("new")

    moved(file, target)

    assert (["a.pdf", "in"], False) == (names(tmp_path), file.exists())


def test_what_is_not_the_file_worked_on_stays(file: Path, tmp_path: Path):
    left = rags.move(file, tmp_path / "a.pdf", part="job", is_same_file=lambda _: False)

    assert (str(file), True, True) == (left.path, "changed since" in left.error, file.exists())


def test_what_is_no_file_stays(tmp_path: Path):
    (tmp_path / "link").symlink_to("/etc/passwd")

    assert "not a regular file" in moved(tmp_path / "link", tmp_path / "out").error


def test_a_target_that_cannot_be_written_is_told_and_the_file_stays(file: Path, tmp_path: Path):
    (tmp_path / "out").write_text("in the way")

    left = moved(file, tmp_path / "out" / "a.pdf")

    assert (str(file), True, True) == (left.path, "could not be moved" in left.error, file.exists())


def test_what_cannot_even_be_looked_at_is_told(tmp_path: Path):
    told = moved(tmp_path / ("x" * 300), tmp_path / "out" / "x.txt")

    assert "File name too long" in told.error


def test_a_copy_that_was_cut_short_is_made_again(file: Path, other_file_system: Path):
    (other_file_system / ".job.part").write_text("ne")

    moved(file, other_file_system / "a.pdf")

    assert ("new", ["a.pdf"]) == ((other_file_system / "a.pdf").read_text(), names(other_file_system))


def test_a_copy_that_failed_leaves_nothing(
    file: Path, other_file_system: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    told = moved(file, other_file_system / "a.pdf")

    assert (str(file), True, []) == (told.path, "No space left" in told.error, names(other_file_system))


def test_an_inbox_whose_folders_are_on_another_file_system(town: Town, other_file_system: Path):
    (town.inbox() / "processed").symlink_to(other_file_system)

    shown = town.done(town.message(town.put("a.txt", "Water.")))

    assert ("done", str(other_file_system / "a.txt"), "") == (
        shown["status"],
        shown["file"],
        shown["file_error"],
    )
    assert [str(other_file_system / "a.txt")] == town.found("water")


def test_an_error_of_an_earlier_job_makes_room_with_its_file(tmp_path: Path):
    for job_id in ("one", "two", "two"):
        rags.write_error_file(tmp_path, "a.pdf", {"job_id": job_id})
        (tmp_path / "a.pdf").write_text(job_id)

    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert ["a.1.pdf", "a.1.pdf.error.json", "a.pdf", "a.pdf.error.json"] == sorted(found)
    assert ("one", "two") == (found["a.1.pdf"], found["a.pdf"])
    assert {"job_id": "two"} == json.loads(found["a.pdf.error.json"])


def test_a_newer_file_in_the_same_place_is_left_to_its_own_message(town: Town):
    path = town.put("a.txt", "Water.")
    first = town.push(town.message(path))
    gateway = town.gateway()
    gateway.run_round()
    with town.app.worker_thread():
        town.app.wait(first, timeout=120)
    path.write_text("Wind, and much more of it.")

    (shown,) = town.settle(gateway, first)
    assert ("done", str(path), True) == (
        shown["status"],
        shown["file"],
        "changed since" in shown["file_error"],
    )
    second = town.done(town.message(path))

    assert ("done", "indexed", False) == (second["status"], second["outcome"], path.exists())
    assert [str(town.inbox() / "processed/a.txt")] == town.found("wind")
    assert [] == town.found("water")


def test_two_messages_for_one_file_both_end_well(town: Town):
    path = town.put("a.txt", "Water.")
    ids = [town.push(town.message(path)) for _ in range(2)]

    found = town.settle(town.gateway(), *ids)

    assert ["done", "done"] == [shown["status"] for shown in found]
    assert ["a.txt"] == [path.name for path in (town.inbox() / "processed").iterdir()]


def test_a_message_sent_before_the_file_was_moved_finds_it_where_it_is_now(town: Town):
    path = town.put("a.txt", "Water.")
    town.done(town.message(path))

    late = town.done(town.message(path))
    again = town.done(town.message(path, options={"reindex": True}))
    too_late = town.done(town.message(path, submitted_at=clock.format_time(clock.now() + timedelta(hours=1))))

    assert [("done", "unchanged"), ("done", "indexed"), ("failed", "")] == [
        (shown["status"], shown["outcome"]) for shown in (late, again, too_late)
    ]
    assert ("ERR_FILE_NOT_FOUND", late["file"]) == (too_late["error_code"], town.found("water")[0])


@pytest.mark.parametrize("before", [False, True])
def test_what_is_indexed_and_not_moved_yet_is_left_to_its_gateway(town: Town, before: bool):
    if before:
        town.done(town.message(town.put("a.txt", "Wind.")))
    job_id, gateway = town.push(town.message(town.put("a.txt", "Water."))), town.gateway()
    gateway.run_round()
    with town.app.worker_thread():
        town.app.wait(job_id, timeout=120)

    assert [] == list(town.app.verifier.differences())

    town.settle(gateway, job_id)
    assert [str(town.inbox() / "processed" / "a.txt")] == town.found("water")


def test_a_new_version_takes_the_old_ones_name_and_place(town: Town):
    for text in ("Water.", "Wind."):
        assert "done" == town.done(town.message(town.put("a.txt", text)))["status"]

    processed = town.inbox() / "processed"
    assert {"a.txt": "Wind.", "a.1.txt": "Water."} == {p.name: p.read_text() for p in processed.iterdir()}
    assert ([str(processed / "a.txt")], []) == (town.found("wind"), town.found("water"))
    # What is indexed is what is on disk: nothing to put right.
    assert [] == list(town.app.verifier.differences())


@pytest.mark.parametrize("what", ["processed", "inbox"])
def test_a_walk_between_the_end_of_a_job_and_the_move_removes_nothing(town: Town, what: str):
    town.done(town.message(town.put("first.md", "Another wheel.")))
    path = town.put("a.md", "Water drives the wheel.")
    message = town.message(path)
    town.push(message)
    gateway = town.gateway()
    gateway.run_round()
    folder = town.inbox() / "processed" if what == "processed" else town.inbox()
    with town.app.worker_thread():
        town.app.wait(message["job_id"], timeout=60)
        walk = town.app.index(folder, collection="policies_rag")
        assert "done" == town.app.wait(walk.job_id, timeout=60).status
    # A walk that meets it where it lies takes it for moved there, and back again when it is.
    met = town.inbox() / ("processed" if what == "processed" else "incoming") / "a.md"
    assert [str(met)] == town.found("water")

    town.settle(gateway, message["job_id"])
    with town.app.worker_thread():
        walk = town.app.index(folder, collection="policies_rag")
        town.app.wait(walk.job_id, timeout=60)

    processed = town.inbox() / "processed"
    assert [str(processed / "a.md"), str(processed / "first.md")] == sorted(town.found("wheel"))
    assert [] == list(town.app.verifier.differences())


def test_a_file_that_was_taken_away_instead_of_moved_is_gone(town: Town):
    town.done(town.message(town.put("first.md", "Another wheel.")))
    path = town.put("a.md", "Water drives the wheel.")
    message = town.message(path)
    town.push(message)
    town.gateway().run_round()
    with town.app.worker_thread():
        town.app.wait(message["job_id"], timeout=60)
        path.unlink()
        walk = town.app.index(town.inbox() / "processed", collection="policies_rag")
        town.app.wait(walk.job_id, timeout=60)

    assert [str(town.inbox() / "processed" / "first.md")] == town.found("wheel")
