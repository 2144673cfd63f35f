"""Replies: handed to the client that asked, kept in the reply topic, refused where that client is not connected."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_parts import Parts, parts_in
from broker_tables import clients_of
from broker_wire import a_run
from dejamq_broker.members.producers import ProducerTable
from dejamq_broker.store import StoreFull
from dejamq_broker.tables.offsets import Asker
from dejamq_proto.codes import Code
from dejamq_proto.records.record import decode
from dejamq_proto.wire.messages import SendRunResult

TOPIC = "c_REPLY_TOPIC"
NOW_MS = 1_000


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    with parts_in(tmp_path) as parts:
        yield parts


def connect(parts: Parts, client_id: str) -> list[bytes]:
    """What is pushed to this client, which is the only one."""
    pushed: list[bytes] = []
    clients = clients_of(parts.topics, parts.groups, parts.journal, lambda: NOW_MS)

    def push(record: bytes, _: str) -> bool:
        pushed.append(record)
        return True

    channel = clients.open(lambda group: None, push)
    clients.heartbeat(channel, Asker(client_id, "boot"), (), ["producers"])
    parts.push = clients.push_reply
    return pushed


def reply(parts: Parts, client_id: str = "asker", **more: str) -> SendRunResult:
    properties = {"CORRELATION_ID": "17", "REPLY_TO_CLIENT": client_id, "MSG_TYPE": "reply"} | more
    return parts.send(TOPIC, b"yes", reply=True, properties={name: text for name, text in properties.items() if text})


def test_a_reply_is_handed_to_the_client_that_asked_and_kept_in_the_reply_topic(parts: Parts) -> None:
    pushed = connect(parts, "asker")
    result = reply(parts)
    assert (result.code, result.queue_offsets.tolist()) == (Code.SUCCESS, [0])
    (record,) = map(decode, pushed)
    assert (record.topic, record.body) == (TOPIC, b"yes")
    assert record.properties["CORRELATION_ID"] == "17"
    assert record.properties["PUSH_REPLY_TIME"]
    (kept,) = parts.records(TOPIC)
    assert (kept.body, kept.log_offset) == (b"yes", int(result.span_log_offsets[0]))


def test_a_client_that_is_not_connected_here_is_a_reason_to_try_the_next_broker(parts: Parts) -> None:
    connect(parts, "somebody else")
    result = reply(parts)
    assert result.code == Code.SYSTEM_ERROR
    assert "client asker has no channel" in result.remark


def test_a_reply_to_nobody_is_refused(parts: Parts) -> None:
    connect(parts, "asker")
    result = reply(parts, client_id="")
    assert result.code == Code.SYSTEM_ERROR
    assert "REPLY_TO_CLIENT" in result.remark


def test_a_full_disk_does_not_unsay_a_reply_that_was_handed_on(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    pushed = connect(parts, "asker")

    def full(*args: object) -> None:
        raise StoreFull("no space")

    monkeypatch.setattr(parts.writer, "put", full)
    assert reply(parts).code == Code.SUCCESS
    assert len(pushed) == 1


def test_replies_are_not_stored_where_that_is_switched_off(tmp_path: Path) -> None:
    with parts_in(tmp_path, store_reply_message_enable=False) as parts:
        pushed = connect(parts, "asker")
        result = reply(parts)
        assert (result.code, result.queue_offsets.tolist(), result.span_log_offsets.tolist()) == (0, [0], [0])
        assert len(pushed) == 1
        assert parts.records(TOPIC) == []


def test_two_replies_in_one_run_are_refused(parts: Parts) -> None:
    connect(parts, "asker")
    run = a_run(TOPIC, [b"a", b"b"], reply=True, properties={"REPLY_TO_CLIENT": "asker"})
    result = parts.outcome(run).result
    assert (result.code, result.bad_record) == (Code.MESSAGE_ILLEGAL, 1)


def test_what_is_encoded_again_learns_the_name_of_its_cluster(parts: Parts) -> None:
    assert parts.send("requests", b"how much?", rewrite=True, properties={"REPLY_TO_CLIENT": "asker"}).code == 0
    (record,) = parts.everywhere("requests")
    assert record.properties["CLUSTER"] == "c"


def test_a_cluster_that_the_sender_named_stays(parts: Parts) -> None:
    parts.send("requests", b"how much?", rewrite=True, properties={"CLUSTER": "other"})
    (record,) = parts.everywhere("requests")
    assert record.properties["CLUSTER"] == "other"


# --- who is connected


def table(*channels: int, client_id: str = "c1") -> ProducerTable:
    made = ProducerTable()
    for channel in channels:
        made.heartbeat(channel, client_id, ["g"], 1000)
    return made


def test_a_client_is_reached_by_its_newest_channel() -> None:
    assert table(1, 5).channel_of("c1") == 5
    assert table(1).channel_of("c2") is None


def test_the_end_of_an_old_channel_of_the_same_client_takes_nothing_from_the_new_one() -> None:
    producers = table(1, 2)
    producers.leave(1)
    assert producers.channel_of("c1") == 2


def test_expiry_drops_the_silent_channel_of_a_client_and_keeps_its_live_one() -> None:
    producers = table(1, 2)
    producers.heartbeat(2, "c1", ["g"], 100_000)
    assert producers.expire(121_001, 120_000) == ["c1"]
    assert producers.channel_of("c1") == 2
    assert producers.expire(121_001, 120_000) == []


def test_a_heartbeat_without_producer_groups_is_a_consumers() -> None:
    producers = ProducerTable()
    producers.heartbeat(1, "c1", [], 0)
    assert producers.channel_of("c1") is None


def test_a_group_that_was_unregistered_is_gone_and_the_others_of_the_client_stay() -> None:
    producers = ProducerTable()
    producers.heartbeat(1, "c1", ["g", "h"], 0)
    producers.unregister("c1", "", "g")
    assert (producers.channels_of("g"), producers.channels_of("h")) == ([], [1])
    producers.unregister("c1", "", "h")
    assert producers.channel_of("c1") is None


def test_the_channels_of_a_group_are_those_of_all_its_clients() -> None:
    producers = table(1)
    producers.heartbeat(2, "c2", ["g"], 0)
    assert producers.channels_of("g") == [1, 2]
