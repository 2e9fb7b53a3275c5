"""The results of a run, as a file."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bench.peers.machine import Machine
from bench.pipeline_peers.field import NAMES
from bench.pipeline_peers.figures import Figures, joined


class Report(msgspec.Struct, kw_only=True):
    machine: Machine
    corpora: dict[str, str]
    """Descriptions of the folders."""
    figures: list[Figures]
    notes: list[str] = []


def joined_reports(reports: Sequence[Report]) -> Report:
    busiest = max(reports, key=lambda report: report.machine.busy)
    return Report(
        machine=busiest.machine,
        corpora={name: said for report in reports for name, said in report.corpora.items()},
        figures=sorted(
            joined(each for report in reports for each in report.figures),
            key=lambda each: NAMES.index(each.name),
        ),
        notes=[note for report in reports for note in report.notes],
    )
