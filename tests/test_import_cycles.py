"""No two modules of the package import each other, neither at their top nor in a function."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from tests.syntax_trees import MODULES, dotted, imports, module_name, nodes


def runtime_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node of a module but those below ``if TYPE_CHECKING:``, which no process executes."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and dotted(node.test).endswith("TYPE_CHECKING"):
            for otherwise in node.orelse:
                yield from (otherwise, *runtime_nodes(otherwise))
        else:
            yield node
            yield from runtime_nodes(node)


def import_graph(sources: dict[str, str]) -> dict[str, set[str]]:
    """Imports of each module, at the top or in a function."""
    graph: dict[str, set[str]] = {}
    for module, source in sources.items():
        executed = imports(runtime_nodes(nodes(source)[0]), module)
        found = {_owner(name.removeprefix("penstock."), sources) for _, name in executed}
        graph[module] = {name for name in found if name is not None and name != module}
    return graph


def _owner(name: str, modules: Collection[str]) -> str | None:
    """The module of an imported name."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None


def import_cycles(sources: dict[str, str]) -> list[list[str]]:
    """Groups of modules with cyclic imports, each in alphabetical order."""
    graph = import_graph(sources)
    reachable: dict[str, set[str]] = {}
    for module in graph:
        seen: set[str] = set()
        waiting = [module]
        while waiting:
            new = graph[waiting.pop()] - seen
            seen |= new
            waiting += new
        reachable[module] = seen
    cycles = {
        tuple(sorted(other for other in found if module in reachable[other]))
        for module, found in reachable.items()
        if module in found
    }
    return sorted(map(list, cycles))


def test_no_modules_import_each_other():
    sources = {module_name(path): path.read_text(encoding="utf-8") for path in MODULES}

    assert [] == import_cycles(sources)


def test_an_import_cycle_is_seen():
    late = {
        "app": "from penstock import assembly",
        "assembly": "def make():\n    from penstock.worker.launch import Worker",
        "worker.launch": "import penstock.app",
        "clock": "import time",
    }
    for_types = late | {"worker.launch": "if TYPE_CHECKING:\n    import penstock.app"}

    assert [["app", "assembly", "worker.launch"]] == import_cycles(late)
    assert [] == import_cycles(for_types)
