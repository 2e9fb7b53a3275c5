"""A value of some bytes in shared memory, with one writer and many readers."""

from __future__ import annotations

_TRIES = 1_000


class SharedRecord:
    """A sequence number, two words and some bytes. The number is odd while the rest is being written.

    A number that stays odd means that the writer died: there is nothing to read, and no handler was running.
    """

    def __init__(self, view: memoryview, at: int) -> None:
        self._words = view.cast("Q")
        self._times = view.cast("d")
        self._bytes = view
        self._at = at
        self._word = at // 8
        self._sequence = 0

    def write(self, number: int, time: float, body: bytes) -> None:
        words, word = self._words, self._word
        words[word] = self._sequence + 1
        words[word + 1] = number
        self._times[word + 2] = time
        words[word + 3] = len(body)
        self._bytes[self._at + 32 : self._at + 32 + len(body)] = body
        self._sequence += 2
        words[word] = self._sequence

    def read(self) -> tuple[int, float, bytes] | None:
        words, word = self._words, self._word
        for _ in range(_TRIES):
            before = words[word]
            number, time, length = words[word + 1], self._times[word + 2], words[word + 3]
            body = bytes(self._bytes[self._at + 32 : self._at + 32 + length])
            if before % 2 == 0 and words[word] == before:
                return number, time, body
        return None

    def release(self) -> None:
        self._words.release()
        self._times.release()
