"""Pure rules of web pages: addresses, URLs, robots.txt, lists of pages, and markup."""

from __future__ import annotations

import gzip
import ipaddress
import zlib

import pytest

from penstock.errors import InvalidUrl
from penstock.pipeline.web import fetch, robots, urls
from penstock.pipeline.web.robots import Robots
from penstock.pipeline.web.urls import read_article, read_links
from tests.web.conftest import page

PRIVATE = (
    "127.0.0.1 127.8.8.8 10.0.0.1 172.16.5.5 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 192.0.2.1 "
    "198.18.0.1 224.0.0.1 240.0.0.1 255.255.255.255 ::1 :: ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::127.0.0.1 "
    "2002:7f00:1:: 2002:a00:1::5 64:ff9b::7f00:1 64:ff9b:1::808:808 2001:0:7f00:1::1 fe80::1 fc00::1 "
    "fd12::9 fec0::1 ff02::1 2001:db8::1 ::ffff:0:7f00:1"
)
PUBLIC = "8.8.8.8 1.1.1.1 2606:4700::1111 64:ff9b::808:808 2002:808:808::1 ::ffff:8.8.8.8"


@pytest.mark.parametrize("address", PRIVATE.split())
def test_an_address_of_no_public_server_is_refused(address: str):
    assert not fetch.is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", PUBLIC.split())
def test_an_address_of_a_public_server_is_accepted(address: str):
    assert fetch.is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("HTTP://Docs.Example.org:80/a/../b//c#part", "http://docs.example.org/b/c"),
        ("https://example.org", "https://example.org/"),
        ("https://example.org:443/x/?utm_source=n&b=%7e1", "https://example.org/x/?b=~1"),
        ("https://example.org/%e4%b8%ad a", "https://example.org/%E4%B8%AD%20a"),
        ("http://[::1]:8080/x", "http://[::1]:8080/x"),
        ("https://bücher.example/ж", "https://xn--bcher-kva.example/%D0%B6"),
        ("https://example.org/a/./b/..", "https://example.org/a/"),
    ],
)
def test_each_page_has_one_url(given: str, expected: str):
    assert expected == urls.canonical(given)
    assert expected == urls.canonical(expected)


@pytest.mark.parametrize(
    "given",
    [
        "ftp://example.org/",
        "file:///etc/passwd",
        "http:///x",
        "http://a b/",
        "http://h:99999/",
        "gopher://h/",
        "http://[fe80::abcd]/",
        "http://[FEBF::1]:8080/",
        "http://[fe80::1%25eth0]/",
        "http://[2001:db8::1%25eth0]/",
        "http://[1::2::3]/",
        "http://a:b:c/",
        "http://[::ffff:1.2.3]/",
    ],
)
def test_anything_but_a_web_page_is_no_url(given: str):
    with pytest.raises(InvalidUrl):
        urls.canonical(given)


def test_a_password_in_a_url_is_refused_and_not_shown():
    with pytest.raises(InvalidUrl) as refused:
        urls.canonical("https://alice:hunter2@example.org/x?token=secret")
    assert "https://***@example.org/x?…" in refused.value.message
    assert "hunter2" not in refused.value.message


ROBOTS = """
User-agent: other
Disallow: /

User-agent: *
Disallow: /private
Allow: /private/open
Disallow: /*.pdf$
Crawl-delay: 2
Sitemap: https://example.org/map.xml
"""


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/", True),
        ("/private/x", False),
        ("/private/open/x", True),
        ("/a/b.pdf", False),
        ("/a/b.pdf?x", True),
    ],
)
def test_the_longest_rule_of_robots_decides(path: str, allowed: bool):
    rules = Robots(ROBOTS)
    assert allowed == rules.allows(f"https://example.org{path}")
    assert (2.0, ["https://example.org/map.xml"]) == (rules.delay_s, rules.sitemaps)


def test_a_group_for_penstock_replaces_the_general_one():
    rules = Robots(ROBOTS + "\nUser-agent: penstock\nDisallow: /no\n")
    assert rules.allows("https://example.org/private/x")
    assert not rules.allows("https://example.org/no")


def test_thousands_of_crawlers_share_thousands_of_rules_at_no_cost():
    names = "".join(f"User-agent: crawler{number}\n" for number in range(10_000))
    rules = Robots(f"{names}User-agent: Penstock\n" + "Allow: /yes\n" * 1_000 + "Disallow: /no\n" * 20_000)
    assert not rules.allows("https://example.org/no")
    assert rules.allows("https://example.org/yes")
    others = Robots(names + "Disallow: /\n" * 20_000)
    assert others.allows("https://example.org/no")


def test_a_rule_with_thousands_of_stars_is_compared_at_once():
    rules = Robots("User-agent: *\nDisallow: /" + "*a" * 20_000 + "b$")
    assert rules.allows("https://example.org/" + "a" * 1_900)


def test_a_sitemap_names_pages_and_an_index_names_sitemaps():
    pages = b"<urlset><url><loc> https://h.org/a?x=1&amp;y=2 </loc></url><url><loc>/b</loc></url></urlset>"
    index = b"<sitemapindex><sitemap><loc>https://h.org/s2.xml</loc></sitemap></sitemapindex>"
    at = "https://h.org/sitemap.xml"
    found = robots.Sitemap(["https://h.org/a?x=1&y=2", "https://h.org/b"], [])
    assert found == robots.read_sitemap(at, gzip.compress(pages))
    assert robots.Sitemap([], ["https://h.org/s2.xml"]) == robots.read_sitemap(at, index)


def inventory(*lines: str) -> bytes:
    head = b"# Sphinx inventory version 2\n# Project: Mill\n# Version: 1\n# zlib\n"
    return head + zlib.compress("\n".join(lines).encode())


def test_an_inventory_names_pages_with_their_titles():
    data = inventory(
        "mill.Gate py:class 1 api.html#$ -",
        "a long name std:label -1 guide.html#a-long-name A long name",
        "guide std:doc -1 guide.html The guide",
        "genindex std:label -1 genindex.html Index",
    )
    found = robots.read_inventory("https://h.org/docs/", data)
    assert {"https://h.org/docs/api.html": "", "https://h.org/docs/guide.html": "The guide"} == found


@pytest.mark.parametrize("data", [b"", b"# Sphinx inventory version 2\n", b"no inventory"])
def test_other_bytes_are_no_inventory(data: bytes):
    assert not robots.read_inventory("https://h.org/", data)


def test_a_packed_list_is_read_up_to_a_limit():
    bomb = b"# Sphinx inventory version 2\n#\n#\n#\n" + zlib.compress(b"a" * (20 << 20))
    assert {} == robots.read_inventory("https://h.org/", bomb)


def test_links_are_read_with_the_wishes_of_the_page():
    head = '<base href="/docs/"><link rel="canonical" href="a.html"><meta name="robots" content="NOINDEX">'
    markup = page("Mill", "Text.", "b.html#x", "b.html", "mailto:x@y", "../c", head=head)
    found = read_links("https://h.org/x", markup.encode())
    # The mark beside the heading leads to the page itself, which is another one because of its base.
    assert ("https://h.org/docs/b.html", "https://h.org/c", "https://h.org/docs/") == found.links
    assert ("https://h.org/docs/a.html", True, False) == (found.canonical, found.noindex, found.nofollow)


def test_an_article_is_without_navigation_and_knows_the_anchors():
    found = read_article(page("Mill", "About the gate.", "b.html").encode())
    assert {"Mill": "mill"} == found.anchors
    assert b"About the gate" in found.data
    assert b"<title>Mill" in found.data
    assert b"Navigation" not in found.data
    assert "¶".encode() not in found.data


def test_a_page_of_hostile_markup_has_no_links_and_stays_as_it_is():
    markup = b"<div>" * 200_000
    assert () == read_links("https://h.org/", markup).links
    assert markup == read_article(markup).data
