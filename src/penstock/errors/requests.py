"""The root, and what is refused because of what was asked."""

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
    """The request cannot be accepted as it is; nothing was written."""

    code = "ERR_INVALID_REQUEST"
    default_remedy = "Correct the request and send it again."


class UnknownItemType(InvalidRequest):
    """The item type is not one Penstock knows."""

    code = "ERR_UNKNOWN_ITEM_TYPE"
    default_remedy = "Use one of the item types named in the message."


class UnknownOperation(InvalidRequest):
    """The operation is not one Penstock knows."""

    code = "ERR_UNKNOWN_OP"
    default_remedy = "Use one of the operations named in the message."


class UnsupportedOperation(InvalidRequest):
    """Both words are known, but this item type does not have this operation."""

    code = "ERR_UNSUPPORTED_OP"
    default_remedy = "Use one of the operations this item type has."


class NoHandler(InvalidRequest):
    """No worker can do jobs of this item type: Penstock has no handler for it, nor has the application."""

    code = "ERR_NO_HANDLER"
    default_remedy = "Register a handler with app.handler, and submit with that application."


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
    default_remedy = "Use a whole number from 0 (bulk) to 10 (somebody is waiting)."


class InvalidName(InvalidRequest):
    """A tenant, collection, branch, id or key is empty, too long or not printable."""

    code = "ERR_INVALID_NAME"
    default_remedy = "Use 1 to 255 printable characters."


class InvalidTime(InvalidRequest):
    """A time has no zone, or a delay is negative or absurd."""

    code = "ERR_INVALID_TIME"
    default_remedy = "Use ISO 8601 with a zone, such as 2026-01-31T12:00:00Z."


class UnknownStatus(InvalidRequest):
    """The word is not a status at any door."""

    code = "ERR_UNKNOWN_STATUS"
    default_remedy = "Use pending, in_progress, done, failed or cancelled."


class DuplicateId(InvalidRequest):
    """A door brought its own job id and a job with that id exists already."""

    code = "ERR_DUPLICATE_ID"
    default_remedy = "Use a new id, or leave it out."


class UnknownFunction(InvalidRequest):
    """No function of this name is registered in this process."""

    code = "ERR_UNKNOWN_FUNCTION"
    default_remedy = "Register it with @app.function(NAME), or import the module that does."


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
    default_remedy = "Look it up by its path; it may have been removed or replaced."


class InvalidVector(InvalidRequest):
    """A vector is not as long as the others of its space, or is not float32."""

    code = "ERR_INVALID_VECTOR"
    default_remedy = "Use one space per model, dimension and pooling."


class InvalidMessage(InvalidRequest):
    """A message of the Redis contract is not JSON, not an object, or lacks what the contract asks for."""

    code = "ERR_INVALID_MESSAGE"
    default_remedy = "Compare the message with docs/guides/redis-contract.md and send it again."


class UnsupportedSource(InvalidMessage):
    """The source_type of a message is none that the contract knows."""

    code = "ERR_UNSUPPORTED_SOURCE"
    default_remedy = "Use pdf, txt, md or docx; convert other files first."


class UnknownRag(InvalidRequest, LookupError):
    """The configuration has no RAG with this id."""

    code = "ERR_UNKNOWN_RAG"
    default_remedy = "Use one of the ids the configuration names, or add it there and restart the gateway."


class OutsideRag(InvalidRequest):
    """The path lies outside the folders that the configuration gives its RAG."""

    code = "ERR_OUTSIDE_RAG"
    default_remedy = "Put the file into the RAG's incoming folder, or name its folder in the configuration."


class JobNotFound(PenstockError, LookupError):
    """No job has this id or prefix."""

    code = "ERR_JOB_NOT_FOUND"
    default_remedy = (
        "List the jobs with `penstock queue list`; finished ones are removed after the retention time."
    )


class TaskNotFound(JobNotFound, ValueError):
    """No function task has this id."""

    code = "ERR_TASK_NOT_FOUND"


class AmbiguousId(PenstockError, LookupError):
    """More than one job id begins with this prefix."""

    code = "ERR_AMBIGUOUS_ID"
    default_remedy = "Give more characters of the id."


class Conflict(PenstockError):
    """The job is not in a state that allows this."""

    code = "ERR_CONFLICT"
    default_remedy = "Look at the job with `penstock queue show ID`."


class CannotCancel(Conflict):
    """The job has already ended."""

    code = "ERR_CANNOT_CANCEL"
    default_remedy = "Nothing to do: the job has ended."


class CannotRetry(Conflict):
    """Only failed and cancelled jobs can be put back."""

    code = "ERR_CANNOT_RETRY"
    default_remedy = "Wait for the job to end, or submit it again."


class LiveTwin(Conflict):
    """A live job has the same key, or holds a lock that this one needs, so this one cannot come back."""

    code = "ERR_LIVE_TWIN"
    default_remedy = "Follow the live job named in the message instead, or retry when it has ended."

    def __init__(self, message: str, *, twin: str, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.twin = twin


class LeaseLost(Conflict):
    """The claim was taken away (lease expired, given back, or claimed again); the result is dropped."""

    code = "ERR_LEASE_LOST"
    default_remedy = "Drop the result; whoever holds the job now will report its own."


class NoResult(Conflict):
    """The job has not ended, or not well, so there is no result to read; the message says which."""

    code = "ERR_NO_RESULT"
    default_remedy = "Wait for the job with app.wait(ID), or look at its error."


class InvalidTransition(Conflict, ValueError):
    """A task cannot go from its status to the one asked for."""

    code = "ERR_INVALID_TRANSITION"
    default_remedy = "See the statuses of tasks in docs/guides/functions.md."


class FingerprintMismatch(Conflict):
    """A worker would do a phase otherwise than the catalog is set to; it gets no work of that phase."""

    code = "ERR_FINGERPRINT_MISMATCH"
    default_remedy = (
        "Set PENSTOCK_EMBEDDER to what the index was made with, or change the index with `penstock rebuild`."
    )


class QueueFull(PenstockError):
    """Too many jobs are pending; nothing of this request was written."""

    code = "ERR_QUEUE_FULL"
    default_remedy = "Try again later, or raise PENSTOCK_MAX_QUEUE."

    def __init__(self, pending: int, *, retry_after: int = 30, remedy: str | None = None) -> None:
        super().__init__(f"Queue full ({pending} pending)", remedy=remedy)
        self.pending = pending
        self.retry_after = retry_after
