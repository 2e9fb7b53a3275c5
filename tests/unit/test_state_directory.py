"""The state directory: where it is by default, and which of a project counts."""

from __future__ import annotations

import json
import os
import shutil
import stat
import threading
from pathlib import Path

import pytest

from penstock import config, state_directory
from penstock.errors import InvalidSettingsFile, UntrustedState

HOME = {"HOME": "/users/ada"}


def load(environ=None, **overrides):
    return config.load({**HOME, **(environ or {})}, **overrides)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "/users/ada/.local/state/penstock"),
        ({"XDG_STATE_HOME": "/var/xdg"}, "/var/xdg/penstock"),
        ({"XDG_STATE_HOME": "relative/is/ignored"}, "/users/ada/.local/state/penstock"),
        ({"PENSTOCK_STATE": "/srv/a/../b/"}, "/srv/b"),
        ({"PENSTOCK_STATE": "~"}, "/users/ada"),
        ({"PENSTOCK_STATE": "~/queue"}, "/users/ada/queue"),
        ({"PENSTOCK_STATE": "/srv/~/x"}, "/srv/~/x"),
    ],
)
def test_where_the_state_is(environ, expected):
    settings = load(environ)

    assert Path(expected) == settings.state_dir
    assert f"sqlite:///{expected}/penstock.db" == settings.url


def test_a_relative_state_directory_is_fixed_when_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert tmp_path / "state" == load(state_dir="state").state_dir


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment with a home directory that can be written."""
    return {"HOME": str(tmp_path / "home")}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with an empty state directory, as working directory."""
    made = tmp_path / "project"
    (made / ".penstock").mkdir(parents=True)
    monkeypatch.chdir(made)
    return made


def clone(project: Path) -> Path:
    """A state directory that holds something and came from somewhere else."""
    directory = project / ".penstock"
    (directory / "keys.json").write_text('{"keys": [{"name": "planted"}]}')
    (directory / state_directory.TOKEN).write_text("of another machine")
    return directory


def listed(home: dict[str, str]) -> list[str]:
    return list(json.loads(Path(home["HOME"], ".config/penstock", state_directory.LIST).read_text()))


def test_a_project_has_its_state_in_the_nearest_directory_of_that_name(home, project, monkeypatch):
    below = project / "src" / "deep"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)

    assert project / ".penstock" == load(home).state_dir
    assert "/srv" == str(load(home, state_dir="/srv").state_dir)


def test_an_empty_directory_is_known_from_its_first_use_and_kept_from_others(home, project):
    (project / ".penstock").chmod(0o755)
    load(home)
    (project / ".penstock" / "penstock.db").touch()

    assert project / ".penstock" == load(home).state_dir
    assert [f"{project}/.penstock/"] == listed(home)
    assert 0o700 == stat.S_IMODE((project / ".penstock").stat().st_mode)
    assert 0o600 == stat.S_IMODE((project / ".penstock" / state_directory.TOKEN).stat().st_mode)
    assert "*\n" == (project / ".penstock" / ".gitignore").read_text()


def test_a_state_directory_of_a_clone_is_refused_and_not_touched(home, project):
    directory = clone(project)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}

    with pytest.raises(UntrustedState) as refusal:
        load(home)

    assert str(directory) in str(refusal.value)
    assert "--state" in refusal.value.remedy
    assert f"penstock config trust {directory}" in refusal.value.remedy
    assert before == {path.name: path.read_bytes() for path in directory.iterdir()}
    assert directory == load(home | {"PENSTOCK_STATE": str(directory)}).state_dir
    assert directory == load(home, state_dir=directory).state_dir


def test_one_further_up_does_not_stand_in_for_an_unknown_one(home, project, monkeypatch):
    load(home)
    inner = project / "vendor"
    (inner / ".penstock").mkdir(parents=True)
    clone(inner)
    monkeypatch.chdir(inner)

    with pytest.raises(UntrustedState, match="vendor"):
        load(home)


def test_trust_is_given_once_and_ends_when_it_is_revoked(home, project):
    directory = clone(project)
    state_directory.trust_state(directory, home)

    assert directory == load(home).state_dir
    # The text that came with it is known to whoever made it.
    assert "of another machine" != (directory / state_directory.TOKEN).read_text()
    state_directory.trust_state(directory, home, trust=False)
    with pytest.raises(UntrustedState):
        load(home)


@pytest.mark.parametrize("change", ["moved", "copied", "replaced"])
def test_trust_ends_where_the_directory_is_another_one(home, project, tmp_path, monkeypatch, change):
    load(home)
    (project / ".penstock" / "penstock.db").touch()
    place = project
    if change == "moved":
        place = project.rename(tmp_path / "elsewhere")
    elif change == "copied":
        place = shutil.copytree(project, tmp_path / "elsewhere")
    else:
        shutil.rmtree(project / ".penstock")
        (project / ".penstock").mkdir()
        clone(project)
    monkeypatch.chdir(place)

    with pytest.raises(UntrustedState, match="not known as yours"):
        load(home)


@pytest.mark.parametrize("xdg", [True, False])
def test_the_refusal_names_the_users_own_directory(home, project, tmp_path, xdg):
    clone(project)
    environ = {**home, "XDG_STATE_HOME": str(tmp_path / "my state")} if xdg else home

    with pytest.raises(UntrustedState) as refused:
        load(environ)

    own = f"'{tmp_path}/my state/penstock'" if xdg else "~/.local/state/penstock"
    assert f"give --state {own} with the command, or set PENSTOCK_STATE={own}." in refused.value.remedy
    assert f"penstock config trust {project}/.penstock. " in refused.value.remedy


def test_a_link_to_a_known_directory_is_not_known_itself(home, project, tmp_path, monkeypatch):
    load(home)
    hostile = tmp_path / "clone"
    hostile.mkdir()
    (hostile / ".penstock").symlink_to(project / ".penstock")
    monkeypatch.chdir(hostile)

    with pytest.raises(UntrustedState):
        load(home)
    state_directory.trust_state(hostile / ".penstock", home)

    assert hostile / ".penstock" == load(home).state_dir
    monkeypatch.chdir(project)
    assert project / ".penstock" == load(home).state_dir


def test_a_known_directory_is_known_by_every_way_to_it(home, project, tmp_path, monkeypatch):
    load(home)
    (project / ".penstock" / "penstock.db").touch()
    (tmp_path / "way").symlink_to(project)
    monkeypatch.chdir(tmp_path / "way")

    assert project / ".penstock" == load(home).state_dir


@pytest.mark.parametrize("environ", [{}, {"HOME": "relative"}])
def test_without_a_home_directory_none_is_known(project, environ):
    with pytest.raises(UntrustedState, match="no home directory") as refusal:
        config.load(environ)

    assert "--state" in refusal.value.remedy
    with pytest.raises(InvalidSettingsFile, match="no home directory"):
        state_directory.trust_state(project / ".penstock", environ)


def test_a_home_directory_that_cannot_be_written_is_named(project, tmp_path):
    (tmp_path / "home").write_text("a file in the place of a directory")

    with pytest.raises(UntrustedState, match=r"trusted\.json: cannot be (read|written)") as refusal:
        load({"HOME": str(tmp_path / "home")})

    assert "--state" in refusal.value.remedy
    assert [] == list((project / ".penstock").iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_empty_directory_that_cannot_be_written_is_refused(home, project):
    (project / ".penstock").chmod(0o500)

    with pytest.raises(UntrustedState, match="cannot be written"):
        load(home)


def test_two_commands_at_once_in_an_empty_directory_agree(home, project):
    failures: list[Exception] = []
    start = threading.Barrier(8)

    def use() -> None:
        start.wait()
        try:
            load(home)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [] == failures
    assert project / ".penstock" == load(home).state_dir


def test_lists_written_at_once_lose_nothing(home, tmp_path, monkeypatch):
    made = [tmp_path / f"project-{number}" / ".penstock" for number in range(8)]
    for directory in made:
        directory.mkdir(parents=True)
    threads = [threading.Thread(target=state_directory.trust_state, args=(each, home)) for each in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(f"{directory}/" for directory in made) == sorted(listed(home))


def test_the_directory_of_another_user_is_not_taken(home, project, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 54321)

    assert f"{home['HOME']}/.local/state/penstock" == str(load(home).state_dir)
    with pytest.raises(UntrustedState, match="another user"):
        state_directory.trust_state(project / ".penstock", home)


def test_an_emptied_directory_is_used_again(home, project):
    load(home)
    (project / ".penstock" / state_directory.TOKEN).unlink()

    assert project / ".penstock" == load(home).state_dir


@pytest.mark.parametrize("planted", ["!*\n", "", "*\n!penstock.db\n", None])
def test_a_directory_with_a_foreign_gitignore_is_not_empty(home, project, planted):
    """A clone may bring one, so that the next commit takes the state along."""
    ignored = project / ".penstock" / state_directory.IGNORE
    if planted is None:
        (project / "all").write_text("!*\n")
        ignored.symlink_to("../all")
    else:
        ignored.write_text(planted)

    with pytest.raises(UntrustedState):
        load(home)
    assert not (project / ".penstock" / state_directory.TOKEN).exists()


def test_a_directory_with_the_gitignore_of_penstock_is_empty(home, project):
    (project / ".penstock" / state_directory.IGNORE).write_text("*\n")

    assert project / ".penstock" == load(home).state_dir
