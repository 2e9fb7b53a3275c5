"""The OCR engine behind a vision endpoint compatible with OpenAI's chat completions."""

from __future__ import annotations

import base64
import io
import re
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import ParserFailed
from penstock.pipeline.endpoint import EndpointOptions, EndpointUse
from penstock.pipeline.endpoint_client import Endpoint
from penstock.pipeline.extract.charset import clean
from penstock.pipeline.ocr.protocol import RecognizedText

if TYPE_CHECKING:
    from penstock.pipeline.extract.protocol import PageImage

_NAME = "endpoint"
_SERVICE = "OCR endpoint"
PROMPT = "Extract the text content from this image."
"""The words on which dots.ocr was trained to answer with text, without positions."""
MAX_ANSWER_BYTES = 4 << 20
MAX_TOKENS = 16_384
_FENCE = re.compile(r"```(?:markdown|md|text)?\n(.*?)\n?```", re.DOTALL)
_CUT_OFF = "the answer of the OCR endpoint was cut off: text may be missing at the end of this page"
_REMEDY = "Try the page again with `penstock index PATH --retry-failed`, or use another model."


def _refusal(message: str) -> ParserFailed:
    remedy = "Check that the model takes pictures, and see the log of the endpoint."
    return ParserFailed(message, remedy=remedy)


_USE = EndpointUse(_SERVICE, "ocr_endpoint", "/chat/completions", MAX_ANSWER_BYTES, _refusal)


class _Message(msgspec.Struct):
    content: str | list[dict[str, Any]] | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]


class VisionEndpoint:
    """An endpoint for page pictures, sent as PNG."""

    def __init__(self, options: EndpointOptions) -> None:
        self.name = options.model
        self._model = options.model
        self._endpoint = Endpoint(options, _USE)

    def recognize(self, image: PageImage) -> RecognizedText:
        return self.recognize_png(png(image))

    def recognize_png(self, picture: bytes) -> RecognizedText:
        """Recognize a picture in the PNG format.

        Raises ServiceUnavailable or TransientFailure if another attempt may succeed, ParserFailed if the
        endpoint has no text for this picture.
        """
        choice = _choice(self._endpoint.post(_request_body(self._model, picture)))
        text = _plain(_text_of(choice))
        if not text:
            raise ParserFailed("the OCR endpoint answered without text", remedy=_REMEDY)
        warnings = (_CUT_OFF,) if choice.finish_reason == "length" else ()
        return RecognizedText(text=text, engine=self.name, warnings=warnings)


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
    """The text of an answer, without a code fence around the whole."""
    text = clean(text).strip()
    fenced = _FENCE.fullmatch(text)
    return fenced[1].strip() if fenced and "```" not in fenced[1] else text
