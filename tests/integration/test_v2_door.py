"""The door of RocketMQ 5's clients, call by call."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from consumer_cluster import Servers, servers, until
from dejamq import Message
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.names import DIRECT
from dejamq_proto.v2 import messages_pb2 as pb
from dejamq_proto.v2.methods import SERVICE
from dejamq_proto.v2.queues import endpoints_of
from v2_wire import V2Client, attempts, bodies, consumer_settings, message, producer_settings, v2


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Servers]:
    async with servers(tmp_path, enable_property_filter=True, journal_level="forensic") as made:
        yield made


@pytest.fixture
async def client(here: Servers) -> AsyncIterator[V2Client]:
    async with v2(here.address) as client:
        yield client


def group_of(here: Servers, name: str = "g", **settings: Any) -> None:
    assert here.broker is not None
    here.broker.domain.tables.groups.update(name, **settings)


def direct_of(here: Servers) -> str:
    """gRPC's own address of the broker; the public one where the port below that was not free."""
    assert here.broker is not None
    return here.broker.site.advertised.get(DIRECT, here.address)


async def test_a_broker_names_the_address_that_was_dialled_and_a_name_server_grpcs_own(tmp_path: Path) -> None:
    direct = "127.0.0.1:4712"
    async with servers(tmp_path, advertise=f"{DIRECT}={direct}") as here, v2(here.address, "here") as client:
        await client.send(message())
        async with v2(here.address, "by a published port") as far, v2(here.namesrv.address, "by name server") as asking:
            far.address = "127.0.0.1:4711"
            for each, told in ((client, here.address), (far, far.address), (asking, direct)):
                (queue, *_) = (await each.route("orders")).message_queues
                assert queue.broker.endpoints == endpoints_of(told)


async def test_a_broker_with_an_advertised_address_is_known_by_that_alone(tmp_path: Path) -> None:
    async with servers(tmp_path, advertise="127.0.0.1:4711") as here, v2(here.namesrv.address) as client:
        async with v2(here.address) as sending:
            await sending.send(message())
        (queue, *_) = (await client.route("orders")).message_queues
        assert queue.broker.endpoints == endpoints_of("127.0.0.1:4711")


async def test_a_name_server_answers_routes_with_grpcs_own_address(here: Servers, client: V2Client) -> None:
    await client.send(message())
    async with v2(here.namesrv.address) as asking:
        route = await asking.route("orders")
        assert route.status.code == pb.OK
        assert [queue.id for queue in route.message_queues] == list(range(len(route.message_queues)))
        first = route.message_queues[0]
        assert (first.topic.name, first.permission, first.broker.name) == ("orders", pb.READ_WRITE, "broker-a")
        assert first.broker.endpoints == endpoints_of(direct_of(here))
        assert list(first.accept_message_types) == [pb.NORMAL, pb.FIFO, pb.DELAY, pb.TRANSACTION]
        of_broker = (await client.route("orders")).message_queues
        assert [(each.id, each.permission) for each in of_broker] == [
            (each.id, each.permission) for each in route.message_queues
        ]
        asked = pb.QueryAssignmentRequest(
            topic=pb.Resource(name="orders"), group=pb.Resource(name="g"), endpoints=endpoints_of(asking.address)
        )
        async with v2(here.address, "by-name-server") as other:  # clients name the address that they dialled first
            for each in (asking, other):
                (assigned,) = (await each.call("QueryAssignment", asked)).assignments
                assert (assigned.message_queue.id, assigned.message_queue.broker.name) == (-1, "broker-a")
                assert assigned.message_queue.broker.endpoints == endpoints_of(direct_of(here))
        assert (await asking.call("Heartbeat", pb.HeartbeatRequest())).status.code == pb.OK
        assert (await asking.settle(producer_settings("orders"))).settings.publishing.max_body_size == 4 << 20


async def test_a_topic_that_is_not_there_has_the_route_that_a_first_message_would_make(tmp_path: Path) -> None:
    async with servers(tmp_path) as here, v2(here.namesrv.address) as asking, v2(here.address) as client:
        for each in (asking, client):
            route = await each.route("news")
            assert (route.status.code, route.message_queues[0].topic.name) == (pb.OK, "news")
            assert (await each.route("%RETRY%g")).status.code == pb.TOPIC_NOT_FOUND
            assert (await each.route("bad name")).status.code == pb.ILLEGAL_TOPIC
            assert (await each.route("SCHEDULE_TOPIC_XXXX")).status.code == pb.ILLEGAL_TOPIC


async def test_without_topics_on_first_use_a_route_is_refused_in_rocketmqs_words(tmp_path: Path) -> None:
    async with servers(tmp_path, auto_create_topic_enable=False) as here:
        for address in (here.namesrv.address, here.address):
            async with v2(address) as client:
                status = (await client.route("news")).status
                text = "CODE: 17  DESC: No topic route info in name server for the topic: news"
                assert (status.code, status.message) == (pb.TOPIC_NOT_FOUND, text)
        async with v2(here.address) as client:
            assert (await client.send(message(topic="news"))).status.code == pb.TOPIC_NOT_FOUND
            assert (await client.receive("news"))[0].code == pb.TOPIC_NOT_FOUND


async def test_a_message_comes_with_all_that_its_producer_gave_it(client: V2Client) -> None:
    sent = message(
        b"hello", tag="tea", keys=["k1", "k2"], message_group="m", trace_context="t-1", kind=pb.FIFO,
        properties={"colour": "green", "ü": "ß"},
    )  # fmt: skip
    answer = await client.send(sent)
    (entry,) = answer.entries
    own_id = sent.system_properties.message_id
    assert (answer.status.code, entry.status.code, entry.offset) == (pb.OK, pb.OK, 0)
    assert (entry.message_id, entry.transaction_id, entry.recall_handle) == (own_id, own_id, "")
    status, (got,) = await client.receive()
    system, first = got.system_properties, sent.system_properties
    assert (status.code, got.topic.name, got.body) == (pb.OK, "orders", b"hello")
    assert dict(got.user_properties) == {"colour": "green", "ü": "ß", "__SHARDINGKEY": "m", "TRACE_CONTEXT": "t-1"}
    assert (system.message_id, system.tag, list(system.keys)) == (own_id, "tea", ["k1", "k2"])
    assert (system.message_group, system.trace_context, system.message_type) == ("m", "t-1", pb.FIFO)
    assert (system.body_encoding, system.body_digest.type) == (pb.IDENTITY, pb.MD5)
    assert system.body_digest.checksum == hashlib.md5(b"hello").hexdigest().upper()
    assert (system.born_timestamp, system.born_host) == (first.born_timestamp, "here")
    assert (system.delivery_attempt, system.queue_offset) == (1, 0)
    assert (bool(system.store_host), bool(system.store_timestamp.seconds)) == (True, True)


async def test_messages_go_to_and_come_from_our_own_sdk(here: Servers, client: V2Client) -> None:
    await here.send("from-sdk", tags="tea", keys=["k"], properties={"a": "b"})
    _, (got,) = await client.receive()
    assert (got.body, got.system_properties.tag, got.user_properties["a"]) == (b"from-sdk", "tea", "b")
    assert (await client.ack(got)).status.code == pb.OK
    taken: list[Any] = []
    async with here.consumer("sdk", consume_from="FIRST_OFFSET") as consumer:
        consumer.subscribe("orders", handler=lambda each: taken.append(each))
        await client.send(message(b"from-v2", tag="cake", keys=["k1", "k2"], properties={"c": "d"}))
        await until(lambda: len(taken) == 2)
    (second,) = [each for each in taken if each.body == b"from-v2"]
    assert (second.tags, list(second.keys), second.properties["c"]) == ("cake", ["k1", "k2"], "d")


async def test_packed_bodies_come_unpacked(here: Servers, client: V2Client) -> None:
    async with here.producer(compress_msg_body_over_howmuch=10) as producer:
        await producer.send(Message("orders", b"long" * 1000))
    _, (got,) = await client.receive()
    assert (got.body, got.system_properties.body_encoding) == (b"long" * 1000, pb.IDENTITY)


async def test_an_acknowledged_message_does_not_come_again_and_others_do(client: V2Client) -> None:
    await client.send(message(b"a"))
    await client.send(message(b"b"))
    first = [each for _ in range(2) for each in (await client.receive(invisible_s=1, batch=1))[1]]
    answer = await client.ack(first[0])
    assert (answer.status.code, [each.status.code for each in answer.entries]) == (pb.OK, [pb.OK])
    assert answer.entries[0].receipt_handle == first[0].system_properties.receipt_handle
    status, again = await client.receive(wait_s=15)
    assert (status.code, bodies(again), attempts(again)) == (pb.OK, [first[1].body], [2])
    assert (await client.ack(first[0])).status.code == pb.OK  # said again
    assert (await client.ack(first[1])).status.code == pb.INVALID_RECEIPT_HANDLE  # given away again
    both = await client.ack(again[0], first[1])
    assert (both.status.code, [each.status.code for each in both.entries]) == (
        pb.MULTIPLE_RESULTS, [pb.OK, pb.INVALID_RECEIPT_HANDLE],
    )  # fmt: skip


async def test_a_changed_time_gives_a_new_handle_and_the_old_one_still_acknowledges(client: V2Client) -> None:
    for body in (b"a", b"b"):
        await client.send(message(body))
    got = [each for _ in range(2) for each in (await client.receive(batch=1))[1]]
    changed = await client.change(got[0], 30)
    assert changed.status.code == pb.OK
    assert changed.receipt_handle != got[0].system_properties.receipt_handle
    assert (await client.ack(got[0])).status.code == pb.OK
    assert (await client.change(got[1], 0)).status.code == pb.OK
    _, again = await client.receive(wait_s=15)
    assert (bodies(again), attempts(again)) == ([got[1].body], [2])
    too_long = await client.change(again[0], 13 * 3600)
    assert too_long.status.code == pb.ILLEGAL_INVISIBLE_TIME


@pytest.mark.parametrize("handle", ["", "x", "0 1 2 0 0 broker-a 0 0 0", "0 1 2 0 0 other 0 0 0", "9" * 9999, "0 " * 9])
async def test_handles_that_name_nothing_are_refused(client: V2Client, handle: str) -> None:
    await client.send(message())
    _, (got,) = await client.receive()
    got.system_properties.receipt_handle = handle
    for answer in (await client.ack(got), await client.change(got, 1, handle=handle or "?"), await client.bury(got)):
        assert answer.status.code == pb.INVALID_RECEIPT_HANDLE


async def test_a_receive_waits_for_a_message_and_ends_before_its_client_gives_up(client: V2Client) -> None:
    await client.send(message(b"old"))
    await client.ack(*(await client.receive())[1])
    waiting = asyncio.create_task(client.receive(wait_s=15))
    await asyncio.sleep(0.2)
    await client.send(message(b"new"))
    assert bodies((await waiting)[1]) == [b"new"]
    request = pb.ReceiveMessageRequest(
        group=pb.Resource(name="g"), message_queue=pb.MessageQueue(topic=pb.Resource(name="orders")), batch_size=1
    )
    (status, time) = await client.stream("ReceiveMessage", request, timeout_s=1.5)
    assert (status.status.code, time.WhichOneof("content")) == (pb.MESSAGE_NOT_FOUND, "delivery_timestamp")


async def test_a_client_that_goes_away_takes_no_message_with_it(here: Servers, client: V2Client) -> None:
    await client.send(message(b"first"))
    await client.ack(*(await client.receive())[1])
    async with v2(here.address, "client-b") as other:
        gone = asyncio.create_task(other.receive(wait_s=15))
        await asyncio.sleep(0.2)
        gone.cancel()
    assert here.broker is not None
    held = here.broker.domain.popping.held
    await until(lambda: not len(held))
    await client.send(message(b"second"))
    assert bodies((await client.receive())[1]) == [b"second"]


async def test_messages_are_chosen_by_tag_and_by_sql(client: V2Client) -> None:
    for tag, size in (("tea", "1"), ("cake", "2"), ("jam", "3")):
        await client.send(message(tag.encode(), tag=tag, properties={"size": size}))
    found: list[bytes] = []
    while len(found) < 2:
        found += bodies((await client.receive(group="tags", expression="tea || jam"))[1])
    assert sorted(found) == [b"jam", b"tea"]
    assert bodies((await client.receive(group="sql", expression="size = '2'", kind=pb.SQL))[1]) == [b"cake"]
    assert (await client.receive(expression="size >", kind=pb.SQL))[0].code == pb.ILLEGAL_FILTER_EXPRESSION


async def test_a_message_is_a_dead_letter_after_its_last_try(here: Servers, client: V2Client) -> None:
    group_of(here, retry_max_times=1)
    await client.send(message(b"poison"))
    for attempt in (1, 2):
        _, (got,) = await client.receive(wait_s=15)
        assert got.system_properties.delivery_attempt == attempt
        assert (await client.change(got, 0)).status.code == pb.OK
    assert here.broker is not None
    topics = here.broker.domain.tables.topics
    await until(lambda: topics.get("%DLQ%g"))
    _, (letter,) = await client.receive("%DLQ%g", "undertaker", wait_s=15)
    assert (letter.body, letter.system_properties.message_id) == (b"poison", got.system_properties.message_id)


async def test_a_message_given_up_is_one_dead_letter_however_often_that_is_said(
    here: Servers, client: V2Client
) -> None:
    group_of(here)
    await client.send(message(b"poison"))
    _, (got,) = await client.receive()
    for _ in range(2):
        assert (await client.bury(got)).status.code == pb.OK
    assert bodies((await client.receive("%DLQ%g", "undertaker"))[1]) == [b"poison"]
    assert (await client.receive("%DLQ%g", "undertaker", wait_s=0.2))[1] == []


async def test_messages_of_a_group_in_order_come_one_batch_at_a_time(here: Servers, client: V2Client) -> None:
    group_of(here, consume_message_orderly=True)
    for body in (b"1", b"2", b"3"):
        await client.send(message(body, kind=pb.FIFO, message_group="m"))
    asked = pb.QueryAssignmentRequest(
        topic=pb.Resource(name="orders"), group=pb.Resource(name="g"), endpoints=endpoints_of(here.address)
    )
    assigned = (await client.call("QueryAssignment", asked)).assignments
    assert [each.message_queue.id for each in assigned] == list(range(len(assigned)))
    _, first = await client.receive(batch=2, attempt_id="one")
    assert bodies(first) == [b"1", b"2"]
    assert (await client.receive(wait_s=0.2))[0].code == pb.MESSAGE_NOT_FOUND
    _, repeated = await client.receive(batch=2, attempt_id="one")
    assert (bodies(repeated), attempts(repeated)) == ([b"1", b"2"], [1, 1])
    assert (await client.bury(repeated[0])).status.code == pb.OK
    assert (await client.ack(repeated[1])).status.code == pb.OK
    assert bodies((await client.receive(wait_s=15))[1]) == [b"3"]
    assert bodies((await client.receive("%DLQ%g", "undertaker"))[1]) == [b"1"]


async def test_a_push_consumers_message_stays_its_own_while_it_lives(tmp_path: Path) -> None:
    settings = {"default_invisible_time_ms": 900, "renew_ahead_time_ms": 500}
    async with servers(tmp_path, journal_level="forensic", **settings) as here, v2(here.address) as client:
        await client.send(message(b"slow"))
        _, (got,) = await client.receive(invisible_s=None)
        await until(lambda: len(here.server_lines("CHANGE")) >= 2)
        assert {line["how"] for line in here.server_lines("CHANGE")} == {"renewed"}
        assert (await client.ack(got)).status.code == pb.OK
        assert here.server_lines("REVIVE") == []
        await client.send(message(b"left"))
        await client.receive(invisible_s=None)
        assert (await client.call("NotifyClientTermination", pb.NotifyClientTerminationRequest())).status.code == pb.OK
        assert bodies((await client.receive(wait_s=15))[1]) == [b"left"]


async def test_settings_come_back_completed_for_each_kind_of_client(here: Servers, client: V2Client) -> None:
    group_of(here, retry_max_times=4, consume_message_orderly=True)
    told = await client.settle(consumer_settings())
    assert told.status.code == pb.OK
    subscription, policy = told.settings.subscription, told.settings.backoff_policy
    assert (subscription.fifo, subscription.receive_batch_size) == (True, 32)
    assert 0 < subscription.long_polling_timeout.seconds <= 20
    assert (policy.max_attempts, policy.WhichOneof("strategy")) == (5, "customized_backoff")
    assert (await asyncio.wait_for(client.told.get(), 15)) == told  # once more, for Node's client
    async with v2(here.address, "node") as node:
        policy = (await node.settle(consumer_settings(language=pb.NODE_JS))).settings.backoff_policy
        assert policy.WhichOneof("strategy") == "exponential_backoff"
    async with v2(here.address, "producer") as producer:
        told = await producer.settle(producer_settings("orders"))
        assert told.settings.publishing.validate_message_type
        assert told.settings.backoff_policy.WhichOneof("strategy") == "exponential_backoff"


async def test_settings_with_impossible_names_end_the_stream(here: Servers) -> None:
    for settings in (consumer_settings(group="bad group"), consumer_settings(topic="bad topic")):
        client = V2Client(here.address)
        client.open()
        client.up.put_nowait(pb.TelemetryCommand(settings=settings).SerializeToString())
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.ended()
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        await client.channel.close()


async def test_members_come_with_their_settings_or_heartbeats_and_leave_with_their_word(here: Servers) -> None:
    assert here.broker is not None
    clients = here.broker.domain.members.clients
    async with v2(here.address, "with-stream") as one, v2(here.address, "without-stream") as other:
        await one.settle(consumer_settings())
        beat = pb.HeartbeatRequest(group=pb.Resource(name="g"), client_type=pb.SIMPLE_CONSUMER)
        assert (await other.call("Heartbeat", beat)).status.code == pb.OK
        assert clients.groups.members("g") == ["with-stream", "without-stream"]
        assert (await other.call("NotifyClientTermination", pb.NotifyClientTerminationRequest())).status.code == pb.OK
        assert clients.groups.members("g") == ["with-stream"]
    await until(lambda: clients.groups.members("g") == [])


async def test_a_transaction_is_seen_when_it_is_committed_and_never_when_it_is_rolled_back(
    here: Servers, client: V2Client
) -> None:
    sent = {}
    for body in (b"commit", b"rollback"):
        sent[body] = message(body, kind=pb.TRANSACTION)
        assert (await client.send(sent[body])).status.code == pb.OK
    assert (await client.receive(wait_s=0.2))[0].code == pb.MESSAGE_NOT_FOUND

    async def end(body: bytes, resolution: Any) -> int:
        own_id = sent[body].system_properties.message_id
        request = pb.EndTransactionRequest(
            topic=pb.Resource(name="orders"), message_id=own_id, transaction_id=own_id, resolution=resolution
        )
        return int((await client.call("EndTransaction", request)).status.code)

    assert await end(b"rollback", pb.ROLLBACK) == pb.OK
    assert await end(b"commit", pb.COMMIT) == pb.OK
    assert await end(b"commit", pb.COMMIT) == pb.INTERNAL_SERVER_ERROR  # it has ended
    _, (got,) = await client.receive(wait_s=15)
    assert (got.body, got.system_properties.message_type) == (b"commit", pb.TRANSACTION)
    assert got.user_properties["__transactionId__"] == got.system_properties.message_id
    third = message(b"by name server", kind=pb.TRANSACTION)
    await client.send(third)
    third_id = third.system_properties.message_id
    request = pb.EndTransactionRequest(
        topic=third.topic, message_id=third_id, transaction_id=third_id, resolution=pb.COMMIT
    )
    async with v2(here.namesrv.address) as asking:
        assert (await asking.call("EndTransaction", request)).status.code == pb.OK
        assert (await asking.call("EndTransaction", request)).status.code == pb.INTERNAL_SERVER_ERROR
    assert bodies((await client.receive(wait_s=15))[1]) == [b"by name server"]
    none = pb.EndTransactionRequest(topic=pb.Resource(name="orders"), resolution=pb.COMMIT)
    assert (await client.call("EndTransaction", none)).status.code == pb.INVALID_TRANSACTION_ID


async def test_an_open_transaction_is_asked_about_also_after_a_restart(tmp_path: Path) -> None:
    quick = {"transaction_timeout_ms": 300, "transaction_check_interval_ms": 200}
    async with servers(tmp_path, **quick) as here:
        async with v2(here.address) as client:
            await client.send(message(b"open", kind=pb.TRANSACTION))
        await here.stop_broker()
        await here.start_broker()
        async with v2(here.address) as client:
            await client.settle(producer_settings("orders"))
            async with asyncio.timeout(20):
                while (told := await client.told.get()).WhichOneof("command") == "settings":
                    pass
            asked = told.recover_orphaned_transaction_command
            assert (asked.message.body, asked.message.topic.name) == (b"open", "orders")
            request = pb.EndTransactionRequest(
                topic=pb.Resource(name="orders"), message_id=asked.transaction_id,
                transaction_id=asked.transaction_id, resolution=pb.COMMIT, source=pb.SOURCE_SERVER_CHECK,
            )  # fmt: skip
            assert (await client.call("EndTransaction", request)).status.code == pb.OK
            assert bodies((await client.receive(wait_s=15))[1]) == [b"open"]


async def test_a_broker_that_comes_back_knows_who_had_what(here: Servers) -> None:
    async with v2(here.address) as client:
        for body in (b"a", b"b"):
            await client.send(message(body))
        got = [each for _ in range(2) for each in (await client.receive(batch=1))[1]]
        changed = await client.change(got[1], 60)
        await here.stop_broker()
        await here.start_broker()
        assert (await client.ack(got[0])).status.code == pb.OK
        got[1].system_properties.receipt_handle = changed.receipt_handle
        assert (await client.ack(got[1])).status.code == pb.OK
        assert (await client.receive(wait_s=0.3))[0].code == pb.MESSAGE_NOT_FOUND


async def test_several_messages_of_one_call_are_all_stored(client: V2Client) -> None:
    answer = await client.send(*(message(bytes([48 + number])) for number in range(3)))
    assert [entry.status.code for entry in answer.entries] == [pb.OK] * 3
    found: list[bytes] = []
    while len(found) < 3:
        found += bodies((await client.receive())[1])
    assert sorted(found) == [b"0", b"1", b"2"]


ILLEGAL: dict[str, tuple[dict[str, Any], Any]] = {
    "no id": ({"message_id": "\n"}, pb.ILLEGAL_MESSAGE_ID),
    "no body": ({"body": b""}, pb.MESSAGE_BODY_EMPTY),
    "large body": ({"body": bytes((4 << 20) + 1)}, pb.MESSAGE_BODY_TOO_LARGE),
    "bar in tag": ({"tag": "a|b"}, pb.ILLEGAL_MESSAGE_TAG),
    "blank key": ({"keys": [" "]}, pb.ILLEGAL_MESSAGE_KEY),
    "long group": ({"message_group": "m" * 64}, pb.ILLEGAL_MESSAGE_GROUP),
    "reserved property": ({"properties": {"UNIQ_KEY": "x"}}, pb.ILLEGAL_MESSAGE_PROPERTY_KEY),
    "control character": ({"properties": {"a": "\x02"}}, pb.ILLEGAL_MESSAGE_PROPERTY_KEY),
    "many properties": ({"properties": {str(n): "x" for n in range(129)}}, pb.MESSAGE_PROPERTIES_TOO_LARGE),
    "long property": ({"properties": {"a": "x" * (16 << 10)}}, pb.MESSAGE_PROPERTIES_TOO_LARGE),
    "bad topic": ({"topic": "a b"}, pb.ILLEGAL_TOPIC),
    "system topic": ({"topic": "rmq_sys_wheel_timer"}, pb.ILLEGAL_TOPIC),
}


@pytest.mark.parametrize("case", ILLEGAL)
async def test_a_message_that_cannot_be_is_refused_by_its_own_status(client: V2Client, case: str) -> None:
    settings, status = ILLEGAL[case]
    assert (await client.send(message(**settings))).status.code == status


def timed_message(body: bytes, in_s: int) -> pb.Message:
    timed = message(body, kind=pb.DELAY)
    timed.system_properties.delivery_timestamp.FromSeconds(timed.system_properties.born_timestamp.seconds + in_s)
    return timed


async def test_a_message_comes_at_its_time_and_one_whose_time_has_come_at_once(client: V2Client) -> None:
    assert (await client.send(timed_message(b"late", 2))).status.code == pb.OK
    assert (await client.send(timed_message(b"now", -60))).status.code == pb.OK
    assert bodies((await client.receive())[1]) == [b"now"]
    [late] = (await client.receive())[1]
    assert late.body == b"late"
    assert time.time() >= late.system_properties.delivery_timestamp.seconds


async def test_a_time_that_is_too_far_away_is_refused_by_its_own_status(client: V2Client) -> None:
    assert (await client.send(timed_message(b"late", 4 * 24 * 3600))).status.code == pb.ILLEGAL_DELIVERY_TIME


async def test_a_message_is_recalled_by_its_handle_and_not_without_one(client: V2Client) -> None:
    timed = timed_message(b"late", 3)
    [entry] = (await client.send(timed)).entries
    handle = entry.recall_handle
    recalled = await client.call("RecallMessage", pb.RecallMessageRequest(topic=timed.topic, recall_handle=handle))
    assert (recalled.status.code, recalled.message_id) == (pb.OK, entry.message_id)
    assert (await client.send(timed_message(b"kept", 3))).status.code == pb.OK
    assert bodies((await client.receive())[1]) == [b"kept"]
    forged = await client.call("RecallMessage", pb.RecallMessageRequest(topic=timed.topic, recall_handle="x"))
    assert forged.status.code == pb.INTERNAL_SERVER_ERROR


async def test_times_that_are_none_are_refused_and_break_nothing(client: V2Client) -> None:
    late = message()
    late.system_properties.born_timestamp.seconds = 1 << 62
    assert (await client.send(late)).status.code == pb.BAD_REQUEST
    await client.send(message())
    _, (got,) = await client.receive()
    request = pb.ChangeInvisibleDurationRequest(
        group=pb.Resource(name="g"), topic=got.topic, receipt_handle=got.system_properties.receipt_handle
    )
    request.invisible_duration.seconds = -5
    assert (await client.call("ChangeInvisibleDuration", request)).status.code == pb.ILLEGAL_INVISIBLE_TIME


async def test_requests_that_are_none_get_a_status(client: V2Client) -> None:
    assert (await client.call("SendMessage", None, raw=b"\xff\xff")).status.code == pb.BAD_REQUEST
    nobody = await client.call("Heartbeat", pb.HeartbeatRequest(), headers=())
    assert nobody.status.code == pb.CLIENT_ID_REQUIRED
    assert (await client.send()).status.code == pb.MESSAGE_CORRUPTED
    lite = await client.call("SyncLiteSubscription", pb.SyncLiteSubscriptionRequest())
    assert lite.status.code == pb.UNSUPPORTED
    assert lite.status.message == "this broker has no lite topics"
    with pytest.raises(grpc.aio.AioRpcError) as unknown:
        await client.channel.unary_unary(f"/{SERVICE}/Nothing")(b"", metadata=client.headers)
    assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_an_acknowledgement_that_was_not_stored_is_no_ok(
    here: Servers, client: V2Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise DejamqError("no space", code=Code.SERVICE_NOT_AVAILABLE)

    await client.send(message())
    _, (got,) = await client.receive()
    assert here.broker is not None
    with monkeypatch.context() as full:
        full.setattr(here.broker.domain.writer, "put", refused)
        full.setattr(here.broker.domain.writer, "put_all", refused)
        assert (await client.ack(got)).status.code == pb.INTERNAL_SERVER_ERROR
    assert (await client.ack(got)).status.code == pb.OK


async def test_a_request_that_is_too_large_gets_a_status(client: V2Client) -> None:
    wide = pb.HeartbeatRequest(group=pb.Resource(name="g" * (1 << 20)))
    refused = (await client.call("Heartbeat", wide)).status
    assert (refused.code, refused.message) == (
        pb.BAD_REQUEST, f"the request has {wide.ByteSize()} bytes, at most 1048576 are read",
    )  # fmt: skip
    refused = (await client.send(*(message(b"x" * (3 << 20)) for _ in range(3)))).status
    assert (refused.code, refused.message) == (
        pb.MESSAGE_BODY_TOO_LARGE, "the messages of the call have 9437184 bytes, at most 8388608 are taken",
    )  # fmt: skip
    assert (await client.send(message(b"x" * (3 << 20)), message(b"x" * (3 << 20)))).status.code == pb.OK


async def test_a_message_for_a_lite_topic_is_refused_and_not_stored_without_it(client: V2Client) -> None:
    for made in (message(kind=pb.LITE), message()):
        made.system_properties.lite_topic = "l1"
        refused = (await client.send(made)).status
        assert (refused.code, refused.message) == (
            pb.UNSUPPORTED, "lite topic 'l1': this broker has no lite topics",
        )  # fmt: skip
    assert (await client.receive(wait_s=0.1))[0].code == pb.TOPIC_NOT_FOUND  # nothing made it


async def test_credentials_are_not_looked_at(here: Servers) -> None:
    async with v2(here.address) as client:
        client.headers += (("authorization", "MQv2-HMAC-SHA1 Credential=nobody, SignedHeaders=x, Signature=00"),)
        assert (await client.send(message())).status.code == pb.OK


async def test_offsets_are_read_and_set_and_messages_pulled_from_them(client: V2Client) -> None:
    sent = [(await client.send(message(body))).status.code for body in (b"a", b"b")]
    assert sent == [pb.OK, pb.OK]
    queues = (await client.route("orders")).message_queues
    ends = [
        (await client.call("QueryOffset", pb.QueryOffsetRequest(message_queue=each, query_offset_policy=pb.END))).offset
        for each in queues
    ]
    assert sum(ends) == 2
    queue = queues[ends.index(1)]
    group = pb.Resource(name="pullers")
    pull = pb.PullMessageRequest(group=group, message_queue=queue, offset=0, batch_size=8)
    status, got, following = await client.stream("PullMessage", pull)
    assert (status.status.code, got.message.body in (b"a", b"b"), following.next_offset) == (pb.OK, True, 1)
    at: dict[str, Any] = {"group": group, "message_queue": queue}
    assert (await client.call("GetOffset", pb.GetOffsetRequest(**at))).status.code == pb.OFFSET_NOT_FOUND
    assert (await client.call("UpdateOffset", pb.UpdateOffsetRequest(**at, offset=1))).status.code == pb.OK
    assert (await client.call("GetOffset", pb.GetOffsetRequest(**at))).offset == 1
    pull.offset = 1
    pull.long_polling_timeout.FromMilliseconds(200)
    assert (await client.stream("PullMessage", pull))[0].status.code == pb.MESSAGE_NOT_FOUND


async def test_the_journal_says_who_got_and_acknowledged_what(here: Servers, client: V2Client) -> None:
    await client.send(message(message_id="my-id"))
    await client.ack(*(await client.receive())[1])
    await until(lambda: here.server_lines("ACK"))
    (pop,), (ack,) = here.server_lines("POP"), here.server_lines("ACK")
    assert (pop["client_id"], ack["client_id"], ack.get("outcome", "ok")) == ("client-a", "client-a", "ok")
    assert pop["client_boot_id"] == ack["client_boot_id"] != ""
    (append,) = [line for line in here.server_lines("APPEND") if line.get("client_id") == "client-a"]
    assert append["client_boot_id"] == pop["client_boot_id"]
