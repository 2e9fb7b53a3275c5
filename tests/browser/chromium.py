"""A headless Chromium, driven over its DevTools protocol: real layout, clicks and keys, and no driver."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WAIT_S = 180.0


def find_browser() -> str | None:
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


class Timeout(AssertionError):
    """A state that the page did not reach in time."""


class Navigated(Exception):
    """The page of an expression was left before the expression had a value."""


_NAVIGATED = "navigated or closed"


class Tab:
    """One page. Errors of its console, and exceptions, are collected in ``errors``."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self.errors: list[str] = []
        self.requests: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=WAIT_S))
            if message.get("id") == self._number:
                if _NAVIGATED in message.get("error", {}).get("message", ""):
                    raise Navigated(method)
                assert "error" not in message, (method, message["error"])
                return message["result"]
            self._heard(message)

    def _heard(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        kind = message.get("method")
        if kind == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif kind == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(one.get("value")) for one in params["args"]))
        elif kind == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif kind == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, (expression, found["exceptionDetails"])
        return found["result"].get("value")

    def _evaluate_if_loaded(self, expression: str) -> Any:
        """The value, or None where the page is left for another one meanwhile."""
        try:
            return self.evaluate(expression)
        except Navigated:
            return None

    def wait(self, expression: str, within: float = WAIT_S) -> Any:
        """Wait until an expression is true, and return its value."""
        deadline = time.monotonic() + within
        while not (found := self._evaluate_if_loaded(expression)):
            if time.monotonic() > deadline:
                shown = self.evaluate("document.body.innerText.slice(0, 3000)")
                raise Timeout(f"{expression}\n{self.errors}\n{shown}")
            time.sleep(0.02)
        return found

    def open(self, url: str) -> None:
        """Load an address anew, also one that differs only after its ``#``."""
        self.call("Page.navigate", url="about:blank")
        self.wait("location.href === 'about:blank'")
        self.call("Page.navigate", url=url)
        self.wait("location.href !== 'about:blank' && document.readyState === 'complete'")

    def text(self, selector: str = "main") -> str:
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def sees(self, words: str, selector: str = "body", within: float = WAIT_S) -> None:
        """Wait until an element has these words."""
        query, text = json.dumps(selector), json.dumps(words)
        self.wait(f"(document.querySelector({query})?.innerText ?? '').includes({text})", within)

    def click(self, selector: str, words: str = "") -> None:
        """Click the middle of the first element that matches and has these words, with a real mouse event."""
        query, text = json.dumps(selector), json.dumps(words)
        place = self.wait(
            f"(() => {{ const one = [...document.querySelectorAll({query})].find((each) =>"
            f" each.innerText?.includes({text}) || each.value === {text} || {text} === '');"
            " if (!one || one.disabled) return null; one.scrollIntoView({ block: 'center' });"
            " const box = one.getBoundingClientRect(); if (!box.width) return null;"
            " return { x: box.x + box.width / 2, y: box.y + box.height / 2 }; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)

    def point(self, x: float, y: float) -> None:
        """Move the mouse."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def type(self, selector: str, text: str) -> None:
        query = json.dumps(selector)
        found = f"(() => {{ const one = document.querySelector({query});"
        self.wait(f"{found} one?.focus(); one?.select?.(); return !!one }})()")
        self.call("Input.insertText", text=text)

    def press(self, *keys: str) -> None:
        for key in keys:
            code = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowDown": 40, "ArrowRight": 39, " ": 32}.get(
                key, 0
            )
            text = "\r" if key == "Enter" else key if len(key) == 1 else ""
            self.call(
                "Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, text=text
            )
            self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def resize(self, width: int, height: int = 1000, theme: str = "light") -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        # Without motion: a colour between two themes has a contrast of its own.
        media = {"prefers-color-scheme": theme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in media.items()]
        self.call("Emulation.setEmulatedMedia", features=features)

    def picture(self, path: Path, *, whole: bool = True) -> None:
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def browser(program: str) -> Iterator[Tab]:
    """Run a browser with one tab."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [
                program,
                "--headless=new",
                "--remote-debugging-port=0",
                f"--user-data-dir={folder}",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--no-first-run",
                "--hide-scrollbars",
                "--force-color-profile=srgb",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            port = _until(lambda: _port(Path(folder)), process)
            # No pings: their thread would draw from `random` during later tests, which Hypothesis refuses.
            with connect(f"ws://127.0.0.1:{port}{_tab(port)}", max_size=None, ping_interval=None) as socket:
                yield Tab(socket)
        finally:
            process.terminate()
            process.wait(WAIT_S)


def _port(folder: Path) -> str | None:
    file = folder / "DevToolsActivePort"
    lines = file.read_text().split("\n") if file.exists() else []
    return lines[0] if len(lines) > 1 else None


def _tab(port: str) -> str:
    from urllib.request import urlopen

    with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=WAIT_S) as answer:
        tabs = json.load(answer)
    address = next(str(one["webSocketDebuggerUrl"]) for one in tabs if one["type"] == "page")
    return address.removeprefix(f"ws://127.0.0.1:{port}")


def _until(read: Callable[[], str | None], process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + 4 * WAIT_S
    while (found := read()) is None:
        assert process.poll() is None, "the browser ended"
        assert time.monotonic() < deadline, "the browser did not start"
        time.sleep(0.02)
    return found
