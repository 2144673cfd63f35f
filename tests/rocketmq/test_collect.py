"""``dejamq collect`` on a RocketMQ and on dejamq with Java clients: what it learns, and that nothing changes."""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from broker_wire import until
from cli_runner import Ran, run_process
from dejamq_lab.machines.rocketmq import RocketMQ
from dejamq_proto.loose_json import loads_loose
from dejamq_proto.remoting import requests as r
from evidence import bodies_of, files_of, lines_of
from java_clients import VERSIONS, by_scenario, command_of, compiled, jars_of, said
from remoting_wire import RemotingClient, a_send, remoting

TRACES = "RMQ_SYS_TRACE_TOPIC"
PATIENCE_S = 90
pytestmark = [pytest.mark.mvn, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(params=["dejamq", "rocketmq"])
def address(request: pytest.FixtureRequest) -> Any:
    """The name server's."""
    return request.getfixturevalue("namesrv" if request.param == "dejamq" else "real_namesrv")


async def body(client: RemotingClient, request: Any, **ext: Any) -> Any:
    answer = await client.ask(request, **ext)
    return loads_loose(answer.body.decode()) if answer.body else (answer.code, answer.remark)


async def broker_of(namesrv: str) -> str:
    async with remoting(namesrv) as client:
        table = (await body(client, r.GET_CLUSTER_INFO))["brokerAddrTable"]
    return str(next(iter(table.values()))["brokerAddrs"]["0"])


async def state_of(namesrv: str, group: str) -> dict[str, Any]:
    """What somebody would see if the collecting left a trace of its own."""
    async with remoting(namesrv) as names, remoting(await broker_of(namesrv)) as broker:
        ends = [await broker.ask(r.GET_MAX_OFFSET, topic="OFFSET_MOVED_EVENT", queueId=0)]
        return {
            "topics at the name server": sorted((await body(names, r.GET_ALL_TOPICS))["topicList"]),
            "topics": (await body(broker, r.GET_ALL_TOPIC_CONFIG))["topicConfigTable"],
            "groups": sorted((await body(broker, r.GET_ALL_GROUPS))["subscriptionGroupTable"]),
            "offsets": (await body(broker, r.GET_ALL_CONSUMER_OFFSET))["offsetTable"],
            "consumers of the trace topic": await body(broker, r.WHO_CONSUMES, topic=TRACES),
            "the pulling group": await body(broker, r.GET_CONSUMER_CONNECTIONS, consumerGroup="TOOLS_CONSUMER"),
            "members": (await body(broker, r.GET_CONSUMER_CONNECTIONS, consumerGroup=group))["connectionSet"],
            "events of moved offsets": [one.ext.get("offset") for one in ends],
        }


@asynccontextmanager
async def member(version: str, namesrv: str, word: str, home: Path) -> AsyncIterator[None]:
    """A Java consumer of the topic ``WORD_member``, which has taken a message of it and committed all its positions."""
    topic, group = f"{word}_member", f"{word}_member_group"
    async with remoting(await broker_of(namesrv)) as broker:
        settings = {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "perm": 6, "order": "false"}
        await broker.ask(r.UPDATE_TOPIC, topic=topic, readQueueNums=1, writeQueueNums=1, topicSysFlag=0, **settings)
        assert (await broker.ask(r.SEND_MESSAGE_V2, b"x", **a_send(topic))).code == 0
        process = await asyncio.create_subprocess_exec(
            *command_of(compiled(version), namesrv, word, ["member"], home),
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        try:

            async def committed() -> bool:
                table = (await body(broker, r.GET_ALL_CONSUMER_OFFSET))["offsetTable"]
                return bool(table.get(f"{topic}@{group}") == {"0": 1} and f"%RETRY%{group}@{group}" in table)

            await until(committed, PATIENCE_S)
            yield
        finally:
            process.kill()
            await process.wait()


async def collect(namesrv: str, out: Path, *more: str) -> Ran:
    return await run_process("collect", "--namesrv", namesrv, "--out", str(out), "--once", "-o", "json", *more)


async def traced(version: str, namesrv: str, word: str, home: Path) -> None:
    """A Java producer whose trace is in the trace topic."""
    told = by_scenario(await said(compiled(version), namesrv, word, ["traced"], home))
    assert told["traced"] == ["SEND_OK", "traces 1"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_snapshot_tells_of_java_clients_and_changes_nothing(address: str, version: str, tmp_path: Path) -> None:
    word = f"c{version.replace('.', '')}"
    group = f"{word}_member_group"
    await traced(version, address, word, tmp_path)
    async with member(version, address, word, tmp_path):
        before = await state_of(address, group)
        summary = (await collect(address, tmp_path / "ev", "--running-info", "--group", group)).json()
        assert await state_of(address, group) == before
    out = tmp_path / "ev"
    assert summary["silent"] == {}
    (connections,) = lines_of(out, "connections", group=group)
    (client,) = connections["body"]["connectionSet"]
    assert client["language"] == "JAVA"
    (members,) = lines_of(out, "members", group=group)
    assert members["body"] == {"consumerIdList": [client["clientId"]]}
    (running,) = lines_of(out, "running", group=group, client_id=client["clientId"])
    queues = {json.loads(key)["topic"]: value for key, value in running["body"]["mqTable"].items()}
    assert queues[f"{word}_member"]["commitOffset"] == 1
    (offsets,) = lines_of(out, "offsets")
    assert offsets["body"]["offsetTable"][f"{word}_member@{group}"] == {"0": 1}
    assert [line["code"] for line in lines_of(out, "delay_offsets")] == [0]
    assert {line["topic"] for line in lines_of(out, "routes", code=0)} >= {TRACES, f"{word}_member"}
    assert any(f"{word}_traced_group" in text for text in bodies_of(out))
    assert all(text.startswith(("Pub\u0001", "Sub")) for text in bodies_of(out))


async def test_the_trace_topic_goes_on_where_it_was_read_to(real_namesrv: str, tmp_path: Path) -> None:
    for number in range(2):
        await traced("5.3.3", real_namesrv, f"again{number}", tmp_path)
        assert (await collect(real_namesrv, tmp_path / "ev")).status == 0
    places = [(line["queue_id"], line["queue_offset"]) for line in lines_of(tmp_path / "ev", "trace")]
    assert len(set(places)) == len(places)
    for number in range(2):
        assert sum(f"again{number}_traced_group" in text for text in bodies_of(tmp_path / "ev")) == 1
    assert lines_of(tmp_path / "ev", "session", event="gap") == []


async def test_a_broker_with_access_control_answers_an_account_and_says_why_it_refuses_others(tmp_path: Path) -> None:
    user, account = {"username": "auditor", "password": "quiet"}, {"accessKey": "auditor", "secretKey": "quiet"}
    providers = "org.apache.rocketmq.auth.authentication.provider"
    settings = {
        "authenticationEnabled": "true", "initAuthenticationUser": json.dumps(user),
        "innerClientAuthenticationCredentials": json.dumps(account),
        "authenticationProvider": f"{providers}.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{providers}.LocalAuthenticationMetadataProvider",
        "authConfigPath": tmp_path / "auth",
    }  # fmt: skip
    with RocketMQ(jars_of("5.3.3"), tmp_path / "store", tmp_path / "work", settings) as real:

        async def registered() -> bool:
            async with remoting(real.namesrv) as names:
                return bool((await body(names, r.GET_CLUSTER_INFO))["brokerAddrTable"])

        await until(registered, PATIENCE_S)
        refused = await collect(real.namesrv, tmp_path / "refused")
        with mock.patch.dict(os.environ, {"DEJAMQ_SECRET_KEY": "quiet"}):
            answered = await collect(real.namesrv, tmp_path / "ev", "--access-key", "auditor")
    assert refused.json()["refused"].keys() == {"offsets", "delay_offsets", "groups"}
    assert "refuses offsets: " in refused.errors
    assert answered.json()["refused"] == {}
    assert {line["code"] for line in lines_of(tmp_path / "ev", "offsets")} == {0}
    assert b"quiet" not in b"".join(path.read_bytes() for path in files_of(tmp_path / "ev"))
