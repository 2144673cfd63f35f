"""A producer of transactions without servers: what answers mean, which questions wait, how settings are refused."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from consumer_fakes import RAISED
from dejamq import ConfigError, Message, TransactionProducer, TransactionState
from dejamq.sending.encoding import UNIQUE_NAME
from dejamq.sending.intake import Intake
from dejamq.transactions.checks import Checks
from dejamq.transactions.ends import Half
from dejamq.transactions.states import TransactionVerdict, answer_of, judged
from dejamq.values.producer_config import ProducerConfig
from dejamq_proto.client_pb2 import CheckTransaction
from dejamq_proto.codes import MessageTooLarge
from dejamq_proto.records.record import MAX_PROPERTIES_SIZE, Record, decode_properties, encode
from dejamq_proto.records.record import encode_properties as encoded

RECORD = encode(Record("orders", 1, b"x", encoded({"UNIQ_KEY": "0" * 32})))


class Link:
    """Stands for the broker that asks."""

    address = "127.0.0.1:1"


class Told:
    """Stands for the way to brokers: keeps what they would be told."""

    def __init__(self) -> None:
        self.told: list[tuple[Half, TransactionVerdict]] = []

    def tell(self, half: Half, verdict: TransactionVerdict, link: Any = None) -> None:
        self.told.append((half, verdict))


def question(**changes: Any) -> CheckTransaction:
    places = {"half_queue_offset": 7, "half_log_offset": 700}
    fields: dict[str, Any] = {"group": "shop", "record": RECORD, "broker_name": "broker-a"} | places | changes
    return CheckTransaction(**fields)


def checks(told: Told, checker: Any, hold_max: int = 2) -> Checks:
    ends: Any = told
    return Checks(checker, ends, group="shop", namespace="", boot_id="b", hold_max=hold_max)


async def commit(message: object) -> TransactionState:
    return TransactionState.COMMIT


@pytest.mark.parametrize("state", TransactionState)
def test_a_state_is_taken_as_it_is(state: TransactionState) -> None:
    assert judged(state) == TransactionVerdict(state)


@pytest.mark.parametrize("answer", [None, True, "COMMIT", 8])
def test_anything_else_is_unknown_and_says_what_to_return(answer: object) -> None:
    verdict = judged(answer)
    assert verdict.state is TransactionState.UNKNOWN
    assert "TransactionState.COMMIT" in verdict.reason


@pytest.mark.parametrize("error", RAISED)
async def test_whatever_a_function_raises_is_unknown(error: Callable[[], BaseException]) -> None:
    async def fails(message: object) -> TransactionState:
        raise error()

    verdict = await answer_of(fails, None)
    assert verdict.state is TransactionState.UNKNOWN
    assert isinstance(verdict.error, BaseException)


async def test_what_a_function_raises_is_unknown_with_the_error() -> None:
    async def fails(message: object) -> TransactionState:
        raise KeyError("x" * 500)

    verdict = await answer_of(fails, None)
    assert (verdict.state, type(verdict.error)) == (TransactionState.UNKNOWN, KeyError)
    assert len(verdict.reason) == 200


async def test_a_question_is_answered_by_its_own_places() -> None:
    told = Told()
    waiting = checks(told, commit)
    working = asyncio.ensure_future(waiting.work())
    link: Any = Link()
    waiting.asked(link, question())
    async with asyncio.timeout(10):
        while not told.told:
            await asyncio.sleep(0)
    ((half, verdict),) = told.told
    assert (half.queue_offset, half.log_offset, half.broker_name, half.from_check) == (7, 700, "broker-a", True)
    assert (half.message.topic, half.message.body, verdict.state) == ("orders", b"x", TransactionState.COMMIT)
    await waiting.close()
    working.cancel()


@pytest.mark.parametrize("wrong", [{"group": "another"}, {"record": b"no record"}, {"record": b""}])
async def test_what_is_not_for_us_or_no_record_is_dropped(wrong: dict[str, Any]) -> None:
    told = Told()
    waiting = checks(told, commit)
    link: Any = Link()
    waiting.asked(link, question(**wrong))
    assert waiting._waiting.empty()


async def test_questions_beyond_the_limit_are_dropped_as_the_broker_asks_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waiting = checks(Told(), commit, hold_max=2)
    link: Any = Link()
    for _ in range(3):
        waiting.asked(link, question())
    assert waiting._waiting.qsize() == 2
    assert "check_request_hold_max" in caplog.text


async def test_closing_answers_what_was_begun_and_forgets_the_rest() -> None:
    told, go_on = Told(), asyncio.Event()

    async def slow(message: object) -> TransactionState:
        await go_on.wait()
        return TransactionState.ROLLBACK

    waiting = checks(told, slow)
    working = asyncio.ensure_future(waiting.work())
    link: Any = Link()
    for _ in range(2):
        waiting.asked(link, question())
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(waiting.close())
    await asyncio.sleep(0)
    assert not closing.done()
    go_on.set()
    await closing
    waiting.asked(link, question())
    assert len(told.told) == 1
    assert waiting._waiting.empty()
    working.cancel()


def test_a_half_message_names_its_transaction_and_group_after_its_own_properties() -> None:
    message = Message("orders", b"x", tags="t", keys="k", properties={"own": "1"})
    (half,) = Intake(ProducerConfig()).single(message, None, half_of="shop").extras
    assert half is not None
    assert decode_properties(UNIQUE_NAME + message.message_id.encode() + half.rest) == {
        "UNIQ_KEY": message.message_id, "TAGS": "t", "KEYS": "k", "own": "1", "TRAN_MSG": "true", "PGROUP": "shop",
    }  # fmt: skip
    wide = Message("orders", b"x", properties={"own": "x" * (MAX_PROPERTIES_SIZE - 60)})
    with pytest.raises(MessageTooLarge, match="properties"):
        Intake(ProducerConfig()).single(wide, None, half_of="shop")


@pytest.mark.parametrize(
    "setting", ["check_thread_pool_max_size", "check_request_hold_max", "execute_concurrency", "checkThreadPoolMaxSize"]
)
def test_settings_that_let_nothing_happen_are_refused(setting: str) -> None:
    nothing: dict[str, Any] = {setting: 0}
    with pytest.raises(ConfigError, match="at least 1"):
        TransactionProducer("shop", checker=commit, **nothing)
