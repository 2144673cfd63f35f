"""Statuses: each answer carries one, also where something was refused. An error of gRPC is a broken line to clients."""

from dejamq_proto.access.guard import AccessDenied
from dejamq_proto.codes import Code, DejamqError, InvalidName
from dejamq_proto.v2 import messages_pb2 as pb

MOST_CHARACTERS = 512
BY_CODE = {
    Code.TOPIC_NOT_EXIST: pb.TOPIC_NOT_FOUND,
    Code.SUBSCRIPTION_GROUP_NOT_EXIST: pb.CONSUMER_GROUP_NOT_FOUND,
    Code.NO_PERMISSION: pb.FORBIDDEN,
    Code.SYSTEM_BUSY: pb.TOO_MANY_REQUESTS,
    Code.FLOW_CONTROL: pb.TOO_MANY_REQUESTS,
    Code.POLLING_FULL: pb.TOO_MANY_REQUESTS,
    Code.SUBSCRIPTION_PARSE_FAILED: pb.ILLEGAL_FILTER_EXPRESSION,
    Code.INVALID_PARAMETER: pb.BAD_REQUEST,
    Code.MESSAGE_ILLEGAL: pb.MESSAGE_CORRUPTED,
    Code.FLUSH_DISK_TIMEOUT: pb.MASTER_PERSISTENCE_TIMEOUT,
    Code.FLUSH_SLAVE_TIMEOUT: pb.SLAVE_PERSISTENCE_TIMEOUT,
    Code.SLAVE_NOT_AVAILABLE: pb.HA_NOT_AVAILABLE,
    Code.REQUEST_CODE_NOT_SUPPORTED: pb.NOT_IMPLEMENTED,
}
"""All others are INTERNAL_SERVER_ERROR, after which producers send again. Source: RocketMQ ``ResponseBuilder``."""
OK = pb.Status(code=pb.OK, message="OK")


class StatusError(DejamqError):
    """An error that names its status."""

    def __init__(self, status: "pb.Code.ValueType", text: str) -> None:
        super().__init__(text, code=Code.INVALID_PARAMETER)
        self.status = status


def status_of(error: DejamqError, by_code: "dict[Code, pb.Code.ValueType] | None" = None) -> pb.Status:
    """``by_code``: what codes mean in this call, where that is another status than usual."""
    if isinstance(error, StatusError):
        status = error.status
    elif isinstance(error, AccessDenied):  # RocketMQ's proxy has this one also for a right that is missing
        status = pb.UNAUTHORIZED
    else:
        status = (BY_CODE | (by_code or {})).get(error.code, pb.INTERNAL_SERVER_ERROR)
    text = str(error)
    if error.code == Code.TOPIC_NOT_EXIST:  # clients' tests look for these words, which are RocketMQ's
        text = f"CODE: {int(error.code)}  DESC: {text}"
    return pb.Status(code=status, message=text[:MOST_CHARACTERS])


def named(error: InvalidName, status: "pb.Code.ValueType") -> StatusError:
    """The error of a name, with the status of what it names."""
    return StatusError(status, str(error))
