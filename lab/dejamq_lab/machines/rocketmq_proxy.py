"""A real RocketMQ with its proxy, the gRPC door of RocketMQ 5, in its local mode: broker and proxy are one process."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from dejamq_lab.machines.jars import fetched, jar_cache
from dejamq_lab.machines.rocketmq import BROKER, VERSION, RocketMQ, wait_for_brokers

POM = Path(__file__).with_name("rocketmq_proxy.xml")
BOOTED = "startup successfully"
QUEUES = 4
ALWAYS = {"enableMixedMessageType": "true", "timerWheelEnable": "true"}
"""Without its timer a RocketMQ refuses pops."""


def proxy_jars() -> Path:
    """The folder with the jars, filled by Maven if it is not. Raises Missing."""
    return fetched(POM, jar_cache("rocketmq-proxy", VERSION), f"rocketmq-proxy-{VERSION}.jar")


class RocketMQProxy(RocketMQ):
    """As ``RocketMQ``; ``address`` is that of the proxy's gRPC port.

    Topics and groups with settings are written into the store before the start: a proxy makes no topic on first use.
    """

    def __init__(
        self, jars: Path, store: Path, work: Path, settings: Mapping[str, object], topics: Sequence[str],
        groups: Mapping[str, Mapping[str, object]], heap: str = "512m", proxy: Mapping[str, object] | None = None,
    ) -> None:  # fmt: skip
        """``topics`` take all types of messages. ``groups``: RocketMQ's names of their settings. ``proxy``: further
        settings of the proxy, by RocketMQ's names.
        """
        self._proxy = proxy or {}
        super().__init__(jars, store, work, ALWAYS | dict(settings), heap)
        self.address, self._main = "", list[str]()
        self._config("topics", {"topicConfigTable": {topic: _topic(topic) for topic in topics}})
        table = {group: _group(group) | dict(more) for group, more in groups.items()}
        self._config("subscriptionGroup", {"subscriptionGroupTable": table, "forbiddenTable": {}})

    def restart(self) -> None:
        """A clean stop, and a start at the same ports."""
        self.stop()
        self._processes.pop()
        self._start("proxy", *self._main, booted=BOOTED)
        wait_for_brokers(self.namesrv, [BROKER])

    def _start_broker(self) -> None:
        port, conf = self._block(), self._work / "rmq-proxy.json"
        conf.write_text(json.dumps({
            "rocketMQClusterName": "DefaultCluster", "proxyMode": "LOCAL", "namesrvAddr": self.namesrv,
            "grpcServerPort": port, "remotingListenPort": port + 1, "localServeAddr": "127.0.0.1",
            **self._proxy,
        }))  # fmt: skip
        self.address = f"127.0.0.1:{port}"
        self._main = [
            "org.apache.rocketmq.proxy.ProxyStartup", "-pm", "LOCAL", "-n", self.namesrv,
            "-bc", str(self._broker_conf()), "-pc", str(conf),
        ]  # fmt: skip
        self._start("proxy", *self._main, booted=BOOTED)

    def _config(self, name: str, tables: Mapping[str, object]) -> None:
        version = {"counter": 1, "stateVersion": 0, "timestamp": 0}
        path = self._store / "config" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"dataVersion": version} | dict(tables)))


def _topic(name: str) -> dict[str, object]:
    return {
        "topicName": name, "attributes": {"message.type": "MIXED"}, "order": False, "perm": 6, "topicSysFlag": 0,
        "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "topicFilterType": "SINGLE_TAG",
    }  # fmt: skip


def _group(name: str) -> dict[str, object]:
    return {
        "groupName": name, "consumeEnable": True, "consumeFromMinEnable": True, "consumeBroadcastEnable": True,
        "consumeMessageOrderly": False, "retryQueueNums": 1, "retryMaxTimes": 16, "brokerId": 0,
        "whichBrokerWhenConsumeSlowly": 1, "notifyConsumerIdsChangedEnable": True, "groupSysFlag": 0,
        "consumeTimeoutMinute": 15,
    }  # fmt: skip
