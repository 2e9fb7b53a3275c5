"""The dashboard in a real browser, on a server with a worker."""

from __future__ import annotations

import json
import time
from importlib import resources
from pathlib import Path

import pytest

from tests.browser.chromium import Tab
from tests.http.live_server import LiveServer
from tests.pipeline.sample_documents import pdf

SERVE = ()
NOTES = 2_400
PUMP = """
  const real = window.fetch.bind(window);
  window.fetch = async (path, options) => {
    const answer = await real(path, options);
    if (path !== '/events') return answer;
    const [own, more] = [answer.body.getReader(), new TransformStream()];
    const writer = more.writable.getWriter();
    (async () => { for (;;) { const { done, value } = await own.read(); if (done) return;
      writer.write(value); } })();
    window.pump = (kind, data) =>
      writer.write(new TextEncoder().encode(`event: ${kind}\\ndata: ${JSON.stringify(data)}\\n\\n`));
    return new Response(more.readable, { status: 200 });
  };
"""
"""A page whose stream can be given further events, besides those of the server."""


def make_folder(server: LiveServer, name: str, notes: int) -> Path:
    folder = server.folder / "files" / name
    folder.mkdir(parents=True)
    for number in range(notes):
        text = f"# Gate {number}\n\nThe gate of {name} {number} lets in water, about {number} litres.\n"
        (folder / f"gate-{number:03}.md").write_text(text * 20)
    return folder


@pytest.fixture(scope="module")
def library(server: LiveServer) -> Path:
    """An indexed folder, with one file that cannot be read."""
    folder = make_folder(server, "library", 8)
    (folder / "scan.pdf").write_bytes(b"%PDF-1.4 and then nothing")
    (folder / "paper.pdf").write_bytes(pdf("The first page.", "The second page."))
    server.ended(server.index(folder).body["job_id"])
    return folder


def row(path: Path) -> str:
    """The row of the jobs that names a path."""
    return (
        f"[...document.querySelectorAll('main tr[data-id]')].find((one) => one.innerText.includes('{path}'))"
    )


def test_a_folder_is_indexed_from_the_page_and_its_progress_moves(tab: Tab, server: LiveServer):
    folder = make_folder(server, "fresh", NOTES)
    (folder / "report.pdf").write_bytes(b"%PDF-1.4 and then nothing")
    tab.open(f"{server.url}/#/jobs")
    tab.click("main button", "Index a folder")
    tab.sees("Index a folder or file", "dialog")
    tab.type("dialog [name=folder_path]", str(folder))
    tab.evaluate(
        "window.seen = []; new MutationObserver(() => {"
        " const bar = document.querySelector('.bar.large .st-done');"
        " if (bar) seen.push(parseFloat(bar.style.width)); })"
        ".observe(document.getElementById('main'), { subtree: true, childList: true, attributes: true })"
    )
    tab.press("Enter")
    tab.sees("1 file failed.", "main")
    tab.sees("ended", ".between")
    assert f"{NOTES + 1:,} of {NOTES + 1:,} files" == tab.text(".between h2")
    assert str(folder) == tab.text("h1")
    widths = tab.evaluate("seen")
    # The bar moved, in more than one step, and never ran back.
    assert widths == sorted(widths)
    assert 3 <= len(set(widths))


def test_a_failure_is_seen_with_its_remedy_and_retried(tab: Tab, server: LiveServer):
    folder = make_folder(server, "damaged", 1)
    file = folder / "report.pdf"
    file.write_bytes(b"%PDF-1.4 and then nothing")
    server.ended(server.index(folder).body["job_id"])
    tab.open(f"{server.url}/#/failures")
    tab.sees("The PDF cannot be opened", ".reasons")
    tab.sees("ERR_", ".reasons code")
    tab.wait("document.querySelector('.nav .count')")
    file.write_bytes(pdf("The report of the mill."))
    tab.click(".reasons a.number")
    job = tab.wait(f"{row(file)}?.dataset.id")
    tab.click(f"tr[data-id={job}] [data-act=retry-job]")
    tab.sees("Put back.", "#toasts")
    assert "done" == server.ended(job)["status"]
    tab.wait(f"!({row(file)}?.innerText.includes('failed'))")
    tab.click(".nav a", "Documents")
    tab.type("main [name=why]", str(file))
    tab.press("Enter")
    tab.sees("indexed", ".why-answer")


def test_a_job_is_cancelled_only_after_a_question(tab: Tab, server: LiveServer, library: Path):
    later = server.ask(
        "POST", "/index/", {"folder_path": str(library), "delay": 3600, "collection": "later"}
    ).body
    tab.open(f"{server.url}/#/jobs/{later['job_id']}")
    tab.sees("held: until its time")
    tab.click(".head button", "Cancel job")
    tab.sees(f"Cancel {library}?", "dialog")
    assert "Keep it" == tab.evaluate("document.activeElement.innerText")
    tab.press("Escape")
    tab.wait("!document.querySelector('dialog')")
    assert "pending" == server.ask("GET", f"/index/jobs/{later['job_id']}").body["status"]
    tab.press("c")
    tab.click("dialog button", "Cancel job")
    tab.sees("cancelled", ".meta")
    assert "cancelled" == server.ask("GET", f"/index/jobs/{later['job_id']}").body["status"]


def test_a_note_is_added_and_found_by_search_from_the_keyboard(tab: Tab, server: LiveServer):
    tab.open(server.url)
    tab.sees("searchable")
    tab.click(".say button", "Add a note")
    tab.type("dialog textarea", "The spillway <b>opens</b> at four metres.")
    tab.click("dialog button[type=submit]")
    tab.sees("Queued.", "#toasts")
    tab.wait(
        "fetch('/search', { method: 'POST', headers: { 'Content-Type': 'application/json' },"
        " body: JSON.stringify({ query: 'spillway' }) }).then((answer) => answer.json())"
        ".then((found) => found.hits.some((hit) => hit.words.includes('spillway')))"
    )
    tab.press("/")
    tab.type(".find input", "spillway")
    tab.press("Enter")
    tab.sees("spillway", "mark")
    # The text of a document is never read as HTML.
    assert "<b>opens</b>" in tab.text(".snippet")
    tab.click(".hits h2 a")
    tab.sees("The spillway <b>opens</b> at four metres.", ".page-text")


def test_keys_move_between_pages_and_rows(tab: Tab, server: LiveServer, library: Path):
    server.index(library / "gate-000.md")
    tab.open(server.url)
    tab.sees("searchable")
    tab.press("g", "j")
    tab.wait("document.querySelectorAll('.table.jobs tr[data-id]').length > 1")
    tab.press("j", "j", "x")
    tab.sees("1 chosen on this page.", ".bulk")
    tab.press("Enter")
    tab.sees("History")
    tab.press("Escape")
    # The address changes before the page does, and a new page closes the dialogs of the one before.
    tab.wait("location.hash === '#/jobs' && document.querySelector('.table.jobs tr[data-id]')")
    tab.press("?")
    tab.sees("Switch keys off", "dialog")


def test_after_100_updates_a_box_is_checked_and_a_question_still_asks(
    tab: Tab, server: LiveServer, library: Path
):
    server.ended(server.index(library / "gate-001.md").body["job_id"])
    added = tab.call("Page.addScriptToEvaluateOnNewDocument", source=PUMP)["identifier"]
    try:
        tab.open(f"{server.url}/#/jobs")
        tab.wait("window.pump && document.querySelectorAll('main tr[data-id]').length > 1")
        tab.click("main tr[data-id] input")
        tab.sees("1 chosen on this page.", ".bulk")
        chosen = tab.evaluate("document.querySelector('tr.chosen').dataset.id")
        order = "[...document.querySelectorAll('main tr[data-id]')].map((one) => one.dataset.id).join()"
        before = tab.evaluate(order)
        job = server.ask("GET", f"/index/jobs/{chosen}").body
        job["status"], job["finished_at"] = "pending", None
        tab.evaluate(f"window.job = {json.dumps(job)}; pump('job', job)")
        tab.wait("document.querySelector('tr.chosen [data-act=cancel-job]')")
        tab.click("tr.chosen [data-act=cancel-job]")
        tab.sees("Cancel ", "dialog h2")
        tab.evaluate(
            "(async () => { for (let number = 0; number < 100; number += 1) {"
            " pump('job', { ...job, reason: `update ${number}` });"
            " pump('job', { ...job, job_id: `job_new${number}` });"
            " pump('lane', { lane: 'ocr', waiting: number });"
            " await new Promise((resolve) => setTimeout(resolve, 10)); } })()"
        )
        tab.sees("update 99", "tr.chosen")
        assert tab.evaluate("document.querySelector('tr.chosen input').checked")
        assert before == tab.evaluate(order)
        assert "Keep it" == tab.evaluate("document.activeElement.innerText")
        tab.click("dialog button[type=submit]")
        # The job has ended in truth: the server refuses, and the dialog says why.
        tab.sees("Cannot cancel job with status", "dialog .note")
        tab.errors[:] = [one for one in tab.errors if "409" not in one]
    finally:
        tab.call("Page.removeScriptToEvaluateOnNewDocument", identifier=added)


def test_a_chosen_chunk_is_framed_on_the_picture_of_its_page(tab: Tab, server: LiveServer, library: Path):
    tab.open(f"{server.url}/#{address_of(server, '/documents/ID')}?page=2")
    tab.wait("document.querySelector('.sheet img')?.naturalWidth")
    assert not tab.evaluate("document.querySelector('.frame')")
    tab.click("[data-act=choose-chunk][data-page='2']")
    tab.wait("document.querySelector('.frame')?.getBoundingClientRect().width > 20")
    inside = "one.left > sheet.left && one.right < sheet.right && one.top > sheet.top"
    frame, sheet = (
        f"document.querySelector('{name}').getBoundingClientRect()" for name in (".frame", ".sheet")
    )
    assert tab.evaluate(f"((one, sheet) => {inside})({frame}, {sheet})")


PAGES = (
    "/",
    "/jobs",
    "/jobs/ID",
    "/failures",
    "/documents",
    "/documents/ID",
    "/search?q=gate",
    "/schedules",
    "/workers",
)
AXE = """axe.run(document, %s).then((found) => found.violations.map((one) =>
  `${one.impact} ${one.id}: ${one.nodes.slice(0, 3).map((each) => each.html).join(' ')}`))"""
"""Problems of accessibility, in words."""


def address_of(server: LiveServer, page: str) -> str:
    if page == "/jobs/ID":
        return f"/jobs/{server.ask('GET', '/index/jobs/?limit=1').body['jobs'][0]['job_id']}"
    if page == "/documents/ID":
        found = server.ask("GET", "/documents?path=**/paper.pdf").body["documents"]
        return f"/documents/{found[0]['source_id']}"
    return page


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_accessible_and_fit_both_widths_and_themes(
    tab: Tab, server: LiveServer, library: Path, page: str
):
    tab.open(f"{server.url}/#{address_of(server, page)}")
    tab.wait("document.querySelector('main h1') && !document.querySelector('main .loading')")
    tab.evaluate((resources.files("axe_core_python") / "axe.min.js").read_text())
    for width in (1600, 400):
        # Only contrast depends on the theme.
        for theme, rules in (("light", "{}"), ("dark", "{ runOnly: ['color-contrast'] }")):
            tab.resize(width, theme=theme)
            tab.wait(f"innerWidth === {width} && matchMedia('(prefers-color-scheme: {theme})').matches")
            assert width >= tab.evaluate("document.documentElement.scrollWidth")
            assert [] == tab.evaluate(AXE % rules), (width, theme)
    assert all(url.startswith((server.url, "about:")) for url in tab.requests)


def test_a_page_reconnects_after_a_restart(tab: Tab, server: LiveServer, library: Path):
    tab.open(f"{server.url}/#/jobs")
    tab.sees("Live", ".live")
    port = server.address.rpartition(":")[2]
    server.stop()
    tab.sees("Connection lost.", ".strip")
    assert tab.evaluate("document.querySelectorAll('main tr[data-id]').length") >= 1
    server.start("--port", port)
    began = time.monotonic()
    job = server.ask("POST", "/content", {"content": "Written after the restart."}).body["job_id"]
    tab.wait(f"document.querySelector('tr[data-id={job}]')", within=10)
    tab.sees("Live", ".live")
    assert time.monotonic() - began < 10
    assert "" == tab.text("#strip")
    # Requests to a server that is away are logged by the browser itself.
    tab.errors[:] = [one for one in tab.errors if "Failed to load resource" not in one]
