"""HTML: the visible text, in the order of the page."""

from __future__ import annotations

import pytest

from penstock.errors import DocumentDamaged
from penstock.pipeline.extract.factory import extract
from penstock.pipeline.extract.protocol import Content, ExtractedText, Shape


def read(markup: str | bytes) -> ExtractedText:
    return extract(Content("a.html", markup.encode() if isinstance(markup, str) else markup))


def text(markup: str | bytes) -> str:
    return read(markup).pages[0].text


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("<p>One</p><p>two  \n words", "One\n\ntwo words"),
        ("<h1>Mill <em>race</em></h1>text<h3>Gate</h3>", "# Mill race\n\ntext\n\n### Gate"),
        ("one<br>two", "one\ntwo"),
        ("a<b>b</b>c <i>d</i>", "abc d"),
        ("<div>a<div>b</div>c</div>", "a\n\nb\n\nc"),
        ("<ul><li>a<li>b<ol start=3><li>c<li>d</ol><li>e</ul>f", "- a\n- b\n  3. c\n  4. d\n- e\n\nf"),
        ("<li><p>a</p><p>b</p></li>", "- a\n\nb"),
        ("<ul><li><p>a</p><p>b</p></ul>", "- a\n  b"),
        ("<pre>  x = 1\n\n  y</pre><p>z", "```\n  x = 1\n\n  y\n```\n\nz"),
        ("<p>a</p><pre><code>``` in</code></pre>", "a\n\n````\n``` in\n````"),
        (
            "<table><tr><th>n<th>t<tr><td>mill<td>two<p>lines</table>",
            "| n | t |\n|---|---|\n| mill | two lines |",
        ),
        ("<table><tr><td>a<td><tr><td>b<td>c</table>d", "| a |  |\n| b | c |\n\nd"),
        (
            "<table><tr><td><p>left<table><tr><td>x<td>y</table><td>right</table>",
            "left\n\n| x | y |\n\nright",
        ),
        ("<dl><dt>Weir<dd>a low dam</dl>", "Weir\n\na low dam"),
        ("&lt;b&gt; &amp; &uuml; &#8211; &nbsp;x", "<b> & ü – x"),
        ("<p>a<!-- no --><script>no</script><style>no</style><template>no</template>b", "ab"),
        ("<p hidden>no</p><p style='color:red; display:none'>no</p><noscript>no</noscript>yes", "yes"),
        ("<p>un<p>closed <b>bold<table><td>cell", "un\n\nclosed bold\n\n| cell |"),
        ("", ""),
    ],
)
def test_markup_becomes_markdown(markup: str, expected: str):
    assert expected == text(markup)


def test_a_text_file_in_a_wrapper_keeps_its_paragraphs():
    assert "One\n\nTwo\tlines\nhere" == text("<html>\n<pre>\n\nOne\n\nTwo\tlines\nhere\n</pre>\n</html>")


@pytest.mark.parametrize(
    ("markup", "title"),
    [
        ("<title> A  mill &amp; wheel\n</title><h1>Other</h1>", "A mill & wheel"),
        ("<title></title><h1>The <b>race</b></h1>", "The race"),
        ("<p>none", None),
    ],
)
def test_title(markup: str, title: str | None):
    extracted = read(markup)

    assert title == extracted.title
    assert Shape.MARKDOWN is extracted.shape


@pytest.mark.parametrize(
    "markup",
    [
        "<meta charset=iso-8859-2><p>příliš žluťoučký".encode("iso8859_2"),
        '<meta content="text/html; charset=windows-1250"><p>příliš žluťoučký'.encode("cp1250"),
        "<meta charset=iso-8859-1><p>příliš žluťoučký".encode(),
        "<p>příliš žluťoučký".encode("utf-16"),
        '<?xml version="1.0" encoding="iso-8859-2"?><p>příliš žluťoučký'.encode("iso8859_2"),
    ],
)
def test_charset_from_mark_declaration_or_bytes(markup: bytes):
    assert text(markup).endswith("příliš žluťoučký")


@pytest.mark.parametrize("tag", ["div", "ul", "blockquote"])
def test_endless_nesting_is_refused_at_once(tag: str):
    with pytest.raises(DocumentDamaged):
        read(f"<{tag}>" * 200_000)


def test_deep_nesting_is_walked_without_recursion():
    assert "x" == text("<div>" * 3_000 + "x")
    assert "x" == text("<span>" * 50_000 + "x")
