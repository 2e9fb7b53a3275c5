"""The short way of ``POST /content``: correct requests only, many in one transaction.

A request for a note costs little besides its row, so that the checks and threads of a route would cost most
of it. What is not plainly correct goes the long way, to the route, which finds and names the mistake.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Annotated

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.errors import PenstockError
from penstock.http.problems import logged_problem, respond
from penstock.http.request_context import Shared
from penstock.service.access import Principal
from penstock.service.jobs import Jobs
from penstock.service.notes import NoteRows, submit_each
from penstock.service.requests import Receipt

if TYPE_CHECKING:
    from penstock.service.requests import Submission

MOST_AT_ONCE = 200
"""Jobs added in one transaction."""
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class _Note(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The fields of ``ContentBody``."""

    content: Annotated[str, msgspec.Meta(min_length=1)]
    tag: _Name | None = None
    tenant_id: _Name | None = None
    collection: _Name | None = None
    branch: _Name | None = None


class _Waiting(msgspec.Struct, frozen=True):
    submission: Submission
    answer: asyncio.Future[Receipt]


class GroupedSubmissions:
    """Adds the jobs of concurrent requests in one transaction. Used by one event loop.

    The thread takes all requests that were received during its last transaction: it sleeps only if there are
    none, and the event loop is not asked for them.
    """

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._rows = NoteRows(jobs)
        # An executor would cost a quarter of an addition: a future with its locks for each group.
        self._waiting: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def submit(self, submission: Submission) -> Receipt:
        """Add a job; raises what ``Jobs.submit`` raises."""
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = threading.Thread(target=self._add, args=(loop,), name="enqueue", daemon=True)
            self._thread.start()
        answer: asyncio.Future[Receipt] = loop.create_future()
        self._waiting.put(_Waiting(submission, answer))
        return await answer

    def close(self) -> None:
        """End the thread, after the jobs received before."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()

    def _add(self, loop: asyncio.AbstractEventLoop) -> None:
        while group := self._next_group():
            outcomes: Sequence[Receipt | Exception]
            try:
                outcomes = submit_each(self._jobs, self._rows, [one.submission for one in group])
            except Exception as error:  # noqa: BLE001 - raised again in the requests
                outcomes = [error] * len(group)
            with suppress(RuntimeError):  # the loop is closed, and no request waits
                loop.call_soon_threadsafe(_answer, group, outcomes)

    def _next_group(self) -> list[_Waiting]:
        """Wait for a request, and take those behind it. Empty: the end."""
        group: list[_Waiting] = []
        while not group or (len(group) < MOST_AT_ONCE and not self._waiting.empty()):
            one = self._waiting.get()
            if one is None:
                if group:
                    self._waiting.put(None)
                break
            group.append(one)
        return group


def _answer(group: list[_Waiting], outcomes: Sequence[Receipt | Exception]) -> None:
    for one, outcome in zip(group, outcomes, strict=True):
        if one.answer.done():
            continue
        if isinstance(outcome, Exception):
            one.answer.set_exception(outcome)
        else:
            one.answer.set_result(outcome)


class QuickNotes:
    """Answers plain requests for notes, and passes all others on."""

    def __init__(self, app: ASGIApp, shared: Shared) -> None:
        self._app = app
        self._shared = shared
        self._decode = msgspec.json.Decoder(_Note).decode
        self._submissions = GroupedSubmissions(shared.jobs)
        shared.closing.append(self._submissions.close)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != "/content" or scope["method"] != "POST" or scope.get("query_string"):
            await self._app(scope, receive, send)
            return
        message = await receive()
        note = self._note(scope, message)
        if note is None:
            await self._app(scope, _again(message, receive), send)
            return
        try:
            submission = self._submission(scope["penstock.principal"], note)
            receipt = await self._submissions.submit(submission)
            answer = respond(self._shared.job_records.receipt(receipt), 202)
        except PenstockError as error:
            answer = logged_problem(error)
        await answer(scope, receive, send)

    def _note(self, scope: Scope, message: Message) -> _Note | None:
        """The note of a plain request; None: left to the route."""
        if (b"content-type", b"application/json") not in scope["headers"] or message.get("more_body"):
            return None
        try:
            note = self._decode(message.get("body", b""))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        # A lone surrogate is no JSON for the decoder.
        return None if any("\0" in text for text in (note.content, note.tag or "")) else note

    def _submission(self, principal: Principal, note: _Note) -> Submission:
        principal.require("write")
        shared = self._shared
        return shared.documents.notes.addition(
            note.content,
            shared.documents.notes.place_of(
                principal.tenant(note.tenant_id, shared.settings.tenant_id), note.collection, note.branch
            ),
            tags=[note.tag] if note.tag is not None else (),
        )


def _again(message: Message, receive: Receive) -> Receive:
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return message

    return again
