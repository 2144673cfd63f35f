"""Terms of a SQL92 filter: what each of the grammar's rules means.

Source: RocketMQ ``SelectorParser``, ``ConstantExpression``.
"""

import math
from collections.abc import Mapping

import lark

from dejamq_broker.filters import conditions
from dejamq_broker.filters.conditions import (
    Evaluate,
    Refused,
    Term,
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
    """A rule of the grammar each. Raises Refused for operands that RocketMQ refuses as well."""

    def start(self, term: Term) -> Evaluate:
        return as_boolean(term).evaluate

    def either(self, *terms: Term) -> Term:
        return any_of([as_boolean(term) for term in terms])

    def both(self, *terms: Term) -> Term:
        return all_of([as_boolean(term) for term in terms])

    def equal(self, left: Term, right: Term) -> Term:
        for term in (left, right):
            if term.constant and term.literal is None:
                raise Refused("NULL equals nothing; write IS NULL or IS NOT NULL")
        if left.constant and left.boolean and right.constant and not right.boolean:
            raise Refused("a boolean cannot be compared with something else")
        return equality(left, right)

    def not_equal(self, left: Term, right: Term) -> Term:
        return inverse(self.equal(left, right))

    def is_null(self, term: Term) -> Term:
        return equality(term, constant(None))

    def is_not_null(self, term: Term) -> Term:
        return inverse(self.is_null(term))

    def ordered(self, left: Term, order: str, right: Term) -> Term:
        return comparison(left, order, right)

    def between(self, term: Term, low: Term, high: Term) -> Term:
        bounds = comparison(term, ">=", low), comparison(term, "<=", high)
        if low.constant and high.constant and compare(high.literal, low.literal) < 0:
            raise Refused(f"BETWEEN {low.literal} AND {high.literal} holds for nothing; the lower bound comes first")
        return all_of(list(bounds))

    def not_between(self, term: Term, low: Term, high: Term) -> Term:
        return any_of([comparison(term, "<", low), comparison(term, ">", high)])

    def part(self, term: Term, how: str, text: str) -> Term:
        return part_of(term, how, _unquoted(text), wanted=True)

    def no_part(self, term: Term, how: str, text: str) -> Term:
        return part_of(term, how, _unquoted(text), wanted=False)

    def texts(self, *texts: str) -> frozenset[str]:
        return frozenset(map(_unquoted, texts))

    def among(self, term: Term, texts: frozenset[str]) -> Term:
        return conditions.among(term, texts, wanted=True)

    def not_among(self, term: Term, texts: frozenset[str]) -> Term:
        return conditions.among(term, texts, wanted=False)

    def negative(self, term: Term) -> Term:
        evaluate = term.evaluate

        def negate(properties: Mapping[str, str]) -> Value:
            value = evaluate(properties)
            return -value if isinstance(value, int | float) and not isinstance(value, bool) else None

        return made(negate, term, boolean=False)

    def negation(self, term: Term) -> Term:
        return inverse(as_boolean(term))

    def text(self, token: str) -> Term:
        return constant(_unquoted(token))

    def whole(self, token: str) -> Term:
        digits = token.rstrip("lL")
        if len(digits) > 19 or int(digits) not in LONGS:
            raise Refused(f"{digits:.40} is larger than any number of 64 bits")
        number = int(digits)
        return constant(number if number in INTEGERS else Long(number))

    def double(self, token: str) -> Term:
        number = read_double(token)
        if math.isinf(number) or number == 0:
            raise Refused(f"{token:.40} is no number that can be compared; write 0 for zero")
        return constant(number)

    def true(self) -> Term:
        return constant(True)

    def false(self) -> Term:
        return constant(False)

    def null(self) -> Term:
        return constant(None)

    def property(self, token: str) -> Term:
        name = str(token)
        return Term(lambda properties: properties.get(name), name=name)


def _unquoted(token: str) -> str:
    return token[1:-1].replace("''", "'")
