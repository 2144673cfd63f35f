import doctest

import dejamq.allocation
import pytest
from dejamq.allocation import STRATEGIES, averagely, strategy_named
from dejamq_proto.codes import ConfigError
from hypothesis import given
from hypothesis import strategies as st

NAMES = sorted(STRATEGIES)


def test_the_worked_examples_are_true() -> None:
    assert doctest.testmod(dejamq.allocation).failed == 0


@pytest.mark.parametrize("name", NAMES)
@given(count=st.integers(0, 60), members=st.sets(st.text(min_size=1, max_size=3), min_size=1, max_size=12))
def test_every_queue_has_one_owner_and_shares_differ_by_at_most_one(name: str, count: int, members: set[str]) -> None:
    ids = sorted(members)
    shares = [STRATEGIES[name](range(count), ids, me) for me in ids]
    assert sorted(queue for share in shares for queue in share) == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("name", NAMES)
def test_a_member_that_is_not_in_the_list_takes_nothing(name: str) -> None:
    assert STRATEGIES[name](["q0", "q1"], ["c1"], "c2") == []


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
