"""``penstock doctor``."""

from __future__ import annotations

import click

from penstock.cli.exit_codes import REFUSED
from penstock.cli.output import emit, emit_json, fields, table
from penstock.cli.session import Session


@click.command()
@click.option("--fix", is_flag=True, help="Repair what is safe to repair.")
@click.pass_obj
def doctor(session: Session, /, fix: bool) -> None:
    """Check the installation: stores, clocks, disk, models, sandbox, OCR, formats, parts and workers.

    With --fix, claims of dead workers are released, rows of the catalog without an owner are removed, counts
    and words are made again, and files of dead processes are deleted. Nothing that a user made is touched.

    Ends with 0 if everything needed works, and with 1 if a check failed. A note is a limit, such as an
    optional part that is not installed. Passwords are masked.
    """
    found = session.assembly.diagnosis(fix=fix)
    if session.as_json:
        emit_json({"healthy": found.healthy, "checks": found.checks})
    else:
        shown = [check for check in found.checks if not session.quiet or check.status == "failed"]
        if shown:
            rows = [(check.status, check.subject, check.detail) for check in shown]
            emit(table(["status", "check", "result"], rows, fold=True))
        remedies = [(check.subject, check.remedy) for check in shown if check.remedy]
        if remedies:
            emit("\nWhat to do:\n" + fields(remedies))
    if not found.healthy:
        raise SystemExit(REFUSED)
