"""Compressed single files, such as ``notes.txt.gz``: read as the file inside, at the outer path."""

from __future__ import annotations

import msgspec

from penstock.errors import DocumentDamaged, UnsupportedType
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.charset import SNIFFED
from penstock.pipeline.extract.containers.archive import BROKEN, decompressor, read_bounded
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits, FileType


class CompressedExtractor:
    name = "compressed"
    version = "1"

    def extract(
        self,
        content: Content,
        file_type: FileType,  # noqa: ARG002 - the type of the file inside counts
        limits: ExtractLimits,
        pages: range | None = None,
    ) -> ExtractedText:
        from penstock.pipeline.extract.factory import extractor

        source = decompressor(content.data)
        if source is None:
            raise UnsupportedType("the file is not compressed, in spite of its name")
        try:
            with source:
                data = read_bounded(source, limits.file_bytes)
        except BROKEN as error:
            raise DocumentDamaged(f"the compressed file is damaged: {error}") from error
        inner = Content(file_types.uncompressed_name(content.name), data)
        inner_type = file_types.detect(inner.name, data[:SNIFFED])
        if inner_type.extractor in ("archive", self.name):
            raise UnsupportedType("an archive or another compressed file is inside this compressed file")
        extracted = extractor(inner_type.extractor).extract(inner, inner_type, limits, pages)
        outer_type = msgspec.structs.replace(inner_type, extractor=self.name)
        return msgspec.structs.replace(extracted, file_type=outer_type)
