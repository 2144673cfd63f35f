"""The name server's remoting door, as RocketMQ's clients, tools and brokers use it."""

import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from broker_wire import running, until
from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.namesrv_pb2 import GetRouteRequest
from dejamq_proto.namesrv_pb2_grpc import NameServerStub
from dejamq_proto.remoting import requests as r
from dejamq_proto.wire.calling import call, dial
from remoting_wire import RemotingClient, a_send, remoting

BROKER = {"brokerName": "real-1", "brokerAddr": "10.0.0.9:10911", "clusterName": "real", "brokerId": 0}


@pytest.fixture
async def namesrv() -> AsyncIterator[str]:
    server = NameServer(NamesrvConfig(listen="127.0.0.1:0"))
    yield await server.start()
    await server.close()


@pytest.fixture
async def client(namesrv: str) -> AsyncIterator[RemotingClient]:
    async with remoting(namesrv) as client:
        yield client


async def told(client: RemotingClient, request: Any, **ext: Any) -> Any:
    answer = await client.ask(request, **ext)
    assert answer.code == 0, answer.remark
    return msgspec.json.decode(answer.body)


async def test_a_route_names_the_public_address_and_the_queues(
    namesrv: str, client: RemotingClient, tmp_path: Path
) -> None:
    async with running(tmp_path, namesrv=namesrv) as broker:
        async with remoting(broker.address) as producer:
            assert (await producer.ask(r.SEND_MESSAGE_V2, b"x", **a_send("orders", d=3))).code == 0
        route = await told(client, r.GET_ROUTE, topic="orders")
        name, cluster = broker.site.broker_name, broker.site.cluster
        assert route == {
            "brokerDatas": [{
                "brokerAddrs": {"0": broker.address}, "brokerName": name, "cluster": cluster,
                "enableActingMaster": False,
            }],
            "filterServerTable": {},
            "queueDatas": [{
                "brokerName": name, "perm": 6, "readQueueNums": 3, "topicSysFlag": 0, "writeQueueNums": 3,
            }],
        }  # fmt: skip
        assert (await told(client, r.GET_ROUTE, topic="TBW102"))["queueDatas"][0]["perm"] == 7
        assert "orders" in (await told(client, r.GET_ALL_TOPICS))["topicList"]
        for topic in (name, cluster):  # tools send to the one and look for the other
            assert (await told(client, r.GET_ROUTE, topic=topic))["queueDatas"][0]["writeQueueNums"] == 1
        info = await told(client, r.GET_CLUSTER_INFO)
        assert info["clusterAddrTable"] == {cluster: [name]}
        assert info["brokerAddrTable"][name]["brokerAddrs"] == {"0": broker.address}


async def test_a_topic_that_nobody_has_is_refused_with_rocketmqs_code(client: RemotingClient) -> None:
    answer = await client.ask(r.GET_ROUTE, topic="nowhere")
    text = "No topic route info in name server for the topic: nowhere"
    assert (answer.code, (answer.remark or "").splitlines()[0]) == (17, text)


async def test_settings_are_kept_by_namespace(client: RemotingClient) -> None:
    item = {"namespace": "n", "key": "k"}
    missing = await client.ask(r.GET_KV_CONFIG, **item)
    assert (missing.code, missing.remark) == (22, "No config item, Namespace: n Key: k")
    await client.ask(r.PUT_KV_CONFIG, **item, value="v")
    assert (await client.ask(r.GET_KV_CONFIG, **item)).ext == {"value": "v"}
    assert await told(client, r.GET_KV_LIST, namespace="n") == {"table": {"k": "v"}}
    await client.ask(r.DELETE_KV_CONFIG, **item)
    assert (await client.ask(r.GET_KV_LIST, namespace="n")).code == Code.QUERY_NOT_FOUND


async def registered(client: RemotingClient, *topics: str, crc: int | None = None) -> Any:
    table = {name: {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6} for name in topics}
    version = {"counter": 3, "stateVersion": 0, "timestamp": 17}
    wrapper = {"dataVersion": version, "topicConfigTable": table}
    body = msgspec.json.encode({"filterServerList": [], "topicConfigSerializeWrapper": wrapper})
    crc = zlib.crc32(body) & 0x7FFFFFFF if crc is None else crc
    fields = BROKER | {"haServerAddr": "10.0.0.9:10912", "compressed": "false", "bodyCrc32": crc}
    return await client.ask(r.REGISTER_BROKER, body, **fields)


async def test_a_rocketmq_broker_is_in_routes_until_its_connection_ends(namesrv: str, client: RemotingClient) -> None:
    async with remoting(namesrv) as broker:
        assert (await registered(broker, "orders", "bills")).code == 0
        route = await told(client, r.GET_ROUTE, topic="orders")
        assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "10.0.0.9:10911"}
        channel = dial(namesrv)
        asked = GetRouteRequest(topic="orders")
        with pytest.raises(DejamqError, match="no route for topic 'orders'"):
            await call(NameServerStub(channel).GetRoute, asked, address=namesrv, timeout_ms=9_000)
        await channel.close(None)

    async def gone() -> bool:
        return (await client.ask(r.GET_ROUTE, topic="orders")).code == Code.TOPIC_NOT_EXIST

    await until(gone)


def parts(*texts: str) -> bytes:
    return b"".join(len(text.encode()).to_bytes(4) + text.encode() for text in texts)


def deflated(*topics: str) -> bytes:
    """As a broker with ``compressedRegister`` writes it."""
    version = '{"counter":3,"stateVersion":0,"timestamp":17}'
    return zlib.compress(parts(version) + len(topics).to_bytes(4) + parts(*topics, "[]") + bytes(4), 9)


async def test_a_registration_may_be_deflated(client: RemotingClient) -> None:
    body = deflated('orders 4 3 6 SINGLE_TAG {"message.type":"FIFO", "a":"b c"}', "bills 1 1 4 SINGLE_TAG")
    crc = zlib.crc32(body) & 0x7FFFFFFF
    assert (await client.ask(r.REGISTER_BROKER, body, **BROKER, compressed="false", bodyCrc32=crc)).code == 0
    (orders,) = (await told(client, r.GET_ROUTE, topic="orders"))["queueDatas"]
    assert (orders["readQueueNums"], orders["writeQueueNums"], orders["perm"]) == (4, 3, 6)
    assert (await told(client, r.GET_ROUTE, topic="bills"))["queueDatas"][0]["perm"] == 4
    version = {"counter": 3, "stateVersion": 0, "timestamp": 17}
    assert (await client.ask(r.QUERY_DATA_VERSION, version, **BROKER)).ext["changed"] == "false"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"x\xda", "ends too early"),
        (b"x and no deflated bytes", "while decompressing data"),
        (deflated("orders 4 4 6 SINGLE_TAG")[:-9], "ends too early"),
        (deflated("orders 4 4"), "'orders 4 4' is no topic"),
        (deflated("orders four 4 6 SINGLE_TAG"), "invalid literal"),
        (zlib.compress(parts("{}") + b"\x7f\xff\xff\xff"), "unpack_from requires"),
        (zlib.compress(b"\xff\xff\xff\xff"), "a part of -1 bytes"),
        (zlib.compress(bytes(64 << 20), 9), "it holds more than 16777216 bytes"),
    ],
    ids=["only begun", "no deflate", "cut", "short topic", "no number", "too many topics", "negative", "a bomb"],
)
async def test_a_deflated_registration_that_cannot_be_read_is_refused(
    client: RemotingClient, body: bytes, why: str
) -> None:
    refused = await client.ask(r.REGISTER_BROKER, body, **BROKER)
    assert (refused.code, why in (refused.remark or "")) == (1, True), refused.remark


async def test_a_registration_that_was_damaged_on_its_way_is_refused(client: RemotingClient) -> None:
    answer = await registered(client, "orders", "bills", crc=1)
    assert (answer.code, answer.remark) == (1, "crc32 not match")
    alone = await registered(client, "orders")
    assert (alone.code, (alone.remark or "")[:22]) == (1, "register broker failed")


async def test_a_broker_asks_whether_its_topics_are_known_and_leaves(client: RemotingClient) -> None:
    async def changed(counter: int) -> str:
        version = {"counter": counter, "stateVersion": 0, "timestamp": 17}
        return (await client.ask(r.QUERY_DATA_VERSION, version, **BROKER)).ext["changed"]

    assert await changed(3) == "true"
    await registered(client, "orders", "bills")
    assert (await changed(3), await changed(4)) == ("false", "true")
    await client.ask(r.UNREGISTER_BROKER, **BROKER)
    assert await changed(3) == "true"


async def test_operators_take_write_permission_and_topics_away(client: RemotingClient) -> None:
    await registered(client, "orders", "bills")
    wiped = await client.ask(r.WIPE_WRITE_PERM, brokerName="real-1")
    assert wiped.ext == {"wipeTopicCount": "2"}
    assert (await told(client, r.GET_ROUTE, topic="orders"))["queueDatas"][0]["perm"] == 4
    assert (await client.ask(r.ADD_WRITE_PERM, brokerName="real-1")).ext == {"addTopicCount": "2"}
    await client.ask(r.DELETE_TOPIC_IN_NAMESRV, topic="orders", clusterName="other")
    assert (await client.ask(r.GET_ROUTE, topic="orders")).code == 0
    await client.ask(r.DELETE_TOPIC_IN_NAMESRV, topic="orders", clusterName="real")
    assert (await client.ask(r.GET_ROUTE, topic="orders")).code == 17


async def test_a_broker_is_told_with_its_slaves(client: RemotingClient) -> None:
    await registered(client, "orders", "bills")
    asked = {"clusterName": "real", "brokerName": "real-1"}
    found = {"brokerAddrs": {"0": "10.0.0.9:10911"}, "brokerName": "real-1", "cluster": "real"}
    assert await told(client, r.GET_BROKER_MEMBERS, **asked) == {"brokerMemberGroup": found}
    unknown = found | {"brokerAddrs": {}, "cluster": "other"}
    members = await told(client, r.GET_BROKER_MEMBERS, **(asked | {"clusterName": "other"}))
    assert members == {"brokerMemberGroup": unknown}


async def test_topics_are_told_by_cluster_and_those_of_the_system_by_themselves(client: RemotingClient) -> None:
    await registered(client, "orders", "bills")
    assert await told(client, r.GET_TOPICS_BY_CLUSTER, cluster="real") == {"topicList": ["bills", "orders"]}
    assert await told(client, r.GET_TOPICS_BY_CLUSTER, cluster="other") == {"topicList": []}
    system = {"topicList": ["real", "real-1"], "brokerAddr": "10.0.0.9:10911"}
    assert await told(client, r.GET_SYSTEM_TOPICS_FROM_NS) == system


async def test_settings_of_the_name_server_are_told_and_some_can_be_changed(client: RemotingClient) -> None:
    async def line(name: str) -> str:
        lines = (await client.ask(r.GET_NAMESRV_CONFIG)).body.decode().splitlines()
        return dict(each.split("=", 1) for each in lines)[name]

    await client.ask(r.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="orders", value="real-1:4")
    await registered(client, "orders", "bills")
    assert (await line("orderMessageEnable"), await line("returnOrderTopicConfigToBroker")) == ("false", "true")
    assert "orderTopicConf" not in await told(client, r.GET_ROUTE, topic="orders")
    change = b"orderMessageEnable=true\nscanNotActiveBrokerInterval=1000\n"
    assert (await client.ask(r.UPDATE_NAMESRV_CONFIG, change)).code == 0
    assert (await line("orderMessageEnable"), await line("scanNotActiveBrokerInterval")) == ("true", "1000")
    assert (await told(client, r.GET_ROUTE, topic="orders"))["orderTopicConf"] == "real-1:4"
    assert (await client.ask(r.UPDATE_NAMESRV_CONFIG)).code == 0


@pytest.mark.parametrize(
    ("change", "code", "why"),
    [
        (b"orderMessageEnable=true\nkvConfigPath=/tmp/x", 16, "Can not update config in black list."),
        (b"orderMessageEnable=true\nlistenPort=1", 29, "listenPort"),
        (b"orderMessageEnable=true\ndirectory=/tmp/x", 29, "read at the start"),
        (b"orderMessageEnable=true\nunknown=1", 29, "unknown setting"),
        (b"orderMessageEnable=perhaps", 29, "perhaps"),
        (b"orderMessageEnable=true\nx=\\u12", 1, "four hexadecimal digits"),
    ],
    ids=["black list", "by parts", "at the start", "unknown", "no truth", "no escape"],
)
async def test_a_change_of_settings_that_cannot_be_is_refused_whole(
    client: RemotingClient, change: bytes, code: int, why: str
) -> None:
    refused = await client.ask(r.UPDATE_NAMESRV_CONFIG, change)
    assert (refused.code, why in (refused.remark or "")) == (code, True), refused.remark
    assert b"orderMessageEnable=false" in (await client.ask(r.GET_NAMESRV_CONFIG)).body


async def test_settings_that_are_too_large_are_not_read(client: RemotingClient) -> None:
    refused = await client.ask(r.UPDATE_NAMESRV_CONFIG, b"#" * (1 << 17))
    assert (refused.code, "at most 65536 are read" in (refused.remark or "")) == (1, True)


async def test_a_rocketmq_broker_lives_by_its_light_heartbeat(client: RemotingClient) -> None:
    named = {"clusterName": "real", "brokerAddr": "10.0.0.9:10911", "brokerName": "real-1"}
    assert (await client.ask(r.BROKER_HEARTBEAT, **named)).code == 0
    assert (await client.ask(r.GET_ROUTE, topic="orders")).code == 17
    await registered(client, "orders", "bills")
    assert (await client.ask(r.BROKER_HEARTBEAT, **named, epoch="no number")).code == 0
    refused = await client.ask(r.BROKER_HEARTBEAT, clusterName="real")
    assert (refused.code, "brokerAddr" in (refused.remark or "")) == (1, True)
    assert (await client.ask(r.GET_ROUTE, topic="orders")).code == 0


async def test_requests_that_are_not_built_are_answered(client: RemotingClient) -> None:
    answer = await client.ask(4711)
    assert (answer.code, answer.remark) == (3, " request type 4711 not supported")
