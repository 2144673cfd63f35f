"""Terms of a SQL92 filter: the meaning of each of the grammar's rules.

Source: RocketMQ ``SelectorParser``, ``ConstantExpression``.
"""

import math
from collections.abc import Mapping

import lark

from dejamq_broker.filters import conditions
from dejamq_broker.filters.conditions import (
    BadFilter,
    Evaluate,
    FilterTerm,
    all_of,
    any_of,
    as_boolean,
    comparison,
    constant,
    equality,
    inverse,
    made,
    part_of,
)
from dejamq_broker.filters.values import INTEGERS, LONGS, Long, Value, compare, read_double


@lark.v_args(inline=True)
class Terms(lark.Transformer[lark.Token, Evaluate]):
    """A rule of the grammar each. Raises BadFilter for operands that RocketMQ refuses as well."""

    def start(self, term: FilterTerm) -> Evaluate:
        return as_boolean(term).evaluate

    def either(self, *terms: FilterTerm) -> FilterTerm:
        return any_of([as_boolean(term) for term in terms])

    def both(self, *terms: FilterTerm) -> FilterTerm:
        return all_of([as_boolean(term) for term in terms])

    def equal(self, left: FilterTerm, right: FilterTerm) -> FilterTerm:
        for term in (left, right):
            if term.constant and term.literal is None:
                raise BadFilter("NULL equals nothing; write IS NULL or IS NOT NULL")
        if left.constant and left.boolean and right.constant and not right.boolean:
            raise BadFilter("a boolean cannot be compared with something else")
        return equality(left, right)

    def not_equal(self, left: FilterTerm, right: FilterTerm) -> FilterTerm:
        return inverse(self.equal(left, right))

    def is_null(self, term: FilterTerm) -> FilterTerm:
        return equality(term, constant(None))

    def is_not_null(self, term: FilterTerm) -> FilterTerm:
        return inverse(self.is_null(term))

    def ordered(self, left: FilterTerm, order: str, right: FilterTerm) -> FilterTerm:
        return comparison(left, order, right)

    def between(self, term: FilterTerm, low: FilterTerm, high: FilterTerm) -> FilterTerm:
        bounds = comparison(term, ">=", low), comparison(term, "<=", high)
        if low.constant and high.constant and compare(high.literal, low.literal) < 0:
            raise BadFilter(f"BETWEEN {low.literal} AND {high.literal} holds for nothing; the lower bound comes first")
        return all_of(list(bounds))

    def not_between(self, term: FilterTerm, low: FilterTerm, high: FilterTerm) -> FilterTerm:
        return any_of([comparison(term, "<", low), comparison(term, ">", high)])

    def part(self, term: FilterTerm, how: str, text: str) -> FilterTerm:
        return part_of(term, how, _unquoted(text), wanted=True)

    def no_part(self, term: FilterTerm, how: str, text: str) -> FilterTerm:
        return part_of(term, how, _unquoted(text), wanted=False)

    def texts(self, *texts: str) -> frozenset[str]:
        return frozenset(map(_unquoted, texts))

    def among(self, term: FilterTerm, texts: frozenset[str]) -> FilterTerm:
        return conditions.among(term, texts, wanted=True)

    def not_among(self, term: FilterTerm, texts: frozenset[str]) -> FilterTerm:
        return conditions.among(term, texts, wanted=False)

    def negative(self, term: FilterTerm) -> FilterTerm:
        evaluate = term.evaluate

        def negate(properties: Mapping[str, str]) -> Value:
            value = evaluate(properties)
            return -value if isinstance(value, int | float) and not isinstance(value, bool) else None

        return made(negate, term, boolean=False)

    def negation(self, term: FilterTerm) -> FilterTerm:
        return inverse(as_boolean(term))

    def text(self, token: str) -> FilterTerm:
        return constant(_unquoted(token))

    def whole(self, token: str) -> FilterTerm:
        digits = token.rstrip("lL")
        if len(digits) > 19 or int(digits) not in LONGS:
            raise BadFilter(f"{digits:.40} is larger than any number of 64 bits")
        number = int(digits)
        return constant(number if number in INTEGERS else Long(number))

    def double(self, token: str) -> FilterTerm:
        number = read_double(token)
        if math.isinf(number) or number == 0:
            raise BadFilter(f"{token:.40} is no number that can be compared; write 0 for zero")
        return constant(number)

    def true(self) -> FilterTerm:
        return constant(True)

    def false(self) -> FilterTerm:
        return constant(False)

    def null(self) -> FilterTerm:
        return constant(None)

    def property(self, token: str) -> FilterTerm:
        name = str(token)
        return FilterTerm(lambda properties: properties.get(name), name=name)


def _unquoted(token: str) -> str:
    return token[1:-1].replace("''", "'")
