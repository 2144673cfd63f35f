"""``python -m dejamq_broker.store.dump DIR [-o json]``: what is in a store's log, and is it whole?

Reads only, locks nothing, and may look at a store that is in use. Exit status 1 when anything is damaged.
"""

import argparse
import hashlib
import os
import sys
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec
from dejamq_proto.record import (
    MAGIC_V2,
    SYS_COMPRESSED,
    SYS_COMPRESSION_MASK,
    SYS_COMPRESSION_SHIFT,
    Record,
    body_crc,
    decode,
    record_size,
)

from dejamq_broker.store.errors import StoreDamaged, StoreError
from dejamq_broker.store.file_queue import list_files
from dejamq_broker.store.log_scan import Damage, End, Extent, Found, walk
from dejamq_broker.store.paths import StorePaths, file_name

ZLIB_TYPES = (0, 3)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m dejamq_broker.store.dump", description="List and check a store's log."
    )
    parser.add_argument("directory", help="the store directory: the one that holds commitlog/")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    options = parser.parse_args(arguments)
    whole = True
    try:
        for line in dump(StorePaths(options.directory)):
            whole = whole and not line.get("summary", {}).get("damages")
            print(msgspec.json.encode(line).decode() if options.output == "json" else _text(line))
    except (StoreError, OSError) as error:
        print(f"cannot read the store: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1
    return 0 if whole else 1


def dump(paths: StorePaths) -> Iterator[dict[str, Any]]:
    """One dict a record in log order, then the summary. Raises StoreDamaged for a folder that is no commit log."""
    extent = _extent(paths)
    records, damages, end = 0, [], extent.start
    for piece in walk(lambda at, size: _read(paths, extent, at, size), extent, extent.start):
        if isinstance(piece, Found):
            at = 0
            for size in piece.sizes:
                yield describe(decode(piece.data, at, check_crc=False))
                at += size
            records += len(piece.sizes)
        elif isinstance(piece, Damage):
            damages.append({"log_offset": piece.log_offset, "end": piece.end, "reason": piece.reason})
        elif isinstance(piece, End):
            end = piece.log_offset
            if piece.reason:
                damages.append({"log_offset": piece.log_offset, "end": None, "reason": piece.reason})
    yield {
        "summary": {
            "directory": str(paths.root), "files": (extent.end - extent.start) // extent.file_size,
            "records": records, "log_start": extent.start, "log_end": end, "damages": damages,
        }
    }  # fmt: skip


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
        "born_host": "{}:{}".format(*record.born_host),
        "store_host": "{}:{}".format(*record.store_host),
    }


def _body_sha256(record: Record) -> str | None:
    """Of the body that a consumer sees; None when it cannot be decompressed here."""
    body = record.body
    if record.sys_flag & SYS_COMPRESSED:
        if (record.sys_flag & SYS_COMPRESSION_MASK) >> SYS_COMPRESSION_SHIFT not in ZLIB_TYPES:
            return None
        try:
            body = zlib.decompress(body)
        except zlib.error:
            return None
    return hashlib.sha256(body).hexdigest()


def _text(line: dict[str, Any]) -> str:
    if "summary" in line:
        summary = line["summary"]
        damages = "".join(f"\nDAMAGED at {d['log_offset']}: {d['reason']}" for d in summary["damages"])
        return f"{summary['records']} records, log {summary['log_start']}..{summary['log_end']}{damages}"
    return (
        f"{line['log_offset']} {line['topic']}/{line['queue_id']}@{line['queue_offset']} "
        f"{line['store_size']} bytes tags={line['tags']} keys={line['keys']}"
    )


def _extent(paths: StorePaths) -> Extent:
    """The log's files, of whatever size they are."""
    if not paths.commit_log.is_dir():
        raise StoreDamaged(f"{paths.commit_log} is not there: name the directory that holds commitlog/")
    sizes = [path.stat().st_size for path in sorted(paths.commit_log.iterdir())]
    size = next((size for size in sizes if size), 1)
    starts = list_files(paths.commit_log, size)
    return Extent(starts[0], starts[-1] + size, size) if starts else Extent(0, 0, size)


def _read(paths: StorePaths, extent: Extent, log_offset: int, size: int) -> bytes:
    start = log_offset - log_offset % extent.file_size
    descriptor = os.open(paths.commit_log / file_name(start), os.O_RDONLY)
    try:
        return os.pread(descriptor, size, log_offset - start)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
