"""The second OCR engine, an extra. `make rapidocr` installs and tests it."""

import os
import socket
import subprocess
import sys

import numpy as np
import pytest

from penstock.pipeline.ocr import engines
from penstock.pipeline.ocr.engines import open_engine
from penstock.pipeline.ocr.protocol import OcrOptions
from tests.pipeline.pictures import drawn, page, recall

installed = pytest.mark.skipif(
    engines.rapidocr_version() is None, reason="the extra rapidocr is not installed: make rapidocr"
)


@pytest.mark.parametrize(("languages", "known"), [("eng", True), ("eng+deu+jpn", True), ("eng+rus", False)])
def test_the_engine_is_asked_only_for_languages_it_knows(monkeypatch, languages, known):
    monkeypatch.setattr(engines, "rapidocr_version", lambda: "3.10.0")
    assert engines.rapidocr_usable(languages) is known


def test_without_the_extra_it_is_not_asked(monkeypatch):
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    assert engines.rapidocr_version() is None
    assert not engines.rapidocr_usable("eng")


def boxes(*places):
    return [engines._Box(text, 0.9, left, top, top + 20) for text, left, top in places]


def test_texts_beside_each_other_form_a_line_and_gaps_a_paragraph():
    found = boxes(
        ("9.50", 300, 42), ("Flour", 10, 40), ("TOTAL", 10, 66), ("Thanks", 10, 140), ("9.50", 300, 64)
    )
    assert engines._in_lines(found) == "Flour 9.50\nTOTAL 9.50\n\nThanks"


@installed
def test_text_is_read_without_the_network(monkeypatch):
    def refused(*args, **kwargs):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    found = engines.RapidEngine().recognize(np.asarray(drawn()))
    assert recall(found.text) >= 0.9
    assert found.confidence is not None
    assert found.confidence > 80


@installed
def test_the_library_reports_nothing_and_starts_no_thread(tmp_path):
    # onnxruntime keeps its reports below the home directory until a thread has sent them.
    code = (
        "import os, numpy as np\n"
        "from penstock.pipeline.ocr.engines import RapidEngine\n"
        "RapidEngine().recognize(np.full((100, 100), 255, np.uint8))\n"
        "print(len(os.listdir('/proc/self/task')))\n"
    )
    environ = {"HOME": str(tmp_path), "OPENBLAS_NUM_THREADS": "1", "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True, env=environ
    )
    assert (done.stdout, done.stderr) == ("1\n", "")
    assert list(tmp_path.rglob("*")) == []


@installed
def test_a_poor_reading_is_replaced_by_the_better_one():
    # With the highest threshold every page is read by both.
    found = open_engine(OcrOptions(min_confidence=100)).recognize(page(drawn()))
    assert found.engine == "rapidocr"
    assert recall(found.text) >= 0.9


@installed
def test_an_empty_page_stays_empty():
    assert engines.RapidEngine().recognize(np.full((300, 300), 255, np.uint8)).text == ""
