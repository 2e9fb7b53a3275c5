"""The short way of ``POST /content``: correct requests only, many in one transaction.

A request for a note costs little besides its row, so that the checks and threads of a route would cost most
of it. What is not plainly correct goes the long way, to the route, which finds and names the mistake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.errors import PenstockError
from penstock.http.answers import respond
from penstock.http.problems import logged_problem
from penstock.http.request_context import Shared
from penstock.service.access import Principal
from penstock.service.grouped_submissions import GroupedSubmissions

if TYPE_CHECKING:
    from penstock.service.requests import Submission

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class _Note(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The fields of ``ContentBody``."""

    content: Annotated[str, msgspec.Meta(min_length=1)]
    tag: Name | None = None
    tenant_id: Name | None = None
    collection: Name | None = None
    branch: Name | None = None


class QuickNotes:
    """Answers plain requests for notes, and passes all others on."""

    def __init__(self, app: ASGIApp, shared: Shared) -> None:
        self._app = app
        self._shared = shared
        self._decode = msgspec.json.Decoder(_Note).decode
        self._submissions = GroupedSubmissions(shared.jobs)
        shared.closing.append(self._submissions.close)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != "/content" or scope["method"] != "POST" or scope["query_string"]:
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
        """The note of a plain request; None: the route has to look at it."""
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
