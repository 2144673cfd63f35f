"""The inbox: effects that happen once. SQLite always; PostgreSQL where DEJAMQ_TEST_POSTGRESQL names a database."""

import asyncio
import importlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from consumer_fakes import owned_queue, received
from dejamq import Inbox, MessageQueue, ReceivedMessage
from dejamq.inbox import run
from dejamq_proto.codes import ConfigError, DejamqError

Connect = Callable[[], Any]
POSTGRESQL = os.environ.get("DEJAMQ_TEST_POSTGRESQL")  # a connection string, e.g. host=… dbname=…; tables are dropped


DATABASES = ("sqlite", "postgresql", "postgresql-autocommit") if POSTGRESQL else ("sqlite",)


@pytest.fixture(params=DATABASES)
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connect]:
    """Opens another connection to one database with the table ``effects``."""
    opened: list[Any] = []

    def open_one() -> Any:
        if request.param == "sqlite":
            opened.append(sqlite3.connect(tmp_path / "effects.sqlite", timeout=5, isolation_level=None))
        else:
            driver = importlib.import_module("psycopg")
            opened.append(driver.connect(POSTGRESQL, autocommit=request.param == "postgresql-autocommit"))
        return opened[-1]

    first = open_one()
    run(first, "DROP TABLE IF EXISTS dejamq_inbox")
    run(first, "DROP TABLE IF EXISTS effects")
    run(first, "CREATE TABLE effects (message text NOT NULL)")
    first.commit()
    yield open_one
    for one in opened:
        one.close()


def message(offset: int = 1, group: str = "billing", topic: str = "orders", **properties: str) -> ReceivedMessage:
    (made,) = received(owned_queue(queue=MessageQueue(topic, "broker-a", 0)), offset, **properties)
    made._batch.group = group
    return made


def effects(connection: Any) -> int:
    count = int(run(connection, "SELECT count(*) FROM effects", (), 1)[0])
    connection.rollback()
    return count


async def handle(
    inbox: Inbox, connection: Any, one: ReceivedMessage, *, key: str | None = None, then: str = ""
) -> bool:  # fmt: skip
    """A handler whose effect is a row, and a second statement ``then``."""
    async with inbox.once(one, key=key) as first:
        if first:
            run(connection, f"INSERT INTO effects VALUES ('{one.message_id}')")
        if then:
            run(connection, then)
    return first


async def test_a_message_delivered_twice_has_one_effect(connect: Connect) -> None:
    connection = connect()
    inbox = Inbox(connection)
    assert [await handle(inbox, connection, message()) for _ in range(3)] == [True, False, False]
    assert effects(connect()) == 1


async def test_another_message_another_group_or_another_topic_is_not_a_duplicate(connect: Connect) -> None:
    connection = connect()
    inbox = Inbox(connection)
    for one in (message(1), message(2), message(1, group="shipping"), message(1, topic="refunds")):
        assert await handle(inbox, connection, one)
    assert effects(connect()) == 4


async def test_an_effect_that_failed_is_undone_with_its_mark_and_happens_at_the_next_delivery(connect: Connect) -> None:
    connection = connect()
    inbox = Inbox(connection)
    with pytest.raises(Exception, match="nowhere"):
        await handle(inbox, connection, message(), then="INSERT INTO nowhere VALUES (1)")
    assert effects(connect()) == 0
    assert await handle(inbox, connection, message())
    assert effects(connect()) == 1


async def test_a_cancelled_handler_leaves_neither_mark_nor_effect(connect: Connect) -> None:
    connection = connect()
    inbox, entered = Inbox(connection), asyncio.Event()

    async def wait_for_ever() -> None:
        async with inbox.once(message()):
            run(connection, "INSERT INTO effects VALUES ('half')")
            entered.set()
            await asyncio.Event().wait()

    handling = asyncio.ensure_future(wait_for_ever())
    await entered.wait()
    handling.cancel()
    await asyncio.wait((handling,))
    assert effects(connect()) == 0
    assert await handle(inbox, connection, message())


async def test_a_process_that_dies_within_the_block_leaves_neither_mark_nor_effect(connect: Connect) -> None:
    dying, survivor = connect(), connect()
    block = Inbox(dying).once(message())
    assert await block.__aenter__()
    run(dying, "INSERT INTO effects VALUES ('half')")
    dying.close()  # what the end of a process does to its connection
    assert await handle(Inbox(survivor), survivor, message())
    assert effects(connect()) == 1
    with pytest.raises(Exception, match="closed"):
        await block.__aexit__(None, None, None)


async def test_deliveries_at_the_same_time_through_two_connections_have_one_effect(connect: Connect) -> None:
    """The second one waits without standing in the loop's way: it is the loop that lets the first one end."""
    one, two = connect(), connect()
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> bool:
        async with Inbox(one).once(message()) as first:
            entered.set()
            run(one, "INSERT INTO effects VALUES ('slow')")
            await go_on.wait()
        return first

    handling = asyncio.ensure_future(slow())
    await entered.wait()
    second = asyncio.ensure_future(handle(Inbox(two), two, message()))
    await asyncio.sleep(0)
    assert not second.done()
    go_on.set()
    assert [await handling, await second] == [True, False]
    assert effects(connect()) == 1


async def test_a_delivery_gives_up_waiting_for_another_one_and_says_so(connect: Connect) -> None:
    one, two = connect(), connect()
    async with Inbox(one).once(message()):
        with pytest.raises(TimeoutError, match="keep slow work out") as late:
            await handle(Inbox(two, wait_ms=5), two, message())
        assert isinstance(late.value, DejamqError)
        assert late.value.not_done
    assert not await handle(Inbox(two, wait_ms=5), two, message())


async def test_handlers_of_one_connection_take_turns_also_through_two_inboxes(connect: Connect) -> None:
    connection = connect()
    inboxes = [Inbox(connection, group="a"), Inbox(connection, group="b")]
    inside = most = 0

    async def charge(number: int) -> None:
        nonlocal inside, most
        async with inboxes[number % 2].once(message(number)):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(charge(number) for number in range(20)))
    assert most == 1


async def test_a_business_key_tells_two_messages_about_one_event(connect: Connect) -> None:
    connection = connect()
    inbox = Inbox(connection, business_key="KEYS")
    assert await handle(inbox, connection, message(1, KEYS="order-17 other"))
    assert not await handle(inbox, connection, message(2, KEYS="order-17"))
    assert await handle(inbox, connection, message(3, KEYS="order-18"))
    assert not await handle(inbox, connection, message(4), key="order-18")
    with pytest.raises(ConfigError, match="no business key KEYS"):
        await handle(inbox, connection, message(5))


async def test_marks_older_than_the_retention_go(connect: Connect) -> None:
    connection, now_ms = connect(), [1_000_000]
    inbox = Inbox(connection, retention_ms=10_000, clock_ms=lambda: now_ms[0])
    assert await handle(inbox, connection, message(1))
    now_ms[0] += 10_000
    assert await handle(inbox, connection, message(2))  # looks, and the first one is not older yet
    assert not await handle(inbox, connection, message(1))
    now_ms[0] += 10_000
    assert await handle(inbox, connection, message(3))
    assert run(connection, "SELECT count(*) FROM dejamq_inbox", (), 1)[0] == 2


async def test_a_handler_that_commits_by_itself_is_told(connect: Connect) -> None:
    connection = connect()
    with pytest.raises(DejamqError, match="leave commit and rollback to the inbox"):
        await handle(Inbox(connection), connection, message(), then="COMMIT")


async def test_an_effect_whose_failure_was_swallowed_is_not_taken_for_done(connect: Connect) -> None:
    """PostgreSQL turns the commit of a failed transaction into a rollback without a word; SQLite goes on."""
    connection = connect()
    inbox = Inbox(connection)
    failed = None
    try:
        async with inbox.once(message()):
            run(connection, "INSERT INTO effects VALUES ('done')")
            with pytest.raises(Exception, match="nowhere"):
                run(connection, "INSERT INTO nowhere VALUES (1)")
    except Exception as error:
        failed = error
    assert (failed is None) == (effects(connection) == 1)
    assert await handle(inbox, connection, message()) == (failed is not None)


def test_a_message_read_without_a_group_needs_one() -> None:
    inbox = Inbox(sqlite3.connect(":memory:"))
    with pytest.raises(ConfigError, match="give Inbox"):
        asyncio.run(inbox.once(message(group="")).__aenter__())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"retention": 5}, "an inbox takes group"),
        ({"table": "marks; DROP TABLE orders"}, "plain SQL name"),
        ({"retention_ms": 0}, "retention_ms must be more than 0"),
        ({"dialect": "oracle"}, "'sqlite' or 'postgresql'"),
    ],
)
def test_options_that_make_no_sense_are_told(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Inbox(sqlite3.connect(":memory:"), **options)


def test_what_is_no_plain_connection_is_refused() -> None:
    with pytest.raises(ConfigError, match="plain DB-API connection"):
        Inbox("effects.sqlite")


async def test_an_open_transaction_is_told_before_anything_is_marked() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("BEGIN")
    with pytest.raises(ConfigError, match="commit first"):
        await handle(Inbox(connection), connection, message())


def test_a_detached_message_keeps_its_group() -> None:
    assert message().detach().group == "billing"
