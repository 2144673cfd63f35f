"""Random SQL92 filters, answered by RocketMQ's own evaluator and by dejamq's."""

import base64
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

from dejamq_broker.filters.sql import compile_sql
from dejamq_broker.filters.values import Incomparable
from dejamq_proto.codes import DejamqError
from rocketmq import Failed

Case = tuple[str, dict[str, str]]
NAMES = ("a", "b", "c", "_x", "$y", "A")
NUMBERS = (
    "0", "5", "5l", "3", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "5.5", "5.", ".5",
    "5E1", "1e-3", "0.0", "1e400", "1e-400", "5.0", "3L",
)  # fmt: skip
TEXTS = ("'x'", "''", "'5'", "'5.5'", "'a''b'", "'x y'", "'true'", "'--'", "'标签'")
VALUES = (
    "5", "5.5", "x", "a'b", "true", "TRUE", "-5", "+5", " 5 ", "5e0", "NaN", "Infinity", "-0.0", "0", "3000000000",
    "9223372036854775808", "5d", "0x1p3", "1e999", "x y", "标签", "５", "5.", "null", "-2147483648", "--",
)  # fmt: skip
ODD = (
    "=", "<>", "<", ">=", "(", ")", ",", "NOT", "AND", "OR", "BETWEEN", "IN", "IS", "NULL", "CONTAINS", "-", "+",
    "-- c\n", "/* c * */", "--", "!", '"', "07", "LIKE", "\t", "!=", "5a", "IS NOT NULL",
)  # fmt: skip
ANSWER_S = 120


class Expressions:
    """Most are grammatical, some have a piece too many or too few, some are pieces in no order."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def case(self) -> Case:
        pick, text = self._random, self._any_of(2)
        kind = pick.random()
        if kind < 0.2:
            pieces = text.split(" ")
            pieces[pick.randrange(len(pieces))] = pick.choice(("", *ODD))
            text = " ".join(pieces)
        elif kind < 0.3:
            pieces = [pick.choice(NAMES + NUMBERS + TEXTS + ODD) for _ in range(pick.randint(1, 6))]
            text = pick.choice((" ", "")).join(pieces)
        return text, {name: pick.choice(VALUES) for name in NAMES if pick.random() < 0.7}

    def _word(self, word: str) -> str:
        return self._random.choice((word, word.lower(), word.title()))

    def _any_of(self, depth: int) -> str:
        return f" {self._word('OR')} ".join(self._all_of(depth) for _ in range(self._random.choice((1, 1, 2))))

    def _all_of(self, depth: int) -> str:
        return f" {self._word('AND')} ".join(self._condition(depth) for _ in range(self._random.choice((1, 1, 2))))

    def _condition(self, depth: int) -> str:
        pick, left = self._random, self._term(depth)
        negation = pick.choice(("", self._word("NOT") + " "))
        kind = pick.randrange(8)
        if kind < 2:
            return f"{left} {pick.choice(('>', '>=', '<', '<='))}{self._term(depth)}"
        if kind < 4:
            return f"{left} {pick.choice(('=', '<>'))} {self._term(depth)}"
        if kind == 4:
            return f"{left} {negation}{self._word('BETWEEN')} {self._term(depth)} AND {self._term(depth)}"
        if kind == 5:
            texts = ", ".join(pick.choice(TEXTS) for _ in range(pick.randint(1, 6)))
            return f"{left} {negation}{self._word('IN')} ({texts})"
        if kind == 6:
            how = self._word(pick.choice(("CONTAINS", "STARTSWITH", "ENDSWITH")))
            return f"{left} {negation}{how} {pick.choice(TEXTS)}"
        return f"{left} {self._word('IS')} {negation}{self._word('NULL')}"

    def _term(self, depth: int) -> str:
        pick, kind = self._random, self._random.random()
        if kind < 0.5:
            return pick.choice(NAMES)
        if kind < 0.8 or not depth:
            return pick.choice((pick.choice(NUMBERS), pick.choice(TEXTS), "TRUE", "FALSE", "null"))
        if kind < 0.9:
            return f"({self._any_of(depth - 1)})"
        return f"{pick.choice(('-', '+', '- ', self._word('NOT') + ' '))}{self._term(depth - 1)}"


def differing_filters(jars: Path, seed: int, count: int) -> Iterator[str]:
    """What the two answer differently. Raises Failed."""
    expressions = Expressions(seed)
    cases = [expressions.case() for _ in range(count)]
    theirs = asked(jars, cases)
    for case, their in zip(cases, theirs, strict=True):
        if not same(case, their):
            yield f"filter {case[0]!r} of {case[1]}: RocketMQ says {their}, dejamq {answer(*case)}"


def same(case: Case, theirs: str) -> bool:
    """RocketMQ ignores what stands after a complete expression; dejamq refuses that, and may do nothing else."""
    ours = answer(*case)
    if ours != "refused" or theirs == "refused":
        return ours == theirs
    text, properties = case
    understood = (answer(text[:end], properties) for end in range(len(text) - 1, 0, -1))
    return theirs == next((each for each in understood if each != "refused"), "refused")


def answer(text: str, properties: dict[str, str]) -> str:
    """dejamq's, in Java's words."""
    try:
        value = compile_sql(text).evaluate(properties)
    except DejamqError:
        return "refused"
    except Incomparable:
        return "incomparable"
    return {None: "null", True: "true", False: "false"}[value]  # type: ignore[index]  # an expression is a condition


def asked(jars: Path, cases: list[Case]) -> list[str]:
    """RocketMQ's answers."""
    lines = (
        "\t".join(_encoded(text) for text in (expression, *(part for pair in properties.items() for part in pair)))
        for expression, properties in cases
    )
    ran = subprocess.run(
        ["java", "-cp", f"{jars}/*", str(Path(__file__).with_name("Filters.java"))],
        input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=ANSWER_S, check=False,
    )  # fmt: skip
    answers = ran.stdout.split()
    if len(answers) != len(cases):
        raise Failed(f"RocketMQ answered {len(answers)} of {len(cases)} filters: {ran.stderr.strip()[-300:]}")
    return answers


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
