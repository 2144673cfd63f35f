"""Commands of the broker as they go down a client's channel."""

from dejamq_proto import client_pb2 as pb

from dejamq_broker.commands import TakeDirectly, TellRunning


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
        case _:
            raise TypeError(f"{command!r} is no command for clients")
