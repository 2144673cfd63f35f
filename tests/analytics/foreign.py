"""What a RocketMQ cluster leaves behind, written by hand: logs, a store, traces. Times are ms since it began."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from dejamq_analytics.evidence.translate import Reading
from dejamq_analytics.report.verdict import Verdict
from dejamq_analytics.run import Request, run_audit
from dejamq_analytics.sources.commit_log import log_files, scan
from dejamq_broker.store import MessageStore, StoreConfig
from dejamq_proto import names
from dejamq_proto.records.hosts import offset_message_id
from dejamq_proto.records.record import SYS_TRANSACTION_COMMIT, Record, encode_properties

BEGAN_MS = 1_795_781_800_000
GMT8 = timedelta(hours=8)
GROUP, TOPIC, BROKER = "billing", "orders", "broker-a"
RETRY = names.retry_topic(GROUP)
FOREVER_MS = 10_000_000


class Place(NamedTuple):
    """Where a record is."""

    queue_offset: int
    log_offset: int


def key_of(number: int, pid: int = 0x0101) -> str:
    """A message's unique key, of a producer at 10.0.0.5."""
    return f"0A000005{pid:04X}2A139A55{number:012X}"


def printed(queue: int = 0, topic: str = TOPIC) -> str:
    return f"MessageQueue [topic={topic}, brokerName={BROKER}, queueId={queue}]"


class Incident:
    """Its files, written when it is audited."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 0
        self._lines: dict[Path, list[tuple[int, str]]] = defaultdict(list)
        self.traces: list[tuple[int, list[list[object]]]] = []
        """Records of handlers, and when each was sent."""
        config = StoreConfig(mapped_file_size_commit_log=1 << 20)
        self._store = MessageStore.open(folder / BROKER / "store", config, clock_ms=lambda: BEGAN_MS + self.now)
        self.server(0, "- brokerName=broker-a")
        self.server(0, "last shutdown normally, store path root dir: /home/rocketmq/store", "store.log")

    def client(self, machine: str, at: int, text: str, pid: int = 41) -> None:
        """A line of a Java client."""
        file = self.folder / machine / "rocketmq_client.log"
        self._lines[file].append((at, f"{self._date(at, 3)} INFO  [{pid}] [main] [X#?:?] - {text}"))

    def server(self, at: int, text: str, file: str = "broker.log", machine: str = f"{BROKER}/logs") -> None:
        """A line of a server's log."""
        self._lines[self.folder / machine / file].append((at, f"{self._date(at, 0)} INFO main - {text}"))

    def crash(self, at: int) -> None:
        """The broker begins again, after a crash."""
        self.server(at, "last shutdown abnormally, store path root dir: /home/rocketmq/store", "store.log")
        self.server(at, "message store recover end, and the max phy offset = 999999", "store.log")

    def put(self, at: int, topic: str, key: str, body: bytes = b"x", queue: int = 0, **more: Any) -> Place:
        """``more`` are fields of the record, or properties in capitals."""
        self.now = at
        properties = {name: str(more.pop(name)) for name in list(more) if name.isupper()}
        raw = encode_properties({"UNIQ_KEY": key, **properties} if key else properties)
        more.setdefault("born_timestamp_ms", BEGAN_MS + at)
        done = self._store.put(Record(topic, queue, body, raw, **more))
        return Place(int(done.queue_offsets[0]), int(done.log_offsets[0]))

    def send(self, number: int, at: int = 1000, queue: int = 0) -> Place:
        return self.put(at, TOPIC, key_of(number), queue=queue)

    def commit(self, at: int, key: str, half: Place) -> Place:
        return self.put(
            at, TOPIC, key, sys_flag=SYS_TRANSACTION_COMMIT, prepared_transaction_offset=half.log_offset
        )  # fmt: skip

    def message_id(self, place: Place) -> str:
        """The id that the broker made of a record."""
        (file,) = log_files(str(self.folder / BROKER / "store"))
        record = next(record for record, _ in scan(file) if record.log_offset == place.log_offset)
        return offset_message_id(record.store_host, place.log_offset)

    def trace(self, at: int, records: Sequence[Sequence[object]]) -> None:
        body = "".join("\x01".join(str(field) for field in record) + "\x02" for record in records)
        self.put(at, "RMQ_SYS_TRACE_TOPIC", "", body.encode(), KEYS="x")

    def audit(self) -> tuple[Verdict, list[dict[str, Any]]]:
        """The verdict, and the findings."""
        for at, records in sorted(self.traces, key=lambda one: one[0]):
            self.trace(at, records)
        self._store.close()
        for file, lines in self._lines.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("\n".join(text for _, text in sorted(lines, key=lambda one: one[0])) + "\n")
        out = self.folder.parent / "out"
        reading = Reading([str(self.folder)])
        _, verdict = run_audit(Request([], out=out, reading=reading, engine="duckdb"), lambda text: None)
        findings = [row for part in out.rglob("findings/*/*.parquet") for row in pq.read_table(part).to_pylist()]
        print("\n".join(f"{one['stage']} {one['cause']} {one['trigger']} {one['missing']}" for one in findings))
        return verdict, findings

    def _date(self, at: int, digits: int) -> str:
        moment = datetime.fromtimestamp((BEGAN_MS + at) / 1000, UTC) + GMT8
        return f"{moment:%Y-%m-%d %H:%M:%S}" + (f".{moment.microsecond // 1000:03}" if digits else "")


class Consumer:
    """A member of the group, with its log and its traces."""

    def __init__(self, incident: Incident, machine: str, pid: int, at: int, *, ip: str = "10.0.0.9") -> None:
        self._incident, self.machine, self._pid, self._ip = incident, machine, pid, ip
        self.client_id = f"{ip}@{pid}#7"
        self._requests = 0
        self.log(at, f"Created a new client Instance, InstanceIndex:0, ClientID:{self.client_id}, ClientConfig:x")
        self.log(at, f"the consumer [{GROUP}] start beginning. messageModel=CLUSTERING, isUnitMode=false")
        self.at_broker(at + 1, f"new consumer connected, group: {GROUP} CONSUME_PASSIVELY CLUSTERING channel: {{}}")

    def log(self, at: int, text: str) -> None:
        self._incident.client(self.machine, at, text, self._pid)

    def at_broker(self, at: int, text: str) -> None:
        channel = f"ClientChannelInfo [channel=[id: 0xbd, L:/10.0.0.1:10911 - R:/{self._ip}:{self._pid}], clientId="
        self._incident.server(at, text.format(f"{channel}{self.client_id}, language=JAVA, version=479]"))

    def assigned(self, at: int, queues: Sequence[int], *, of: int, members: int, strategy: str = "AVG") -> None:
        some = ", ".join(printed(queue) for queue in queues)
        self.log(at, f"client rebalanced result changed. allocateMessageQueueStrategyName={strategy}, group={GROUP}, "
                     f"topic={TOPIC}, clientId={self.client_id}, mqAllSize={of}, cidAllSize={members}, "
                     f"rebalanceResultSize={len(queues)}, rebalanceResultSet=[{some}]")  # fmt: skip

    def open(self, at: int, queue: int = 0, topic: str = TOPIC) -> None:
        self.log(at, f"doRebalance, {GROUP}, add a new mq, {printed(queue, topic)}")

    def drop(self, at: int, queue: int = 0) -> None:
        self.log(at, f"doRebalance, {GROUP}, remove unnecessary mq, {printed(queue)}")

    def tell(self, at: int, value: int, queue: int = 0, how: str = "persistAll") -> None:
        self.log(at, f"[{how}] Group: {GROUP} ClientId: {self.client_id} updateConsumeOffsetToBroker {printed(queue)} "
                     f"{value}")  # fmt: skip

    def rounds(self, first: int, last: int, value: int, queue: int = 0) -> None:
        """Its offset, every 5 s."""
        for at in range(first, last + 1, 5000):
            self.tell(at, value, queue)

    def handle(
        self, at: int, key: str, *, took: int = 10, code: int = 0, success: bool = True, times: int = 0,
        ended: bool = True,
    ) -> None:  # fmt: skip
        self._requests += 1
        ip = "".join(f"{int(part):02X}" for part in self._ip.split("."))
        request = f"{ip}{self._pid:04X}2A139A55{self._requests:012X}"
        records: list[list[object]] = [["SubBefore", BEGAN_MS + at, "R", GROUP, request, key, times, "k"]]
        if ended:
            records.append(["SubAfter", request, key, took, "true" if success else "false", "k", code,
                            BEGAN_MS + at + took, GROUP])  # fmt: skip
        self._incident.traces.append((at + took, records))

    def stop(self, at: int) -> None:
        self.at_broker(at + 1, f"unregister a consumer[{GROUP}] from consumerGroupInfo {{}}")
        self.log(at + 2, f"the consumer [{GROUP}] shutdown OK")
        self.log(at + 3, f"the client factory [{self.client_id}] shutdown OK")
