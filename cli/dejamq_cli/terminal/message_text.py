"""Messages as programs and as people read them: text where the body is text, hex and base64 where it is not."""

import base64
from collections.abc import Iterator
from typing import Any

from dejamq import ReceivedMessage

from dejamq_cli.terminal.tables import blocks

HEX_WIDTH = 16
MOST_HEX_BYTES, MOST_LISTED = 1024, 200
PRINTABLE = range(0x20, 0x7F)


def described(message: ReceivedMessage) -> dict[str, Any]:
    """A message for programs; a body that is not text comes as ``body_base64``."""
    row: dict[str, Any] = {
        "topic": message.topic,
        "message_id": message.message_id,
        "offset_message_id": message.offset_message_id,
        "tags": message.tags,
        "keys": message.keys,
        "broker": message.queue.broker_name,
        "queue_id": message.queue.queue_id,
        "queue_offset": message.queue_offset,
        "born_timestamp_ms": message.born_timestamp_ms,
        "store_timestamp_ms": message.store_timestamp_ms,
        "reconsume_times": message.reconsume_times,
        "properties": dict(message.properties),
    }
    try:
        row["body"] = message.body.decode()
    except UnicodeDecodeError:
        row["body_base64"] = base64.b64encode(message.body).decode()
    return row


def described_whole(message: ReceivedMessage) -> dict[str, Any]:
    """As ``described``, with everything that is known of the stored record. ``stored_topic`` may be a retry topic."""
    return described(message) | {
        "stored_topic": message.queue.topic,
        "log_offset": message.log_offset,
        "store_size_bytes": message.store_size,
        "body_bytes": len(message.body),
        "body_crc": message.body_crc,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "born_host": message.born_host,
        "store_host": message.store_host,
        "prepared_transaction_offset": message.prepared_transaction_offset,
    }


def text_of(message: ReceivedMessage) -> str:
    """Everything but the body, a line each; properties by their names."""
    row = described_whole(message)
    fields: dict[str, Any] = {
        "message id": row["message_id"],
        "offset message id": row["offset_message_id"],
        "topic": row["topic"],
        "tags": row["tags"],
        "keys": row["keys"],
        "place": f"{place_text(message)}, log offset {row['log_offset']}, {row['store_size_bytes']} bytes",
        "stored_timestamp_ms": row["store_timestamp_ms"],
        "stored at": row["store_host"],
        "born_timestamp_ms": row["born_timestamp_ms"],
        "born at": row["born_host"],
        "failed tries": row["reconsume_times"],
    }
    fields |= {f"property {name}": value for name, value in sorted(row["properties"].items())}
    fields["body"] = f"{row['body_bytes']} bytes"
    return blocks([fields])


def place_text(message: ReceivedMessage) -> str:
    """``broker topic:queue @offset``."""
    queue = message.queue
    return f"{queue.broker_name} {queue.topic}:{queue.queue_id} @{message.queue_offset}"


def body_text(body: bytes) -> str:
    """The text, whole; of other bytes the beginning in hex."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return "\n".join(_hex_lines(body))
    return text if text.isprintable() or _is_layout(text) else "\n".join(_hex_lines(body))


def one_line(body: bytes) -> str:
    """For lists: the beginning of a text, with line ends and the like as Python would write them. Other bodies: hex.

    JSON and --body show the whole body.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        dots = "…" if len(body) > HEX_WIDTH else ""
        return f"({len(body)} bytes, no text) {body[:HEX_WIDTH].hex(' ')}{dots}"
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[:MOST_LISTED])
    return shown if len(text) <= MOST_LISTED else f"{shown}… ({len(body)} bytes)"


def _is_layout(text: str) -> bool:
    """Text in lines and columns; anything else that does not print could do something to the terminal."""
    return all(char.isprintable() or char in "\n\r\t" for char in text)


def _hex_lines(body: bytes) -> Iterator[str]:
    for at in range(0, min(len(body), MOST_HEX_BYTES), HEX_WIDTH):
        row = body[at : at + HEX_WIDTH]
        text = "".join(chr(byte) if byte in PRINTABLE else "." for byte in row)
        yield f"{at:08x}  {row.hex(' '):<{HEX_WIDTH * 3 - 1}}  {text}"
    if len(body) > MOST_HEX_BYTES:
        yield f"… {len(body) - MOST_HEX_BYTES} bytes more; --body writes all of them as they are"
