"""How far consumers may read at a master whose slaves may take its place."""

from dejamq_broker.replication.read_bound import NO_BOUND, ReadBound
from dejamq_broker.replication.slave_progress import SlavePosition

LOST_S = 10.0


class World:
    """A bound, with a clock and a lease that tests move."""

    def __init__(self) -> None:
        self.now_s, self.lease = 0.0, True
        self.bound = ReadBound(LOST_S, lambda: self.lease, lambda: self.now_s)

    def joined(self, number: int, acknowledged: int, boot_id: str = "") -> SlavePosition:
        slave = SlavePosition(number, boot_id or f"boot-{number}", f"h:{number}", acknowledged)
        self.bound.joined(slave)
        return slave

    def limit_at(self, now_s: float) -> int:
        self.now_s = now_s
        self.bound.look()
        return self.bound.limit


def test_without_slaves_all_may_be_read() -> None:
    assert World().bound.limit == NO_BOUND


def test_all_that_every_slave_has_may_be_read() -> None:
    world = World()
    one, other = world.joined(1, 100), world.joined(2, 300)
    assert world.bound.limit == 100
    one.acknowledged = 400
    assert world.limit_at(0) == 300
    other.acknowledged = 500
    assert world.limit_at(0) == 400


def test_a_lost_slave_counts_until_it_is_too_old_to_take_over() -> None:
    world = World()
    world.bound.lost(world.joined(1, 100))
    assert world.limit_at(LOST_S - 1) == 100
    assert world.limit_at(LOST_S + 1) == NO_BOUND


def test_a_lost_slave_counts_for_ever_at_a_master_without_a_lease() -> None:
    world = World()
    world.bound.lost(world.joined(1, 100))
    world.lease = False
    assert world.limit_at(1000 * LOST_S) == 100
    world.lease = True
    assert world.limit_at(1000 * LOST_S) == NO_BOUND


def test_a_slave_that_comes_back_counts_as_it_is_now() -> None:
    """Also as a new process at the same address."""
    world = World()
    world.bound.lost(world.joined(1, 100))
    again = world.joined(1, 200, "boot-later")
    assert world.limit_at(1) == 200
    again.acknowledged = 300
    assert world.limit_at(2) == 300
    world.bound.joined(again)
    world.bound.lost(again)
    assert world.limit_at(2 + LOST_S + 1) == NO_BOUND


def test_a_slave_that_was_never_sent_everything_counts_at_no_time() -> None:
    world = World()
    world.bound.lost(SlavePosition(1, "boot-1", "h:1", 100))
    assert world.limit_at(0) == NO_BOUND
