"""Each setting changes behaviour, not only the result of the parser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, config
from penstock.assembly import Assembly
from tests.library.setting_effects import (
    Effect,
    accepted,
    allowed_pages,
    allowed_paths,
    asked_model,
    contract,
    copied_graph,
    embedding,
    embedding_or_error,
    engines,
    fastembed_options,
    fetched,
    files,
    guarded,
    index_from,
    job,
    limits,
    lock_of_a_folder,
    logged,
    ocr_workers,
    option,
    pool,
    pragma,
    progress_reports,
    recognition,
    refusal_of_a_large_payload,
    refusal_of_an_upload,
    requested,
    reranking,
    sender,
    sent_webhook,
    through_server,
    uploaded,
    vector_store,
    wanted_phases,
    written_pages,
)

_SERVER = {"server": "http://127.0.0.1:9"}
_ENDPOINT = {"embedder": "endpoint", "embed_endpoint_url": "http://127.0.0.1:8/v1"}
_MODEL = {"graph_endpoint_url": "http://127.0.0.1:8/v1"}
# A value other than the default, the observed effect, and other settings needed for the observation.
EFFECTS: dict[str, tuple[Any, Effect, dict[str, Any]]] = {
    "url": ("jsonl://{place}/queue", engines, {"catalog_url": "sqlite:///{place}/catalog.db"}),
    "catalog_url": ("sqlite:///{place}/elsewhere.db", engines, {}),
    "state_dir": ("{place}/elsewhere", files, {}),
    "tenant_id": ("acme", job, {}),
    "collection": ("notes", job, {}),
    "max_queue": (2, accepted("content", "ingest", lambda n: {"content": f"text {n}"}), {}),
    "max_queue_per_tenant": (2, accepted("content", "ingest", lambda n: {"content": f"text {n}"}), {}),
    "max_function_queue": (2, accepted("function", "run", lambda n: {"function_name": f"f{n}"}), {}),
    "max_payload_bytes": (1_000, refusal_of_a_large_payload, {}),
    "max_retries": (0, job, {}),
    "job_timeout_s": (5, job, {}),
    "time_zone": ("Asia/Tokyo", lambda s, _: Penstock(settings=s).schedules.add_call("@daily", "f").zone, {}),
    "queue_enabled": (False, option("processes"), {}),
    "lease_s": (45.0, option("lease"), {}),
    "lease_by_type": ({"file": 600.0}, option("lease_by_type"), {}),
    "task_lease_s": (90.0, option("task_lease"), {}),
    "heartbeat_s": (10.0, option("heartbeat_s"), {}),
    "poll_s": (5.0, option("poll_s"), {}),
    "upkeep_s": (15.0, option("upkeep_s"), {}),
    "cancel_grace_s": (2.5, option("grace_s"), {}),
    "recycle_after_jobs": (1_000, option("recycle_after"), {}),
    "recycle_growth_mb": (0, option("recycle_growth_mb"), {}),
    "checkpoint_interval": (10, progress_reports, {}),
    "retention_days": (0, option("retention"), {}),
    "failed_retention_days": (7, option("retention"), {}),
    "embedder": ("static", limits, {}),
    "graph": (True, wanted_phases, {}),
    "vector_store": ("pgvector://127.0.0.1:1/db", vector_store, {}),
    "vector_store_timeout_s": (3.0, vector_store, {"vector_store": "pgvector://127.0.0.1:1/db"}),
    "usearch_from": (1_000, index_from, {}),
    "max_file_mb": (8, limits, {}),
    "text_limit_mb": (8, limits, {}),
    "archives": (True, requested, {}),
    "file_time_s": (2.5, limits, {}),
    "file_memory_mb": (100, limits, {}),
    "ocr": (False, recognition, {}),
    "ocr_workers": (2, ocr_workers, {}),
    "ocr_languages": ("deu+eng", recognition, {}),
    "ocr_tessdata_dir": ("{place}/tessdata", recognition, {}),
    "models_dir": ("{place}/models", lambda settings, _: Assembly(settings).models.directory, {}),
    "fastembed_model": ("{place}/model", fastembed_options, {}),
    "fastembed_pooling": ("cls", fastembed_options, {}),
    "embed_endpoint_url": ("http://127.0.0.1:9/v1", embedding_or_error, {"embedder": "endpoint"}),
    "embed_endpoint_model": ("other", embedding, _ENDPOINT),
    "embed_endpoint_key": ("secret", embedding, _ENDPOINT),
    "embed_endpoint_dimension": (8, embedding, _ENDPOINT),
    "embed_endpoint_batch": (8, embedding, _ENDPOINT),
    "embed_endpoint_timeout_s": (5.0, embedding, _ENDPOINT),
    "embed_endpoint_calls": (1, embedding, _ENDPOINT),
    "embed_endpoint_per_minute": (60, embedding, _ENDPOINT),
    "embed_endpoint_tokens": (1000, embedding, _ENDPOINT),
    "graph_store": ("neo4j://127.0.0.1:9", copied_graph, {}),
    "graph_store_timeout_s": (5.0, copied_graph, {"graph_store": "neo4j://127.0.0.1:9"}),
    "graph_endpoint_url": ("http://127.0.0.1:9/v1", asked_model, {}),
    "graph_endpoint_model": ("other", asked_model, _MODEL),
    "graph_endpoint_key": ("secret", asked_model, _MODEL),
    "graph_endpoint_timeout_s": (5.0, asked_model, _MODEL),
    "graph_endpoint_calls": (1, asked_model, _MODEL),
    "graph_endpoint_per_minute": (60, asked_model, _MODEL),
    "graph_endpoint_tokens": (1000, asked_model, _MODEL),
    "rerank_endpoint_url": ("http://127.0.0.1:9/v1", reranking, {}),
    "rerank_endpoint_model": ("other", reranking, {"rerank_endpoint_url": "http://127.0.0.1:9/v1"}),
    "rerank_endpoint_key": ("secret", reranking, {"rerank_endpoint_url": "http://127.0.0.1:9/v1"}),
    "rerank_endpoint_timeout_s": (2.0, reranking, {"rerank_endpoint_url": "http://127.0.0.1:9/v1"}),
    "ocr_dpi": (200, recognition, {}),
    "ocr_min_confidence": (50.0, recognition, {}),
    "ocr_endpoint_url": ("http://127.0.0.1:9/v1", recognition, {}),
    "ocr_endpoint_model": ("other", recognition, {"ocr_endpoint_url": "http://127.0.0.1:9/v1"}),
    "ocr_endpoint_key": ("secret", recognition, {"ocr_endpoint_url": "http://127.0.0.1:9/v1"}),
    "ocr_endpoint_timeout_s": (5.0, recognition, {"ocr_endpoint_url": "http://127.0.0.1:9/v1"}),
    "pages_dir": ("{place}/pages", written_pages, {}),
    "sqlite_synchronous": ("NORMAL", pragma("synchronous"), {}),
    "busy_timeout_s": (1.0, pragma("busy_timeout", "read"), {}),
    "postgres_pool_size": (2, pool, {}),
    "postgres_pooler": (True, pool, {}),
    "postgres_timeout_s": (5.0, pool, {}),
    "contract_url": ("redis://other:6379/0", contract, {"rag_config": "{place}/rags.yaml"}),
    "rag_config": ("{place}/rags.yaml", contract, {"contract_url": "redis://other:6379/0"}),
    "rag_away_s": (60.0, contract, {"rag_config": "{place}/rags.yaml"}),
    "roots": ("/usr/bin:/usr/share", allowed_paths, {}),
    "allow_external": (True, allowed_paths, {}),
    "allow_web": (True, allowed_pages, {}),
    "web_private": (True, fetched, {}),
    "web_delay_s": (2.0, fetched, {}),
    "web_timeout_s": (5.0, fetched, {}),
    "webhook_key": ("a secret of the mill", sent_webhook, {}),
    "webhook_key_file": ("{place}/webhook", sent_webhook, {}),
    "webhook_private": (True, sent_webhook, {"webhook_key": "a secret of the mill"}),
    "hosts": ("mill.example", guarded, {}),
    "proxies": ("10.0.0.7", sender, {}),
    "rate_limit": (5, guarded, {}),
    "metrics_public": (True, guarded, {}),
    "log_format": ("json", logged, {}),
    "serial": (True, lock_of_a_folder, {}),
    "body_limit_mb": (1, guarded, {}),
    "uploads_dir": ("{place}/received", uploaded, {}),
    "upload_quota_mb": (1, refusal_of_an_upload, {}),
    "server": ("http://127.0.0.1:9", through_server, {}),
    "api_key": ("ps_miller", through_server, _SERVER),
    "api_key_file": ("{place}/key", through_server, _SERVER),
}


def test_every_setting_has_an_effect_here():
    assert [setting.name for setting in config.SETTINGS] == sorted(
        EFFECTS, key=[setting.name for setting in config.SETTINGS].index
    )


@pytest.mark.parametrize("name", EFFECTS)
def test_a_setting_changes_what_is_done(name: str, tmp_path: Path):
    value, effect, needed = EFFECTS[name]
    seen: list[str] = []
    for given in ({}, {name: value}):
        place = tmp_path / str(len(seen))
        place.mkdir()
        # The default embedder takes long to load.
        chosen = {"state_dir": "{place}/state", "embedder": "hashing"} | needed | given
        filled: dict[str, Any] = {
            key: text.replace("{place}", str(place)) if isinstance(text, str) else text
            for key, text in chosen.items()
        }
        answer = effect(config.load({}, **filled), place)
        seen.append(repr(answer).replace(str(place), "PLACE"))

    assert seen[0] != seen[1]
