"""The remoting door of a broker, made of the parts of the domain that it translates for."""

from collections.abc import Awaitable, Callable

from dejamq_proto.remoting.header import Command
from dejamq_proto.serving.access_service import AccessRequests
from dejamq_proto.serving.remoting import Answered, Connection, RemotingDoor

from dejamq_broker.doors.remoting.assignments import Assigning
from dejamq_broker.doors.remoting.members import Memberships
from dejamq_broker.doors.remoting.operators import Changes, Views
from dejamq_broker.doors.remoting.pop import Popping
from dejamq_broker.doors.remoting.pull import Pulling
from dejamq_broker.doors.remoting.queries import Queries
from dejamq_broker.doors.remoting.send import Sending
from dejamq_broker.doors.remoting.session import ClientSession, Handler
from dejamq_broker.doors.remoting.upkeep import UpkeepRequests
from dejamq_broker.members.clients import Clients
from dejamq_broker.members.commands import PendingCommands
from dejamq_broker.paths.long_poll import LongPoll
from dejamq_broker.pop.waiting import HeldPops
from dejamq_broker.tables.topics import TopicTable


def remoting_door(
    sending: Sending, pulling: Pulling, popping: Popping, memberships: Memberships, queries: Queries,
    changes: Changes, views: Views, upkeep: UpkeepRequests, assigning: Assigning, *,
    clients: Clients, commands: PendingCommands, long_poll: LongPoll, held: HeldPops, topics: TopicTable,
    told: Callable[[], Awaitable[None]],
) -> RemotingDoor[ClientSession]:  # fmt: skip
    """Requests that nobody here handles are answered with code 3.

    ``told`` waits until name servers know the topics as they are now.
    """
    making = sending.handlers() | memberships.handlers()
    handlers = {code: _told_first(handler, topics, told) for code, handler in making.items()}
    handlers |= pulling.handlers() | popping.handlers() | queries.handlers() | changes.handlers() | views.handlers()
    handlers |= upkeep.handlers() | assigning.handlers()

    def open_session(connection: Connection[ClientSession]) -> ClientSession:
        return ClientSession(connection, clients, commands, long_poll, held)

    door: RemotingDoor[ClientSession] = RemotingDoor(handlers, open_session)
    handlers |= AccessRequests(lambda: door.guard).handlers()
    return door


def _told_first(handler: Handler, topics: TopicTable, told: Callable[[], Awaitable[None]]) -> Handler:
    """A client whose request made a topic finds its route when it has the answer (RocketMQ: TopicConfigManager)."""

    def handled(client: ClientSession, command: Command) -> Answered:
        before = topics.version
        answered = handler(client, command)
        return answered if topics.version is before else _after(told(), answered)

    return handled


async def _after(told: Awaitable[None], answered: Answered) -> Command | None:
    await told
    return answered if answered is None or isinstance(answered, Command) else await answered
