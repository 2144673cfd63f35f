"""The public face, name by name: programs of other people are written against these names, shapes and defaults."""

import inspect
from collections.abc import Callable
from typing import Any

import dejamq
import dejamq.sync
import pytest
from dejamq import ConsumeFrom, MessageModel, ReceivedMessage
from dejamq.admin.cluster import ClientConnection
from dejamq.values.config import ClientConfig, ConsumerConfig
from dejamq.values.producer_config import ProducerConfig

LIFE = ("start", "close", "__aenter__", "__aexit__")
CLIENTS = ("Producer", "TransactionProducer", "PushConsumer", "LitePullConsumer", "SimpleConsumer", "Admin")

# What is called as it stands here binds: required arguments by place, the rest by name.
PLAIN: dict[str, dict[str, tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "Producer": {
        "submit": (("m",), {"queue": None, "timeout_ms": 1}),
        "send_oneway": (("m",), {}),
    },
    "TransactionProducer": {"submit": (("m",), {}), "send_oneway": (("m",), {})},
    "PushConsumer": {
        "subscribe": (("topic", print), {"tags": "a", "sql": None}),
        "subscribe_batch": (("topic", print), {"size": 8, "tags": "a", "sql": None}),
        "unsubscribe": (("topic",), {}),
        "suspend": ((), {}),
        "resume": ((), {}),
        "stop": ((), {}),
    },
    "LitePullConsumer": {
        "subscribe": (("topic",), {"tags": "a"}),
        "assign": (("queues",), {}),
        "seek": (("queue", 7), {}),
        "pause": (("queues",), {}),
        "resume": (("queues",), {}),
    },
    "SimpleConsumer": {"subscribe": (("topic",), {"tags": "a"}), "unsubscribe": (("topic",), {})},
    "Admin": {},
}
AWAITED: dict[str, dict[str, tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "Producer": {
        "send": (("m",), {"queue": None, "timeout_ms": 1}),
        "drain": ((), {}),
        "flush": ((), {}),
        "send_batch": ((["m"],), {}),
        "request": (("m", 1000), {}),
        "publish_queues": (("topic",), {}),
    },
    "TransactionProducer": {"send": (("m",), {}), "send_in_transaction": (("m", print), {})},
    "PushConsumer": {
        "wait_assigned": ((1000,), {}),
        "run_until_stopped": ((), {"signals": ()}),
    },
    "LitePullConsumer": {
        "poll": ((), {"timeout_ms": 1, "max_messages": 1}),
        "commit": ((), {"offsets": None}),
        "committed": (("queue",), {}),
        "seek_to_begin": (("queue",), {}),
        "seek_to_end": (("queue",), {}),
        "offset_for_timestamp": (("queue", 1), {}),
        "__anext__": ((), {}),
    },
    "SimpleConsumer": {
        "receive": ((), {"max_messages": 1, "invisible_ms": 1, "timeout_ms": 1}),
        "ack": (("message",), {}),
        "change_invisible": (("message", 1), {}),
        "__anext__": ((), {}),
    },
    "Admin": {
        "topics": ((), {}),
        "topic": (("topic",), {}),
        "create_topic": (("topic",), {"queues": 4, "perm": 6, "brokers": None}),
        "groups": ((), {}),
        "create_group": (("group",), {}),
        "members": (("group",), {}),
        "progress": (("group",), {}),
        "routes": (("topic",), {}),
        "connections": (("group",), {"broker_name": "broker-a"}),
        "reset_offsets": (("group", "topic"), {"to_time_ms": 1, "to_offset": None}),
        "clone_offsets": (("source", "target", "topic"), {}),
        "message": (("id",), {}),
        "messages_by_key": (("topic", "key"), {}),
        "settings": (("broker-a",), {}),
        "stop_writes": (("broker-a",), {}),
        "start_writes": (("broker-a",), {}),
    },
}
ERRORS: dict[str, type[BaseException]] = {
    "SendTimeout": TimeoutError, "RouteNotFound": Exception, "BrokerUnavailable": ConnectionError,
    "MessageTooLarge": ValueError, "InvalidName": ValueError, "PermissionDenied": Exception, "BacklogFull": Exception,
    "ClientClosed": Exception, "ConfigError": ValueError, "ForkedProcess": Exception,
}  # fmt: skip
RECEIVED = (
    "topic", "body", "tags", "keys", "properties", "message_id", "offset_message_id", "queue", "queue_offset",
    "log_offset", "store_size", "body_crc", "flag", "sys_flag", "reconsume_times", "born_timestamp_ms",
    "store_timestamp_ms", "born_host", "store_host", "prepared_transaction_offset", "detach",
)  # fmt: skip
PUSH_DEFAULTS = {
    "namesrv": None, "model": MessageModel.CLUSTERING, "ordered": False, "auto_commit": True,
    "consume_from": ConsumeFrom.LAST_OFFSET, "consume_timestamp_ms": None, "allocation": "averagely",
    "max_concurrency": 20, "max_reconsume_times": None,
}  # fmt: skip


def named_defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """Of the arguments that are given by name only."""
    arguments = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in arguments if one.kind is inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_is_started_and_closed_the_same_way(client: str) -> None:
    made = getattr(dejamq, client)
    assert all(inspect.iscoroutinefunction(getattr(made, name)) for name in LIFE)
    assert inspect.signature(made.close).parameters["timeout_ms"].default is None
    assert isinstance(made.closed, property)
    blocking = getattr(dejamq.sync, client)
    assert not any(inspect.iscoroutinefunction(getattr(blocking, name)) for name in ("start", "close", "__enter__"))
    assert isinstance(blocking.closed, property)


@pytest.mark.parametrize(
    ("client", "name", "awaited"),
    [(client, name, False) for client in CLIENTS for name in PLAIN[client]]
    + [(client, name, True) for client in CLIENTS for name in AWAITED[client]],
)
def test_a_call_takes_its_arguments_and_is_awaited_or_not_as_told(client: str, name: str, awaited: bool) -> None:
    method = getattr(getattr(dejamq, client), name)
    assert inspect.iscoroutinefunction(method) is awaited
    places, names = (AWAITED if awaited else PLAIN)[client][name]
    inspect.signature(method).bind("self", *places, **names)
    if not name.startswith("__"):
        blocking = getattr(getattr(dejamq.sync, client), name)
        assert not inspect.iscoroutinefunction(blocking)
        inspect.signature(blocking).bind("self", *places, **names)


@pytest.mark.parametrize("client", [*CLIENTS, "Inbox"])
def test_the_blocking_client_has_every_name_of_the_other(client: str) -> None:
    def public(of: type[Any]) -> set[str]:
        return {name for name in dir(of) if not name.startswith("_") and name != "inspect"}  # it is for tests

    assert public(getattr(dejamq, client)) - public(getattr(dejamq.sync, client)) == set()
    assert inspect.signature(getattr(dejamq, client)) == inspect.signature(getattr(dejamq.sync, client))


def test_the_blocking_module_has_the_same_names() -> None:
    assert dejamq.sync.__all__ == dejamq.__all__
    own = {name for name in dejamq.__all__ if getattr(dejamq.sync, name) is not getattr(dejamq, name)}
    assert own == {*CLIENTS, "Inbox", "run"}


def test_a_message_is_made_as_told() -> None:
    parameters = inspect.signature(dejamq.Message).parameters
    assert list(parameters)[:2] == ["topic", "body"]
    rest = {name: one for name, one in parameters.items() if name not in ("topic", "body")}
    assert {name: rest.pop(name).default for name in ("tags", "keys", "delay_level", "sharding_key", "flag")} == {
        "tags": None, "keys": (), "delay_level": 0, "sharding_key": None, "flag": 0,
    }  # fmt: skip
    assert (rest["wait_store"].default, rest["delay_ms"].default, rest["deliver_at_ms"].default) == (True, None, None)
    assert dejamq.Message("orders", b"x").properties == {}
    assert {one.kind for name, one in parameters.items() if name not in ("topic", "body")} == {
        inspect.Parameter.KEYWORD_ONLY
    }
    message = dejamq.Message("orders", b"x", keys="one")
    assert tuple(message.keys) == ("one",)
    assert message.replace(body=b"y").message_id != message.message_id
    with pytest.raises(AttributeError):
        message.topic = "other"  # type: ignore[misc]  # frozen, for mypy too


def test_results_and_received_messages_have_their_attributes() -> None:
    assert [name for name in RECEIVED if not hasattr(ReceivedMessage, name)] == []
    result = {"status", "message_id", "offset_message_id", "queue", "queue_offset"}
    assert result <= {*dir(dejamq.SendResult), *dejamq.SendResult.__struct_fields__}
    assert list(inspect.signature(dejamq.MessageQueue).parameters) == ["topic", "broker_name", "queue_id"]
    assert [one.name for one in dejamq.SendStatus] == [
        "SEND_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE",
    ]  # fmt: skip


def test_consumers_have_the_defaults_as_told() -> None:
    assert PUSH_DEFAULTS.items() <= named_defaults(dejamq.PushConsumer).items()
    assert {"namesrv": None, "auto_commit": True}.items() <= named_defaults(dejamq.LitePullConsumer).items()
    assert named_defaults(dejamq.Producer) == {"namesrv": None, "telemetry": None}
    required = inspect.Parameter.empty
    assert {"checker": required, "namesrv": None}.items() <= named_defaults(dejamq.TransactionProducer).items()
    assert [state.name for state in dejamq.TransactionState] == ["COMMIT", "ROLLBACK", "UNKNOWN"]
    assert inspect.signature(dejamq.Admin).parameters["namesrv"].default is None
    for client in ("PushConsumer", "LitePullConsumer"):
        assert isinstance(getattr(dejamq, client).assignment, property)
    assert hasattr(dejamq.LitePullConsumer, "__aiter__")
    assert hasattr(dejamq.sync.LitePullConsumer, "__iter__")


def test_settings_beyond_rocketmq_have_the_defaults_as_told() -> None:
    client = ClientConfig()
    assert (client.await_termination_ms, client.client_id, client.journal_dir) == (20_000, None, None)
    assert (client.namesrv, client.journal_max_bytes) == ("127.0.0.1:9876", 1 << 30)
    consumer = ConsumerConfig()
    assert (consumer.shutdown_mode, consumer.graceful_handover, consumer.max_cached_bytes) == ("drain", False, 64 << 20)
    producer = ProducerConfig()
    assert (producer.max_pending_bytes, producer.close_connection_on_timeout) == (64 << 20, False)


@pytest.mark.parametrize("name", [*ERRORS])
def test_errors_are_named_and_say_what_to_do_next(name: str) -> None:
    made = getattr(dejamq, name)
    assert issubclass(made, dejamq.DejamqError)
    assert issubclass(made, ERRORS[name])
    error = made("text", definite=True)
    assert error.not_done is error.definite is True
    assert isinstance(error.retriable, bool)
    assert isinstance(error.code, dejamq.Code)


def test_answers_of_handlers_are_made_as_told() -> None:
    assert dejamq.RetryLater().delay_level == dejamq.RetryLater(delay_level=0).delay_level == 0
    assert dejamq.DeadLetter("why").reason == "why"
    assert dejamq.BatchResult(ack_index=3).ack_index == 3
    assert dejamq.SuspendQueue(ms=1000).ms == 1000
    assert {"SUCCESS", "RECONSUME_LATER"} == set(dejamq.ConsumeStatus.__members__)
    assert {"COMMIT", "ROLLBACK"} == set(dejamq.OrderedStatus.__members__)
    assert {dejamq.Handler, dejamq.BatchHandler} == {dejamq.sync.Handler, dejamq.sync.BatchHandler}


def test_inbox_run_and_the_lists_of_an_admin_are_made_as_told() -> None:
    inspect.signature(dejamq.Inbox).bind("connection")
    inspect.signature(dejamq.Inbox.once).bind("self", "message")
    assert inspect.iscoroutinefunction(dejamq.run)
    inspect.signature(dejamq.run).bind("one", "two", signals=())
    assert inspect.isasyncgenfunction(dejamq.Admin.read)
    assert inspect.isasyncgenfunction(dejamq.Admin.dead_letters)
    assert {"client_id", "address", "version", "last_heartbeat_ms"} <= {*ClientConnection.__struct_fields__}
