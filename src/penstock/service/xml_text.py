"""Text for XML: without characters that XML cannot hold, and escaped."""

from __future__ import annotations

from xml.sax.saxutils import escape


def xml_text(text: str) -> str:
    """A text as it stands between two tags."""
    return escape("".join(char if _is_allowed(char) else "\ufffd" for char in text))


def _is_allowed(char: str) -> bool:
    return char in "\t\n\r" or " " <= char <= "\ud7ff" or "\ue000" <= char <= "\ufffd" or char > "\uffff"
