"""A deleted tenant leaves nothing in Redis either: its RAGs' hashes and dead letters go."""

from __future__ import annotations

from penstock.queue.job import Status
from tests.redis_contract.conftest import QUEUE, WAIT_S, Town

SECRET = "zebraxylo"


def give_to_tenant(town: Town, rag_id: str, tenant_id: str) -> None:
    written = town.config.read_text()
    changed = written.replace(f"{rag_id}: {{", f"{rag_id}: {{tenant: {tenant_id}, ")
    town.config.write_text(changed)


def everything(town: Town) -> str:
    """All that the server keeps, as text."""
    found = []
    for key in town.redis.scan_iter("*"):
        read = {"hash": town.redis.hgetall, "string": town.redis.get, "set": town.redis.smembers}
        kind = town.redis.type(key)
        value = town.redis.lrange(key, 0, -1) if kind == "list" else read.get(kind, lambda _: "")(key)
        found.append(f"{key} {value}")
    return "\n".join(found)


def delete(town: Town, tenant_id: str) -> None:
    receipt = town.app.submit(
        item_type="delete_tenant", op="delete", payload={"tenant_id_to_delete": tenant_id}
    )
    with town.app.worker_thread():
        assert Status.DONE is town.app.wait(receipt.job_id, timeout=WAIT_S).status


def live_a_life(town: Town) -> None:
    """One message that is done, one that fails, one that is refused, one too long, one still waiting."""
    done = town.message(town.put(f"{SECRET}.txt", "words"), job_id=f"{SECRET}-done")
    failed = town.message(town.put(f"{SECRET}.pdf", b"no pdf"), job_id=f"{SECRET}-failed", max_retries=0)
    refused = town.message(f"/nowhere/{SECRET}.txt", job_id=f"{SECRET}-refused")
    for message in (done, failed, refused):
        town.push(message)
    town.push(SECRET * 1_000_000, f"{QUEUE}:policies_rag")
    town.settle(town.gateway(), done["job_id"], failed["job_id"], refused["job_id"])


def test_hashes_and_dead_letters_of_a_deleted_tenant_are_erased(town: Town):
    give_to_tenant(town, "policies_rag", "acme")
    live_a_life(town)
    kept = town.message("/nowhere/kept.txt", "faq_rag")
    town.done(kept)
    assert 4 == len(town.letters())
    waiting = town.message(town.put(f"{SECRET}-late.txt", "words"), job_id=f"{SECRET}-waiting")
    town.push(waiting)
    gateway = town.gateway()
    gateway.run_round()
    town.app.pause(tenant_id="acme")

    delete(town, "acme")
    for _ in range(3):
        gateway._next_take_over = gateway._next_adoption = 0.0
        gateway.run_round()

    assert SECRET not in everything(town)
    assert ["/nowhere/kept.txt"] == [letter["message"]["source_path"] for letter in town.letters()]
    assert "failed" == town.hash(kept["job_id"])["status"]


def test_messages_after_the_delete_stay(town: Town):
    give_to_tenant(town, "policies_rag", "acme")
    delete(town, "acme")
    later = town.message("/nowhere/later.txt")
    done = town.message(town.put("later.txt", "words"))
    town.push(later)
    town.push(done)
    gateway = town.gateway()
    town.settle(gateway, later["job_id"], done["job_id"])

    gateway._next_take_over = gateway._next_adoption = 0.0
    gateway.run_round()

    assert ["failed", "done"] == [town.hash(each["job_id"])["status"] for each in (later, done)]
    assert 1 == len(town.letters())
