"""Pictures of text, drawn with the font that Pillow brings along."""

from __future__ import annotations

import io
import re
from collections import Counter

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from penstock.pipeline.extract.protocol import PageImage

PARAGRAPHS = (
    "The miller opens the sluice at dawn and\n"
    "lets the water of the river turn the wheel.\n"
    "Grain falls slowly between the stones.",
    "Every sack of flour is weighed and marked\n"
    "with the number of the farmer who brought\n"
    "the grain to the mill in the valley.",
)
TEXT = "\n\n".join(PARAGRAPHS)


def drawn(text: str = TEXT, *, size: int = 36, width: int = 1000, height: int = 520) -> Image.Image:
    """Black text on white paper."""
    picture = Image.new("L", (width, height), 255)
    font = ImageFont.load_default(size)
    ImageDraw.Draw(picture).multiline_text((60, 50), text, fill=0, font=font, spacing=size // 3)
    return picture


def page(picture: Image.Image, dpi: int = 300) -> PageImage:
    return PageImage(np.asarray(picture), dpi)


def encoded(picture: Image.Image, image_format: str = "PNG", **options: object) -> bytes:
    target = io.BytesIO()
    picture.save(target, image_format, **options)
    return target.getvalue()


def recall(text: str, truth: str = TEXT) -> float:
    """Share of the words of the truth that a text has."""
    wanted, found = (Counter(re.findall(r"\w+", each.lower())) for each in (truth, text))
    return (wanted & found).total() / wanted.total()
