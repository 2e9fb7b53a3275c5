"""Error reports of the contract: error type, code and suggestions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

FAILURE_CODES: Mapping[str, str] = MappingProxyType(
    {
        "ERR_PDF_INVALID": "Redis contract: a PDF that cannot be read; `ERR_PARSE` elsewhere.",
        "ERR_DOCX_INVALID": "Redis contract: a Word document that cannot be read; `ERR_PARSE` elsewhere.",
        "ERR_JOB_REMOVED": "Redis contract: the job was removed from the queue before its end was seen.",
    }
)
"""Error codes that occur only in the hashes and error files of the contract."""

_PARSE_CODES = {"pdf": "ERR_PDF_INVALID", "docx": "ERR_DOCX_INVALID"}
_RESEND = "Send the job again; nothing is wrong with the file"
_CHECK_PERMISSIONS = "Check file permissions (must be readable)"
_REEXPORT = "Try re-exporting the document from its original source"

_REPORTS: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "ERR_FILE_NOT_FOUND": (
            "FileNotFound",
            ("Put the file back at {path} and send the job again", "Check that it was not processed already"),
        ),
        "ERR_UNSUPPORTED_TYPE": (
            "UnsupportedType",
            (
                "Compare source_type with what the file is: file {filename}",
                "Convert it to pdf, txt, md or docx",
                "Try with --skip-validation to have it read by its content",
            ),
        ),
        "ERR_UNSUPPORTED_SOURCE": ("UnsupportedType", ("Use source_type pdf, txt, md or docx",)),
        "ERR_PARSE": ("ParseError", (_REEXPORT, _CHECK_PERMISSIONS)),
        "ERR_PDF_INVALID": (
            "ParseError",
            (
                "Verify PDF is valid using: pdfinfo {filename}",
                "Try re-exporting the PDF from original source",
                _CHECK_PERMISSIONS,
                "Try with --skip-validation flag (use with caution)",
            ),
        ),
        "ERR_DOCX_INVALID": (
            "ParseError",
            ("Open {filename} with a word processor and save it again", _CHECK_PERMISSIONS),
        ),
        "ERR_NO_TEXT": ("NoText", ("Scanned pages need OCR: set PENSTOCK_OCR=true",)),
        "ERR_ENCRYPTED": ("Encrypted", ("Save {filename} without a password and send it again",)),
        "ERR_TOO_LARGE": ("TooLarge", ("Split the file, or raise PENSTOCK_MAX_FILE_MB",)),
        "ERR_PERMISSION": ("PermissionDenied", (_CHECK_PERMISSIONS,)),
        "ERR_PARSER_FAILED": ("ParserFailed", (_REEXPORT, "Look at the file: it is damaged or hostile")),
        "ERR_FILE_TIME": ("Timeout", ("Split the file, or raise PENSTOCK_FILE_TIME_S",)),
        "ERR_FILE_MEMORY": ("OutOfMemory", ("Split the file, or raise PENSTOCK_FILE_MEMORY_MB",)),
        "ERR_COMPONENT_MISSING": (
            "ConfigurationError",
            ("Install the component named in the message on the workers", _RESEND),
        ),
        "ERR_UNKNOWN_RAG": (
            "InvalidRagId",
            ("Use a RAG id of the configuration", "Add it there and restart the gateway"),
        ),
        "ERR_OUTSIDE_RAG": (
            "PathNotAllowed",
            ("Put the file into the RAG's incoming folder", "Name its folder in the configuration"),
        ),
        "ERR_INVALID_MESSAGE": ("InvalidMessage", ("Mend the field the error names and send it again",)),
        "ERR_DUPLICATE_ID": ("DuplicateJobId", ("Give every message a different job_id",)),
        "ERR_CANCELLED": ("Cancelled", ("Send the job again if it is still wanted",)),
        "ERR_JOB_TIMEOUT": ("Timeout", ("Split the file, or raise PENSTOCK_JOB_TIMEOUT_S",)),
        "ERR_WORKER_LOST": ("WorkerLost", ("Look at the workers' log around that time", _RESEND)),
        "ERR_DISK_FULL": ("DiskFull", ("Free some space", _RESEND)),
        "ERR_OUT_OF_MEMORY": ("OutOfMemory", ("Run fewer workers, or give them more memory", _RESEND)),
        "ERR_NETWORK": ("NetworkError", ("Check the service the error names", _RESEND)),
        "ERR_TIMEOUT": ("Timeout", ("Check the service the error names", _RESEND)),
        "ERR_SERVICE": ("ServiceUnavailable", ("Check the service the error names", _RESEND)),
        "ERR_RATE_LIMITED": ("RateLimited", ("Wait, or raise the service's limit", _RESEND)),
        "ERR_OUTAGE": ("ServiceUnavailable", ("Check the service the error names", _RESEND)),
        "ERR_JOB_REMOVED": ("Removed", ("Send the job again if it is still wanted",)),
    }
)


class ErrorReport(msgspec.Struct, frozen=True):
    error: str
    error_type: str
    error_code: str
    suggestions: tuple[str, ...]


def describe_error(
    code: str | None, message: str | None, *, source_type: str, filename: str, path: str
) -> ErrorReport:
    """Build the contract's report of an error."""
    code = code or "ERR_UNKNOWN"
    if code == "ERR_PARSE":
        code = _PARSE_CODES.get(source_type, code)
    error_class, text = _split(message or "")
    error_type, hints = _REPORTS.get(
        code, (error_class or "Error", ("Read the message of the error", _RESEND))
    )
    suggestions = tuple(hint.format(filename=filename, path=path) for hint in hints)
    return ErrorReport(text or code, error_type, code, suggestions)


def _split(message: str) -> tuple[str, str]:
    """Split an error stored as ``Class: text``."""
    match = re.match(r"([A-Z]\w+): (?=.)", message)
    return (match[1], message[match.end() :]) if match else ("", message)
