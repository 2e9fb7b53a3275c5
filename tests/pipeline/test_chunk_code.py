"""Chunks of source code: whole definitions with their names, or lines."""

from __future__ import annotations

import pytest

from penstock.pipeline.chunk.languages import GRAMMARS, MAX_PARSED, MORE_GRAMMARS
from penstock.pipeline.chunk.text import Chunk, ChunkSizes
from penstock.pipeline.draft import chunk_page
from penstock.pipeline.extract.protocol import Shape

PYTHON = '''"""Über mills."""

import os

# How much it grinds.
@cached
def grind(corn):
    def inner():
        return 1
    return inner()


class Mill(Building):
    """Stands at the weir."""

    height = 3

    async def open(self):
        return "größer"

    class Wheel:
        def turn(self): ...


if TYPE_CHECKING:
    def late(): ...
'''

SOURCES = {
    "python": (PYTHON, "grind Mill Mill.open Mill.Wheel Mill.Wheel.turn late"),
    "javascript": (
        "/** doc */\nexport function f(a) { return 1 }\nexport default class A { m() {} static n() {} }\n"
        "const g = (x) => x, h = function () {};\nconst k = 3;\n",
        "f A A.m A.n g h",
    ),
    "typescript": (
        "interface I { a: number }\ntype T = string;\n"
        "export abstract class C<T> { abstract m(): void; n() {} }\n"
        "namespace N { export function q(): void {} }\nenum E { A }\nexport const h = async () => {};\n",
        "I T C C.m C.n N N.q E h",
    ),
    "tsx": ("export const App = () => <div/>;\nfunction B() { return <p/> }\n", "App B"),
    "go": (
        "package p\n\nfunc F() {}\n\nfunc (s *Server[T]) Run(x int) error { return nil }\n\n"
        "type Server[T any] struct{ a int }\n\ntype (\n\tA int\n\tB string\n)\n",
        "F Server.Run Server A B",
    ),
    "rust": (
        "/// doc\n#[derive(Debug)]\npub struct P<T> { a: T }\nimpl<T> P<T> { pub fn new() {} }\n"
        "mod m { pub fn z() {} }\ntrait Q { fn w(&self); }\nenum E { A }\n",
        "P P.new m m.z Q Q.w E",
    ),
    "java": (
        "package a;\n/** d */\n@X\npublic class A<T> { A() {} void m() {} enum E { X; void g() {} } }\n"
        "interface I { void q(); }\nrecord R(int a) {}\n",
        "A A.A A.m A.E A.E.g I I.q R",
    ),
    "c": (
        "#ifndef H\n#define H\n#define MAX(a, b) ((a) > (b))\nstruct s { int a; };\n"
        "typedef struct { int q; } anon_t;\nstatic int *f(int a, char **b) { return 0; }\n"
        "int g(void);\n#endif\n",
        "MAX s anon_t f",
    ),
    "cpp": (
        "namespace a::b {\ntemplate <class T> class V { public: int m() const { return 1; } };\n"
        "int V<int>::q() { return 2; }\nstruct S { void t() {} };\n}\n"
        'extern "C" { int z(int) { return 1; } }\n',
        "a.b a.b.V a.b.V.m a.b.V.q a.b.S a.b.S.t z",
    ),
}


def cut(source: str, language: str | None, size: int = 2048) -> list[Chunk]:
    return chunk_page(source, Shape.CODE, language, ChunkSizes(size))


def names(chunks: list[Chunk]) -> list[str]:
    return list(dict.fromkeys(name for chunk in chunks for name in chunk.symbols))


def test_every_grammar_is_tried():
    assert SOURCES.keys() == GRAMMARS.keys() - MORE_GRAMMARS.keys()


@pytest.mark.parametrize("language", SOURCES)
@pytest.mark.parametrize("size", [2048, 64])
def test_names_are_qualified_and_in_order(language: str, size: int):
    source, expected = SOURCES[language]

    assert expected.split() == names(cut(source, language, size))


def test_a_function_begins_with_its_comment_and_decorators():
    chunks = cut("x = 1\n" * 20 + PYTHON, "python", 150)
    chunk = next(chunk for chunk in chunks if "grind" in chunk.symbols)

    assert chunk.text.startswith("# How much it grinds.\n@cached\ndef grind")
    assert (25, 30) == (chunk.start_line, chunk.end_line)


def test_functions_stay_whole_while_they_fit():
    functions = [f"def f{n}(x):\n" + "    x += 1  # ä\n" * (n % 23 + 1) for n in range(60)]

    chunks = cut("\n\n".join(functions), "python", 500)

    for function in functions:
        assert 1 == len([chunk for chunk in chunks if function.strip() in chunk.text])


def test_a_class_too_long_is_cut_between_its_methods():
    methods = [f"    def m{n}(self):\n" + "        call()\n" * 12 for n in range(20)]
    source = "class Long:\n" + "\n".join(methods)

    chunks = cut(source, "python", 700)

    for method in methods:
        assert 1 == len([chunk for chunk in chunks if method.strip() in chunk.text])
    assert all("Long" in chunk.symbols for chunk in chunks)


def test_every_part_of_a_function_too_long_has_its_name():
    chunks = cut("def long():\n" + "    some_call(with_arguments)\n" * 200, "python", 500)

    assert len(chunks) > 5
    assert {("long",)} == {chunk.symbols for chunk in chunks}


@pytest.mark.parametrize(
    ("source", "language"),
    [
        ("IDENTIFICATION DIVISION.\n" * 200, "cobol"),
        ("all: build\n\techo\n" * 200, None),
        ("}}}} ((( not python at all ]] $$$ ???\n" * 100, "python"),
        ("x = 1\n" * (MAX_PARSED // 6 + 1), "python"),
    ],
)
def test_what_cannot_be_parsed_is_cut_by_lines(source: str, language: str | None):
    chunks = cut(source, language)

    assert len(chunks) > 1
    assert {()} == {chunk.symbols for chunk in chunks}
    lines = {line.strip() for line in source.splitlines()}
    assert all({line.strip() for line in chunk.text.splitlines()} <= lines for chunk in chunks)


def test_a_small_mistake_costs_only_itself():
    chunks = cut(
        "def good():\n    return 1\n\n\n" * 10 + "def broken(:\n\n\ndef fine():\n    return 2\n", "python"
    )

    assert {"good", "fine"} <= set(names(chunks))


def test_an_edit_of_one_function_changes_its_chunk():
    functions = [f"def f{n}(x):\n" + f"    x += {n}\n" * (n % 40 + 5) for n in range(300)]
    before = {chunk.text for chunk in cut("\n\n".join(functions), "python")}
    functions[150] = functions[150].replace("+=", "-=")

    after = cut("\n\n".join(functions), "python")

    assert len([chunk for chunk in after if chunk.text not in before]) <= 2
