"""Back-off schedules, and which errors are worth another attempt."""

from __future__ import annotations

import asyncio
import csv
import email.message
import errno
import gzip
import http.client
import importlib
import json
import lzma
import socket
import ssl
import subprocess
import tarfile
import tomllib
import urllib.error
import xml.etree.ElementTree as ET
import xml.parsers.expat
import zipfile
import zlib
from datetime import timedelta
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import errors
from penstock.queue import retry


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (retry.JOB_BACKOFF, [5, 10, 30, 32, 64, 128, 256, 300, 300]),
        (retry.FUNCTION_BACKOFF, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]),
    ],
)
def test_delays_grow_to_five_minutes(schedule, expected):
    delays = [retry.delay(schedule, number, jitter=0) for number in range(1, len(expected) + 1)]

    assert [timedelta(seconds=seconds) for seconds in expected] == delays


@pytest.mark.parametrize(
    ("jitter", "expected"),
    [
        (-1, timedelta(seconds=9)),
        (0, timedelta(seconds=10)),
        (0.5, timedelta(seconds=10.5)),
        (1, timedelta(seconds=11)),
    ],
)
def test_jitter_moves_a_delay_by_up_to_a_tenth(jitter, expected):
    assert expected == retry.delay(retry.JOB_BACKOFF, 2, jitter=jitter)


@settings(deadline=None)
@given(st.integers(1, 10**9), st.floats(-1, 1))
def test_no_retry_waits_longer_than_the_cap_and_its_jitter(number, jitter):
    delay = retry.delay(retry.FUNCTION_BACKOFF, number, jitter=jitter)

    assert timedelta(seconds=0.9) <= delay <= timedelta(seconds=330)


@pytest.mark.parametrize(("number", "jitter"), [(0, 0), (-1, 0), (1, 1.01), (1, float("nan"))])
def test_numbers_outside_the_schedule_are_a_mistake_of_the_caller(number, jitter):
    with pytest.raises(ValueError, match="got"):
        retry.delay(retry.JOB_BACKOFF, number, jitter=jitter)


class StatusError(Exception):
    """An error of an HTTP client, with the status in one of several attributes."""

    def __init__(self, **attributes):
        super().__init__("the service answered with an error")
        self.__dict__.update(attributes)


def http_error(status, **headers):
    message = email.message.Message()
    for name, value in headers.items():
        message[name.replace("_", "-")] = value
    return urllib.error.HTTPError("http://h/", status, "refused", message, None)


def os_error(number):
    return OSError(number, "told by the system")


TRANSIENT = [
    (ConnectionRefusedError(), "ERR_NETWORK"),
    (ConnectionResetError(), "ERR_NETWORK"),
    (BrokenPipeError(), "ERR_NETWORK"),
    (socket.gaierror(socket.EAI_AGAIN, "name"), "ERR_NETWORK"),
    (socket.gaierror(errno.ENOENT, "a number that is another system's EAI_AGAIN"), "ERR_NETWORK"),
    (ssl.SSLError(errno.EPERM, "a number of OpenSSL's own"), "ERR_NETWORK"),
    (http.client.IncompleteRead(b""), "ERR_NETWORK"),
    (http.client.RemoteDisconnected("closed"), "ERR_NETWORK"),
    (urllib.error.URLError(ConnectionRefusedError()), "ERR_NETWORK"),
    (os_error(errno.EHOSTUNREACH), "ERR_NETWORK"),
    (os_error(errno.ECONNREFUSED), "ERR_NETWORK"),
    (TimeoutError(), "ERR_TIMEOUT"),
    (TimeoutError("socket.timeout is the same class"), "ERR_TIMEOUT"),
    (os_error(errno.ETIMEDOUT), "ERR_TIMEOUT"),
    (subprocess.TimeoutExpired("ocr", 5), "ERR_TIMEOUT"),
    (os_error(errno.ENOSPC), "ERR_DISK_FULL"),
    (os_error(errno.EDQUOT), "ERR_DISK_FULL"),
    (os_error(errno.EMFILE), "ERR_TOO_MANY_FILES"),
    (os_error(errno.ENFILE), "ERR_TOO_MANY_FILES"),
    (os_error(errno.EIO), "ERR_IO"),
    (os_error(errno.EBUSY), "ERR_BUSY"),
    (BlockingIOError(errno.EAGAIN, "again"), "ERR_BUSY"),
    (MemoryError(), "ERR_OUT_OF_MEMORY"),
    (os_error(errno.ENOMEM), "ERR_OUT_OF_MEMORY"),
    (StatusError(status_code=408), "ERR_TIMEOUT"),
    (StatusError(status=409), "ERR_BUSY"),
    (StatusError(status=429), "ERR_RATE_LIMITED"),
    (http_error(500), "ERR_SERVICE"),
    (http_error(503), "ERR_SERVICE"),
    (StatusError(code=504), "ERR_TIMEOUT"),
    (StatusError(response=SimpleNamespace(status_code=529)), "ERR_SERVICE"),
    (errors.StoreUnavailable("gone"), "ERR_STORE_UNAVAILABLE"),
    (errors.DiskFull("full"), "ERR_DISK_FULL"),
    (errors.StoreReadOnly("a switchover"), "ERR_STORE_READ_ONLY"),
    (errors.StoreDenied("another password"), "ERR_STORE_DENIED"),
    (errors.StatementRefused("a fault of ours"), "ERR_STATEMENT_REFUSED"),
    (errors.QueueFull(100), "ERR_QUEUE_FULL"),
    (errors.TransientFailure("later"), "ERR_TRANSIENT"),
    (ValueError("who knows"), "ERR_UNKNOWN"),
    (RuntimeError(), "ERR_UNKNOWN"),
    (OSError("no number"), "ERR_UNKNOWN"),
    (KeyboardInterrupt(), "ERR_UNKNOWN"),
    (SystemExit(2), "ERR_UNKNOWN"),
    (StatusError(status_code=200), "ERR_UNKNOWN"),
    (StatusError(code="ERR_THEIRS"), "ERR_UNKNOWN"),
]

PERMANENT = [
    (FileNotFoundError(errno.ENOENT, "gone"), "ERR_FILE_NOT_FOUND"),
    (os_error(errno.ENOENT), "ERR_FILE_NOT_FOUND"),
    (IsADirectoryError(), "ERR_BAD_PATH"),
    (NotADirectoryError(), "ERR_BAD_PATH"),
    (os_error(errno.ENAMETOOLONG), "ERR_BAD_PATH"),
    (os_error(errno.ELOOP), "ERR_BAD_PATH"),
    (PermissionError(), "ERR_PERMISSION"),
    (os_error(errno.EROFS), "ERR_READ_ONLY"),
    (os_error(errno.EFBIG), "ERR_TOO_LARGE"),
    (ssl.SSLCertVerificationError("expired"), "ERR_CERTIFICATE"),
    (urllib.error.URLError(ssl.SSLCertVerificationError("expired")), "ERR_CERTIFICATE"),
    (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"), "ERR_PARSE"),
    (json.JSONDecodeError("bad", "{", 0), "ERR_PARSE"),
    (msgspec.ValidationError("bad"), "ERR_PARSE"),
    (zipfile.BadZipFile(), "ERR_PARSE"),
    (gzip.BadGzipFile(), "ERR_PARSE"),
    (zlib.error(), "ERR_PARSE"),
    (lzma.LZMAError(), "ERR_PARSE"),
    (tarfile.ReadError(), "ERR_PARSE"),
    (csv.Error(), "ERR_PARSE"),
    (tomllib.TOMLDecodeError(), "ERR_PARSE"),
    (ET.ParseError(), "ERR_PARSE"),
    (xml.parsers.expat.ExpatError(), "ERR_PARSE"),
    (StatusError(status_code=400), "ERR_REFUSED"),
    (StatusError(status_code=422), "ERR_REFUSED"),
    (StatusError(status=401), "ERR_PERMISSION"),
    (http_error(403), "ERR_PERMISSION"),
    (http_error(404), "ERR_NOT_FOUND"),
    (StatusError(response=SimpleNamespace(status_code=413)), "ERR_TOO_LARGE"),
    (StatusError(response=SimpleNamespace(status=415)), "ERR_UNSUPPORTED_TYPE"),
    (errors.InvalidPayload("bad"), "ERR_INVALID_PAYLOAD"),
    (errors.InvalidSetting("bad"), "ERR_INVALID_SETTING"),
    (errors.StateDamaged("line 3"), "ERR_STATE_DAMAGED"),
    (errors.PermanentFailure("never"), "ERR_PERMANENT"),
    (errors.PermanentFailure("never", code="ERR_PDF_ENCRYPTED"), "ERR_PDF_ENCRYPTED"),
]


@pytest.mark.parametrize(("error", "code"), TRANSIENT, ids=repr)
def test_what_may_pass_is_tried_again(error, code):
    verdict = retry.classify(error)

    assert ("transient", code) == (verdict.kind, verdict.code)


@pytest.mark.parametrize(("error", "code"), PERMANENT, ids=repr)
def test_what_cannot_pass_is_not_tried_again(error, code):
    assert retry.Classification("permanent", code) == retry.classify(error)


def test_a_cancelled_job_is_neither():
    assert retry.Classification("cancelled", "ERR_CANCELLED") == retry.classify(
        errors.Cancelled("asked to stop")
    )


def test_timeouts_of_sockets_and_of_asyncio_are_the_builtin_one():
    assert {TimeoutError} == {TimeoutError, asyncio.TimeoutError, socket.timeout}


def caused(outer, cause):
    outer.__cause__ = cause
    return outer


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (caused(RuntimeError(), FileNotFoundError()), "ERR_FILE_NOT_FOUND"),
        (caused(RuntimeError(), caused(ValueError(), http_error(429))), "ERR_RATE_LIMITED"),
        (caused(OSError("no number"), os_error(errno.ENOSPC)), "ERR_DISK_FULL"),
        (caused(TimeoutError(), FileNotFoundError()), "ERR_TIMEOUT"),
        (caused(errors.TransientFailure("later"), FileNotFoundError()), "ERR_TRANSIENT"),
        (caused(RuntimeError(), RuntimeError()), "ERR_UNKNOWN"),
    ],
    ids=repr,
)
def test_the_cause_decides_only_when_the_error_itself_is_unknown(error, expected):
    assert expected == retry.classify(error).code


def test_a_chain_that_bites_its_tail_ends():
    first, second = RuntimeError(), RuntimeError()
    first.__cause__, second.__cause__ = second, first

    assert "ERR_UNKNOWN" == retry.classify(first).code


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (http_error(429, Retry_After="17"), timedelta(seconds=17)),
        (http_error(503, Retry_After="0.5"), timedelta(seconds=0.5)),
        (StatusError(status_code=429, headers={"retry-after": "2"}), timedelta(seconds=2)),
        (
            StatusError(response=SimpleNamespace(status_code=429, headers={"Retry-After": "3"})),
            timedelta(seconds=3),
        ),
        (http_error(429, Retry_After="86400"), retry.MAX_RETRY_AFTER),
        (http_error(429, Retry_After="1e999"), retry.MAX_RETRY_AFTER),
        (http_error(429, Retry_After="Wed, 21 Oct 2026 07:28:00 GMT"), None),
        (http_error(429, Retry_After="-5"), None),
        (http_error(429, Retry_After="nan"), None),
        (http_error(429), None),
        (http_error(404, Retry_After="17"), None),
        (errors.QueueFull(100, retry_after=30), timedelta(seconds=30)),
        (errors.TransientFailure("later", retry_after=timedelta(days=1)), timedelta(days=1)),
        (errors.TransientFailure("now", retry_after=timedelta(seconds=-1)), timedelta(0)),
        (errors.TransientFailure("later"), None),
    ],
    ids=repr,
)
def test_a_wish_to_wait_is_honoured(error, expected):
    assert expected == retry.classify(error).retry_after


def test_classes_named_in_the_table_exist():
    named = [known for _, _, types in retry._TYPES for known in types if isinstance(known, str)]
    modules = [name.rpartition(".") for name in named]

    assert [] == [cls for module, _, cls in modules if not hasattr(importlib.import_module(module), cls)]


def test_every_code_of_the_table_has_a_meaning_and_every_meaning_a_use():
    table = {code for _, code, _ in (*retry._TYPES, *retry._ERRNOS, *retry._STATUSES) if code}

    assert table | {"ERR_UNKNOWN", "ERR_REFUSED", "ERR_SERVICE"} == set(retry.FAILURE_CODES)
