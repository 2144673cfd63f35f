"""Tag expressions."""

import pytest
from dejamq_broker.filters import tags_of
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.records.record import java_hash


@pytest.mark.parametrize("expression", ["", "*", " * "])
def test_no_expression_and_a_star_mean_everything(expression: str) -> None:
    assert tags_of(expression) is None


def test_tags_are_compared_by_their_java_hash() -> None:
    assert tags_of("paid || open") == frozenset({java_hash("paid"), java_hash("open")})


def test_blanks_around_tags_count_for_nothing() -> None:
    assert tags_of("paid||open") == tags_of("  paid ||open ")


def test_two_tags_with_one_hash_are_one_to_the_broker() -> None:
    assert tags_of("Aa || BB") == frozenset({2112})


def test_an_empty_piece_between_bars_is_passed_over() -> None:
    assert tags_of("paid || ") == frozenset({java_hash("paid")})


@pytest.mark.parametrize("expression", ["||", " || || "])
def test_bars_without_a_tag_are_refused(expression: str) -> None:
    with pytest.raises(DejamqError) as caught:
        tags_of(expression)
    assert caught.value.code is Code.SUBSCRIPTION_PARSE_FAILED
