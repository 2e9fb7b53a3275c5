"""Normal forms equal those of unicodedata, and the set of marks is complete."""

from __future__ import annotations

import random
import sys
import unicodedata

import pytest

from penstock.strict_json import Form, marks, normalized

LETTERS = [*"abéṩ각가ẛ\u1100\u1161\u11a8ﷺ ", "\uff76"]


def test_every_character_that_becomes_a_mark_is_known():
    every = (chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)
    combining = {char for char in every if unicodedata.combining(unicodedata.normalize("NFKD", char)[0])}

    assert marks() == combining


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_long_runs_of_marks_come_out_as_the_library_has_them(form: Form):
    rng = random.Random(form)
    known = sorted(marks())
    for length in (0, 1, 63, 64, 65, 200) * 20:
        run = rng.choices([*known, "\uff9e", "\u0f73"], k=length)
        text = "".join(
            [*rng.choices([*LETTERS, *known], k=70), *run, *rng.choices(LETTERS, k=rng.randrange(70))]
        )

        assert unicodedata.normalize(form, text) == normalized(form, text)
