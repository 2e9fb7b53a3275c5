"""Errors of access: keys, scopes, paths and limits of a server, and the server itself."""

from __future__ import annotations

from typing import ClassVar, Self

from penstock.errors.jobs import WorkerFailed
from penstock.errors.requests import Conflict, InvalidRequest, PenstockError
from penstock.errors.stores import ConfigError


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
