"""The output of ``dejamq message history -o json``, from which the text is made too."""

import msgspec


class Participant(msgspec.Struct):
    """A process that had to do with the message, and its short name."""

    name: str
    role: str
    process: str
    boot_id: str
    groups: list[str]


class StoredCopy(msgspec.Struct):
    """One record of the message. ``origin`` says in words what it was made from."""

    number: int
    broker: str
    topic: str
    queue_id: int
    queue_offset: int
    offset_message_id: str
    origin: str


class HandlerEntry(msgspec.Struct):
    """A handler was entered. ``delivery_id`` is the one that it sees; ``result`` is empty where none is known."""

    number: int
    delivery_id: str
    group: str
    actor: str
    copy: int
    result: str


class StoryStep(msgspec.Struct):
    """One line of a journal, in words; without ``event`` where a journal breaks off."""

    wall_us: int
    actor: str
    boot_id: str
    seq: int
    event: str
    text: str


class GroupEnd(msgspec.Struct):
    """The state of a group for the message. ``results`` has the result of each delivery, in order.

    ``committed_past`` are numbers of copies that it has committed past and was not moved back before; ``unasked``
    counts the deliveries after one that had not asked for another.
    """

    group: str
    deliveries: int
    results: list[str]
    committed_past: list[int]
    unasked: int


class MessageStory(msgspec.Struct):
    """One message's life. ``missing`` are sentences about what the journals do not say."""

    message_id: str
    topic: str
    processes: list[Participant]
    copies: list[StoredCopy]
    deliveries: list[HandlerEntry]
    steps: list[StoryStep]
    groups: list[GroupEnd]
    missing: list[str]
