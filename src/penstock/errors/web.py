"""Errors of web pages and libraries."""

from __future__ import annotations

from penstock.errors.jobs import PermanentFailure, TransientFailure
from penstock.errors.requests import InvalidRequest


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
