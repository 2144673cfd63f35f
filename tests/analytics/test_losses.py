"""What a broker had acknowledged and its log did not have any more when it went on is told, message by message."""

from pathlib import Path

from dejamq_proto.journal.events import Boot, ReplicaEvent
from journals import History, Process
from told import Auditor


def sent(made: History, producer: Process, broker: Process, *offsets: int) -> None:
    for offset in offsets:
        producer.send(made.key(offset), request=offset, call=offset)
        broker.append(made.key(offset), offset, producer, request=offset, broker_name=made.broker_name)
        producer.send_result(offset, "ok")


def a_master(made: History, boot_id: str) -> Process:
    return made.process("broker", "broker-0", boot_id=f"{made.name}{boot_id}")


def start(made: History, process: Process, *, clean: bool, log_max: int) -> None:
    process.write(Boot(
        broker_name=made.broker_name, broker_id=0, address="127.0.0.1:1", clean=clean, log_max=log_max
    ))  # fmt: skip


def test_what_stood_behind_the_place_where_a_broker_went_on_is_lost(tmp_path: Path, audited: Auditor) -> None:
    promoted, crashed, whole = (History(tmp_path, name) for name in ("promoted", "crashed", "whole"))
    for made in (promoted, crashed, whole):
        producer, consumer, first = made.producer(), made.consumer(), a_master(made, "first")
        start(made, first, clean=True, log_max=0)
        sent(made, producer, first, 1, 2, 3)
        queue = consumer.open_queue(1)
        for offset in (1, 2, 3):
            consumer.handle(queue, offset, offset + 1)
        first.kill()
        second = a_master(made, "second")
        start(made, second, clean=made is promoted, log_max=400 if made is whole else 200)
        if made is promoted:
            second.write(ReplicaEvent(broker_name=made.broker_name, broker_id=0, change="promoted", log_offset=200))
        # another message gets the place of the first one that was lost, and the last one was sent again
        second.append(made.key(9), 2 if made is not whole else 4, producer, request=9, broker_name=made.broker_name)
        if made is not whole:
            consumer.handle(queue, 2, 4, key=made.key(9))
            second.append(made.key(3), 3, producer, request=3, broker_name=made.broker_name)
        for process in (producer, consumer, second):
            process.close()
        made.end()

    result = audited()
    lost = [row for row in result.anomalies.collect() if row.kind == "lost"]
    assert sorted(row.message_id for row in lost) == [crashed.key(2), promoted.key(2)]
    assert "went on from 200 without it" in lost[0].detail
    assert [each.event for each in lost[0].evidence] == ["SEND_TRY", "APPEND", "SEND_RESULT", "BOOT"]
    assert not [row for row in result.findings.collect() if row.kind == "delivered_twice"]
