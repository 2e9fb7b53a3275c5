"""``python -m bench.corrections``: how many misspelt words are corrected, and how many others are changed.

Words of one collection get a random wrong letter. Words of the other collection that this one lacks are real
words, and should stay as they are. Documents are counted by whole words, without the stems of an index.
"""

from __future__ import annotations

import argparse
import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from bench.judged_sets import CORPUS, unpack
from bench.stores import fresh_directory
from penstock.catalog.rules.words import is_correctable, is_likelier, neighbours
from penstock.pipeline.embed.static import count_tokens

WORDS = 800
LEAST = 3
"""Documents that a word must be in."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"
_ENDING = re.compile(r"(ing|ed|es|s|ly|ions?|ment|al)$")

Rule = Callable[[str, str], bool]
RULES: dict[str, Rule] = {
    "each unknown word": lambda _, __: True,
    "five letters or more": lambda word, _: len(word) >= 5,
    "same first letter": lambda word, instead: word[0] == instead[0],
    "fewer pieces": lambda word, instead: count_tokens(instead) < count_tokens(word),
    "the rule": lambda word, instead: is_likelier(instead, word, count_tokens),
}


def documents(folder: Path) -> Counter[str]:
    """Count the documents with each word."""
    counts: Counter[str] = Counter()
    for path in sorted(folder.iterdir()):
        counts.update(set(re.findall("[a-z]+", path.read_text(encoding="utf-8", errors="ignore").lower())))
    return counts


def misspelt(word: str, chance: random.Random) -> str:
    """A word with a letter left out, swapped with the next, replaced or added."""
    at, letter = chance.randrange(len(word)), chance.choice(LETTERS)
    return chance.choice(
        [
            word[:at] + word[at + 1 :],
            word[:at] + word[at : at + 2][::-1] + word[at + 2 :],
            word[:at] + letter + word[at + 1 :],
            word[:at] + letter + word[at:],
        ]
    )


def correction(word: str, counts: Counter[str]) -> str | None:
    """The most frequent word one edit away; None: there is none."""
    return max((near for near in neighbours(word) if near in counts), key=counts.__getitem__, default=None)


def stem(word: str) -> str:
    return _ENDING.sub("", word)


def measure(name: str, own: Counter[str], other: Counter[str], chance: random.Random) -> None:
    stems = set(map(stem, own))
    real = [
        word
        for word, count in sorted(other.items())
        if count >= LEAST and stem(word) not in stems and is_correctable(word)
    ]
    real = chance.sample(real, min(WORDS, len(real)))
    known = [word for word, count in sorted(own.items()) if count >= LEAST and is_correctable(word)]
    typos: list[tuple[str, str]] = []
    while len(typos) < WORDS:
        word = chance.choice(known)
        wrong = misspelt(word, chance)
        if wrong not in own and is_correctable(wrong):
            typos.append((wrong, word))
    for title, rule in RULES.items():
        right = sum(
            instead is not None and rule(wrong, instead) and stem(instead) == stem(word)
            for wrong, word in typos
            for instead in [correction(wrong, own)]
        )
        changed = sum(
            instead is not None and rule(word, instead)
            for word in real
            for instead in [correction(word, own)]
        )
        print(f"| {name} | {title} | {right / len(typos):.3f} | {changed / len(real):.3f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.corrections", description=__doc__)
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="folder with cacm and cranfield")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    print("| collection | rule | typos corrected rightly | other words changed |")
    print("|---|---|---:|---:|")
    with fresh_directory(options.dir) as below:
        names = ("cacm", "cranfield")
        counts = [documents(unpack(options.corpus / name, below / name)) for name in names]
    chance = random.Random(1)
    measure(names[0], counts[0], counts[1], chance)
    measure(names[1], counts[1], counts[0], chance)


if __name__ == "__main__":
    main()
