"""Sections of docs/benchmarks.md that a command renews: the text between two comments of one name."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"


def renew(name: str, text: str, page: Path = PAGE) -> None:
    """Replace the text of a section. The page has to name the section already."""
    before, begin, rest = page.read_text().partition(f"<!-- {name}: begin -->\n")
    _, end, after = rest.partition(f"<!-- {name}: end -->")
    if not begin or not end:
        raise SystemExit(f"{page} has no section {name}")
    page.write_text(f"{before}{begin}{text.strip()}\n{end}{after}")


def table(header: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown; columns after the first are numbers."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
