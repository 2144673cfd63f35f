"""Every reader of files, with real files to begin with: what it may raise is said, anything else is a fault."""

import gzip
import json
import struct
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from dejamq.rebalance import local_offsets
from dejamq_analytics.evidence import client_log, go_log, offset_files, polled, server_logs, trace
from dejamq_analytics.evidence.mark import Mark
from dejamq_analytics.evidence.process import Process
from dejamq_analytics.evidence.text_lines import lines_of, raw_lines, zones_of
from dejamq_analytics.evidence.trace import TraceMessage
from dejamq_analytics.follow.state import FollowState, Meta
from dejamq_analytics.sources import commit_log
from dejamq_analytics.sources.journal_files import is_event
from dejamq_analytics.sources.paths import BadInput
from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.dedup.mark import WindowMark as DedupMark
from dejamq_broker.deferred.delay_progress import DelayProgress
from dejamq_broker.pop.order_file import OrderFile
from dejamq_broker.store import StoreError
from dejamq_broker.store.dump import dump, text_of
from dejamq_broker.store.files.checkpoint import Checkpoint, DispatchProgress
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.index.file import IndexFile, IndexShape
from dejamq_broker.store.index.index import IndexMark
from dejamq_broker.store.log.scan import End, LogFiles, walk
from dejamq_broker.store.queues.deleted import read_ends
from dejamq_broker.store.replica.note import SlaveNote, read_note
from dejamq_broker.tables.offsets import OffsetTable, Position
from dejamq_broker.tables.request_modes import RequestModes
from dejamq_broker.tables.subscription_groups import SubscriptionGroupTable
from dejamq_broker.tables.topics import TopicTable
from dejamq_broker.timer.progress import TimerProgress
from dejamq_namesrv.config import NamesrvConfig
from dejamq_namesrv.kv_config import KvConfig
from dejamq_proto.codes import ConfigError, DejamqError
from dejamq_proto.config.settings import load, shown
from dejamq_proto.journal import lines
from dejamq_proto.journal.writer import Journal, Level
from dejamq_proto.records.record import BadRecord, decode
from dejamq_proto.records.run import BadRun, check_crcs, parse
from store_making import GOLDEN, log_files

DATA = GOLDEN.parent / "rocketmq"
INT32, INT64 = 1 << 31, 1 << 63
Read = Callable[[bytes, Path], object]


class Reader(NamedTuple):
    """``read`` gets the bytes, and a folder of its own that it may write them into."""

    name: str
    seeds: list[bytes]
    read: Read
    refuses: tuple[type[Exception], ...]
    text: bool = True


def written(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


# --- the store


def _record(data: bytes, folder: Path) -> None:
    record = decode(data)
    msgspec.json.encode([record.topic, record.properties, record.queue_offset])


def _run(data: bytes, folder: Path) -> None:
    check_crcs(parse(data, np.array([len(data)], np.int64)))


def _walk(data: bytes, folder: Path) -> None:
    extent = LogFiles(0, len(data), 1 << 16)
    pieces = list(walk(lambda at, size: data[at : min(at + size, extent.file_end(at))], extent, 0))
    assert isinstance(pieces[-1], End)


def _commit_log_rows(data: bytes, folder: Path) -> None:
    path = written(folder, f"{0:020d}", data)
    if data:
        for _ in commit_log.decode_file(commit_log.LogFile("store", str(path))):
            pass


def _index(data: bytes, folder: Path) -> None:
    file = IndexFile.load(written(folder, "index", data), SMALL_INDEX)
    if file is not None:
        file.entries(0, 20)
        for number in range(20):
            file.head(number)


def _queue(data: bytes, folder: Path) -> None:
    """As ``dump`` reads it."""
    queue = folder / "consumequeue" / "T" / "0"
    queue.mkdir(parents=True, exist_ok=True)
    (folder / "commitlog").mkdir(exist_ok=True)
    written(queue, f"{0:020d}", data)
    for line in dump(StorePaths(folder), "queues"):
        text_of(line)
        msgspec.json.encode(line)


def _dumped(what: str, name: str, data: bytes, folder: Path) -> None:
    (folder / "commitlog").mkdir(exist_ok=True)
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    for line in dump(StorePaths(folder), what):
        text = text_of(line)
        assert text.replace("\n", "").isprintable(), ascii(text)
        text.encode()
        msgspec.json.encode(line)


def _marks(data: bytes, folder: Path) -> None:
    for read in (DispatchProgress.load, IndexMark.load, read_ends, Checkpoint.load):
        read(written(folder, "mark", data))
    written(folder, "slaveNote.json", data)
    note = read_note(StorePaths(folder))
    assert note is None or datetime.fromtimestamp(note.heard_ms / 1000, UTC)
    found = DedupMark(written(folder, "mark", data)).take()
    assert 0 <= found < INT64


def _timer_progress(data: bytes, folder: Path) -> None:
    _loaded(TimerProgress(written(folder, "timercheck", data), "b", OFF, 1000, _nothing))


# --- tables


def _loaded(table: Any) -> None:
    """What it holds can be told to slaves, clients and files."""
    table.load()
    content = table.content()
    json.dumps(content, ensure_ascii=False).encode()
    msgspec.json.encode(content)


def _topics(data: bytes, folder: Path) -> None:
    table = TopicTable(written(folder, "topics.json", data), _now, lambda: None)
    _loaded(table)
    for topic in table:
        assert 0 <= topic.queues < INT32
        assert not {"/", "\0"} & set(topic.topic_name)
        assert topic.topic_name not in ("", ".", "..")
    assert table.version.next(1).counter <= INT64


def _groups(data: bytes, folder: Path) -> None:
    table = SubscriptionGroupTable(written(folder, "groups.json", data), _now, auto_create=True)
    _loaded(table)
    for group in table:
        assert -INT32 <= min(group.retry_queue_nums, group.retry_max_times) < INT32
        table.forbidden_topics(group.group_name)


def _offsets(data: bytes, folder: Path) -> None:
    table = OffsetTable(
        written(folder, "offsets.json", data), "b", OFF, _now, fenced=lambda at, asker: "", queue_end=lambda t, q: 0,
        log_on_disk=_nothing, flush_soon=lambda: None, serve_resets=False, refuse_lower=False,
    )  # fmt: skip
    _loaded(table)
    for key, queues in table.content()["offsetTable"].items():
        topic, _, group = key.partition("@")
        for queue_id in queues if "@" in key else ():
            found = table.get(Position(group, topic, int(queue_id)))
            assert found is not None
            assert -INT64 <= found < INT64
            assert -INT32 <= int(queue_id) < INT32


def _delays(data: bytes, folder: Path) -> None:
    _loaded(DelayProgress(written(folder, "delays.json", data), "b", OFF, _nothing))


def _modes(data: bytes, folder: Path) -> None:
    _loaded(RequestModes(written(folder, "modes.json", data)))


def _orders(data: bytes, folder: Path) -> None:
    for at, info in OrderFile(written(folder, "orders.json", data), OFF).read().items():
        assert all(-INT64 <= number < INT64 for number in info.offsets)
        at.topic.encode()
        info.encode(1)


def _kv(data: bytes, folder: Path) -> None:
    written(folder, "kvConfig.json", data)
    KvConfig(str(folder)).namespace("ORDER_TOPIC_CONFIG")


def _local_offsets(data: bytes, folder: Path) -> None:
    found = local_offsets.decode_offsets(data.decode())
    local_offsets.encode_offsets(found).encode()
    assert all(-INT64 <= at < INT64 and 0 <= queue.queue_id < INT32 for queue, at in found.items())


def _settings(name: str, cls: Any, data: bytes, folder: Path) -> None:
    config = load(cls, file=written(folder, name, data), env={})
    "".join(shown(config).values()).encode()


# --- journals and the evidence of others


def _journal(data: bytes, folder: Path) -> None:
    for line in data.split(b"\n"):
        is_event(line)
        lines.decode(line)


def _told(marks: Sequence[Mark], folder: Path) -> None:
    """What they tell can be written as a journal."""
    process = Process("key", "name", "consumer")
    for mark in marks:
        numbers = {name: value for name, value in mark.said.items() if isinstance(value, int)}
        process.add(mark, "DELIVER", **numbers, texts=repr(mark.said)[:1000])
    process.marks = list(marks)
    with (folder / "sources").open("wb") as sources:
        process.write(folder, sources)


def _text_log(marks_of: Any, data: bytes, folder: Path) -> None:
    path = written(folder, "rocketmq_client.log", data)
    zone = zones_of({path: path.name}, {})[path]
    _told(list(marks_of(lines_of(path, zone.offset), path.name, "host")), folder)


def _go_log(data: bytes, folder: Path) -> None:
    path = written(folder, "go.log", data)
    _told(list(go_log.marks(raw_lines(path), path.name, "host")), folder)


def _gzipped(data: bytes, folder: Path) -> None:
    path = written(folder, "rocketmq_client.log.gz", data)
    _told(list(client_log.marks(lines_of(path, timedelta(0)), path.name, "host")), folder)


def _trace(data: bytes, folder: Path) -> None:
    _told(list(trace.marks(TraceMessage("here", "host", data.decode("utf-8", "replace")))), folder)


def _offset_file(data: bytes, folder: Path) -> None:
    path = written(folder, "consumerOffset-1700000000000.json", data)
    offset_files.told(path)
    marks = list(offset_files.marks(path, path.name, "host"))
    delays = written(folder, "delayOffset-1700000000000.json", data)
    _told([*marks, *offset_files.marks(delays, delays.name, "host")], folder)


def _polled(data: bytes, folder: Path) -> None:
    told = list(polled.read(written(folder, "evidence-000001.jsonl", data), "shown"))
    traces = [mark for one in told if isinstance(one, TraceMessage) for mark in trace.marks(one)]
    _told([*traces, *(one for one in told if isinstance(one, Mark))], folder)


def _follow_state(data: bytes, folder: Path) -> None:
    version = folder / f"version-{1:012d}"
    version.mkdir(exist_ok=True)
    written(version, "meta.json", data)
    FollowState(folder)


# --- all of them

OFF = Journal(None, role="broker", process="t", boot_id="b0", level=Level.OFF)
SMALL_INDEX = IndexShape(20, 80)


def _now() -> int:
    return 1_700_000_000_000


async def _nothing() -> None: ...


def _records() -> list[bytes]:
    log = log_files(GOLDEN / "clean" / "store")[0].read_bytes()
    found: list[bytes] = []
    at = 0
    while (size := struct.unpack_from(">i", log, at)[0]) > 0 and len(found) < 40:
        found.append(log[at : at + size])
        at += size
    return found


def _config(name: str) -> list[bytes]:
    return [(GOLDEN / which / "store" / "config" / name).read_bytes() for which in ("clean", "crash")]


def _some_lines(pattern: str, many: int) -> list[bytes]:
    """Pieces of real logs."""
    seeds = []
    for path in sorted(DATA.glob(pattern))[:12]:
        rows = path.read_bytes().splitlines(keepends=True)
        seeds += [b"".join(rows[at : at + many]) for at in range(0, min(len(rows), 40 * many), many)]
    assert seeds, pattern
    return seeds


def _journals() -> list[bytes]:
    """A line of each event."""
    return [
        b'{"event":"STATE","v":1,"role":"broker","process":"a","boot_id":"b0","seq":1,"wall_us":1,"mono_us":1,"state":'
        b'"started","reason":""}\n',
        b'{"event":"DELIVER","v":1,"role":"consumer","process":"a","boot_id":"b0","seq":2,"wall_us":1700000000000000,'
        b'"mono_us":1,"group":"g","topic":"t","broker_name":"b","queue_id":0,"queue_offsets":[1],"log_offsets":[0],'
        b'"unique_keys":["7F"],"delivery_ids":[1]}\n',
    ]


def readers() -> Iterator[Reader]:
    records = _records()
    log = b"".join(records)
    no_store = (StoreError,)
    unreadable = (DejamqError,)
    yield Reader("record of the commit log", records, _record, (BadRecord,), text=False)
    yield Reader("run of records", records, _run, (BadRun,), text=False)
    yield Reader("commit log, walked", [log[:3000], log[:9000] + bytes(300)], _walk, (), text=False)
    yield Reader("commit log, audited", [log[:3000]], _commit_log_rows, (), text=False)
    header = struct.pack(">qqqqii", 1_700_000_000_000, 1_700_000_000_000, 0, 400, 3, 4)
    index = (header + bytes(80) + struct.pack(">iqii", 5, 100, 1, 0) * 4).ljust(SMALL_INDEX.file_size, b"\0")
    yield Reader("index", [index], _index, (), text=False)
    queue = struct.pack(">qiq", 0, 100, 7) * 5 + bytes(100)
    yield Reader("consume queue", [queue], _queue, no_store, text=False)
    yield Reader("timercheck", [struct.pack(">qqqq", 1, 2, 3, 4).ljust(4096, b"\0")], _timer_progress, (), text=False)
    note = msgspec.json.encode(
        SlaveNote(log_end=3, master_address="127.0.0.1:1", master_end=7, heard_ms=1_700_000_000_000)
    )
    marks = [
        b'{"log_offset":4000,"queues":{"T":{"0":7}},"flushed":4000,"firsts":{"T":{"0":0}}}', b'{"logOffset":7}',
        b'{"T":4000}', note, struct.pack(">qqq", 1, 2, 3).ljust(4096, b"\0"),
    ]  # fmt: skip
    yield Reader("marks beside the log", marks, _marks, ())
    yield Reader("topics.json", _config("topics.json"), _topics, unreadable)
    yield Reader("subscriptionGroup.json", _config("subscriptionGroup.json"), _groups, unreadable)
    yield Reader("consumerOffset.json", _config("consumerOffset.json"), _offsets, unreadable)
    yield Reader("delayOffset.json", _config("delayOffset.json"), _delays, unreadable)
    modes = b'{"messageRequestModeMap":{"t":{"g":{"topic":"t","consumerGroup":"g","mode":"POP","popShareQueueNum":3}}}}'
    yield Reader("messageRequestMode.json", [modes], _modes, unreadable)
    orders = (
        b'{"table":{"t@g":{0:{"popTime":1700000000000,"i":60000,"o":[5,1,2],"ot":{},"oc":{"5":1},"cm":1,"a":"x"}}}}'
    )
    yield Reader("consumerOrderInfo.json", [orders], _orders, unreadable)
    dumped = partial(_dumped, "config", "config/topics.json")
    yield Reader("config, dumped", _config("topics.json"), dumped, no_store)
    yield Reader(
        "commit log, dumped", [log[:3000]], partial(_dumped, "log", f"commitlog/{0:020d}"), no_store, text=False
    )
    kv = b'{"configTable":{"ORDER_TOPIC_CONFIG":{"t":"broker-a:4"}}}'
    yield Reader("kvConfig.json", [kv], _kv, (ConfigError,))
    local = (
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:100,{"brokerName":"b","queueId":1,"topic":"t"}:7}}'
    )
    yield Reader("offsets.json of a broadcasting member", [local], _local_offsets, (ValueError,))
    broker = (
        b"# c\nbrokerName = broker-a\nbrokerId=0\nflushDiskType=ASYNC_FLUSH\nfileReservedTime = 48\nlistenPort=10911\n"
    )
    toml = (
        b'broker_name = "broker-a"\nbroker_id = 0\nflush_consumer_offset_interval_ms = 5000\nlisten = "127.0.0.1:0"\n'
    )
    yield Reader("broker.conf", [broker], partial(_settings, "broker.conf", BrokerConfig), (ConfigError,))
    yield Reader("broker.toml", [toml], partial(_settings, "broker.toml", BrokerConfig), (ConfigError,))
    names = b'listen = "127.0.0.1:0"\nscan_not_active_broker_interval_ms = 5000\n'
    yield Reader("namesrv.toml", [names], partial(_settings, "namesrv.toml", NamesrvConfig), (ConfigError,))
    yield Reader("journal", _journals(), _journal, ())
    logs = partial(_text_log, client_log.marks)
    yield Reader("log of a Java client", _some_lines("*/*/rocketmq_client.log", 3), logs, ())
    yield Reader(
        "log of a server", _some_lines("*/broker-a/logs/broker.log", 3), partial(_text_log, server_logs.marks), ()
    )
    go = [one for one in _some_lines("o1_go/billing-*/*.log", 3) if b"msg=" in one]
    yield Reader("log of a Go client", go, _go_log, ())
    packed = [gzip.compress(one, mtime=0) for one in _some_lines("o1/*/rocketmq_client.log", 20)[:5]]
    yield Reader("gzipped log", packed, _gzipped, (), text=False)
    traced = "\x02".join((
        "Pub\x011700000000000\x01R\x01G\x01T\x017F00\x01TAG\x01KEY\x01127.0.0.1:1\x015\x013\x010\x01id\x01true",
        "SubBefore\x011700000000000\x01R\x01G\x01req\x017F00\x010\x01KEY",
        "SubAfter\x01req\x017F00\x015\x01true\x01KEY\x010\x011700000000000\x01G",
        "EndTransaction\x011\x01R\x01G\x01T\x017F\x01TAG\x01K\x01h\x010\x01id\x01COMMIT_MESSAGE\x01true",
    )).encode()  # fmt: skip
    yield Reader("trace", [traced], _trace, ())
    yield Reader("copy of offsets", [*_config("consumerOffset.json"), *_config("delayOffset.json")], _offset_file, ())
    yield Reader("polled answers", _some_lines("o2/collected/evidence-*.jsonl", 2), _polled, ())
    meta = msgspec.json.encode(Meta(run_id="follow-1", version=1))
    yield Reader("state of --follow", [meta], _follow_state, (BadInput,))


def read_as(reader: Reader, data: bytes, folder: Path) -> str:
    """``read`` or the name of the refusal. Raises what no caller of the reader expects."""
    try:
        reader.read(data, folder)
    except reader.refuses as refused:
        text = str(refused)
        text.encode()
        assert len(text) <= 2000, f"{len(text)} characters of refusal"
        return type(refused).__name__
    return "read"
