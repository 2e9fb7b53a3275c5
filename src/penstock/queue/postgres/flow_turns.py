"""Where the flows of a transaction stand, kept up as its rows change: asking is a round trip a row."""

from __future__ import annotations

from penstock.job import Job, Status


class FlowTurns:
    """What is not known is not in it, and has to be asked of the rows."""

    def __init__(self) -> None:
        self.heads: dict[int, int | None] = {}
        self.lasts: dict[tuple[str, int], int | None] = {}

    def note(self, before: Job | None, after: Job) -> None:
        """A row changed, or (without ``before``) is new."""
        self._leave(before, after)
        if after.status is not Status.PENDING:
            return
        flow = (after.tenant_id, after.priority)
        if flow in self.lasts:
            last = self.lasts[flow]
            self.lasts[flow] = after.turn if last is None else max(last, after.turn)
        if _numbered(after) and after.priority in self.heads:
            head = self.heads[after.priority]
            self.heads[after.priority] = after.turn if head is None else min(head, after.turn)

    def _leave(self, before: Job | None, after: Job) -> None:
        """Forget a number that only the row as it was may have had."""
        if before is None or before.status is not Status.PENDING:
            return
        flow = (before.tenant_id, before.priority)
        stays = after.status is Status.PENDING and after.priority == before.priority
        if self.lasts.get(flow) == before.turn and not (stays and after.turn >= before.turn):
            self.lasts.pop(flow, None)
        ahead = stays and _numbered(after) and after.turn <= before.turn
        if _numbered(before) and self.heads.get(before.priority) == before.turn and not ahead:
            self.heads.pop(before.priority, None)


def _numbered(job: Job) -> bool:
    """Whether its turn can be the head's."""
    return job.status is Status.PENDING and job.held is None and job.turn >= 0
