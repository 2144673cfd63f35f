"""Fields of protobuf messages read by hand: what is malformed is told, what is unknown is passed over."""

import numpy as np
import pytest
from dejamq_proto.fields import BadFrame, chunk, fields_of, integer, packed, text_of, varint, words
from dejamq_proto.wire import PullAnswer


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (b"\x0a\x05abcd", "field 1 ends beyond the frame"),
        (b"\x0a", "a number does not end"),
        (b"\x08\xff\xff", "a number does not end"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "a number does not end"),
        (b"\x0b\x0c", "wire type 3 is unknown"),
    ],
)
def test_a_malformed_frame_is_refused_with_its_fault(frame: bytes, says: str) -> None:
    with pytest.raises(BadFrame, match=says):
        list(fields_of(integer(5, 7) + frame))


def test_fields_of_fixed_width_are_passed_over() -> None:
    frame = b"\x0d\1\2\3\4" + integer(2, 300) + b"\x19" + bytes(8) + chunk(3, b"x" * 200)
    assert [(number, value if isinstance(value, int) else bytes(value)) for number, value in fields_of(frame)] == [
        (2, 300),
        (3, b"x" * 200),
    ]


@pytest.mark.parametrize("value", [1, 127, 128, 1 << 40, (1 << 63) - 1, -1, -(1 << 63)])
def test_integers_are_read_as_they_were_written(value: int) -> None:
    assert list(fields_of(integer(9, value))) == [(9, value)]


def test_nothing_is_written_for_a_default() -> None:
    assert integer(1, 0) == chunk(1, b"") == packed(1, [], "<u4") == b""


def test_texts_and_arrays_that_are_none_are_refused() -> None:
    with pytest.raises(BadFrame, match="not UTF-8"):
        text_of(memoryview(b"\xff"))
    with pytest.raises(BadFrame, match="5 bytes are no array of <u4"):
        words(memoryview(b"12345"), "<u4")
    with pytest.raises(BadFrame, match="not UTF-8"):
        PullAnswer.decode(chunk(3, b"\xc3"))
    ((_, value),) = fields_of(packed(8, np.array([1, 1 << 31], "<u4"), "<u4"))
    assert isinstance(value, memoryview)
    assert words(value, "<u4").tolist() == [1, 1 << 31]
    assert varint(300) == b"\xac\x02"
