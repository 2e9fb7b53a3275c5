"""Tasks waiting for a service, run in a thread beside the other work of the process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from penstock.catalog.protocol import Catalog
from penstock.catalog.rules import publication
from penstock.catalog.values import Phase, Task, TaskOutcome
from penstock.errors import StoreError
from penstock.vocabulary import how_many

log = logging.getLogger("penstock.worker")


class BackgroundBatch:
    """A batch run and settled in a separate thread. The process may end before the thread does."""

    def __init__(
        self, catalog: Catalog, tasks: list[Task], run: Callable[[Sequence[Task]], list[TaskOutcome]]
    ) -> None:
        self._catalog = catalog
        self._tasks = tasks
        self._run = run
        self._left = [publication.released(task) for task in tasks]
        """Outcomes not settled: to give the tasks back, until there are better ones."""
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="penstock-service-tasks", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    @property
    def held(self) -> frozenset[tuple[Phase, int]]:
        """Lane and id of its tasks."""
        return frozenset((task.lane, task.task_id) for task in self._tasks)

    def left(self) -> list[TaskOutcome]:
        """The outcomes left unsettled. Raises the thread's error, unless the store was at fault."""
        if self._error is not None:
            raise self._error
        return self._left

    def _work(self) -> None:
        try:
            self._left = self._run(self._tasks)
            settled = self._catalog.settle(self._left)
            self._left = []
        except StoreError as error:
            log.warning("results of a service could not be stored yet: %s", error)
        except BaseException as error:  # noqa: BLE001 - raised in the main thread
            self._error = error
        else:
            if late := settled.count(None):
                log.warning(
                    "%s came too late: the tasks had been taken from this worker", how_many(late, "result")
                )
