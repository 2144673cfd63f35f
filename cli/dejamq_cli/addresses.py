"""Asking name servers one after the other, as a client does, and saying clearly that none answered."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from dejamq.config import parse_addresses
from dejamq_proto.codes import BrokerUnavailable, Code, DejamqError, SendTimeout

Answer = TypeVar("Answer")


async def ask_any(namesrv: str, question: Callable[[str], Awaitable[Answer]]) -> Answer:
    """The first name server's answer, be it an error; the next is asked only when one does not answer."""
    addresses = parse_addresses(namesrv)
    reason = ""
    for address in addresses:
        try:
            return await question(address)
        except (BrokerUnavailable, SendTimeout) as error:
            reason = str(error).rpartition(": ")[2]
        except DejamqError as error:
            if error.code != Code.REQUEST_CODE_NOT_SUPPORTED:
                raise
            reason = str(error)
    raise BrokerUnavailable(
        f"no dejamq name server answers at {';'.join(addresses)} ({reason}); give --namesrv or DEJAMQ_NAMESRV "
        "(not RocketMQ's: it speaks another protocol), or start a cluster with: dejamq cluster up",
        code=Code.NO_NAME_SERVER,
    )
