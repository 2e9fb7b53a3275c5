"""Formats of extensions: file types read by other packages."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from penstock import extensions
from penstock.extensions import Extension, ExtensionKind
from penstock.pipeline.extract.protocol import Extractor, FileType


class AddedFormat(msgspec.Struct, frozen=True):
    """A format of an extension: file type, suffixes and extractor.

    The extractor always runs in the sandbox. Its name is the one of the entry point, and the suffixes must
    be none that Penstock reads itself.
    """

    file_type: FileType
    suffixes: tuple[str, ...]
    extractor: Callable[[], Extractor]


def load_formats(own_extractors: Collection[str], own_suffixes: Collection[str]) -> dict[str, AddedFormat]:
    """Load the formats of all extensions, by the name of the extractor.

    Raises ``ExtensionFailed`` for one that has a name or a suffix of Penstock, or is no format.
    """
    found: dict[str, AddedFormat] = {}
    for name in extensions.names(ExtensionKind.FORMAT):
        extension = extensions.find(ExtensionKind.FORMAT, name)
        if extension is not None:
            found[name] = _checked(extension, own_extractors, own_suffixes)
    return found


def _checked(
    extension: Extension, own_extractors: Collection[str], own_suffixes: Collection[str]
) -> AddedFormat:
    added = extension.load()
    if not isinstance(added, AddedFormat):
        raise extension.failure(f"is not an AddedFormat, but {type(added).__name__}")
    if extension.name in own_extractors:
        raise extension.failure("has the name of an extractor of Penstock")
    if added.file_type.extractor != extension.name:
        raise extension.failure(f"has a file type of the extractor {added.file_type.extractor!r}")
    taken = [suffix for suffix in added.suffixes if suffix in own_suffixes]
    if taken:
        raise extension.failure(f"has the suffix .{taken[0]}, which Penstock reads itself")
    if not added.suffixes:
        raise extension.failure("has no suffix")
    return added
