"""The state directory: where it is by default, and which of a project counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import config

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


def test_a_project_has_its_state_in_the_nearest_directory_of_that_name(tmp_path, monkeypatch):
    below = tmp_path / "project" / "src" / "deep"
    below.mkdir(parents=True)
    (tmp_path / "project" / ".penstock").mkdir()
    monkeypatch.chdir(below)

    assert tmp_path / "project" / ".penstock" == load().state_dir
    assert "/srv" == str(load(state_dir="/srv").state_dir)


def test_somebody_elses_state_is_not_taken(tmp_path, monkeypatch):
    (tmp_path / ".penstock").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.geteuid", lambda: 54321)

    assert "/users/ada/.local/state/penstock" == str(load().state_dir)
