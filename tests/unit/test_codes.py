"""Codes, errors and names."""

import pytest
from dejamq_proto import names
from dejamq_proto.codes import BrokerUnavailable, Code, DejamqError, InvalidName, RouteNotFound, SendTimeout, error_for


@pytest.mark.parametrize(
    ("code", "kind", "retriable", "definite"),
    [
        (Code.TOPIC_NOT_EXIST, RouteNotFound, True, True),
        (Code.SYSTEM_BUSY, DejamqError, True, True),
        (Code.SYSTEM_ERROR, DejamqError, True, False),
        (Code.ACCESS_BROKER_TIMEOUT, SendTimeout, False, False),
        (Code.CONNECT_BROKER_EXCEPTION, BrokerUnavailable, True, True),
        (Code.INVALID_PARAMETER, DejamqError, False, True),
    ],
)
def test_an_error_says_what_to_do_next(code: Code, kind: type, retriable: bool, definite: bool) -> None:
    error = error_for(code, "why")
    assert isinstance(error, kind)
    assert (error.code, error.retriable, error.definite, error.not_done) == (code, retriable, definite, definite)


def test_a_broken_connection_may_be_indefinite() -> None:
    assert error_for(Code.CONNECT_BROKER_EXCEPTION, "lost", definite=False).definite is False


def test_a_code_of_the_future_is_a_system_error() -> None:
    assert error_for(4242, "new").code is Code.SYSTEM_ERROR


@pytest.mark.parametrize("topic", ["", " ", "a b", "a/b", "x" * 128, "%RETRY%" + "g" * 260])
def test_bad_topics_are_refused(topic: str) -> None:
    with pytest.raises(InvalidName):
        names.check_topic(topic)


@pytest.mark.parametrize("topic", ["orders", "a-b_c|d%", "x" * 127, "%RETRY%" + "g" * 140])
def test_good_topics_pass(topic: str) -> None:
    names.check_topic(topic)


def test_system_topics_are_not_for_sending() -> None:
    with pytest.raises(InvalidName, match="belongs to the broker"):
        names.check_sendable(names.SCHEDULE_TOPIC)


@pytest.mark.parametrize("group", ["", "g" * 121, "DEFAULT_CONSUMER", "a b"])
def test_bad_groups_are_refused(group: str) -> None:
    with pytest.raises(InvalidName):
        names.check_group(group)
