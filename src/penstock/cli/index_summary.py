"""Summary of an index job: what was done, what was left out, and the same as JSON.

The failed files follow the summary in a section of their own; see ``index_failures``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.cli import index_failures
from penstock.cli.output import printable, table, wrapped
from penstock.named_tuple import NamedTuple
from penstock.vocabulary import how_many, split_remedy

if TYPE_CHECKING:
    from penstock.catalog.values import RecognizedPages
    from penstock.cli.index_failures import JobFailures
    from penstock.job import Job
    from penstock.service.job_views import InsideFiles, JobReport, TypeOutcome

TOP_REASONS = 3
TYPES_SHOWN = 25
"""Lines of the table by type."""
_REASONS = {
    "gitignore": "by .gitignore",
    "penstockignore": "by .penstockignore",
    "hidden": "hidden",
    "binary": "of types without text",
    "archive": "of archive types (--archives)",
    "unsupported": "of types not supported yet",
    "generated": "generated or installed by tools",
    "secret": "with names of keys or passwords",
    "too_large": "above the size limit",
    "too_deep": "below the depth limit",
    "excluded": "by --exclude",
    "not_included": "not matched by --include",
    "link_outside": "linking out of the folder",
    "link_broken": "behind broken links",
    "link_repeated": "linking into the folder",
    "special": "of special types, like pipes",
    "name": "with names that are not UTF-8",
    "state": "of Penstock's own state",
    "repository": "of version control",
    "robots": "forbidden by robots.txt",
    "noindex": "that ask not to be indexed",
    "other_host": "on other hosts (--host)",
    "other_folder": "outside the folder of the documentation",
    "page_limit": "above the limit of pages (--max-pages)",
    "query": "with long or many queries",
    "redirect": "that redirect to others",
    "canonical": "that are copies of others",
    "gone": "that the server does not have",
    "media_type": "of types without text",
}
"""Rules of a walk as words after a number of files or folders."""


class IndexRequest(NamedTuple):
    """Facts about the request, for its summary."""

    before: JobReport | None = None
    """The job when the request joined it, if it had begun before."""
    code: str | None = None
    """The reason why code is included, where the request did not say."""
    project: str | None = None
    """Name and branch of the project that the documents are of."""


class IndexOutcome(NamedTuple):
    """Facts of the catalog about an ended job: failures, files inside others, pages read by OCR."""

    failures: JobFailures
    inside: InsideFiles
    recognized: RecognizedPages


def text(job: Job, seconds: float, request: IndexRequest, outcome: IndexOutcome) -> str:
    if job.status == "cancelled":
        # How many of the files sent were still indexed is not counted.
        return f"Cancelled after {seconds:.1f} s. Indexed files stay; the same command does the rest."
    summary = counted(job, outcome)
    lines = [f"{summary[:1].upper()}{summary[1:]} in {seconds:.1f} s."]
    if request.before is not None and job.ended:
        lines.append("Resumed: files that were done before this command count as unchanged.")
    if request.project:
        lines.append(f"Project {request.project}; other branches are kept apart.")
    if request.code and job.item_type != "file":
        lines.append(code_text(request.code))
    if _nothing_read(job):
        lines.append("No file was read.")
    skipped = left_out(job)
    if skipped:
        lines.append(f"{skipped}.")
    if outcome.recognized.pages:
        from penstock.service.why import recognized_text

        read = recognized_text(outcome.recognized)
        lines.append(f"{read[0].upper()}{read[1:]}.")
    by_type = types_table(job, outcome)
    return "\n".join([*map(wrapped, lines), *(["", by_type] if by_type else [])])


def _nothing_read(job: Job) -> bool:
    """Check whether all files of a folder were compared, and none was read."""
    from penstock.service.job_views import counts_of

    counts = counts_of(job)
    compared = job.status == "done" and job.item_type != "file" and counts.get("seen")
    return bool(compared) and not counts.get("sent") and not counts.get("moved") and not counts.get("resumed")


def types_table(job: Job, outcome: IndexOutcome) -> str:
    """Files by type and outcome, after a job that has read files; of one or two types only with failures."""
    from penstock.service.job_views import counts_of

    found = _by_type(job, outcome)
    several = len(found) > 2 or (len(found) > 1 and any(one.failed for one in found))
    if not several or not job.ended or not counts_of(job).get("sent"):
        return ""
    shown = found if len(found) <= TYPES_SHOWN else found[: TYPES_SHOWN - 1]
    names = {"": "no suffix", "*": "others"}
    rows: list[list[object]] = [
        [names.get(one.suffix, one.suffix), one.indexed, one.unchanged, one.skipped, one.failed]
        for one in shown
    ]
    rest = found[len(shown) :]
    if rest:
        numbers = [(one.indexed, one.unchanged, one.skipped, one.failed) for one in rest]
        rows.append([how_many(len(rest), "other type"), *map(sum, zip(*numbers, strict=True))])
    header = ["type", "indexed", "unchanged", "skipped", "failed"]
    kept = [at for at in range(len(header)) if any(row[at] for row in rows)]
    return table([header[at] for at in kept], [[row[at] or "" for at in kept] for row in rows])


def _by_type(job: Job, outcome: IndexOutcome) -> list[TypeOutcome]:
    from penstock.service.job_views import outcomes_by_type

    found = outcomes_by_type(job, outcome.failures.now, outcome.failures.before, outcome.inside)
    return sorted(found, key=lambda one: (one.suffix == "*", -one.indexed - one.failed - one.unchanged))


def code_text(reason: str) -> str:
    """Sentence about code that is included although the request did not ask for it."""
    return f"Code is included: {reason} (--no-code leaves it out)."


def counted(job: Job, outcome: IndexOutcome) -> str:
    """Result of a job in one line, without the time."""
    from penstock.service.job_views import counts_of, files_indexed, report_of

    failures, inside, _ = outcome
    if job.status == "failed" and not job.children_failed:
        return _error(job)
    if job.item_type == "file":
        return ", ".join([_of_file(job), *_inside(inside, "it"), *index_failures.counted(job, {}, failures)])
    report = report_of(job)
    chunks = (report.chunks_created if report is not None else 0) + inside.chunks
    parts = _done(job, files_indexed(job, failures.files(job)), _inside(inside, "them"), chunks)
    return ", ".join([*parts, *index_failures.counted(job, counts_of(job), failures)])


def reported(job: Job, report: JobReport) -> str:
    """Result of an ended folder job in one line, as far as the queue knows it."""
    from penstock.cli.job_views import failed_text
    from penstock.service.job_views import counts_of, files_indexed

    if job.status == "failed" and not job.children_failed:
        return _error(job)
    before = counts_of(job).get("failed_before", 0)
    # Files that were cancelled with the job were sent, and are not indexed.
    cancelled = report.files_total - (
        report.files_total if report.files_processed is None else report.files_processed
    )
    indexed = max(files_indexed(job, report.failed) - cancelled, 0)
    parts = _done(job, indexed, [], report.chunks_created)
    parts += [f"{before:,} cannot be read (unchanged)"] if before else []
    return ", ".join([*parts, *failed_text(report)])


def _error(job: Job) -> str:
    # The remedy is in the section of failures.
    return f"failed: {printable(split_remedy(job.error_message or '')[0])} ({job.error_code})"


def _done(job: Job, indexed: int, inside: list[str], chunks: int) -> list[str]:
    """Counts of a folder job, without failures."""
    from penstock.service.job_views import counts_of

    counts = counts_of(job)
    parts = [how_many(indexed, "file") + " indexed", *inside]
    if chunks:
        parts.append(how_many(chunks, "chunk"))
    same = counts | {"unchanged": max(counts.get("unchanged", 0) - counts.get("resumed", 0), 0)}
    parts += [f"{same[name]:,} {name}" for name in ("unchanged", "moved", "vanished") if same.get(name)]
    if other := counts.get("other_extractor"):
        parts.append(f"{other:,} with entities of another model (see `penstock rebuild`)")
    return parts


def _inside(files: InsideFiles, container: str) -> list[str]:
    return [f"{how_many(files.count, 'file')} inside {container}"] if files.count else []


def _of_file(job: Job) -> str:
    done = job.result_fields
    summary = str(done.get("outcome", job.status))
    if done.get("chunks"):
        embedded = done.get("embedded", done["chunks"])
        summary += f": {how_many(done['chunks'], 'chunk')}, {embedded:,} embedded"
    return summary


def left_out(job: Job) -> str:
    """Sentence about what was left out, with the most frequent reasons; source code first."""
    return left_out_text(_skipped(job), TOP_REASONS)


def left_out_text(skipped: dict[str, int], top: int | None) -> str:
    """Sentence about skipped paths, given by rule; ``top``: the number of reasons, None for all."""
    code, others = _reasons(skipped, top)
    if code:
        first = f"{code} left out (--include-code)"
        return f"{first}; also {', '.join(others)}" if others else first
    return f"Left out: {', '.join(others)}" if others else ""


def all_left_out(job: Job) -> str:
    """All reasons why files and folders were left out, in one line."""
    code, others = _reasons(_skipped(job), None)
    return ", ".join([*([f"{code} (--include-code)"] if code else []), *others])


def _skipped(job: Job) -> dict[str, int]:
    from penstock.service.job_views import counts_of

    return dict(counts_of(job).get("skipped_by", {}))


def _reasons(skipped: dict[str, int], top: int | None) -> tuple[str, list[str]]:
    reasons = dict(sorted(skipped.items(), key=lambda entry: (-entry[1], entry[0])))
    code = reasons.pop("code", 0)
    shown = list(reasons.items())[: None if top is None else top - bool(code)]
    parts = [f"{count:,} {_REASONS.get(rule, rule)}" for rule, count in shown]
    others = sum(reasons.values()) - sum(count for _, count in shown)
    return how_many(code, "source file") if code else "", [
        *parts,
        *([how_many(others, "other")] if others else []),
    ]


def as_json(job: Job, seconds: float, request: IndexRequest, outcome: IndexOutcome) -> dict[str, Any]:
    """The summary as JSON, without the failed files."""
    from penstock.service.job_views import counts_of, files_indexed, result_of

    counts = {
        name: value
        for name, value in counts_of(job).items()
        if name not in ("outcome", "include_code", "types")
    }
    before, (failures, inside, _) = request.before, outcome
    former = failures.of_former_runs(job)
    if former:
        counts["failed_before"] -= former
    return {
        "job_id": job.queue_id,
        "status": str(job.status),
        "seconds": round(seconds, 3),
        "counts": counts
        | {
            "indexed": files_indexed(job, failures.files(job)),
            "failed": failures.files(job) + former,
            "inside_indexed": inside.count,
            "inside_failed": failures.inside(),
        },
        "total_chunks": job.total_chunks + counts.get("resumed_chunks", 0) + inside.chunks,
        "resumed": before is not None,
        "done_before": before.files_processed if before is not None else 0,
        "types": _by_type(job, outcome),
        "code_included_because": request.code,
        "project": request.project,
        "result": result_of(job),
        "error": {"code": job.error_code, "message": job.error_message} if job.error_code else None,
    }
