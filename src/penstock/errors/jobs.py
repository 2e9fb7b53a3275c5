"""Errors of jobs and workers."""

from __future__ import annotations

from datetime import timedelta

from penstock.errors.requests import PenstockError


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
