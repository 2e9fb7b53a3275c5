"""Hostile mails, archives, subtitles and pictures; see ``hostile_inputs``."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterable

_START = b"Subject: s\nFrom: a@b\nMIME-Version: 1.0\n"
_CUE = b"1\n00:00:01,000 --> 00:00:02,000\n"


def _file(suffix: str, make: Callable[[int], bytes]) -> Callable[[int], tuple[str, bytes]]:
    return lambda n: (f"input.{suffix}", make(n))


def _parts(part: bytes) -> bytes:
    return _START + b"Content-Type: multipart/mixed; boundary=xx\n\n" + part + b"--xx--\n"


def _numbered(part: bytes, n: int) -> bytes:
    return b"".join(part % number for number in range(n))


def _zip(names: Iterable[str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), b"x")
    return out.getvalue()


def _tar(names: Iterable[str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name))
    return out.getvalue()


def _frames(n: int) -> bytes:
    """A TIFF file whose pages share their pixels."""
    entries = ((0x100, 64), (0x101, 64), (0x102, 1), (0x106, 1), (0x111, 8), (0x117, 8))
    page = struct.pack("<H", len(entries)) + b"".join(
        struct.pack("<HHII", tag, 4, 1, v) for tag, v in entries
    )
    size = len(page) + 4
    places = [8 + number * size for number in range(1, n)] + [0]
    return b"II*\0" + struct.pack("<I", 8) + b"".join(page + struct.pack("<I", place) for place in places)


MAIL_FILES: dict[str, Callable[[int], tuple[str, bytes]]] = {
    "headers of a mail": _file("eml", lambda n: _START + _numbered(b"X-%d: y\n", n) + b"\nbody"),
    "open encoded words": _file(
        "eml", lambda n: _START.replace(b": s", b": " + b"=?utf-8?q?a" * n) + b"\nbody"
    ),
    "open quotes of a recipient": _file("eml", lambda n: _START + b"To: " + b'"a' * n + b"\n\nbody"),
    "names in names of a recipient": _file("eml", lambda n: _START + b"To: " + b"a." * n + b"\n\nbody"),
    "parameters of a type": _file(
        "eml", lambda n: _START + b"Content-Type: text/plain" + _numbered(b"; a*%d=b", n) + b"\n\nbody"
    ),
    "empty parameters": _file("eml", lambda n: _START + b"Content-Type: text/plain" + b";" * n + b"\n\nbody"),
    "parts of a name": _file(
        "eml",
        lambda n: _parts(
            b"--xx\nContent-Disposition: attachment" + _numbered(b"; filename*%d=b", n) + b"\n\nx\n"
        ),
    ),
    "parts of a mail": _file("eml", lambda n: _parts(b"--xx\n\nhello\n" * (n // 20))),
    "boundaries": _file("eml", lambda n: _parts(b"--xx\n" * n)),
    "folded lines": _file("eml", lambda n: _START + b" y\n" * n + b"\nbody"),
    "messages of a mailbox": _file("mbox", lambda n: b"From a 2020\nSubject: x\n\nb\n" * (n // 10)),
    "From lines": _file("mbox", lambda n: b"From a 2020\nSubject: x\n\n" + b"From 111\n" * n),
    "equal names of members": _file("zip", lambda n: _zip(["a.txt"] * (n // 4))),
    "files and folders of one name": _file("zip", lambda n: _zip(["a", "a/b"] * (n // 8))),
    "folders of a member": _file("zip", lambda n: _zip(["a/" * n + "b.txt"])),
    "members of a tape": _file("tar", lambda n: _tar(f"f{k}" for k in range(n // 4))),
    "streams in a compressed file": _file("txt.gz", lambda n: gzip.compress(b"", mtime=0) * n),
    "cues": _file("srt", lambda n: (_CUE + b"a\n\n") * n),
    "arrows of times": _file("srt", lambda n: b"00:00:01,000 --> " * n),
    "open tags of a cue": _file("srt", lambda n: _CUE + b"<i " * n + b"{\\" * n),
    "open voices": _file("vtt", lambda n: b"WEBVTT\n\n00:01.000 --> 00:02.000\n" + b"<v " * n),
    "pages of a picture": _file("tif", lambda n: _frames(n // 10)),
}
