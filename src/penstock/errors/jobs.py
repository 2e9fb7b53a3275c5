"""How a job can end but done, and what keeps a worker from its work."""

from __future__ import annotations

from datetime import timedelta

from penstock.errors.requests import PenstockError


class JobError(PenstockError):
    """Raised by the work itself, to say how this attempt ends."""

    code = "ERR_JOB"
    default_remedy = "See the job's error message."


class PermanentFailure(JobError):
    """Trying again cannot help; the job fails at once. ``error_code`` goes into the job's row."""

    code = "ERR_PERMANENT"
    default_remedy = "Mend what the message names, then `penstock queue retry ID`."

    def __init__(self, message: str, *, code: str | None = None, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.error_code = code or self.code


class NothingToIndex(PermanentFailure):
    """A folder or project holds nothing that can be indexed, and nothing of it was indexed before."""

    code = "ERR_NOTHING_TO_INDEX"
    default_remedy = "See `penstock why PATH` for the rules that left files out; --allow-empty accepts it."


class UnreadableDocument(PermanentFailure):
    """The content of a file cannot become text; the kinds below say why."""

    code = "ERR_UNREADABLE"
    default_remedy = "Look at the file named in the message; put it right or leave it out."


class UnsupportedType(UnreadableDocument):
    """The content is of a type no extractor takes, or is not what the file's name promises."""

    code = "ERR_UNSUPPORTED_TYPE"
    default_remedy = (
        "Convert the file to a supported type, or leave it out; docs/guides/documents.md lists them."
    )


class DocumentDamaged(UnreadableDocument):
    """The content begins as its type should and cannot be read to its end."""

    code = "ERR_PARSE"
    default_remedy = "Open the file with the program that made it and save it again."


class DocumentEncrypted(UnreadableDocument):
    """The document needs a password to be read."""

    code = "ERR_ENCRYPTED"
    default_remedy = "Save the document without a password, then index it again."


class NoText(UnreadableDocument):
    """Nothing in the document can become text, although it is not blank."""

    code = "ERR_NO_TEXT"
    default_remedy = "Index it with OCR, or leave it out."


class DocumentTooLarge(UnreadableDocument):
    """The file, or what it unpacks to, is larger than the limit."""

    code = "ERR_TOO_LARGE"
    default_remedy = "Split the file, or raise the limit named in the message."


class ParserFailed(UnreadableDocument):
    """The parser crashed on this file, or used more time or memory than it may."""

    code = "ERR_PARSER_FAILED"
    default_remedy = "Look at the file: it is damaged or hostile. `penstock queue retry ID` tries once more."


class TimeBudgetExceeded(ParserFailed):
    """Parsing and chunking the file took more CPU time than one file may use."""

    code = "ERR_FILE_TIME"
    default_remedy = (
        "Look at the file: it is very large or hostile. A larger PENSTOCK_FILE_TIME_S gives files more."
    )


class MemoryBudgetExceeded(ParserFailed):
    """Parsing and chunking the file took more memory than one file may use."""

    code = "ERR_FILE_MEMORY"
    default_remedy = (
        "Look at the file: it is very large or hostile. A larger PENSTOCK_FILE_MEMORY_MB gives files more."
    )


class ComponentMissing(UnreadableDocument):
    """A part of Penstock that is installed apart is needed for this file."""

    code = "ERR_COMPONENT_MISSING"
    default_remedy = "Install it with the command in the message, then `penstock queue retry ID`."


class TransientFailure(JobError):
    """Trying again may help. With ``retry_after`` not before that, else after the usual back-off."""

    code = "ERR_TRANSIENT"
    default_remedy = "Nothing to do while retries are left."

    def __init__(
        self, message: str, *, retry_after: timedelta | None = None, remedy: str | None = None
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.retry_after = retry_after


class ServiceUnavailable(JobError):
    """A service the job needs is down: the job waits for it and spends no retry."""

    code = "ERR_SERVICE_DOWN"
    default_remedy = "Bring the service named in the message back; its jobs go on by themselves."

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
    """The job was asked to stop and reached a checkpoint."""

    code = "ERR_CANCELLED"
    default_remedy = "`penstock queue retry ID` runs it again from the start."


class OutputFailed(PenstockError):
    """Standard output is closed, or cannot be written, so an answer would be lost."""

    code = "ERR_OUTPUT"
    default_remedy = "Redirect it to a file that can be written, or to /dev/null."


class WorkerFailed(PenstockError):
    """A worker's processes end before they can take a job."""

    code = "ERR_WORKER_FAILED"
    default_remedy = "Mend what the message names, then start the worker again."
