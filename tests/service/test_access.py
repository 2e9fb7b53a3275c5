"""Rules of access to a server: keys, tenants, paths, rates and the runtime file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from penstock import clock, state_directory
from penstock.errors import (
    InvalidName,
    InvalidRequest,
    KeyExists,
    NotAllowed,
    PathNotFound,
    PathOutside,
    RateLimited,
    ServerNotRunning,
    ServerRunning,
    StateDamaged,
    UnknownKey,
)
from penstock.service.access import SCOPES, PathPolicy, Principal
from penstock.service.keys import ActionLog, Keys
from penstock.service.runtime_file import RunningServer, RuntimeFile
from penstock.service.shares import RateLimit


def principal(scope: Any = "write", *tenants: str) -> Principal:
    return Principal(name="k", scope=scope, tenants=tenants)


@pytest.mark.parametrize("held", SCOPES)
@pytest.mark.parametrize("needed", SCOPES)
def test_a_scope_includes_those_before_it(held: Any, needed: Any):
    if SCOPES.index(held) >= SCOPES.index(needed):
        principal(held).require(needed)
    else:
        with pytest.raises(NotAllowed):
            principal(held).require(needed)


def test_the_tenant_of_a_request():
    assert "default" == principal("read").tenant(None, "default")
    assert "other" == principal("read").tenant("other", "default")
    assert "acme" == principal("read", "acme").tenant(None, "default")
    assert "b" == principal("read", "a", "b").tenant(None, "b")
    with pytest.raises(InvalidRequest, match="a, b"):
        principal("read", "a", "b").tenant(None, "default")
    with pytest.raises(NotAllowed):
        principal("read", "acme").tenant("default", "default")
    with pytest.raises(InvalidName):
        principal("admin").tenant("*", "default")


@pytest.mark.parametrize(
    ("sender", "tenant", "collection", "expected"),
    [
        (principal("admin"), "*", None, ("*", None)),
        (principal("admin"), None, "docs", (None, "docs")),
        (principal("admin", "acme"), None, "docs", ("acme", "docs")),
        (principal("write", "acme"), "acme", None, ("acme", None)),
        (principal("write", "acme"), "*", None, None),
        (principal("admin", "acme"), "*", None, None),
        (principal("write", "acme"), "globex", None, None),
        (principal("write"), "acme", None, None),
        (principal("read", "acme"), "acme", None, None),
    ],
)
def test_who_may_pause_what(sender: Principal, tenant: str | None, collection: str | None, expected: object):
    if expected is None:
        with pytest.raises(NotAllowed):
            sender.require_pause(tenant, collection)
    else:
        assert expected == sender.require_pause(tenant, collection)


# Keys.


def test_a_key_is_found_until_it_is_revoked_also_by_another_process(tmp_path: Path):
    server, command = Keys(tmp_path / "state"), Keys(tmp_path / "state")
    assert not server.exist()

    made = command.create("ci", "write", ["acme", "acme"])

    assert server.exist()
    assert Principal(name="ci", scope="write", tenants=("acme",), auth="key") == server.find(made.key)
    assert None is server.find(made.key + "x") is server.find("")
    assert made.key not in (tmp_path / "state" / "keys.json").read_text()
    command.revoke("ci")
    assert server.find(made.key) is None
    assert not server.exist()
    assert [] == command.all()


def test_names_of_keys_are_checked_and_unique(tmp_path: Path):
    keys = Keys(tmp_path)
    keys.create("ci", "read")

    with pytest.raises(KeyExists):
        keys.create("ci", "admin")
    for name in ("", "a b", "a\nb", "-a", "a" * 65, "../a"):
        with pytest.raises(InvalidName):
            keys.create(name, "read")
    with pytest.raises(InvalidRequest):
        keys.create("other", "root")  # type: ignore[arg-type]
    with pytest.raises(InvalidName):
        keys.create("other", "read", ["*"])
    with pytest.raises(UnknownKey):
        keys.revoke("other")
    assert [("ci", "read")] == [(key.name, key.scope) for key in keys.all()]


def test_a_damaged_file_of_keys_lets_no_one_in(tmp_path: Path):
    keys = Keys(tmp_path)
    (tmp_path / "keys.json").write_text("[{")

    for call in (keys.exist, keys.all, lambda: keys.create("a", "read")):
        with pytest.raises(StateDamaged):
            call()
    assert "[{" == (tmp_path / "keys.json").read_text()


# Paths.


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "state").mkdir(parents=True)
    (tmp_path / "root" / "a.md").write_text("a")
    (tmp_path / "root-2").mkdir()
    (tmp_path / "secret.md").write_text("secret")
    (tmp_path / "root" / "link.md").symlink_to(tmp_path / "secret.md")
    (tmp_path / "root" / "up").symlink_to("..")
    return tmp_path / "root"


@pytest.mark.parametrize(
    "path", ["a.md", "./a.md", "{root}/a.md", "{root}", "up/root/a.md", "nothing.md", "{root}//a.md/"]
)
def test_a_path_below_a_root_is_allowed(root: Path, path: str):
    policy = PathPolicy([str(root)], str(root / "state"), allow_external=False)

    assert policy.allowed(path.format(root=root)).startswith(str(root))


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "/",
        "{root}-2",
        "{root}/../secret.md",
        "link.md",
        "up",
        "up/secret.md",
        "state",
        "state/keys.json",
    ],
)
@pytest.mark.parametrize("asked", [False, True])
def test_a_path_elsewhere_is_refused_and_named_as_it_was_sent(root: Path, path: str, asked: bool):
    policy = PathPolicy([str(root)], str(root / "state"), allow_external=False)
    sent = path.format(root=root)

    with pytest.raises(PathOutside) as refusal:
        policy.allowed(sent, allow_external=asked)

    assert f"Path '{sent}' is outside project. Use --allow-external to override." == refusal.value.message


def test_external_paths_need_both_the_setting_and_the_request(root: Path):
    policy = PathPolicy([str(root)], str(root / "state"), allow_external=True)

    assert str(root.parent / "secret.md") == policy.allowed("link.md", allow_external=True)
    for path, asked in (("link.md", False), ("state/keys.json", True)):
        with pytest.raises(PathOutside):
            policy.allowed(path, allow_external=asked)
    for path in ("", "a\0b", "\ud800"):
        with pytest.raises(PathNotFound):
            policy.allowed(path)


# Rates.


def test_a_bucket_of_requests_fills_up_with_time(monkeypatch: pytest.MonkeyPatch):
    time = 100.0
    monkeypatch.setattr(clock, "elapsed_s", lambda: time)
    limit = RateLimit(60)

    for _ in range(60):
        limit.count("a")
    with pytest.raises(RateLimited) as refusal:
        limit.count("a")
    limit.count("b")
    time += refusal.value.retry_after
    limit.count("a")

    assert 1 == refusal.value.retry_after
    with pytest.raises(RateLimited):
        limit.count("a")


def test_no_limit_counts_nothing():
    for _ in range(1000):
        RateLimit(None).count("a")


# The running server.


def running() -> RunningServer:
    return RunningServer(url="http://127.0.0.1:1", pid=os.getpid(), started_at=clock.now(), worker=False)


def test_a_running_server_is_found_and_a_second_one_refused(tmp_path: Path):
    first, other = RuntimeFile(tmp_path), RuntimeFile(tmp_path)
    first.take()
    assert other.find() is None
    first.write(running())

    assert "http://127.0.0.1:1" == other.find().url  # type: ignore[union-attr]
    with pytest.raises(ServerRunning, match=f"process {os.getpid()}"):
        other.take()
    first.release()
    assert other.find() is None
    other.take()
    other.release()


def test_the_file_of_a_killed_server_counts_as_none(tmp_path: Path):
    (tmp_path / "server.json").write_text(
        '{"url":"http://127.0.0.1:1","pid":1,"started_at":"2026-01-01T00:00:00Z","worker":true}'
    )

    assert RuntimeFile(tmp_path).find() is None
    with pytest.raises(ServerNotRunning):
        RuntimeFile(tmp_path).stop(1)


def test_an_audit_line_is_json_whatever_its_texts_hold(tmp_path: Path):
    audit = ActionLog(tmp_path / "state")

    audit.record("a\nb", "pause", tenant_id='x"\n', collection=None)

    (line,) = (tmp_path / "state" / "audit.jsonl").read_text().splitlines()
    found = json.loads(line)
    assert {"by": "a\nb", "action": "pause", "tenant_id": 'x"\n'} == {
        k: v for k, v in found.items() if k != "at"
    }


def own_state(directory: Path) -> Keys:
    """Keys of a state directory with a secret, as a project has it."""
    directory.mkdir()
    (directory / state_directory.TOKEN).write_text("known to nobody else")
    return Keys(directory)


def test_a_key_that_was_brought_into_a_directory_does_not_count(tmp_path: Path):
    ours = own_state(tmp_path / "ours")
    key = ours.create("ci", "write", ["acme"]).key
    planted = Keys(tmp_path / "theirs").create("planted", "admin").key
    assert ours.find(key) is not None

    # As a pull by git does with files that it ignores.
    (tmp_path / "theirs" / "keys.json").replace(tmp_path / "ours" / "keys.json")

    for use in (lambda: ours.find(planted), ours.ever_made, ours.all, lambda: ours.create("more", "read")):
        with pytest.raises(StateDamaged, match="'planted'") as refusal:
            use()
        assert f"penstock config trust {tmp_path / 'ours'}" in refusal.value.remedy
    assert "planted" in (tmp_path / "ours" / "keys.json").read_text()


@pytest.mark.parametrize("change", [{"scope": "admin"}, {"tenants": []}, {"roots": ["/srv"]}, {"name": "a"}])
def test_a_key_that_was_changed_does_not_count(tmp_path: Path, change: dict[str, Any]):
    ours = own_state(tmp_path / "ours")
    key = ours.create("ci", "write", ["acme"]).key
    file = tmp_path / "ours" / "keys.json"
    (stored,) = json.loads(file.read_text())
    file.write_text(json.dumps([stored | change]))

    with pytest.raises(StateDamaged):
        ours.find(key)


def test_keys_of_a_directory_that_became_trusted_count(tmp_path: Path):
    keys = Keys(tmp_path / "state")
    key = keys.create("ci", "write").key
    (tmp_path / "state" / state_directory.TOKEN).write_text("a secret")
    with pytest.raises(StateDamaged):
        Keys(tmp_path / "state").find(key)

    keys.seal()
    found = Keys(tmp_path / "state").find(key)

    assert found is not None
    assert "ci" == found.name
    (tmp_path / "state" / "keys.json").write_text("[{")
    keys.seal()
    assert "[{" == (tmp_path / "state" / "keys.json").read_text()
