"""``dejamq store dump DIR``: the content of a store, ours or a real RocketMQ's, record by record.

Reads only, locks nothing, may look at a store that is in use, and holds one piece of it in memory at a time.
"""

import argparse
import hashlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import msgspec
from dejamq_proto.loose_json import loads_loose
from dejamq_proto.records.compression import BadCompression, decompress
from dejamq_proto.records.hosts import host_text
from dejamq_proto.records.record import MAGIC_V2, Record, body_crc, decode, record_size
from dejamq_proto.standard_output import OutputFailed, run
from dejamq_proto.texts import printable

from dejamq_broker.store.files.checkpoint import Checkpoint
from dejamq_broker.store.files.config import StoreConfig
from dejamq_broker.store.files.errors import StoreError
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.index.file import IndexFile, IndexShape
from dejamq_broker.store.log.scan import Damage, End, FoundRecords, LogFiles, find_record, step, walk
from dejamq_broker.store.offline.at_rest import DataFiles, NoStore, commit_log, owner_lives, queue_files
from dejamq_broker.store.offline.findings import BAD_USE, CANNOT_TELL, DAMAGED, INTERRUPTED, WHOLE, close_stdout
from dejamq_broker.store.offline.verify_index_file import shape_of

# A record as a dict, for dump and for comparisons with what a RocketMQ says.


def describe(record: Record) -> dict[str, Any]:
    """A record as the manifests of real RocketMQ stores describe one, with the stored properties and flags."""
    properties = record.properties
    topic, raw = record.topic.encode(), record.raw_properties
    version = int(record.magic == MAGIC_V2)
    return {
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "log_offset": record.log_offset,
        "store_size": record_size(len(topic), len(record.body), len(raw), record.sys_flag),
        "body_crc": body_crc(record.body),
        "sys_flag": record.sys_flag,
        "flag": record.flag,
        "born_timestamp": record.born_timestamp_ms,
        "store_timestamp": record.store_timestamp_ms,
        "reconsume_times": record.reconsume_times,
        "prepared_transaction_offset": record.prepared_transaction_offset,
        "offset_msg_id": record.offset_message_id,
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "body_sha256": _body_sha256(record),
        "properties": properties,
        "magic": f"V{1 + version}",
        "born_host": host_text(record.born_host),
        "store_host": host_text(record.store_host),
    }


def _body_sha256(record: Record) -> str | None:
    """Of the body that a consumer sees; None when it cannot be decompressed, here or at all."""
    try:
        return hashlib.sha256(decompress(record.body, record.sys_flag)).hexdigest()
    except (BadCompression, ImportError):
        return None


WHATS = ("log", "queues", "index", "checkpoint", "config")
NO_END = 1 << 62
ENTRIES_AT_ONCE = 4096

Line = dict[str, Any]


class DumpRange(msgspec.Struct, frozen=True):
    """Which part of a store. ``start`` and ``end`` are log offsets in the log, queue offsets in queues."""

    topic: str | None = None
    queue_id: int | None = None
    start: int = 0
    end: int = NO_END

    def has(self, topic: str, queue_id: int) -> bool:
        return self.topic in (None, topic) and self.queue_id in (None, queue_id)


EVERYTHING = DumpRange()


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 whole, 1 damaged, 2 bad use, 3 cannot tell."""
    options = _parser().parse_args(arguments)
    wanted = DumpRange(options.topic, options.queue, options.start, options.end)
    whole = True
    try:
        for line in dump(StorePaths(options.directory), options.what, wanted):
            whole = whole and not line.get("summary", {}).get("damages") and "error" not in line
            print(msgspec.json.encode(line).decode() if options.output == "json" else text_of(line))
        sys.stdout.flush()
    except NoStore as error:
        print(f"dejamq store dump: {error}", file=sys.stderr)
        return BAD_USE
    except (BrokenPipeError, OutputFailed):  # the reader has enough, as head has: the status is of the part it saw
        close_stdout()
    except (StoreError, OSError) as error:
        print(f"dejamq store dump: cannot read the store: {error}", file=sys.stderr)
        return CANNOT_TELL
    except KeyboardInterrupt:
        return INTERRUPTED
    return WHOLE if whole else DAMAGED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dejamq store dump",
        description="List what a store holds, ours or a real RocketMQ's; reads only. With -o json one object a line, "
        "after the log a summary last.",
        epilog="Exit status: 0 whole, 1 damaged, 2 bad use, 3 cannot tell.",
    )
    parser.add_argument("directory", help="the store: the folder that holds commitlog/")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--what", choices=WHATS, default="log", help="default: log")
    parser.add_argument("--topic", help="only this topic")
    parser.add_argument("--queue", type=int, metavar="ID", help="only this queue id")
    parser.add_argument(
        "--from", dest="start", type=int, default=0, metavar="OFFSET",
        help="begin at this log offset (with --what queues: queue offset)",
    )  # fmt: skip
    parser.add_argument("--to", dest="end", type=int, default=NO_END, metavar="OFFSET", help="end before this one")
    return parser


def dump(paths: StorePaths, what: str = "log", wanted: DumpRange = EVERYTHING) -> Iterator[Line]:
    """One dict a record, entry or file. Raises NoStore for a directory without a store, OSError."""
    files = commit_log(paths)
    if what == "queues":
        return _queue_lines(paths, wanted)
    if what == "index":
        return _index_lines(paths)
    if what == "checkpoint":
        return iter([{"checkpoint": msgspec.structs.asdict(Checkpoint.load(paths.checkpoint))}])
    if what == "config":
        return _config_lines(paths)
    return _log_lines(paths, files, wanted)


def _log_lines(paths: StorePaths, files: DataFiles, wanted: DumpRange) -> Iterator[Line]:
    """Records in log order, then the summary of the walk."""
    damages = [
        {"log_offset": trouble.start, "end": trouble.end, "reason": trouble.reason} for trouble in files.troubles()
    ]
    records, ends = 0, []
    for extent in files.extents():
        for piece in _pieces(files, extent, wanted):
            if isinstance(piece, FoundRecords):
                for line in _records(piece, wanted):
                    records += 1
                    yield line
            elif files.is_gone(piece.log_offset):
                ends.append(piece.end if isinstance(piece, Damage) else piece.log_offset)
            elif isinstance(piece, Damage):
                damages.append({"log_offset": piece.log_offset, "end": piece.end, "reason": piece.reason})
            else:
                ends.append(piece.log_offset)
                if piece.reason and not owner_lives(paths):  # a record that is being written is no damage
                    damages.append({"log_offset": piece.log_offset, "end": None, "reason": piece.reason})
    start = min(files.lengths, default=0)
    yield {
        "summary": {
            "directory": str(paths.root), "files": len(files.lengths), "records": records,
            "log_start": max(start, wanted.start), "log_end": max(ends, default=start), "damages": damages,
        }
    }  # fmt: skip


def _pieces(files: DataFiles, extent: LogFiles, wanted: DumpRange) -> Iterator[FoundRecords | Damage | End]:
    """The walk through one run of files, as far as it is wanted."""
    at = max(extent.start, wanted.start)
    if at >= extent.end:
        return
    if at > extent.start and not isinstance(step(files.read, extent, at), FoundRecords):
        at = find_record(files.read, extent, at) or extent.end
    again = -1
    while at < extent.end:
        for piece in walk(files.read, extent, at):
            if piece.log_offset >= wanted.end:
                yield End(piece.log_offset, "")
                return
            if isinstance(piece, Damage) and piece.log_offset != again:
                # a record that was half written at the reading is whole by now
                again = at = piece.log_offset
                break
            yield piece
        else:
            return


def _records(found: FoundRecords, wanted: DumpRange) -> Iterator[Line]:
    at = 0
    for size in found.sizes:
        if found.log_offset + at >= wanted.end:
            return
        record = decode(found.data, at, check_crc=False)
        if wanted.has(record.topic, record.queue_id):
            yield describe(record)
        at += size


def _queue_lines(paths: StorePaths, wanted: DumpRange) -> Iterator[Line]:
    """Entries as they stand in the files, fillers too, up to the first empty place of each queue."""
    for queue in queue_files(paths):
        if not wanted.has(queue.topic, queue.queue_id):
            continue
        at, end = max(queue.first, wanted.start), min(queue.room, wanted.end)
        while at < end:
            for entry in queue.read(at, min(ENTRIES_AT_ONCE, end - at)).tolist():
                if entry[1] <= 0:
                    at = end
                    break
                yield {
                    "topic": queue.topic, "queue_id": queue.queue_id, "queue_offset": at,
                    "log_offset": entry[0], "size": entry[1], "tags_code": entry[2],
                }  # fmt: skip
                at += 1


def _index_lines(paths: StorePaths) -> Iterator[Line]:
    """Of each file its header, then its entries; a file whose number of slots cannot be found out is an error."""
    config = StoreConfig()
    usual = IndexShape(config.max_hash_slot_num, config.max_index_num)
    for path in sorted(paths.index.iterdir()) if paths.index.is_dir() else []:
        shape = shape_of(path, usual)
        file = IndexFile.load(path, shape) if shape else None
        if file is None:
            yield {"file": path.name, "error": "no index file, or a damaged one"}
            continue
        yield {"file": path.name, "content": msgspec.structs.asdict(file.header)}
        for first in range(1, file.header.next_entry, ENTRIES_AT_ONCE):
            entries = file.entries(first, min(first + ENTRIES_AT_ONCE, file.header.next_entry))
            for number, entry in enumerate(entries.tolist(), first):
                names = ("entry", "hash", "log_offset", "seconds", "previous")
                yield dict(zip(names, (number, *entry), strict=True))


def _config_lines(paths: StorePaths) -> Iterator[Line]:
    """The content of each settings file, RocketMQ's loose JSON made strict."""
    folder = paths.root / "config"
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        try:
            text = path.read_text(encoding="utf-8")
            yield {"file": path.name, "content": loads_loose(text) if text.strip() else None}
        except (ValueError, OSError) as error:
            yield {"file": path.name, "error": str(error)}


def text_of(line: Line) -> str:
    """A line for people: names and tags in it are of strangers."""
    text = _text_of(line)
    ours = "summary" in line or "checkpoint" in line  # these have several lines
    return "\n".join(map(printable, text.split("\n"))) if ours else printable(text)


def _text_of(line: Line) -> str:
    if "summary" in line:
        summary = line["summary"]
        damages = "".join(f"\nDAMAGED at {d['log_offset']}: {d['reason']}" for d in summary["damages"])
        return f"{summary['records']} records, log {summary['log_start']}..{summary['log_end']}{damages}"
    if "checkpoint" in line:
        return "\n".join(f"{name:<24}{value}" for name, value in line["checkpoint"].items())
    if "file" in line:
        return f"{line['file']}: {line.get('error') or msgspec.json.encode(line['content']).decode()}"
    if "hash" in line:
        return "  ".join(f"{name} {value}" for name, value in line.items())
    place = f"{line['log_offset']:>14}  {line['topic']}/{line['queue_id']}@{line['queue_offset']}"
    if "tags_code" in line:
        return f"{place}  {line['size']} bytes  tags code {line['tags_code']}"
    labels = "".join(f"  {name}={line[name]}" for name in ("tags", "keys") if line[name])
    return f"{place}  {line['store_size']} bytes  {_moment(line['store_timestamp'])}{labels}"


def _moment(timestamp_ms: int) -> str:
    """As the number where no calendar has it."""
    try:
        seconds = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(timestamp_ms // 1000))
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"
    return f"{seconds}.{timestamp_ms % 1000:03d}"


if __name__ == "__main__":
    sys.exit(run("dejamq store dump", main))
