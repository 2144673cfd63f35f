import doctest
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import dejamq.values.allocation
import dejamq.values.hash_ring
import dejamq.values.machine_rooms
import dejamq_proto.allocation
import pytest
from dejamq.values.allocation import STRATEGIES, ByConfig, Strategy, allocate, strategy_named
from dejamq.values.hash_ring import ConsistentHash
from dejamq.values.machine_rooms import ByMachineRoom, ByMachineRoomNearby
from dejamq.values.message import MessageQueue
from dejamq_proto.allocation import averagely, averagely_by_circle
from dejamq_proto.codes import ConfigError
from hypothesis import given
from hypothesis import strategies as st

NAMES = ["averagely", "averagely_by_circle"]
ROOMS = ("east", "north", "west")


def room(name: str) -> str:
    return name.split("@")[0]


def named(strategy: Strategy) -> str:
    return strategy_named(strategy)[0]


def near(inner: str | Strategy = "averagely") -> ByMachineRoomNearby:
    return ByMachineRoomNearby(room, room, inner)


WHOLE: list[Strategy] = [
    *STRATEGIES.values(),
    ConsistentHash(3),
    near(),
    near(averagely_by_circle),
    near(ConsistentHash()),
]
"""They share out every queue, whatever the queues and members."""


@st.composite
def queues_and_members(draw: st.DrawFn) -> tuple[list[MessageQueue], list[str]]:
    """Sorted, as a member sees them; brokers and members have rooms in their names."""
    place = st.tuples(st.sampled_from(ROOMS), st.integers(0, 3), st.integers(0, 15))
    queues = [MessageQueue("orders", f"{of}@b{broker}", number) for of, broker, number in draw(st.sets(place))]
    member = st.tuples(st.sampled_from(ROOMS), st.integers(0, 99))
    members = [f"{of}@{number}" for of, number in draw(st.sets(member, min_size=1, max_size=12))]
    return sorted(queues), sorted(members)


@pytest.mark.parametrize(
    "module", [dejamq_proto.allocation, dejamq.values.allocation, dejamq.values.hash_ring, dejamq.values.machine_rooms]
)
def test_the_worked_examples_are_true(module: ModuleType) -> None:
    outcome = doctest.testmod(module)
    assert (outcome.failed, outcome.attempted > 1) == (0, True)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", WHOLE, ids=named)
@given(both=queues_and_members())
def test_every_queue_has_exactly_one_owner(strategy: Strategy, both: tuple[list[MessageQueue], list[str]]) -> None:
    queues, members = both
    assert sorted(queue for me in members for queue in strategy(queues, members, me)) == queues


@pytest.mark.slow
@given(both=queues_and_members(), rooms=st.sets(st.sampled_from(ROOMS)))
def test_by_machine_room_shares_the_queues_of_its_rooms_evenly_and_no_others(
    both: tuple[list[MessageQueue], list[str]], rooms: set[str]
) -> None:
    queues, members = both
    shares = [ByMachineRoom(rooms)(queues, members, me) for me in members]
    assert sorted(queue for share in shares for queue in share) == [
        one for one in queues if room(one.broker_name) in rooms
    ]
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.slow
@given(both=queues_and_members())
def test_nearby_a_queue_leaves_its_room_only_when_nobody_is_there(both: tuple[list[MessageQueue], list[str]]) -> None:
    queues, members = both
    inhabited = {room(member) for member in members}
    for me in members:
        for queue in near()(queues, members, me):
            assert room(queue.broker_name) in {room(me)} | (set(ROOMS) - inhabited)


@pytest.mark.slow
@given(both=queues_and_members(), data=st.data())
def test_with_a_hash_ring_a_member_that_leaves_moves_only_its_own_queues(
    both: tuple[list[MessageQueue], list[str]], data: st.DataObject
) -> None:
    """Read the other way: one that comes takes queues from others, and none of them moves between those."""
    queues, members = both
    leaver = data.draw(st.sampled_from(members))
    stayers = [member for member in members if member != leaver]
    ring = ConsistentHash()
    for me in stayers:
        before, after = ring(queues, members, me), ring(queues, stayers, me)
        assert set(before) <= set(after)
        assert set(after) - set(before) <= set(ring(queues, members, leaver))


def test_a_room_that_is_not_known_is_an_error_that_names_whose() -> None:
    queues = [MessageQueue("orders", "east@a", 0)]
    lost = ByMachineRoomNearby(room, {"east@1": "east"}.get)
    with pytest.raises(ValueError, match="west@2"):
        lost(queues, ["east@1", "west@2"], "east@1")
    with pytest.raises(ValueError, match="east@a"):
        ByMachineRoomNearby(lambda name: None, room)(queues, ["east@1"], "east@1")


def test_a_fixed_list_needs_no_membership() -> None:
    queues = [MessageQueue("orders", "a", number) for number in range(4)]
    mine = ByConfig([queues[2], MessageQueue("orders", "a", 9), MessageQueue("invoices", "a", 0)])
    assert mine(queues, ["c1"], "c2") == [queues[2]]


def test_points_on_the_ring_fewer_than_one_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        ConsistentHash(0)


def test_what_makes_shares_differ_stands_in_the_name() -> None:
    """Brokers compare the names of a group's members (cause R3)."""
    ways: list[Strategy] = [
        ConsistentHash(),
        ConsistentHash(7),
        ByMachineRoom(["b", "a"]),
        near(ConsistentHash(7)),
        ByConfig([]),
    ]
    assert [named(way) for way in ways] == [
        "consistent_hash", "consistent_hash(7)", "by_machine_room(a,b)", "by_machine_room_nearby-consistent_hash(7)",
        "by_config",
    ]  # fmt: skip


def own(answer: Any) -> Strategy:
    def mine(queues: Sequence[Any], members: Sequence[str], me: str) -> Any:
        return answer(queues, members, me) if callable(answer) else answer

    return mine


QUEUES = [MessageQueue("orders", "a", number) for number in range(3)]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, "'mine' answered None; it must return a list of queues"),
        ("orders", "must return a list"),
        ([QUEUES[0], 1], "answered 1, which is none of the topic's queues"),
        ([MessageQueue("orders", "b", 0)], "none of the topic's queues"),
        ([QUEUES[0], QUEUES[0]], "answered a queue twice"),
        (lambda queues, members, me: members.index("nobody"), "'mine' failed: ValueError"),
        (lambda queues, members, me: sys.exit(1), "'mine' failed: SystemExit"),
    ],
)
def test_a_wrong_answer_of_a_function_of_your_own_is_told(answer: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        allocate("mine", own(answer), QUEUES, ["c1"], "c1")


def test_a_function_of_your_own_may_spoil_what_it_gets() -> None:
    def spoil(queues: Any, members: Any, me: str) -> Any:
        share, queues[:], members[:] = list(queues), [], []
        return tuple(share)

    queues, members = list(QUEUES), ["c1"]
    assert allocate("spoil", spoil, queues, members, "c1") == QUEUES == queues
    assert members == ["c1"]


@pytest.mark.parametrize("allocation", [7, None])
def test_what_is_no_function_is_refused(allocation: Any) -> None:
    with pytest.raises(ConfigError, match="plain function"):
        strategy_named(allocation)


def test_a_coroutine_function_is_refused() -> None:
    async def later(queues: object, members: object, me: object) -> list[object]:
        return []

    with pytest.raises(ConfigError, match="plain function"):
        strategy_named(later)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
@given(count=st.integers(0, 60), members=st.sets(st.text(min_size=1, max_size=3), min_size=1, max_size=12))
def test_every_queue_has_one_owner_and_shares_differ_by_at_most_one(name: str, count: int, members: set[str]) -> None:
    ids = sorted(members)
    shares = [STRATEGIES[name](range(count), ids, me) for me in ids]
    assert sorted(queue for share in shares for queue in share) == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("strategy", [*WHOLE, ByMachineRoom(["a"])], ids=named)
def test_a_member_that_is_not_in_the_list_takes_nothing(strategy: Strategy) -> None:
    assert strategy([MessageQueue("orders", "a@b", 0)], ["c1"], "c2") == []


@given(count=st.integers(0, 60), members=st.integers(1, 12))
def test_averagely_gives_contiguous_ranges_in_member_order(count: int, members: int) -> None:
    ids = [f"c{number:02}" for number in range(members)]
    assert [queue for me in ids for queue in averagely(range(count), ids, me)] == list(range(count))


def test_different_queue_lists_give_one_queue_two_owners() -> None:
    """Two members whose name servers disagree about broker B (cause R1)."""
    everything, only_a, only_b = ["A0", "A1", "A2", "B0", "B1", "B2"], ["A0", "A1", "A2"], ["B0", "B1", "B2"]
    ids = ["c1", "c2"]
    assert averagely(everything, ids, "c1") == ["A0", "A1", "A2"]
    assert averagely(only_a, ids, "c2") == ["A2"]
    assert averagely(only_a, ids, "c1") == ["A0", "A1"]
    assert averagely(everything, ids, "c2") == ["B0", "B1", "B2"]
    assert averagely(only_b, ids, "c1") == ["B0", "B1"]


def test_four_and_four_queues_overlap_in_two() -> None:
    everything = [f"{broker}{number}" for broker in "AB" for number in range(4)]
    ids = ["c1", "c2"]
    assert set(averagely(everything, ids, "c1")) & set(averagely(everything[:4], ids, "c2")) == {"A2", "A3"}


def test_one_client_id_twice_doubles_a_share_and_orphans_another() -> None:
    """Two processes with one client id (cause R4)."""
    ids = ["c1", "c1", "c2"]
    assert averagely(range(8), ids, "c1") == [0, 1, 2]
    assert averagely(range(8), ids, "c2") == [6, 7]


def test_a_function_of_your_own_is_taken_with_its_name() -> None:
    def everything(queues: object, members: object, me: str) -> list[object]:
        return []

    assert strategy_named(everything) == ("everything", everything)


def test_an_unknown_strategy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="averagely_by_circle"):
        strategy_named("fairly")
