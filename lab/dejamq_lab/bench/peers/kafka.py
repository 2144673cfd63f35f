"""Kafka, one broker that is its own controller (KRaft); its jars come by Maven."""

import asyncio
import base64
import uuid
from pathlib import Path

from dejamq_lab.bench.peers.peer import Peer
from dejamq_lab.cluster.plan import LOOPBACK
from dejamq_lab.machines.jars import fetched, jar_cache, java_absence

VERSION = "3.9.1"
POM = Path(__file__).with_name("kafka.xml")
JAVA = ["java", "-Xmx1g", "-XX:+UseG1GC", "-Djava.awt.headless=true"]
SESSION_MS = 600_000
"""Its controller is the same process: a broker that stood still with it has not gone."""


class Kafka(Peer):
    name = "kafka"
    program = ("java", "of a JDK of version 17 or newer")
    library = "confluent_kafka"
    sync_flush = True
    durability = "acks=all of one broker, asynchronous flush; consumer group, offsets committed every 5 s"

    @classmethod
    def absence(cls) -> str | None:
        missing = java_absence(jar_cache("kafka", VERSION))
        return f"{cls.name}: {missing}" if missing else super().absence()

    async def start(self) -> str:
        jars = await asyncio.to_thread(fetched, POM, jar_cache("kafka", VERSION), f"kafka_2.13-{VERSION}.jar")
        port, controller = self.held_ports(2)
        settings = {
            "process.roles": "broker,controller", "node.id": 1, "log.dirs": self.folder / "logs",
            "controller.quorum.voters": f"1@{LOOPBACK}:{controller}", "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "num.partitions": self.load.queues, "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1, "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1, "group.initial.rebalance.delay.ms": 0, "log.segment.delete.delay.ms": 0,
            "broker.session.timeout.ms": SESSION_MS,
        }  # fmt: skip
        if self.load.flush_mode == "sync":
            settings["log.flush.interval.messages"] = 1
        file = self.folder / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        classes = ["-cp", f"{jars}/*"]
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        log = self.spawn([*JAVA, *classes, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(file)])
        if await asyncio.to_thread(self.processes.pop().wait):
            raise self.failed(log)
        return await self.listening(port, self.spawn([*JAVA, *classes, "kafka.Kafka", str(file)]))
