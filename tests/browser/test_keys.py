"""The dashboard of a server with keys: signing in, and what each key may see and do."""

from __future__ import annotations

from tests.browser.chromium import Tab
from tests.http.live_server import LiveServer


def test_a_key_becomes_a_session_and_hides_what_it_may_not_do(tab: Tab, server: LiveServer):
    server.make_key("owner", "admin")
    key = server.make_key("reader", "read", "acme")
    tab.open(server.url)
    tab.sees("This server needs a key", "dialog")
    tab.type("dialog [name=key]", "wrong")
    tab.press("Enter")
    tab.sees("(ERR_", "dialog .note")
    tab.type("dialog [name=key]", key)
    tab.press("Enter")
    tab.sees("All done.", "main")
    assert "" == tab.text(".say .acts")
    assert not tab.evaluate("document.cookie + JSON.stringify(localStorage)").count(key)
    assert key not in "".join(tab.requests)
    tab.click(".top button", "Sign out")
    tab.sees("This server needs a key", "dialog")
    # Requests without a session are logged by the browser itself.
    tab.errors[:] = [one for one in tab.errors if "401" not in one]
