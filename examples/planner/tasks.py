"""Application with six functions and two entity types. Workers load it as ``examples.planner.tasks:app``.

A function runs twice if a worker dies between the work and its report. Every function here is idempotent.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from examples.planner.agents import Agents
from penstock import Penstock
from penstock.errors import TransientFailure
from penstock.handlers.context import Context

app = Penstock()
agents = Agents(app.settings.state_dir / "agents.db")

app.entity_type("planner", exists=agents.has_planner)
app.entity_type("worker", exists=agents.has_worker)


@app.function("execute_initial_planning", requires=["user_question", "instruction"])
def execute_initial_planning(payload: dict[str, Any], context: Context) -> str:
    """Store a plan with one step per mill, and call the function that creates the workers."""
    planner_id = context.payload["entity_id"]
    mills = [mill for (mill,) in agents.read("SELECT DISTINCT mill FROM grindings ORDER BY mill")]
    plan = [{"kind": "sql", "asks": mill} for mill in mills]
    plan.append({"kind": "standard", "asks": payload["user_question"]})
    agents.write("UPDATE planners SET plan = ? WHERE planner_id = ?", json.dumps(plan), planner_id)
    app.call("execute_task_creation", entity=("planner", planner_id), key=f"create:{planner_id}")
    return f"{len(plan)} steps: {payload['instruction']}"


@app.function("execute_task_creation")
def execute_task_creation(_: dict[str, Any], context: Context) -> list[str]:
    """Create one worker per step. The tasks of a worker run in order because they share an entity."""
    planner_id = context.payload["entity_id"]
    workers = []
    for number, step in enumerate(agents.plan_of(planner_id), 1):
        worker_id = f"{planner_id}-w{number}"
        agents.write(
            "INSERT OR IGNORE INTO workers (worker_id, planner_id, kind, asks) VALUES (?, ?, ?, ?)",
            worker_id,
            planner_id,
            step["kind"],
            step["asks"],
        )
        workers.append((worker_id, step["kind"]))
    # One transaction: all calls are added, or none.
    app.call_many(
        [
            {"name": name, "entity": ("worker", worker_id), "key": f"{name}:{worker_id}"}
            for worker_id, kind in workers
            for name in ("worker_initialisation", f"execute_{kind}_worker")
        ]
    )
    return [worker_id for worker_id, _ in workers]


@app.function("worker_initialisation")
def worker_initialisation(_: dict[str, Any], context: Context) -> None:
    agents.write("UPDATE workers SET ready = 1 WHERE worker_id = ?", context.payload["entity_id"])


@app.function("execute_sql_worker", max_retries=3, timeout=300)
def execute_sql_worker(_: dict[str, Any], context: Context) -> str:
    """Query the production figures. The first attempt fails, to show a retry."""
    if context.attempt == 1:
        raise TransientFailure("the books are in use", retry_after=timedelta(seconds=0.2))
    mill = _asked(context)
    ((sacks,),) = agents.read("SELECT sum(sacks) FROM grindings WHERE mill = ?", mill)
    return _finish(context, f"{mill} ground {sacks} sacks")


@app.function("execute_standard_worker")
async def execute_standard_worker(_: dict[str, Any], context: Context) -> str:
    return _finish(context, f"Asked was: {_asked(context)}")


@app.function("execute_synthesis")
def execute_synthesis(_: dict[str, Any], context: Context) -> str:
    planner_id = context.payload["entity_id"]
    found = agents.read(
        "SELECT result FROM workers WHERE planner_id = ? ORDER BY kind, worker_id", planner_id
    )
    answer = "; ".join(result for (result,) in found)
    agents.write("UPDATE planners SET answer = ? WHERE planner_id = ?", answer, planner_id)
    return answer


def _asked(context: Context) -> str:
    ((ready, asks),) = agents.read(
        "SELECT ready, asks FROM workers WHERE worker_id = ?", context.payload["entity_id"]
    )
    assert ready, "its initialisation comes first"
    return str(asks)


def _finish(context: Context, result: str) -> str:
    """Store the result. The last worker calls the synthesis; its key makes repeated calls one job."""
    worker_id = context.payload["entity_id"]
    agents.write("UPDATE workers SET result = ? WHERE worker_id = ?", result, worker_id)
    ((planner_id,),) = agents.read("SELECT planner_id FROM workers WHERE worker_id = ?", worker_id)
    if not agents.read("SELECT 1 FROM workers WHERE planner_id = ? AND result IS NULL", planner_id):
        app.call("execute_synthesis", entity=("planner", planner_id), key=f"synthesis:{planner_id}")
    return result
