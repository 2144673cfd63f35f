import asyncio
from pathlib import Path
from typing import Any

import pytest
from consumer_fakes import QUEUE, FakeLink, context, dispatching, owned_queue, received, until
from dejamq.handling.subscriptions import Subscriptions
from dejamq.rebalance.broadcasting import LocalOffsetStore, NoSendBack, everything, stable_client_id
from dejamq.rebalance.consume_from import ConsumeFrom, StartRule
from dejamq.rebalance.local_offsets import LocalOffsets
from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.received import ReceivedMessage
from dejamq.values.config import ConsumerConfig
from dejamq.values.message import MessageQueue
from dejamq_proto.codes import ConfigError
from journalled import journalled

OTHER = MessageQueue("orders", "broker-a", 1)


def offset_store(directory: Path) -> tuple[LocalOffsetStore, LocalOffsets]:
    made, file = context(FakeLink(), directory), LocalOffsets("me", "g", directory / "home")
    return LocalOffsetStore(made, Deliveries(made), file), file


def at(offset: int, queue: MessageQueue = QUEUE) -> OwnedQueue:
    owned = owned_queue(queue=queue)
    owned.process_queue.advance(offset)
    return owned


def persists(directory: Path) -> list[tuple[Any, ...]]:
    told = [line for line in journalled(directory) if line["event"] == "PERSIST"]
    return [(line["value"], line["reason"], line.get("outcome", "sent")) for line in told]


async def test_a_commit_is_in_the_file_when_it_returns_and_is_found_by_the_next_start(tmp_path: Path) -> None:
    store, file = offset_store(tmp_path)
    await store.open()
    assert await store.load(QUEUE) is None
    await store.commit(at(7), "drop")
    assert file.load() == {QUEUE: 7}
    assert persists(tmp_path) == [(7, "drop", "sent")]
    again, _ = offset_store(tmp_path)
    await again.open()
    assert await again.load(QUEUE) == 7
    store.close()
    again.close()


async def test_the_journal_says_which_file_a_start_has_read(tmp_path: Path) -> None:
    _, file = offset_store(tmp_path)
    for offset in (5, 7):
        file.save({QUEUE: offset})
    told = []
    for gone in ("", file.path, file.path.with_name("offsets.json.bak")):
        if isinstance(gone, Path):
            gone.unlink()
        again, _ = offset_store(tmp_path)
        await again.open()
        again.close()
        told.append([(line["source"], line["entries"]) for line in journalled(tmp_path, "OFF_LOAD")][-1])
    assert told == [("main", 1), ("bak", 1), ("none", 0)]


async def test_the_timer_writes_what_moved_and_nothing_when_nothing_did(tmp_path: Path) -> None:
    store, file = offset_store(tmp_path)
    store.commit_oneway([at(7), at(9, OTHER)])
    await until(lambda: file.path.exists() and file.load() == {QUEUE: 7, OTHER: 9})
    written = file.path.stat().st_ino
    store.commit_oneway([at(7), at(9, OTHER)])
    await store.commit(at(9, OTHER), "shutdown")
    assert file.path.stat().st_ino == written
    assert persists(tmp_path) == [(7, "timer", "sent"), (9, "timer", "sent")]
    store.close()


async def test_all_commits_of_one_moment_share_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, file = offset_store(tmp_path)
    writes: list[int] = []
    monkeypatch.setattr(file, "merge", lambda offsets: writes.append(len(offsets)))
    await asyncio.gather(*(store.commit(at(5, MessageQueue("orders", "b", n)), "shutdown") for n in range(8)))
    assert writes == [8]
    store.close()


async def test_offsets_of_queues_that_another_process_has_stay_in_the_file(tmp_path: Path) -> None:
    store, file = offset_store(tmp_path)
    file.save({OTHER: 3})
    await store.commit(at(7), "drop")
    assert file.load() == {QUEUE: 7, OTHER: 3}
    store.close()


async def test_a_write_that_fails_is_journalled_and_made_good_by_the_next(tmp_path: Path) -> None:
    store, file = offset_store(tmp_path)
    (tmp_path / "home").write_text("in the way")
    await store.commit(at(7), "drop")
    assert persists(tmp_path) == [(7, "drop", "sent"), (7, "drop", "failed")]
    (tmp_path / "home").unlink()
    store.commit_oneway([at(7)])
    await until(lambda: file.path.exists() and file.load() == {QUEUE: 7})
    store.close()


async def test_before_anything_is_known_nothing_is_saved_and_pulls_carry_nothing(tmp_path: Path) -> None:
    store, file = offset_store(tmp_path)
    await store.commit(owned_queue(50), "drop")
    store.commit_oneway([owned_queue(50)])
    assert store.piggyback(at(7), 1) is None
    assert not file.path.exists()
    store.close()


@pytest.mark.parametrize(("rule", "start"), [(ConsumeFrom.FIRST_OFFSET, (0, "local_first")),
                                             (ConsumeFrom.LAST_OFFSET, (9, "local_last"))])  # fmt: skip
async def test_a_member_without_a_file_begins_where_it_chose_whatever_brokers_know(
    tmp_path: Path, rule: ConsumeFrom, start: tuple[int, str]
) -> None:
    store, _ = offset_store(tmp_path)
    link = FakeLink()
    link.max, link.committed[QUEUE.topic, QUEUE.queue_id] = 9, 4
    assert await StartRule(context(link), store, rule, 0).start_of(QUEUE) == start
    await store.commit(at(7), "drop")
    assert await StartRule(context(link), store, rule, 0).start_of(QUEUE) == (7, "local")
    store.close()


async def test_a_message_that_fails_is_journalled_and_dropped(tmp_path: Path) -> None:
    async def handler(message: ReceivedMessage) -> None:
        raise ValueError

    owned, link = owned_queue(), FakeLink()
    async with dispatching(handler, link=link, directory=tmp_path, send_back=NoSendBack) as dispatcher:
        dispatcher.submit(owned, received(owned, 5))
        await until(lambda: owned.process_queue.commit_offset == 6)
    assert (link.sent_back, link.sent) == ([], [])
    told = [(line["path"], line["outcome"]) for line in journalled(tmp_path, "SENDBACK")]
    assert told == [("none", "dropped")]


def test_every_member_has_all_queues() -> None:
    assert everything([QUEUE, OTHER], ["a", "b"], "me") == [QUEUE, OTHER]


def test_no_retry_topic_is_subscribed() -> None:
    subscriptions = Subscriptions("g", lambda: 0, retries=False)
    subscriptions.add("orders", print, tags="*")
    assert subscriptions.topics == ["orders"]
    assert [one.topic for one in subscriptions.wire()] == ["orders"]


def test_the_client_id_is_the_same_after_each_start_and_rocketmqs() -> None:
    assert stable_client_id(ConsumerConfig(client_ip="10.0.0.7")) == "10.0.0.7@DEFAULT"
    assert stable_client_id(ConsumerConfig(client_id="shop-1")) == "shop-1"


@pytest.mark.parametrize("client_id", ["a/b", "..", "."])
def test_a_client_id_that_names_no_folder_is_refused(client_id: str) -> None:
    with pytest.raises(ConfigError, match="folder"):
        stable_client_id(ConsumerConfig(client_id=client_id))
