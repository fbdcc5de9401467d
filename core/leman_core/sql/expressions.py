"""SQL expressions that compute a column, judged from their text: what they may be, and which columns they read.

They keep reading a column that was renamed. What holds for filters (`leman_core.sql.filters`) holds here too. On top of
it an expression must say the same whenever it is evaluated, and must read the table's own columns alone: its values are
kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence

from leman_core.model.errors import InvalidArgument
from leman_core.sql import case_expressions, filters
from leman_core.sql.filters import CLOCKS, Kind, Token

#: Functions that answer differently from call to call.
VOLATILE = CLOCKS | {"random", "rand", "uuid", "current_time", "localtime", "localtimestamp"}
#: Those of them that need no brackets.
_BARE = frozenset({"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"})
#: Lance's own columns: a row's address and version change without the row.
_ROW_COLUMNS = "_row"
_OPENING = frozenset({"(", "[", ".", "::"})
_CLOSING = frozenset({")", "]", ",", ".", "::"})
_BEFORE_TYPE = frozenset({"as", "::"})
#: Of an expression, as the protocol has it.
_MAX_BYTES = 4096
_LITERALS = frozenset({"true", "false", "null"})


def invalid(message: str) -> InvalidArgument:
    """Return the error of an expression that is refused."""
    return InvalidArgument("INVALID_EXPRESSION", f"Invalid SQL expression: {message}", field="sql_expression")


def check(expression: str, columns: Collection[str]) -> None:
    """Refuse an expression that cannot be used, with what to write instead where that is known.

    Raises:
        InvalidArgument: INVALID_EXPRESSION.
    """
    try:
        filters.check_length(expression, _MAX_BYTES)
        if unstable := _instability(expression):
            raise filters.invalid(unstable)
        filters.check(expression, columns)
    except InvalidArgument as error:
        raise invalid(error.message.removeprefix("Invalid filter: ")) from None


def inputs(expression: str, columns: Collection[str]) -> tuple[str, ...]:
    """Return those of the table's columns that the expression reads, in the order in which it names them."""
    return tuple(dict.fromkeys(column for _, column in references(filters.tokens(expression), columns)))


def normal(expression: str) -> str:
    """Return the same text for expressions that differ in white space only."""
    found = filters.tokens(expression)
    called = {token.start for token in filters.calls(found)}
    pieces = []
    for before, token in itertools.pairwise([None, *found]):
        if before is not None and not _tight(before, token, called=before.start in called):
            pieces.append(" ")
        pieces.append(token.text if token is not None else "")
    return "".join(pieces)


def _tight(before: Token, token: Token | None, *, called: bool) -> bool:
    if token is not None and Kind.NUMBER in {before.kind, token.kind} and "." in {before.text, token.text}:
        return False
    if token is None or before.text in _OPENING or token.text in _CLOSING:
        return True
    return token.text == "[" or (token.text == "(" and called)


def with_names(expression: str, names: Mapping[str, str]) -> str:
    """Return the expression with other names for its columns: `names` has the new one for each that it reads."""
    pieces, copied = [], 0
    for token, column in references(filters.tokens(expression), names):
        if names[column] != column:
            quoted = "`" + names[column].replace("`", "``") + "`"
            pieces += [expression[copied : token.start], quoted]
            copied = token.end
    return "".join([*pieces, expression[copied:]])


def references(found: Sequence[Token], columns: Collection[str]) -> Iterator[tuple[Token, str]]:
    """Yield the tokens that name a column, with the column. Lance takes a name as it stands, or else in lower case."""
    by_lower = {name.casefold(): name for name in reversed(list(columns))}
    for token in _names(found):
        column = token.name if token.name in columns else by_lower.get(token.name.casefold())
        if column is not None:
            yield token, column


def _names(found: Sequence[Token]) -> Iterator[Token]:
    """Yield words and quoted names that stand where a column may.

    Any word can be a column's name, and what is a keyword shows from its place.
    """
    words = case_expressions.keywords(found)
    complete = False  # whether an operand ends before the token: after one comes an operator
    for before, token, after in zip([None, *found], found, [*found[1:], None], strict=False):
        if token.kind not in {Kind.WORD, Kind.QUOTED}:
            complete = token.kind is not Kind.SYMBOL or token.text in {")", "]"}
        elif token.start in words:
            complete = token.lower == "end"
        elif token.kind is Kind.WORD and complete:
            complete = token.lower == "not"  # x NOT IN
        elif token.kind is Kind.WORD and _is_keyword(token, after):
            complete = token.lower in _LITERALS or token.lower == "distinct"
        else:
            complete = True
            if not _is_call(after) and (before is None or not (before.text == "." or before.lower in _BEFORE_TYPE)):
                yield token


def _is_keyword(token: Token, after: Token | None) -> bool:
    """Tell whether a word in an operand's place names no column: `true`, `date '2024-06-01'`, `IS DISTINCT FROM`."""
    if token.lower in _LITERALS or token.lower == "not":
        return True
    if after is None:
        return False
    return after.kind is Kind.STRING or (token.lower, after.lower) in {("distinct", "from"), ("array", "[")}


def _is_call(after: Token | None) -> bool:
    return after is not None and after.text == "("


def volatile(expression: str) -> str:
    """Return the first function in a text that answers differently from call to call; empty: none.

    Raises:
        InvalidArgument: INVALID_FILTER, for what is no expression.
    """
    found = filters.tokens(expression)
    called = [token.name for token in filters.calls(found)]
    bare = [t.text for t in found if t.kind is Kind.WORD and t.lower in _BARE]
    return next((name for name in [*called, *bare] if name.lower() in VOLATILE), "")


def _instability(expression: str) -> str:
    """Return why it may say something else of a row each time; empty where it says the same."""
    if name := volatile(expression):
        return f"{name} says something else at each call; values that are kept cannot rest on it"
    for token in filters.tokens(expression):
        if token.kind in {Kind.WORD, Kind.QUOTED} and token.name.lower().startswith(_ROW_COLUMNS):
            return f"{token.name} changes without the row; values that are kept cannot rest on it"
    return ""
