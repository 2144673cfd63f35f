"""What the paths of a broker count, and what it tells of it under RocketMQ's names."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from broker_parts import Parts, clock_ms, parts_in
from broker_pulls import answered, pull
from broker_tables import clients_of, delay_progress
from broker_wire import a_run
from dejamq_broker.base.counts import Counts
from dejamq_broker.deferred.retry import GivenBack
from dejamq_broker.members.commands import PendingCommands, TellRunning
from dejamq_broker.members.groups import Consumer
from dejamq_broker.operators.runtime_info import RuntimeInfo, size_text
from dejamq_broker.operators.store_rates import StoreRates
from dejamq_broker.tables.offsets import Asker
from dejamq_broker.tables.topics import TopicConfig
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.journal.writer import Journal, Level
from dejamq_proto.wire.messages import SendRun


def counted(parts: Parts) -> Counts:
    counts = parts.writer.counts
    parts.topics.update(TopicConfig("orders", 4, 4))
    return counts


def test_a_run_counts_once_with_all_its_messages(tmp_path: Path) -> None:
    with parts_in(tmp_path) as parts:
        counts = counted(parts)
        parts.send("orders", b"one", b"two", b"three")
        topic = counts.topics["orders"]
        assert (topic.messages, topic.calls, counts.puts.times) == (3, 1, 1)
        assert topic.bytes == counts.puts.bytes == parts.store.log_max
        assert sum(counts.puts.by_time) == sum(counts.puts.fine) == 1
        assert counts.puts.longest_us >= topic.us > 0


@pytest.mark.parametrize("many", [1, 10])
def test_a_run_to_queues_of_several_topics_counts_once_for_each_topic_and_is_one_append(
    tmp_path: Path, many: int
) -> None:
    keys = [("orders", 0), ("bills", 1), ("orders", 1)]
    bodies = [[b"x" * (10 + number)] for number in range(3 * many)]
    records = [a_run(keys[n % 3][0], body, queue_id=keys[n % 3][1]).records[0] for n, body in enumerate(bodies)]
    run = SendRun(
        queues=keys, queue_index=np.tile(np.arange(3, dtype="<u4"), many), records=records,
        sizes=np.array(list(map(len, records)), "<u4"),
    )  # fmt: skip
    with parts_in(tmp_path) as parts:
        counts = counted(parts)
        assert parts.outcome(run).result.code == Code.SUCCESS
        orders, bills = counts.topics["orders"], counts.topics["bills"]
        assert (orders.messages, orders.calls, bills.messages, bills.calls) == (2 * many, 1, many, 1)
        assert bills.bytes == int(run.sizes[1::3].sum())
        assert orders.bytes + bills.bytes == counts.puts.bytes == parts.store.log_max
        assert (counts.puts.times, sum(counts.puts.fine), counts.puts.messages) == (1, 1, 3 * many)


def test_a_refused_run_counts_as_nothing(tmp_path: Path) -> None:
    with parts_in(tmp_path) as parts:
        counts = counted(parts)
        parts.send("orders", b"")
        assert (counts.topics, counts.puts.messages) == ({}, 0)


def test_a_run_that_the_store_refuses_is_a_failed_put(tmp_path: Path) -> None:
    with parts_in(tmp_path) as parts:
        counts = counted(parts)
        parts.store.close()
        parts.send("orders", b"one")
        assert (counts.puts.failed, counts.puts.messages) == (1, 0)


def test_pulls_count_what_they_found_and_how_far_behind_it_is(tmp_path: Path) -> None:
    with parts_in(tmp_path) as parts:
        counts = counted(parts)
        parts.send("orders", b"one", b"two")
        parts.settle()
        end = parts.store.log_max
        parts.puller = parts.a_puller(parts.writer.site, counts, clock_ms=lambda: clock_ms() + 60_000)
        answered(parts, pull(max_messages=1))
        group = counts.groups["orders", "g"]
        assert (group.messages, group.bytes, group.calls) == (1, end // 2, 1)
        assert group.fall_bytes == end
        assert 60_000 <= group.fall_ms < 70_000
        answered(parts, pull(2))
        assert (counts.gets.found, counts.gets.missed, counts.gets.messages) == (1, 1, 1)


def test_a_message_given_back_counts_for_its_topic_and_group_and_a_dead_letter_too(tmp_path: Path) -> None:
    with parts_in(tmp_path) as parts:
        counts = counted(parts)
        parts.send("orders", b"one")
        parts.groups.require("g")
        parts.retries.send_back(GivenBack(group="g", log_offset=0))
        parts.retries.send_back(GivenBack(group="g", log_offset=0, delay_level=-1))
        assert counts.groups["orders", "g"].sent_back == 2
        assert counts.groups["%DLQ%g", "g"].dead == 1


def told(parts: Parts, counts: Counts) -> dict[str, str]:
    rates = StoreRates(counts, clock_ms, lambda now_ms: 0)
    progress = delay_progress(parts.directory / "delayOffset.json", parts.journal)
    timer: Any = SimpleNamespace(behind_ms=3200, messages_behind=5, waiting=7)
    return RuntimeInfo(
        parts.store, parts.directory, counts, rates, clock_ms, progress=progress, levels=18, timer=timer,
        sends=lambda: (0, 0),
    ).values()  # fmt: skip


def test_runtime_info_is_what_was_measured(tmp_path: Path) -> None:
    with parts_in(tmp_path) as parts:
        counts = counted(parts)
        before = clock_ms()
        parts.send("orders", b"one", b"two")
        parts.settle()
        answered(parts, pull())
        values = told(parts, counts)
        assert values["putMessageTimesTotal"] == values["getMessageTransferredMsgCount"] == "2"
        timer = (values["timerReadBehind"], values["timerOffsetBehind"], values["timerCongestNum"])
        assert timer == ("3", "5", "7")
        assert values["putMessageAverageSize"] == f"{parts.store.log_max / 2:.1f}"
        assert values["msgPutTotalTodayNow"] == "2"
        assert before <= int(values["earliestMessageTimeStamp"]) <= clock_ms()
        assert float(values["putMessageEntireTimeMax"]) * 1000 == counts.puts.longest_us
        assert values["runtime"] == "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"
        assert int(values["residentBytes"]) > 10 << 20
        assert int(values["remainHowManyDataToFlush"]) >= 0
        assert values["brokerActive"] == "true"


def test_an_empty_broker_has_no_earliest_message(tmp_path: Path) -> None:
    with parts_in(tmp_path) as parts:
        values = told(parts, Counts())
        assert (values["earliestMessageTimeStamp"], values["putMessageAverageSize"]) == ("-1", "0.0")


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0.0 B"), (1536, "1.5 KiB"), (3 << 40, "3.0 TiB"), (5 << 60, "5120.0 PiB")]
)
def test_sizes_are_told_to_people(size: int, text: str) -> None:
    assert size_text(size) == text


# commands to clients


class Asked:
    """Commands to one member."""

    def __init__(self, parts: Parts) -> None:
        journal = Journal(None, role="broker", process="", boot_id="", level=Level.OFF)
        self.clients = clients_of(parts.topics, parts.groups, journal, lambda: 0)
        self.sent: list[object] = []
        self.commands = PendingCommands(self.clients, 50)
        self.channel = self.clients.open(lambda group: None, command=self._take)
        self.clients.heartbeat(self.channel, Asker("c1", "boot1"), [Consumer("g")])

    def _take(self, command: object) -> bool:
        self.sent.append(command)
        return True

    async def ask(self) -> object:
        return await self.commands.ask("g", "c1", lambda number: TellRunning(number, "g", stacks=False))


async def test_the_answer_of_the_client_that_was_asked_counts(tmp_path: Path) -> None:
    with parts_in(tmp_path) as parts:
        asked = Asked(parts)

        def answer(command: object) -> bool:
            assert isinstance(command, TellRunning)
            asked.commands.answered("c1", command.number + 7, "another command's")
            asked.commands.answered("c2", command.number, "another client's")
            asked.commands.answered("c1", command.number, "well")
            asked.commands.answered("c1", command.number, "again")
            return True

        asked.clients._commands[asked.channel] = answer
        assert await asked.ask() == "well"
        assert len(asked.commands) == 0


async def test_a_client_that_goes_away_answers_nothing_more(tmp_path: Path) -> None:
    with parts_in(tmp_path) as parts:
        asked = Asked(parts)

        def leave(command: object) -> bool:
            asked.clients.close(asked.channel)
            return True

        asked.clients._commands[asked.channel] = leave
        with pytest.raises(DejamqError, match="went away") as gone:
            await asked.ask()
        assert (gone.value.code, gone.value.definite) == (Code.CONSUMER_NOT_ONLINE, False)
        assert len(asked.commands) == 0


async def test_a_client_that_says_nothing_is_not_waited_for(tmp_path: Path) -> None:
    with parts_in(tmp_path) as parts:
        asked = Asked(parts)
        with pytest.raises(DejamqError) as late:
            await asked.ask()
        assert (late.value.code, late.value.definite) == (Code.CONSUME_MSG_TIMEOUT, False)
        assert len(asked.commands) == 0


async def test_a_client_that_does_not_read_what_waits_for_it_is_not_asked(tmp_path: Path) -> None:
    with parts_in(tmp_path) as parts:
        asked = Asked(parts)
        asked.clients._commands[asked.channel] = lambda command: False
        with pytest.raises(DejamqError, match="does not read what waits for it") as refused:
            await asked.ask()
        assert (refused.value.code, refused.value.definite) == (Code.CONSUMER_NOT_ONLINE, True)
        assert len(asked.commands) == 0
