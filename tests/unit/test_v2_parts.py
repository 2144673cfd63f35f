"""Parts of ``apache.rocketmq.v2`` that need no server."""

import pytest
from dejamq_broker.doors.v2.messages import message_of
from dejamq_broker.doors.v2.send import bucket_of
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.records.record import Record, java_hash
from dejamq_proto.v2 import messages_pb2 as pb
from dejamq_proto.v2.queues import assignments_of, dialled, endpoints_of, queues_of
from dejamq_proto.v2.statuses import StatusError, status_of
from dejamq_proto.v2.telemetry import SubscriptionSettings, settings_answer
from dejamq_proto.v2.times import LAST_MS, ms_of, set_ms
from google.protobuf.timestamp_pb2 import Timestamp

TOPIC = pb.Resource(resource_namespace="ns", name="orders")


def test_a_new_queue_takes_message_groups_from_others_and_moves_no_other() -> None:
    keys = [java_hash(f"group-{number}") for number in range(2000)]
    before, after = ([bucket_of(key, buckets) for key in keys] for buckets in (8, 9))
    assert set(before) == set(range(8))
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {8}
    assert 100 < len(moved) < 400


def test_the_first_queues_are_for_reading_and_writing() -> None:
    found = list(queues_of(TOPIC, "b", "1.2.3.4:1", read=3, write=2, perm=6))
    assert [(queue.id, queue.permission) for queue in found] == [(0, pb.READ_WRITE), (1, pb.READ_WRITE), (2, pb.READ)]
    assert {queue.topic.resource_namespace for queue in found} == {"ns"}
    assert [queue.permission for queue in queues_of(TOPIC, "b", "h:1", read=1, write=1, perm=2)] == [pb.WRITE]
    assert list(queues_of(TOPIC, "b", "h:1", read=1, write=1, perm=0)) == []
    assert assignments_of(list(queues_of(TOPIC, "b", "h:1", read=1, write=1, perm=2)), in_order=False).status.code == (
        pb.FORBIDDEN
    )


@pytest.mark.parametrize(
    ("address", "scheme"), [("1.2.3.4:10", pb.IPv4), ("[::1]:10", pb.IPv6), ("broker.local:10", pb.DOMAIN_NAME)]
)
def test_an_address_goes_to_clients_and_comes_back(address: str, scheme: int) -> None:
    endpoints = endpoints_of(address)
    assert (endpoints.scheme, dialled(endpoints)) == (scheme, address)


def test_addresses_that_nobody_can_have_dialled_are_none() -> None:
    for addresses in (
        [],
        [("h", 1), ("g", 1)],
        [("", 1)],
        [("h", 0)],
        [("h", 70_000)],
        [("a\nb", 1)],
        [("h" * 300, 1)],
    ):
        assert not dialled(pb.Endpoints(addresses=[pb.Address(host=host, port=port) for host, port in addresses]))


def test_a_group_without_settings_has_rocketmqs() -> None:
    asked = pb.Settings(subscription=pb.Subscription(group=pb.Resource(name="g")))
    told = settings_answer(asked, SubscriptionSettings(), 20_000).settings
    waits = [each.seconds for each in told.backoff_policy.customized_backoff.next]
    assert (told.backoff_policy.max_attempts, waits[:4], waits[-1]) == (17, [1, 5, 10, 30], 7200)
    assert (told.subscription.group.name, told.subscription.long_polling_timeout.seconds) == ("g", 20)


def test_times_stay_within_what_protobuf_holds() -> None:
    time = Timestamp(seconds=1 << 60)
    with pytest.raises(StatusError):
        ms_of(time)
    set_ms(time, 1 << 62)
    assert ms_of(time) == LAST_MS
    set_ms(time, -5)
    assert ms_of(time) == 0


def test_an_error_without_a_status_of_its_own_is_the_servers() -> None:
    assert status_of(DejamqError("x", code=Code.SERVICE_NOT_AVAILABLE)).code == pb.INTERNAL_SERVER_ERROR
    assert status_of(DejamqError("x", code=Code.NO_MESSAGE), {Code.NO_MESSAGE: pb.INVALID_RECEIPT_HANDLE}).code == (
        pb.INVALID_RECEIPT_HANDLE
    )
    assert len(status_of(DejamqError("x" * 9999)).message) <= 512


@pytest.mark.parametrize("number", [(1 << 31) - 1, -(1 << 31), 0])
def test_whatever_numbers_a_producer_put_into_a_record_its_message_can_be_told(number: int) -> None:
    record = Record(
        "orders", number, b"x", reconsume_times=number, born_timestamp_ms=number << 32, store_timestamp_ms=number << 32,
        queue_offset=number << 32, sys_flag=number & ~48,
    )  # fmt: skip
    told = message_of(record, TOPIC, attempt=1 + number)
    assert pb.Message.FromString(told.SerializeToString()).system_properties.delivery_attempt == min(
        1 + number, (1 << 31) - 1
    )


@pytest.mark.parametrize(
    "properties",
    [
        b"\xff\xfe\x01\xff\x02", b"KEYS\x01" + b"k " * 9000 + b"\x02", b"UNIQ_KEY\x01\xff\xff\x02", b"\x01\x02",
        b"TIMER_DELIVER_MS\x01" + b"9" * 400 + b"\x02", b"CHECK_IMMUNITY_TIME_IN_SECONDS\x01\xd9\xa3\x02", b"TAGS",
    ],
)  # fmt: skip
def test_whatever_properties_a_record_has_its_message_can_be_told(properties: bytes) -> None:
    told = message_of(Record("orders", 0, b"x", properties), TOPIC, attempt=1)
    assert pb.Message.FromString(told.SerializeToString()).body == b"x"
