"""The way of a failed message: retries after growing delays, dead letters, and what lost answers make of it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from consumer_cluster import Servers, servers, until
from dejamq import BrokerUnavailable, ReceivedMessage, SendTimeout
from dejamq.net.broker import BrokerLink

SOON = {"schedule_poll_interval_ms": 20}


def appended(here: Servers, topic: str) -> list[dict[str, Any]]:
    """The broker's lines of runs stored in this topic."""
    return [line for line in here.server_lines("APPEND") if line["topics"] == [topic]]


async def test_a_message_that_always_fails_is_tried_at_growing_delays_and_then_is_a_dead_letter(tmp_path: Path) -> None:
    times: list[int] = []

    async def handler(message: ReceivedMessage) -> None:
        times.append(message.reconsume_times)
        raise ValueError("never")

    async with servers(tmp_path, **SOON) as here:
        consumer = here.consumer(max_reconsume_times=2)
        consumer.subscribe("orders", handler)
        async with consumer:
            await here.send("x")
            await until(lambda: appended(here, "%DLQ%g"))
        assert times == [0, 1, 2]
        assert [line["queue_ids"] for line in appended(here, "SCHEDULE_TOPIC_XXXX")] == [[2], [3]]  # levels 3 and 4


async def test_a_send_back_that_fails_is_made_good_by_the_clients_own_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int]] = []

    async def refused(link: BrokerLink, request: Any) -> None:
        raise BrokerUnavailable("out of order", definite=True)

    async def handler(message: ReceivedMessage) -> None:
        seen.append((message.message_id, message.reconsume_times))
        if message.reconsume_times == 0:
            raise ValueError("not yet")

    monkeypatch.setattr(BrokerLink, "send_back", refused)
    async with servers(tmp_path, **SOON) as here:
        consumer = here.consumer()
        consumer.subscribe("orders", handler)
        async with consumer:
            await here.send("x")
            await until(lambda: len(seen) == 2)
        assert seen == [(seen[0][0], 0), (seen[0][0], 1)]
        assert [(line["path"], line["outcome"]) for line in here.lines("SENDBACK")] == [
            ("rpc", "failed"), ("fallback", "ok")
        ]  # fmt: skip


async def test_a_send_back_whose_answer_was_lost_makes_two_retries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cause B11: as in RocketMQ, the client cannot know that the broker stored the first."""
    seen: list[int] = []
    stored = BrokerLink.send_back

    async def answer_lost(link: BrokerLink, request: Any) -> None:
        await stored(link, request)
        raise SendTimeout("no answer", definite=False)

    async def handler(message: ReceivedMessage) -> None:
        seen.append(message.reconsume_times)
        if message.reconsume_times == 0:
            raise ValueError("not yet")

    monkeypatch.setattr(BrokerLink, "send_back", answer_lost)
    async with servers(tmp_path, **SOON) as here:
        consumer = here.consumer()
        consumer.subscribe("orders", handler)
        async with consumer:
            await here.send("x")
            await until(lambda: len(seen) == 3)
        assert seen == [0, 1, 1]
        assert [line["origin"] for line in appended(here, "SCHEDULE_TOPIC_XXXX")] == ["sendback", "client"]
        asked = [(line["path"], line["outcome"], line["delivery_ids"]) for line in here.lines("SENDBACK")]
        assert asked == [("rpc", "indefinite", [1]), ("fallback", "ok", [1])]


async def test_a_handler_that_outlives_the_consume_time_out_sees_its_message_again(tmp_path: Path) -> None:
    """Cause B13: its first delivery succeeds all the same, so the message is done twice."""
    go_on, seen = asyncio.Event(), list[tuple[str, int]]()

    async def handler(message: ReceivedMessage) -> None:
        seen.append((message.body.decode(), message.reconsume_times))
        if seen[-1] == ("slow", 0):
            await go_on.wait()

    async with servers(tmp_path, **SOON) as here:
        await here.send("slow")
        consumer = here.consumer(consume_timeout_ms=100)
        consumer.subscribe("orders", handler)
        async with consumer:
            await until(lambda: ("slow", 1) in seen)
            go_on.set()
        expired = [(line["path"], line["outcome"], line["reason"]) for line in here.lines("SENDBACK")]
        assert expired == [("rpc", "ok", "expired")]
        results = {tuple(line["delivery_ids"]): line["status"] for line in here.lines("RESULT")}
        assert results == {(1,): "timeout", (2,): "success"}
