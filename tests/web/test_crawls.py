"""Crawls: which pages are indexed, what another crawl costs, and what is explained."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.errors import Cancelled, InvalidUrl
from penstock.handlers.context import Context
from penstock.handlers.libraries import LibraryJobs
from penstock.handlers.source_files import fetched_files
from penstock.pipeline.embed.static import HashingEmbedder
from penstock.pipeline.pipeline import Pipeline
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest
from tests.documents.worker_commands import kill_tree
from tests.web.conftest import WAIT_S, Answer, Indexer, Site, page, settings_of
from tests.worker.worker_processes import until

GATE = "The sluice gate opens in spring."


def small_site(site: Site) -> None:
    site.put(
        "/", page("Home", "Welcome to the mill.", "/a", "/b#part", "https://elsewhere.example/"), etag='"1"'
    )
    site.put("/a", page("Gates", GATE, "/c"), etag='"2"')
    site.put("/b", page("Wheels", "The wheel is made of oak.", "/"), etag='"3"')
    site.put("/c", page("Canals", "A canal brings the water.", "/deep"), etag='"4"')
    site.put("/deep", page("Deep", "Far away."), etag='"5"')


def test_pages_are_found_along_links_and_searched_with_their_anchors(indexer: Indexer, site: Site):
    small_site(site)
    job = indexer.index(f"{site.url}/", depth=2)

    assert "done" == job.status
    assert [f"{site.url}{path}" for path in ("/", "/a", "/b", "/c")] == indexer.paths()
    hit = indexer.app.search("sluice gate")[0]
    assert (f"{site.url}/a", f"{site.url}/a#gates", "Gates") == (hit.path, hit.url, hit.title)
    assert "Navigation" not in hit.text
    assert "¶" not in hit.text


def test_an_unchanged_site_costs_conditional_requests_only(indexer: Indexer, site: Site):
    small_site(site)
    indexer.index(f"{site.url}/", depth=2)
    site.asked.clear()
    job = indexer.index(f"{site.url}/", depth=2)

    assert (["/", "/a", "/b", "/c"], []) == (sorted(site.paths(304)), site.paths(200))
    assert ("unchanged", 4, 0) == tuple((job.result or {})[key] for key in ("outcome", "unchanged", "sent"))


def test_a_changed_page_is_indexed_again_and_alone(indexer: Indexer, site: Site):
    small_site(site)
    indexer.index(f"{site.url}/", depth=2)
    site.put("/b", page("Wheels", "The wheel is made of iron.", "/"), etag='"3b"')
    job = indexer.index(f"{site.url}/", depth=2)

    assert (1, 3) == tuple((job.result or {})[key] for key in ("changed", "unchanged"))
    assert [f"{site.url}/b"] == [hit.path for hit in indexer.app.search('"iron"')]
    assert [] == indexer.app.search('"oak"')


def test_a_gone_page_is_removed_after_a_complete_crawl_only(tmp_path: Path, site: Site):
    small_site(site)
    with Penstock(settings=settings_of(tmp_path, max_retries=0)) as app:
        indexer = Indexer(app)
        indexer.index(f"{site.url}/", depth=2)
        del site.pages["/c"]
        site.pages["/b"] = Answer(status=503)
        assert "failed" == indexer.index(f"{site.url}/", depth=2).status
        assert f"{site.url}/c" in indexer.paths()

        site.put("/b", page("Wheels", "The wheel is made of oak.", "/"), etag='"3"')
        assert "done" == indexer.index(f"{site.url}/", depth=2).status
        assert [f"{site.url}{path}" for path in ("/", "/a", "/b")] == indexer.paths()
        assert "skipped" == app.documents.why(f"{site.url}/c").verdict


def test_a_page_that_no_link_leads_to_any_more_stays_while_it_is_served(indexer: Indexer, site: Site):
    small_site(site)
    indexer.index(f"{site.url}/", depth=2)
    site.put("/a", page("Gates", GATE), etag='"2b"')
    indexer.index(f"{site.url}/", depth=2)
    assert f"{site.url}/c" in indexer.paths()


def test_robots_noindex_and_copies_are_left_out_and_explained(indexer: Indexer, site: Site):
    copy_of = '<link rel="canonical" href="/a">'
    site.put("/robots.txt", "User-agent: *\nDisallow: /private\n", Content_Type="text/plain")
    site.put("/", page("Home", "Welcome.", "/private", "/hidden", "/copy", "/a", "/moved", "/x.png", "/none"))
    site.put("/private", page("Private", "No."))
    site.put("/hidden", page("Hidden", "No.", head='<meta name="robots" content="noindex">'))
    site.put("/copy", page("Copy", "The same.", head=copy_of))
    site.put("/a", page("Gates", GATE))
    site.redirect("/moved", "/a")
    job = indexer.index(f"{site.url}/")

    assert [f"{site.url}/", f"{site.url}/a"] == indexer.paths()
    rules = {"robots": 1, "noindex": 1, "canonical": 1, "redirect": 1, "media_type": 1, "gone": 1}
    assert rules == (job.result or {})["skipped_by"]
    assert "/private" not in site.paths()
    reason = indexer.app.documents.why(f"{site.url}/private")
    assert ("skipped", True) == (reason.verdict, "robots.txt" in reason.cause)
    assert "indexed" == indexer.app.documents.why(f"{site.url}/a#part").verdict


def test_other_hosts_are_left_out_unless_named(indexer: Indexer, site: Site):
    other = site.url.replace("127.0.0.1", "localhost")
    site.put("/", page("Home", "Welcome.", f"{other}/a"))
    site.put("/a", page("Gates", GATE))
    indexer.index(f"{site.url}/")
    assert [f"{site.url}/"] == indexer.paths()
    indexer.index(f"{site.url}/", hosts=[other.removeprefix("http://")])
    assert [f"{site.url}/", f"{other}/a"] == indexer.paths()


def test_depth_and_pages_are_limited(indexer: Indexer, site: Site):
    small_site(site)
    indexer.index(f"{site.url}/", depth=0)
    assert [f"{site.url}/"] == indexer.paths()
    job = indexer.index(f"{site.url}/", max_pages=2)
    assert 2 == len(indexer.paths())
    assert (job.result or {})["skipped_by"]["page_limit"] >= 1


def test_queries_of_one_page_are_limited(indexer: Indexer, site: Site):
    links = [f"/day?date={number}" for number in range(60)]
    site.put("/", page("Home", "Welcome.", *links, "/day?x=" + "1" * 400))
    for link in links:
        site.put(link, page("Day", f"Entry of {link}."))
    job = indexer.index(f"{site.url}/", depth=1)
    assert (51, 11) == (len(indexer.paths()), (job.result or {})["skipped_by"]["query"])


def test_pdf_text_and_markdown_are_read_by_their_type(indexer: Indexer, site: Site):
    site.put("/", page("Home", "Welcome.", "/notes", "/readme", "/list.json"))
    site.put("/notes", "Plain words about the weir.", Content_Type="text/plain; charset=utf-8")
    site.put("/readme", "# Title\n\nMarkdown about the sluice.", Content_Type="text/markdown")
    site.put("/list.json", '{"gate": "open"}', Content_Type="application/json")
    indexer.index(f"{site.url}/")
    types = {source.path[-5:]: source.file_type for source in indexer.app.documents.sources(limit=10)}
    assert {"notes": "txt", "eadme": "md", ".json": "json"} == {k: v for k, v in types.items() if v != "html"}


def test_a_page_in_another_encoding_is_read_by_its_label(indexer: Indexer, site: Site):
    body = page("Home", "Das Mühlrad dreht sich.").encode("iso-8859-1")
    site.put("/", body, Content_Type="text/html; charset=iso-8859-1")
    indexer.index(f"{site.url}/")
    assert "Mühlrad" in indexer.app.search("Mühlrad")[0].text


def test_a_sitemap_names_pages_without_a_link(indexer: Indexer, site: Site):
    site.put("/docs/", page("Home", "Welcome."))
    site.put("/docs/alone", page("Alone", "Nobody links to this page."))
    site.put("/sitemap.xml", f"<urlset><loc>{site.url}/docs/alone</loc><loc>{site.url}/x</loc></urlset>")
    indexer.index(f"{site.url}/docs/")
    assert [f"{site.url}/docs/", f"{site.url}/docs/alone"] == indexer.paths()


def test_sitemaps_that_name_themselves_are_read_once(indexer: Indexer, site: Site):
    site.put("/docs/", page("Home", "Welcome."))
    site.put("/docs/alone", page("Alone", "Nobody links to this page."))
    loop = "".join(f"<loc>{site.url}/{name}.xml</loc>" for name in ["sitemap", "other"] * 30 + ["last"])
    site.put("/sitemap.xml", f"<sitemapindex>{loop}</sitemapindex>")
    site.put("/other.xml", f"<sitemapindex>{loop}</sitemapindex>")
    site.put("/last.xml", f"<urlset><loc>{site.url}/docs/alone</loc></urlset>")
    indexer.index(f"{site.url}/docs/")
    assert [f"{site.url}/docs/", f"{site.url}/docs/alone"] == indexer.paths()


def test_a_robots_txt_without_an_end_forbids_everything(indexer: Indexer, site: Site):
    def endless(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        with suppress(OSError):
            while True:
                connection.sendall(b"User-agent: x\n" * 5_000)

    site.put("/docs/", page("Home", "Welcome."))
    site.pages["/robots.txt"] = Answer(send=endless)
    job = indexer.index(f"{site.url}/docs/")
    assert ("failed", []) == (job.status, indexer.paths())
    assert "robots.txt" in str(job.error_message)


def test_an_interrupted_crawl_asks_for_no_page_twice(tmp_path: Path, site: Site):
    small_site(site)
    settings = settings_of(tmp_path)
    pipeline = Pipeline(HashingEmbedder())
    with Penstock(settings=settings) as app:
        receipt = app.index(f"{site.url}/", depth=2)
        (claim,) = app.queue.claim(ClaimRequest("first", 1, timedelta(seconds=60)))
        context = Context(
            claim,
            report=lambda _: None,
            stop_requested=lambda: len(site.paths()) >= 3,
            settle=lambda settlement: app.queue.settle([settlement])[0],
        )
        jobs = LibraryJobs(app.documents.catalog, pipeline, fetched_files(settings), (), None)
        with pytest.raises(Cancelled):
            jobs.crawl(context)
        app.queue.settle([transitions.released(claim, "the worker ended")])
        with app.worker_thread():
            assert "done" == app.wait(receipt.job_id, timeout=WAIT_S).status
        assert 4 == len(Indexer(app).paths())
    pipeline.close()
    assert {"/": 1, "/a": 1, "/b": 1, "/c": 1} == Counter(site.paths())


@pytest.mark.long
def test_a_killed_crawl_is_continued_by_the_same_command(tmp_path: Path, site: Site):
    small_site(site)
    reached, go_on = threading.Event(), threading.Event()

    def stuck(_: socket.socket) -> None:
        reached.set()
        go_on.wait(60)

    site.pages["/b"] = Answer(send=stuck)
    variables = {"PENSTOCK_WEB_PRIVATE": "1", "PENSTOCK_WEB_DELAY_S": "0", "PENSTOCK_EMBEDDER": "hashing"}
    command = [sys.executable, "-m", "penstock", "--state", str(tmp_path / "state"), "index", f"{site.url}/"]
    first = subprocess.Popen(
        [*command, "--depth", "2"], env=os.environ | variables, stderr=subprocess.DEVNULL
    )
    assert reached.wait(60)
    kill_tree(first.pid)
    first.wait()
    small_site(site)
    go_on.set()
    subprocess.run([*command, "--depth", "2"], env=os.environ | variables, check=True, timeout=120)
    # The second command is a request of its own: it asks whether the pages are still the same.
    assert {"/": 1, "/a": 1, "/b": 2, "/c": 1} == Counter(site.paths(200))
    with Penstock(settings=settings_of(tmp_path)) as app:
        assert 4 == len(Indexer(app).paths())


def test_a_page_that_fails_is_a_failed_file_of_the_job(indexer: Indexer, site: Site):
    site.put("/", page("Home", "Welcome.", "/broken", "/a"))
    site.put("/a", page("Gates", GATE))
    site.pages["/broken"] = Answer(status=403)
    job = indexer.index(f"{site.url}/")
    assert ("failed", 1) == (job.status, job.children_failed)
    reason = indexer.app.documents.why(f"{site.url}/broken")
    assert ("failed", True) == (reason.verdict, "ERR_WEB_REFUSED" in reason.cause)
    assert f"{site.url}/a" in indexer.paths()


def test_a_start_page_that_is_missing_fails_the_job_and_removes_nothing(indexer: Indexer, site: Site):
    small_site(site)
    indexer.index(f"{site.url}/", depth=2)
    site.pages.clear()
    job = indexer.index(f"{site.url}/", depth=2)
    assert ("failed", "ERR_WEB_MISSING") == (job.status, job.error_code)
    assert 4 == len(indexer.paths())


def test_a_private_address_is_refused_by_default(tmp_path: Path, site: Site):
    site.put("/", page("Home", "Secret."))
    with Penstock(settings=settings_of(tmp_path, web_private=False)) as app:
        job = Indexer(app).index(f"{site.url}/")
        assert ("failed", "ERR_WEB_ADDRESS") == (job.status, job.error_code)
    assert [] == site.asked


def test_a_url_with_a_password_is_not_queued(indexer: Indexer):
    with pytest.raises(InvalidUrl):
        indexer.app.index("https://alice:hunter2@example.org/")
    assert [] == indexer.app.jobs()


def test_requests_to_one_host_keep_their_distance(tmp_path: Path, site: Site):
    small_site(site)
    with Penstock(settings=settings_of(tmp_path, web_delay_s=0.2)) as app:
        fetched = app.settings.state_dir / "web" / "hosts"
        Indexer(app).index(f"{site.url}/", depth=1)
        turns = [float(file.read_text()) for file in fetched.iterdir()]
    assert 1 == len(turns)


def test_removing_a_folder_of_pages_leaves_no_content_behind(indexer: Indexer, site: Site):
    small_site(site)
    indexer.index(f"{site.url}/", depth=2)
    web = indexer.app.settings.state_dir / "web"
    assert 8 == len([file for file in web.rglob("*") if file.is_file()])
    with indexer.app.worker_thread():
        removal = indexer.app.documents.removal(f"{site.url}/")
        indexer.app.wait(indexer.app.submit(**removal).job_id, timeout=WAIT_S)
        assert [] == indexer.paths()
        # The contents go after the job, with the other leftovers of the documents.
        until(lambda: not any(file.is_file() for file in web.rglob("*")))
