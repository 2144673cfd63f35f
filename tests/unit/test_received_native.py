"""The compiled properties of received messages: they read what is laid out, and leave the rest to Python."""

import gc
from typing import Any

import msgspec
import numpy as np
import pytest
from dejamq.native import COMPILED
from hypothesis import given
from hypothesis import strategies as st

if not COMPILED:
    pytest.skip("dejamq was installed without its compiled part", allow_module_level=True)

from dejamq.native import BodyProperty, IdProperty, Layout


class Batch(Layout):
    """As a pull's; what it says itself is what the slow way says."""


class Message(msgspec.Struct, gc=False):
    _batch: Any
    _index: Any

    @BodyProperty
    def body(self) -> bytes:
        """As it was sent."""
        return b"slow"

    @IdProperty
    def message_id(self) -> str:
        return "slow"


class Unlike:
    """Holds its batch in no slot."""

    body = Message.body

    def __init__(self, batch: Batch) -> None:
        self._batch, self._index = batch, 0


def column(*numbers: int) -> "np.ndarray[Any, np.dtype[np.int64]]":
    return np.array(numbers, np.int64)


def laid(
    data: bytes | memoryview = b"onetwo", starts: Any = (0, 3), ends: Any = (3, 6), properties_at: Any = None
) -> Batch:
    batch = Batch()
    batch.lay(data, column(*starts), column(*ends), column(*(ends if properties_at is None else properties_at)))
    return batch


@given(st.lists(st.binary(max_size=20), min_size=1), st.booleans())
def test_each_body_is_the_bytes_between_its_start_and_its_end(bodies: list[bytes], view: bool) -> None:
    data, ends = b"".join(bodies), np.cumsum([len(body) for body in bodies])
    starts = ends - [len(body) for body in bodies]
    batch = laid(memoryview(data) if view else data, starts, ends)
    read = [Message(batch, index).body for index in range(len(bodies))]
    assert read == bodies
    assert {type(body) for body in read} == {bytes}


OUTSIDE: dict[str, tuple[Any, Any]] = {
    "nothing is laid out": (Batch(), 0),
    "the index is behind the last": (laid(), 2),
    "the index is before the first": (laid(), -1),
    "the index is too large to count": (laid(), 1 << 80),
    "the index is none": (laid(), "0"),
    "the body begins before the bytes": (laid(starts=(-1, 3)), 0),
    "the body ends behind the bytes": (laid(ends=(7, 6)), 0),
    "the body ends before it begins": (laid(starts=(4, 3)), 0),
    "the batch is of another kind": (object(), 0),
}


@pytest.mark.parametrize("what", OUTSIDE)
def test_the_slow_way_is_asked_where(what: str) -> None:
    message = Message(*OUTSIDE[what])
    assert (message.body, message.message_id) == (b"slow", "slow")


ID = "7F000001" * 4
PROPERTIES = f"UNIQ_KEY\1{ID}\2TAGS\1a\2".encode()


def test_an_id_is_told_that_stands_first_among_the_properties() -> None:
    message = Message(laid(b"body" + PROPERTIES, (0,), (4,)), 0)
    assert (message.body, message.message_id) == (b"body", ID)


@pytest.mark.parametrize(
    "properties",
    [
        b"TAGS\1a\2" + PROPERTIES, PROPERTIES[:41], PROPERTIES[:41] + b"0\2", b"UNIQ_KEY\1" + b"Z" * 31 + b"\2",
        b"UNIQ_KEY\1" + b"Z" * 31 + b"\xc4\2", b"UNIQ_KEY\1" + b"Z" * 31 + b'"\2', b"",
        b"UNIQ_KEY\1" + b"Z" * 31 + b"\0\2",  # the size of the next record, of 128 KiB
    ],
)  # fmt: skip
def test_an_id_that_is_not_plainly_one_is_left_to_the_slow_way(properties: bytes) -> None:
    assert Message(laid(properties, (0,), (0,)), 0).message_id == "slow"


@pytest.mark.parametrize("at", [-1, 1, 1 << 40])
def test_properties_outside_of_the_bytes_are_left_to_the_slow_way(at: int) -> None:
    assert Message(laid(PROPERTIES[:42], (0,), (0,), (at,)), 0).message_id == "slow"


def test_an_object_that_holds_its_batch_in_no_slot_is_left_to_the_slow_way_and_the_next_message_is_not() -> None:
    batch = laid()
    assert [Unlike(batch).body, Message(batch, 1).body, Unlike(batch).body] == [b"slow", b"two", b"slow"]


def test_what_the_slow_way_raises_is_raised() -> None:
    def broken(_: Any) -> bytes:
        raise LookupError("no body")

    class Broken(Message):
        body = BodyProperty(broken)

    with pytest.raises(LookupError, match="no body"):
        _ = Broken(Batch(), 0).body


def test_columns_of_different_lengths_are_refused_and_leave_nothing_laid_out() -> None:
    for starts, ends, properties_at in (((0,), (), (3,)), ((0,), (3,), ()), ((), (3,), (3,))):
        batch = laid()
        with pytest.raises(ValueError, match="a start, an end and the place"):
            batch.lay(b"one", column(*starts), column(*ends), column(*properties_at))
        assert Message(batch, 0).body == b"slow"


def test_what_is_no_bytes_is_refused_and_leaves_nothing_laid_out() -> None:
    for number in range(4):
        batch, columns = laid(), [b"one", column(0), column(3), column(3)]
        arguments: list[Any] = [*columns[:number], "text", *columns[number + 1 :]]
        with pytest.raises(TypeError):
            batch.lay(*arguments)
        assert Message(batch, 0).body == b"slow"
    with pytest.raises(TypeError, match="three columns"):
        batch.lay(b"one")  # type: ignore[call-arg]  # what is tested


def test_the_bytes_are_kept_for_as_long_as_the_batch_and_let_go_with_it() -> None:
    data = bytearray(b"onetwo")
    batch = laid(memoryview(data))
    message = Message(batch, 1)
    del batch
    assert message.body == b"two"
    del message
    gc.collect()
    data += b"three"  # refused while anybody reads there


def test_the_property_itself_has_the_words_of_its_function() -> None:
    assert type(Message.body) is BodyProperty
    assert Message.body.__doc__ == "As it was sent."


def test_a_slot_of_another_type_is_left_to_the_slow_way() -> None:
    class Borrowed:
        """Its slots are of no use to it: they say where another type has its fields."""

        __slots__ = ()
        body = Message.body
        _batch, _index = vars(Message)["_batch"], vars(Message)["_index"]

    assert Borrowed().body == b"slow"


def test_a_property_that_was_never_made_has_no_value_and_no_words() -> None:
    for kind in (BodyProperty, IdProperty):
        unmade: Any = kind.__new__(kind)
        assert unmade.__doc__ is None
        with pytest.raises(TypeError, match="never made"):
            unmade.__get__(Message(laid(), 0))
