"""The base class, and errors of requests."""

from __future__ import annotations

from typing import ClassVar


class PenstockError(Exception):
    """Base of every error Penstock raises on purpose."""

    code: ClassVar[str] = "ERR_PENSTOCK"
    default_remedy: ClassVar[str] = "Report this as a bug with the full message."

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy or self.default_remedy


class InvalidRequest(PenstockError, ValueError):
    """The request is not valid; nothing was written."""

    code = "ERR_INVALID_REQUEST"
    default_remedy = "Correct the request and send it again."


class UnknownOption(InvalidRequest, TypeError):
    """The call has no option of this name."""

    code = "ERR_UNKNOWN_OPTION"
    default_remedy = "Use one of the options of the call."


class UnknownItemType(InvalidRequest):
    """The item type is unknown."""

    code = "ERR_UNKNOWN_ITEM_TYPE"
    default_remedy = "Use one of the item types named in the message."


class UnknownOperation(InvalidRequest):
    """The operation is unknown."""

    code = "ERR_UNKNOWN_OP"
    default_remedy = "Use one of the operations named in the message."


class UnsupportedOperation(InvalidRequest):
    """This item type does not have this operation."""

    code = "ERR_UNSUPPORTED_OP"
    default_remedy = "Use one of the operations this item type has."


class InvalidPayload(InvalidRequest):
    """The payload lacks a field, has a wrong type, or is not JSON."""

    code = "ERR_INVALID_PAYLOAD"
    default_remedy = "Compare the payload with docs/reference/items.md."


class PayloadTooLarge(InvalidRequest):
    """The payload is larger than the configured limit."""

    code = "ERR_PAYLOAD_TOO_LARGE"
    default_remedy = "Send a path instead of the content, or raise PENSTOCK_MAX_PAYLOAD_BYTES."


class InvalidText(InvalidRequest):
    """A string holds a NUL or a lone surrogate, which no store can keep."""

    code = "ERR_INVALID_TEXT"
    default_remedy = "Remove NUL characters and lone surrogates from the text."


class RelativePath(InvalidRequest):
    """A path must be absolute: the worker has another working directory."""

    code = "ERR_RELATIVE_PATH"
    default_remedy = "Give the absolute path."


class InvalidPriority(InvalidRequest):
    """The priority is not a whole number from 0 to 10."""

    code = "ERR_INVALID_PRIORITY"
    default_remedy = "Use a whole number from 0 (bulk) to 10 (a person is waiting)."


class InvalidName(InvalidRequest):
    """A tenant, collection, branch, id or key is empty, too long or not printable."""

    code = "ERR_INVALID_NAME"
    default_remedy = "Use 1 to 255 printable characters."


class InvalidTime(InvalidRequest):
    """A time has no zone, or a delay is negative or absurd."""

    code = "ERR_INVALID_TIME"
    default_remedy = "Use ISO 8601 with a zone, such as 2026-01-31T12:00:00Z."


class InvalidSchedule(InvalidRequest):
    """A cron expression, an interval, a time zone or the rule for missed runs is wrong."""

    code = "ERR_INVALID_SCHEDULE"
    default_remedy = "Use five cron fields such as '0 3 * * *', a name such as @daily, or 'every 15m'."


class InvalidLimit(InvalidRequest):
    """The key, the number or the rate of a limit is wrong, or a job cannot have a limit."""

    code = "ERR_INVALID_LIMIT"
    default_remedy = "Give a number of concurrent jobs, a rate such as 60/min, or both."


class UnknownStatus(InvalidRequest):
    """The word is not a status."""

    code = "ERR_UNKNOWN_STATUS"
    default_remedy = "Use pending, in_progress, done, failed or cancelled."


class DuplicateId(InvalidRequest):
    """A job with the given id exists already."""

    code = "ERR_DUPLICATE_ID"
    default_remedy = "Use a new id, or none."


class UnknownDependency(InvalidRequest):
    """A job names another one to wait for that does not exist."""

    code = "ERR_UNKNOWN_DEPENDENCY"
    default_remedy = "Name existing jobs, or jobs of the same call, by their whole ids."


class DependencyCycle(InvalidRequest):
    """Jobs of one call would wait for each other."""

    code = "ERR_DEPENDENCY_CYCLE"
    default_remedy = "Remove one of the dependencies named in the message."


class OtherDependencies(InvalidRequest):
    """A live job has the same key, and waits for other jobs or for none."""

    code = "ERR_OTHER_DEPENDENCIES"
    default_remedy = "Use another key or force, or name the jobs that the live one waits for."


class UnknownFunction(InvalidRequest):
    """No function of this name is registered in this process."""

    code = "ERR_UNKNOWN_FUNCTION"
    default_remedy = (
        "Register the function with @app.function(NAME), or import the module with the registration."
    )


class UnknownEntity(InvalidRequest):
    """The application has no entity of this type, or none with this id."""

    code = "ERR_UNKNOWN_ENTITY"
    default_remedy = "Use an entity that exists, or register its type with app.entity_type(NAME)."


class PathNotFound(InvalidRequest, LookupError):
    """The path does not exist, may not be read, or is neither a file nor a folder."""

    code = "ERR_PATH_NOT_FOUND"
    default_remedy = "Check the path and this user's permissions."


class UnknownDocument(InvalidRequest, LookupError):
    """The catalog has no source or generation with this id."""

    code = "ERR_UNKNOWN_DOCUMENT"
    default_remedy = "Find the document by its path; it may have been removed or replaced."


class UnknownProject(InvalidRequest, LookupError):
    """No project with this name, folder or tenant was indexed."""

    code = "ERR_UNKNOWN_PROJECT"
    default_remedy = "List the projects: penstock project list"


class PageImageMissing(InvalidRequest, LookupError):
    """A page has no picture: its file is gone, has changed, or is of a type whose pages are not drawn."""

    code = "ERR_NO_PAGE_IMAGE"
    default_remedy = "Index the file again, or read the text of the page."


class NotInGraph(InvalidRequest, LookupError):
    """The graph has no entity with this name."""

    code = "ERR_NOT_IN_GRAPH"
    default_remedy = "`penstock graph export` lists all names; index more with `penstock index --graph`."


class InvalidVector(InvalidRequest):
    """A vector is not float32, or has another length than its space."""

    code = "ERR_INVALID_VECTOR"
    default_remedy = "Use one space per model, dimension and pooling."


class InvalidMessage(InvalidRequest):
    """A message of the Redis contract is not a JSON object, or lacks a required field."""

    code = "ERR_INVALID_MESSAGE"
    default_remedy = "Compare the message with docs/guides/redis-contract.md and send it again."


class UnsupportedSource(InvalidMessage):
    """The source_type of a message is unknown."""

    code = "ERR_UNSUPPORTED_SOURCE"
    default_remedy = "Use pdf, txt, md or docx; convert other files first."


class UnknownRag(InvalidRequest, LookupError):
    """The configuration has no RAG with this id."""

    code = "ERR_UNKNOWN_RAG"
    default_remedy = "Use an id of the configuration, or add the RAG there and restart the gateway."


class OutsideRag(InvalidRequest):
    """The path lies outside the folders of its RAG."""

    code = "ERR_OUTSIDE_RAG"
    default_remedy = "Put the file into the RAG's incoming folder, or name its folder in the configuration."


class JobNotFound(PenstockError, LookupError):
    """No job has this id or prefix."""

    code = "ERR_JOB_NOT_FOUND"
    default_remedy = "List the jobs with `penstock jobs`; finished ones are removed after the retention time."


class ScheduleNotFound(PenstockError, LookupError):
    """No schedule has this name."""

    code = "ERR_SCHEDULE_NOT_FOUND"
    default_remedy = "List the schedules with `penstock schedule list`."


class LimitNotFound(PenstockError, LookupError):
    """No limit has this key."""

    code = "ERR_LIMIT_NOT_FOUND"
    default_remedy = "List the limits with `penstock limit list`."


class CollectionNotFound(PenstockError, LookupError):
    """The tenant has no collection with this name."""

    code = "ERR_COLLECTION_NOT_FOUND"
    default_remedy = "List the collections with `penstock collection list`."


class TaskNotFound(JobNotFound, ValueError):
    """No function task has this id."""

    code = "ERR_TASK_NOT_FOUND"


class AmbiguousId(PenstockError, LookupError):
    """More than one job id begins with this prefix."""

    code = "ERR_AMBIGUOUS_ID"
    default_remedy = "Give more characters of the id."


class ImportRefused(InvalidRequest):
    """The source of an import has no rows of this kind, or its rows must not be set aside or deleted now."""

    code = "ERR_IMPORT_REFUSED"
    default_remedy = "Check the kind and the source; see docs/guides/import.md."


class Conflict(PenstockError):
    """The status of the job does not allow this."""

    code = "ERR_CONFLICT"
    default_remedy = "Show the job with `penstock jobs ID`."


class ScheduleExists(Conflict):
    """A schedule with this name exists already."""

    code = "ERR_SCHEDULE_EXISTS"
    default_remedy = "Use another name, remove the schedule first, or replace it with --replace."


class WorkersRunning(Conflict):
    """A worker uses the store, which must be at rest for this."""

    code = "ERR_WORKERS_RUNNING"
    default_remedy = "Stop the workers and the server of the store, then try again."


class StoreNotEmpty(Conflict):
    """A store that a backup should go to holds jobs or documents already."""

    code = "ERR_STORE_NOT_EMPTY"
    default_remedy = "Choose an empty store, or add --replace to delete all that the store holds."


class CannotCancel(Conflict):
    """The job has already ended."""

    code = "ERR_CANNOT_CANCEL"
    default_remedy = "Nothing to do: the job has ended."


class CannotRetry(Conflict):
    """Only failed and cancelled jobs can be retried."""

    code = "ERR_CANNOT_RETRY"
    default_remedy = "Wait for the job to end, or submit it again."


class LiveTwin(Conflict):
    """A pending or running job has the same key, or holds a lock this job needs: no retry is possible."""

    code = "ERR_LIVE_TWIN"
    default_remedy = "Follow the live job named in the message instead, or retry when it has ended."

    def __init__(self, message: str, *, twin: str, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.twin = twin


class CountChanged(Conflict):
    """Another number of jobs matches than was expected; nothing was changed."""

    code = "ERR_COUNT_CHANGED"
    default_remedy = "Look at the jobs again, and send the number in the message as `expect`."

    def __init__(self, message: str, *, matched: int, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.matched = matched


class LeaseLost(Conflict):
    """The lease expired, or the job was released or claimed again; the result is dropped."""

    code = "ERR_LEASE_LOST"
    default_remedy = "Drop the result; the present holder of the job reports its own."


class NoResult(Conflict):
    """The job has no result: it has not ended, or has failed."""

    code = "ERR_NO_RESULT"
    default_remedy = "Wait for the job with app.wait(ID), or read its error."


class ResultExpired(NoResult):
    """The job is done, and the time to live of its result is over."""

    code = "ERR_RESULT_EXPIRED"
    default_remedy = "Read results in time, or raise result_ttl of the function or call."


class InvalidTransition(Conflict, ValueError):
    """A task cannot change from its status to the requested one."""

    code = "ERR_INVALID_TRANSITION"
    default_remedy = "See the statuses of tasks in docs/guides/functions.md."


class FingerprintMismatch(Conflict):
    """A worker has another model or version for a phase than the catalog; it gets no tasks of the phase."""

    code = "ERR_FINGERPRINT_MISMATCH"
    default_remedy = (
        "Set PENSTOCK_EMBEDDER to the model of the index, or change the index with `penstock rebuild`."
    )


class QueueFull(PenstockError):
    """Too many jobs are pending; nothing was written."""

    code = "ERR_QUEUE_FULL"
    default_remedy = "Try again later, or raise PENSTOCK_MAX_QUEUE."

    def __init__(
        self, pending: int, *, retry_after: int = 30, remedy: str | None = None, function: str | None = None
    ) -> None:
        """``function``: the one whose own limit of pending calls is reached."""
        if function is not None:
            remedy = remedy or f"Try again later, or raise queue_limit of {function}."
        of = "" if function is None else f" for calls of {function}"
        super().__init__(f"Queue full{of} ({pending} pending)", remedy=remedy)
        self.pending = pending
        self.retry_after = retry_after
        self.function = function
