"""Servers for RocketMQ's own clients: ours in this process, and a real RocketMQ beside them."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from dejamq_broker.app import Broker
from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.store import StoreConfig
from dejamq_lab.machines.rocketmq_proxy import RocketMQProxy, proxy_jars
from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig
from v2_clients import SCENARIOS, settings_of_groups


@pytest.fixture
async def namesrv(tmp_path: Path) -> AsyncIterator[str]:
    """A name server and a broker of ours."""
    server = NameServer(NamesrvConfig(listen="127.0.0.1:0"))
    address = await server.start()
    store = StoreConfig(
        mapped_file_size_commit_log=64 << 20, mapped_file_size_consume_queue=60_000, max_hash_slot_num=4999,
        max_index_num=20_000, disk_check_enable=False,
    )  # fmt: skip
    broker = Broker(BrokerConfig(
        listen="127.0.0.1:0", namesrv=address, store_directory=str(tmp_path / "store"), store=store,
        transaction_timeout_ms=4_000, transaction_check_interval_ms=5_000, enable_property_filter=True,
        broker_fast_failure_enable=False,
    ))  # fmt: skip
    await broker.start()
    yield address
    await broker.close()
    await server.close()


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQProxy]:
    """A real RocketMQ 5.3.3 with its proxy, and a topic of each scenario for word ``w``."""
    folder = tmp_path_factory.mktemp("real")
    settings = {
        "transactionTimeOut": 4_000,
        "transactionCheckInterval": 5_000,
        "enablePropertyFilter": "true",
        "timerWheelEnable": "true",
        "recallMessageEnable": "true",
    }
    topics = [f"w-{scenario}" for scenario in (*SCENARIOS, "wire")]
    with RocketMQProxy(
        proxy_jars(), folder / "store", folder / "work", settings, topics, settings_of_groups("w")
    ) as servers:
        yield servers


@pytest.fixture
def real_namesrv(real: RocketMQProxy) -> str:
    return real.namesrv
