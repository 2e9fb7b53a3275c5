"""The OCR engine behind a vision endpoint that is compatible with OpenAI's chat completions."""

from __future__ import annotations

import base64
import http.client
import io
import re
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from penstock import clock
from penstock.errors import JobError, ParserFailed, ServiceUnavailable, TransientFailure
from penstock.pipeline.extract.charset import clean
from penstock.pipeline.ocr.protocol import EndpointOptions, RecognizedText

if TYPE_CHECKING:
    from penstock.pipeline.extract.protocol import PageImage

NAME = "endpoint"
SERVICE = "OCR endpoint"
PROMPT = "Extract the text content from this image."
"""The words on which dots.ocr was trained to answer with text, without positions."""
MAX_ANSWER_BYTES = 4 << 20
MAX_TOKENS = 16_384
LONGEST_WAIT_S = 3600.0
"""Limit for the wait that an endpoint may ask for."""
_PATH = "/chat/completions"
_PIECE = 1 << 16
_FENCE = re.compile(r"```(?:markdown|md|text)?\n(.*?)\n?```", re.DOTALL)
_CUT_OFF = "the answer of the OCR endpoint was cut off: text may be missing at the end of this page"


class _Message(msgspec.Struct):
    content: str | list[dict[str, Any]] | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]


class _Answer(NamedTuple):
    status: int
    body: bytes
    retry_after: timedelta | None


class VisionEndpoint:
    """An endpoint that is sent each page as a PNG picture."""

    def __init__(self, options: EndpointOptions) -> None:
        self.name = options.model
        self._options = options

    def recognize(self, image: PageImage) -> RecognizedText:
        return self.recognize_png(png(image))

    def recognize_png(self, picture: bytes) -> RecognizedText:
        """Recognize a picture in the PNG format.

        Raises ServiceUnavailable or TransientFailure if another attempt may succeed, ParserFailed if the
        endpoint has no text for this picture.
        """
        answer = self._post(_request_body(self._options.model, picture))
        if answer.status != http.HTTPStatus.OK:
            raise _refusal(answer, self._shown)
        choice = _choice(answer.body)
        text = _plain(_text_of(choice))
        if not text:
            raise ParserFailed("the OCR endpoint answered without text", remedy=_REMEDY)
        warnings = (_CUT_OFF,) if choice.finish_reason == "length" else ()
        return RecognizedText(text=text, engine=self.name, warnings=warnings)

    @property
    def _shown(self) -> str:
        """URL without user, password and query, for messages."""
        parts = urlsplit(self._options.url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"

    def _post(self, body: bytes) -> _Answer:
        parts = urlsplit(self._options.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ServiceUnavailable(
                SERVICE,
                "the URL of the OCR endpoint is not an http or https URL",
                remedy="Set PENSTOCK_OCR_ENDPOINT_URL to a URL such as http://127.0.0.1:8000/v1.",
            )
        deadline = clock.elapsed_s() + self._options.timeout_s
        make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = make(parts.hostname, parts.port, timeout=self._options.timeout_s)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise ServiceUnavailable(
                SERVICE, f"cannot connect to the OCR endpoint {self._shown}: {_cause(error)}"
            ) from None
        try:
            path = parts.path.rstrip("/")
            path = path if path.endswith(_PATH) else f"{path}{_PATH}"
            query = f"?{parts.query}" if parts.query else ""
            connection.request("POST", f"{path}{query}", body, self._headers())
            return _read(connection, deadline)
        except TimeoutError:
            raise TransientFailure(
                f"the OCR endpoint {self._shown} did not answer within {self._options.timeout_s:g} s",
                remedy="Check the endpoint, or raise PENSTOCK_OCR_ENDPOINT_TIMEOUT_S.",
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise TransientFailure(
                f"the OCR endpoint {self._shown} broke the connection: {_cause(error)}"
            ) from None
        finally:
            connection.close()

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Connection": "close"}
        if self._options.key:
            if not (self._options.key.isascii() and self._options.key.isprintable()):
                raise ServiceUnavailable(
                    SERVICE,
                    "the key of the OCR endpoint has characters that cannot be sent",
                    remedy="Correct PENSTOCK_OCR_ENDPOINT_KEY.",
                )
            headers["Authorization"] = f"Bearer {self._options.key}"
        return headers


_REMEDY = "Try the page again with `penstock index PATH --retry-failed`, or use another model."


def png(image: PageImage) -> bytes:
    """The picture in the PNG format."""
    from PIL import Image

    target = io.BytesIO()
    # The network is slower than weak compression.
    Image.fromarray(image.pixels).save(target, "PNG", dpi=(image.dpi, image.dpi), compress_level=3)
    return target.getvalue()


def _request_body(model: str, picture: bytes) -> bytes:
    data = base64.b64encode(picture).decode()
    return msgspec.json.encode(
        {
            "model": model,
            "temperature": 0,
            "max_tokens": MAX_TOKENS,
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
                        {"type": "text", "text": PROMPT},
                    ],
                }
            ],
        }
    )


def _read(connection: http.client.HTTPConnection, deadline: float) -> _Answer:
    response = connection.getresponse()
    pieces, size = [], 0
    while piece := response.read1(_PIECE):
        size += len(piece)
        if size > MAX_ANSWER_BYTES:
            raise ParserFailed(
                f"the answer of the OCR endpoint has more than {MAX_ANSWER_BYTES:,} bytes", remedy=_REMEDY
            )
        if clock.elapsed_s() > deadline:
            raise TimeoutError
        pieces.append(piece)
    return _Answer(response.status, b"".join(pieces), _wait(response.getheader("Retry-After")))


def _wait(retry_after: str | None) -> timedelta | None:
    """The wait that the endpoint asks for, in seconds or until a date."""
    if retry_after is None:
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(retry_after).timestamp() - clock.now().timestamp()
        except ValueError:
            return None
    return timedelta(seconds=min(max(seconds, 0.0), LONGEST_WAIT_S)) if seconds == seconds else None


def _refusal(answer: _Answer, url: str) -> JobError:
    """Make the error for an answer that is not 200: who must act, and whether a retry may help."""
    status, wait = answer.status, answer.retry_after
    message = f"the OCR endpoint {url} answered {status} {http.client.responses.get(status, '')}".rstrip()
    if status in (429, 502, 503, 504):
        return ServiceUnavailable(SERVICE, message, retry_after=wait)
    if status in (401, 403):
        return ServiceUnavailable(SERVICE, message, remedy="Correct PENSTOCK_OCR_ENDPOINT_KEY.")
    if status in (404, 405) or 300 <= status < 400:
        return ServiceUnavailable(
            SERVICE, message, remedy="Correct PENSTOCK_OCR_ENDPOINT_URL and PENSTOCK_OCR_ENDPOINT_MODEL."
        )
    if status >= 500 or status == 408:
        return TransientFailure(message, retry_after=wait)
    return ParserFailed(
        message, remedy="Check that the model takes pictures, and see the log of the endpoint."
    )


def _choice(body: bytes) -> _Choice:
    try:
        choices = msgspec.json.decode(body, type=_Completion).choices
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ParserFailed(f"the answer of the OCR endpoint is malformed: {error}", remedy=_REMEDY) from None
    if not choices:
        raise ParserFailed("the answer of the OCR endpoint is malformed: it has no choice", remedy=_REMEDY)
    return choices[0]


def _text_of(choice: _Choice) -> str:
    content = choice.message.content
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if isinstance(part.get("text"), str))
    return content or ""


def _plain(text: str) -> str:
    """The text of an answer, without the fence that models put around a whole document."""
    text = clean(text).strip()
    fenced = _FENCE.fullmatch(text)
    return fenced[1].strip() if fenced and "```" not in fenced[1] else text


def _cause(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
