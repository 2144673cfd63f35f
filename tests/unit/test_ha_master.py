"""A master and who follows it: who may, from where, and what is told of them."""

from typing import Any

import pytest
from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.base.identity import Site
from dejamq_broker.replication.master import Feed, Replication, SlaveName
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.journal.writer import Journal, Level
from dejamq_proto.records.record import Outgoing
from dejamq_proto.signals import Signal


class Log:
    """A store of which only the places count. A record lies at ``last_at``, stored at 5000 ms."""

    log_min, log_max, last_at = 1000, 2000, 1900

    def __init__(self) -> None:
        self.on_append = Signal[[]]()

    @property
    def copy(self) -> "Log":
        return self

    file_size = 1900

    def record_at(self, log_offset: int) -> bytes | None:
        record = bytearray(Outgoing.to("t").encode(0, 1, b"x", b""))
        record[56:64] = (5000).to_bytes(8, "big")
        return bytes(record) if log_offset == self.last_at else None


def a_master(*, broker_id: int = 0, **settings: Any) -> Replication:
    journal = Journal(None, role="broker", process="b", boot_id="b0", level=Level.OFF)
    log: Any = Log()
    site = Site(cluster="c", broker_name="a", broker_id=broker_id, boot_id="b0")
    return Replication(BrokerConfig(**settings), log, journal, site)


def a_slave(number: int = 1, *, cluster: str = "c", broker_name: str = "a") -> SlaveName:
    return SlaveName(cluster, broker_name, number, f"h:{number}", f"boot-{number}")


def connected(master: Replication, log_offset: int, number: int = 1) -> Feed:
    feed = master.connect(a_slave(number), log_offset)
    feed.position.sent = 2000
    return feed


@pytest.mark.parametrize(
    ("slave", "says"),
    [
        (a_slave(cluster="d"), "no master of a of d"),
        (a_slave(broker_name="b"), "no master of b of c"),
        (a_slave(0), "above 0"),
    ],
)
async def test_who_is_no_slave_of_this_broker_is_told_so(slave: SlaveName, says: str) -> None:
    with pytest.raises(DejamqError, match=says) as refused:
        a_master().connect(slave, 1500)
    assert refused.value.code == Code.INVALID_PARAMETER


async def test_a_slave_has_no_followers() -> None:
    with pytest.raises(DejamqError, match="follow its master") as refused:
        a_master(broker_id=2).connect(a_slave(), 1500)
    assert refused.value.code == Code.NO_PERMISSION


async def test_a_slave_that_compared_with_an_earlier_process_compares_again() -> None:
    master = a_master()
    master.check_boot("b0")
    with pytest.raises(DejamqError, match="compare with it again") as refused:
        master.check_boot("b-before")
    assert refused.value.code == Code.SERVICE_NOT_AVAILABLE


@pytest.mark.parametrize("log_offset", [999, 2001])
async def test_nothing_is_sent_from_where_the_log_is_not(log_offset: int) -> None:
    master = a_master()
    with pytest.raises(DejamqError, match=f"cannot be sent from {log_offset}"):
        master.connect(a_slave(), log_offset)
    assert not len(master.table)


async def test_nobody_can_have_more_than_it_was_sent() -> None:
    master = a_master()
    feed = master.connect(a_slave(), 1500)
    with pytest.raises(DejamqError, match="only 1500 was sent") as refused:
        feed.acknowledged(1501)
    assert refused.value.code == Code.INVALID_PARAMETER
    assert master.info(0)["slave.1.acknowledged"] == "1500"


async def test_a_producer_waits_for_slaves_that_are_near_and_for_no_others() -> None:
    master = a_master(broker_role="SYNC_MASTER", in_sync_replicas=2, ha_max_gap_not_in_sync=300)
    assert master.waits
    assert await master.acknowledged(2000) == Code.SLAVE_NOT_AVAILABLE
    feed = connected(master, 1700)
    assert await master.acknowledged(2000) == Code.SLAVE_NOT_AVAILABLE
    feed.acknowledged(1701)
    waiting = master.acknowledged(2000)
    feed.acknowledged(1999)
    assert not waiting.done()
    feed.acknowledged(2000)
    assert await waiting == Code.SUCCESS
    assert await master.acknowledged(2000) == Code.SUCCESS
    feed.end(DejamqError("the stream ended"))
    assert await master.acknowledged(2000) == Code.SLAVE_NOT_AVAILABLE
    await master.close(0)


async def test_operators_see_how_far_behind_each_slave_is() -> None:
    master = a_master()
    for log_offset, number in ((1900, 1), (2000, 2), (1800, 3)):
        connected(master, log_offset, number)
    told = master.info(5700)
    assert told["slaves"] == "3"
    lags = [(told[f"slave.{number}.lagBytes"], told[f"slave.{number}.lagMs"]) for number in (1, 2, 3)]
    # at 1800 a blank ends the file: the oldest record that slave 3 has not got begins the next one
    assert lags == [("100", "700"), ("0", "0"), ("200", "700")]
