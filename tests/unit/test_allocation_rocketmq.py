"""Shares as RocketMQ's client computes them.

``tests/data/allocation.json`` was printed by the strategies of rocketmq-client 5.3.3 for random queues and members: for
each case the queues, the members, and every member's share as positions in the queues.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from dejamq.values.allocation import Strategy
from dejamq.values.hash_ring import ConsistentHash, consistent_hash
from dejamq.values.machine_rooms import ByMachineRoom, ByMachineRoomNearby
from dejamq.values.message import MessageQueue
from dejamq_proto.allocation import averagely, averagely_by_circle

CASES = json.loads((Path(__file__).parents[1] / "data" / "allocation.json").read_text(encoding="utf-8"))


def room(name: str) -> str:
    return name.split("@")[0]


STRATEGIES: dict[str, Strategy] = {
    "AVG": averagely,
    "AVG_BY_CIRCLE": averagely_by_circle,
    "MACHINE_ROOM": ByMachineRoom(["r1", "r2", ""]),
    "MACHINE_ROOM_NEARBY-AVG": ByMachineRoomNearby(room, room),
    "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE": ByMachineRoomNearby(room, room, averagely_by_circle),
    "CONSISTENT_HASH": consistent_hash,
    "CONSISTENT_HASH-3": ConsistentHash(3),
}


@pytest.mark.parametrize("case", CASES, ids=[f"{number}-{case['strategy']}" for number, case in enumerate(CASES)])
def test_every_share_is_the_one_of_rocketmq(case: dict[str, Any]) -> None:
    queues = [MessageQueue(*fields) for fields in case["queues"]]
    strategy, members = STRATEGIES[case["strategy"]], case["members"]
    shares = {me: [queues.index(queue) for queue in strategy(queues, members, me)] for me in members}
    assert shares == case["shares"]


def test_every_strategy_has_cases_with_queues_to_share() -> None:
    assert {case["strategy"] for case in CASES if len(case["queues"]) > len(case["members"])} == set(STRATEGIES)
