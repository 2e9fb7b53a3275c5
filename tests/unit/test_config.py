"""Every setting by every name, and refused values."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys

import pytest

from penstock import config, errors
from tests.unit.turned_settings import TURNED

HOME = {"HOME": "/users/ada"}
ALIASES = {
    "AGENT_BRAIN_MAX_QUEUE": "max_queue",
    "AGENT_BRAIN_JOB_TIMEOUT": "job_timeout_s",
    "AGENT_BRAIN_MAX_RETRIES": "max_retries",
    "AGENT_BRAIN_CHECKPOINT_INTERVAL": "checkpoint_interval",
    "TASK_QUEUE_ENABLED": "queue_enabled",
    "TASK_QUEUE_CHECK_INTERVAL": "upkeep_s",
    "WORKER_POLL_INTERVAL": "poll_s",
    "HEARTBEAT_INTERVAL": "heartbeat_s",
    "STALE_TASK_TIMEOUT": "task_lease_s",
    "MAX_TASK_RETRIES": "max_retries",
}
BY_NAME = {setting.name: setting for setting in config.SETTINGS}


def load(environ=None, **overrides):
    return config.load({**HOME, **(environ or {})}, **overrides)


def test_every_setting_is_turned_here_and_every_alias():
    assert list(TURNED) == [name for name in TURNED if name in BY_NAME]
    assert set(BY_NAME) == set(TURNED)
    assert set(ALIASES) == {alias for setting in config.SETTINGS for alias in setting.aliases}
    assert [*BY_NAME, "sources"] == [field.name for field in dataclasses.fields(config.Settings)]


def test_settings_are_complete_and_equal_by_their_values():
    settings = load()

    assert load() == settings
    assert load(max_queue=7) != settings
    assert settings != "settings"
    assert 7 == dataclasses.replace(settings, max_queue=7).max_queue
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.max_queue = 7
    with pytest.raises(TypeError, match="no such setting: speed"):
        dataclasses.replace(settings, speed=7)
    with pytest.raises(TypeError, match="setting url has no value"):
        config.Settings()


@pytest.mark.parametrize("name", TURNED)
def test_its_variable_turns_a_setting(name):
    text, expected = TURNED[name]
    settings = load({BY_NAME[name].env: text})

    assert expected == getattr(settings, name)
    assert expected != getattr(load(), name)
    assert BY_NAME[name].env == settings.sources[name]


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_the_name_an_older_tool_used_turns_a_setting(alias, name):
    text, expected = TURNED[name]
    settings = load({alias: text})

    assert expected == getattr(settings, name)
    assert alias == settings.sources[name]


@pytest.mark.parametrize("name", TURNED)
def test_an_argument_turns_a_setting_as_text_and_as_value(name):
    text, expected = TURNED[name]

    assert expected == getattr(load(**{name: text}), name)
    assert expected == getattr(load(**{name: expected}), name)


def test_defaults_are_those_of_the_design():
    expected = {
        "url": "sqlite:////users/ada/.local/state/penstock/penstock.db",
        "catalog_url": "sqlite:////users/ada/.local/state/penstock/penstock.db",
        "state_dir": "/users/ada/.local/state/penstock",
        "tenant_id": "default",
        "collection": "default",
        "max_queue": 100,
        "max_queue_per_tenant": None,
        "max_function_queue": None,
        "max_payload_bytes": 4_194_304,
        "max_retries": 3,
        "job_timeout_s": 7200,
        "queue_enabled": True,
        "lease_s": 300.0,
        "lease_by_type": {},
        "task_lease_s": 120.0,
        "heartbeat_s": 30.0,
        "poll_s": 1.0,
        "upkeep_s": 60.0,
        "cancel_grace_s": 10.0,
        "recycle_after_jobs": 0,
        "recycle_growth_mb": 512,
        "checkpoint_interval": 50,
        "retention_days": 7,
        "failed_retention_days": 30,
        "embedder": "static",
        "graph": False,
        "graph_store": "default",
        "graph_store_timeout_s": 30.0,
        "graph_endpoint_url": None,
        "graph_endpoint_model": "gpt-4o-mini",
        "graph_endpoint_key": None,
        "graph_endpoint_timeout_s": 120.0,
        "graph_endpoint_calls": 4,
        "graph_endpoint_per_minute": None,
        "graph_endpoint_tokens": None,
        "models_dir": "/users/ada/.local/share/penstock/models",
        "embed_endpoint_url": None,
        "fastembed_model": "BAAI/bge-small-en-v1.5",
        "fastembed_pooling": "auto",
        "embed_endpoint_model": "text-embedding-3-small",
        "embed_endpoint_key": None,
        "embed_endpoint_dimension": 1536,
        "embed_endpoint_batch": 64,
        "embed_endpoint_timeout_s": 30.0,
        "embed_endpoint_calls": 4,
        "embed_endpoint_per_minute": None,
        "embed_endpoint_tokens": None,
        "rerank_endpoint_url": None,
        "rerank_endpoint_model": "BAAI/bge-reranker-v2-m3",
        "rerank_endpoint_key": None,
        "rerank_endpoint_timeout_s": 5.0,
        "vector_store": "default",
        "vector_store_timeout_s": 10.0,
        "usearch_from": 200_000,
        "max_file_mb": 64,
        "text_limit_mb": 64,
        "archives": False,
        "file_time_s": 20.0,
        "file_memory_mb": 640,
        "ocr": True,
        "ocr_workers": None,
        "ocr_languages": "eng",
        "ocr_tessdata_dir": None,
        "ocr_dpi": 300,
        "ocr_min_confidence": 72.0,
        "ocr_endpoint_url": None,
        "ocr_endpoint_model": "dots.ocr",
        "ocr_endpoint_key": None,
        "ocr_endpoint_timeout_s": 120.0,
        "pages_dir": None,
        "sqlite_synchronous": "FULL",
        "busy_timeout_s": 60.0,
        "postgres_pool_size": 4,
        "postgres_pooler": False,
        "postgres_timeout_s": 60.0,
        "contract_url": None,
        "rag_config": None,
        "rag_away_s": 86_400.0,
        "roots": (),
        "allow_external": False,
        "allow_web": False,
        "web_private": False,
        "web_delay_s": 0.5,
        "web_timeout_s": 60.0,
        "webhook_key": None,
        "webhook_key_file": None,
        "webhook_private": False,
        "time_zone": "UTC",
        "hosts": (),
        "proxies": (),
        "rate_limit": 6_000,
        "metrics_public": False,
        "log_format": "text",
        "serial": False,
        "body_limit_mb": 8,
        "server": None,
        "api_key": None,
        "api_key_file": None,
        "uploads_dir": None,
        "upload_quota_mb": 10_240,
    }

    assert expected == {one.name: one.value for one in config.describe(load())}
    assert {"default"} == {one.source for one in config.describe(load())}


@pytest.mark.parametrize(
    ("environ", "overrides", "expected", "source"),
    [
        ({}, {}, 3, "default"),
        ({"MAX_TASK_RETRIES": "4"}, {}, 4, "MAX_TASK_RETRIES"),
        (
            {"MAX_TASK_RETRIES": "4", "AGENT_BRAIN_MAX_RETRIES": "5"},
            {},
            5,
            "AGENT_BRAIN_MAX_RETRIES",
        ),
        ({"AGENT_BRAIN_MAX_RETRIES": "5", "PENSTOCK_MAX_RETRIES": "6"}, {}, 6, "PENSTOCK_MAX_RETRIES"),
        ({"PENSTOCK_MAX_RETRIES": "6"}, {"max_retries": 7}, 7, "argument"),
        ({"PENSTOCK_MAX_RETRIES": "6"}, {"max_retries": 0}, 0, "argument"),
        ({"PENSTOCK_MAX_RETRIES": "6"}, {"max_retries": None}, 6, "PENSTOCK_MAX_RETRIES"),
        ({"PENSTOCK_MAX_RETRIES": "", "MAX_TASK_RETRIES": "4"}, {}, 4, "MAX_TASK_RETRIES"),
    ],
)
def test_argument_then_own_variable_then_older_name_then_default(environ, overrides, expected, source):
    settings = load(environ, **overrides)

    assert (expected, source) == (settings.max_retries, settings.sources["max_retries"])


def test_a_bad_value_behind_a_better_one_does_no_harm():
    assert 6 == load({"PENSTOCK_MAX_RETRIES": "6", "MAX_TASK_RETRIES": "many"}).max_retries


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("PENSTOCK_MAX_QUEUE", "many", "a whole number from 1 to 10000000"),
        ("PENSTOCK_MAX_QUEUE", "0", "from 1"),
        ("PENSTOCK_MAX_QUEUE", "1e3", "whole number"),
        ("PENSTOCK_MAX_QUEUE", "1_000", "whole number"),
        ("PENSTOCK_MAX_QUEUE", "9" * 5000, "whole number"),
        ("AGENT_BRAIN_MAX_QUEUE", "-1", "from 1"),
        ("PENSTOCK_MAX_QUEUE_PER_TENANT", "off", "or none"),
        ("PENSTOCK_MAX_RETRIES", "-1", "from 0 to 1000"),
        ("PENSTOCK_JOB_TIMEOUT_S", "1.5", "whole number"),
        ("PENSTOCK_LEASE_S", "0", "seconds from 1"),
        ("PENSTOCK_LEASE_S", "nan", "seconds"),
        ("PENSTOCK_LEASE_S", "inf", "seconds"),
        ("PENSTOCK_LEASE_S", "5 minutes", "seconds"),
        ("HEARTBEAT_INTERVAL", "30s", "seconds"),
        ("PENSTOCK_LEASE_BY_TYPE", "file", "file=600,folder=900"),
        ("PENSTOCK_LEASE_BY_TYPE", "fiel=600", "item types"),
        ("PENSTOCK_LEASE_BY_TYPE", "file=0", "seconds from 1"),
        ("TASK_QUEUE_ENABLED", "perhaps", "true or false"),
        ("PENSTOCK_SQLITE_SYNCHRONOUS", "OFF", "FULL or NORMAL"),
        ("PENSTOCK_RETENTION_DAYS", "99999999999", "from 0 to 36500"),
        ("PENSTOCK_URL", "queue.db", "sqlite:///PATH"),
        ("PENSTOCK_URL", "sqlite:///a\0b", "a URL"),
        ("PENSTOCK_TENANT_ID", "a\nb", "printable"),
        ("PENSTOCK_COLLECTION", "a:b", "must not contain ':'"),
        ("PENSTOCK_STATE", "a\0b", "a directory"),
        ("PENSTOCK_STATE", "~no-such-user-here/x", "home directory"),
    ],
)
def test_a_bad_value_is_refused_with_its_variable_and_what_is_allowed(variable, value, allowed):
    with pytest.raises(errors.InvalidSetting) as refusal:
        load({variable: value})

    assert refusal.value.message.startswith(f"{variable} = {value[:200]!r}: ")
    assert allowed in refusal.value.message


@pytest.mark.parametrize(
    "overrides",
    [
        {"max_queue": True},
        {"max_queue": 1.5},
        {"lease_s": True},
        {"lease_s": [5]},
        {"state_dir": 5},
        {"state_dir": b"/srv"},
        {"url": 5},
        {"tenant_id": 5},
        {"lease_by_type": {"fiel": 5}},
        {"lease_by_type": ["file"]},
    ],
)
def test_a_bad_argument_is_refused_by_name(overrides):
    with pytest.raises(errors.InvalidSetting, match=rf"{next(iter(overrides))} \(argument\)"):
        load(**overrides)


def test_an_unknown_argument_is_refused_with_a_hint():
    with pytest.raises(errors.InvalidSetting, match="did you mean 'max_queue'"):
        load(max_queu=5)


@pytest.mark.parametrize("word", ["true", "TRUE", "yes", "on", "1", True])
def test_words_that_mean_yes(word):
    assert load(queue_enabled=word).queue_enabled is True


@pytest.mark.parametrize("word", ["false", "False", "no", "off", "0", False])
def test_words_that_mean_no(word):
    assert load(queue_enabled=word).queue_enabled is False


def test_none_in_a_variable_takes_a_limit_away():
    assert load({"PENSTOCK_MAX_QUEUE_PER_TENANT": "none"}).max_queue_per_tenant is None


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"PENSTOCK_HEARTBEAT_S": "300"}, "lease_s = 300"),
        ({"PENSTOCK_LEASE_S": "20"}, "lease_s = 20"),
        ({"STALE_TASK_TIMEOUT": "30"}, "task_lease_s = 30"),
        ({"PENSTOCK_LEASE_BY_TYPE": "file=5"}, "lease_by_type file = 5"),
    ],
)
def test_a_heartbeat_that_comes_too_late_is_refused(environ, named):
    with pytest.raises(errors.InvalidSetting, match="heartbeat_s") as refusal:
        load(environ)

    assert named in refusal.value.message
    assert "PENSTOCK_HEARTBEAT_S" in refusal.value.remedy


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sqlite:////srv/queue.db", "sqlite:////srv/queue.db"),
        ("postgresql://me@db/jobs", "postgresql://me@db/jobs"),
        ("jsonl:///srv/queue", "sqlite:////state/catalog.db"),
        ("memory://", "sqlite:////state/catalog.db"),
    ],
)
def test_documents_live_with_the_queue_where_they_can_else_in_the_state_directory(url, expected):
    assert expected == load(url=url, state_dir="/state").catalog_url


def test_a_url_of_its_own_is_not_moved_by_the_state_directory():
    assert "memory://" == load(url="memory://", state_dir="/srv").url


def test_without_an_argument_the_process_environment_is_read():
    script = "from penstock import config; print(config.load().max_queue)"
    environ = {**os.environ, "PENSTOCK_MAX_QUEUE": "41", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=True
    )

    assert "41" == done.stdout.strip()


def test_no_password_is_shown():
    settings = load(url="postgresql://ada:s3cret@host/db")
    with pytest.raises(errors.InvalidSetting) as refusal:
        load(url="POSTGRESQL://ada:s3cret@host/db")

    shown = [repr(settings), str(config.describe(settings)), refusal.value.message]
    assert [] == [text for text in shown if "s3cret" in text]


def test_what_is_described_can_be_written_as_json():
    described = config.describe(load({"PENSTOCK_LEASE_BY_TYPE": "file=600"}, state_dir="/srv"))
    read_back = json.loads(json.dumps([[one.name, one.value, one.source] for one in described]))

    assert ["lease_by_type", {"file": 600.0}, "PENSTOCK_LEASE_BY_TYPE"] in read_back
    assert ["state_dir", "/srv", "argument"] in read_back


@pytest.mark.parametrize("setting", config.SETTINGS, ids=lambda setting: setting.name)
def test_each_setting_says_what_it_is_for(setting):
    assert setting.doc.endswith(".")
    assert setting.allowed
    assert setting.default
    assert setting.env.startswith("PENSTOCK_")
