"""Filters that only brokers can judge, judged before anything waits for their messages.

Source: RocketMQ ``MQClientInstance.checkClientInBroker``, which asks one broker of each topic; here all are asked.
"""

import asyncio
import logging
from collections.abc import Iterable

from dejamq_proto.codes import BrokerUnavailable, Code, DejamqError, RouteNotFound, error_for
from dejamq_proto.pull_pb2 import CheckFilterRequest

from dejamq.instance import Instance
from dejamq.subscriptions import Subscription

log = logging.getLogger("dejamq.consumer")
REFUSALS = (Code.SUBSCRIPTION_PARSE_FAILED, Code.SYSTEM_ERROR)


async def check_filters(instance: Instance, group: str, subscriptions: Iterable[Subscription]) -> None:
    """Raises the first refusal of a broker: SUBSCRIPTION_PARSE_FAILED, or SYSTEM_ERROR where SQL92 is off.

    A topic or a broker that is away is no refusal: its pulls tell later.
    """
    for one in subscriptions:
        if one.expression_type == "TAG":
            continue
        request = CheckFilterRequest(
            caller=instance.caller(), group=group, topic=one.topic, expression=one.expression,
            expression_type=one.expression_type,
        )  # fmt: skip
        addresses = await _addresses(instance, one.topic)
        await asyncio.gather(*(_check(instance, address, request) for address in addresses))


async def _check(instance: Instance, address: str, request: CheckFilterRequest) -> None:
    try:
        await instance.link(address).check_filter(request)
    except DejamqError as error:
        if error.code not in REFUSALS:
            log.warning("filter_not_checked topic=%s broker=%s: %s", request.topic, address, error)
            return
        raise error_for(error.code, f"topic {request.topic!r}, broker {address}: {error}", definite=True) from None


async def _addresses(instance: Instance, topic: str) -> set[str]:
    try:
        queues = await instance.routes.subscribe_queues(topic)
    except (RouteNotFound, BrokerUnavailable):
        return set()
    found = (instance.routes.address(queue.broker_name, only_this=False) for queue in queues)
    return {address for address in found if address is not None}
