"""What a failed call tells the user, and whether the request can have been carried out."""

import grpc
import pytest
from dejamq_proto.codes import BrokerUnavailable, Code, RouteNotFound, SendTimeout
from dejamq_proto.wire.calling import CODE_KEY, REMARK_KEY, error_from
from grpc.aio import AioRpcError, Metadata

REFUSED = (
    "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: "
    "Failed to connect to remote host: Connection refused"
)


def failure(status: grpc.StatusCode, details: str, *trailers: tuple[str, str | bytes]) -> AioRpcError:
    return AioRpcError(status, Metadata(), Metadata(*trailers), details, "")


def test_a_refused_connection_is_definite_and_said_in_two_words() -> None:
    error = error_from(failure(grpc.StatusCode.UNAVAILABLE, REFUSED), "127.0.0.1:1")
    assert isinstance(error, BrokerUnavailable)
    assert error.definite
    assert str(error) == "no dejamq server answers at 127.0.0.1:1: Connection refused"


def test_a_connection_that_broke_is_not_definite() -> None:
    assert not error_from(failure(grpc.StatusCode.UNAVAILABLE, "Socket closed"), "b:1").definite


def test_a_name_that_does_not_resolve_is_definite() -> None:
    assert error_from(failure(grpc.StatusCode.UNAVAILABLE, "DNS resolution failed for b:1"), "b:1").definite


def test_no_answer_in_time_is_a_time_out_that_is_not_definite() -> None:
    error = error_from(failure(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"), "b:1")
    assert isinstance(error, SendTimeout)
    assert not error.definite


def test_a_code_in_the_trailers_is_the_servers_own_word() -> None:
    trailers = ((CODE_KEY, str(int(Code.TOPIC_NOT_EXIST))), (REMARK_KEY, "kein Thema für «x»".encode()))
    error = error_from(failure(grpc.StatusCode.NOT_FOUND, "ignored", *trailers), "b:1")
    assert isinstance(error, RouteNotFound)
    assert (error.code, str(error)) == (Code.TOPIC_NOT_EXIST, "kein Thema für «x»")


@pytest.mark.parametrize("details", ["", "one\ntwo"])
def test_an_error_is_always_one_line(details: str) -> None:
    assert "\n" not in str(error_from(failure(grpc.StatusCode.UNAVAILABLE, details), "b:1"))


@pytest.mark.parametrize(
    ("status", "details"),
    [
        (grpc.StatusCode.INTERNAL, "Internal error from Core"),
        (grpc.StatusCode.INTERNAL, "Received RST_STREAM with error code 2"),
        (grpc.StatusCode.INTERNAL, ""),
        (grpc.StatusCode.UNKNOWN, "Stream removed"),
        (grpc.StatusCode.CANCELLED, "Received RST_STREAM with error code 8"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Received RST_STREAM with error code 11"),
        (grpc.StatusCode.UNAVAILABLE, "Connection reset by peer"),
    ],
)
def test_a_call_that_grpc_ended_itself_is_a_lost_connection_that_is_not_definite(
    status: grpc.StatusCode, details: str
) -> None:
    error = error_from(failure(status, details), "b:1")
    assert isinstance(error, BrokerUnavailable)
    assert (error.code, error.definite) == (Code.CONNECT_BROKER_EXCEPTION, False)
    assert "b:1" in str(error)


@pytest.mark.parametrize(
    ("status", "details"),
    [
        (grpc.StatusCode.UNKNOWN, "Unexpected <class 'KeyError'>: 'x'"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "CLIENT: Received message larger than max (70000000 vs. 67108864)"),
        (grpc.StatusCode.PERMISSION_DENIED, "a proxy said so"),
    ],
)
def test_a_call_that_a_peer_failed_is_no_lost_connection(status: grpc.StatusCode, details: str) -> None:
    error = error_from(failure(status, details), "b:1")
    assert not isinstance(error, BrokerUnavailable)
    assert (error.code, error.definite) == (Code.SYSTEM_ERROR, False)


def test_a_refusal_in_the_trailers_is_the_servers_whatever_the_status() -> None:
    trailers = ((CODE_KEY, str(int(Code.SYSTEM_BUSY))), (REMARK_KEY, b"later"))
    error = error_from(failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "ignored", *trailers), "b:1")
    assert (error.code, str(error)) == (Code.SYSTEM_BUSY, "later")


def test_another_grpc_server_is_told_apart() -> None:
    error = error_from(failure(grpc.StatusCode.UNIMPLEMENTED, "unknown service"), "b:1")
    assert "not this service of dejamq" in str(error)
