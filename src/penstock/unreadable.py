"""Why a file's content cannot become text: the errors of documents, which end their job for good."""

from __future__ import annotations

from penstock.errors import PermanentFailure


class UnreadableDocument(PermanentFailure):
    """The content of a file cannot become text; the kinds below say why."""

    code = "ERR_UNREADABLE"
    default_remedy = "Look at the file named in the message; put it right or leave it out."


class UnsupportedType(UnreadableDocument):
    """The content is of a type no extractor takes, or is not what the file's name promises."""

    code = "ERR_UNSUPPORTED_TYPE"
    default_remedy = (
        "Convert the file to a supported type, or leave it out; docs/guides/documents.md lists them."
    )


class DocumentDamaged(UnreadableDocument):
    """The content begins as its type should and cannot be read to its end."""

    code = "ERR_PARSE"
    default_remedy = "Open the file with the program that made it and save it again."


class DocumentEncrypted(UnreadableDocument):
    """The document needs a password to be read."""

    code = "ERR_ENCRYPTED"
    default_remedy = "Save the document without a password, then index it again."


class NoText(UnreadableDocument):
    """Nothing in the document can become text, although it is not blank."""

    code = "ERR_NO_TEXT"
    default_remedy = "Index it with OCR, or leave it out."


class DocumentTooLarge(UnreadableDocument):
    """The file, or what it unpacks to, is larger than the limit."""

    code = "ERR_TOO_LARGE"
    default_remedy = "Split the file, or raise the limit named in the message."


class ParserFailed(UnreadableDocument):
    """The parser crashed on this file, or used more time or memory than it may."""

    code = "ERR_PARSER_FAILED"
    default_remedy = "Look at the file: it is damaged or hostile. `penstock queue retry ID` tries once more."


class ComponentMissing(UnreadableDocument):
    """A part of Penstock that is installed apart is needed for this file."""

    code = "ERR_COMPONENT_MISSING"
    default_remedy = "Install it with the command in the message, then `penstock queue retry ID`."
