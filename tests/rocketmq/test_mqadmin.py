"""RocketMQ's mqadmin against dejamq and against a real RocketMQ: its commands print the same, numbers apart."""

import asyncio
import itertools
import re
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from dejamq_proto import remoting_client
from dejamq_proto.loose_json import loads_loose
from dejamq_proto.remoting import requests
from java_clients import by_scenario, compiled, java, java_member, output_of, said

TOPIC, GROUP = "admin_concurrent", "admin_concurrent_group"
ONLINE, ONLINE_GROUP = "mixed_member", "mixed_member_group"
BROKER = "BROKER"
"""Stands for the broker's address."""
CHANGES = [
    "updateTopic -c DefaultCluster -t made -r 4 -w 4",
    "topicRoute -t made",
    "topicStatus -t made",
    "topicClusterList -t made",
    "updateTopicPerm -c DefaultCluster -t made -p 4",
    f"topicStatus -t {TOPIC}",
    f"consumerProgress -g {GROUP}",
    "updateSubGroup -c DefaultCluster -g made_group -r 5 -m true -d true",
    "getConsumerConfig -g made_group",
    "setConsumeMode -c DefaultCluster -t made -g made_group -m POP -q 1",
    "setConsumeMode -c DefaultCluster -t made -g made_group -m PULL",
    "setConsumeMode -b BROKER -t none -g made_group -m POP",
    f"cloneGroupOffset -s {GROUP} -d made_group -t {TOPIC} -o true",
    f"consumerProgress -g made_group -t {TOPIC}",
    f"resetOffsetByTime -g {GROUP} -t {TOPIC} -s 0 -f true",
    f"consumerProgress -g {GROUP}",
    f"consumerConnection -g {GROUP}",
    f"queryMsgByKey -t {TOPIC} -k key7",
    f"queryMsgByOffset -t {TOPIC} -b broker-a -i 0 -o 0",
    "updateKvConfig -s space -k key -v value",
    "deleteKvConfig -s space -k key",
    "deleteSubGroup -c DefaultCluster -g made_group",
    "deleteTopic -c DefaultCluster -t made",
    "topicRoute -t made",
]
LOOKS = [
    "clusterList",
    "clusterList -m",
    "topicList",
    "topicList -c",
    f"allocateMQ -t {TOPIC} -i a,b",
    "brokerStatus -c DefaultCluster",
    "getBrokerConfig -b BROKER",
    "updateBrokerConfig -b BROKER -k autoCreateTopicEnable -v true",
    "getNamesrvConfig",
    "updateNamesrvConfig -k orderMessageEnable -v true",
    "updateNamesrvConfig -k orderMessageEnable -v false",
    "updateNamesrvConfig -k kvConfigPath -v elsewhere",
    "cleanUnusedTopic -c DefaultCluster",
    "cleanExpiredCQ -c DefaultCluster",
    "deleteExpiredCommitLog -c DefaultCluster",
    "haStatus -c DefaultCluster",
    "haStatus -b BROKER",
    f"queryCq -t {TOPIC} -q 0 -i 0 -c 2 -b BROKER",
    f"queryCq -t {TOPIC} -q 0 -i 0 -c 2 -b BROKER -g {GROUP}",
    f"queryCq -t {ONLINE} -q 0 -i 0 -c 1 -b BROKER -g {ONLINE_GROUP}",
    "queryCq -t none -q 0 -i 0 -c 2 -b BROKER",
    f"api.resumeCheckHalfMessage {TOPIC} 00",
    f"consumerStatus -g {ONLINE_GROUP}",
    f"consumerConnection -g {ONLINE_GROUP}",
    f"consumerProgress -g {ONLINE_GROUP} -s true",
    f"api.getConsumeStatus {ONLINE} {ONLINE_GROUP}",
    f"api.getConsumeStatus {ONLINE} nobody",
    f"producerConnection -g CLIENT_INNER_PRODUCER -t {ONLINE}",
    "producer -b BROKER",
    "consumerProgress",
    "brokerConsumeStats -b BROKER",
    "statsAll",
    f"sendMessage -t {TOPIC} -p hello",
    f"checkMsgSendRT -t {TOPIC} -a 2 -s 10",
    "sendMsgStatus -b broker-a -s 10 -c 2",
    f"consumeMessage -t {TOPIC} -b broker-a -i 0 -o 0 -c 2",
    f"printMsg -t {TOPIC} -d true",
    f"queryMsgByUniqueKey -t {TOPIC} -i 00000000",
    f"queryMsgById -t {TOPIC} -i 00000000",
    f"updateOrderConf -t {TOPIC} -m put -v broker-a:4",
    f"updateOrderConf -t {TOPIC} -m get",
    f"updateOrderConf -t {TOPIC} -m delete",
    f"skipAccumulatedMessage -g {GROUP} -t {TOPIC}",
    f"resetOffsetByTimeOld -g {GROUP} -t {TOPIC} -s 0",
    "wipeWritePerm -b broker-a",
    f"topicRoute -t {TOPIC}",
    "addWritePerm -b broker-a",
]
OF_THE_SERVER = ("brokerStatus", "getBrokerConfig", "getNamesrvConfig")
"""Each server has keys of its own: those that both have are compared."""
OF_ALL_TOPICS = ("topicList", "statsAll", "brokerConsumeStats", "consumerProgress")
"""The servers need other topics for themselves: the lines of what clients made are compared, in any order."""
MADE_BY_CLIENTS = ("admin_warm", TOPIC, ONLINE, f"%RETRY%{GROUP}", f"%RETRY%{ONLINE_GROUP}", GROUP, ONLINE_GROUP)
MADE_BEFORE = "made_group"
"""The real one still has its positions when the tests with changes ran before."""
ITS_OWN_GROUP = re.compile(r"\b(\w+) \1\b")
"""RocketMQ 5.3.3 names a topic that somebody consumes among the groups that consume it."""
OF_PRODUCERS = ("producer", "producerConnection")
"""Clients of the tools themselves, and one that warmed up, are known for a while: how many there are is no matter."""
SET_OTHERWISE = ("slaveReadEnable", "brokerFastFailureEnable", "storePathRootDir")
"""Our broker lets slaves serve readers unasked; the tests set the other two."""
VERSION = re.compile(r"\bVN_N_N\b|\bdejamq N\.N\.N\b")
RATES = re.compile(r"(?<=Tps : )[N. ]+$")
"""Of ten seconds, a minute and ten minutes; RocketMQ leaves out those that it is too young for."""
PUT_TIMES = re.compile(r"(?<=putMessageDistributeTime : ).*$")
"""Of the last seconds: null in RocketMQ where nothing was stored in them."""
A_SIZE = re.compile(r"\bN(\.N)? ([KMGT]i)?B\b")
WORD_OF_ITS_OWN = re.compile(r"[0-9A-F]{32}|@\w{6,8}\b|\d+")
A_TIME = re.compile(r"N-N-N N:N:N(,N)?|N/A")
LEFT_OUT = ("at ", "...", "MessageTrack", "See https://", "For more information")
pytestmark = [pytest.mark.mvn, pytest.mark.slow, pytest.mark.timeout(400)]


def comparable(output: str) -> dict[str, list[str]]:
    """The lines of each command without numbers, ids, times, the stack of an exception, and who else has a message."""
    found = {}
    for command, lines in by_scenario(output).items():
        told = [WORD_OF_ITS_OWN.sub("N", line) for line in lines if not line.lstrip().startswith(LEFT_OUT)]
        told = [A_SIZE.sub("SIZE", A_TIME.sub("T", " ".join(line.split()))) for line in told]
        found[command] = of_clients(told) if command.split()[0] in OF_ALL_TOPICS and "-g" not in command else told
    return found


def of_clients(lines: Iterable[str]) -> list[str]:
    of_theirs = [line for line in lines if set(MADE_BY_CLIENTS) & set(line.split()) and MADE_BEFORE not in line]
    return sorted(line for line in of_theirs if not ITS_OWN_GROUP.search(line))


def by_key(lines: list[str]) -> dict[str, str]:
    """Lines of ``key = value`` or ``key : value`` by their keys."""
    told = [PUT_TIMES.sub("TIMES", RATES.sub("RATES", VERSION.sub("VERSION", line))) for line in lines]
    return {re.split(r"\s*[:=]\s", line)[0]: line for line in told}


def differences(ours: dict[str, list[str]], real: dict[str, list[str]]) -> dict[str, list[tuple[str, str]]]:
    """By command: pairs of lines that are not the same, ours first."""
    found = {}
    for command in ours:
        name = command.split()[0]
        mine, other = ours[command], real[command]
        if name in OF_THE_SERVER:
            by_name, others = by_key(mine), by_key(other)
            both = sorted((by_name.keys() & others.keys()) - set(SET_OTHERWISE))
            assert len(both) > 3, command
            mine, other = [by_name[key] for key in both], [others[key] for key in both]
        elif name in OF_PRODUCERS:
            mine, other = ([line for line in dict.fromkeys(lines) if "_warm_" not in line] for lines in (mine, other))
        elif name == "printMsg":  # how many messages a queue has is by chance
            mine, other = sorted(set(mine)), sorted(set(other))
        mine, other = ([VERSION.sub("VERSION", line) for line in lines] for lines in (mine, other))
        pairs = [pair for pair in itertools.zip_longest(mine, other, fillvalue="") if pair[0] != pair[1]]
        if pairs:
            found[command] = pairs
    return found


async def broker_of(namesrv: str) -> str:
    client = await remoting_client.connect(namesrv, lambda command: None)
    try:
        told = await client.ask(requests.GET_CLUSTER_INFO, requests.Fields())
    finally:
        await client.close()
    return str(loads_loose(told.body.decode())["brokerAddrTable"]["broker-a"]["brokerAddrs"]["0"])


async def sent(broker: str, topic: str) -> None:
    """One message, by no client: the commands find no producer of it."""
    client = await remoting_client.connect(broker, lambda command: None)
    fields = requests.SendMessage(
        producer_group="nobody", topic=topic, queue_id=0, born_timestamp=time.time_ns() // 1_000_000,
        default_topic="TBW102", default_topic_queue_nums=1,
    )  # fmt: skip
    try:
        assert (await client.ask(requests.SEND_MESSAGE, fields, b"body 1")).code == 0
    finally:
        await client.close()


async def until_committed(broker: str, group: str, topics: Iterable[str], deadline_s: float = 120) -> None:
    """A member commits the position of each topic in a round of its own: the commands list what was committed."""
    question = requests.GroupProgressQuestion(consumer_group=group)
    client = await remoting_client.connect(broker, lambda command: None)
    try:
        async with asyncio.timeout(deadline_s):
            while True:
                told = await client.ask(requests.GET_CONSUME_STATS, question)
                if all(f'"topic":"{topic}"' in told.body.decode() for topic in topics):
                    return
                await asyncio.sleep(0.2)
    finally:
        await client.close()


@pytest.mark.parametrize("commands", [CHANGES, LOOKS], ids=["changes", "looks"])
async def test_commands_print_what_they_print_with_rocketmq(
    namesrv: str, real_namesrv: str, tmp_path: Path, commands: list[str]
) -> None:
    clients, tools = compiled("5.3.3"), compiled("5.3.3", "Commands")

    async def all_commands(address: str) -> str:
        await said(clients, address, "admin", ["concurrent"], tmp_path)
        broker = await broker_of(address)
        await sent(broker, ONLINE)
        async with java_member("5.3.3", address, tmp_path) as got:
            async with asyncio.timeout(120):
                while not got:
                    await asyncio.sleep(0.1)
            await until_committed(broker, ONLINE_GROUP, [ONLINE, f"%RETRY%{ONLINE_GROUP}"])
            told = [command.replace(BROKER, broker) for command in commands]
            output = await output_of(java(tools, tmp_path, "Commands", address, *told), tmp_path)
        return output.replace(broker, BROKER)

    ours, real = await asyncio.gather(all_commands(namesrv), all_commands(real_namesrv))
    assert list(comparable(ours)) == list(comparable(real)) == [*dict.fromkeys(commands), "end"]
    assert differences(comparable(ours), comparable(real)) == {}
