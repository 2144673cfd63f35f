"""Terms of a SQL92 filter: what the grammar's rules mean, as functions of a message's properties.

RocketMQ checks operands while it parses, by what an operand is and not by what it will be worth; ``Term`` keeps just
that. Source: RocketMQ ``ComparisonExpression``, ``UnaryExpression``, ``LogicExpression``, ``ConstantExpression``.
"""

import math
from collections.abc import Callable, Mapping
from operator import contains, ge, gt, le, lt

import lark
import msgspec

from dejamq_broker.filters.values import INTEGERS, LONGS, Long, Value, compare, read_double

Evaluate = Callable[[Mapping[str, str]], Value]
ORDERS: dict[str, Callable[[int, int], bool]] = {">": gt, ">=": ge, "<": lt, "<=": le}
PARTS: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": contains, "STARTSWITH": str.startswith, "ENDSWITH": str.endswith,
}  # fmt: skip
MAX_DEPTH = 200


class Refused(Exception):
    """An expression that reads well and is none: one sentence, for whoever wrote it."""


class Term(msgspec.Struct, frozen=True):
    """One operand. ``boolean``: it can stand beside AND, OR and NOT as it is. ``constant``: written as a literal."""

    evaluate: Evaluate
    boolean: bool = False
    constant: bool = False
    name: str = ""
    """Of the property that it is; '' for everything else."""
    depth: int = 1

    @property
    def literal(self) -> Value:
        """The value of a constant."""
        return self.evaluate({})


@lark.v_args(inline=True)
class Terms(lark.Transformer[lark.Token, Evaluate]):
    """A rule of the grammar each. Raises Refused for operands that RocketMQ refuses as well."""

    def start(self, term: Term) -> Evaluate:
        return _as_boolean(term).evaluate

    def either(self, *terms: Term) -> Term:
        return _any_of([_as_boolean(term) for term in terms])

    def both(self, *terms: Term) -> Term:
        return _all_of([_as_boolean(term) for term in terms])

    def equal(self, left: Term, right: Term) -> Term:
        for term in (left, right):
            if term.constant and term.literal is None:
                raise Refused("NULL equals nothing; write IS NULL or IS NOT NULL")
        if left.constant and left.boolean and right.constant and not right.boolean:
            raise Refused("a boolean cannot be compared with something else")
        return _equality(left, right)

    def not_equal(self, left: Term, right: Term) -> Term:
        return _not(self.equal(left, right))

    def is_null(self, term: Term) -> Term:
        return _equality(term, _constant(None))

    def is_not_null(self, term: Term) -> Term:
        return _not(self.is_null(term))

    def ordered(self, left: Term, order: str, right: Term) -> Term:
        return _comparison(left, order, right)

    def between(self, term: Term, low: Term, high: Term) -> Term:
        bounds = _comparison(term, ">=", low), _comparison(term, "<=", high)
        if low.constant and high.constant and compare(high.literal, low.literal) < 0:
            raise Refused(f"BETWEEN {low.literal} AND {high.literal} holds for nothing; the lower bound comes first")
        return _all_of(list(bounds))

    def not_between(self, term: Term, low: Term, high: Term) -> Term:
        return _any_of([_comparison(term, "<", low), _comparison(term, ">", high)])

    def part(self, term: Term, how: str, text: str) -> Term:
        return _part(term, how, _unquoted(text), wanted=True)

    def no_part(self, term: Term, how: str, text: str) -> Term:
        return _part(term, how, _unquoted(text), wanted=False)

    def texts(self, *texts: str) -> frozenset[str]:
        return frozenset(map(_unquoted, texts))

    def among(self, term: Term, texts: frozenset[str]) -> Term:
        return _among(term, texts, wanted=True)

    def not_among(self, term: Term, texts: frozenset[str]) -> Term:
        return _among(term, texts, wanted=False)

    def negative(self, term: Term) -> Term:
        evaluate = term.evaluate

        def negate(properties: Mapping[str, str]) -> Value:
            value = evaluate(properties)
            return -value if isinstance(value, int | float) and not isinstance(value, bool) else None

        return _made(negate, term, boolean=False)

    def negation(self, term: Term) -> Term:
        return _not(_as_boolean(term))

    def text(self, token: str) -> Term:
        return _constant(_unquoted(token))

    def whole(self, token: str) -> Term:
        digits = token.rstrip("lL")
        if len(digits) > 19 or int(digits) not in LONGS:
            raise Refused(f"{digits:.40} is larger than any number of 64 bits")
        number = int(digits)
        return _constant(number if number in INTEGERS else Long(number))

    def double(self, token: str) -> Term:
        number = read_double(token)
        if math.isinf(number) or number == 0:
            raise Refused(f"{token:.40} is no number that can be compared; write 0 for zero")
        return _constant(number)

    def true(self) -> Term:
        return _constant(True)

    def false(self) -> Term:
        return _constant(False)

    def null(self) -> Term:
        return _constant(None)

    def property(self, token: str) -> Term:
        name = str(token)
        return Term(lambda properties: properties.get(name), name=name)


def _made(evaluate: Evaluate, *parts: Term, boolean: bool = True) -> Term:
    """Evaluation goes as deep as terms are nested, so the depth has a limit of its own."""
    depth = 1 + max(part.depth for part in parts)
    if depth > MAX_DEPTH:
        raise Refused(f"it is nested deeper than {MAX_DEPTH} levels")
    return Term(evaluate, boolean, depth=depth)


def _constant(value: Value) -> Term:
    return Term(lambda _: value, boolean=value is None or isinstance(value, bool), constant=True)


def _as_boolean(term: Term) -> Term:
    """A property alone counts as false when it is there: it is a text, never a boolean."""
    if term.boolean:
        return term
    if not term.name:
        raise Refused("a condition is needed where a number or a text stands")
    name = term.name
    return _made(lambda properties: None if properties.get(name) is None else False, term)


def _not(term: Term) -> Term:
    evaluate = term.evaluate

    def negate(properties: Mapping[str, str]) -> Value:
        value = evaluate(properties)
        return None if value is None else not value

    return _made(negate, term)


def _any_of(terms: list[Term]) -> Term:
    """From left to right until one is true, so that what cannot be compared further right does no harm."""
    parts = [term.evaluate for term in terms]

    def evaluate(properties: Mapping[str, str]) -> Value:
        answer: Value = False
        for part in parts:
            value = part(properties)
            if value:
                return True
            if value is None:
                answer = None
        return answer

    return _made(evaluate, *terms)


def _all_of(terms: list[Term]) -> Term:
    parts = [term.evaluate for term in terms]

    def evaluate(properties: Mapping[str, str]) -> Value:
        answer: Value = True
        for part in parts:
            value = part(properties)
            if value is None:
                answer = None
            elif not value:
                return False
        return answer

    return _made(evaluate, *terms)


def _equality(left: Term, right: Term) -> Term:
    """Null equals null only; null on the left is null, on the right false."""
    mine, theirs = left.evaluate, right.evaluate

    def evaluate(properties: Mapping[str, str]) -> Value:
        one, other = mine(properties), theirs(properties)
        if one is None:
            return True if other is None else None
        return other is not None and compare(one, other) == 0

    return _made(evaluate, left, right)


def _comparison(left: Term, order: str, right: Term) -> Term:
    """Numbers only. Two properties are both texts, and are read as doubles."""
    for term in (left, right):
        literal = term.literal if term.constant else 0
        if term.boolean or isinstance(literal, str):
            raise Refused(f"{order} compares numbers and properties only")
    mine, theirs, holds = left.evaluate, right.evaluate, ORDERS[order]

    def evaluate(properties: Mapping[str, str]) -> Value:
        one = mine(properties)
        if one is None:
            return None
        other = theirs(properties)
        if other is None:
            return None
        if isinstance(one, str) and isinstance(other, str):
            return holds(compare(read_double(one), read_double(other)), 0)
        return holds(compare(one, other), 0)

    return _made(evaluate, left, right)


def _part(term: Term, how: str, text: str, *, wanted: bool) -> Term:
    """False, not null, for what is no text, and for an empty one to be looked for: then nothing else is looked at."""
    evaluate, holds = term.evaluate, PARTS[how.upper()]

    def look(properties: Mapping[str, str]) -> Value:
        if not text:
            return False
        value = evaluate(properties)
        return isinstance(value, str) and holds(value, text) is wanted

    return _made(look, term)


def _among(term: Term, texts: frozenset[str], *, wanted: bool) -> Term:
    if not term.name:
        raise Refused("only a property can be IN a list")
    name = term.name

    def look(properties: Mapping[str, str]) -> Value:
        value = properties.get(name)
        return None if value is None else (value in texts) is wanted

    return _made(look, term)


def _unquoted(token: str) -> str:
    return token[1:-1].replace("''", "'")
