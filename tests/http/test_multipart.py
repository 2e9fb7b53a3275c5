"""Multipart bodies, cut at every place."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidRequest
from penstock.http.uploads import (
    MOST_PARTS,
    BodyEnds,
    MultipartReader,
    PartBegins,
    PartData,
    boundary_of,
)

BODY = (
    b"before the first part\r\n--cut\r\n"
    b'Content-Disposition: form-data; name="collection"\r\n\r\ndocs\r\n'
    b"--cut\r\nContent-Type: text/plain\r\n"
    b'content-disposition: form-data; name="file"; filename="a \\"b\\".md"\r\n\r\n'
    b"--cu\r\n--cut is not a line \r\n\r\n--cut--\r\nafter"
).replace(b"--cut is", b"-- cut is")


def read(*pieces: bytes) -> list[tuple[PartBegins, bytes]]:
    reader = MultipartReader(b"cut")
    found: list[tuple[PartBegins, bytes]] = []
    ends = 0
    for piece in pieces:
        for event in reader.feed(piece):
            if isinstance(event, PartBegins):
                found.append((event, b""))
            elif isinstance(event, PartData):
                found[-1] = (found[-1][0], found[-1][1] + event.data)
            else:
                assert isinstance(event, BodyEnds)
                ends += 1
    assert (1, True) == (ends, reader.complete)
    return found


def test_a_body_cut_anywhere_has_the_same_parts():
    expected = [
        (PartBegins("collection", None), b"docs"),
        (PartBegins("file", 'a "b".md'), b"--cu\r\n-- cut is not a line \r\n"),
    ]

    assert expected == read(BODY)
    assert expected == read(*(BODY[at : at + 1] for at in range(len(BODY))))
    for at in range(len(BODY)):
        assert expected == read(BODY[:at], BODY[at:])


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        ("multipart/form-data; boundary=cut", b"cut"),
        ('Multipart/Form-Data; charset=utf-8; boundary="a b"', b"a b"),
        ("application/json", None),
    ],
)
def test_the_boundary_of_a_content_type(content_type: str, boundary: bytes | None):
    assert boundary == boundary_of(content_type)


@pytest.mark.parametrize(
    "body",
    [
        b"--cutter\r\n",
        b"--cut\r\n" + b"a" * 9000,
        b"--cut\r\nContent-Type: text/plain\r\n\r\n",
        b'--cut\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n' * (MOST_PARTS + 1),
    ],
)
def test_a_broken_body_is_refused(body: bytes):
    with pytest.raises(InvalidRequest):
        list(MultipartReader(b"cut").feed(body))


def test_memory_does_not_grow_with_a_part():
    reader = MultipartReader(b"cut")
    list(reader.feed(b'--cut\r\nContent-Disposition: form-data; name="file"\r\n\r\n'))
    for _ in range(100):
        list(reader.feed(b"\r\n--cu" * 1000))
    assert len(reader._buffer) < 100
