"""Metrics of servers by OTLP: a receiver gets what ``/metrics`` shows."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from consumer_cluster import servers, until
from dejamq_lab.cluster.ports import held_ports
from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig
from dejamq_proto.codes import ConfigError
from dejamq_proto.serving import otlp
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE
from otlp_receiver import attributes, receiver
from prometheus_client.parser import text_string_to_metric_families
from test_broker_watched import page


def target(address: str, **settings: Any) -> dict[str, Any]:
    return {"metrics_otlp_target": f"http://{address}", "metrics_otlp_interval_ms": 100} | settings


async def test_a_broker_exports_the_numbers_that_prometheus_reads(tmp_path: Path) -> None:
    with receiver() as received:
        settings = target(received.address, metrics_listen="127.0.0.1:0", metrics_otlp_secret_header="api-key:s3cret")
        async with servers(tmp_path, **settings) as here:
            await here.send("a", "bb", "ccc")
            await until(lambda: "rocketmq_messages_in_total" in received.metrics("dejamq-broker"))
            shown = list(text_string_to_metric_families(await asyncio.to_thread(page, here)))
            before = received.exports
            await until(lambda: received.exports > before + 1)
        told = received.metrics("dejamq-broker")
    counters = {family.name + "_total" for family in shown if family.type == "counter" and family.samples}
    others = {family.name for family in shown if family.type != "counter" and family.samples}
    assert set(told) >= counters | others
    assert received.headers["api-key"] == "s3cret"
    (stored,) = [
        point for point in told["rocketmq_messages_in_total"].sum.data_points if attributes(point)["topic"] == "orders"
    ]
    assert stored.as_int == 3
    assert attributes(stored)["node_id"] == "broker-a"
    assert told["rocketmq_messages_in_total"].sum.is_monotonic
    assert told["rocketmq_messages_in_total"].sum.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
    (sizes,) = told["rocketmq_message_size"].histogram.data_points
    assert sum(sizes.bucket_counts) == sizes.count >= 1
    assert len(sizes.bucket_counts) == len(sizes.explicit_bounds) + 1
    assert told["rocketmq_topic_number"].gauge.data_points[0].as_int >= 1


async def test_a_name_server_exports_its_numbers_and_the_last_ones_when_it_closes() -> None:
    with receiver() as received:
        config = NamesrvConfig(
            listen="127.0.0.1:0", metrics_otlp_target=f"http://{received.address}", metrics_otlp_interval_ms=600_000
        )
        server = NameServer(config)
        await server.start()
        assert (server.metrics_address, received.exports) == ("", 0)
        await server.close()
        assert received.exports == 1
        assert "dejamq_namesrv_brokers" in received.metrics("dejamq-namesrv")


async def test_a_target_that_is_away_is_told_once_and_gets_later_numbers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def said(event: str) -> int:
        return sum(record.getMessage().startswith(event) for record in caplog.records)

    caplog.set_level(logging.INFO, "dejamq_proto")
    with held_ports(1) as (port,):
        settings = target(f"127.0.0.1:{port}", metrics_otlp_timeout_ms=200)
        async with servers(tmp_path, **settings) as here:
            await until(lambda: said("otlp_export_failed"))
            await here.send("a")
            await asyncio.sleep(0.5)  # further exports fail: they are not told again
            with receiver(port) as received:
                await until(lambda: received.metrics("dejamq-broker"), 30)
                await until(lambda: said("otlp_export_works"))
                assert said("otlp_export_failed") == 1


async def test_a_server_with_a_target_that_is_away_closes_soon() -> None:
    with held_ports(1) as (port,):
        config = NamesrvConfig(
            listen="127.0.0.1:0", metrics_otlp_target=f"http://127.0.0.1:{port}", metrics_otlp_interval_ms=10,
            metrics_otlp_timeout_ms=60_000,
        )  # fmt: skip
        server = NameServer(config)
        await server.start()
        await asyncio.sleep(0.1)
        async with asyncio.timeout(20):  # and not the time-out of an export
            await server.close()


def test_a_missing_library_is_one_line_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    otlp.check_otlp_library()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'dejamq\[broker,otel\]'"):
        otlp.check_otlp_library()
