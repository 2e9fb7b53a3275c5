"""Settings files: precedence, refused content, and what a project's file may not do without trust."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock import config, errors
from tests.unit.test_config import BY_NAME
from tests.unit.turned_settings import TURNED

VALUES = TURNED | {"rag_config": ("/srv/rags.yaml", "/srv/rags.yaml")}
LOWER = ("max_file_mb", "text_limit_mb", "file_time_s", "file_memory_mb")
FREE = {"collection": "any"} | dict.fromkeys(LOWER, "lower")


class Place:
    """A home directory and a project with a folder below it, which is the working directory."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.project = root / "project"
        self.below = self.project / "a" / "b"
        self.below.mkdir(parents=True)
        self.environ = {"HOME": str(self.home)}
        self.user_file = self.home / ".config" / "penstock" / "penstock.toml"
        self.user_file.parent.mkdir(parents=True)
        self.project_file = self.project / "penstock.toml"

    def load(self, environ: dict[str, str] | None = None, **overrides: Any) -> config.Settings:
        all_variables = self.environ | (environ or {})
        files = config.read_all(all_variables, config.SETTINGS)
        return config.combine(overrides, all_variables, files)

    def trust(self, *, trust: bool = True) -> None:
        file = config.read(self.project_file, "project", config.SETTINGS, self.environ)
        trusted = config.places(self.environ).trusted
        assert trusted is not None
        config.set_trust(file, trusted, trust=trust)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(tmp_path)
    monkeypatch.chdir(made.below)
    return made


def toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {part}" for name, part in value.items()) + "}"
    return json.dumps(str(value) if isinstance(value, Path) else value)


# Places and precedence.


def test_argument_then_variable_then_project_then_user_then_default(place: Place):
    seen = [place.load().collection]
    place.user_file.write_text('collection = "user"')
    seen.append(place.load().collection)
    place.project_file.write_text('collection = "project"')
    seen.append(place.load().collection)
    environ = {"PENSTOCK_COLLECTION": "variable"}
    seen.append(place.load(environ).collection)
    seen.append(place.load(environ, collection="argument").collection)

    assert ["default", "user", "project", "variable", "argument"] == seen
    assert str(place.project_file) == place.load().sources["collection"]
    assert "PENSTOCK_COLLECTION" == place.load(environ).sources["collection"]


def test_the_nearest_file_counts_alone(place: Place):
    place.project_file.write_text('collection = "far"\nmax_file_mb = 1')
    (place.below / "penstock.toml").write_text('collection = "near"')

    assert ("near", 64) == (place.load().collection, place.load().max_file_mb)


@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [
        ({"HOME": "/users/ada"}, "linux", "/users/ada/.config/penstock/penstock.toml"),
        ({"HOME": "/users/ada", "XDG_CONFIG_HOME": "/etc/ada"}, "linux", "/etc/ada/penstock/penstock.toml"),
        (
            {"HOME": "/users/ada", "XDG_CONFIG_HOME": "ada"},
            "linux",
            "/users/ada/.config/penstock/penstock.toml",
        ),
        ({"HOME": "/users/ada"}, "darwin", "/users/ada/Library/Application Support/penstock/penstock.toml"),
        ({"APPDATA": "/ada/Roaming"}, "win32", "/ada/Roaming/penstock/penstock.toml"),
        ({}, "linux", "None"),
    ],
)
def test_the_users_file_is_in_the_configuration_directory(environ: Any, platform: str, expected: str):
    assert expected == str(config.places(environ, platform).user)


def test_a_process_with_an_environment_of_its_own_reads_no_file(place: Place):
    place.project_file.write_text("nonsense = [")

    assert "default" == config.load(place.environ).collection
    with pytest.raises(errors.InvalidSettingsFile):
        place.load()


def test_without_a_file_nothing_is_imported_for_it(tmp_path: Path):
    code = (
        "import sys; from penstock import config; config.load()\n"
        "print(sorted({'tomllib', 'json'} & set(sys.modules)))"
    )
    answer = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True
    )

    assert "[]\n" == answer.stdout


# Content.


@pytest.mark.parametrize("name", VALUES)
def test_the_users_file_sets_every_setting_by_its_own_type(place: Place, name: str):
    expected = VALUES[name][1]
    place.user_file.write_text(f"{name} = {toml(expected)}")

    assert expected == getattr(place.load(), name)
    for wrong in ("[1]", "2026-01-31", "true" if expected is not True and expected is not False else "1"):
        place.user_file.write_text(f"{name} = {wrong}")
        with pytest.raises(errors.InvalidSettingsFile) as refusal:
            place.load()
        assert refusal.value.message.startswith(f"{place.user_file}: {name} = ")
    if not isinstance(expected, str | Path):
        place.user_file.write_text(f"{name} = {toml(VALUES[name][0])}")
        with pytest.raises(errors.InvalidSettingsFile, match=r"without quotes|as a list"):
            place.load()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'colection = "x"', "unknown setting 'colection'; did you mean 'collection'?"),
        (b"[index]\npath = 1", "unknown setting 'index'"),
        (b'lease_by_type = {file = "600"}', "lease_by_type = "),
        (b"collection = x", "not valid TOML"),
        (b'collection = "\xff"', "not valid TOML"),
        (b"max_queue = " + b"9" * 5000, "not valid TOML"),
        (b"x = " + b"[" * 20_000, "nested too deeply"),
        (b"#" * 300_000, "larger than 262,144 bytes"),
        (b"lease_s = nan", "lease_s = 'nan'"),
        (b'url = "mill:secret@host"', "url = 'mill:***@host'"),
    ],
)
def test_bad_content_is_refused_with_file_and_key(place: Place, content: bytes, reason: str):
    for file in (place.user_file, place.project_file):
        file.write_bytes(content)
        with pytest.raises(errors.InvalidSettingsFile) as refusal:
            place.load()
        assert refusal.value.message.startswith(f"{file}: ")
        assert reason in refusal.value.message
        file.unlink()


def test_a_pipe_is_not_waited_for(place: Place):
    os.mkfifo(place.project_file)

    assert "default" == place.load().collection


@pytest.mark.parametrize(
    ("line", "name", "expected"),
    [
        ('url = "sqlite:///queue.db"', "url", "sqlite:///{folder}/queue.db"),
        ('url = "jsonl://queue"', "url", "jsonl://{folder}/queue"),
        ('url = "sqlite:////srv/queue.db"', "url", "sqlite:////srv/queue.db"),
        ('state_dir = "state"', "state_dir", "{folder}/state"),
        ('state_dir = "~/state"', "state_dir", "{home}/state"),
        ('rag_config = "rags.yaml"', "rag_config", "{folder}/rags.yaml"),
        ('pages_dir = "pages"', "pages_dir", "{folder}/pages"),
        ('uploads_dir = "uploads"', "uploads_dir", "{folder}/uploads"),
        ('roots = ["docs", "/srv"]', "roots", "('{folder}/docs', '/srv')"),
    ],
)
def test_relative_paths_start_at_the_file(place: Place, line: str, name: str, expected: str):
    place.user_file.write_text(line)

    folder = place.user_file.parent
    assert expected.format(folder=folder, home=place.home) == str(getattr(place.load(), name))


# Trust.


def test_only_these_settings_are_free():
    assert FREE == {
        name: setting.project for name, setting in BY_NAME.items() if setting.project != "trusted"
    }


@pytest.mark.parametrize("name", sorted(set(VALUES) - set(FREE)))
def test_a_project_file_may_not_set_it_without_trust(place: Place, name: str):
    text, expected = VALUES[name]
    place.project_file.write_text(f"{name} = {toml(expected)}")

    with pytest.raises(errors.UntrustedSetting) as refusal:
        place.load()
    assert f"{place.project_file} sets {name}" in refusal.value.message
    assert BY_NAME[name].env in refusal.value.remedy
    # What the user says is stronger, so the file's value does no harm.
    assert expected == getattr(place.load({BY_NAME[name].env: text}), name)
    place.trust()
    assert expected == getattr(place.load(), name)


@pytest.mark.parametrize("name", [name for name, rule in FREE.items() if rule == "lower"])
def test_a_project_file_may_lower_a_limit_but_not_raise_it(place: Place, name: str):
    usual = getattr(place.load(), name)
    place.project_file.write_text(f"{name} = {usual - 1}")
    assert usual - 1 == getattr(place.load(), name)

    place.project_file.write_text(f"{name} = {usual + 1}")
    with pytest.raises(errors.UntrustedSetting, match=f"{name} above {usual:g}"):
        place.load()

    place.project_file.write_text(f"{name} = {usual - 1}")
    place.user_file.write_text(f"{name} = {usual - 3}")
    with pytest.raises(errors.UntrustedSetting, match=f"{name} above {usual - 3:g}"):
        place.load()


def test_trust_ends_when_the_file_changes_and_when_it_is_revoked(place: Place):
    place.project_file.write_text('tenant_id = "acme"')
    place.trust()
    assert "acme" == place.load().tenant_id

    place.project_file.write_text('tenant_id = "evil"')
    with pytest.raises(errors.UntrustedSetting):
        place.load()

    place.trust()
    place.trust(trust=False)
    with pytest.raises(errors.UntrustedSetting):
        place.load()
    trusted = config.places(place.environ).trusted
    assert trusted is not None
    assert 0o600 == trusted.stat().st_mode & 0o777


def test_the_file_of_another_user_is_not_read_and_not_trusted(place: Place, monkeypatch: pytest.MonkeyPatch):
    place.project_file.write_text('collection = "theirs"')
    if os.geteuid() == 0:
        os.chown(place.project_file, 12_345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: place.project_file.stat().st_uid + 1)

    assert "default" == place.load().collection
    assert place.project_file == config.places(place.environ).foreign
    with pytest.raises(errors.UntrustedSetting, match="another user"):
        place.trust()


def test_a_link_of_another_user_is_not_followed(place: Place, monkeypatch: pytest.MonkeyPatch):
    own = place.project_file.with_name("own.toml")
    own.write_text('collection = "mine"')
    place.project_file.symlink_to(own)
    assert "mine" == place.load().collection

    if os.geteuid() == 0:
        os.lchown(place.project_file, 12_345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: place.project_file.lstat().st_uid + 1)

    assert "default" == place.load().collection
    with pytest.raises(errors.UntrustedSetting, match="another user"):
        place.trust()


def test_a_pipe_that_replaces_the_file_is_refused_at_once(place: Place):
    os.mkfifo(place.project_file)

    with pytest.raises(errors.InvalidSettingsFile, match="not a regular file"):
        config.read(place.project_file, "project", (), {})


def test_a_damaged_list_of_trusted_files_is_refused(place: Place):
    place.user_file.with_name("trusted.json").write_text("[")
    place.project_file.write_text('tenant_id = "acme"')

    with pytest.raises(errors.InvalidSettingsFile, match=r"trusted\.json"):
        place.load()
