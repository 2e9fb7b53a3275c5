"""Write docs/reference from the code; with --check, fail when a page is not current."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import msgspec

from scripts.markdown import page, paragraph, table

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
HELP_WIDTH = 100


def load(name: str) -> ModuleType | None:
    """The module, or None when this version of Penstock does not have it. Broken imports are not hidden."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        if importlib.util.find_spec(".".join(parts[:end])) is None:
            return None
    return importlib.import_module(name)


# Errors


def error_classes(module: ModuleType) -> list[type[Any]]:
    """Depth first from the root, in the order of definition, so that the page reads like the tree."""
    # Only classes whose module is loaded are anybody's subclasses.
    load("penstock.errors")

    def walk(cls: type[Any]) -> Iterator[type[Any]]:
        yield cls
        for child in cls.__subclasses__():
            if child.__module__.startswith(module.__name__):
                yield from walk(child)

    return list(dict.fromkeys(walk(module.PenstockError)))


def failure_codes() -> dict[str, str]:
    """What else can stand in a job's ``error_code``: the tables of the modules that put it there."""
    found: dict[str, str] = {}
    for name in (
        "penstock.queue.retry",
        "penstock.queue.transitions",
        "penstock.worker.executor",
        "penstock.worker.lanes",
        "penstock.handlers.members",
        "penstock.handlers.file_request",
        "penstock.handlers.libraries",
        "penstock.handlers.phases",
        "penstock.pipeline.graph.llm",
        "penstock.redis_contract.messages",
    ):
        found.update(getattr(load(name), "FAILURE_CODES", {}))
    return found


def errors_page(module: ModuleType) -> str:
    def section(cls: type[Any]) -> str:
        bases = ", ".join(f"`{base.__name__}`" for base in cls.__bases__)
        return (
            f"## {cls.code}\n\n`{cls.__name__}` (a kind of {bases}). {paragraph(cls.__doc__)}\n\n"
            f"**What to do.** {paragraph(cls.default_remedy)}"
        )

    return page(
        "Errors",
        "Every error Penstock raises on purpose is a `PenstockError` with a stable `code`, a message and a\n"
        "`remedy`. A request that is refused changes nothing.",
        *(section(cls) for cls in error_classes(module)),
        "## Codes of failed jobs",
        "A job's `error_code` is one of the above, one that the application chose, or one of these.",
        table(["code", "meaning"], [[f"`{code}`", text] for code, text in sorted(failure_codes().items())]),
    )


# Settings


def settings_page(module: ModuleType) -> str:
    rows = [
        [
            f"`{setting.env}`",
            f"`{setting.default}`" if setting.default else "none",
            setting.allowed,
            setting.doc,
            ", ".join(f"`{alias}`" for alias in setting.aliases),
            {"any": "any", "lower": "lower", "trusted": ""}[setting.project],
        ]
        for setting in module.SETTINGS
    ]
    return page(
        "Settings",
        "Precedence: an argument in code or a command's option, the `PENSTOCK_` variable, the names older\n"
        "tools used, `penstock.toml` of the project, `penstock.toml` of the user, the default. An empty\n"
        "variable counts as not set.\n\n"
        "In a file, a setting has the name of its variable in lower case, without `PENSTOCK_`; that of\n"
        "`PENSTOCK_STATE` is `state_dir`. The last column says which values the file of a project may set\n"
        "that you have not trusted. [Settings files](../guides/settings-files.md) explains both files.",
        table(["variable", "default", "allowed", "meaning", "also accepted", "project's file"], rows),
    )


# Commands


def root_command(module: ModuleType) -> click.Group:
    """The one group nobody else contains; ``main`` itself may be a function around it."""
    groups = [value for value in vars(module).values() if isinstance(value, click.Group)]
    inner = {id(command) for group in groups for command in group.commands.values()}
    outer = {id(group): group for group in groups if id(group) not in inner}
    (root,) = outer.values()
    return root


def commands(
    command: click.Command, name: str = "penstock", parent: click.Context | None = None
) -> Iterator[tuple[click.Command, click.Context]]:
    """Every visible command with a context to ask it for help, groups before what they contain."""
    context = command.context_class(
        command,
        info_name=name,
        parent=parent,
        # As the command is really called; click keeps the first help option it made.
        **dict(command.context_settings) | {"terminal_width": HELP_WIDTH, "max_content_width": HELP_WIDTH},
    )
    yield command, context
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None and not found.hidden:
                yield from commands(found, child, context)


def cli_page(module: ModuleType) -> str:
    sections = [
        f"## {context.command_path}\n\n```text\n{command.get_help(context)}\n```"
        for command, context in commands(root_command(module))
    ]
    return page(
        "Commands",
        "What `--help` says, for every command. [Words](../concepts/words.md#command-line) has one word\n"
        "for each thing; [former spellings](#former-spellings) still work.",
        *sections,
        "## Former spellings",
        "Scripts may use these; the help shows the other.",
        table(["also accepted", "the same as"], former_spellings(module)),
    )


def former_spellings(module: ModuleType) -> list[list[str]]:
    former = load("penstock.cli.session").FORMER  # type: ignore[union-attr]
    rows = [[f"`penstock {old}`", f"`penstock {new}`"] for old, new in former.items()]
    for command, context in commands(root_command(module)):
        for param in command.params:
            options = [f"`{context.command_path} {name}`" for name in getattr(param, "former", ())]
            rows += [[old, f"`{context.command_path} {param.opts[0]}`"] for old in options]
    return rows


def exit_codes_page(module: ModuleType) -> str:
    by_code: dict[int, set[str]] = {code: set() for code in module.EXIT_CODES}
    for error_class in error_classes(importlib.import_module("penstock.errors")):
        by_code[module.exit_code_of(error_class)].add(f"`{error_class.code}`")
    by_code[module.REFUSED] = {"all others"}
    rows = [
        [str(code), meaning, ", ".join(sorted(by_code[code]))] for code, meaning in module.EXIT_CODES.items()
    ]
    return page(
        "Exit codes",
        "What `penstock` answers to the shell. An error is one line on standard error,\n"
        "`error: message (CODE). remedy`; with `--json` it is an object on standard output,\n"
        '`{"error": {"code": …, "message": …, "remedy": …}}`. A command that takes several ids goes\n'
        "on after a refusal and exits with the code of the first.",
        table(["code", "meaning", "[errors](errors.md)"], rows),
        "A signal that a command does not handle ends it with 128 plus the number of the signal, as for any\n"
        "program: 143 for SIGTERM, 137 for SIGKILL. `penstock worker` and `penstock redis gateway` stop in\n"
        "order at SIGTERM and end with 0; `penstock index` stops in order and ends with 130.",
    )


# Item types


def shown_default(field: msgspec.structs.FieldInfo) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    else:
        value = field.default
    if value is msgspec.NODEFAULT:
        return "required"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return "none" if value in (None, "", (), {}, []) else f"`{value}`"


def shown_type(kind: Any) -> str:
    """A type as a person writing JSON would say it; null is left to the default column."""
    match kind:
        case msgspec.inspect.UnionType(types=types):
            words = [shown_type(part) for part in types if not isinstance(part, msgspec.inspect.NoneType)]
            return " or ".join(words)
        case msgspec.inspect.LiteralType(values=values):
            return " or ".join(f"`{value}`" for value in values)
        case msgspec.inspect.ListType(item_type=item) | msgspec.inspect.VarTupleType(item_type=item):
            return f"list of {shown_type(item)}"
        case msgspec.inspect.StrType(pattern=str(pattern)):
            return f"text like `{pattern}`"
        case msgspec.inspect.StrType(min_length=shortest, max_length=longest):
            return ("text, not empty" if shortest else "text") + (f", at most {longest}" if longest else "")
        case msgspec.inspect.IntType(ge=int(least), le=most):
            return f"whole number from {least}" + (f" to {most:,}" if most is not None else "")
    plain = {
        "IntType": "whole number",
        "BoolType": "`true` or `false`",
        "DictType": "object",
        "AnyType": "any",
    }
    return plain[type(kind).__name__]


def fields_table(model: type[Any]) -> str:
    described = msgspec.inspect.type_info(model)
    assert isinstance(described, msgspec.inspect.StructType)
    shown = {field.name: shown_default(field) for field in msgspec.structs.fields(model)}
    # What the model itself adds comes before what it inherits.
    own = inspect.get_annotations(model)
    fields = sorted(described.fields, key=lambda field: field.name not in own)
    return table(
        ["field", "type", "default", "option"],
        [
            [
                f"`{field.encode_name}`",
                shown_type(field.type),
                shown[field.name],
                "yes" if field.name in model.OPTIONS else "",
            ]
            for field in fields
        ],
    )


def priorities_table(module: ModuleType) -> str:
    pairs = [
        ("file", "ingest"),
        ("content", "ingest"),
        ("library", "ingest"),
        ("folder", "scan"),
        ("function", "run"),
    ]
    return table(
        ["door", *(f"{item_type} {op}" for item_type, op in pairs)],
        [
            [f"`{door}`", *(str(module.default_priority(door, *pair)) for pair in pairs)]
            for door in module.PRIORITY_BY_DOOR
        ],
    )


def items_page(module: ModuleType) -> str:
    matrix = table(
        ["item type", *module.OPERATIONS],
        [
            [f"`{item_type}`", *("yes" if op in allowed else "–" for op in module.OPERATIONS)]
            for item_type, allowed in module.MATRIX.items()
        ],
    )
    payloads = [
        f"### {item_type}\n\n{paragraph(model.__doc__)}\n\n{fields_table(model)}"
        for item_type, model in module.MODELS.items()
    ]
    return page(
        "Item types and payloads",
        "Which operations each item type has. Any other pair is refused when it is submitted.",
        matrix,
        "## Payloads",
        "Fields that are not listed are kept as they are. An option changes the result: a request that sets\n"
        "one to anything but its default has a key of its own.",
        *payloads,
        "## Priorities",
        "What a job gets when the caller names none, from 0 (bulk) to 10 (somebody is waiting). A child has\n"
        "its parent's, less one.",
        priorities_table(module),
    )


# Formats


def formats_page(module: ModuleType) -> str:
    extras = {extra.name: extra for extra in importlib.import_module("penstock.extensions").EXTRAS}

    def needed(name: str | None) -> str:
        return "" if name is None else f"extra `{name}`, {extras[name].size_mb} MB"

    def suffixes(some: tuple[str, ...]) -> str:
        return " ".join(f"`{suffix}`" for suffix in some)

    rows = [
        [
            one.name,
            suffixes(one.suffixes),
            one.read,
            one.page_unit or "",
            one.position_unit or "",
            needed(one.extra),
        ]
        for one in module.formats()
    ]
    code = [
        [
            one.name,
            suffixes(one.suffixes),
            "functions and classes" if one.structured else "lines",
            needed(one.extra),
        ]
        for one in module.languages()
    ]
    return page(
        "Formats",
        "Which files are read, and what of them. The content decides over the suffix. Hits name the page\n"
        "and the position in the units given here. `penstock doctor` prints what is missing on a machine.",
        table(["format", "suffixes", "what is read", "page", "position", "needs"], rows),
        "## Source code",
        "Code is read unchanged. It is cut between functions and classes where there is a grammar, else\n"
        "between lines.",
        table(["language", "suffixes", "cut between", "needs"], code),
        "## Extras",
        "The sizes are those of the installed packages.",
        table(
            ["extra", "size", "for"],
            [[f"`{one.name}`", f"{one.size_mb} MB", one.purpose] for one in extras.values()],
        ),
    )


PAGES: dict[str, tuple[str, str, Callable[[ModuleType], str]]] = {
    "errors.md": ("Errors", "penstock.errors", errors_page),
    "settings.md": ("Settings", "penstock.config", settings_page),
    "cli.md": ("Commands", "penstock.cli.main", cli_page),
    "exit-codes.md": ("Exit codes", "penstock.cli.exit_codes", exit_codes_page),
    "formats.md": ("Formats", "penstock.pipeline.extract.factory", formats_page),
    "items.md": ("Item types and payloads", "penstock.queue.payloads", items_page),
}


def render() -> dict[str, str]:
    """Every page by file name; one whose module is still to come says so, which keeps links to it whole."""
    pages = {}
    for name, (title, origin, write) in PAGES.items():
        module = load(origin)
        pages[name] = page(title, f"`{origin}` is still to come.") if module is None else write(module)
    return pages


def stale(pages: dict[str, str]) -> list[str]:
    def current(name: str) -> str | None:
        path = REFERENCE / name
        return path.read_text(encoding="utf-8") if path.exists() else None

    return [name for name, text in pages.items() if current(name) != text]


def main(arguments: list[str]) -> int:
    pages = render()
    outdated = stale(pages)
    if arguments == ["--check"]:
        for name in outdated:
            print(f"docs/reference/{name} is not current: run `make docs`", file=sys.stderr)
        return 1 if outdated else 0
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for name in outdated:
        (REFERENCE / name).write_text(pages[name], encoding="utf-8")
        print(f"wrote docs/reference/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
