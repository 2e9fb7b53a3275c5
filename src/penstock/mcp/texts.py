"""Results as short texts for an agent: paths with line numbers first, and nothing twice."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.catalog.rules.graph import Neighbourhood
from penstock.errors import PenstockError
from penstock.service.documents import DocumentPage, DocumentRecord
from penstock.service.hits import Coverage, coverage_text
from penstock.service.job_views import JobDetail, SubmitRecord
from penstock.service.pages import ShownPage
from penstock.service.passages import PromptContext, place_text
from penstock.service.search import SearchResult
from penstock.service.why import Reason
from penstock.vocabulary import how_many

SNIPPET = 400
"""Characters of a hit's text."""


def error_text(error: PenstockError) -> str:
    """Code, message and remedy of a refusal."""
    return f"{error.code}: {error.message}. {error.remedy}"


def chunk_uri(source_id: str, chunk_id: str) -> str:
    """The address of a chunk: ids of chunks are found below their document."""
    return f"chunk://{source_id}.{chunk_id}"


def search_text(found: SearchResult) -> str:
    """Hits with place, heading and the beginning of the text that matches."""
    lines = [f'"{each.word}" occurs nowhere: searched for "{each.searched}".' for each in found.corrections]
    lines += found.notes
    if not found.hits:
        return "\n".join([*lines, "No hits.", _covered(found.covered)])
    for number, hit in enumerate(found.hits, 1):
        weak = " (weak)" if hit.weak else ""
        lines += [
            f"{number}. {place_text(hit)}{weak}",
            f"   {_one_line(hit.snippet or hit.text, SNIPPET)}",
            f"   {chunk_uri(hit.source_id, hit.chunk_id)}",
        ]
    return "\n".join([*lines, _covered(found.covered)])


def _covered(covered: Coverage) -> str:
    """The line that says what was searched, and how to search all."""
    how = "" if covered.everything else " Search everything with: all=true"
    return coverage_text(covered) + how


def context_text(found: PromptContext) -> str:
    """Passages with their numbers, after notes and corrections."""
    lines = [f'"{each.word}" occurs nowhere: searched for "{each.searched}".' for each in found.corrections]
    return "\n".join([*lines, *found.notes, found.text or "No passages.", _covered(found.covered)])


def receipt_text(receipt: SubmitRecord) -> str:
    """The job of a request."""
    return "\n".join([f"{receipt.message}: job {receipt.job_id}, {receipt.status}", *(receipt.notes or ())])


def job_text(job: JobDetail) -> str:
    """Status, progress and reason of a job; what failed, with the remedy."""
    what = job.folder_path or f"{job.item_type} {job.op}"
    lines = [f"{job.job_id}: {job.status}, {what}"]
    progress = job.progress
    if progress.files_total:
        done = "unknown" if progress.files_processed is None else f"{progress.files_processed:,}"
        lines.append(
            f"files: {done} of {progress.files_total:,}, {how_many(progress.chunks_created, 'chunk')}"
        )
    if job.time_left_s is not None and job.status == "running":
        lines.append(f"time left: about {job.time_left_s:.0f} s")
    if job.reason:
        lines.append(f"waits: {job.reason}")
    if job.error:
        code = f"{job.error_code}: " if job.error_code else ""
        lines.append(f"error: {code}{job.error}")
    if job.remedy:
        lines.append(f"remedy: {job.remedy}")
    return "\n".join(lines)


def documents_text(page: DocumentPage) -> str:
    """One line for each document."""
    if not page.documents:
        return "No documents."
    more = ["More documents follow; narrow the path."] if page.next else []
    return "\n".join([*map(_document_line, page.documents), *more])


def page_text(page: ShownPage) -> str:
    """The text of a page, after a line with its place."""
    of = f", page {page.page} of {page.page_count}" if page.page_count > 1 else ""
    lines = [f"{page.path}{of} (document://{page.source_id})"]
    lines += [f"warning: {warning}" for warning in page.warnings]
    if page.error:
        lines.append(f"error: {page.error}")
    return "\n".join([*lines, "", page.text])


def reason_text(reason: Reason) -> str:
    """The reason why search finds a path or not, and the remedy."""
    lines = [f"{reason.path}: {reason.verdict}", reason.cause]
    lines += [f"warning: {warning}" for warning in reason.warnings]
    lines += [f"missing: {missing}" for missing in reason.missing]
    lines += [f"{state}: {number:,}" for state, number in sorted(reason.counts.items())]
    if reason.job_id:
        lines.append(f"job: {reason.job_id}")
    if reason.remedy:
        lines.append(f"remedy: {reason.remedy}")
    return "\n".join(filter(None, lines))


def neighbourhood_text(found: Neighbourhood) -> str:
    """Relations of a neighbourhood, one a line, after its entities."""
    names = {node.id: f"{node.name} ({node.kind})" for node, _distance in found.nodes}
    relations = [
        f"{names[edge.source]} -[{edge.kind}]-> {names[edge.target]}"
        for edge in found.edges
        if edge.source in names and edge.target in names
    ]
    return "\n".join([f"Entities: {_listed(names.values())}", *relations])


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _document_line(document: DocumentRecord) -> str:
    pages = f", {how_many(document.pages, 'page')}" if document.pages > 1 else ""
    error = f", {document.error}" if document.error else ""
    return f"{document.path} ({document.status}{pages}{error}) document://{document.source_id}"


def _one_line(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
