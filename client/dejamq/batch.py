"""The records that one pull brought, column by column: what messages look into when somebody looks at them."""

import ipaddress
import logging
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from dejamq_proto import names, record, run
from dejamq_proto.compression import BadCompression, decompress
from dejamq_proto.record import HEADER_SIZE, SYS_COMPRESSED, Host, host_text

from dejamq.message import MessageQueue

log = logging.getLogger("dejamq.consumer")


class Batch:
    """The records of one pull. Columns become lists on first use and are shared by all messages of the batch.

    One batch is what one pull answer held. Its bytes stay as they came; nothing is copied until a body is asked
    for, so a message that is only counted costs no decoding at all.
    """

    group = ""
    """Who pulled it; empty for a read without a group."""
    namespace = ""
    """In front of topics as brokers know them; ``queue`` is as the program knows it."""
    plain: memoryview | None = None
    """The records' bytes where each body lies in them as it was sent, from one of ``starts`` to one of ``ends``."""
    starts: Sequence[int] = ()
    ends: Sequence[int] = ()

    def __init__(self, records: run.Run, queue: MessageQueue, boot_id: str) -> None:
        self.records, self.queue, self.boot_id = records, queue, boot_id
        self._columns: dict[str, list[int]] = {}
        sizes = records.headers["body_size"].astype(np.int64)
        self.body_sizes: list[int] = sizes.tolist()
        """Bytes of each body as it is in memory: unpacked where it was compressed."""
        starts = records.positions + HEADER_SIZE
        self.starts, self.ends = starts.tolist(), (starts + sizes).tolist()
        self._view = records.data.data
        self._unpacked = self._decompressed()
        for index, body in self._unpacked.items():
            self.body_sizes[index] = len(body)
        if not self._unpacked:
            self.plain = self._view

    def __len__(self) -> int:
        return len(self.body_sizes)

    def column(self, name: str) -> list[int]:
        """One header field of all records."""
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = self.records.headers[name].tolist()
        return column

    @cached_property
    def unique_keys(self) -> list[str]:
        """UNIQ_KEY of each record, empty where it has none."""
        return run.unique_keys(self.records)

    @cached_property
    def store_hosts(self) -> list[str]:
        """``address:port`` of each record, for the journal. One broker stored nearly every run alone."""
        ips, ports = self.records.headers["store_ip"], self.records.headers["store_port"]
        if run.every(ips == ips[0]) and run.every(ports == ports[0]):
            return [host_text(_ipv4(int(ips[0]), int(ports[0])))] * len(self)
        return [host_text(self.store_host(index)) for index in range(len(self))]

    @cached_property
    def retried(self) -> bool:
        """Whether the group has failed with any of them before."""
        return bool(self.records.headers["reconsume_times"].any())

    def body(self, index: int) -> bytes:
        """The body as sent: unpacked where it was compressed."""
        if self._unpacked and index in self._unpacked:
            return self._unpacked[index]
        return self._view[self.starts[index] : self.ends[index]].tobytes()

    def properties(self, index: int) -> dict[str, str]:
        """Decoded at each call; the message keeps it."""
        return run.properties_of(self.records, index)

    def born_host(self, index: int) -> Host:
        """Address and port of the producer as the broker saw it; the port is the connection's and tells only so
        much.
        """
        return _ipv4(self.column("born_ip")[index], self.column("born_port")[index])

    def store_host(self, index: int) -> Host:
        """Address and port of the broker that stored the record, as it advertises itself."""
        return _ipv4(self.column("store_ip")[index], self.column("store_port")[index])

    def alone(self, index: int) -> "Batch":
        """A batch of this one record, with bytes of its own."""
        start, size = int(self.records.positions[index]), int(self.records.sizes[index])
        return Batch(run.parse(bytes(self._view[start : start + size]), np.array([size])), self.queue, self.boot_id)

    def _decompressed(self) -> dict[int, bytes]:
        """Compressed bodies are unpacked at receipt, the only moment when a damaged one can still be reported."""
        packed = np.flatnonzero(self.records.headers["sys_flag"] & SYS_COMPRESSED).tolist()
        bodies = {}
        for index in packed:
            body = bytes(self._view[self.starts[index] : self.ends[index]])
            bodies[index] = _decompress(body, self.column("sys_flag")[index], self.column("log_offset")[index])
        return bodies


class WideBatch(Batch):
    """Records of which some carry IPv6 hosts, which runs cannot hold: decoded one by one, at receipt.

    Slower by an order of magnitude and rare: brokers of RocketMQ store such records only with IPv6 clients or
    hosts.
    """

    def __init__(self, records: Sequence[record.Record], queue: MessageQueue, boot_id: str) -> None:
        self.queue, self.boot_id, self._records = queue, boot_id, records
        self._bodies = [_decompress(one.body, one.sys_flag, one.log_offset) for one in records]
        self.body_sizes = [len(body) for body in self._bodies]

    def column(self, name: str) -> list[int]:
        """As in ``Batch``; not kept, because these batches are small and seldom looked at."""
        if name == "total_size":
            return [len(record.encode(one)) for one in self._records]
        return [getattr(one, name) for one in self._records]

    @cached_property
    def unique_keys(self) -> list[str]:
        return [one.properties.get(names.PROPERTY_UNIQUE_KEY, "") for one in self._records]

    @cached_property
    def store_hosts(self) -> list[str]:
        return [host_text(one.store_host) for one in self._records]

    @cached_property
    def retried(self) -> bool:
        return any(one.reconsume_times for one in self._records)

    def body(self, index: int) -> bytes:
        return self._bodies[index]

    def properties(self, index: int) -> dict[str, str]:
        return self._records[index].properties

    def born_host(self, index: int) -> Host:
        return self._records[index].born_host

    def store_host(self, index: int) -> Host:
        return self._records[index].store_host

    def alone(self, index: int) -> "Batch":
        return WideBatch(self._records[index : index + 1], self.queue, self.boot_id)


def _decompress(body: bytes, sys_flag: int, log_offset: int) -> bytes:
    """The body as sent. One that cannot be unpacked is handed over as it is stored: its ``sys_flag`` tells."""
    try:
        return decompress(body, sys_flag)
    except BadCompression as error:
        log.error("body_not_unpacked log_offset=%d: %s", log_offset, error)
        return body


def _ipv4(address: int, port: int) -> Host:
    return str(ipaddress.IPv4Address(address)), port
