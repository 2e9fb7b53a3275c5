"""``penstock index``: queue a path, and run the job here when no worker is running."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from penstock.cli.exit_codes import INTERRUPTED, OK, REFUSED, UNREADABLE, exit_code
from penstock.cli.options import all_words
from penstock.cli.output import collected_json, emit, emit_error, emit_json, printable, table, wrapped
from penstock.cli.progress import receipt_as_json, shown_live
from penstock.cli.session import QUEUE_DISABLED, Session
from penstock.errors import ConfigError, LocalOnly, PenstockError, StoreError
from penstock.vocabulary import how_many, split_remedy

if TYPE_CHECKING:
    from penstock.catalog.values import RecognizedPages
    from penstock.client.sync_client import Client
    from penstock.queue.job import Job
    from penstock.service.job_views import InsideFiles, JobReport, TypeOutcome
    from penstock.service.requests import Receipt
    from penstock.service.why import FailedPath


def index_each(
    session: Session, paths: Sequence[str], options: dict[str, Any], index: Callable[[str], None], done: str
) -> None:
    """Check all paths, then index one after the other; the first failure gives the exit code.

    A path that is refused or fails does not stop the others. Ctrl-C and an unusable store do. ``done`` is the
    summary's word for success.
    """
    from penstock.queue.payloads import is_off_disk
    from penstock.service.paths import real_path

    wanted = list({path if is_off_disk(path) else real_path(path): path for path in paths}.values())
    for path in wanted if session.client is None else ():
        # Raises for a path that is missing or cannot be indexed, before any job is queued.
        session.assembly.documents.submission(path, **options)
    codes: dict[str, int] = {}
    with collected_json() as answers:
        for path in wanted:
            if not session.as_json and not session.quiet:
                emit(("\n" if codes else "") + f"{printable(path)}:")
            begun = len(answers)
            codes[path] = _code_of(session, path, index)
            answers[begun:] = [{"path": path} | answer for answer in answers[begun:]]
            if codes[path] == INTERRUPTED:
                break
    if session.as_json:
        emit_json(answers)
    elif not session.quiet:
        emit("\n" + _summary(wanted, codes, done))
    failed = [code for code in codes.values() if code != OK]
    if failed:
        raise SystemExit(INTERRUPTED if INTERRUPTED in failed else failed[0])


def _code_of(session: Session, path: str, index: Callable[[str], None]) -> int:
    try:
        index(path)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else REFUSED
    except (StoreError, ConfigError):
        raise
    except PenstockError as error:
        if session.as_json:
            emit_json({"error": {"code": error.code, "message": error.message, "remedy": error.remedy}})
        else:
            emit_error(error, as_json=False)
        return exit_code(error)
    return OK


def _summary(paths: Sequence[str], codes: dict[str, int], done: str) -> str:
    failed = [path for path, code in codes.items() if code not in (OK, INTERRUPTED)]
    left = [path for path in paths if codes.get(path, INTERRUPTED) == INTERRUPTED]
    parts = [f"{len(paths) - len(failed) - len(left):,} of {len(paths):,} paths {done}"]
    parts += [f"{len(failed):,} failed ({_named(failed)})"] if failed else []
    parts += [f"{len(left):,} not finished ({_named(left)})"] if left else []
    return ", ".join(parts) + "."


def _named(paths: Sequence[str], most: int = 5) -> str:
    return ", ".join(printable(path) for path in paths[:most]) + (", …" if len(paths) > most else "")


NAMED = 3
"""Paths named for each reason and remedy, and remedies for each reason."""


class _JobFailures(NamedTuple):
    """Failures at and below the path of a job: of this job, and of earlier ones.

    The latter are listed apart: they are unchanged, were not read again, and do not change the exit code.
    """

    now: list[FailedPath]
    before: list[FailedPath]

    def files(self, job: Job) -> int:
        """Number of files on the disk that failed in this run of a job.

        The job of a mail also fails with an attachment, but the mail itself is indexed.
        """
        from penstock.service.job_views import counts_of

        if job.item_type == "file":
            return sum(one.container is None for one in self.now)
        containers = {one.container for one in self.now if one.container is not None}
        indexed = len(containers - {one.path for one in self.now})
        # Members sent without their container are child jobs themselves.
        others = self.inside() if counts_of(job).get("inside") else indexed
        return max(job.children_failed - others, 0)

    def inside(self) -> int:
        """Number of files inside others that failed now."""
        return sum(one.container is not None for one in self.now)

    def of_former_runs(self, job: Job) -> int:
        """Number of files that failed in a former run of this job: its last walk took them for old ones."""
        from penstock.service.job_views import counts_of

        new = sum(one.remembered and one.since is not None and one.container is None for one in self.now)
        counted_as_old: int = counts_of(job).get("failed_before", 0)
        return min(max(new - self.files(job), 0), counted_as_old)


def counted(job: Job, counts: dict[str, Any], failures: _JobFailures) -> list[str]:
    """Failures as parts of the summary's first line, also of files inside others. ``counts``: of the walk."""
    former = failures.of_former_runs(job)
    failed = failures.files(job) + former + failures.inside()
    before = (
        counts.get("failed_before", 0) + sum(one.container is not None for one in failures.before) - former
    )
    parts = [f"{before:,} cannot be read (unchanged)"] if before else []
    return [*parts, *([f"{failed:,} failed"] if failed else [])]


def divided(found: Sequence[FailedPath], job: Job) -> _JobFailures:
    """Failures at and below the path of a job: those of this job, and earlier ones."""
    now = [one for one in found if one.since is None or one.since >= job.created_at]
    return _JobFailures(now, [one for one in found if one not in now and one.remembered])


def _print_section(job: Job, failures: _JobFailures) -> None:
    """Print failures by reason, each with its remedy."""
    from penstock.service.job_views import job_path

    root = job_path(job)
    if failures.now:
        emit(f"\n{len(failures.now):,} failed:")
        print_reasons(root, failures.now)
    if failures.before:
        since = max(one.since for one in failures.before if one.since is not None)
        emit(f"\n{len(failures.before):,} cannot be read (unchanged since {since:%Y-%m-%d %H:%M} UTC):")
        print_reasons(root, failures.before)
    if not failures.now and not failures.before:
        return
    named = [*failures.now, *failures.before]
    hints = []
    if any(one.path != root for one in named) and len(named) > NAMED:
        hints.append(f"All of them: penstock why {printable(root)}")
    if any(not one.remembered for one in failures.now):
        hints.append(f"Try again: penstock retry {job.queue_id}")
    if any(one.remembered for one in named):
        hints.append("A changed file is read by the next index; --retry-failed reads unchanged ones again.")
    emit("\n" + "\n".join(map(wrapped, hints)))


def print_reasons(root: str, failures: Sequence[FailedPath]) -> None:
    """Print failures by reason, with paths relative to ``root``; below ``/`` they stay absolute."""
    from penstock.service.why import by_reason, by_remedy

    for code, some in by_reason(failures).items():
        remedies = by_remedy(some)
        if len(remedies) == 1:
            _print_line(f"{code}, {how_many(len(some), 'file')}: {some[0].remedy}", 2)
            _print_named(root, some, 4)
            continue
        _print_line(f"{code}, {how_many(len(some), 'file')}:", 2)
        shown = list(remedies.items())[:NAMED]
        for remedy, same in shown:
            _print_line(f"{how_many(len(same), 'file')}: {remedy}", 4)
            _print_named(root, same, 6)
        left = len(some) - sum(len(same) for _, same in shown)
        if left:
            others = how_many(len(remedies) - len(shown), "other remedy", "other remedies")
            _print_line(f"and {how_many(left, 'file')} with {others}", 4)


def _print_named(root: str, failures: Sequence[FailedPath], indent: int) -> None:
    """Print the first failures, and how many more there are."""
    for one in failures[:NAMED]:
        _print_line(f"{_name(one.path, root)}: {one.cause}", indent)
    if len(failures) > NAMED:
        _print_line(f"and {len(failures) - NAMED:,} more", indent)


def _name(path: str, root: str) -> str:
    if root == "/":
        return path
    return os.path.relpath(path, root if path != root else os.path.dirname(root))  # noqa: PTH120 - text


def _print_line(text: str, indent: int) -> None:
    emit(wrapped(printable(text), " " * indent))


def _failures_json(failures: _JobFailures) -> dict[str, Any]:
    return {
        "failures": [_as_json(one) for one in failures.now],
        "failed_before": [_as_json(one) for one in failures.before],
    }


def _as_json(failure: FailedPath) -> dict[str, Any]:
    return {
        "path": failure.path,
        "code": failure.code,
        "message": failure.cause,
        "remedy": failure.remedy,
        "since": failure.since,
    }


def _failures_exit_code(job: Job, failures: _JobFailures) -> int:
    """Exit code of a job that failed. One for a single file may only repeat an earlier failure."""
    repeated = job.item_type == "file" and bool(failures.before) and not failures.now
    return UNREADABLE if repeated else REFUSED


_TOP_REASONS = 3
_TYPES_SHOWN = 25
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


class _IndexRequest(NamedTuple):
    """Facts about the request, for its summary."""

    before: JobReport | None = None
    """The job when the request joined it, if it had begun before."""
    code: str | None = None
    """The reason why code is included, where the request did not say."""
    project: str | None = None
    """Name and branch of the project that the documents are of."""


class _IndexOutcome(NamedTuple):
    """Facts of the catalog about an ended job: failures, files inside others, pages read by OCR."""

    failures: _JobFailures
    inside: InsideFiles
    recognized: RecognizedPages


def _summary_text(job: Job, seconds: float, request: _IndexRequest, outcome: _IndexOutcome) -> str:
    if job.status == "cancelled":
        # How many of the files sent were still indexed is not counted.
        return f"Cancelled after {seconds:.1f} s. Indexed files stay; the same command does the rest."
    summary = _counted_files(job, outcome)
    lines = [f"{summary[:1].upper()}{summary[1:]} in {seconds:.1f} s."]
    if request.before is not None and job.ended:
        lines.append("Resumed: files that were done before this command count as unchanged.")
    if request.project:
        lines.append(f"Project {request.project}; other branches are kept apart.")
    if request.code and job.item_type != "file":
        lines.append(_code_text(request.code))
    if _nothing_read(job):
        lines.append("No file was read.")
    skipped = left_out(job)
    if skipped:
        lines.append(f"{skipped}.")
    if outcome.recognized.pages:
        from penstock.service.why import recognized_text

        read = recognized_text(outcome.recognized)
        lines.append(f"{read[0].upper()}{read[1:]}.")
    by_type = _types_table(job, outcome)
    return "\n".join([*map(wrapped, lines), *(["", by_type] if by_type else [])])


def _nothing_read(job: Job) -> bool:
    """Check whether all files of a folder were compared, and none was read."""
    from penstock.service.job_views import counts_of

    counts = counts_of(job)
    compared = job.status == "done" and job.item_type != "file" and counts.get("seen")
    return bool(compared) and not counts.get("sent") and not counts.get("moved") and not counts.get("resumed")


def _types_table(job: Job, outcome: _IndexOutcome) -> str:
    """Files by type and outcome, after a job that has read files; of one or two types only with failures."""
    from penstock.service.job_views import counts_of

    found = _by_type(job, outcome)
    several = len(found) > 2 or (len(found) > 1 and any(one.failed for one in found))
    if not several or not job.ended or not counts_of(job).get("sent"):
        return ""
    shown = found if len(found) <= _TYPES_SHOWN else found[: _TYPES_SHOWN - 1]
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


def _by_type(job: Job, outcome: _IndexOutcome) -> list[TypeOutcome]:
    from penstock.service.job_views import outcomes_by_type

    found = outcomes_by_type(job, outcome.failures.now, outcome.failures.before, outcome.inside)
    return sorted(found, key=lambda one: (one.suffix == "*", -one.indexed - one.failed - one.unchanged))


def _code_text(reason: str) -> str:
    """Sentence about code that is included although the request did not ask for it."""
    return f"Code is included: {reason} (--no-code leaves it out)."


def _counted_files(job: Job, outcome: _IndexOutcome) -> str:
    """Result of a job in one line, without the time."""
    from penstock.service.job_views import counts_of, files_indexed, report_of

    failures, inside, _ = outcome
    if job.status == "failed" and not job.children_failed:
        return _error(job)
    if job.item_type == "file":
        return ", ".join([_of_file(job), *_inside(inside, "it"), *counted(job, {}, failures)])
    report = report_of(job)
    chunks = (report.chunks_created if report is not None else 0) + inside.chunks
    parts = _done(job, files_indexed(job, failures.files(job)), _inside(inside, "them"), chunks)
    return ", ".join([*parts, *counted(job, counts_of(job), failures)])


def reported(job: Job, report: JobReport) -> str:
    """Result of an ended folder job in one line, as far as the queue knows it."""
    from penstock.cli.progress import failed_text
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
    return _left_out_text(_skipped(job), _TOP_REASONS)


def _left_out_text(skipped: dict[str, int], top: int | None) -> str:
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


def _summary_json(job: Job, seconds: float, request: _IndexRequest, outcome: _IndexOutcome) -> dict[str, Any]:
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


_CLAIMED_WITHIN_S = 3.0


@click.command()
@click.argument("paths", metavar="PATH|URL...", nargs=-1, required=True, type=click.Path())
@click.option("--collection", metavar="NAME", help="Collection for the documents.")
@click.option("--tenant", metavar="NAME", help="Tenant who owns the documents.")
@click.option("--branch", metavar="NAME", help="Branch of the documents.")
@click.option("--include", multiple=True, metavar="GLOB", help="Index only matching files; may be repeated.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Leave out matching files; may be repeated.")
@click.option(
    "--include-code/--no-code",
    " /--no-include-code",
    "include_code",
    default=None,
    help="Index source code, or leave it out. Default: in a git repository or beside a project file.",
)
@click.option(
    "--archives/--no-archives",
    default=None,
    help="Open zip and tar archives as folders, or skip them. Default: PENSTOCK_ARCHIVES, else skip.",
)
@click.option(
    "--project/--no-project",
    default=None,
    help="Index PATH as a project, by its branch, or as any folder. Default: a project in a git work tree.",
)
@click.option(
    "--depth",
    type=click.IntRange(0),
    metavar="N",
    help="Maximum folder depth; of a web page, the links followed from it: 0 is the page alone. Default: 3.",
)
@click.option("--host", "hosts", multiple=True, metavar="ADDRESS", help="Follow links to this host, too.")
@click.option(
    "--max-pages",
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="Maximum number of web pages. Default: 1,000.",
)
@click.option("--recursive/--no-recursive", default=True, help="Include subfolders, or not.")
@click.option(
    "--chunk-size",
    type=click.IntRange(16, 8192),
    metavar="TOKENS",
    help="Chunk size in tokens, about: 16 to 8,192.",
)
@click.option(
    "--chunk-overlap",
    type=click.IntRange(0),
    metavar="TOKENS",
    help="Tokens repeated at the start of a chunk: at most half of --chunk-size.",
)
@click.option(
    "--graph/--no-graph",
    default=None,
    help="Extract entities and relations, or remove them. Default: PENSTOCK_GRAPH, or as they are.",
)
@click.option(
    "--ocr/--no-ocr",
    default=None,
    help="Recognize text in pictures and scans, or leave them unread. Default: PENSTOCK_OCR, else recognize.",
)
@click.option("--force", is_flag=True, help="Index unchanged files again.")
@click.option("--checksum", is_flag=True, help="Compare file contents, not only size and time.")
@click.option("--retry-failed", is_flag=True, help="Read unchanged files again that failed before.")
@click.option(
    "--allow-external",
    is_flag=True,
    help="With --server: allow a path outside its roots, if its settings do.",
)
@click.option("--allow-empty", is_flag=True, help="Succeed when the folder has no file to index.")
@click.option(
    "--wait/--no-wait", default=None, help="Wait until the job has ended, or return once it is queued."
)
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    metavar="N",
    help="Number of processes when the job runs in this command.",
)
@click.option(
    "--serial",
    is_flag=True,
    help="Run after the serial jobs before it in the collection; in this command, with one process.",
)
@click.option("--dry-run", is_flag=True, help="Count the files, but index nothing.")
@click.pass_obj
def index(session: Session, /, paths: tuple[str, ...], **given: Any) -> None:
    """Index files, folders and web pages for search.

    When a worker is running, the job is queued for that worker. Otherwise this command does the work and
    shows a progress bar. Ctrl-C stops it; the same command continues.

    Several PATHs are one request each, in this order. If one is missing, nothing is queued.

    \b
    penstock index ./docs
    penstock index handbook notes/mill.md
    penstock index ~/src/mill --collection code
    penstock index https://docs.example.org/ --depth 2
    """
    if len(paths) > 1:
        done = "compared" if given["dry_run"] else "done"
        index_each(session, paths, _options(given), lambda path: _index(session, path, given), done)
    else:
        _index(session, paths[0], given)


def _index(session: Session, path: str, given: dict[str, Any]) -> None:
    options = _options(given)
    _refuse_overlap(given["chunk_size"], given["chunk_overlap"])
    if given["depth"] == 0 and "://" not in path:
        raise click.UsageError("--depth 0 is for web pages: the depth of a folder is 1 or more.")
    if session.client is not None:
        _index_by_server(session, session.client, path, given)
        return
    if given["dry_run"]:
        _preview(session, path, options)
        return
    documents = session.assembly.documents
    follow(
        session,
        f"Indexing {path}",
        lambda: documents.index(path, **options),
        given,
        code=lambda: documents.why_code(path, **options),
        project=lambda: (
            session.place(path, tenant=given["tenant"], branch=given["branch"], project=given["project"]).name
        ),
    )


def follow(
    session: Session,
    title: str,
    submit: Callable[[], Receipt],
    given: dict[str, Any],
    *,
    code: Callable[[], str | None] = lambda: None,
    project: Callable[[], str | None] = lambda: None,
) -> None:
    """Submit a job and run it here, or wait for a worker, as the options say; then print its result.

    ``code``: tells why code is included although the request did not ask for it. ``project``: names the
    project and branch of the documents.
    """
    alive = session.assembly.worker_alive()
    disabled = session.waits_for_enabling(worker_alive=alive)
    may_run_here = given["wait"] is not False and not alive and not disabled
    if may_run_here:
        session.assembly.documents.refuse_another_model()
    receipt = submit()
    request = _IndexRequest(_begun_before(session, receipt), code(), project())
    here = may_run_here and not _claimed_elsewhere(session, receipt.job_id)
    if not session.as_json and not session.quiet:
        watches = "here" if here else "there" if given["wait"] and not disabled else None
        _print_queued(receipt, request, alive=alive, watches=watches)
    if disabled and not session.as_json:
        session.hint(QUEUE_DISABLED)
    elif given["wait"] is False and not alive and not session.as_json:
        session.hint("No worker is running. Start one with: penstock worker")
    if disabled or (not here and not given["wait"]):
        if session.as_json:
            emit_json(receipt_as_json(receipt))
        return
    began = time.monotonic()
    with shown_live(session, receipt.job_id, title, here=here):
        if here:
            session.run_here(receipt.job_id, processes=1 if given["serial"] else given["processes"] or 2)
        else:
            session.assembly.wait(receipt.job_id)
    _print_result(session, receipt, request, time.monotonic() - began)


def _index_by_server(session: Session, client: Client, path: str, given: dict[str, Any]) -> None:
    """Queue a path of the server, and wait for the job if asked to."""
    from penstock.queue import payloads

    if given["dry_run"]:
        raise LocalOnly("--dry-run does not work through a server")
    options = _options(given) | {"priority": payloads.PRIORITY_BY_DOOR["cli"]}
    began = time.monotonic()
    receipt = client.index(session.path(path), **options, allow_external=given["allow_external"])

    def code() -> str | None:
        decided = given["include_code"] is not None or given["project"]
        return None if decided else client.outcome(receipt.job_id).code_included_because

    follow_there(
        session,
        client,
        f"Indexing {path}",
        receipt,
        began,
        waits=bool(given["wait"]),
        code=code,
        project=lambda: _project_of(session, client, receipt),
    )


def _project_of(session: Session, client: Client, receipt: Receipt) -> str | None:
    """Name and branch of the project that a job of the server is of."""
    job = client.job(receipt.job_id)
    name = session.project_names.get(job.tenant_id)
    return None if name is None else f"{name} (branch {job.branch})"


def follow_there(
    session: Session,
    client: Client,
    title: str,
    receipt: Receipt,
    began: float,
    *,
    waits: bool,
    code: Callable[[], str | None] = lambda: None,
    project: Callable[[], str | None] = lambda: None,
) -> None:
    """Print what a server queued; with ``waits``, wait for the job and print its result."""
    alive = client.ready().workers > 0
    request = _IndexRequest(_begun_before(session, receipt))
    if not session.as_json and not session.quiet:
        _print_queued(receipt, request, alive=alive, watches="there" if waits else None)
    if not alive and not session.as_json:
        session.hint("No worker is running. Start one with: penstock worker")
    if not waits:
        if session.as_json:
            emit_json(receipt_as_json(receipt))
        return
    with shown_live(session, receipt.job_id, title, here=False):
        client.wait(receipt.job_id)
    request = request._replace(code=code(), project=project())
    _print_result(session, receipt, request, time.monotonic() - began)


def _begun_before(session: Session, receipt: Receipt) -> JobReport | None:
    """Report on the job as this request found it; None for a new job, or one that had not begun."""
    from penstock.service.job_views import report_of

    if not receipt.dedupe_hit:
        return None
    job = session.services.job(receipt.job_id)
    return report_of(job) if job.started_at is not None or job.run > 1 else None


def _refuse_overlap(size: int | None, overlap: int | None) -> None:
    if overlap is not None:
        from penstock.queue.payloads import USUAL_CHUNK

        if 2 * overlap > (size or USUAL_CHUNK):
            raise click.UsageError(
                f"--chunk-overlap {overlap} is more than half of --chunk-size {size or USUAL_CHUNK}."
            )


def _options(given: dict[str, Any]) -> dict[str, Any]:
    plain = (
        "collection branch include_code archives depth recursive chunk_size chunk_overlap graph ocr force "
    )
    plain += "max_pages"
    options = {
        name: given[name] for name in [*plain.split(), "checksum", "retry_failed", "allow_empty", "project"]
    }
    return options | {
        "tenant_id": given["tenant"],
        "include": all_words(given["include"]),
        "exclude": all_words(given["exclude"]),
        "hosts": all_words(given["hosts"]),
        "priority": None,
        "serial": given["serial"] or None,
    }


def _claimed_elsewhere(session: Session, job_id: str) -> bool:
    """Wait a moment for a worker on another host to claim the job; stores in files have none."""
    if session.settings.store.is_file:
        return False
    if session.assembly.jobs.job(job_id).status != "pending":
        # From an earlier request. Its worker may be dead without a trace; it is safe for two to work on it.
        return False
    until = time.monotonic() + _CLAIMED_WITHIN_S
    while session.assembly.jobs.job(job_id).status == "pending" and (left := until - time.monotonic()) > 0:
        session.assembly.jobs.queue.wait(min(left, 0.2))
    return session.assembly.jobs.job(job_id).status != "pending"


def _print_queued(receipt: Receipt, request: _IndexRequest, *, alive: bool, watches: str | None) -> None:
    """Print what became of the request. ``watches``: ``here`` or ``there``, where this command waits."""
    message = "Job queued!"
    if receipt.dedupe_hit and watches == "there":
        message = "Duplicate detected - watching existing job"
    elif receipt.dedupe_hit and watches == "here":
        message = _resume_message(request)
    elif receipt.dedupe_hit:
        message = receipt.message
    click.echo(message, err=True)
    click.echo(f"Job ID: {receipt.job_id}", err=True)
    if receipt.status == "pending" and receipt.queue_position is not None and receipt.queue_length:
        click.echo(f"Queue Position: {receipt.queue_position + 1} of {receipt.queue_length}", err=True)
    for note in receipt.notes:
        click.echo(wrapped(f"Note: {note}"), err=True)
    if alive and watches is None:
        click.echo(f"A worker is running. Follow it with: penstock jobs {receipt.job_id} --watch", err=True)


def _resume_message(request: _IndexRequest) -> str:
    before = request.before
    if before is None:
        return "The same job was queued before; it runs now."
    if not before.files_total or before.files_processed is None:
        return "Resuming the interrupted job."
    return f"Resuming: {before.files_processed:,} of {how_many(before.files_total, 'file')} done before."


def _print_result(session: Session, receipt: Receipt, request: _IndexRequest, seconds: float) -> None:
    job, found = session.services.job(receipt.job_id), session.services.outcome(receipt.job_id)
    failures = divided(found.failures, job)
    outcome = _IndexOutcome(failures, found.inside, found.recognized)
    if session.as_json:
        answer = receipt_as_json(receipt) | _summary_json(job, seconds, request, outcome)
        answer["recognized"] = found.recognized
        emit_json(answer | _failures_json(failures))
    elif not session.quiet or job.status != "done":
        emit(_summary_text(job, seconds, request, outcome))
        _print_section(job, failures)
    if not job.ended:
        if not session.as_json:
            emit(wrapped("Stopped. The same command continues; `penstock cancel ID` ends the job."))
        raise SystemExit(INTERRUPTED)
    if job.status != "done" or failures.of_former_runs(job):
        raise SystemExit(_failures_exit_code(job, failures))


def _preview(session: Session, path: str, options: dict[str, Any]) -> None:
    preview = session.assembly.documents.preview(path, **options)
    if session.as_json:
        emit_json(preview)
        return
    code = session.assembly.documents.why_code(path, **options)
    if code:
        emit(_code_text(code))
    emit(
        f"{how_many(preview.files, 'file')} ({how_many(preview.bytes, 'byte')}) would be compared: "
        f"{preview.new:,} new, "
        f"{preview.changed:,} changed, {preview.unchanged:,} unchanged"
        + (f", {preview.failed_before:,} failed before." if preview.failed_before else ".")
    )
    if preview.skipped:
        emit(wrapped(_left_out_text(preview.skipped, None) + "."))
