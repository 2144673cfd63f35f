"""Commands of the broker as they go down a client's channel."""

from dejamq_proto import client_pb2 as pb

from dejamq_broker.commands import TakeDirectly, TellRunning
from dejamq_broker.transaction_check import CheckProducer


def command_to_proto(command: object) -> pb.BrokerCommand:
    """The command in protobuf's clothes. Raises TypeError for what is no command."""
    match command:
        case TellRunning():
            told = pb.TellRunningInfo(number=command.number, group=command.group, stacks=command.stacks)
            return pb.BrokerCommand(tell_running_info=told)
        case TakeDirectly():
            taken = pb.TakeDirectly(
                number=command.number, group=command.group, broker_name=command.broker_name, record=command.record
            )
            return pb.BrokerCommand(take_directly=taken)
        case CheckProducer():
            asked = pb.CheckTransaction(
                group=command.group, record=command.record, half_queue_offset=command.half_queue_offset,
                half_log_offset=command.half_log_offset, check_times=command.check_times,
                broker_name=command.broker_name,
            )  # fmt: skip
            return pb.BrokerCommand(check_transaction=asked)
        case _:
            raise TypeError(f"{command!r} is no command for clients")
