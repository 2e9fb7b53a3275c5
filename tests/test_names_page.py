"""The page of names: every name of the specifications is there, and what it names here exists."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import penstock
from penstock.cli.session import FORMER
from penstock.config import SETTINGS
from penstock.errors import PenstockError
from penstock.redis_contract import lists
from penstock.service.functions import Tasks
from tests.test_commands_in_docs import unknown

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "penstock"
PAGE = (ROOT / "docs" / "names.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and line != "| there | here |"
]
CODE = re.compile(r"`([^`]+)`")

THERE = {
    "S0": """unified_queue ingestion_queue content_ingestion_queue processing_queue missing_metadata_queue
        cumulative_deletions_queue content file folder project library delete_tenant delete_document rename
        ingest update delete scan unified_queue_migration.sql tenant_id idx_unified_queue_dequeue
        idx_unified_queue_idempotency idx_unified_queue_lease_expiry idx_unified_queue_collection_tenant""",
    "S1": """documents task_queue_page task_queue_chunk task_status HierarchicalTaskQueueManager
        hierarchical_task_manager.py hierarchical_worker_pool.py scheduler.py models.py task_queue_manager.py
        queue_worker_pool.py _nohf.md TASK_QUEUE_ENABLED TASK_QUEUE_CHECK_INTERVAL WORKER_POLL_INTERVAL
        HEARTBEAT_INTERVAL STALE_TASK_TIMEOUT MAX_TASK_RETRIES 012_hierarchical_task_queue.sql
        idx_tqp_document idx_tqp_ocr_status idx_tqp_ocr_heartbeat idx_tqp_vector_status
        idx_tqp_vector_heartbeat idx_tqp_graphrag_status idx_tqp_graphrag_heartbeat idx_tqc_page
        idx_tqc_document idx_tqc_vector_status idx_tqc_vector_heartbeat idx_tqc_graphrag_status
        idx_tqc_graphrag_heartbeat convert_status index_status ocr_details indexing_details""",
    "S2": """rag:ingest:queue rag:ingest:job:<job_id> rag:ingest:job:<job_id>:ttl rag:ingest:queue:dead-letter
        rag:ingest:queue:high rag:ingest:queue:normal rag:ingest:queue:low rag:ingest:queue:policies_rag
        configs/client/client.yaml redis://redis:6379/0 skip_validation reindex LLEN LINDEX LRANGE HGETALL
        ERR_PDF_INVALID <file>.error.json --skip-validation --watch""",
    "S3": """task_queue task_queue_updated_at BackgroundTaskProcessor function_registry validate_function_name
        validate_entity_exists validate_task_payload validate_status_transition task_to_dict
        get_pending_tasks_with_entity_locking
        update_task_status_atomically should_retry_task enqueue_retry calculate_retry_delay enqueue_task
        detect_stale_tasks cleanup_stale_tasks cleanup_completed_tasks enqueue_multiple_tasks
        TaskQueueTestCase test_constraint_violations idx_task_queue_status_created
        idx_task_queue_status_updated idx_task_queue_function idx_task_queue_entity PENDING IN_PROGRESS
        COMPLETED FAILED get_planner get_worker INVALID_STATUS""",
    "S4": """JobRecord JobStatus JobProgress JobQueueStore JobWorker JobQueueService JobEnqueueResponse
        job_store.py job_worker.py job_service.py index_queue.jsonl index_queue.snapshot index_queue.log
        .queue.lock enqueue_job get_job list_jobs cancel_job update_job append_job get_pending_jobs
        find_by_dedupe_key get_queue_stats get_queue_status_nonblocking index_documents
        _run_indexing_pipeline AGENT_BRAIN_MAX_QUEUE AGENT_BRAIN_JOB_TIMEOUT AGENT_BRAIN_MAX_RETRIES
        AGENT_BRAIN_CHECKPOINT_INTERVAL MAX_QUEUE_LENGTH MAX_RUNTIME_SECONDS MAX_RETRIES
        PROGRESS_CHECKPOINT_INTERVAL COMPACT_THRESHOLD INDEX_TIMEOUT QUERY_TIMEOUT --include-code
        --allow-external --limit api_client.py""",
}
"""Names that a reader of each document may look for."""


def section(name: str) -> str:
    return PAGE.partition(f"\n## {name}:")[2].partition("\n## ")[0]


@pytest.mark.parametrize("specification", THERE)
def test_every_name_of_a_specification_is_on_the_page(specification: str):
    names = {word for code in CODE.findall(section(specification)) for word in (code, *code.split())}

    assert set() == set(THERE[specification].split()) - names


def routes() -> set[str]:
    """Methods and paths of all routes, read from the modules: nothing has to be started."""
    found = set()
    for file in (PACKAGE / "http").glob("*.py"):
        text = file.read_text("utf-8")
        (prefix,) = re.findall(r"^router = APIRouter\(.*?prefix=\"([^\"]*)\"", text, re.MULTILINE) or [""]
        for method, path in re.findall(
            r"^@router\.(get|post|put|delete)\(\s*\"([^\"]*)\"", text, re.MULTILINE
        ):
            found.add(f"{method.upper()} {prefix}{path}")
    return found


def in_the_schemas() -> set[str]:
    scripts = [file.read_text("utf-8") for file in PACKAGE.glob("*/sql/migrations/sqlite/*.sql")]
    return set(
        re.findall(r"^CREATE (?:UNIQUE )?(?:TABLE|VIEW|INDEX) (\w+)", "\n".join(scripts), re.MULTILINE)
    )


def redis_names() -> set[str]:
    high = {f"{lists.QUEUE}:{word}" for word in lists.PRIORITIES}
    return {lists.QUEUE, lists.DEAD_LETTER, lists.job_key(""), f"{lists.QUEUE}:", *high}


def of_the_library(name: str) -> bool:
    owner: object = Tasks if name.startswith("app.tasks.") else penstock.Penstock
    return hasattr(owner, re.split(r"[.(]", name)[2 if owner is Tasks else 1])


def exists(name: str) -> bool | None:
    """Tell whether something exists here; None for what is neither a command, a name nor a file."""
    settings = {setting.env for setting in SETTINGS}
    codes = {kind.code for kind in _kinds(PenstockError)}
    if name in FORMER:
        return unknown(name.split(), former=True) is None
    if name.startswith("penstock "):
        return unknown(name.split()[1:]) is None
    if name.startswith("penstock."):
        return hasattr(penstock, re.split(r"[.(]", name)[1])
    if name.startswith("PENSTOCK_"):
        return name.partition("=")[0] in settings
    if name.startswith("app."):
        return of_the_library(name)
    if re.match(r"(GET|POST|PUT|DELETE) /", name):
        return name.rstrip("/") in routes()
    if name.startswith("rag:"):
        return name in redis_names()
    if name.startswith("ERR_"):
        return name in codes
    if name.endswith((".py", ".sql")) or name == "testing":
        return (PACKAGE / name).exists()
    return name in in_the_schemas() if re.fullmatch(r"idx_\w+|\w+_\w+|documents|sources", name) else None


def _kinds(kind: type[PenstockError]) -> list[type[PenstockError]]:
    return [kind, *(each for below in kind.__subclasses__() for each in _kinds(below))]


WORDS = frozenset("pending processing completed failed running done ready_for backoff".split())
"""Words of answers and arguments, which the tests of these hold."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_what_stands_on_the_right_exists(row: list[str]):
    assert 2 == len(row)
    names = set(CODE.findall(row[1]))

    assert set() == {name for name in names - WORDS if not exists(name)}
    assert names or re.search(r"the same|by itself|SQLite|port", row[1])


def test_every_alias_of_a_setting_leads_to_its_setting():
    for setting in SETTINGS:
        for alias in setting.aliases:
            (row,) = (row for row in ROWS if f"`{alias}`" in row[0])
            assert f"`{setting.env}`" in row[1], alias


def test_a_name_that_does_not_exist_is_found():
    code = "penstock frobnicate, PENSTOCK_NOTHING, app.tasks.nothing(), GET /nothing, no_table, a/b.py, rag:x"

    assert [False] * 7 == [exists(name) for name in code.split(", ")]


def test_arguments_of_the_client_are_arguments_that_it_takes():
    named = re.findall(r"penstock\.Client\((\w+)=", PAGE)
    assert named
    assert set(named) <= inspect.signature(penstock.Client).parameters.keys()
