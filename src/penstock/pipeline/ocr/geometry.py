"""Pictures of pages as arrays: shades of gray, size, quarter turns and skew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.named_tuple import NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]
    Points = NDArray[np.float64]

MAX_SKEW = 10.0
"""Largest skew that is looked for, in degrees."""
MIN_SKEW = 2.0
"""Skew below which turning a page gains nothing."""
_GAIN = 1.15
"""Factor by which turning must sharpen the lines; other pictures than text have no clear best angle."""
_SIDE = 800
"""Pixels along the longer side of the reduced picture in which the skew is measured."""
_ROWS = 128
_POINTS = 20_000
"""Dark points that are enough to measure the skew."""


def gray(pixels: Pixels) -> Pixels:
    """Shades of gray of a picture, in one contiguous block."""
    if pixels.ndim == 3:
        shades = np.empty(pixels.shape[:2], np.uint8)
        # Some rows at a time: numbers of 32 bits for a whole page take 200 MB.
        for row in range(0, len(pixels), _ROWS):
            red, green, blue = (pixels[row : row + _ROWS, :, band].astype(np.uint32) for band in range(3))
            # Weights of ITU-R 601, in integers.
            shades[row : row + _ROWS] = (red * 19_595 + green * 38_470 + blue * 7_471 + 32_768) >> 16
        pixels = shades
    return np.ascontiguousarray(pixels)


def turned(pixels: Pixels, degrees: int) -> Pixels:
    """The picture turned clockwise by a multiple of 90 degrees."""
    return np.ascontiguousarray(np.rot90(pixels, -degrees // 90)) if degrees % 360 else pixels


def level(pixels: Pixels, degrees: float) -> Pixels:
    """The picture turned clockwise by a few degrees, on a larger sheet with the color of the paper."""
    from PIL import Image

    paper = int(np.median(pixels[::8, ::8]))
    picture = Image.fromarray(pixels)
    turned = picture.rotate(-degrees, Image.Resampling.BILINEAR, expand=True, fillcolor=paper)
    return np.asarray(turned)


def resized(pixels: Pixels, width: int) -> Pixels:
    """The picture with another width and the same proportions."""
    from PIL import Image

    height = max(1, round(pixels.shape[0] * width / pixels.shape[1]))
    return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.LANCZOS))


def stretched(pixels: Pixels) -> Pixels:
    """The picture with full contrast: the darkest and the brightest hundredth become black and white."""
    low, high = np.percentile(pixels[::2, ::2], (1, 99))
    if high <= low:
        return pixels
    scale = np.clip((np.arange(256) - low) * (255 / (high - low)), 0, 255).astype(np.uint8)
    full: Pixels = scale[pixels]
    return full


def skew(pixels: Pixels) -> float:
    """Clockwise degrees for deskewing a gray picture, to make the lines level; 0 if unclear.

    Lines of text are level where the rows of a picture differ most in the number of their dark points.
    """
    rows, columns = _dark_points(pixels)
    if len(rows) < 50:
        return 0.0
    found = _sharpest(rows, columns)
    if not found.degrees:
        return 0.0
    # Columns that differ more than rows are the lines of a page that stands on its side.
    beside = _sharpest(columns, -rows)
    return beside.degrees if beside.sharpness > found.sharpness else found.degrees


class _Angle(NamedTuple):
    degrees: float
    sharpness: float


def _sharpest(rows: Points, columns: Points) -> _Angle:
    """Angle at which lines are sharpest; 0 where another one does not gain enough."""
    columns = columns - columns.mean()
    straight = _sharpness(rows, columns, 0.0)
    best, sharpest = 0.0, straight
    for step, reach in ((1.0, MAX_SKEW), (0.25, 0.75)):
        middle = best
        for angle in np.arange(middle - reach, middle + reach + step / 2, step):
            found = _sharpness(rows, columns, float(angle))
            if found > sharpest:
                best, sharpest = float(angle), found
    if MIN_SKEW <= abs(best) <= MAX_SKEW and sharpest >= _GAIN * straight:
        return _Angle(best, sharpest)
    return _Angle(0.0, straight)


def _dark_points(pixels: Pixels) -> tuple[Points, Points]:
    """Rows and columns of dark points in the reduced picture."""
    step = max(1, max(pixels.shape) // _SIDE)
    height, width = (side // step * step for side in pixels.shape)
    if not height or not width:
        return np.empty(0), np.empty(0)
    # The darkest of a few samples: the strokes of letters are thin.
    small = np.minimum(pixels[0:height:step, 0:width:step], pixels[step // 2 : height : step, 0:width:step])
    low, paper = np.percentile(small[::2, ::2], (1, 70))
    if paper - low < 30:
        return np.empty(0), np.empty(0)
    rows, columns = np.nonzero(small < (low + paper) / 2)
    if len(rows) > _POINTS:
        some = slice(None, None, -(-len(rows) // _POINTS))
        rows, columns = rows[some], columns[some]
    return rows.astype(np.float64), columns.astype(np.float64)


def _sharpness(rows: Points, columns: Points, degrees: float) -> float:
    """Sharpness of lines once the points are turned: the mean square of the differences between rows."""
    moved = rows + columns * np.tan(np.radians(degrees))
    counts = np.bincount((moved - moved.min()).astype(np.intp))
    return float(np.square(np.diff(counts, prepend=0, append=0)).sum())
