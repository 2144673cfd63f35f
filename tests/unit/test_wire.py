"""The hand-written frames are the generated classes' bytes."""

import numpy as np
import pytest
from dejamq_proto import pull_pb2, send_pb2
from dejamq_proto.wire import messages
from dejamq_proto.wire.fields import BadMessage, fields_of
from hypothesis import given
from hypothesis import strategies as st


def a_run() -> messages.SendRun:
    return messages.SendRun(
        client_id="c", boot_id="b", seq=7, group="g", queues=[("orders", 0), ("orders", 3)],
        sizes=np.array([100, 200], "<u4"), queue_index=np.array([0, 1], "<u4"), tags_codes=np.array([-5, 6], "<i4"),
        no_wait_store=True, rewrite=True, default_queue_nums=4, reply=True, sent_ms=77, dedup=True,
        records=(b"x" * 100, b"y" * 200),
    )  # fmt: skip


def test_a_send_run_is_what_the_generated_class_writes_and_reads() -> None:
    frame = a_run().encode()
    generated = send_pb2.SendRun.FromString(frame)
    assert generated.SerializeToString() == frame
    assert list(generated.tags_codes) == [-5, 6]
    assert generated.records == b"x" * 100 + b"y" * 200
    back = messages.SendRun.decode(frame)
    assert (back.client_id, back.boot_id, back.seq, back.group) == ("c", "b", 7, "g")
    assert back.queues == [("orders", 0), ("orders", 3)]
    assert bytes(back.records[0]) == generated.records
    assert (back.no_wait_store, back.rewrite, back.reply, back.default_queue_nums) == (True, True, True, 4)
    assert (back.sent_ms, back.dedup) == (77, True)


@pytest.mark.parametrize("bad_record", [-1, 0, 41])
def test_a_send_result_is_what_the_generated_class_writes_and_reads(bad_record: int) -> None:
    result = messages.SendRunResult(
        seq=3, code=13, remark="zu groß", bad_record=bad_record, store_timestamp_ms=5, store_host="1.2.3.4:5",
        queue_offsets=np.array([1, 2], "<u8"), span_starts=np.array([0], "<u4"), span_log_offsets=np.array([77], "<u8"),
        queue_ids=np.array([3, 0], "<u4"), duplicates=np.array([1], "<u4"),
    )  # fmt: skip
    frame = result.encode()
    assert send_pb2.SendRunResult.FromString(frame).SerializeToString() == frame
    back = messages.SendRunResult.decode(frame)
    assert (back.seq, back.code, back.remark, back.bad_record) == (3, 13, "zu groß", bad_record)
    assert (back.queue_offsets.tolist(), back.queue_ids.tolist()) == ([1, 2], [3, 0])
    assert back.duplicates.tolist() == [1]


def test_a_pull_answer_is_what_the_generated_class_writes_and_reads() -> None:
    answer = messages.PullAnswer(
        seq=1, code=19, next_offset=5, max_offset=9, sizes=np.array([3], "<u4"), records=(b"abc",)
    )
    frame = answer.encode()
    assert pull_pb2.PullAnswer.FromString(frame).SerializeToString() == frame
    back = messages.PullAnswer.decode(frame)
    assert (back.seq, back.code, back.next_offset, back.max_offset) == (1, 19, 5, 9)
    assert bytes(back.records[0]) == b"abc"


def test_several_answers_in_one_frame_are_what_the_generated_class_writes_and_reads() -> None:
    first = messages.PullAnswer(seq=1, sizes=np.array([3], "<u4"), records=(b"abc",))
    others = [
        messages.PullAnswer(seq=2, code=19),
        messages.PullAnswer(seq=3, records=(b"de",), sizes=np.array([2], "<u4")),
    ]
    frame = first.encode(others)
    assert pull_pb2.PullAnswer.FromString(frame).SerializeToString() == frame
    also: list[messages.PullAnswer] = []
    back = messages.PullAnswer.decode(frame, also)
    assert (back.seq, [each.seq for each in also]) == (1, [2, 3])
    assert [bytes(each.records[0]) for each in (back, also[1])] == [b"abc", b"de"]
    assert messages.PullAnswer.decode(frame).seq == 1


def test_pull_requests_in_one_frame_are_what_the_generated_class_reads() -> None:
    requests = [pull_pb2.PullRequest(topic="orders", queue_id=number, lite=True) for number in range(3)]
    frame = messages.join_pulls([each.SerializeToString() for each in requests])
    first = pull_pb2.PullRequest.FromString(frame)
    assert (first.queue_id, list(first.also)) == (0, requests[1:])


@pytest.mark.parametrize(
    "change",
    [
        {"sizes": messages.NO_WORDS},
        {"queues": []},
        {"queue_index": np.array([0, 2], "<u4")},
        {"tags_codes": np.array([1], "<i4")},
    ],
)
def test_a_run_whose_indexes_do_not_fit_is_a_bad_frame(change: dict[str, object]) -> None:
    run = a_run()
    for name, value in change.items():
        setattr(run, name, value)
    with pytest.raises(BadMessage):
        messages.SendRun.decode(run.encode())


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_a_bad_frame(raw: bytes) -> None:
    for kind in (messages.SendRun, messages.SendRunResult, messages.PullAnswer):
        try:
            kind.decode(raw)
        except BadMessage:
            pass


@given(st.data())
def test_a_damaged_frame_never_raises_anything_but_bad_frame(data: st.DataObject) -> None:
    frame = bytearray(a_run().encode())
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        messages.SendRun.decode(bytes(frame))
    except BadMessage:
        pass


def test_a_frame_of_zeros_is_refused_at_its_first_byte_and_not_at_its_last() -> None:
    """Protobuf has no field 0, and a megabyte of it took the loop a fifth of a second."""
    fields = fields_of(bytes(1 << 20))
    with pytest.raises(BadMessage, match="field 0"):
        next(fields)
