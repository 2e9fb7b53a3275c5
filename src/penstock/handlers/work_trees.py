"""Jobs bound to a branch: while another branch is checked out, the files on the disk are not theirs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from penstock.handlers.context import Context
from penstock.handlers.registry import Later
from penstock.pipeline.walk.repository import SWITCHING, WORK_TREE, other_state

SWITCH_DELAY = timedelta(seconds=1)


def other_branch(context: Context) -> dict[str, Any] | Later | None:
    """The result of a job for a branch not, or not yet, checked out; None: the job can go on."""
    root = context.metadata.get(WORK_TREE)
    reason = other_state(root, context.claim.branch) if isinstance(root, str) else None
    if reason is None:
        return None
    return Later(reason, SWITCH_DELAY) if reason == SWITCHING else {"outcome": "kept", "note": reason}
