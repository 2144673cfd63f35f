"""``dejamq send``, ``consume``, ``message`` and ``dlq`` against real servers: what they print, in both shapes."""

import asyncio
import csv
import io
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from cli_cluster import dejamq, make
from cli_runner import NOBODY, run_beside
from dejamq import Admin, ConsumeFrom, DeadLetter, Message, ReceivedMessage, SendResult
from dejamq_lab import Cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")


NO_TEXT = b"\xff\xfe" + bytes(range(18))


class Shop(NamedTuple):
    """Orders were sent and billed: order-1 failed once, order-2 is a dead letter, order-3 is no text."""

    cluster: Cluster
    sent: list[SendResult]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop() -> AsyncIterator[Shop]:
    async with Cluster(brokers=2, namesrvs=1, time_scale=0.05) as cluster:
        await make(cluster, "orders", queues=1)
        bodies = [b"zero", b"one", b"two", NO_TEXT]
        async with cluster.producer("order-service") as producer:
            queues = await producer.publish_queues("orders")
            sent = [
                await producer.send(
                    Message("orders", body, tags="paid", keys=f"order-{number}"), queue=queues[number % 2]
                )
                for number, body in enumerate(bodies)
            ]
        await bill(cluster)
        yield Shop(cluster, sent)


async def bill(cluster: Cluster) -> None:
    tries: list[str] = []
    done = asyncio.Event()

    async def charge(message: ReceivedMessage) -> None:
        key = message.keys[0]
        tries.append(key)
        if key == "order-2":
            raise DeadLetter("no such customer")
        if key == "order-1" and tries.count(key) == 1:
            raise ValueError("card declined")
        if len(tries) == 5:
            done.set()

    consumer = cluster.push_consumer("billing", consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe("orders", charge)
    async with consumer, asyncio.timeout(30):
        await done.wait()
    async with Admin(cluster.namesrv) as admin, asyncio.timeout(10):
        while not [one async for one in admin.dead_letters("billing")]:
            await asyncio.sleep(0.01)


# --- send


async def test_one_message_shows_where_it_is_stored(shop: Shop) -> None:
    await make(shop.cluster, "sent-one", queues=1)
    ran = await dejamq(shop.cluster, "send", "sent-one", "hello", "--tags", "a", "--key", "k1", "--key", "k2")
    assert ran.picture().replace("broker-b", "broker-a") == (
        "message_id  status  broker  queue_id  queue_offset  offset_message_id\nID  SEND_OK  broker-a  0  0  ID\n"
    )
    read = await dejamq(shop.cluster, "consume", "sent-one", "-o", "json")
    (message,) = read.objects()
    assert (message["body"], message["tags"], message["keys"]) == ("hello", "a", ["k1", "k2"])


async def test_lines_are_messages_and_json_has_one_object_for_each(shop: Shop) -> None:
    await make(shop.cluster, "sent-lines")
    command = ("send", "sent-lines", "-", "--lines", "-o", "json", "--namesrv", shop.cluster.namesrv)
    ran = await run_beside(*command, stdin=b"one\n\ntwo\r\nthree \xff")
    assert [set(row) for row in ran.objects()] == 3 * [
        {"message_id", "status", "broker", "queue_id", "queue_offset", "offset_message_id"}
    ]
    assert ran.one_line() == "dejamq: 1 empty line was left out: a message needs at least one byte\n"
    read = (await dejamq(shop.cluster, "consume", "sent-lines", "-o", "json")).objects()
    assert sorted(row.get("body", row.get("body_base64")) for row in read) == ["dGhyZWUg/w==", "one", "two"]


async def test_many_messages_are_a_number_for_people(shop: Shop, tmp_path: Path) -> None:
    await make(shop.cluster, "sent-many")
    (tmp_path / "lines").write_bytes(b"".join(b"%d\n" % number for number in range(15)))
    command = ("send", "sent-many", "--file", str(tmp_path / "lines"), "--lines", "--count", "2")
    assert (await dejamq(shop.cluster, *command)).output == "sent 30 messages to sent-many\n"
    read = await dejamq(shop.cluster, "consume", "sent-many", "--body")
    assert sorted(map(int, read.output.split())) == sorted([*range(15), *range(15)])


async def test_a_delay_level_above_those_of_rocketmq_is_the_brokers_to_judge(shop: Shop) -> None:
    await make(shop.cluster, "sent-later", queues=1)
    ran = await dejamq(shop.cluster, "send", "sent-later", "later", "--delay-level", "19", "-o", "json")
    assert (ran.status, len(ran.objects())) == (0, 1)


async def test_a_delayed_message_comes_later(shop: Shop) -> None:
    await make(shop.cluster, "sent-late", queues=1)
    ran = await dejamq(shop.cluster, "send", "sent-late", "later", "--delay-level", "1", "-o", "json")
    assert ran.json()["status"] == "SEND_OK"
    taken = await dejamq(shop.cluster, "consume", "sent-late", "--group", "late", "--from", "begin", "--count", "1")
    assert taken.output.rstrip().endswith("later")


@pytest.mark.parametrize("when", [("--delay-ms", "900"), ("--deliver-at", "")])
async def test_a_message_for_a_time_comes_at_it(shop: Shop, when: tuple[str, str]) -> None:
    option, value = when
    topic = "sent-at" + option
    await make(shop.cluster, topic, queues=1)
    due_ms = round(time.time() * 1000) + 900
    ran = await dejamq(shop.cluster, "send", topic, "later", option, value or str(due_ms), "-o", "json")
    assert ran.json()["status"] == "SEND_OK"
    taken = await dejamq(shop.cluster, "consume", topic, "--group", "late", "--from", "begin", "--count", "1")
    assert taken.output.rstrip().endswith("later")
    assert time.time() * 1000 >= due_ms


async def test_a_line_that_no_message_can_hold_ends_the_sending_and_the_lines_before_it_are_told(shop: Shop) -> None:
    await make(shop.cluster, "sent-huge", queues=1)
    command = ("send", "sent-huge", "-", "--lines", "-o", "json", "--namesrv", shop.cluster.namesrv)
    ran = await run_beside(*command, stdin=b"small\n" + bytes(5 << 20) + b"\nnever\n")
    assert ran.status == 2
    assert len(ran.objects()) == 1
    assert "line 2 has more than 4194304 bytes" in ran.one_line()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("send", "orders"), "BODY"),
        (("send", "orders", "x", "--file", "y"), "BODY"),
        (("send", "orders", "x", "--lines"), "--lines goes with"),
        (("send", "orders", ""), "at least one byte"),
        (("send", "SCHEDULE_TOPIC_XXXX", "x"), "belongs to the broker itself"),
        (("send", "orders", "x", "--key", "a b"), "key"),
        (("send", "orders", "x", "--delay-level", "2147483648"), "--delay-level"),
        (("send", "orders", "x", "--delay-ms", "5", "--delay-level", "1"), "--deliver-at"),
        (("send", "orders", "x", "--deliver-at", "soon"), "--deliver-at takes"),
        (("consume", "orders", "--from", "yesterday"), "--from"),
        (("consume", "orders", "--group", "g", "--from", "17"), "without --group"),
        (("consume", "orders", "--body", "-o", "json"), "--body"),
        (("message", "at", "orders", "broker-z", "0", "0"), "broker-a, broker-b"),
        (("message", "at", "orders", "broker-a", "x", "0"), "QUEUE"),
        (("message", "at", "orders", "broker-a", "7", "0"), "queue 7"),
        (("message", "by-key", "orders", "k", "--from", "soon"), "--from"),
        (("message", "history", "X", "--journal", "/nowhere"), "/nowhere"),
        (("dlq", "replay", "billing"), "--all"),
        (("dlq", "replay", "billing", "X", "--all"), "--all"),
        (("dlq", "replay", "billing", "X", "--topic", "orders"), "nothing to choose"),
        (("dlq", "list", "bad name"), "bad name"),
        (("dlq", "export", "billing", "--format", "xml"), "--format"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
async def test_bad_use_is_one_line_and_status_2(shop: Shop, command: tuple[str, ...], words: str) -> None:
    where = () if command[1] == "history" else ("--namesrv", shop.cluster.namesrv)
    ran = await run_beside(*command, *where)
    assert ran.status == 2, ran.errors
    assert words in ran.one_line()
    assert ran.output == ""


@pytest.mark.parametrize(
    "command",
    [("send", "t", "x"), ("consume", "t"), ("consume", "t", "--group", "g"), ("message", "get", "X"),
     ("message", "by-key", "t", "k"), ("message", "at", "t", "b", "0", "0"), ("dlq", "list", "g"),
     ("dlq", "export", "g"), ("dlq", "replay", "g", "--all")],
    ids=" ".join,
)  # fmt: skip
async def test_without_a_cluster_nothing_is_known_and_the_line_says_what_to_do(command: tuple[str, ...]) -> None:
    ran = await run_beside(*command, "--namesrv", NOBODY)
    assert (ran.status, ran.output) == (3, "")
    assert f"no dejamq name server answers at {NOBODY}" in ran.one_line()


# --- consume


async def test_a_topic_is_read_by_store_time_over_its_queues_and_nothing_is_committed(shop: Shop) -> None:
    for _ in range(2):
        ran = await dejamq(shop.cluster, "consume", "orders")
        assert ran.picture() == (
            "broker-a orders:0 @0  ID  [paid order-0]  zero\n"
            "broker-b orders:0 @0  ID  [paid order-1]  one\n"
            "broker-a orders:0 @1  ID  [paid order-2]  two\n"
            "broker-b orders:0 @1  ID  [paid order-3]  (20 bytes, no text) "
            "ff fe 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d…\n"
        )


async def test_reading_begins_and_ends_where_it_is_told(shop: Shop) -> None:
    async def bodies(*options: str) -> list[str]:
        ran = await dejamq(shop.cluster, "consume", "orders", "-o", "json", *options)
        return [row.get("body", "?") for row in ran.objects()]

    assert await bodies("--count", "3") == ["zero", "one", "two"]
    assert await bodies("--from", "1") == ["two", "?"]
    assert await bodies("--from", "end") == []
    assert await bodies("--from", "1h ago") == ["zero", "one", "two", "?"]
    assert await bodies("--from", "now") == []


async def test_what_a_group_takes_is_committed_and_the_next_one_goes_on_there(shop: Shop) -> None:
    await make(shop.cluster, "taken", queues=1)
    for text in ("a", "b", "c"):
        await dejamq(shop.cluster, "send", "taken", text)
    taken = [
        await dejamq(
            shop.cluster, "consume", "taken", "--group", "takers", "--from", "begin", "--count", count, "--body"
        )
        for count in ("1", "2")
    ]
    assert sorted(taken[0].output.split() + taken[1].output.split()) == ["a", "b", "c"]


async def test_an_unknown_topic_is_one_line(shop: Shop) -> None:
    for options in ((), ("--group", "g")):
        ran = await dejamq(shop.cluster, "consume", "nobody-has-it", *options)
        assert ran.status == 1
        assert "nobody-has-it" in ran.one_line()


# --- message


async def test_a_message_is_shown_with_its_copies_and_who_consumed_them(shop: Shop) -> None:
    ran = await dejamq(shop.cluster, "message", "get", shop.sent[1].message_id)
    assert ran.picture() == (
        "message id  ID\n"
        "offset message id  ID\n"
        "topic  orders\n"
        "tags  paid\n"
        "keys  order-1\n"
        "place  broker-b orders:0 @0, log offset 0, 165 bytes\n"
        "stored  TIME\n"
        "stored at  HOST:PORT\n"
        "born  TIME\n"
        "born at  HOST:PORT\n"
        "failed tries  0\n"
        "property KEYS  order-1\n"
        "property TAGS  paid\n"
        "property UNIQ_KEY  ID\n"
        "body  3 bytes\n"
        "\n"
        "one\n"
        "\n"
        "3 copies, by store time:\n"
        "broker  topic  queue_id  queue_offset  store  reconsume_times  offset_message_id\n"
        "broker-b  orders  0  0  TIME  0  ID\n"
        "broker-b  SCHEDULE_TOPIC_XXXX  2  0  TIME  1  ID\n"
        "broker-b  %RETRY%billing  0  0  TIME  1  ID\n"
        "\n"
        "group  broker  topic  queue_id  queue_offset  committed  consumed\n"
        "billing  broker-b  orders  0  0  2  yes\n"
        "billing  broker-b  %RETRY%billing  0  0  1  yes\n"
    )


async def test_a_broker_made_id_leads_to_the_same_message(shop: Shop) -> None:
    by_client = await dejamq(shop.cluster, "message", "get", shop.sent[1].message_id.lower(), "-o", "json")
    by_broker = await dejamq(shop.cluster, "message", "get", shop.sent[1].offset_message_id, "-o", "json")
    assert by_client.json() == by_broker.json()
    assert len(by_client.json()["copies"]) == 3


async def test_json_has_everything_of_a_message(shop: Shop) -> None:
    row = (await dejamq(shop.cluster, "message", "get", shop.sent[3].message_id, "-o", "json")).json()
    assert set(row) == {
        "topic", "message_id", "offset_message_id", "tags", "keys", "broker", "queue_id", "queue_offset",
        "born_timestamp_ms", "store_timestamp_ms", "reconsume_times", "properties", "body_base64", "stored_topic",
        "log_offset", "store_size_bytes", "body_bytes", "body_crc", "flag", "sys_flag", "born_host", "store_host",
        "prepared_transaction_offset", "copies", "groups",
    }  # fmt: skip
    assert row["groups"] == [
        {"group": "billing", "broker": "broker-b", "topic": "orders", "queue_id": 0, "queue_offset": 1, "committed": 2,
         "consumed": True}
    ]  # fmt: skip


async def test_a_body_that_is_no_text_is_shown_in_hex(shop: Shop) -> None:
    ran = await dejamq(shop.cluster, "message", "at", "orders", "broker-b", "0", "1")
    assert "00000010  0e 0f 10 11                                      ....\n" in ran.output


async def test_a_body_can_be_written_as_it_is(shop: Shop) -> None:
    command = ("message", "at", "orders", "broker-b", "0", "1", "--body")
    assert (await dejamq(shop.cluster, *command)).output.encode(errors="surrogateescape") == NO_TEXT


async def test_messages_are_found_by_key(shop: Shop) -> None:
    ran = await dejamq(shop.cluster, "message", "by-key", "orders", "order-2")
    assert ran.picture() == (
        "place  stored  message_id  failed_tries  tags  keys  body\n"
        "broker-a orders:0 @1  TIME  ID  0  paid  order-2  two\n"
    )
    as_json = (await dejamq(shop.cluster, "message", "by-key", "orders", "order-2", "-o", "json")).json()
    assert [(row["body"], row["keys"]) for row in as_json] == [("two", ["order-2"])]
    before = await dejamq(shop.cluster, "message", "by-key", "orders", "order-2", "--to", "1h ago", "-o", "json")
    assert (before.status, before.output) == (1, "[]\n")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("get", "C000"), "no broker has a message C000"),
        (("at", "orders", "broker-a", "0", "9"), "no message at offset 9"),
        (("at", "nobody-has-it", "broker-a", "0", "0"), "nobody-has-it"),
    ],
)
async def test_what_is_not_there_is_one_line_and_status_1(shop: Shop, command: tuple[str, ...], words: str) -> None:
    ran = await dejamq(shop.cluster, "message", *command)
    assert (ran.status, ran.output) == (1, "")
    assert words in ran.one_line()


# --- the life of one message


def told(output: str) -> list[str]:
    """The steps without their times."""
    lines = output.splitlines()
    first = next(number for number, line in enumerate(lines) if line.endswith(" UTC")) + 1
    return [line[26:] for line in lines[first:] if line]


async def test_the_life_of_a_failed_message_is_told_from_real_journals(shop: Shop) -> None:
    ran = await run_beside("message", "history", shop.sent[1].message_id, "--journal", str(shop.cluster.journal_dir))
    assert ran.output.splitlines()[1] == "billing: 2 deliveries (exception, success); committed past copies 1, 3"
    steps = " | ".join(told(ran.output))
    places = [steps.index(words) for words in (
        "P1        sends it to broker-b", "broker-b  stores copy 1 in broker-b orders:0 at offset 0",
        "P1        try 1 is answered: stored", "broker-b  hands copy 1 to C1", "C1        handles copy 1: delivery 1",
        "C1        delivery 1 ends: exception (ValueError: card declined)",
        "broker-b  stores copy 2 to wait at delay level 3, given back by C1 after delivery 1",
        "broker-b  stores copy 3 for another try of billing, copy 2 was due", "C1        handles copy 3: delivery 2",
        "C1        delivery 2 ends: success", "broker-b  commits billing past copy 3",
    )]  # fmt: skip
    assert places == sorted(places)


async def test_history_in_json_has_the_shape_that_programs_rely_on(shop: Shop) -> None:
    folder = str(shop.cluster.journal_dir)
    story = (await run_beside("message", "history", shop.sent[2].message_id, "--journal", folder, "-o", "json")).json()
    assert set(story) == {
        "message_id", "topic", "processes", "copies", "deliveries", "steps", "groups", "missing"
    }  # fmt: skip
    assert [(copy["topic"], copy["origin"]) for copy in story["copies"]] == [
        ("orders", "sent by P1"), ("%DLQ%billing", "given back by C1 after delivery 1"),
    ]  # fmt: skip
    assert set(story["steps"][0]) == {"wall_us", "actor", "boot_id", "seq", "event", "text"}
    assert [step["wall_us"] for step in story["steps"]] == sorted(step["wall_us"] for step in story["steps"])
    (delivery,) = story["deliveries"]
    assert (delivery["group"], delivery["copy"], delivery["result"]) == ("billing", 1, "reconsume")


# --- dead letters


async def test_dead_letters_are_listed_with_the_reason(shop: Shop) -> None:
    ran = await dejamq(shop.cluster, "dlq", "list", "billing")
    assert ran.picture() == (
        "died  message_id  topic  tries  reason  keys  tags  place  offset_message_id  body\n"
        "TIME  ID  orders  1  dead letter: no such customer  order-2  paid  broker-a %DLQ%billing:0 @0  ID  two\n"
    )
    rows = (await dejamq(shop.cluster, "dlq", "list", "billing", "-o", "json")).json()
    assert rows[0]["message_id"] == shop.sent[2].message_id
    assert rows[0]["first_offset_message_id"] == shop.sent[2].offset_message_id
    assert (await dejamq(shop.cluster, "dlq", "list", "billing", "--topic", "other")).output.startswith(
        "billing has no"
    )


async def test_a_group_without_dead_letters_is_said_in_words(shop: Shop) -> None:
    ran = await dejamq(shop.cluster, "dlq", "list", "nobody")
    assert (ran.status, ran.output) == (0, "nobody has no dead letters\n")
    assert (await dejamq(shop.cluster, "dlq", "export", "nobody")).output == ""


async def test_dead_letters_are_exported_whole(shop: Shop, tmp_path: Path) -> None:
    (row,) = (await dejamq(shop.cluster, "dlq", "export", "billing")).objects()
    assert (row["body"], row["body_base64"], row["keys"]) == ("two", "dHdv", ["order-2"])
    assert row["reason"] == "dead letter: no such customer"
    file = tmp_path / "dead.csv"
    ran = await dejamq(shop.cluster, "dlq", "export", "billing", "--format", "csv", "--file", str(file))
    assert ran.one_line() == f"dejamq: wrote 1 dead letters to {file}\n"
    (cells,) = csv.DictReader(io.StringIO(file.read_text()))
    assert set(cells) == set(row)
    assert cells["body"] == "two"
    assert json.loads(cells["properties"]) == row["properties"]


async def test_a_dead_letter_is_replayed_once_and_only_to_its_group(shop: Shop) -> None:
    key = shop.sent[2].message_id

    async def results(*options: str) -> list[Any]:
        ran = await dejamq(shop.cluster, "dlq", "replay", "billing", *options, "-o", "json")
        return [(row["result"], row["to_topic"], row["message_id"] == key) for row in ran.json()]

    assert await results("--all", "--dry-run") == [("would be replayed", "%RETRY%billing", True)]
    assert await results(key) == [("replayed", "%RETRY%billing", True)]
    assert await results("--all") == [("replayed before", "%RETRY%billing", True)]
    assert await results("--all", "--again", "--to-topic", "--dry-run") == [("would be replayed", "orders", True)]
    history = await run_beside("message", "history", key, "--journal", str(shop.cluster.journal_dir))
    assert "copy 3 for another try of billing, copy 2 was sent again by an operator" in history.output


async def test_an_id_that_is_no_dead_letter_is_named(shop: Shop) -> None:
    ran = await dejamq(shop.cluster, "dlq", "replay", "billing", shop.sent[0].message_id)
    assert ran.status == 1
    assert ran.one_line() == f"dejamq: {shop.sent[0].message_id} is no dead letter of billing\n"
