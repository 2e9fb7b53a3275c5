"""Webhooks: the end of a job, sent to the example receiver."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from examples import webhook_receiver
from penstock import Penstock, clock, config
from penstock.errors import InvalidUrl, WebhookUnsigned
from penstock.handlers.webhooks import WebhookOptions, read_secret, signature
from penstock.queue.job import Held, Status
from tests.handlers.conftest import hooks_of, run_all

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Inbox:
    """A running example receiver and its events."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.answers: list[tuple[int, str]] = []
        self.answer: tuple[int, str] | None = None
        self.port = 0
        self.clock = lambda: clock.now().timestamp()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks?from=mill"

    @contextmanager
    def open(self, secret: str = SECRET) -> Iterator[None]:
        receiver = webhook_receiver.Receiver(secret, self.events.append, lambda: self.clock())
        receive = receiver.receive

        def recorded(headers: Any, body: bytes) -> tuple[int, str]:
            self.answers.append(self.answer or receive(headers, body))
            return self.answers[-1]

        receiver.receive = recorded  # type: ignore[method-assign]
        with webhook_receiver.server(receiver, self.port) as server:
            self.port = int(server.server_address[1])
            thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
            thread.start()
            try:
                yield
            finally:
                server.shutdown()
                thread.join()


INTERFACES = ("http://[fe80::abcd]/", "http://[fe80::1%25eth0]/", "http://[2001:db8::1%25eth0]/")
"""Addresses that only a machine with an interface of that name could reach."""


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@contextmanager
def opened(tmp_path: Path, **given: Any) -> Iterator[Penstock]:
    options = {"url": "memory://", "state_dir": tmp_path, "webhook_key": SECRET, "webhook_private": True}
    with Penstock(settings=config.load({}, **(options | given))) as app:
        app.function("mill")(lambda payload: payload.get("flour"))
        yield app


def test_the_example_receiver_gets_a_signed_event(tmp_path: Path, inbox: Inbox):
    with opened(tmp_path) as app, inbox.open():
        receipt = app.call("mill", {"flour": [1, 2]}, webhook=inbox.url)
        run_all(app)
        (hook,) = hooks_of(app, receipt.job_id)
        job = app.job(receipt.job_id)
    assert (Status.DONE, {"status": 200}) == (hook.status, hook.result)
    (event,) = inbox.events
    assert ("job.done", receipt.job_id, [1, 2]) == (
        event["type"],
        event["data"]["job_id"],
        event["data"]["result"],
    )
    stored = json.dumps([str(job), str(hook)])
    assert SECRET not in stored
    assert SECRET.removeprefix("whsec_") not in stored


def test_a_silent_receiver_holds_up_no_call_of_a_worker_thread(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as receiver, opened(tmp_path) as app:
        receiver.settimeout(60)
        first = app.call("mill", {}, webhook=f"http://127.0.0.1:{receiver.getsockname()[1]}/")
        with app.worker_thread():
            taken, _ = receiver.accept()
            with taken:
                second = app.call("mill", {"flour": 1})
                assert 1 == app.wait(second.job_id, timeout=10).result
                taken.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
                (hook,) = hooks_of(app, first.job_id)
                assert {"status": 204} == app.wait(hook.queue_id, timeout=60).result


def test_a_large_result_is_left_out(tmp_path: Path, inbox: Inbox):
    with opened(tmp_path) as app, inbox.open():
        app.call("mill", {"flour": "x" * 20_000}, webhook=inbox.url)
        run_all(app)
    (event,) = inbox.events
    assert (None, 20_002) == (event["data"]["result"], event["data"]["result_bytes"])


def test_a_wrong_signature_is_refused_and_sent_again(tmp_path: Path, inbox: Inbox):
    with opened(tmp_path) as app, inbox.open(secret="whsec_" + "A" * 32):
        receipt = app.call("mill", {}, webhook=inbox.url)
        run_all(app)
        (hook,) = hooks_of(app, receipt.job_id)
    assert [(401, "the signature is wrong")] == inbox.answers
    assert (Held.TIME, 1, "ERR_WEBHOOK_FAILED") == (hook.held, hook.retry_count, hook.error_code)
    assert "?from" not in str(hook.error_message), "a query may hold a token"


def test_an_old_timestamp_is_refused(tmp_path: Path, inbox: Inbox):
    inbox.clock = lambda: clock.now().timestamp() + 301
    with opened(tmp_path) as app, inbox.open():
        app.call("mill", {}, webhook=inbox.url)
        run_all(app)
    assert [(401, "the timestamp is missing, or too old")] == inbox.answers
    assert [] == inbox.events


def test_a_receiver_that_is_down_for_an_hour_gets_the_event(
    tmp_path: Path, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
):
    """The clock is moved to the time of each attempt. No retry is spent while nothing answers."""
    start, ahead, attempts = clock.now(), timedelta(0), 0
    really = clock.now
    monkeypatch.setattr(clock, "now", lambda: really() + ahead)
    with opened(tmp_path) as app:
        with inbox.open():
            pass  # the port is free again
        receipt = app.call("mill", {}, webhook=inbox.url)
        while clock.now() < start + timedelta(hours=1):
            run_all(app)
            (hook,) = hooks_of(app, receipt.job_id)
            assert (Held.TIME, 0, "ERR_SERVICE_DOWN") == (hook.held, hook.retry_count, hook.error_code)
            assert hook.run_at is not None
            ahead += max(hook.run_at - clock.now(), timedelta(minutes=5))
            attempts += 1
        with inbox.open():
            run_all(app)
        (hook,) = hooks_of(app, receipt.job_id)
    assert 12 == attempts
    assert [(200, "ok")] == inbox.answers, "signed with the time of the attempt"
    assert Status.DONE is hook.status


def test_a_receiver_that_never_answers_is_given_up(
    tmp_path: Path, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
):
    really = clock.now
    with inbox.open():
        pass
    with opened(tmp_path) as app:
        receipt = app.call("mill", {}, webhook=inbox.url)
        run_all(app)
        monkeypatch.setattr(clock, "now", lambda: really() + timedelta(days=4))
        run_all(app)
        (hook,) = hooks_of(app, receipt.job_id)
    assert (Status.FAILED, "ERR_WEBHOOK_GONE") == (hook.status, hook.error_code)


def test_a_delivery_that_comes_twice_is_one_event(inbox: Inbox):
    receiver = webhook_receiver.Receiver(SECRET, inbox.events.append, lambda: 1000.0)
    headers = {"webhook-id": "a.1", "webhook-timestamp": "1000"}
    headers["webhook-signature"] = "v1,x " + signature(read_secret(SECRET), "a.1", 1000, b"{}")
    assert [(200, "ok")] * 2 == [receiver.receive(headers, b"{}") for _ in range(2)]
    assert [{}] == inbox.events
    assert 401 == receiver.receive(headers, b"{} ")[0]


def test_the_signature_is_that_of_standard_webhooks():
    """The example of the specification."""
    found = signature(
        read_secret(SECRET), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
    )
    assert "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" == found


def test_private_addresses_are_refused_unless_allowed(tmp_path: Path, inbox: Inbox):
    with opened(tmp_path, webhook_private=False) as app, inbox.open():
        urls = [inbox.url, inbox.url.replace("127.0.0.1", "localhost"), "http://[::1]:1/", "http://10.0.0.1/"]
        urls += ["http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[fc00::abcd]/"]
        jobs = [app.call("mill", {}, webhook=url).job_id for url in urls]
        run_all(app)
        found = [(hook.status, hook.error_code) for job in jobs for hook in hooks_of(app, job)]
    assert [(Status.FAILED, "ERR_WEBHOOK_ADDRESS")] * 7 == found
    assert [] == inbox.answers


def test_a_receiver_is_reached_by_an_address_whose_end_looks_like_a_port(tmp_path: Path, inbox: Inbox):
    with opened(tmp_path) as app, inbox.open():
        receipt = app.call("mill", {}, webhook=inbox.url.replace("127.0.0.1", "[::ffff:127.0.0.1]"))
        run_all(app)
        (hook,) = hooks_of(app, receipt.job_id)

    assert (Status.DONE, {"status": 200}) == (hook.status, hook.result)


def test_a_webhook_needs_a_secret_and_a_url(tmp_path: Path):
    with opened(tmp_path, webhook_key=None) as app:
        with pytest.raises(WebhookUnsigned, match="no secret"):
            app.call("mill", {}, webhook="https://example.org/")
        for url in (
            "ftp://example.org/",
            "https://me:pw@example.org/",
            "https://example.org/ö",
            "mill",
            "",
            *INTERFACES,
        ):
            with pytest.raises(InvalidUrl):
                app.submit(item_type="content", op="ingest", payload={"content": "a"}, webhook=url)
        assert [] == app.jobs()


def test_the_secret_may_be_in_a_file(tmp_path: Path, inbox: Inbox, caplog: pytest.LogCaptureFixture):
    place = tmp_path / "secret"
    place.write_text(f"{SECRET}\n")
    caplog.set_level(logging.DEBUG)
    with opened(tmp_path, webhook_key=None, webhook_key_file=str(place)) as app, inbox.open():
        app.call("mill", {}, webhook=inbox.url)
        run_all(app)
        place.write_text("short")
        receipt = app.call("mill", {}, webhook=inbox.url)
        run_all(app)
        (hook,) = hooks_of(app, receipt.job_id)
    assert [(200, "ok")] == inbox.answers
    assert (Status.FAILED, "ERR_WEBHOOK_KEY") == (hook.status, hook.error_code)
    assert SECRET not in caplog.text
    assert "short" not in caplog.text


@pytest.mark.parametrize("text", ["", "short", "whsec_!!!", "whsec_YWJj"])
def test_a_weak_secret_is_not_used(text: str):
    with pytest.raises(WebhookUnsigned) as refused:
        WebhookOptions(secret=text).key()
    assert not text or text not in str(refused.value)


def test_a_hook_reads_no_job_of_another_tenant(tmp_path: Path, inbox: Inbox):
    """Somebody names the function of webhooks, and the job of another tenant, in a request."""
    with opened(tmp_path) as app, inbox.open():
        secret = app.call("mill", {"flour": "secret"}, tenant_id="other")
        receipt = app.submit(
            item_type="function",
            op="run",
            payload={"function_name": "penstock.webhook", "payload": {"url": inbox.url}},
            after=[secret.job_id],
        )
        run_all(app)
        job = app.job(receipt.job_id)
    assert (Status.FAILED, "ERR_ENDED_JOB_GONE", []) == (job.status, job.error_code, inbox.answers)


@pytest.mark.parametrize(("status", "code"), [(410, "ERR_WEBHOOK_GONE"), (302, "ERR_WEBHOOK_FAILED")])
def test_a_receiver_may_end_webhooks_and_not_redirect_them(
    tmp_path: Path, inbox: Inbox, status: int, code: str
):
    inbox.answer = (status, "")
    with opened(tmp_path) as app, inbox.open():
        receipt = app.call("mill", {}, webhook=inbox.url)
        run_all(app)
        (hook,) = hooks_of(app, receipt.job_id)
    assert (code, status == 410) == (hook.error_code, hook.ended)
    assert 1 == len(inbox.answers)
