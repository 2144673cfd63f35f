"""What is wrong without being a duplicate, and what only looks so."""

from pathlib import Path

from dejamq_proto.journal.events import Pull, Repeat
from dejamq_proto.journal.writer import Level
from journals import TOPIC, History, Process
from told import Auditor


def acknowledged(made: History, *, level: Level = Level.FORENSIC, stored: bool = False, known: bool = False) -> None:
    broker, producer = made.broker(level=level), made.producer()
    producer.send(made.key(1), request=1, call=1)
    if stored:
        broker.append(made.key(1), 0, producer, request=1)
    else:
        broker.skip_lines(level is Level.AUDIT)
        broker.append(made.key(99), 0, producer, request=99)
    if known:
        broker.write(Repeat(
            broker_name=broker.name, topics=[TOPIC], queue_ids=[0], queue_index=[0], queue_offsets=[0], log_offsets=[0],
            unique_keys=[made.key(1)], first_unique_keys=[made.key(99)],
        ))  # fmt: skip
    producer.send_result(1, "ok")
    producer.close()
    broker.close()


def pulled(made: History, broker: Process, count: int) -> None:
    broker.write(Pull(
        broker_name=broker.name, group=made.group, topic=TOPIC, queue_id=0, client_id="c", client_boot_id="b",
        request_seq=1, request_offset=0, next_offset=2, count=count, code=0,
    ))  # fmt: skip


def read_one_of_two(made: History, *, pulled_records: int) -> None:
    broker, producer, consumer = made.broker(), made.producer(), made.consumer()
    for offset in range(2):
        broker.append(made.key(offset), offset, producer, request=offset)
    pulled(made, broker, pulled_records)
    consumer.handle(consumer.open_queue(0), 0, 1)
    for process in (broker, producer, consumer):
        process.close()


def test_each_anomaly_is_found_where_it_is_and_nowhere_else(tmp_path: Path, audited: Auditor) -> None:
    histories = {
        name: History(tmp_path, name) for name in ("lost", "kept", "known", "hole", "unseen", "filtered", "order")
    }
    acknowledged(histories["lost"])
    acknowledged(histories["kept"], stored=True)
    acknowledged(histories["known"], known=True)
    acknowledged(histories["hole"], level=Level.AUDIT)
    read_one_of_two(histories["unseen"], pulled_records=2)
    read_one_of_two(histories["filtered"], pulled_records=1)
    turned = histories["order"]
    broker, consumer = turned.broker(), turned.consumer()
    queue = consumer.open_queue(5)
    for offset in (6, 5, 7):
        consumer.handle(queue, offset, offset + 1)
    broker.offset_set(consumer, 8, 6)
    for history in histories.values():
        history.end()

    result = audited()
    rows = {(row.kind, row.broker_name, row.queue_offset) for row in result.anomalies.collect()}
    assert rows == {
        ("lost", "lost-broker-0", None),
        ("unseen", "unseen-broker-0", 1),
        ("out_of_order", "order-broker-0", 5),
        ("offset_regression", "order-broker-0", 6),
    }
    assert (result.verdict.lost, result.verdict.unseen, result.verdict.out_of_order) == (1, 1, 1)
    assert result.verdict.verdict == "findings"
    assert result.findings.isEmpty()


def test_one_group_alone_can_be_audited(tmp_path: Path, audited: Auditor) -> None:
    for name in ("unseen", "other"):
        history = History(tmp_path, name)
        read_one_of_two(history, pulled_records=2)
        history.end()
    verdict = audited(group="unseen").verdict
    assert (verdict.unseen, list(verdict.by_group)) == (1, ["unseen"])
