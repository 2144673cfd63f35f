"""The words in which doors say what a request needs: actions, a kind of resource, and where the request names it.

A path leads from a request to names: ``queue.topic``, ``queues[].topic``, ``queues[].0``. It begins with ``body.``
where a remoting request has the name in its body.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from dejamq_proto import names
from dejamq_proto.access.model import Action, Resource, ResourceType


class Of(Enum):
    """What a path leads to."""

    TOPIC = "the name of a topic"
    GROUP = "the name of a group"
    MESSAGE = "the place or the id of a stored message: its topic is meant"
    ORIGIN = "the place of a dead letter: the topic that it first was in is meant"
    POPPED = "an object with group and topic, of which the topic may be a retry topic of pops"
    REPLY = "a send: where it is a reply, the cluster's topic for replies is meant"
    CLUSTER = "nothing: the cluster itself is meant"
    SERVER = "nothing: only servers and super users may"


class NeededRight(NamedTuple):
    """One of the actions suffices. An ``optional`` name that is missing needs nothing."""

    of: Of
    actions: frozenset[Action] = frozenset()
    path: str = ""
    optional: bool = False


@dataclass(frozen=True)
class Right:
    """All needs have to be met; without any it suffices to be a user. ``never``: servers refuse it from everybody.

    ``body`` is how a remoting request's body is read for the paths.
    """

    needs: tuple[NeededRight, ...] = ()
    never: bool = False
    body: type[Any] | None = None


PUB, SUB = frozenset({Action.PUB}), frozenset({Action.SUB})
LOOK = frozenset({Action.SUB, Action.GET})
MOVE = frozenset({Action.SUB, Action.UPDATE})
FIND = frozenset({Action.PUB, Action.SUB, Action.GET})
GET, LIST = frozenset({Action.GET}), frozenset({Action.LIST})
CREATE, UPDATE, DELETE = frozenset({Action.CREATE}), frozenset({Action.UPDATE}), frozenset({Action.DELETE})
USER, NEVER = Right(), Right(never=True)
"""It suffices to be a user; and: a request of servers to clients, which no client may make."""
SERVERS = Right((NeededRight(Of.SERVER),))


def right(*needs: NeededRight, body: type[Any] | None = None) -> Right:
    """All of these."""
    return Right(needs, body=body)


def topic(actions: frozenset[Action], path: str = "topic", *, optional: bool = False) -> NeededRight:
    return NeededRight(Of.TOPIC, actions, path, optional)


def group(actions: frozenset[Action], path: str = "group", *, optional: bool = False) -> NeededRight:
    return NeededRight(Of.GROUP, actions, path, optional)


def message(actions: frozenset[Action], path: str) -> NeededRight:
    return NeededRight(Of.MESSAGE, actions, path)


def cluster(actions: frozenset[Action]) -> Right:
    return Right((NeededRight(Of.CLUSTER, actions),))


def found(value: Any, path: str) -> Iterator[Any]:
    """What the path leads to; nothing where a part on the way is missing."""
    step, _, rest = path.partition(".")
    each = step.endswith("[]")
    name = step.removesuffix("[]")
    if name.isdecimal():
        inner = value[int(name)]
    elif name and _there(value, name):
        inner = getattr(value, name)
    elif name:
        return
    else:
        inner = value
    if inner is None:
        return
    for one in inner if each else (inner,):
        if rest:
            yield from found(one, rest)
        elif one is not None:
            yield one


def _there(value: Any, name: str) -> bool:
    """A message within a message may not be set."""
    try:
        return bool(value.HasField(name))
    except AttributeError:
        return hasattr(value, name)
    except ValueError:  # a field that is always there
        return True


SERVER = Resource(ResourceType.SERVER, "")


def topic_resource(name: str) -> Resource:
    """What the right to a topic is asked of: retry topics and dead letters are their group's.

    The topics in which servers keep other topics' messages are their own.
    """
    for prefix in (names.RETRY_PREFIX, names.DLQ_PREFIX):
        if name.startswith(prefix):
            return Resource(ResourceType.GROUP, name.removeprefix(prefix))
    if name in names.NOT_FOR_SENDING or name.startswith(names.SYSTEM_PREFIX):
        return SERVER
    return Resource(ResourceType.TOPIC, name)


def popped_topic(name: str, group_name: str) -> str:
    """The topic whose messages were popped, of the name of a retry topic that this group has for it."""
    of_group = names.RETRY_PREFIX + group_name
    for separator in ("+", "_"):
        if group_name and name.startswith(of_group + separator):
            return name.removeprefix(of_group + separator)
    return name
