from __future__ import annotations

from penstock.pipeline.extract.opening import extract
from penstock.pipeline.extract.protocol import Content, Extracted, Limits


class Box:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def extract(self, content: Content, *, pages: range | None = None) -> Extracted:
        return extract(content, self._limits, pages=pages)

    def close(self) -> None: ...
