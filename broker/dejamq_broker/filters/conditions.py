"""Operands of a SQL92 filter, and their results: functions of a message's properties.

RocketMQ checks operands while it parses, by the kind of an operand and not by its later value. ``FilterTerm`` keeps the
kind. Source: RocketMQ ``ComparisonExpression``, ``UnaryExpression``, ``LogicExpression``.
"""

from collections.abc import Callable, Mapping
from operator import contains, ge, gt, le, lt

import msgspec

from dejamq_broker.filters.values import Value, compare, read_double

Evaluate = Callable[[Mapping[str, str]], Value]
ORDERS: dict[str, Callable[[int, int], bool]] = {">": gt, ">=": ge, "<": lt, "<=": le}
PARTS: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": contains, "STARTSWITH": str.startswith, "ENDSWITH": str.endswith,
}  # fmt: skip
MAX_DEPTH = 200


class BadFilter(Exception):
    """An expression that can be read but not used: one sentence, for its writer."""


class FilterTerm(msgspec.Struct, frozen=True):
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


def made(evaluate: Evaluate, *parts: FilterTerm, boolean: bool = True) -> FilterTerm:
    """A term made of others. Evaluation goes as deep as they are nested, so the depth has a limit of its own."""
    depth = 1 + max(part.depth for part in parts)
    if depth > MAX_DEPTH:
        raise BadFilter(f"it is nested deeper than {MAX_DEPTH} levels")
    return FilterTerm(evaluate, boolean, depth=depth)


def constant(value: Value) -> FilterTerm:
    """A literal; NULL counts among the booleans, as in RocketMQ."""
    return FilterTerm(lambda _: value, boolean=value is None or isinstance(value, bool), constant=True)


def as_boolean(term: FilterTerm) -> FilterTerm:
    """A property alone counts as false when it is there: it is a text, never a boolean."""
    if term.boolean:
        return term
    if not term.name:
        raise BadFilter("a condition is needed where a number or a text stands")
    name = term.name
    return made(lambda properties: None if properties.get(name) is None else False, term)


def inverse(term: FilterTerm) -> FilterTerm:
    """NOT: null stays null."""
    evaluate = term.evaluate

    def negate(properties: Mapping[str, str]) -> Value:
        value = evaluate(properties)
        return None if value is None else not value

    return made(negate, term)


def any_of(terms: list[FilterTerm]) -> FilterTerm:
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

    return made(evaluate, *terms)


def all_of(terms: list[FilterTerm]) -> FilterTerm:
    """From left to right until one is false; null otherwise when one is."""
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

    return made(evaluate, *terms)


def equality(left: FilterTerm, right: FilterTerm) -> FilterTerm:
    """Null equals null only; null on the left is null, on the right false."""
    mine, theirs = left.evaluate, right.evaluate

    def evaluate(properties: Mapping[str, str]) -> Value:
        one, other = mine(properties), theirs(properties)
        if one is None:
            return True if other is None else None
        return other is not None and compare(one, other) == 0

    return made(evaluate, left, right)


def comparison(left: FilterTerm, order: str, right: FilterTerm) -> FilterTerm:
    """Numbers only. Two properties are both texts, and are read as doubles."""
    for term in (left, right):
        literal = term.literal if term.constant else 0
        if term.boolean or isinstance(literal, str):
            raise BadFilter(f"{order} compares numbers and properties only")
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

    return made(evaluate, left, right)


def part_of(term: FilterTerm, how: str, text: str, *, wanted: bool) -> FilterTerm:
    """False, not null, for a value that is no text, and for an empty text to be looked for: then nothing else is looked
    at.
    """
    evaluate, holds = term.evaluate, PARTS[how.upper()]

    def look(properties: Mapping[str, str]) -> Value:
        if not text:
            return False
        value = evaluate(properties)
        return isinstance(value, str) and holds(value, text) is wanted

    return made(look, term)


def among(term: FilterTerm, texts: frozenset[str], *, wanted: bool) -> FilterTerm:
    """IN, or NOT IN: texts are equal or not, nothing is read as a number."""
    if not term.name:
        raise BadFilter("only a property can be IN a list")
    name = term.name

    def look(properties: Mapping[str, str]) -> Value:
        value = properties.get(name)
        return None if value is None else (value in texts) is wanted

    return made(look, term)
