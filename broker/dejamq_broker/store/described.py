"""A record as a dict, for dump and for comparisons with what a RocketMQ says."""

import hashlib
from typing import Any

from dejamq_proto.compression import BadCompression, decompress
from dejamq_proto.hosts import host_text
from dejamq_proto.record import MAGIC_V2, Record, body_crc, record_size


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
