"""The compiled steps of a plain send: they take what the usual way would take, and decline the rest."""

import asyncio
import gc
import threading
import weakref
from typing import Any

import msgspec
import pytest
from dejamq import Message
from dejamq.native import COMPILED
from dejamq.sending.backlog import Backlog
from dejamq.sending.encoding import Template, template
from dejamq.sending.intake import Intake
from dejamq.values.message import SendResult, _check_types
from dejamq.values.producer_config import ProducerConfig
from hypothesis import given
from hypothesis import strategies as st

if not COMPILED:
    pytest.skip("dejamq was installed without its compiled part", allow_module_level=True)

from dejamq.native import IdSource, MessageCheck, Shortcut

BODY_BELOW = 4096
CALL_BYTES = 400


class Columns:
    """What a shortcut adds to."""

    def __init__(self, new_future: Any = object, max_bytes: int = 1 << 20) -> None:
        self.begun = 0
        self.messages: list[Message] = []
        self.commons: list[Template] = []
        self.sizes: list[int] = []
        self.futures: list[asyncio.Future[SendResult]] = []
        self.backlog = Backlog(max_bytes, CALL_BYTES)
        self.shortcut = Shortcut(Message, self.backlog, new_future, {}, max_bytes, CALL_BYTES, BODY_BELOW)

    def opened(self, model: Message, mode: str = "sync") -> "Columns":
        self.shortcut.open(mode, self.messages, self.commons, self.sizes, self.futures, self.begin)
        self.learn(model)
        return self

    def begin(self) -> None:
        self.begun += 1

    def learn(self, model: Message) -> Template:
        common = template(model.topic, model.flag, model.tags)
        self.shortcut.learn(model, common, common.size)
        return common

    @property
    def counts(self) -> set[int]:
        return {len(self.messages), len(self.commons), len(self.sizes), len(self.futures)}


ORDINARY = Message("orders", b"first", tags="paid")
NO_PROPERTIES = ORDINARY.properties
UNLIKE: dict[str, Any] = {
    "another topic": Message("other", b"x", tags="paid"),
    "other tags": Message("orders", b"x", tags="open"),
    "no tags": Message("orders", b"x"),
    "another flag": Message("orders", b"x", tags="paid", flag=1),
    "a key": Message("orders", b"x", tags="paid", keys="k"),
    "a property": Message("orders", b"x", tags="paid", properties={"a": "b"}),
    "a delay": Message("orders", b"x", tags="paid", delay_level=1),
    "a delay in ms": Message("orders", b"x", tags="paid", delay_ms=0),
    "a time": Message("orders", b"x", tags="paid", deliver_at_ms=17),
    "a sharding key": Message("orders", b"x", tags="paid", sharding_key=""),
    "no wait for the flush": Message("orders", b"x", tags="paid", wait_store=False),
    "an id of the program": Message("orders", b"x", tags="paid", message_id="mine"),
    "an id beyond ASCII": Message("orders", b"x", tags="paid", message_id="Ä" * 32),
    "no body": Message("orders", b"", tags="paid"),
    "a body to be packed": Message("orders", bytes(BODY_BELOW), tags="paid"),
    "no message at all": "orders",
}


@pytest.mark.parametrize("what", UNLIKE)
def test_it_declines_what_differs_in_more_than_body_and_id(what: str) -> None:
    columns = Columns().opened(ORDINARY)
    assert columns.shortcut.take(UNLIKE[what], "sync") is None
    assert columns.counts == {0}
    assert (columns.backlog.calls, columns.backlog.bytes) == (0, 0)


def test_it_takes_a_message_like_the_first_to_all_columns_and_counts_it() -> None:
    columns = Columns().opened(ORDINARY)
    topic, tags = "".join(["or", "ders"]), "".join(["pa", "id"])  # equal, and not the same objects
    message = Message(topic, b"second", tags=tags)
    future = columns.shortcut.take(message, "sync")
    common = template("orders", 0, "paid")
    assert columns.messages == [message]
    assert columns.commons == [common]
    assert columns.sizes == [common.size + 6]
    assert columns.futures == [future]
    assert (columns.backlog.calls, columns.backlog.bytes) == (1, common.size + 6 + CALL_BYTES)


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from(["orders", "other"]), "body": st.binary(max_size=8) | st.just(bytes(BODY_BELOW)),
    "tags": st.sampled_from([None, "paid", "open"]), "keys": st.sampled_from([(), "k"]),
    "properties": st.sampled_from([{}, {"a": "b"}]), "delay_level": st.sampled_from([0, 3]),
    "delay_ms": st.sampled_from([None, 5]), "deliver_at_ms": st.sampled_from([None, 5]),
    "sharding_key": st.sampled_from([None, "s"]), "flag": st.sampled_from([0, 1, 100_000]), "wait_store": st.booleans(),
    "message_id": st.none() | st.sampled_from(["mine", "Ä" * 32]),
}  # fmt: skip


def unlike_in(names: set[str], values: dict[str, Any]) -> Message:
    """A message as most are, but in these fields."""
    given_fields = {name: value for name, value in values.items() if name in names and value is not None}
    return Message(**{"topic": "orders", "body": b"x", **given_fields})


messages_strategy = st.builds(
    unlike_in, st.sets(st.sampled_from(sorted(FIELDS)), max_size=3), st.fixed_dictionaries(FIELDS)
)


@given(messages_strategy, messages_strategy)
def test_what_it_takes_the_usual_way_would_take_to_the_same_place(model: Message, message: Message) -> None:
    intake = Intake(ProducerConfig(compress_msg_body_over_howmuch=BODY_BELOW))
    common = intake.plain(model)
    if common is None:
        return
    columns = Columns().opened(model)
    taken = columns.shortcut.take(message, "sync") is not None
    usual = intake.plain(message)
    assert taken == (usual is common)
    if usual is not None and taken:
        assert columns.sizes == [usual.size + len(message.body)]


def test_it_declines_another_mode_and_everything_once_it_is_closed() -> None:
    columns = Columns().opened(ORDINARY)
    assert columns.shortcut.take(ORDINARY, "async") is None
    columns.shortcut.close()
    assert columns.shortcut.take(ORDINARY, "sync") is None
    assert columns.counts == {0}


def test_a_full_backlog_is_left_to_the_usual_way_which_refuses() -> None:
    size = template("orders", 0, "paid").size + len(ORDINARY.body) + CALL_BYTES
    columns = Columns(max_bytes=2 * size).opened(ORDINARY)
    assert [columns.shortcut.take(ORDINARY, "sync") is None for _ in range(3)] == [False, False, True]
    assert columns.counts == {2}


def test_each_future_is_made_with_the_arguments_that_it_was_given() -> None:
    columns, loop = Columns(), asyncio.new_event_loop()
    columns.shortcut = Shortcut(Message, columns.backlog, asyncio.Future, {"loop": loop}, 1 << 20, 0, BODY_BELOW)
    columns.opened(ORDINARY)
    future = columns.shortcut.take(ORDINARY, "sync")
    loop.close()
    assert future is not None
    assert future.get_loop() is loop


def test_a_future_that_cannot_be_made_leaves_no_trace() -> None:
    def fails() -> None:
        raise MemoryError

    columns = Columns(new_future=fails).opened(ORDINARY)
    with pytest.raises(MemoryError):
        columns.shortcut.take(ORDINARY, "sync")
    assert columns.counts == {0}
    assert columns.backlog.calls == 0


def test_it_declines_when_it_is_closed_while_the_future_is_made() -> None:
    columns: Columns = Columns(new_future=lambda: columns.shortcut.close()).opened(ORDINARY)
    assert columns.shortcut.take(ORDINARY, "sync") is None
    assert columns.counts == {0}


def test_it_declines_when_it_is_opened_for_others_while_the_future_is_made() -> None:
    others = Columns()

    def reopen() -> object:
        """As a finalizer may, which the garbage collector runs then."""
        columns.shortcut.close()
        columns.shortcut.open("sync", others.messages, others.commons, others.sizes, others.futures, others.begin)
        return object()

    columns: Columns = Columns(new_future=reopen).opened(ORDINARY)
    assert columns.shortcut.take(ORDINARY, "sync") is None
    assert columns.counts == others.counts == {0}


def test_it_declines_when_the_backlog_is_full_by_the_time_the_future_is_made() -> None:
    def fill() -> object:
        columns.backlog.take(1, 500)
        return object()

    columns: Columns = Columns(new_future=fill, max_bytes=1000).opened(ORDINARY)
    assert columns.shortcut.take(ORDINARY, "sync") is None
    assert columns.counts == {0}
    assert columns.backlog.calls == 1


def test_it_learns_messages_only_and_opens_to_lists() -> None:
    model: Any = "no message"
    nothing: Any = None
    with pytest.raises(TypeError, match="the model is no message"):
        Columns().shortcut.learn(model, None, 1)
    with pytest.raises(TypeError, match="a mode, four lists and a function"):
        Columns().shortcut.open("sync", [], [], [], nothing, nothing)


def test_messages_to_several_topics_and_with_several_tags_join_the_same_columns() -> None:
    columns = Columns().opened(ORDINARY)
    models = [Message("audit", b"a"), Message("audit", b"a", tags="open"), Message("audit", b"a", flag=1)]
    commons = [columns.learn(model) for model in models]
    messages = [Message("audit", b"x"), ORDINARY, Message("audit", b"y", tags="open"), Message("audit", b"z", flag=1)]
    assert all(columns.shortcut.take(message, "sync") for message in messages)
    assert columns.messages == messages
    assert columns.commons == [commons[0], template("orders", 0, "paid"), *commons[1:]]
    assert columns.shortcut.take(Message("audit", b"x", tags="open", flag=1), "sync") is None


def test_the_first_message_of_columns_is_told_before_it_joins_them() -> None:
    columns = Columns().opened(ORDINARY)
    seen: list[int] = []
    columns.shortcut.open(
        "sync", columns.messages, columns.commons, columns.sizes, columns.futures,
        lambda: seen.append(len(columns.messages)),
    )  # fmt: skip
    assert columns.shortcut.take(ORDINARY, "sync") is not None
    assert columns.shortcut.take(ORDINARY, "sync") is not None
    assert seen == [0]
    assert columns.counts == {2}


def test_a_message_that_nobody_would_send_is_not_taken() -> None:
    def fails() -> None:
        raise RuntimeError("the loop is closed")

    columns = Columns().opened(ORDINARY)
    columns.shortcut.open("sync", columns.messages, columns.commons, columns.sizes, columns.futures, fails)
    with pytest.raises(RuntimeError, match="the loop is closed"):
        columns.shortcut.take(ORDINARY, "sync")
    assert columns.counts == {0}
    assert (columns.backlog.calls, columns.backlog.bytes) == (0, 0)


def test_it_declines_when_it_is_closed_while_the_first_message_is_told() -> None:
    columns = Columns().opened(ORDINARY)
    columns.shortcut.open(
        "sync", columns.messages, columns.commons, columns.sizes, columns.futures, columns.shortcut.close
    )
    assert columns.shortcut.take(ORDINARY, "sync") is None
    assert columns.counts == {0}


def test_what_it_has_learned_stays_while_columns_come_and_go() -> None:
    columns = Columns().opened(ORDINARY)
    columns.shortcut.close()
    columns.shortcut.open("async", columns.messages, columns.commons, columns.sizes, columns.futures, columns.begin)
    assert columns.shortcut.take(ORDINARY, "async") is not None
    assert columns.counts == {1}


def test_more_topics_than_it_has_room_for_only_take_the_place_of_others() -> None:
    columns = Columns(max_bytes=1 << 30).opened(ORDINARY)
    models = [Message(f"topic-{number}", b"x") for number in range(2000)]
    for model in models:
        common = columns.learn(model)
        assert columns.shortcut.take(model, "sync") is not None
        assert columns.commons[-1] is common
    known = [columns.shortcut.take(model, "sync") is not None for model in models]
    assert 100 < sum(known) <= 512
    assert [each.record.topic for each in columns.commons] == [
        template(one.topic, 0, None).record.topic for one in columns.messages
    ]


def test_a_model_whose_place_is_taken_while_the_future_is_made_still_serves_its_message() -> None:
    def learn_others() -> object:
        for number in range(2000):
            columns.learn(Message(f"topic-{number}", b"x"))
        return object()

    columns: Columns = Columns(new_future=learn_others).opened(ORDINARY)
    assert columns.shortcut.take(ORDINARY, "sync") is not None
    assert columns.commons == [template("orders", 0, "paid")]


def test_it_is_not_made_for_a_type_whose_fields_are_no_slots() -> None:
    class Loose:
        topic = body = tags = keys = properties = sharding_key = flag = wait_store = message_id = None
        delay_level = delay_ms = deliver_at_ms = None

    with pytest.raises(TypeError, match=r"Loose\.topic is no slot"):
        Shortcut(Loose, Backlog(1), asyncio.Future, {}, 1, 1, 1)


def test_it_goes_with_the_cycle_it_is_part_of() -> None:
    class Maker:
        shortcut: Any

        def __call__(self) -> None: ...

    maker = Maker()
    maker.shortcut = Columns(new_future=maker).opened(ORDINARY).shortcut
    gone = weakref.ref(maker)
    del maker
    gc.collect()
    assert gone() is None


def test_ids_begin_with_the_moment_and_end_with_their_number() -> None:
    asked: list[int] = []

    def advance(number: int) -> tuple[float, float, int, int, str]:
        asked.append(number)
        return (0.0, 1e12, number, number + 2, f"{len(asked):028d}")

    source = IdSource(advance)
    ids = [source.take() for _ in range(4)]
    assert asked == [0, 3]
    assert [(each[:28], int(each[28:], 16)) for each in ids] == [
        (f"{m:028d}", n) for m, n in ((1, 0), (1, 1), (1, 2), (2, 3))
    ]
    source.forget()
    source.take()
    assert asked == [0, 3, 4]


@pytest.mark.parametrize("moment", [(0.0, 1e12, 0, 9, "short"), (0.0, 1e12, 0, 9), None])
def test_a_moment_that_is_none_raises_and_the_next_id_asks_again(moment: Any) -> None:
    moments = [moment, (0.0, 1e12, 0, 9, "0" * 28)]
    source = IdSource(lambda number: moments.pop(0))
    with pytest.raises((TypeError, ValueError)):
        source.take()
    assert source.take() == "0" * 31 + "1"


def test_a_number_below_those_of_the_moment_asks_again() -> None:
    asked: list[int] = []

    def advance(number: int) -> tuple[float, float, int, int, str]:
        asked.append(number)
        return (0.0, 1e12, number + 2, number + 9, "0" * 28)

    source = IdSource(advance)
    for _ in range(4):
        source.take()
    assert asked == [0, 1, 2, 3]


def test_four_threads_get_no_id_twice() -> None:
    taken: list[list[str]] = [[] for _ in range(4)]

    def take(ids: list[str]) -> None:
        ids += [Message("t", b"x").message_id for _ in range(50_000)]

    threads = [threading.Thread(target=take, args=(ids,)) for ids in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set().union(*taken)) == 200_000


def test_a_copy_of_a_message_is_taken_like_the_message() -> None:
    columns = Columns().opened(ORDINARY)
    assert columns.shortcut.take(msgspec.structs.replace(ORDINARY, body=b"y"), "sync") is not None


TYPES: dict[str, list[Any]] = {
    "topic": ["orders", 5, None], "body": [b"x", bytearray(b"x"), "x"], "tags": [None, "paid", 5],
    "keys": [(), "", "k", ["k"], 5], "properties": [NO_PROPERTIES, {}, {"a": "b"}, {"a": 5}, 5],
    "delay_ms": [None, 0, 1, "1"], "deliver_at_ms": [None, 5, 0.5],
    "delay_level": [0, 1, "1", None], "sharding_key": [None, "s", 5], "flag": [0, 1 << 70, 0.5],
}  # fmt: skip


@given(st.fixed_dictionaries({name: st.sampled_from(values) for name, values in TYPES.items()}))
def test_only_messages_that_the_slow_check_would_pass_as_they_are_do_without_it(values: dict[str, Any]) -> None:
    seen: list[Message] = []
    message = Message("t", b"x")
    for name, value in values.items():
        msgspec.structs.force_setattr(message, name, value)
    MessageCheck(seen.append, NO_PROPERTIES)(message)
    if not seen:
        before = msgspec.structs.asdict(message)
        _check_types(message)
        assert msgspec.structs.asdict(message) == before
    ordinary = all(values[name] is plain[0] for name, plain in TYPES.items())
    assert not (ordinary and seen)


def test_a_thing_that_is_no_message_is_left_to_the_slow_check() -> None:
    seen: list[object] = []
    MessageCheck(seen.append, NO_PROPERTIES)("no message")
    assert seen == ["no message"]


def test_what_the_slow_check_raises_is_raised() -> None:
    def refuses(_: Message) -> None:
        raise TypeError("no")

    with pytest.raises(TypeError, match="no"):
        MessageCheck(refuses, NO_PROPERTIES)(UNLIKE["a key"])


def test_a_message_of_a_program_s_own_kind_is_checked_as_well() -> None:
    class Order(Message, frozen=True, kw_only=True):
        number: int = 0

    assert Order("orders", b"x", number=7).number == 7
    body: Any = "text"
    for kind in (Order, Message, Order):
        with pytest.raises(TypeError, match="body must be bytes"):
            kind("orders", body)


def test_a_check_looks_at_one_message_and_one_that_was_never_made_at_none() -> None:
    check: Any = MessageCheck(print, NO_PROPERTIES)
    for arguments in ((), (ORDINARY, ORDINARY)):
        with pytest.raises(TypeError, match="one message"):
            check(*arguments)
    with pytest.raises(TypeError, match="one message"):
        check(message=ORDINARY)
    with pytest.raises(TypeError):
        MessageCheck.__new__(MessageCheck)(UNLIKE["a key"])
