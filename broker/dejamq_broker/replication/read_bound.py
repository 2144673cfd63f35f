"""How far consumers may read at a master with ``failover_enable``: what every slave has that may take its place.

A consumer that read further would have an offset behind the end of the new master's queue, and pass over what is stored
there next. A slave counts as soon as all of the log was sent to it, so before it knows that it has caught up. A lost
one counts on until it is surely too old to take over (``FailoverBroker.may_take_over``).

Source of the idea: RocketMQ 5 ``confirmOffset``, which its controllers' sync state set decides.
"""

from collections.abc import Callable

from dejamq_broker.replication.slave_progress import SlavePosition

NO_BOUND = 1 << 62


class ReadBound:
    """Pure, and owned by the event loop; only ``limit`` is read by other threads."""

    def __init__(self, lost_s: float, holds: Callable[[], bool], clock_s: Callable[[], float]) -> None:
        """A lost slave counts for ``lost_s``, and until the lease ``holds`` after that.

        ``clock_s``: seconds, those counted in which the machine sleeps.
        """
        self.limit = NO_BOUND
        """The log offset from which on nothing may be read yet."""
        self._lost_s, self._holds, self._clock_s = lost_s, holds, clock_s
        self._following: list[SlavePosition] = []
        self._lost: list[tuple[float, SlavePosition]] = []

    def joined(self, slave: SlavePosition) -> None:
        """All of the log was sent to it; an earlier connection of this slave counts no more."""
        if any(slave is each for each in self._following):
            return
        self._following.append(slave)
        self._lost = [each for each in self._lost if not _same(each[1], slave)]
        self.look()

    def lost(self, slave: SlavePosition) -> None:
        """Its connection ended."""
        if any(slave is each for each in self._following):
            self._following = [each for each in self._following if each is not slave]
            self._lost.append((self._clock_s() + self._lost_s, slave))

    def look(self) -> None:
        """Compute ``limit`` anew: a slave has more, or lost ones are too old now."""
        if self._lost and self._holds():
            now_s = self._clock_s()
            self._lost = [each for each in self._lost if each[0] > now_s]
        counting = [*self._following, *(slave for _, slave in self._lost)]
        self.limit = min((slave.acknowledged for slave in counting), default=NO_BOUND)


def _same(one: SlavePosition, other: SlavePosition) -> bool:
    """A new process at the address of an earlier one has taken its place, too."""
    return one.boot_id == other.boot_id or one.address == other.address
