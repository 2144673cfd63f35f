"""How transactions ended: the producer's decision, the broker's questions and its use of the answers.

The half message is named by its two places at its broker: ``half_queue_offset``, ``half_log_offset``.
"""

from dejamq_proto.journal.events.base import Event


class Tx(Event, tag="TX"):
    """A producer tells a broker how a transaction ended, oneway; written before it leaves.

    ``state``: commit, rollback, unknown. ``from_check``: the answer to a check. ``reason`` says why it is unknown: the
    error that the program's function raised, or that it returned no state.
    """

    group: str
    broker_name: str
    unique_key: str
    half_queue_offset: int
    half_log_offset: int
    state: str
    from_check: bool
    request_seq: int
    reason: str = ""


class EndTransaction(Event, tag="END_TRANSACTION"):
    """A broker was told how a transaction ended. (client_boot_id, request_seq) meets the producer's TX.

    ``outcome``: committed, rolled_back, unknown, or refused, with the ``reason``. A committed record has an APPEND of
    origin tx_final with the same request.
    """

    broker_name: str
    group: str
    unique_key: str
    half_queue_offset: int
    half_log_offset: int
    state: str
    from_check: bool
    outcome: str
    reason: str = ""
    client_id: str = ""
    client_boot_id: str = ""
    request_seq: int = 0


class CheckTransaction(Event, tag="CHECK_TRANSACTION"):
    """A broker stored a half message anew and asked a producer how it ended. ``client_id`` '': none was online.

    ``check_times`` counts the checks of the message.
    """

    broker_name: str
    group: str
    unique_key: str
    half_queue_offset: int
    half_log_offset: int
    check_times: int
    client_id: str = ""
