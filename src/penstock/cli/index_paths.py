"""``penstock index A B``: several paths, with one answer and one exit code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.cli.exit_codes import INTERRUPTED, OK, REFUSED, exit_code
from penstock.cli.output import collected_json, emit, emit_error, emit_json, printable
from penstock.errors import ConfigError, PenstockError, StoreError

if TYPE_CHECKING:
    from penstock.cli.session import Session


def index_each(
    session: Session, paths: Sequence[str], options: dict[str, Any], index: Callable[[str], None], done: str
) -> None:
    """Check all paths, then index one after the other; the first failure gives the exit code.

    A path that is refused or fails does not stop the others. Ctrl-C and an unusable store do. ``done`` is the
    summary's word for success.
    """
    from penstock.payloads import is_off_disk
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
