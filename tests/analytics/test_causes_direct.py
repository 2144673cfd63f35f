"""Messages that an operator gave to one member directly (L7): asked for, and no cover for other causes."""

import pytest
from told import Told


@pytest.mark.parametrize("name", ["l7-direct", "l7-direct-before-its-turn"])
def test_a_message_given_to_a_member_directly_was_asked_for(told: Told, name: str) -> None:
    finding = told.only(name)
    assert (finding.identity, finding.cause, finding.expected, finding.certainty) == ("I1", "L7", True, "certain")
    assert finding.trigger == "an operator gave it to one member"


def test_a_crash_is_blamed_although_an_operator_had_the_message_consumed_meanwhile(told: Told) -> None:
    direct, again = told.of("l7-direct-in-between")
    assert (direct.cause, direct.expected) == ("L7", True)
    assert (again.cause, again.expected, again.certainty) == ("O1", False, "certain")
    assert again.first.process == "l7-direct-in-between-c1"
