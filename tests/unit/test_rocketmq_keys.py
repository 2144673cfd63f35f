"""The list of RocketMQ's keys: whole, and that of the jars where they are at hand."""

import pytest
import rocketmq_keys
from dejamq_lab.machines.jars import jar_cache, java_absence
from dejamq_lab.machines.rocketmq import VERSION
from dejamq_proto.config.rocketmq_keys import CUSTOMARY, LIST, keys_of

JARS = jar_cache("rocketmq", VERSION)


def test_the_list_has_the_keys_of_all_classes_that_servers_read() -> None:
    assert {"brokerIP1", "brokerIP2", "longPollingEnable"} < keys_of(("BrokerConfig",))
    assert {"haListenPort", "storePathCommitLog", "deleteWhen"} < keys_of(("MessageStoreConfig",))
    assert {"listenPort", "serverWorkerThreads"} < keys_of(("NettyServerConfig",))
    assert "kvConfigPath" in keys_of(("NamesrvConfig",))


def test_customary_keys_are_those_that_the_classes_lack() -> None:
    assert not CUSTOMARY & {line.split()[1] for line in LIST.read_text(encoding="utf-8").splitlines()[1:]}


@pytest.mark.skipif(not JARS.exists() or java_absence(JARS) is not None, reason="RocketMQ's jars are not here")
def test_the_list_is_that_of_the_jars() -> None:
    assert rocketmq_keys.listed(JARS) == LIST.read_text(encoding="utf-8")
