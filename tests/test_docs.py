"""Documentation is complete, links resolve, and generated pages are current."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest

from scripts import reference

ROOT = Path(__file__).resolve().parent.parent
GENERATED = {"dist", "build", "results", "__pycache__", "table"}
MARKDOWN = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")  # pictures too
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
# In two halves, so that this file does not match.
PRIVATE_PATH = re.compile(r"(?<![\w./-])/" + r"(?:work|root|home/\w+)/")


def read(name: str) -> str:
    return (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")


def guide(name: str) -> str:
    return (ROOT / "docs" / "guides" / name).read_text(encoding="utf-8")


def module(name: str) -> ModuleType:
    """Skips while the module is still to come; from then on the test counts."""
    path = ROOT / "src" / Path(*name.split("."))
    if not path.with_suffix(".py").exists() and not (path / "__init__.py").exists():
        pytest.skip(f"{name} is still to come")
    loaded = reference.load(name)
    assert loaded is not None
    return loaded


def repository_files() -> Iterator[Path]:
    for folder, below, names in os.walk(ROOT):
        # An environment has a hundred times the files of the project.
        below[:] = [name for name in below if (name[0] != "." or name == ".ci") and name not in GENERATED]
        # In a further work tree of git this is a file, with the place of the first one.
        yield from (Path(folder, name) for name in names if name != ".git")


def anchors(text: str) -> set[str]:
    """The names GitHub gives to headings, and those written as ``<a id="name">``."""
    shown = CODE_BLOCK.sub("", text)
    headings = re.findall(r"^#+ (.+)$", shown, re.MULTILINE)
    named = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return named | set(re.findall(r'<a id="([^"]+)"></a>', shown))


def broken_links(path: Path) -> list[str]:
    broken = []
    for target in LINK.findall(CODE_BLOCK.sub("", path.read_text(encoding="utf-8"))):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, anchor = target.partition("#")
        page = (path.parent / name).resolve() if name else path
        if not page.exists() or (anchor and anchor not in anchors(page.read_text(encoding="utf-8"))):
            broken.append(target)
    return broken


def test_every_error_code_is_documented():
    classes = reference.error_classes(module("penstock.errors"))
    headings = re.findall(r"^## (\w+)$", read("errors.md"), re.MULTILINE)

    assert [cls.code for cls in classes] == headings


def test_every_code_in_the_source_is_documented():
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    codes = {code for source in sources for code in re.findall(r'"(ERR_[A-Z_]+)"', source)}
    documented = set(re.findall(r"^(?:## |\| `)(ERR_\w+)", read("errors.md"), re.MULTILINE))

    assert set() == codes - documented


def test_every_error_has_a_code_of_its_own_a_meaning_and_a_remedy():
    classes = reference.error_classes(module("penstock.errors"))

    assert len(classes) == len({cls.code for cls in classes})
    assert [] == [cls.__name__ for cls in classes if not re.fullmatch(r"ERR_[A-Z_]+", cls.code)]
    assert [] == [
        cls.__name__ for cls in classes if not cls.__dict__.get("__doc__") or not cls.default_remedy
    ]


def test_every_error_class_is_in_the_drawn_tree():
    errors = module("penstock.errors")
    drawn = set(re.findall(r"\w+", errors.__doc__ or ""))

    assert [] == [cls.__name__ for cls in reference.error_classes(errors) if cls.__name__ not in drawn]


def test_every_setting_is_documented():
    config = module("penstock.config")
    documented = read("settings.md")
    # ``sources`` holds only the source of each value.
    fields = [field.name for field in dataclasses.fields(config.Settings) if field.name != "sources"]

    assert fields == [setting.name for setting in config.SETTINGS]
    assert [] == [setting.name for setting in config.SETTINGS if f"| `{setting.env}` |" not in documented]
    assert [] == [setting.name for setting in config.SETTINGS if not setting.doc or not setting.allowed]


def test_every_other_name_of_a_setting_is_documented():
    documented = read("settings.md")
    aliases = [alias for setting in module("penstock.config").SETTINGS for alias in setting.aliases]

    assert [] == [alias for alias in aliases if f"`{alias}`" not in documented]


def test_every_command_and_option_is_documented():
    root = reference.root_command(module("penstock.cli.main"))
    documented = read("cli.md")
    former = documented.partition("## Former spellings\n")[2]
    missing = []
    for command, context in reference.commands(root):
        section = documented.partition(f"## {context.command_path}\n")[2].partition("\n## ")[0]
        # The global options are documented once, in the first section.
        shown = [param for param in command.params if not getattr(param, "hidden", False)]
        options = [option for param in shown for option in param.opts if option.startswith("-")]
        options = [option for option in options if f"`{context.command_path} {option}`" not in former]
        missing += [f"{context.command_path} {option}" for option in options if option not in section]
        missing += [] if section else [context.command_path]

    assert [] == missing


def test_every_command_and_option_has_help():
    silent = []
    for command, context in reference.commands(reference.root_command(module("penstock.cli.main"))):
        options = [param for param in command.params if isinstance(param, click.Option) and not param.hidden]
        silent += [f"{context.command_path} {option.name}" for option in options if not option.help]
        silent += [] if command.help else [context.command_path]

    assert [] == silent


def test_the_back_off_is_documented_as_it_is():
    retry, functions = module("penstock.queue.retry"), module("penstock.service.functions")
    first = [str(retry.JOB_BACKOFF.seconds(number)) for number in (1, 2, 3)]

    assert retry.FUNCTION_BACKOFF.summary() in guide("functions.md")
    assert retry.FUNCTION_BACKOFF.summary() in functions.FunctionJobs.function.__doc__
    assert f"{first[0]}, {first[1]} and {first[2]} seconds" in guide("redis-contract.md")


def test_every_item_type_and_payload_field_is_documented():
    items = module("penstock.queue.payloads")
    documented = read("items.md")

    assert [] == [name for name in items.MATRIX if f"### {name}\n" not in documented]
    assert [] == [
        f"{name}.{field}"
        for name, model in items.MODELS.items()
        for field in model.__struct_encode_fields__
        if f"| `{field}` |" not in documented.partition(f"### {name}\n")[2].partition("\n### ")[0]
    ]


def test_generated_pages_are_current():
    assert [] == reference.stale(reference.render())


def test_reference_holds_only_generated_pages():
    assert set(reference.PAGES) == {path.name for path in reference.REFERENCE.iterdir()}


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_local_links_lead_somewhere(path: Path):
    assert [] == broken_links(path)


def test_a_broken_link_is_seen(tmp_path: Path):
    page = tmp_path / "page.md"
    links = "[ok](#a-heading) [fine](#place) [gone](gone.md) [lost](#nowhere)"
    page.write_text(f'# A heading\n{links}\n<a id="place"></a>text\n', encoding="utf-8")

    assert ["gone.md", "#nowhere"] == broken_links(page)


def test_every_page_is_reachable_from_the_readme():
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page not in reached:
            reached.add(page)
            targets = LINK.findall(page.read_text(encoding="utf-8"))
            pages = [(page.parent / target.partition("#")[0]).resolve() for target in targets]
            todo += [target for target in pages if target.suffix == ".md" and target.is_file()]

    assert [] == [str(path.relative_to(ROOT)) for path in MARKDOWN if path not in reached]


def test_no_file_names_a_private_directory():
    assert [] == [
        str(path.relative_to(ROOT))
        for path in repository_files()
        if PRIVATE_PATH.search(path.read_text(encoding="utf-8", errors="replace"))
    ]


def test_constraints_pin_every_requirement_and_name_no_address():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    required = re.findall(r'^    "([a-z][\w-]+)>=', project, re.MULTILINE)

    assert [] == [line for line in pins if not re.fullmatch(r"[\w.-]+==[\w.]+", line)]
    assert [] == [name for name in required if not any(pin.startswith(f"{name}==") for pin in pins)]
