"""Where a broadcasting consumer keeps its offsets: RocketMQ's local file, so that either client goes on with it.

The file belongs to one group of one client id. Source: RocketMQ ``LocalFileOffsetStore``, ``OffsetSerializeWrapper``.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Annotated

import msgspec
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.loose_json import pairs_of_field

from dejamq.values.message import MessageQueue

FIELD = "offsetTable"
FILE_NAME = "offsets.json"
HOME = Path(".rocketmq_offsets")
"""RocketMQ's folder, in the home of the user."""


_numbers = count(1)


class OffsetsUnreadable(DejamqError):
    """Neither the file nor its backup can be read: the consumer must not begin anywhere by guess."""

    default_code = Code.SYSTEM_ERROR


Queue = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]
Offset = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class _Key(msgspec.Struct, frozen=True, rename="camel"):
    brokerName: str  # noqa: N815  # the file's own names
    queueId: Queue  # noqa: N815
    topic: str


def decode_offsets(text: str) -> dict[MessageQueue, int]:
    """The table in the file's text: next queue offset to consume by queue. Raises ValueError for other text."""
    table = {}
    try:
        pairs = pairs_of_field(text, FIELD)
    except RecursionError:
        raise ValueError("objects or lists lie too deep in one another") from None
    for raw_key, value in pairs:
        try:
            key = msgspec.convert(raw_key, _Key)
            table[MessageQueue(key.topic, key.brokerName, key.queueId)] = msgspec.convert(value, Offset)
        except msgspec.ValidationError as error:
            raise ValueError(f"{str(raw_key)[:200]} is no queue with an offset: {error}") from None
    return table


def encode_offsets(offsets: Mapping[MessageQueue, int]) -> str:
    """The text that RocketMQ's client writes for the same table in the same order, byte for byte."""
    rows = (
        f'{{\n\t\t\t"brokerName":{_text(queue.broker_name)},\n\t\t\t"queueId":{queue.queue_id},\n'
        f'\t\t\t"topic":{_text(queue.topic)}\n\t\t}}:{queue_offset}'
        for queue, queue_offset in offsets.items()
    )
    table = ",".join(rows)
    return f'{{\n\t"{FIELD}":{{{table}{chr(10) + chr(9) if table else ""}}}\n}}'


def _text(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


class LocalOffsets:
    """The file of one group of one client, with the generation before as ``.bak``. One caller at a time; blocks."""

    def __init__(self, client_id: str, group: str, home: Path | None = None) -> None:
        """``home``: the folder of all clients' files (RocketMQ: ``rocketmq.client.localOffsetStoreDir``)."""
        self.path = (home.expanduser() if home else Path.home() / HOME) / client_id / group / FILE_NAME
        self._backup = self.path.with_name(FILE_NAME + ".bak")
        mine = f".{os.getpid()}-{next(_numbers)}.tmp"  # two members of one file must not take each other's
        self._staged, self._staged_backup = (self.path.with_name(FILE_NAME + kind + mine) for kind in ("", ".bak"))
        self.source = "none"
        """Where the last ``load`` found the table: main, bak, or none."""

    def load(self) -> dict[MessageQueue, int]:
        """The table saved last; the backup's table when the file is damaged; {} when nothing ever was.

        Raises OffsetsUnreadable.
        """
        troubles, self.source = [], "none"
        for path, source in ((self.path, "main"), (self._backup, "bak")):
            try:
                text = path.read_text(encoding="utf-8")
                if not text.strip():
                    raise ValueError("it is empty, and every write of it is whole")
                table = decode_offsets(text)
                self.source = source
                return table
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                troubles.append(f"{path} cannot be read ({error})")
        if troubles:
            raise OffsetsUnreadable(f"{troubles[0]}; repair it, or delete it and its .bak to begin anew")
        return {}

    def merge(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Save these, and keep what the file says of other queues. Raises OSError, OffsetsUnreadable."""
        self.save(self.load() | dict(offsets))

    def save(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Replace the file as a whole: a crash leaves the old table or the new one. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._staged.open("w", encoding="utf-8") as file:
                file.write(encode_offsets(offsets))
                file.flush()
                os.fsync(file.fileno())
            self._keep_backup()
            os.replace(self._staged, self.path)
        except BaseException:
            self._staged.unlink(missing_ok=True)
            raise
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _keep_backup(self) -> None:
        """The present generation under the backup's name too; a damaged one never takes a good backup's place."""
        try:
            decode_offsets(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        link = self._staged_backup
        link.unlink(missing_ok=True)
        try:
            os.link(self.path, link)
        except OSError:  # a file system without hard links: the file is absent for a moment, as with RocketMQ
            with suppress(FileNotFoundError):  # another member of this file is at the same step
                os.replace(self.path, self._backup)
        else:
            os.replace(link, self._backup)
            link.unlink(missing_ok=True)  # it stays where the other member has just made the same file the backup
