"""SQL92 expressions over a message's properties, as RocketMQ evaluates them.

Logic has three values: true, false, and null, where a property is missing. Only true matches. Some rules surprise, and
are RocketMQ's own:

- NOT and minus bind closer than any comparison, so that ``NOT a = 'x'`` compares ``NOT a``.
- IN takes a property and texts. An empty text is contained in nothing.
- ``0.0`` is no legal number. A property alone is never true.

One thing is stricter here: text after a complete expression is refused, which RocketMQ silently ignores.

Source: RocketMQ ``SelectorParser`` (grammar), ``ComparisonExpression``, ``UnaryExpression``, ``LogicExpression``.
"""

from collections.abc import Mapping
from functools import cache, lru_cache

import lark
from dejamq_proto.codes import Code, DejamqError

from dejamq_broker.filters.conditions import PARTS, BadFilter, Evaluate
from dejamq_broker.filters.terms import Terms
from dejamq_broker.filters.values import Incomparable, Value

MAX_LENGTH = 64 << 10
KEYWORDS = {word: f"_{word}" for word in ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS")}
KEYWORDS |= dict.fromkeys(PARTS, "PART")
GRAMMAR = r"""
start: either
?either: both (_OR both)*
?both: equality (_AND equality)*
?equality: comparison
    | equality "=" comparison       -> equal
    | equality _UNLIKE comparison   -> not_equal
    | equality _IS _NULL            -> is_null
    | equality _IS _NOT _NULL       -> is_not_null
?comparison: unary
    | comparison ORDER unary        -> ordered
    | comparison PART STRING        -> part
    | comparison _NOT PART STRING   -> no_part
    | comparison _BETWEEN unary _AND unary       -> between
    | comparison _NOT _BETWEEN unary _AND unary  -> not_between
    | comparison _IN texts          -> among
    | comparison _NOT _IN texts     -> not_among
texts: "(" STRING ("," STRING)* ")"
?unary: "+" unary
    | "-" unary                     -> negative
    | _NOT unary                    -> negation
    | primary
?primary: STRING                    -> text
    | DECIMAL                       -> whole
    | FLOAT                         -> double
    | _TRUE                         -> true
    | _FALSE                        -> false
    | _NULL                         -> null
    | ID                            -> property
    | "(" either ")"
_UNLIKE.1: "<>"
ORDER: ">=" | "<=" | ">" | "<"
STRING: /'(?:''|[^'])*'/
FLOAT: /[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
DECIMAL: /0|[1-9][0-9]*[lL]?/
ID: /[A-Za-z_$][A-Za-z0-9_$]*/
%declare _NOT _AND _OR _BETWEEN _IN _TRUE _FALSE _NULL _IS PART
%ignore /[ \t\n\r\f]+/
%ignore /--[^\n\r]*(?:\r\n|\n|\r)/
%ignore /\/\*[^*]*\*(?:\*|[^*\/][^*]*\*)*\//
"""


class SqlFilter:
    """A compiled expression; immutable, so that any number of pulls share one."""

    def __init__(self, text: str, evaluate: Evaluate) -> None:
        self.text, self._evaluate = text, evaluate

    def evaluate(self, properties: Mapping[str, str]) -> Value:
        """True, False, or None where a property it depends on is missing. Raises Incomparable."""
        return self._evaluate(properties)

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether a message with these properties is wanted; one that cannot be judged is not."""
        try:
            return self._evaluate(properties) is True
        except Incomparable:
            return False


@lru_cache(maxsize=128)
def compile_sql(text: str) -> SqlFilter:
    """The filter that this expression means. Raises SUBSCRIPTION_PARSE_FAILED, with the error and its place."""
    if len(text) > MAX_LENGTH:
        raise _refusal(f"SQL92 filter of {len(text)} characters; {MAX_LENGTH} are the most")
    if not text.strip():
        raise _refusal("the SQL92 filter is empty; leave it out to get every message")
    try:
        evaluate = _parser().parse(text)
    except lark.UnexpectedCharacters as error:
        at = error.pos_in_stream or 0
        raise _refusal(_where(text, at, repr(text[at]))) from None
    except lark.UnexpectedToken as error:
        at_end = error.token.type == "$END"
        what = "the end" if at_end else repr(str(error.token))
        raise _refusal(_where(text, len(text) if at_end else error.pos_in_stream or 0, what)) from None
    except BadFilter as error:
        raise _refusal(f"SQL92 filter {text!r:.200}: {error}") from None
    return SqlFilter(text, evaluate)  # type: ignore[arg-type]  # `Terms` makes the tree into its evaluation


def _where(text: str, at: int, what: str) -> str:
    return f"SQL92 filter {text!r:.200}: {what} does not fit at position {at}"


def _refusal(text: str) -> DejamqError:
    return DejamqError(text, code=Code.SUBSCRIPTION_PARSE_FAILED)


@cache
def _parser() -> lark.Lark:
    """Made on first use: most brokers never see such a filter."""
    return lark.Lark(
        GRAMMAR, parser="lalr", lexer="basic", transformer=Terms(), lexer_callbacks={"ID": _keyword},
        maybe_placeholders=False,
    )  # fmt: skip


def _keyword(token: lark.Token) -> lark.Token:
    """Keywords are names in any case, wherever they stand."""
    kind = KEYWORDS.get(token.upper())
    return token if kind is None else lark.Token.new_borrow_pos(kind, token.value, token)
