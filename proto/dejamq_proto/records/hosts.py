"""Hosts as records keep them, address and port, and the message ids that brokers make of theirs.

Source: RocketMQ ``MessageDecoder``.
"""

import socket
import struct

Host = tuple[str, int]
NO_HOST: Host = ("0.0.0.0", 0)

PORT, LOG_OFFSET = struct.Struct(">i"), struct.Struct(">q")


def host_text(host: Host) -> str:
    """``address:port``, IPv6 in brackets."""
    return f"[{host[0]}]:{host[1]}" if ":" in host[0] else f"{host[0]}:{host[1]}"


def offset_message_id(store_host: Host, log_offset: int) -> str:
    """The broker-made id: store host, port and log offset in upper-case hex (32 characters, 56 with IPv6)."""
    return (host_bytes(store_host) + LOG_OFFSET.pack(log_offset)).hex().upper()


def parse_offset_message_id(text: str) -> tuple[Host, int]:
    """The reverse of ``offset_message_id``. Raises ValueError when the text is no such id."""
    raw = bytes.fromhex(text)
    if len(raw) not in (16, 28):
        raise ValueError(f"an offset message id has 32 or 56 hex digits, not {len(text)}: {text!r}")
    return read_host(raw, 0, len(raw) - 12), LOG_OFFSET.unpack_from(raw, len(raw) - 8)[0]


def host_bytes(host: Host) -> bytes:
    """As records have it: 8 bytes, 20 with IPv6."""
    family = socket.AF_INET6 if ":" in host[0] else socket.AF_INET
    return socket.inet_pton(family, host[0]) + PORT.pack(host[1])


def read_host(buffer: bytes | memoryview, at: int, width: int) -> Host:
    """The reverse of ``host_bytes``; ``width`` is the size of the address alone, 4 or 16."""
    family = socket.AF_INET6 if width == 16 else socket.AF_INET
    return socket.inet_ntop(family, bytes(buffer[at : at + width])), PORT.unpack_from(buffer, at + width)[0]
