"""The records that one pull brought, column by column: what messages look into when somebody looks at them."""

import ipaddress
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from dejamq_proto.records import json_columns, run
from dejamq_proto.records.compression import BadCompression, decompress
from dejamq_proto.records.hosts import Host, host_text
from dejamq_proto.records.json_columns import Listed
from dejamq_proto.records.record import HEADER_SIZE, SYS_COMPRESSED

from dejamq.native import COMPILED, Layout
from dejamq.values.message import MessageQueue

log = logging.getLogger("dejamq.clients.consumer")


class PullBatch(Layout, ABC):
    """The records of one pull. Columns become lists on first use and are shared by all messages of the batch.

    One batch is what one pull answer held. Its bytes stay as they came; nothing is copied until a body is asked
    for, so a message that is only counted costs no decoding at all.
    """

    group = ""
    """Who pulled it; empty for a read without a group."""
    namespace = ""
    """In front of topics as brokers know them; ``queue`` is as the program knows it."""
    first_topic = ""
    """The topic that popped messages were sent to, as the program knows it; empty where records tell."""
    handles: list[str] | None = None
    """Receipt handles of popped messages."""
    queue: MessageQueue
    boot_id: str
    body_sizes: list[int]
    """Bytes of each body as it is in memory: unpacked where it was compressed."""
    plain: bytes | None = None
    """Bytes in which each body lies as it was sent, from one of ``starts`` to one of ``ends``; None: ask ``body``."""
    starts: Sequence[int] | run.Ints = ()
    ends: Sequence[int] | run.Ints = ()
    _unique_keys: list[str] | None = None
    _store_hosts: list[str] | None = None
    _retried: bool | None = None

    def __len__(self) -> int:
        return len(self.body_sizes)

    def __getstate__(self) -> dict[str, Any]:
        """For a program that hands messages to another process. Nothing is laid out there: bodies are asked for."""
        return {name: bytes(one) if isinstance(one, memoryview) else one for name, one in vars(self).items()}

    @property
    @abstractmethod
    def held_bytes(self) -> int:
        """Bytes that the batch keeps in memory."""

    @abstractmethod
    def column(self, name: str) -> list[int]:
        """One header field of all records."""

    def listed(self, name: str, first: int, end: int) -> Listed:
        """One header field of the records ``first`` to ``end`` - 1, for the journal."""
        return json_columns.values(self.column(name)[first:end])

    def listed_keys(self, first: int, end: int) -> Listed:
        """As ``listed``, their UNIQ_KEYs."""
        return json_columns.values(self.unique_keys[first:end])

    @property
    def unique_keys(self) -> list[str]:
        """UNIQ_KEY of each record, empty where it has none."""
        if self._unique_keys is None:  # a cached_property takes a lock, for longer than a few keys
            self._unique_keys = self._read_unique_keys()
        return self._unique_keys

    @property
    def store_hosts(self) -> list[str]:
        """``address:port`` of each record; a single one stands for all, as one broker stored nearly every run alone."""
        if self._store_hosts is None:
            hosts = self._read_store_hosts()
            self._store_hosts = hosts[:1] if hosts.count(hosts[0]) == len(hosts) else hosts
        return self._store_hosts

    @property
    def retried(self) -> bool:
        """Whether the group has failed with any of them before."""
        if self._retried is None:
            self._retried = self._read_retried()
        return self._retried

    @abstractmethod
    def _read_unique_keys(self) -> list[str]: ...

    @abstractmethod
    def _read_store_hosts(self) -> list[str]:
        """One value for each message, or a single one for all."""

    @abstractmethod
    def _read_retried(self) -> bool: ...

    @abstractmethod
    def body(self, index: int) -> bytes:
        """The body as sent: unpacked where it was compressed."""

    @abstractmethod
    def properties(self, index: int) -> dict[str, str]:
        """Decoded at each call; the message keeps it."""

    @abstractmethod
    def born_host(self, index: int) -> Host:
        """Address and port of the producer as the broker saw it; the port is the connection's and tells only so
        much.
        """

    @abstractmethod
    def store_host(self, index: int) -> Host:
        """Address and port of the broker that stored the record, as it advertises itself."""

    @abstractmethod
    def raw(self, index: int) -> bytes:
        """The bytes of one record by itself."""


class NarrowBatch(PullBatch):
    """Records with IPv4 hosts only, one after the other in ``data``, where each one's body begins at its ``starts``."""

    def __init__(self, data: bytes | memoryview, queue: MessageQueue, boot_id: str) -> None:
        """A subclass has the columns, ``starts`` and ``ends`` by now."""
        self.data, self.queue, self.boot_id = data, queue, boot_id
        self._unpacked: dict[int, bytes] = {}
        if self.packed:
            self._unpack()
        elif isinstance(data, bytes):
            self.plain = data

    @property
    @abstractmethod
    def packed(self) -> bool:
        """Whether any body is compressed."""

    @property
    def held_bytes(self) -> int:
        return len(self.data) + sum(map(len, self._unpacked.values()))

    def body(self, index: int) -> bytes:
        if index in self._unpacked:
            return self._unpacked[index]
        return bytes(self.data[self.starts[index] : self.ends[index]])

    def born_host(self, index: int) -> Host:
        return ipv4(self.column("born_ip")[index], self.column("born_port")[index])

    def store_host(self, index: int) -> Host:
        return ipv4(self.column("store_ip")[index], self.column("store_port")[index])

    def raw(self, index: int) -> bytes:
        begin = self.starts[index] - HEADER_SIZE
        return bytes(self.data[begin : begin + self.column("total_size")[index]])

    def _unpack(self) -> None:
        """Compressed bodies are unpacked at receipt, the only moment when a damaged one can still be reported."""
        for index, sys_flag in enumerate(self.column("sys_flag")):
            if sys_flag & SYS_COMPRESSED:
                body = unpacked(self.body(index), sys_flag, self.column("log_offset")[index])
                self._unpacked[index], self.body_sizes[index] = body, len(body)


class RunBatch(NarrowBatch):
    """As many records as a pull may bring."""

    def __init__(self, records: run.Run, data: bytes | memoryview, at: int, queue: MessageQueue, boot_id: str) -> None:
        """The run is the data from ``at`` on."""
        self._records = records
        self._columns: dict[str, list[int]] = {}
        self._numbers: dict[str, run.Ints] = {}
        sizes = records.headers["body_size"].astype(np.int64)
        self.body_sizes = sizes.tolist()
        starts = records.positions + (HEADER_SIZE + at)
        ends = starts + sizes
        self.starts, self.ends = (starts, ends) if COMPILED else (starts.tolist(), ends.tolist())
        super().__init__(data, queue, boot_id)
        if not self._unpacked:
            self.lay(data, starts, ends, records.properties_at + at)

    @property
    def packed(self) -> bool:
        return not run.every(self._records.headers["sys_flag"] & SYS_COMPRESSED == 0)

    def column(self, name: str) -> list[int]:
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = self._records.headers[name].tolist()
        return column

    def listed(self, name: str, first: int, end: int) -> Listed:
        numbers = self._numbers.get(name)
        if numbers is None:
            numbers = self._numbers[name] = self._records.headers[name].astype(np.int64)
        return json_columns.numbers(numbers, first, end)

    def listed_keys(self, first: int, end: int) -> Listed:
        return json_columns.keys(self._records, first, end) or super().listed_keys(first, end)

    def _read_unique_keys(self) -> list[str]:
        return run.unique_keys(self._records)

    def _read_store_hosts(self) -> list[str]:
        ips, ports = self._records.headers["store_ip"], self._records.headers["store_port"]
        if run.every(ips == ips[0]) and run.every(ports == ports[0]):
            return [ipv4_text(int(ips[0]), int(ports[0]))]
        return list(map(ipv4_text, self.column("store_ip"), self.column("store_port")))

    def _read_retried(self) -> bool:
        return not run.every(self._records.headers["reconsume_times"] == 0)

    def properties(self, index: int) -> dict[str, str]:
        return run.properties_of(self._records, index)


def unpacked(body: bytes, sys_flag: int, log_offset: int) -> bytes:
    """The body as sent. One that cannot be unpacked is handed over as it is stored: its ``sys_flag`` tells."""
    try:
        return decompress(body, sys_flag)
    except BadCompression as error:
        log.error("body_not_unpacked log_offset=%d: %s", log_offset, error)
        return body


def ipv4(address: int, port: int) -> Host:
    """As ``record`` has hosts."""
    return str(ipaddress.IPv4Address(address)), port


@lru_cache(maxsize=1024)
def ipv4_text(address: int, port: int) -> str:
    """``address:port``; there are few brokers, and each delivery names one."""
    return host_text(ipv4(address, port))
