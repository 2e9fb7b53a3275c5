"""Entities and relations of source code."""

from __future__ import annotations

import email
from pathlib import Path

import pytest

from bench import graph as bench
from penstock.catalog.graph import Entity
from penstock.pipeline.chunk.text import ChunkSizes
from penstock.pipeline.draft import chunk_page
from penstock.pipeline.extract.protocol import Shape
from penstock.pipeline.graph.code import CodeExtractor, joined, module_name, resolve_relative
from penstock.pipeline.graph.factory import language_of
from penstock.pipeline.graph.protocol import GraphChunk, GraphDocument

PYTHON = """
import os.path as places
from . import tools
from .base import Base, helper as help_me

def top(x):
    def inner():
        return help_me(x)
    return inner()

class Mill(Base, list[int]):
    def run(self):
        self.turn()
        self.stop()
        super().run()
        tools.grind()
        top(1).strip()
        self.handler()

    def turn(self):
        self.handler = print
        return Mill()
"""


def graph(text: str, path: str = "/p/pkg/mill.py", module: str = "pkg.mill") -> set[tuple[str, str, str]]:
    document = GraphDocument(path, [GraphChunk(text)], language_of(path), module)
    (found,) = CodeExtractor().extract(document, [0])
    assert all(one.source in found.entities and one.target in found.entities for one in found.relations)
    return {(one.source.name, one.kind, f"{one.target.kind} {one.target.name}") for one in found.relations}


def test_a_python_file():
    assert graph(PYTHON) == {
        ("pkg.mill", "imports", "module os.path"),
        ("pkg.mill", "imports", "module pkg.tools"),
        ("pkg.mill", "imports", "module pkg.base"),
        ("pkg.mill", "defines", "function pkg.mill.top"),
        ("pkg.mill.top", "defines", "function pkg.mill.top.inner"),
        ("pkg.mill.top.inner", "calls", "function pkg.base.helper"),
        ("pkg.mill.top", "calls", "function pkg.mill.top.inner"),
        ("pkg.mill", "defines", "class pkg.mill.Mill"),
        ("pkg.mill.Mill", "inherits", "class pkg.base.Base"),
        ("pkg.mill.Mill", "defines", "method pkg.mill.Mill.run"),
        ("pkg.mill.Mill", "defines", "method pkg.mill.Mill.turn"),
        ("pkg.mill.Mill.run", "calls", "method pkg.mill.Mill.turn"),
        ("pkg.mill.Mill.run", "calls", "method pkg.base.Base.stop"),
        ("pkg.mill.Mill.run", "calls", "method pkg.base.Base.run"),
        ("pkg.mill.Mill.run", "calls", "function pkg.tools.grind"),
        ("pkg.mill.Mill.run", "calls", "function pkg.mill.top"),
        ("pkg.mill.Mill.turn", "calls", "class pkg.mill.Mill"),
    }


SAMPLES = {
    "/p/a.ts": (
        'import { run as go } from "./lib/run";\nexport class A extends B { m() { this.n(); go(); } n() {} }',
        {
            ("/p/a.ts", "imports", "module /p/lib/run.ts"),
            ("/p/a.ts", "defines", "class /p/a.ts.A"),
            ("/p/a.ts.A", "defines", "method /p/a.ts.A.m"),
            ("/p/a.ts.A", "defines", "method /p/a.ts.A.n"),
            ("/p/a.ts.A.m", "calls", "method /p/a.ts.A.n"),
            ("/p/a.ts.A.m", "calls", "function /p/lib/run.ts.run"),
        },
    ),
    "/p/a.go": (
        'package a\nimport "fmt"\ntype T struct{}\nfunc (t *T) M() { f() }\nfunc f() { fmt.Println() }',
        {
            ("/p/a.go", "imports", "module fmt"),
            ("/p/a.go", "defines", "class /p/a.go.T"),
            ("/p/a.go", "defines", "method /p/a.go.T.M"),
            ("/p/a.go", "defines", "function /p/a.go.f"),
            ("/p/a.go.T.M", "calls", "function /p/a.go.f"),
            ("/p/a.go.f", "calls", "function fmt.Println"),
        },
    ),
    "/p/A.java": (
        "import x.Y;\nclass A extends Y { void m() { n(); new B(); } void n() {} }\nclass B {}",
        {
            ("/p/A.java", "imports", "module x"),
            ("/p/A.java", "defines", "class /p/A.java.A"),
            ("/p/A.java", "defines", "class /p/A.java.B"),
            ("/p/A.java.A", "inherits", "class x.Y"),
            ("/p/A.java.A", "defines", "method /p/A.java.A.m"),
            ("/p/A.java.A", "defines", "method /p/A.java.A.n"),
            ("/p/A.java.A.m", "calls", "method /p/A.java.A.n"),
            ("/p/A.java.A.m", "calls", "class /p/A.java.B"),
        },
    ),
    "/p/a.rs": (
        "use std::fmt;\nstruct S;\nimpl S { fn m(&self) { self.n(); f(); } fn n(&self) {} }\nfn f() {}",
        {
            ("/p/a.rs", "imports", "module std"),
            ("/p/a.rs", "defines", "class /p/a.rs.S"),
            ("/p/a.rs.S", "defines", "method /p/a.rs.S.m"),
            ("/p/a.rs.S", "defines", "method /p/a.rs.S.n"),
            ("/p/a.rs", "defines", "function /p/a.rs.f"),
            ("/p/a.rs.S.m", "calls", "method /p/a.rs.S.n"),
            ("/p/a.rs.S.m", "calls", "function /p/a.rs.f"),
        },
    ),
    "/p/a.c": (
        '#include "b.h"\nstruct s { int x; };\nstatic int *f(void) { return 0; }\nint main(void) { f(); }',
        {
            ("/p/a.c", "imports", "module b.h"),
            ("/p/a.c", "defines", "class /p/a.c.s"),
            ("/p/a.c", "defines", "function /p/a.c.f"),
            ("/p/a.c", "defines", "function /p/a.c.main"),
            ("/p/a.c.main", "calls", "function /p/a.c.f"),
        },
    ),
    "/p/a.cpp": (
        "class B {};\nclass A : public B { public: void m() { n(); } void n() {} };",
        {
            ("/p/a.cpp", "defines", "class /p/a.cpp.B"),
            ("/p/a.cpp", "defines", "class /p/a.cpp.A"),
            ("/p/a.cpp.A", "inherits", "class /p/a.cpp.B"),
            ("/p/a.cpp.A", "defines", "method /p/a.cpp.A.m"),
            ("/p/a.cpp.A", "defines", "method /p/a.cpp.A.n"),
            ("/p/a.cpp.A.m", "calls", "method /p/a.cpp.A.n"),
        },
    ),
}


@pytest.mark.parametrize("path", SAMPLES)
def test_other_languages(path: str):
    text, expected = SAMPLES[path]
    assert graph(text, path, path) == expected


def test_every_chunk_gets_what_stands_in_it():
    text = "".join(f"def f{n}():\n    # ü\n    return f{n - 1}()\n\n\n" for n in range(60))
    chunks = [
        GraphChunk(one.text, 1, one.start, one.start_line, one.end_line)
        for one in chunk_page(text, Shape.CODE, "python", ChunkSizes(400, 100))
    ]
    found = CodeExtractor().extract(GraphDocument("/m.py", chunks, "python", "m"), range(len(chunks)))
    assert len(chunks) > 5
    for chunk, extraction in zip(chunks, found, strict=True):
        for one in extraction.relations:
            assert f"def {one.target.name[2:]}(" in chunk.text or f"{one.target.name[2:]}()" in chunk.text
    assert sum(one.kind == "defines" for each in found for one in each.relations) == 60
    assert found[0].entities[Entity("m", "module")] == 1


@pytest.mark.parametrize("overlap", [0, 100])
def test_a_file_is_put_together_from_its_chunks(overlap: int):
    text = Path(email.__file__).with_name("message.py").read_text()
    chunks = [
        GraphChunk(one.text, 1, one.start, one.start_line, one.end_line)
        for one in chunk_page(text, Shape.CODE, "python", ChunkSizes(1000, overlap))
    ]
    whole, starts = joined(chunks)
    assert [line.rstrip() for line in whole.split("\n")] == [
        line.rstrip() for line in text.rstrip().split("\n")
    ]
    assert len(starts) == len(chunks)


def test_definitions_and_calls_that_ast_resolves():
    defined, called = bench.code_scores(Path(email.__file__).parent)
    assert defined.recall >= 0.98
    assert called.recall >= 0.9
    assert called.right > 100


@pytest.mark.parametrize(
    ("written", "module", "package", "target"),
    [
        (".a", "p.q.m", False, "p.q.a"),
        ("..a", "p.q.m", False, "p.a"),
        (".", "p.q.m", False, "p.q"),
        (".a", "p.q", True, "p.q.a"),
        ("..a", "p.q", True, "p.a"),
        (".", "p.q", True, "p.q"),
    ],
)
def test_relative_imports(written: str, module: str, package: bool, target: str):
    assert resolve_relative(written, module, package=package) == target


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/r/src/pkg/sub/mod.py", "pkg.sub.mod"),
        ("/r/src/pkg/__init__.py", "pkg"),
        ("/r/tool.py", "tool"),
        ("/r/a.go", "/r/a.go"),
    ],
)
def test_names_of_modules(path: str, name: str):
    assert module_name(path, {"/r/src/pkg", "/r/src/pkg/sub"}.__contains__) == name


@pytest.mark.parametrize(
    "text", ["", "def (((:", "x" * 2_000, "(" * 5_000, "class A(A):\n    def f(self): self.g()\n"]
)
def test_broken_code_gives_what_can_be_read(text: str):
    assert graph(text) is not None
