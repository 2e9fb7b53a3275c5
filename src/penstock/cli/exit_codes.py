"""Exit codes of ``penstock`` and their meanings, as in docs/reference/exit-codes.md."""

from __future__ import annotations

from penstock import errors

OK = 0
REFUSED = 1
USAGE = 2
NOT_SUBMITTED = 2
UNREADABLE = 8
INTERRUPTED = 130
PIPE_CLOSED = 141

EXIT_CODES: dict[int, str] = {
    OK: "Done. Files of a folder that failed in an earlier run and are unchanged since are listed, "
    "and do not count as failed.",
    REFUSED: "The request, or one of several, was refused, and wrote nothing; or a job, or a file of "
    "a folder, failed in this run.",
    USAGE: "The command line is wrong; for `ingest submit`: Redis did not accept the job.",
    3: "The configuration cannot be used.",
    4: "No job, document, project, entity, key or server has this id, path or name, or several ids do.",
    5: "The status of the job, or the model of the catalog, does not allow this.",
    6: "The queue is full. Try again later.",
    7: "The store, or the server, cannot be reached, written or read, or is damaged.",
    UNREADABLE: "The one file to index failed before, is unchanged since, and was not read again.",
    INTERRUPTED: "Interrupted from the keyboard.",
    PIPE_CLOSED: "The reader of the output has ended, as in `penstock jobs | head`.",
}

_BY_ERROR: tuple[tuple[type[errors.PenstockError], int], ...] = (
    (errors.ConfigError, 3),
    (errors.JobNotFound, 4),
    (errors.ScheduleNotFound, 4),
    (errors.LimitNotFound, 4),
    (errors.CollectionNotFound, 4),
    (errors.AmbiguousId, 4),
    (errors.UnknownDocument, 4),
    (errors.UnknownLibrary, 4),
    (errors.UnknownProject, 4),
    (errors.NotInGraph, 4),
    (errors.UnknownKey, 4),
    (errors.ServerNotRunning, 4),
    (errors.Conflict, 5),
    (errors.QueueFull, 6),
    (errors.StoreError, 7),
    (errors.ServerUnreachable, 7),
    (errors.InvalidAnswer, 7),
)


def exit_code(error: errors.PenstockError) -> int:
    return exit_code_of(type(error))


def exit_code_of(error_class: type[errors.PenstockError]) -> int:
    return next((code for known, code in _BY_ERROR if issubclass(error_class, known)), REFUSED)
