"""How RocketMQ's push consumers ask for messages: ``config/messageRequestMode.json`` in RocketMQ's format.

Only consumers that let the broker share the queues (``clientRebalance=false``) ask for it.
Source: RocketMQ ``MessageRequestModeManager``.
"""

from pathlib import Path
from typing import Any

import msgspec

from dejamq_broker.base import json_file
from dejamq_broker.base.table_file import TableFile

POP, PULL = "POP", "PULL"
MODES = (PULL, POP)
"""In the order of RocketMQ's numbers for them."""


class RequestMode(msgspec.Struct, frozen=True, rename="camel"):
    """Of one group and topic. ``pop_share_queue_num``: a member's queues are popped by so many others; 0: by all."""

    topic: str
    consumer_group: str
    mode: str = PULL
    pop_share_queue_num: json_file.Int32 = 0


Modes = dict[str, dict[str, RequestMode]]
"""By topic and group."""


class RequestModes:
    """What operators set, by topic and group; the file follows each change. Owned by the event loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = TableFile(path)
        self.kept = self._file.kept
        """Awaited before an operator is told of a change."""
        self._modes: Modes = {}

    def load(self) -> None:
        """Read the file. Raises UnreadableFile."""
        content, _ = json_file.load(self._path)
        try:
            self._modes = msgspec.convert((content or {}).get("messageRequestModeMap") or {}, Modes, strict=False)
        except msgspec.ValidationError as error:
            raise json_file.UnreadableFile(f"{self._path} is no table of request modes: {error}") from None

    def get(self, topic: str, group: str) -> RequestMode | None:
        """None for a group whose mode nobody set."""
        return self._modes.get(topic, {}).get(group)

    def set(self, mode: RequestMode) -> None:
        """From now on; see ``kept``."""
        self._write(self._modes | {mode.topic: self._modes.get(mode.topic, {}) | {mode.consumer_group: mode}})

    def forget(self, *, topic: str = "", group: str = "") -> None:
        """What was set for this topic or this group."""
        left = {
            one: kept
            for one, modes in self._modes.items()
            if one != topic and (kept := {name: mode for name, mode in modes.items() if name != group})
        }
        if left != self._modes:
            self._write(left)

    def content(self) -> dict[str, Any]:
        """As the file has it."""
        return {"messageRequestModeMap": msgspec.to_builtins(self._modes)}

    def take_copy(self, modes: Modes) -> None:
        """Become as the master is."""
        if modes != self._modes:
            self._write(modes)

    def _write(self, modes: Modes) -> None:
        self._file.write(lambda: {"messageRequestModeMap": msgspec.to_builtins(modes)})
        self._modes = modes
