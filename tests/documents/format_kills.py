"""A folder with a file of each format, indexed by workers that are killed at random: ``make formatkills``.

``python -m tests.documents.format_kills [--kills N] [--engine NAME] [--seed N]`` indexes the folder in peace,
then again and again in new state directories. In each round worker processes are killed one to three times,
one of them or all at once. In the end every file must be indexed or failed as ``EXPECTED`` says, with the
same chunks as in peace and no document twice; ``verify`` must find nothing; and a page may be recognized once
more for each kill.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from penstock import Penstock, config
from penstock.pipeline.extract.protocol import Content
from penstock.queue.job import Status
from tests.documents.conftest import QUEUES
from tests.documents.index_contents import IndexContents, read_index, settled
from tests.documents.killed_worker import recognitions
from tests.documents.worker_commands import kill_tree
from tests.pipeline.format_samples import SAMPLES
from tests.pipeline.sample_documents import LOCKED, pdf
from tests.pipeline.scanned_documents import mixed, picture, scan
from tests.servers.stores import given_back
from tests.worker.worker_processes import ROOT, children_of

EXPECTED = {"bad.pdf": "ERR_PARSE", "locked.pdf": "ERR_ENCRYPTED", "cut.docx": "ERR_PARSE"}
"""Codes of the files that fail. All others are indexed."""
MOST_IN_A_ROUND = 3
KILLED = frozenset(["ERR_WORKER_LOST", "ERR_PARSER_FAILED"])
"""Codes of a file whose process died more than once while it was read; see ``Round.finish``."""
PICTURES = ("jpg", "webp", "bmp", "gif", "tif")


def fill(folder: Path, *, small: bool = False) -> int:
    """Write a file of each format; returns the number of pages to recognize. ``small``: with few pictures."""
    folder.mkdir()
    samples = [one for one in SAMPLES if not small or not one.name.endswith(PICTURES)]
    for number, sample in enumerate(samples):
        (folder / f"{number:02}{sample.name}").write_bytes(sample.data)
    scanned = [picture(f"Page {number}", size=(240, 90)) for number in range(3 if small else 8)]
    (folder / "scan.pdf").write_bytes(scan(*scanned))
    (folder / "mixed.pdf").write_bytes(mixed(["A page with a layer", scanned[0]]))
    (folder / "long.pdf").write_bytes(pdf(*(f"Words of page {number}, water." for number in range(40))))
    (folder / "bad.pdf").write_bytes(b"%PDF-1.4 broken")
    (folder / "locked.pdf").write_bytes(pdf("secret", encrypt=LOCKED))
    (folder / "cut.docx").write_bytes(b"PK\x03\x04 cut")
    return len(scanned) + 1 + sum(map(_pictures_in, samples))


def _pictures_in(sample: Content) -> int:
    return {"tif": 2}.get(sample.name[-3:], int(sample.name.endswith(("png", *PICTURES))))


class Round:
    """One state directory, and the workers on it."""

    def __init__(self, place: Path, engine: str, folder: Path, chance: random.Random) -> None:
        place.mkdir()
        self._place, self._folder, self._chance = place, folder, chance
        self.settings = config.load(
            {},
            url=QUEUES[engine](place),
            state_dir=place / "state",
            embedder="hashing",
            sqlite_synchronous="NORMAL",
        )
        self.app = Penstock(settings=self.settings)
        self._job_id = self._asked()
        self.kills = self.retried = 0

    def _asked(self, *, retry_failed: bool = False) -> str:
        options = {"archives": True, "include_code": True, "retry_failed": retry_failed}
        return self.app.index(self._folder, **options).job_id  # type: ignore[arg-type]

    def _worker(self) -> subprocess.Popen[bytes]:
        values = msgspec.json.encode(config.portable_values(self.settings), enc_hook=str).decode()
        given = ["recognitions counted", values, self._job_id, "2"]
        command = [sys.executable, "-m", "tests.documents.killed_worker", *given]
        return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)

    def kill(self, times: int, usual: float) -> None:
        """Kill workers so many times, at moments within the usual time; fewer, if the job ends before."""
        while self.kills < times and not self.app.job(self._job_id).ended:
            with self._worker() as worker:
                while self.kills < times and worker.poll() is None:
                    with suppress(subprocess.TimeoutExpired):
                        worker.wait(self._chance.uniform(0.3, usual))
                        break
                    self.kills += 1
                    if self._chance.random() < 0.5 or not self._kill_one(worker.pid):
                        kill_tree(worker.pid)
                        break
                if worker.poll() is None and self.kills >= times:
                    worker.wait(300)

    def _kill_one(self, pid: int) -> bool:
        """Kill one child of the worker; its supervisor goes on. False: there is none yet."""
        own = [each for each in children_of(pid) if _parent(each) == pid]
        with suppress(ProcessLookupError, IndexError):
            os.kill(self._chance.choice(own), signal.SIGKILL)
            return True
        return False

    def finish(self) -> None:
        """Run a worker to the end of the job.

        A file whose process died twice while it was read is failed, and read again only on request.
        """
        self._run_to_the_end()
        if any(one.code in KILLED for one in self.app.documents.failures(self._folder)):
            self.retried = len(self.app.jobs(status=Status.FAILED, item_type="file", limit=1000))
            self._job_id = self._asked(retry_failed=True)
            self._run_to_the_end()

    def _run_to_the_end(self) -> None:
        with self._worker() as worker:
            assert 0 == worker.wait(300)
        assert self.app.job(self._job_id).ended

    def contents(self) -> IndexContents:
        settled(self.app)
        return read_index(self.app.documents.catalog, self._folder)

    def troubles(self, pages: int) -> list[str]:
        """What is not as expected. ``pages``: to be recognized."""
        found = [f"verify: {one}" for one in self.app.verifier.differences()]
        for path in sorted(self._folder.iterdir()):
            reason = self.app.documents.why(str(path))
            code = reason.cause.partition(":")[0] if reason.verdict == "failed" else reason.verdict
            if code != EXPECTED.get(path.name, "indexed"):
                found.append(f"{path.name}: {reason.verdict}, {reason.cause}")
        sources = [source.path for source in self.app.documents.sources(limit=1000)]
        found += [f"twice: {path}" for path in _repeated(sources)]
        read = len(recognitions(self.settings.state_dir))
        if not pages <= read <= pages + self.kills:
            found.append(f"{read} recognitions of {pages} pages after {self.kills} kills")
        return found

    def close(self) -> None:
        self.app.close()
        given_back(self._place)


def _parent(pid: int) -> int | None:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None


def _repeated(paths: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    return [path for path in paths if path in seen or seen.add(path)]  # type: ignore[func-returns-value]


def run(place: Path, engine: str, kills: int, chance: random.Random) -> list[str]:
    """Kill workers so many times in all; returns what was not as expected."""
    pages = fill(place / "files")
    calm = Round(place / "calm", engine, place / "files", chance)
    began = time.monotonic()
    calm.finish()
    usual = time.monotonic() - began
    expected, troubles = calm.contents(), calm.troubles(pages)
    calm.close()
    killed = rounds = 0
    while killed < kills and not troubles:
        rounds += 1
        one = Round(place / f"round-{rounds}", engine, place / "files", chance)
        one.kill(min(kills - killed, chance.randint(1, MOST_IN_A_ROUND)), usual)
        one.finish()
        troubles = one.troubles(pages)
        if one.contents() != expected:
            troubles.append("the chunks are not those of an index in peace")
        killed += one.kills
        print(f"round {rounds}: {one.kills} kills, {one.retried} files retried, {killed} of {kills}")
        one.close()
    return troubles


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50, help="how many times worker processes are killed")
    parser.add_argument("--engine", choices=sorted(QUEUES), default="sqlite", help="the store")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="for the same run again")
    given = parser.parse_args()
    print(f"seed {given.seed}")
    with tempfile.TemporaryDirectory(prefix="penstock-formatkills-") as place:
        troubles = run(Path(place), given.engine, given.kills, random.Random(given.seed))
    print("\n".join(troubles) or "As expected.")
    sys.exit(1 if troubles else 0)


if __name__ == "__main__":
    main()
