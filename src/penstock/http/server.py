"""The HTTP server: the application of all routes, sockets and threads, the worker beside it, and its end."""

from __future__ import annotations

import functools
import importlib.util
import ipaddress
import logging
import os
import resource
import signal
import socket
import ssl
import threading
from collections.abc import Callable
from importlib import metadata
from typing import TYPE_CHECKING, Any

import msgspec
import uvicorn
from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import ASGIApp

from penstock import clock
from penstock.errors import OUTAGES, DriverMissing, InvalidSetting, KeylessServer, ServerFailed, TooManyFiles
from penstock.extensions import install_remedy
from penstock.http import (
    collection_routes,
    document_routes,
    event_routes,
    guard,
    index_routes,
    job_routes,
    library_routes,
    limit_routes,
    note_routes,
    pages,
    problems,
    queue_routes,
    schedule_routes,
    search_routes,
    upkeep_routes,
    uploads,
)
from penstock.http.connections import (
    CONNECTIONS,
    SPARE,
    OpenConnections,
    TimedConnection,
    TlsConnection,
    WarnedBefore,
)
from penstock.http.guard import Guard, GuardOptions, is_loopback
from penstock.http.problems import portable, schemas
from penstock.http.quick_notes import QuickNotes
from penstock.http.request_context import Shared
from penstock.service.access import PathPolicy
from penstock.service.keys import Keys
from penstock.service.runtime_file import RunningServer, RuntimeFile, settings_digest

if TYPE_CHECKING:
    from penstock.assembly import Assembly


DESCRIPTION = """Index files, folders and notes, follow the jobs, and search.

Errors are problem documents (RFC 9457) with a stable `code` and a `remedy`. A trailing slash is optional."""
ROUTES = (
    pages,
    job_routes,
    event_routes,
    index_routes,
    document_routes,
    uploads,
    search_routes,
    queue_routes,
    note_routes,
    schedule_routes,
    library_routes,
    limit_routes,
    collection_routes,
    upkeep_routes,
    guard,
)
"""Most used routes first: a request is compared with one route after the other."""
_UNUSED = ("HTTPValidationError", "ValidationError")


class Api(FastAPI):
    """The application, with an OpenAPI document including the schemas of answers."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            document = super().openapi()
            components = document["components"]
            kept = {name: one for name, one in components["schemas"].items() if name not in _UNUSED}
            components["schemas"] = {**kept, **schemas()}
            components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{"key": []}, {}]
            self.openapi_schema = portable(document)
        assert self.openapi_schema is not None
        return self.openapi_schema


def _make_api(shared: Shared, guard: GuardOptions, mcp: ASGIApp | None = None) -> ASGIApp:
    """The application behind the guard. ``mcp`` answers the requests of agents."""
    api = Api(
        title="Penstock",
        version=metadata.version("penstock"),
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    api.state.shared = shared
    for routes in ROUTES:
        api.include_router(routes.router)
    api.include_router(pages.metrics_router)
    if mcp is not None:
        api.router.routes.append(Route("/mcp", mcp, include_in_schema=False))
    problems.add_handlers(api)
    files = pages.add_routes(api)
    return Guard(QuickNotes(api, shared), msgspec.structs.replace(guard, files=files))


if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from penstock.assembly import Assembly
    from penstock.config import Settings

    MakeMcp = Callable[[Assembly, PathPolicy], ASGIApp | None]

_BACKLOG = 2048
"""Connections that may wait in the system to be accepted."""
_ACCEPTED_AT_ONCE = 16
"""Connections accepted before requests are looked at again: 2,000 would hold them up for a second."""
_LEAST_OPEN_FILES = 64
"""Stores, processes of a worker and a few connections need about 50."""
_OTHER_FILES = 256
"""Open files besides connections: stores of all threads, uploads, and pipes of processes."""
_MOST_OPEN_FILES = CONNECTIONS + SPARE + 2 * _OTHER_FILES
KEEP_ALIVE_S = 30
GRACE_S = 5
"""Time for open requests to end."""
_WORKER_NICENESS = 5
"""Processes of the worker give way to the server, whose answers cost a millisecond."""
log = logging.getLogger("penstock.http")
_REPEAT_S = 0.2
"""Time after which a signal for a starting worker is sent again."""
_START_AGAIN_S = 1.0
"""Time after which a worker is started that found no store."""
log = logging.getLogger("penstock.http")


class ServerOptions(msgspec.Struct, frozen=True):
    """Options of a server. ``processes`` 0: no worker. ``app``: the application with the functions to run."""

    host: str = "127.0.0.1"
    port: int = 8765
    processes: int = 1
    auth: bool = True
    grace: float = 30.0
    certificate: str | None = None
    private_key: str | None = None
    app: str | None = None


class HttpServer:
    """A server ready to run, with the address bound and the lock of the state directory held."""

    def __init__(self, assembly: Assembly, options: ServerOptions, make_mcp: MakeMcp) -> None:
        self._assembly = assembly
        self._options = options
        files = _raise_open_files()
        settings = assembly.settings
        keys = Keys(settings.state_dir)
        _refuse_keyless(options, keys)
        self._tls = _tls(options.certificate, options.private_key)
        self._runtime = RuntimeFile(settings.state_dir)
        self._runtime.take()
        try:
            keys.remember()
            policy = PathPolicy.of(settings)
            guard = GuardOptions.of(settings, keys, options.host, requires_keys=options.auth)
            _warn(guard, settings)
            self._connections = OpenConnections(_most_connections(files), guard.peers)
            self._shared = Shared(assembly, policy, guard.sessions)
            self._shared.uploads.recover()
            self._shared.library_uploads.recover()
            self._api = _make_api(self._shared, guard, make_mcp(assembly, policy))
            self._socket = _bound(options.host, options.port)
        except BaseException:
            self._runtime.release()
            raise
        self.roots = policy.roots
        self.url = self._url()
        self._failure: BaseException | None = None

    def run(self, announce: Callable[[], object] = lambda: None) -> None:
        """Serve until a stop signal. The worker ends first, so that its jobs can be watched meanwhile."""
        options = self._options
        server = uvicorn.Server(self._config())
        thread = threading.Thread(target=self._serve, args=(server,), name="http")
        try:
            worker = None
            if options.processes:
                worker = self._assembly.worker(
                    processes=options.processes, grace=options.grace, app=options.app
                )
                worker.niceness = _WORKER_NICENESS
            with _Stop() as stop:
                thread.start()
                self._shared.throughput.start()
                while thread.is_alive() and not server.started:
                    stop.wait(0.01)
                if server.started:
                    self._socket.listen(_BACKLOG)
                    self._publish(with_worker=worker is not None)
                    announce()
                if worker is not None and not stop.is_set():
                    stop.repeats = True
                    _run_worker(worker.run, stop)
                else:
                    stop.wait()
        finally:
            server.should_exit = True
            self._shared.events.stop()
            self._shared.throughput.close()
            if thread.ident is not None:
                thread.join()
            self._socket.close()
            self._shared.close()
            self._runtime.release()
        if self._failure is not None:
            raise ServerFailed(f"the server stopped: {self._failure}") from self._failure

    def _publish(self, *, with_worker: bool) -> None:
        """Write the address for clients and for ``penstock stop``."""
        found = RunningServer(
            url=self.url,
            pid=os.getpid(),
            started_at=clock.now(),
            worker=with_worker,
            settings=settings_digest(self._assembly.settings),
        )
        self._runtime.write(found)

    def _serve(self, server: uvicorn.Server) -> None:
        warned, of_uvicorn = WarnedBefore(), logging.getLogger("uvicorn.error")
        of_uvicorn.addFilter(warned)
        try:
            server.run(sockets=[self._socket])
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            self._failure = error
        finally:
            of_uvicorn.removeFilter(warned)
        if not server.should_exit:
            # Ends the main thread, and the worker in it, as any stop signal does.
            os.kill(os.getpid(), signal.SIGTERM)

    def _config(self) -> uvicorn.Config:
        made: Any = functools.partial(TimedConnection, open_connections=self._connections)
        if self._tls is not None:
            made = functools.partial(TlsConnection, context=self._tls, open_connections=self._connections)
        return uvicorn.Config(
            self._api,
            # uvicorn calls it as it would a class.
            http=made,
            lifespan="off",
            ws="none",
            log_config=None,
            log_level=logging.WARNING,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            # asyncio uses it for the line in the system as well, which is widened again after the start.
            backlog=_ACCEPTED_AT_ONCE,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
        )

    def _url(self) -> str:
        host, port = self._socket.getsockname()[:2]
        address = ipaddress.ip_address(host)
        if address.is_unspecified:
            host = "127.0.0.1" if address.version == 4 else "::1"
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self._options.certificate else 'http'}://{shown}:{port}"


class _Stop(threading.Event):
    """Set by a stop signal, until a worker has installed signal handlers.

    ``repeats``: a worker is starting. A signal that comes before its handlers is sent again, to them.
    """

    repeats = False

    def __enter__(self) -> _Stop:
        heard = [signal.SIGINT, signal.SIGHUP]
        # A signal ignored at the start stays ignored: by nohup, or by a shell for background jobs.
        numbers = [signal.SIGTERM, *(one for one in heard if signal.getsignal(one) is not signal.SIG_IGN)]
        self._before = {number: signal.signal(number, self._heard) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _heard(self, number: int, _frame: object) -> None:
        if self.repeats:
            threading.Timer(_REPEAT_S, os.kill, (os.getpid(), number)).start()
        self.set()


def _run_worker(run: Callable[[Callable[[], object]], None], stop: _Stop) -> None:
    """Run the worker; wait for a store that goes away while it starts, as it does once it runs."""
    started = threading.Event()
    while not stop.is_set():
        try:
            run(started.set)
            return
        except OUTAGES as error:
            if started.is_set():
                raise
            log.warning("the worker waits for the store: %s (%s). %s", error, error.code, error.remedy)
            stop.wait(_START_AGAIN_S)


def _raise_open_files() -> int:
    """Raise the limit on open files as far as the server may need it and the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(_MOST_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    if soft != resource.RLIM_INFINITY and soft < _LEAST_OPEN_FILES:
        raise TooManyFiles(f"a server needs at least {_LEAST_OPEN_FILES} open files; the limit is {soft}")
    return _MOST_OPEN_FILES if soft == resource.RLIM_INFINITY else soft


def _most_connections(files: int) -> int:
    """Connections for which there are open files. Without this limit the system would refuse them, unsaid."""
    return min(CONNECTIONS, max(files - _OTHER_FILES - SPARE, files // 4))


def _refuse_keyless(options: ServerOptions, keys: Keys) -> None:
    if is_loopback(options.host):
        return
    if not options.auth:
        raise KeylessServer(
            f"--no-auth on {options.host} would let everyone in",
            remedy="Leave out --no-auth, or use --host 127.0.0.1.",
        )
    if not keys.exist():
        raise KeylessServer(f"other machines can reach {options.host}, and there is no key")


def _warn(guard: GuardOptions, settings: Settings) -> None:
    """Log what a person may not expect: nobody gets in, or everybody does through a proxy."""
    if not guard.requires_keys:
        if settings.hosts:
            log.warning(
                "--no-auth: everyone who reaches this server as %s has all rights", ", ".join(settings.hosts)
            )
    elif not guard.keys.exist() and (guard.keys.ever_made() or not guard.is_open):
        log.warning("there is no key, and every request needs one: make it with `penstock keys create NAME`")


def _tls(certificate: str | None, private_key: str | None) -> ssl.SSLContext | None:
    """Make the TLS context of a server; None without a certificate."""
    if (certificate is None) != (private_key is None):
        raise InvalidSetting("a certificate and a private key belong together: give both, or none")
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, private_key)
    except OSError as error:  # errors of TLS are of this kind
        raise InvalidSetting(
            f"{certificate} and {private_key} are not a certificate and its private key ({error})",
            remedy="Give PEM files that belong together.",
        ) from None
    return context


def _bound(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 is any free one."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(_BACKLOG)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise ServerFailed(f"{host} port {port} cannot be used: {error.strerror or error}") from None
    return bound


def make_server(assembly: Assembly, make_mcp: MakeMcp, **options: Any) -> HttpServer:
    """Make a server; see ``ServerOptions``. ``make_mcp`` makes the application for agents."""
    missing = [name for name in ("fastapi", "httptools", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise DriverMissing(f"the server needs {' and '.join(missing)}", remedy=install_remedy("serve"))

    return HttpServer(assembly, ServerOptions(**options), make_mcp)
