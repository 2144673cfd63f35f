"""Routes as values, and when they are read again."""

import asyncio
from collections.abc import Callable

import pytest
from dejamq import BrokerUnavailable, ClientClosed, Code, ConfigError, MessageQueue, RouteNotFound
from dejamq.net.routes import Routes, TopicRoute
from dejamq.values.config import client_config, parse_addresses
from dejamq.values.producer_config import ProducerConfig
from dejamq_proto.namesrv_pb2 import BrokerData, GetRouteResponse, QueueData


def answer(
    *brokers: tuple[str, int, dict[int, str]], reads: int = 2, writes: int = 2, order: str = ""
) -> GetRouteResponse:
    return GetRouteResponse(
        order_conf=order,
        queues=[
            QueueData(broker_name=name, read_queue_nums=reads, write_queue_nums=writes, perm=perm)
            for name, perm, _ in brokers
        ],
        brokers=[BrokerData(cluster="c", broker_name=name, addresses=ids) for name, _, ids in brokers],
    )


A, B = ("a", 6, {0: "h:1", 1: "h:2"}), ("b", 6, {0: "h:3"})


def names(queues: tuple[MessageQueue, ...]) -> list[str]:
    return [f"{queue.broker_name}{queue.queue_id}" for queue in queues]


def test_publish_queues_are_sorted_and_of_writable_brokers_with_a_master() -> None:
    route = TopicRoute.read("t", answer(B, A, ("ro", 4, {0: "h:4"}), ("slave", 6, {1: "h:5"})))
    assert names(route.publish_queues()) == ["a0", "a1", "b0", "b1"]


def test_subscribe_queues_need_read_permission_but_no_master() -> None:
    route = TopicRoute.read("t", answer(A, ("wo", 2, {0: "h:4"}), ("slave", 6, {1: "h:5"}), reads=1))
    assert names(route.subscribe_queues()) == ["a0", "slave0"]


def test_an_order_configuration_takes_precedence_for_publishing() -> None:
    assert names(TopicRoute.read("t", answer(A, B, order="b:1;a:2;slip;c:x;")).publish_queues()) == ["b0", "a0", "a1"]


def test_the_template_gives_at_most_the_default_number_of_queues_and_nothing_to_consume() -> None:
    template = TopicRoute.read("TBW102", answer(A, reads=8, writes=8))
    route = template.as_template_for("new", 4)
    assert names(route.publish_queues()) == ["a0", "a1", "a2", "a3"]
    assert route.publish_queues()[0].topic == "new"
    assert route.subscribe_queues() == ()
    assert len(TopicRoute.read("TBW102", answer(A, reads=1)).as_template_for("new", 4).publish_queues()) == 1


def test_equal_routes_have_equal_digests_whatever_their_order_on_the_wire() -> None:
    assert TopicRoute.read("t", answer(A, B)) == TopicRoute.read("t", answer(B, A))
    assert TopicRoute.read("t", answer(A, B)).digest == TopicRoute.read("t", answer(B, A)).digest
    assert TopicRoute.read("t", answer(A)).digest != TopicRoute.read("t", answer(A, B)).digest


def test_the_digest_tells_whether_the_same_queues_are_shared_out_and_nothing_else() -> None:
    whole = TopicRoute.read("t", answer(A))
    name, perm, _ = A
    elsewhere, slave = {0: "other:9"}, {1: "h:5"}
    assert TopicRoute.read("t", answer((name, perm, elsewhere))).digest == whole.digest
    assert TopicRoute.read("t", answer((name, perm, slave))).digest == whole.digest
    assert TopicRoute.read("t", answer((name, 4, slave))).digest == whole.digest
    assert TopicRoute.read("t", answer(A, reads=5)).digest != whole.digest
    assert TopicRoute.read("t", answer((name, 2, elsewhere))).digest != whole.digest


class Source:
    """A name server of the test's making."""

    def __init__(self) -> None:
        self.topics: dict[str, GetRouteResponse] = {}
        self.asked: list[str] = []
        self.down = False

    async def get_route(self, topic: str) -> GetRouteResponse:
        self.asked.append(topic)
        await asyncio.sleep(0)
        if self.down:
            raise BrokerUnavailable("down", code=Code.NO_NAME_SERVER)
        if topic not in self.topics:
            raise RouteNotFound(f"no {topic}")
        return self.topics[topic]


def routes(source: Source, interval_ms: float = 60_000) -> Routes:
    return Routes(source, refresh_interval_ms=interval_ms)


async def test_questions_for_one_topic_are_asked_once() -> None:
    source = Source()
    source.topics["t"] = answer(A)
    known = routes(source)
    await asyncio.gather(*(known.publish_queues("t") for _ in range(10)))
    await known.publish_queues("t")
    assert source.asked == ["t"]


async def test_a_missing_topic_is_published_by_template_until_it_exists() -> None:
    source = Source()
    source.topics["TBW102"] = answer(A, reads=8)
    known = routes(source)
    assert len(await known.publish_queues("new")) == 4
    source.topics["new"] = answer(B, reads=1, writes=1)
    await known.refresh("new")
    assert names(await known.publish_queues("new")) == ["b0"]


async def test_without_topic_and_template_the_topic_is_named() -> None:
    with pytest.raises(RouteNotFound, match="no new"):
        await routes(Source()).publish_queues("new")
    with pytest.raises(RouteNotFound, match="no new"):
        await routes(Source()).subscribe_queues("new")


async def test_a_topic_whose_masters_are_away_says_so() -> None:
    source = Source()
    source.topics["t"] = answer(("a", 6, {1: "h:2"}))
    with pytest.raises(RouteNotFound, match="no master is up"):
        await routes(source).publish_queues("t")


async def test_what_was_known_stays_when_the_topic_or_the_name_server_is_gone() -> None:
    source = Source()
    source.topics["t"] = answer(A)
    known = routes(source, interval_ms=5)
    before = await known.get("t")
    task = asyncio.get_running_loop().create_task(known.run())
    source.topics.clear()
    await _until(lambda: len(source.asked) > 3)
    source.down = True
    await _until(lambda: len(source.asked) > 6)
    task.cancel()
    await asyncio.wait((task,))
    await known.close()
    assert known.known("t") == before


async def test_a_question_before_creation_does_not_wait_for_one_that_creates_nothing() -> None:
    source = Source()
    source.topics["TBW102"] = answer(A)
    known = routes(source)
    looking = asyncio.create_task(known.get("new"))
    await asyncio.sleep(0)
    assert names(await known.publish_queues("new")) == ["a0", "a1"]
    with pytest.raises(RouteNotFound):
        await looking


async def test_whoever_waits_for_a_route_when_the_client_closes_is_told_so() -> None:
    source = Source()
    source.topics["t"] = answer(A)
    known = routes(source)
    asking = asyncio.create_task(known.publish_queues("t"))
    await asyncio.sleep(0)
    await known.close()
    with pytest.raises(ClientClosed, match="closed while it asked"):
        await asking


async def test_listeners_hear_of_changes_only() -> None:
    source = Source()
    source.topics["t"] = answer(A)
    known = routes(source)
    heard: list[TopicRoute] = []
    known.on_change.append(heard.append)
    await known.refresh("t")
    await known.refresh("t")
    source.topics["t"] = answer(A, B)
    await known.refresh("t")
    assert [len(route.addresses) for route in heard] == [1, 2]


async def test_addresses_of_masters_and_of_all() -> None:
    source = Source()
    source.topics["t"] = answer(A, ("s", 6, {1: "h:9"}))
    known = routes(source)
    await known.get("t")
    assert known.addresses(masters_only=True) == {"h:1"}
    assert known.addresses(masters_only=False) == {"h:1", "h:2", "h:9"}
    assert known.master_address("a") == "h:1"
    assert known.master_address("s") is None
    assert known.address("s", only_this=False) == "h:9"


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)


def test_addresses_are_split_and_checked() -> None:
    assert parse_addresses("a:1;b:2, http://c:3") == ("a:1", "b:2", "c:3")
    for wrong in ("", " ; ", "localhost", "host:port", "host:70000", ":9876"):
        with pytest.raises(ConfigError):
            parse_addresses(wrong)


def test_settings_come_from_arguments_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEJAMQ_NAMESRV", "env:1")
    assert client_config(ProducerConfig, None, {}).namesrv == "env:1"
    config = client_config(ProducerConfig, ["a:1", "b:2"], {"sendMsgTimeout": 500, "retry_times_when_send_failed": 0})
    assert (config.namesrv, config.send_msg_timeout_ms, config.retry_times_when_send_failed) == ("a:1;b:2", 500, 0)


def test_an_unknown_setting_is_refused_with_near_names() -> None:
    with pytest.raises(ConfigError, match="did you mean send_msg_timeout_ms"):
        client_config(ProducerConfig, None, {"send_message_timeout_ms": 5})


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_pending_bytes": 0}, {"max_message_size": 64 << 20}, {"journal_level": "loud"},
        {"retry_times_when_send_failed": -1},
    ],
)  # fmt: skip
def test_nonsense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        client_config(ProducerConfig, None, wrong)
