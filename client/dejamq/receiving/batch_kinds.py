"""Batches of a pull besides long runs of ordinary records: a few records, and records with IPv6 hosts."""

from collections.abc import Sequence

from dejamq_proto import names
from dejamq_proto.records import record, small_runs
from dejamq_proto.records.hosts import Host, host_text
from dejamq_proto.records.record import HEADER_SIZE, SYS_COMPRESSED, decode_properties

from dejamq.receiving.batch import NarrowBatch, PullBatch, ipv4_text, unpacked
from dejamq.values.message import MessageQueue

TOTAL_SIZE, BODY_SIZE, SYS_FLAG = (small_runs.FIELDS[name] for name in ("total_size", "body_size", "sys_flag"))


class FewBatch(NarrowBatch):
    """A few records, read in plain numbers: where messages come one by one, numpy would be most of what they cost."""

    data: bytes

    def __init__(
        self, headers: Sequence[small_runs.Header], data: bytes, at: int, queue: MessageQueue, boot_id: str
    ) -> None:
        """The records are the data from ``at`` on."""
        self._headers = headers
        self.body_sizes, self.starts, self.ends = [], [], []
        for header in headers:
            start, size = at + HEADER_SIZE, header[BODY_SIZE]
            self.body_sizes.append(size)
            self.starts.append(start)
            self.ends.append(start + size)
            at += header[TOTAL_SIZE]
        super().__init__(data, queue, boot_id)

    @property
    def packed(self) -> bool:
        return any(header[SYS_FLAG] & SYS_COMPRESSED for header in self._headers)

    def column(self, name: str) -> list[int]:
        place = small_runs.FIELDS[name]
        return [header[place] for header in self._headers]

    def _read_unique_keys(self) -> list[str]:
        return [small_runs.unique_key(self._raw_properties(index)) for index in range(len(self))]

    def _read_store_hosts(self) -> list[str]:
        return list(map(ipv4_text, self.column("store_ip"), self.column("store_port")))

    def _read_retried(self) -> bool:
        return any(self.column("reconsume_times"))

    def properties(self, index: int) -> dict[str, str]:
        return decode_properties(self._raw_properties(index))

    def _raw_properties(self, index: int) -> bytes:
        end = self.starts[index] - HEADER_SIZE + self._headers[index][TOTAL_SIZE]
        return small_runs.properties_from(self.data, self.ends[index], end)


class WideBatch(PullBatch):
    """Records of which some carry IPv6 hosts, which runs cannot hold: decoded one by one, at receipt.

    Slower by an order of magnitude and rare: brokers of RocketMQ store such records only with IPv6 clients or
    hosts.
    """

    def __init__(self, records: Sequence[record.Record], queue: MessageQueue, boot_id: str) -> None:
        self.queue, self.boot_id, self._records = queue, boot_id, records
        self._bodies = [unpacked(one.body, one.sys_flag, one.log_offset) for one in records]
        self.body_sizes = [len(body) for body in self._bodies]

    @property
    def held_bytes(self) -> int:
        return sum(self.column("total_size")) + sum(self.body_sizes)

    def column(self, name: str) -> list[int]:
        """As in ``PullBatch``; not kept, because these batches are small and seldom looked at."""
        if name == "total_size":
            return [len(record.encode(one)) for one in self._records]
        return [getattr(one, name) for one in self._records]

    def _read_unique_keys(self) -> list[str]:
        return [one.properties.get(names.PROPERTY_UNIQUE_KEY, "") for one in self._records]

    def _read_store_hosts(self) -> list[str]:
        return [host_text(one.store_host) for one in self._records]

    def _read_retried(self) -> bool:
        return any(one.reconsume_times for one in self._records)

    def body(self, index: int) -> bytes:
        return self._bodies[index]

    def properties(self, index: int) -> dict[str, str]:
        return self._records[index].properties

    def born_host(self, index: int) -> Host:
        return self._records[index].born_host

    def store_host(self, index: int) -> Host:
        return self._records[index].store_host

    def raw(self, index: int) -> bytes:
        return record.encode(self._records[index])
