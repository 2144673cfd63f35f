"""Health, metrics and runtime info of a running broker, as probes, Prometheus and operators ask for them."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from consumer_cluster import Servers, servers, until
from dejamq import Admin, ConsumeFrom, Message, ReceivedMessage, TransactionProducer, TransactionState
from dejamq_broker.store.files.errors import StoreFull
from dejamq_broker.tables.offsets import Position
from dejamq_proto.codes import ConfigError
from dejamq_proto.probe import state_of
from prometheus_client.parser import text_string_to_metric_families

Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Servers]:
    async with servers(tmp_path, metrics_listen="127.0.0.1:0") as site:
        yield site


def page(site: Servers, path: str = "/metrics", **headers: str) -> str:
    assert site.broker is not None
    request = urllib.request.Request(f"http://{site.broker.watched.metrics_address}{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(answer.read().decode())


async def scraped(site: Servers) -> Samples:
    """Values by name and labels other than those of the node."""
    found: Samples = {}
    for family in text_string_to_metric_families(await asyncio.to_thread(page, site)):
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if name not in NODE}
            found.setdefault(sample.name, {})[tuple(sorted(labels.items()))] = sample.value
    return found


NODE = ("cluster", "node_type", "node_id", "is_system", "is_retry", "message_type", "version", "language")


def at(**labels: object) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in labels.items()))


async def test_metrics_have_rocketmqs_names_and_what_happened(site: Servers) -> None:
    async def handler(message: ReceivedMessage) -> None:
        """Consumed."""

    await site.send("a", "bb", "ccc")
    consumer = site.consumer(consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe("orders", handler)
    async with consumer, site.producer() as producer:
        await producer.send(Message("orders", b"dddd"))
        seen: Samples = {}

        async def consumed() -> bool:
            nonlocal seen
            seen = await scraped(site)
            lag = seen.get("rocketmq_consumer_lag_messages", {}).get(at(topic="orders", consumer_group="g"))
            out = seen.get("rocketmq_messages_out_total", {}).get(at(topic="orders", consumer_group="g"))
            return (lag, out) == (0, 4)

        async with asyncio.timeout(15):
            while not await consumed():
                await asyncio.sleep(0.05)
    assert seen["rocketmq_messages_in_total"][at(topic="orders")] == 4
    assert seen["rocketmq_throughput_in_total"][at(topic="orders")] > 400
    assert seen["rocketmq_message_size_count"][()] >= 4
    assert seen["rocketmq_message_size_bucket"][at(le="1024")] >= 4
    assert seen["rocketmq_producer_connections"][()] == 1
    assert seen["rocketmq_consumer_connections"][at(consumer_group="g", consume_mode="CLUSTERING")] == 1
    assert seen["rocketmq_consumer_inflight_messages"][at(topic="orders", consumer_group="g")] == 0
    assert seen["rocketmq_broker_permission"][()] == 6
    assert site.broker is not None
    assert seen["rocketmq_topic_number"][()] == len(list(site.broker.domain.tables.topics))
    assert seen["rocketmq_storage_size"][()] > 0
    assert seen["rocketmq_storage_dispatch_behind_bytes"][()] == 0
    timed = at(request_code="QueryOffset", response_code="SUCCESS", is_long_polling="false")
    assert seen["rocketmq_rpc_latency_count"][timed] > 0
    assert seen["process_resident_memory_bytes"][()] > 10 << 20
    for name in (
        "rocketmq_throughput_out_total", "rocketmq_storage_flush_behind_bytes", "rocketmq_storage_message_reserve_time",
        "rocketmq_consumer_group_number", "rocketmq_consumer_lag_latency", "rocketmq_consumer_ready_messages",
        "rocketmq_consumer_queueing_latency", "rocketmq_group_get_latency_milliseconds_total",
    ):  # fmt: skip
        assert name in seen, name


async def test_metrics_tell_the_permission_in_force_not_that_of_the_start(site: Servers) -> None:
    assert site.broker is not None
    site.broker.domain.services.settings.update({"broker_permission": "4"})
    assert (await scraped(site))["rocketmq_broker_permission"][()] == 4


async def test_the_lag_of_a_group_that_went_away_is_told_and_never_negative(site: Servers) -> None:
    await site.send("a")
    assert site.broker is not None
    domain = site.broker.domain
    domain.tables.groups.require("gone")
    await until(lambda: domain.store.dispatched == domain.store.log_max)
    ends = [domain.store.max_offset("orders", queue_id) for queue_id in range(4)]
    for queue_id, end in enumerate(ends):
        domain.tables.offsets.commit(Position("gone", "orders", queue_id), 0 if end else 7, by="test")
    seen = await scraped(site)
    gone = at(topic="orders", consumer_group="gone")
    assert seen["rocketmq_consumer_lag_messages"][gone] == 1
    assert seen["rocketmq_consumer_lag_latency"][gone] > 0
    assert seen["rocketmq_consumer_ready_messages"][gone] == 1


async def test_transactions_are_counted_by_how_they_ended(site: Servers) -> None:
    ends = [TransactionState.COMMIT, TransactionState.COMMIT, TransactionState.ROLLBACK]
    producer = TransactionProducer(
        "tx", checker=lambda message: TransactionState.UNKNOWN, namesrv=site.namesrv.address
    )  # fmt: skip
    async with producer:
        for end in ends:
            await producer.send_in_transaction(Message("orders", b"a"), lambda message, end=end: end)  # type: ignore[misc]
        seen: Samples = {}

        async def ended() -> bool:
            nonlocal seen
            seen = await scraped(site)
            done = seen.get("rocketmq_commit_messages_total", {}), seen.get("rocketmq_rollback_messages_total", {})
            return sum(sum(one.values()) for one in done) == len(ends)

        async with asyncio.timeout(15):
            while not await ended():
                await asyncio.sleep(0.05)
    assert seen["rocketmq_commit_messages_total"] == {at(topic="orders"): 2}
    assert seen["rocketmq_rollback_messages_total"] == {at(topic="orders"): 1}


async def test_only_metrics_are_there(site: Servers) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        await asyncio.to_thread(page, site, "/")
    openmetrics = await asyncio.to_thread(page, site, Accept="application/openmetrics-text; version=1.0.0")
    assert openmetrics.endswith("# EOF\n")


@pytest.mark.parametrize("sent", [b"GET", b"\x00" * 20_000, b"GET /metrics\r\n\r\n", b"POST /metrics HTTP/1.1\r\n\r\n"])
async def test_what_is_no_request_leaves_the_server_as_it_was(site: Servers, sent: bytes) -> None:
    assert site.broker is not None
    host, _, port = site.broker.watched.metrics_address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sent)
    writer.write_eof()
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    assert b"Traceback" not in answer
    assert "rocketmq_storage_size" in await asyncio.to_thread(page, site)


async def test_metrics_are_off_unless_asked_for(tmp_path: Path) -> None:
    async with servers(tmp_path) as site:
        assert site.broker is not None
        assert site.broker.watched.metrics_address == ""


async def test_a_port_in_use_for_metrics_is_said_in_one_line(site: Servers, tmp_path: Path) -> None:
    assert site.broker is not None
    with pytest.raises(ConfigError, match="cannot serve metrics on"):
        async with servers(tmp_path / "other", metrics_listen=site.broker.watched.metrics_address):
            pass


# health


async def test_health_is_told_for_the_process_for_clients_and_for_each_service(site: Servers) -> None:
    for service in ("", "liveness", "readiness", "dejamq.v1.Send", "dejamq.v1.Pull"):
        assert await state_of(site.address, service=service) == "SERVING", service
    assert await state_of(site.address, service="nothing") == "NOT_FOUND"
    assert await state_of(site.namesrv.address, service="readiness") == "SERVING"


async def test_a_full_disk_closes_the_send_service_and_nothing_else(site: Servers) -> None:
    assert site.broker is not None
    broker = site.broker
    disk = broker.domain.store.inspect().disk
    full, disk.refuses = disk.refusal, True
    disk.refusal = lambda: StoreFull("full")  # type: ignore[method-assign]
    await broker.watched.look_at_health()
    assert await state_of(site.address, service="dejamq.v1.Send") == "NOT_SERVING"
    for service in ("", "liveness", "readiness", "dejamq.v1.Pull"):
        assert await state_of(site.address, service=service) == "SERVING"
    disk.refusal, disk.refuses = full, False  # type: ignore[method-assign]
    await broker.watched.look_at_health()
    assert await state_of(site.address, service="dejamq.v1.Send") == "SERVING"


async def test_a_broker_that_drains_is_alive_and_not_ready(site: Servers) -> None:
    assert site.broker is not None
    await site.broker._drain()
    assert await state_of(site.address, service="liveness") == "SERVING"
    for service in ("", "readiness", "dejamq.v1.Send", "dejamq.v1.Pull"):
        assert await state_of(site.address, service=service) == "NOT_SERVING"
    await site.broker.watched.look_at_health()
    assert await state_of(site.address, service="dejamq.v1.Send") == "NOT_SERVING"


# runtime info and statistics


async def test_an_operator_asks_what_the_broker_did(site: Servers) -> None:
    await site.send("a", "b")
    async with Admin(site.namesrv.address) as admin:
        info = await admin.runtime_info("broker-a")
        lines = await admin.stats("TOPIC_PUT_NUMS")
    assert info["putMessageTimesTotal"] == info["msgPutTotalTodayNow"] == "2"
    assert info["brokerActive"] == "true"
    assert info["brokerVersionDesc"].startswith("dejamq ")
    assert info["putMessageDistributeTime"].startswith("[<=0ms]:")
    assert len(info["putTps"].split()) == 3
    assert [(line.key, line.minute.sum, line.broker_name) for line in lines] == [("orders", 2, "broker-a")]
