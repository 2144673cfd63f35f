"""The tables that a slave copies: what is told, what is taken, and what is refused."""

from pathlib import Path

import pytest
from broker_tables import delay_progress, offset_table, timer_progress, topic_table
from dejamq_broker.base.json_file import UnreadableFile
from dejamq_broker.replication.copied_tables import TABLES, CopiedTables
from dejamq_broker.tables.offsets import Position
from dejamq_broker.tables.request_modes import RequestMode, RequestModes
from dejamq_broker.tables.subscription_groups import SubscriptionGroupTable
from dejamq_broker.timer.progress import Reached
from dejamq_proto.journal.writer import Journal, Level


class Replica:
    """The tables of one broker, in a directory of their own."""

    def __init__(self, directory: Path) -> None:
        journal = Journal(None, role="broker", process="", boot_id="b", level=Level.OFF)
        self.topics = topic_table(directory / "topics.json", lambda: 1)
        self.groups = SubscriptionGroupTable(directory / "groups.json", lambda: 1, auto_create=True)
        self.offsets = offset_table(directory / "offsets.json", journal, lambda: 1, name="a")
        self.progress = delay_progress(directory / "delay.json", journal, name="a")
        self.timed = timer_progress(directory / "timercheck", journal)
        self.modes = RequestModes(directory / "modes.json")
        self.tables = CopiedTables(self.topics, self.groups, self.offsets, self.progress, self.timed, self.modes)

    def copy(self, master: "Replica") -> list[str]:
        """All tables once; which of them came."""
        came = []
        for table in TABLES:
            if content := master.tables.tell(table, self.tables.version(table)):
                self.tables.take(table, content)
                came.append(table)
        return came


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Replica, Replica]:
    master, slave = Replica(tmp_path / "master"), Replica(tmp_path / "slave")
    master.topics.ensure("T", 2)
    master.groups.require("g")
    master.offsets.commit(Position("g", "T", 1), 5, by="sync")
    master.progress.set(2, 7)
    return master, slave


def test_topics_and_groups_come_only_when_their_version_changed(pair: tuple[Replica, Replica]) -> None:
    master, slave = pair
    assert slave.copy(master) == list(TABLES)
    assert slave.copy(master) == ["offsets", "delay_progress", "timer_progress", "request_modes"]
    master.groups.update("g", retry_max_times=3)
    assert slave.copy(master) == ["groups", "offsets", "delay_progress", "timer_progress", "request_modes"]
    assert slave.groups.content() == master.groups.content()


def test_how_far_timed_messages_are_handled_is_copied_and_a_master_that_does_not_tell_changes_nothing(
    pair: tuple[Replica, Replica],
) -> None:
    master, slave = pair
    master.timed.set(Reached(read_ms=5000, queue_offset=7, slot_done=3, log_end=52))
    slave.copy(master)
    assert slave.timed.reached == Reached(read_ms=5000, queue_offset=7, in_wheel=False)
    slave.tables.take("timer_progress", master.tables.tell("delay_progress", ""))
    assert slave.timed.reached == Reached(read_ms=5000, queue_offset=7, in_wheel=False)


def test_how_groups_ask_for_messages_is_copied(pair: tuple[Replica, Replica]) -> None:
    master, slave = pair
    master.modes.set(RequestMode("T", "g", "POP", 2))
    slave.copy(master)
    assert slave.modes.get("T", "g") == RequestMode("T", "g", "POP", 2)
    master.modes.forget(group="g")
    slave.copy(master)
    assert slave.modes.get("T", "g") is None


def test_what_a_slave_changed_itself_is_replaced(pair: tuple[Replica, Replica]) -> None:
    master, slave = pair
    slave.copy(master)
    slave.topics.ensure("%RETRY%own", 1)
    slave.copy(master)
    assert slave.topics.content() == master.topics.content()


def test_offsets_that_the_master_dropped_go_and_others_stay(pair: tuple[Replica, Replica]) -> None:
    master, slave = pair
    slave.copy(master)
    slave.offsets.commit(Position("own", "T", 1), 9, by="sync")
    master.offsets.forget(group="g")
    slave.copy(master)
    assert slave.offsets.everything() == [("T", "own", {1: 9})]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("content", [b"no json", b"[]", b'{"topicConfigTable": 3, "offsetTable": {"a": "b"}}'])
def test_what_is_no_table_changes_nothing(pair: tuple[Replica, Replica], table: str, content: bytes) -> None:
    master, slave = pair
    slave.copy(master)
    before = [held.content() for held in (slave.topics, slave.groups, slave.offsets, slave.progress)]
    if table == "groups":
        content = content.replace(b"topicConfigTable", b"subscriptionGroupTable")
    if table == "request_modes":
        content = content.replace(b"topicConfigTable", b"messageRequestModeMap")
    if table == "timer_progress":
        content = content.replace(b"topicConfigTable", b"read_ms").replace(b"3", b'"x"')
    with pytest.raises(UnreadableFile):
        slave.tables.take(table, content)
    assert [held.content() for held in (slave.topics, slave.groups, slave.offsets, slave.progress)] == before
