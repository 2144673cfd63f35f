"""docs/telemetry.md: its example runs as written against a receiver of OTLP, and names what there is."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from dejamq.telemetry import conventions
from dejamq_lab import Cluster
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from otlp_receiver import attributes, receiver

PAGE = (Path(__file__).parents[2] / "docs" / "telemetry.md").read_text()


def run_example(folder: Path, namesrv: str, collector: str) -> None:
    """The example as written, exporting to this address."""
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    script = folder / "example.py"
    script.write_text(block)
    environment = {"DEJAMQ_NAMESRV": namesrv, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{collector}"}
    done = subprocess.run(
        [sys.executable, str(script)], env=os.environ | environment, capture_output=True, text=True, timeout=50,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.process
def test_the_example_exports_one_trace_of_a_send_a_failure_and_a_retry(tmp_path: Path) -> None:
    with receiver() as received, Cluster(directory=tmp_path / "cluster", time_scale=0.02) as cluster:
        run_example(tmp_path, cluster.namesrv, received.address)
    named: dict[str, list[Span]] = {}
    for service, span in received.spans():
        assert service == "shop"
        named.setdefault(span.name, []).append(span)
    (send,), (back,) = named["send orders"], named["send_back orders"]
    first, second = sorted(named["process orders"], key=lambda span: span.start_time_unix_nano)
    assert first.trace_id == second.trace_id == back.trace_id == send.trace_id
    assert (first.parent_span_id, second.parent_span_id, back.parent_span_id) == (
        send.span_id, send.span_id, first.span_id,
    )  # fmt: skip
    assert attributes(first)["error.type"] == "ConnectionError"
    assert attributes(second)["dejamq.redelivery"] == "retry"
    assert [link.span_id for link in second.links] == [send.span_id, first.span_id]
    told = received.metrics("shop")
    assert told["messaging.client.sent.messages"].sum.data_points[0].as_int == 1
    assert sum(point.as_int for point in told["messaging.client.consumed.messages"].sum.data_points) == 2


def test_every_attribute_of_our_own_is_on_the_page() -> None:
    named = (value for name, value in vars(conventions).items() if name.isupper())
    ours = {value for value in named if isinstance(value, str) and value.startswith("dejamq.")}
    unnamed = {"dejamq.producer.group", "dejamq.commit.reason", "dejamq.earlier_delivery.status"}
    assert len(ours) > 10
    assert [name for name in sorted(ours - unnamed) if name not in PAGE] == []
