"""What the journal is told of consumer offsets: set, asked for, ignored."""

from typing import NamedTuple

from dejamq_proto.events import OffGet, OffIgnored, OffSet
from dejamq_proto.journal import Journal


class Asker(NamedTuple):
    """Whose request it is; (boot_id, seq) names it for the audit.

    Empty for requests of the broker's own. ``seq`` counts requests within one start of a client; it stands in
    the client's journal too, which is how the audit matches both sides of a commit.
    """

    client_id: str = ""
    boot_id: str = ""
    seq: int = 0


NOBODY = Asker()


class Position(NamedTuple):
    """One group's place in one queue."""

    group: str
    topic: str
    queue_id: int


class OffsetLines:
    """Writes the lines of one broker; nothing where there is no journal."""

    def __init__(self, broker_name: str, journal: Journal) -> None:
        self._broker_name, self._journal = broker_name, journal

    def changed(self, at: Position, old: int | None, new: int, by: str, asker: Asker) -> None:
        """The table has ``new`` now; -1: nothing any more."""
        if self._journal.on:
            self._journal.write(OffSet(
                broker_name=self._broker_name, group=at.group, topic=at.topic, queue_id=at.queue_id,
                old=-1 if old is None else old, new=new, by=by,
                client_id=asker.client_id, client_boot_id=asker.boot_id, request_seq=asker.seq,
            ))  # fmt: skip

    def ignored(self, at: Position, old: int | None, value: int, how: tuple[str, str], asker: Asker) -> None:
        """A commit counts for nothing. ``how``: by which way it came, and the word for why."""
        if self._journal.on:
            self._journal.write(OffIgnored(
                broker_name=self._broker_name, group=at.group, topic=at.topic, queue_id=at.queue_id,
                old=-1 if old is None else old, value=value, by=how[0], why=how[1],
                client_id=asker.client_id, client_boot_id=asker.boot_id, request_seq=asker.seq,
            ))  # fmt: skip

    def answered(self, at: Position, value: int, why: str, asker: Asker) -> None:
        """A client was told where to begin; -1: that the broker does not know."""
        if self._journal.on:
            self._journal.write(OffGet(
                broker_name=self._broker_name, group=at.group, topic=at.topic, queue_id=at.queue_id,
                value=value, why=why, client_id=asker.client_id, client_boot_id=asker.boot_id, request_seq=asker.seq,
            ))  # fmt: skip
