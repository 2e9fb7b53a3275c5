"""Hostile inputs: small files, ignore patterns and queries with a high cost for a careless reader.

The interface:

- ``FILES``: name -> function(n) -> ``(file name, content)``. The content grows linearly with ``n``.
- ``LARGE``: name in ``FILES`` -> the ``n`` at which the file reaches the size limit.
- ``IGNORES``: name -> function(n) -> ``(text of an ignore file, paths to match)``.
- ``QUERIES``: name -> function(n) -> a search query.

Random parts use a fixed seed: the same ``n`` gives the same bytes.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from tests.pipeline.hostile_mail import MAIL_FILES
from tests.pipeline.hostile_office import OFFICE_FILES
from tests.pipeline.sample_documents import docx, paragraph, pdf

Hostile: TypeAlias = tuple[str, bytes]


def _repeated(suffix: str, part: str, head: str = "", tail: str = "") -> Callable[[int], Hostile]:
    return lambda n: (f"input.{suffix}", (head + part * n + tail).encode("utf-8", "surrogatepass"))


def _numbered(suffix: str, part: str, head: str = "", tail: str = "") -> Callable[[int], Hostile]:
    """``part`` once for each number below ``n``, in place of ``%d``."""
    return lambda n: (
        f"input.{suffix}",
        (head + "".join(part.replace("%d", str(number)) for number in range(n)) + tail).encode(),
    )


def _made(suffix: str, make: Callable[[int], str | bytes]) -> Callable[[int], Hostile]:
    def made(n: int) -> Hostile:
        content = make(n)
        return f"input.{suffix}", content if isinstance(content, bytes) else content.encode()

    return made


def _notebook(*sources: str, language: str = "python", outputs: int = 0) -> str:
    printed = [{"output_type": "stream", "text": "`" * 50}] * outputs
    cells = [{"cell_type": "code", "source": source, "outputs": printed} for source in sources]
    return json.dumps({"cells": cells, "metadata": {"language_info": {"name": language}}})


def _rising_keys(n: int) -> str:
    """Paragraphs in the order of their checksums: each is a worse place to cut than the one before."""
    rng = random.Random(15)
    made = [f"{rng.getrandbits(300):075x}"[:70] for _ in range(n // 70)]
    return "\n\n".join(sorted(made, key=lambda text: zlib.crc32(text[:64].encode())))


def _fences_of_every_length(n: int) -> str:
    """Long closing lines of fences first, then opening lines of every length, all unclosed."""
    lengths = range(3, int(n**0.5))
    return "x\n" * (n // 4) + "".join("`" * length + "x\n" for length in reversed(lengths))


def _nested_blocks(n: int) -> str:
    depth = int(n**0.5)
    return "".join(" " * level + "if x:\n" for level in range(depth)) + " " * depth + "pass\n"


def _deep_json(n: int) -> str:
    depth = min(900, n // 4)
    return "[" * depth + "1," * (n // 2) + "1" + "]" * depth


_TEXT = {
    "spaces in a line": _repeated("txt", " ", "word " * 10 + "a", "a"),
    "spaces before every fourth letter": _repeated("txt", " " * 50 + "a", "word "),
    "tabs and form feeds": _repeated("txt", "\t\f", "word " * 500, "a"),
    "long line without spaces": _repeated("txt", "a"),
    "short lines": _repeated("txt", "a\n"),
    "blank lines": _repeated("txt", "\n", "a", "a"),
    "lines of spaces": _repeated("txt", "  \n", "a", "a"),
    "carriage returns": _repeated("txt", "a\r\r\n\n\r"),
    "sentence ends": _repeated("txt", ".", "a" * 3000, "a"),
    "quotes after a sentence": _repeated("txt", "'", "a" * 3000 + ".", "a"),
    "sentence ends and quotes": _repeated("txt", '."', "a" * 3000),
    "ideographic full stops": _repeated("txt", "。"),
    "combining marks": _repeated("txt", "\u0301\u0327", "a"),
    "combining marks in falling order": _made(
        "txt", lambda n: "a" + "\u0301" * n + "\u0327" * n + "\u0334" * n
    ),
    "marks that decompose": _repeated("txt", "\u0f73\u0344", "a"),
    "composed letters and marks": _repeated("txt", "\u1e69\u0327" + "\u0323" * 20),
    "hangul parts": _repeated("txt", "\u1100\u1161\u11a8"),
    "compatibility expansions": _repeated("txt", "\ufdfa"),
    "right to left": _repeated("txt", "\u202e\u05d0\u05b0\u202c "),
    "byte order marks": _repeated("txt", "\ufeff"),
    "undecodable bytes": _made("txt", lambda n: b"\x81a" * n),
    "cut UTF-8": _made("txt", lambda n: b"\xe2\x82" * n),
    "shift sequences": _made("txt", lambda n: b"a\x1b$B0!\x1b(B" * (n // 5)),
    "lone surrogates": _made("txt", lambda n: b"\xff\xfe" + b"\x00\xd8a\x00" * n),
    "cuts that get worse": _made("txt", _rising_keys),
    "log lines": _numbered("log", "2026-01-01T00:00:00 host service[%d]: ok\n"),
}

_MARKDOWN = {
    "spaces in a heading": _repeated("md", " ", "# a", "b"),
    "tabs in a heading": _repeated("md", " \t", "# a", "b"),
    "hash signs in a heading": _repeated("md", " #", "# a", "b"),
    "hash signs after a heading": _repeated("md", "#", "# a ", "b"),
    "headings": _repeated("md", "# a\n"),
    "numbered headings": _numbered("md", "## a%d\n"),
    "underlined headings": _repeated("md", "a\n===\n"),
    "underlines": _repeated("md", "=", "a\n", " x"),
    "one long heading": _made("md", lambda n: "# " + "a" * n + "\n\n" + "some words \n\n" * n),
    "title of spaces": _made("md", lambda n: ("# a" + " " * 4000 + "b\n")[:n]),
    "tildes before a backtick": _repeated("md", "~", "", "`"),
    "backticks": _repeated("md", "`", "", "x`"),
    "open fences": _made("md", lambda n: "```x y\n" * (n // 10)),
    "open fences of tildes": _made("md", lambda n: "~~~x y\n" * (n // 10)),
    "open fences of every length": _made("md", _fences_of_every_length),
    "fences that get longer": _made(
        "md", lambda n: "".join("`" * length + "\n" for length in range(3, int((2 * n) ** 0.5)))
    ),
    "closed fences": _repeated("md", "```\na\n```\n"),
    "quotation marks": _repeated("md", "> ", "", "~~~x`"),
    "quoted fences": _repeated("md", "> ```x `\n"),
    "numbers of a list": _repeated("md", "1", "", ". ~~~`"),
    "list items": _repeated("md", "- a\n"),
    "brackets": _repeated("md", "[a](", "", "b"),
    "open brackets": _repeated("md", "["),
    "emphasis": _repeated("md", "*a_", "x"),
    "table of many columns": _made("md", lambda n: "| a " * n + "|\n" + "|---" * n + "|\n"),
    "table of many rows": _repeated("md", "| a | b |\n", "| a | b |\n|---|---|\n"),
    "pipes": _repeated("md", "|"),
    "underlines of reStructuredText": _repeated("rst", "ab\n==\n\n"),
    "one underline of reStructuredText": _repeated("rst", "=", "a\n", "x"),
    "headings of AsciiDoc": _repeated("adoc", "== a\n"),
    "spaces in AsciiDoc": _repeated("adoc", " ", "= ", ""),
    "headings of Org": _repeated("org", "** a\n"),
    "stars of Org": _repeated("org", "*", "", " a"),
}

_HTML = {
    "backticks in pre": _repeated("html", "`", "<p>a</p><pre>", "</pre>"),
    "mismatched end tags": _repeated("html", "<div></ul>"),
    "mismatched end tags of inline elements": _repeated("html", "<span></ul>"),
    "open divisions": _made("html", lambda n: "<div>" * min(n, 3900) + "a"),
    "open inline elements": _repeated("html", "<span>"),
    "inline elements and end tags": _made("html", lambda n: "<span>" * n + "</i>" * n),
    "inline elements and divisions": _made("html", lambda n: "<span>" * n + "<div></div>" * n),
    "open formatting": _repeated("html", "<b>a"),
    "formatting of every paragraph": _numbered("html", "<font size=%d><p>a"),
    "formatting closed elsewhere": _repeated("html", "<b><p></b>a"),
    "formatting in formatting": _repeated("html", "<a><b><div></a>"),
    "buttons": _repeated("html", "<button><p>"),
    "divisions in open tables": _repeated("html", "<div><table></div>"),
    "text in tables": _repeated("html", "<table>a"),
    "nested tables": _made("html", lambda n: "<table><tr><td>" * (n // 20) + "a"),
    "tables around many cells": _made(
        "html", lambda n: "<table><tr><td>" * min(300, n // 50) + "<table>" + "<tr><td>a" * n
    ),
    "tables in a deep place": _made(
        "html", lambda n: "<table><td>" + "<div>" * min(3000, n // 5) + "<table><td>a</table>" * n
    ),
    "nested lists": _made("html", lambda n: "<ul><li>" * (n // 10) + "a"),
    "items of a deep list": _made("html", lambda n: "<ul>" * min(3000, n // 10) + "<li>a" * n),
    "items that number themselves": _repeated("html", "<ol start=1><li>a</ol>"),
    "definition lists": _repeated("html", "<dl><dt>a<dd>b</dl>"),
    "open paragraphs": _repeated("html", "<p>a"),
    "open items": _repeated("html", "<li>a"),
    "options": _repeated("html", "<option>a", "<select>"),
    "attributes": _numbered("html", " a%d=1", "<div", ">a"),
    "equal attributes": _repeated("html", " a=1", "<div", ">a"),
    "entities": _repeated("html", "&amp;"),
    "broken entities": _repeated("html", "&notit;&#x;"),
    "open comments": _repeated("html", "<!--"),
    "short comments": _repeated("html", "<!-->a"),
    "dashes in a comment": _repeated("html", "-", "<!--", "a"),
    "open tags": _repeated("html", "<a "),
    "less-than signs": _repeated("html", "<"),
    "open scripts": _repeated("html", "<script><!--<script>"),
    "hidden elements": _repeated("html", "<div hidden>a</div>"),
    "hidden elements in hidden elements": _made("html", lambda n: "<i hidden>" * min(n // 10, 1900) + "a"),
    "templates": _repeated("html", "<template>a</template>"),
    "drawings": _repeated("html", "<svg><g><p>"),
    "breaks": _repeated("html", "<br>a"),
    "declarations of a charset": _repeated("html", "<meta charset ", "", "a"),
    "charset of an odd codec": _made(
        "html", lambda n: b"<meta charset=punycode>" + b"ab\xff" * (n // 3) + b"-" + b"9" * n
    ),
    "rulers and frames": _repeated("html", "<hr><iframe></iframe>"),
    "forms": _repeated("html", "<form><input>"),
    "headings in HTML": _repeated("html", "<h1>a<h2>b"),
}

_STRUCTURED = {
    "backticks in a cell": _made("ipynb", lambda n: _notebook("`" * n)),
    "backticks in outputs": _made("ipynb", lambda n: _notebook("print(1)", outputs=n // 20)),
    "long language of many cells": _made(
        "ipynb", lambda n: _notebook(*["a = 1"] * (n // 200), language="x" * n)
    ),
    "lines of a cell": _made(
        "ipynb", lambda n: json.dumps({"cells": [{"cell_type": "markdown", "source": ["a\n"] * n}]})
    ),
    "deep notebook": _made("ipynb", lambda n: '{"cells": ' + "[" * n),
    "long array": _repeated("json", '"a",', "[", '"a"]'),
    "deep array": _made("json", _deep_json),
    "open arrays": _repeated("json", "["),
    "long string": _repeated("json", "a", '["', '"]'),
    "escapes": _repeated("json", "\\u0041", '["', '"]'),
    "keys": _numbered("json", '"a%d":1,', "{", '"b":2}'),
    "columns": _repeated("csv", "a,", "", "a\n"),
    "rows": _repeated("csv", "a,b\n"),
    "quotes": _repeated("csv", '"'),
    "open quote": _repeated("csv", "a\n", '"'),
    "delimiters": _repeated("csv", ";,|\t\n"),
    "records": _repeated("jsonl", '{"a":1}\n'),
    "attributes of XML": _numbered("xml", ' a%d="1"', "<r", "/>"),
    "elements": _repeated("xml", "<a>b</a>", "<r>", "</r>"),
    "deep elements": _made("xml", lambda n: "<a>" * n + "b" + "</a>" * n),
    "long name of many texts": _made("xml", lambda n: f"<{'x' * n}>" + "<b/>a" * (n // 20) + f"</{'x' * n}>"),
    "long name of many attributes": _made(
        "xml", lambda n: f"<{'x' * n} " + " ".join(f'a{k}="1"' for k in range(n // 20)) + "/>"
    ),
    "default attributes": _made(
        "xml",
        lambda n: f'<!DOCTYPE r [<!ATTLIST a b CDATA "{"x" * n}">]><r>' + "<a/>" * (n // 20) + "</r>",
    ),
    "namespaces": _numbered("xml", '<n%d:a xmlns:n%d="u"/>', "<r>", "</r>"),
    "character references": _repeated("xml", "&#65;", "<r>", "</r>"),
    "texts in pieces": _repeated("xml", "a<![CDATA[b]]>", "<r>", "</r>"),
    "comments of XML": _repeated("xml", "<!-- a -->b", "<r>", "</r>"),
    "broken XML": _repeated("xml", "<a b=", "<r>"),
}

_CODE = {
    "parentheses": _repeated("py", "("),
    "closed parentheses": _made("py", lambda n: "x = " + "(" * n + ")" * n),
    "brackets of JavaScript": _repeated("js", "[{("),
    "arrows": _repeated("js", "a=>"),
    "templates of C++": _repeated("cpp", "a<"),
    "open generic types": _repeated("ts", "a<b,"),
    "generic types": _made("java", lambda n: "class A { " + "A<" * n + "B" + ">" * n + " a; }"),
    "ternaries": _repeated("c", "a?b:", "int x = ", "c;"),
    "casts": _repeated("c", "(a)", "int x = ", "1;"),
    "string literal": _repeated("py", "a", 'x = "', '"'),
    "open string literals": _repeated("js", "'a\n"),
    "raw strings": _repeated("rs", "#", "fn a() { r", '"a"; }'),
    "functions": _numbered("py", "def f%d(): pass\n"),
    "methods": _numbered("py", " def f%d(self): pass\n", "class A:\n"),
    "functions among letters": _numbered("py", "def f%d(): 'é'\n"),
    "classes in classes": _made(
        "py", lambda n: "".join(" " * level + "class A:\n" for level in range(int(n**0.5)))
    ),
    "nested blocks": _made("py", _nested_blocks),
    "decorators": _repeated("py", "@a\n", "", "def f(): pass\n"),
    "comments": _repeated("py", "# a\n", "", "def f(): pass\n"),
    "statements": _repeated("js", "a;"),
    "declarators": _made("js", lambda n: "const " + ",".join(f"f{k}=()=>1" for k in range(n // 5)) + ";"),
    "include guards": _repeated("h", "#if A\n"),
    "else branches of the preprocessor": _repeated("h", "#elif A\n", "#if A\n", "#endif\n"),
    "linkage": _made("cpp", lambda n: 'extern "C" {' * n + "}" * n),
    "pointers": _repeated("c", "*", "int ", "f(void) { return 0; }"),
    "less-than signs in a name": _repeated("rs", "<<1", "impl A for [u8; 1", "] { fn a() {} }"),
    "spaces in a receiver": _repeated("go", " ", "package a\nfunc (a", "*B) c() {}"),
    "brackets in a receiver": _made(
        "go", lambda n: "package a\nfunc (b B[" + "[]" * n + "a]) c() {}" + "func (b B" + "a" * n + ") d() {}"
    ),
    "lines of an unknown language": _repeated("nim", "end\n"),
    "binary expression": _repeated("py", "+1", "x = 1"),
    "dots": _repeated("js", ".a", "a"),
}

_OFFICE = {
    "spaces on a page": _made("pdf", lambda n: pdf("a" + " " * n + "b")),
    "hyphens on a page": _made("pdf", lambda n: pdf("\n".join(["a-"] * (n // 10)))),
    "pages": _made("pdf", lambda n: pdf(*["a"] * (n // 50))),
    "spaces in a paragraph": _made("docx", lambda n: docx(paragraph("a" + " " * n + "b", "Heading1"))),
    "paragraphs": _made("docx", lambda n: docx(paragraph("a") * (n // 10))),
    "backticks in a paragraph": _made("docx", lambda n: docx(paragraph("~" * n + "`"))),
}

FILES: Mapping[str, Callable[[int], Hostile]] = MappingProxyType(
    {**_TEXT, **_MARKDOWN, **_HTML, **_STRUCTURED, **_CODE, **_OFFICE, **OFFICE_FILES, **MAIL_FILES}
)

LARGE: Mapping[str, int] = MappingProxyType(
    {
        "columns": 1_000_000,
        "headings": 4_000_000,
        "long array": 15_000_000,
        "long string": 60_000_000,
        "short lines": 33_000_000,
    }
)
"""1,000,000 columns, 16 MB of headings, two JSON lines of 60 MB, 66 MB of short lines."""

_NAME = "a" * 200

IGNORES: Mapping[str, Callable[[int], tuple[str, list[str]]]] = MappingProxyType(
    {
        "stars": lambda n: ("*a" * n + "*b", [_NAME, f"{_NAME}/{_NAME}", f"{_NAME}b"]),
        "stars and question marks": lambda n: ("*?" * n + "*b", [_NAME, f"{_NAME}b"]),
        "stars and classes": lambda n: ("*[a-c]" * n + "*[!a]", [_NAME, f"{_NAME}b"]),
        "stars in folders": lambda n: ("/".join(["*a*a*a"] * n) + "b", ["/".join([_NAME[:50]] * 20)]),
        "double stars": lambda n: ("**/a/" * n + "b", ["/".join(["a"] * 100), "a/" * 100 + "b"]),
        "double stars and stars": lambda n: ("**/*a*/" * n + "b", ["/".join(["aaaa"] * 50)]),
        "runs of stars": lambda n: ("*" * n + "b", [_NAME, "b"]),
        "many names": lambda n: ("\n".join(f"name{k}" for k in range(n)), ["a/b/c.md", "a/name7"]),
        "many suffixes": lambda n: ("\n".join(f"*.x{k}" for k in range(n)), ["a/b/c.md", "a/b.x7"]),
        "many folders": lambda n: ("\n".join(f"/a/b{k}/" for k in range(n)), ["a/b/c.md", "a/b7/"]),
        "many negations": lambda n: ("\n".join(f"*.md\n!k{k}.md" for k in range(n)), ["a/b.md", "k7.md"]),
        "many globs": lambda n: ("\n".join(f"a*b{k}*c" for k in range(n)), ["a/b/c.md", "a/axb7xc"]),
        "classes": lambda n: ("[ab]" * n, [_NAME, "a" * n]),
        "one class": lambda n: ("[" + "ab" * n + "]", ["a", "c"]),
        "open classes": lambda n: ("[" * n, ["a", "["]),
        "backslashes": lambda n: ("\\a" * n, [_NAME]),
        "slashes": lambda n: ("a/" * n + "b", ["/".join("a" * 100)]),
        "long name": lambda n: ("a" * n, [_NAME]),
    }
)

QUERIES: Mapping[str, Callable[[int], str]] = MappingProxyType(
    {
        "words": lambda n: " ".join(f"word{k}" for k in range(n // 5)),
        "one word": lambda n: "a" * n,
        "open quote": lambda n: '"' + "a " * n,
        "quotes": lambda n: '"' * n + "a",
        "quoted words": lambda n: '"' + "ab " * n + '"',
        "signs": lambda n: "*-(^" * n + "a",
        "combining marks": lambda n: "a" + "\u0301\u0327" * n,
        "expansions": lambda n: "\ufdfa" * n,
        "spaces": lambda n: "a" + " " * n + "b",
    }
)
