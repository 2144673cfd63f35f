"""What the lab reads from the containers of its servers."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from dejamq_broker.base.config import BrokerConfig
from dejamq_lab.cluster.process import ServerProcess
from dejamq_lab.machines.engine import Project
from dejamq_lab.scenario.stage.containers import Container, ServerContainer
from dejamq_proto.journal.writer import open_journal

TORN = """\
time=2026-11-22T07:53:58 level=info event=setting name=ready broker broker-a 198.51.100.18:10911
sync_flush_timeout_ms value=1118 default=5000
time=2026-11-22T07:53:59 level=info event=journal level=forensic
"""
"""What ``docker start --attach`` once printed: the errors, with the output in the middle of one of their lines."""


class Printing(ServerContainer):
    """Its process prints what an engine printed, and stays."""

    def command(self) -> list[str]:
        return ["sh", "-c", f"printf %s '{TORN}'; exec sleep 60"]

    def send_signal(self, number: signal.Signals) -> None:
        ServerProcess.send_signal(self, number)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Printing]:
    journal = open_journal(None, role="harness", process="lab", boot_id="1", level="audit")
    container = Container(Project("p", tmp_path / "docker-compose.yml"), tmp_path, "broker-a")
    server = Printing(BrokerConfig(broker_name="broker-a"), tmp_path, journal, container, "198.51.100.18:10911")
    yield server
    server.end()


async def test_a_ready_line_in_the_middle_of_a_logged_one_is_seen(server: Printing) -> None:
    server.spawn()
    await server.started()
    assert server.address == "198.51.100.18:10911"
