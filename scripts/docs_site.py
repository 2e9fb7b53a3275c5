"""``python -m scripts.docs_site``: the documentation as a site, in ``build/site``.

Pages outside ``docs``, such as the changelog, are copied beside those inside, and links are changed to their
new places. Links to files that are no pages become plain text. MkDocs then builds the site, and fails for a
link or anchor that leads nowhere, and for a page that is not in the navigation.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PAGES = BUILD / "docs"
SITE = BUILD / "site"

OUTSIDE = {
    "README.md": "about.md",
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing/rules.md",
    "CODE_OF_CONDUCT.md": "contributing/code-of-conduct.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "examples.md",
    "examples/extension/README.md": "examples-extension.md",
    "src/penstock/http/dashboard/icon.svg": "images/logo.svg",
    "scripts/site.css": "site.css",
}
"""Files outside ``docs``, and their places in the site."""
IMAGES = ".github/images"

_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_FENCE = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)
_ELSEWHERE = re.compile(r"""(?:src|href)=["']?(?:https?:)?//[^"'\s>]+|url\(["']?(?:https?:)?//[^)]+""")
_LOADED = re.compile(
    r"<(?:script|link|img|iframe|source|video|audio|object|embed)\b[^>]*>|<style.*?</style>", re.DOTALL
)


def places(root: Path = ROOT) -> dict[str, str]:
    """The files of the site: path in the repository, and path in the site."""
    files = [path for path in (*(root / "docs").rglob("*"), *(root / IMAGES).glob("*")) if path.is_file()]
    names = sorted(path.relative_to(root).as_posix() for path in files)
    return OUTSIDE | {
        name: name.removeprefix("docs/") if name.startswith("docs/") else f"images/{Path(name).name}"
        for name in names
    }


def with_links(text: str, source: str, known: dict[str, str]) -> str:
    """The text of a page with its links as they are in the site; code blocks stay."""
    parts = _FENCE.split(text)
    return "".join(part if number % 2 else _linked(part, source, known) for number, part in enumerate(parts))


def _linked(text: str, source: str, known: dict[str, str]) -> str:
    def replaced(link: re.Match[str]) -> str:
        name, sign, anchor = link["target"].partition("#")
        if not name or "://" in name or name.startswith("mailto:"):
            return link[0]
        target = os.path.normpath(os.path.join(os.path.dirname(source), name))  # noqa: PTH118, PTH120 - text only
        if target not in known:
            # A link that leads nowhere stays, and MkDocs refuses it.
            return link["text"] if (ROOT / target).exists() else link[0]
        here = os.path.dirname(known[source]) or "."  # noqa: PTH120 - as above
        return f"{link['image']}[{link['text']}]({os.path.relpath(known[target], here)}{sign}{anchor})"

    return _LINK.sub(replaced, text)


def collect() -> None:
    """Write the pages of the site to ``build/docs``."""
    shutil.rmtree(PAGES, ignore_errors=True)
    known = places()
    for source, place in known.items():
        target = PAGES / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.suffix == ".md":
            text = (ROOT / source).read_text(encoding="utf-8")
            target.write_text(with_links(text, source, known), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / source, target)


def outside_requests(site: Path = SITE) -> Iterator[str]:
    """Whatever a page or style sheet of the site would load from another server."""
    for path in sorted(site.rglob("*")):
        if path.suffix not in (".html", ".css"):
            continue
        text = path.read_text(encoding="utf-8")
        loaded = text if path.suffix == ".css" else " ".join(_LOADED.findall(text))
        yield from (f"{path.relative_to(site)}: {found}" for found in _ELSEWHERE.findall(loaded))


def main() -> int:
    collect()
    # Without the banners of the theme, which would be lines of advertisement in every build.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean"]  # --quiet would allow warnings
    built = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    if built.returncode:
        return built.returncode
    if requests := list(outside_requests()):
        print("The site loads from other servers:", *requests, sep="\n  ", file=sys.stderr)
        return 1
    pages = sum(1 for _ in SITE.rglob("*.html"))
    print(f"{pages} pages in {SITE.relative_to(ROOT)}. To look at them:")
    print("  python3 -m http.server --directory build/site --bind 127.0.0.1 8000")
    return 0


if __name__ == "__main__":
    sys.exit(main())
