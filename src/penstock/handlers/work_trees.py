"""Jobs bound to a branch: while another branch is checked out, the files on the disk are not theirs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from penstock import clock
from penstock.handlers.child_jobs import same_job
from penstock.handlers.context import Context
from penstock.handlers.registry import Later, Wait
from penstock.pipeline.walk.repository import SWITCHING, WORK_TREE, checked_out, other_state
from penstock.schedule import SCHEDULE

SWITCH_DELAY = timedelta(seconds=1)


def other_branch(context: Context) -> dict[str, Any] | Later | None:
    """The result of a job for a branch not, or not yet, checked out; None: the job can go on."""
    root = context.metadata.get(WORK_TREE)
    reason = other_state(root, context.claim.branch) if isinstance(root, str) else None
    if reason is None:
        return None
    return Later(reason, SWITCH_DELAY) if reason == SWITCHING else {"outcome": "kept", "note": reason}


def scheduled_for_another(context: Context) -> Wait | None:
    """Let a child do the work of a schedule's job, which is for the branch that is checked out at its time.

    None: the job is of no schedule, or its branch is checked out.
    """
    root = context.metadata.get(WORK_TREE)
    if not isinstance(root, str) or SCHEDULE not in context.metadata or context.claim.parent_id is not None:
        return None
    branch = checked_out(root)
    if branch is None or branch == context.claim.branch:
        return None
    context.expand([same_job(context, clock.new_id(), branch)])
    result = {"outcome": "indexed", "note": f"branch {branch} is checked out"}
    return Wait(progress_json=context.last_progress, result_json=msgspec.json.encode(result).decode())
