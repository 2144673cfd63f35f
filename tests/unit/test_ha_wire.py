"""The hand-written frame of replication is the generated class's bytes."""

import pytest
from dejamq_proto import ha_pb2
from dejamq_proto.wire.fields import BadMessage
from dejamq_proto.wire.replication import LogSlice


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 500])
def test_a_slice_is_what_the_generated_class_writes_and_reads(data: bytes) -> None:
    sent = LogSlice(
        log_offset=1 << 40, master_end=(1 << 40) + 7, master_timestamp_ms=1_700_000_000_000, data=data,
        deleted_topics=["orders", "größe"],
    )  # fmt: skip
    frame = sent.encode()
    generated = ha_pb2.LogSlice.FromString(frame)
    assert generated.SerializeToString() == frame
    assert generated.data == data
    back = LogSlice.decode(frame)
    assert (back.log_offset, back.master_end, back.master_timestamp_ms) == (1 << 40, (1 << 40) + 7, 1_700_000_000_000)
    assert (bytes(back.data), back.deleted_topics) == (data, ["orders", "größe"])


@pytest.mark.parametrize("frame", [b"\x7a\x05ab", b"\x08", LogSlice(log_offset=-1).encode()])
def test_bytes_that_are_no_slice_are_refused(frame: bytes) -> None:
    with pytest.raises(BadMessage):
        LogSlice.decode(frame)
