"""Analyse SQL expressions from their tokens: CASE, JSON, struct fields, and the columns that they read.

An expression that computes a column follows the rules of filters (`leman_core.sql.filters`). Because its values are
kept, it must also give the same value at every evaluation, and read only the table's own columns. If a column or a
field of a struct is renamed, the expression continues to read it. This covers fields written as `s.a`, `s['a']`,
`l[1].a` and `get_field(s, 'a')`, at any depth. An expression that reads a struct with renamed fields in any other way
is refused, because its value may depend on the names. JSON may only be passed to Lance's JSON functions: used as text
or bytes, it would have Lance's internal form.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt

from leman._format.view_definitions import IS_SET, ViewQuery
from leman_core.functions.arrow_types import is_packed
from leman_core.model.service_errors import FailedPrecondition, InvalidArgument
from leman_core.sql import filters
from leman_core.sql.filters import CLOCKS, Kind, Token, invalid_filter

#: The most WHENs of a CASE. Lance's parser counts each as a bracket inside the one before, and gives up at 50.
MAX_WHENS = 32
_INNER = frozenset({"when", "then", "else"})
_CASE_OPENING = frozenset({"(", "["})
_CASE_CLOSING = frozenset({")", "]"})

#: A keyword and its index among the tokens.
_Mark = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Case:
    """A CASE of an expression, as texts of its parts, and its position in the expression."""

    begin: int
    end: int
    #: The operand after CASE, with which WHENs are compared; empty if each WHEN has a condition.
    operand: str
    branches: tuple[tuple[str, str], ...]
    #: The text after ELSE.
    otherwise: str


def case_keywords(found: Sequence[Token]) -> frozenset[int]:
    """Return the positions of CASE's keywords, which are not column names.

    Outside of a CASE, words such as WHEN and END may be column names.
    """
    return frozenset(found[at].start for _, at, _ in _words(found))


def check_cases(found: Sequence[Token]) -> None:
    """Refuse an incomplete CASE, and a CASE with too many WHENs.

    Raises:
        InvalidArgument: INVALID_FILTER.
    """
    words = Counter(word for word, _, _ in _words(found))
    if words["case"] != words["end"]:
        raise invalid_filter("CASE has no END")
    if words["when"] > MAX_WHENS:
        raise invalid_filter(f"it has {words['when']} WHENs, at most {MAX_WHENS} are allowed")


def first_case(text: str, found: Sequence[Token]) -> Case | None:
    """Return the first CASE of a text that is not inside another CASE, or None.

    Raises:
        InvalidArgument: INVALID_FILTER.
    """
    marks: list[_Mark] = []
    for word, at, depth in _words(found):
        if depth == 1:
            marks.append((word, at))
            if word == "end":
                return _case(text, found, marks)
    if marks:
        raise invalid_filter("CASE has no END")
    return None


def _words(found: Sequence[Token]) -> Iterator[tuple[str, int, int]]:
    """Yield each keyword of a CASE, with its index and the depth of its CASE (1: not inside another CASE)."""
    open_cases = 0
    before = ""
    for at, token in enumerate(found):
        word = token.lower if token.kind is Kind.WORD and before != "." else ""
        before = token.text
        if word == "case":
            open_cases += 1
            yield word, at, open_cases
        elif open_cases and (word in _INNER or word == "end"):
            yield word, at, open_cases
            open_cases -= word == "end"


def _case(text: str, found: Sequence[Token], marks: Sequence[_Mark]) -> Case:
    words = " ".join(word for word, _ in marks)
    pairs = words.removeprefix("case ").removesuffix(" end").removesuffix(" else")
    if not pairs or pairs.replace("when then", "").strip():
        at = found[marks[0][1]].start + 1
        raise invalid_filter(f"CASE at character {at} is written like CASE WHEN … THEN … ELSE … END")

    parts = []
    for (word, at), (_, after) in itertools.pairwise(marks):
        inside = text[found[at].end : found[after].start].strip()
        if not inside and word != "case":
            raise invalid_filter(f"nothing follows {word.upper()} at character {found[at].start + 1}")
        if not _balanced(found[at + 1 : after]):
            raise invalid_filter(f"brackets do not match after {word.upper()} at character {found[at].start + 1}")
        parts.append((word, inside))
    whens = [inside for word, inside in parts if word == "when"]
    thens = [inside for word, inside in parts if word == "then"]
    otherwise = next((inside for word, inside in parts if word == "else"), "NULL")
    begin, end = found[marks[0][1]].start, found[marks[-1][1]].end
    return Case(begin, end, parts[0][1], tuple(zip(whens, thens, strict=True)), otherwise)


def _balanced(found: Sequence[Token]) -> bool:
    depth = 0
    for token in found:
        depth += (token.text in _CASE_OPENING) - (token.text in _CASE_CLOSING)
        if depth < 0:
            return False
    return depth == 0


#: Functions that may return another value at each call.
VOLATILE = CLOCKS | {"random", "rand", "uuid", "current_time", "localtime", "localtimestamp"}
#: Those of these functions that are also called without brackets.
_BARE = frozenset({"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"})
#: Lance's own columns. A row's address and version may change although the row does not.
_ROW_COLUMNS = "_row"
_OPENING = frozenset({"(", "[", ".", "::"})
_CLOSING = frozenset({")", "]", ",", ".", "::"})
_BEFORE_TYPE = frozenset({"as", "::"})
#: The most bytes of an expression that computes values, as the protocol states.
MAX_BYTES = 4096
_LITERALS = frozenset({"true", "false", "null"})


def invalid_expression(message: str) -> InvalidArgument:
    """Return the error of a refused expression."""
    return InvalidArgument("INVALID_EXPRESSION", f"Invalid SQL expression: {message}", field="sql_expression")


def check_expression(expression: str, columns: Collection[str]) -> None:
    """Refuse an unusable expression, and suggest an alternative if known.

    Raises:
        InvalidArgument: INVALID_EXPRESSION.
    """
    try:
        filters.check_length(expression, MAX_BYTES)
        if unstable := _instability(expression):
            raise filters.invalid_filter(unstable)
        filters.check_filter(expression, columns)
    except InvalidArgument as error:
        raise invalid_expression(error.message.removeprefix("Invalid filter: ")) from None


def columns_of_expression(expression: str, columns: Collection[str]) -> tuple[str, ...]:
    """Return the table's columns that the expression reads, in the order in which it names them."""
    return tuple(dict.fromkeys(column for _, column in column_references(filters.tokenize(expression), columns)))


def names_in_expression(expression: str, columns: Collection[str]) -> tuple[str, ...]:
    """Return all column names in an expression, in order. A name that is not in `columns` is returned as written."""
    found = filters.tokenize(expression)
    known = {token.start: column for token, column in column_references(found, columns)}
    return tuple(dict.fromkeys(known.get(token.start, token.name) for token in _names(found)))


def normalize_spaces(expression: str) -> str:
    """Normalize the white space of an expression, so that expressions that differ only in white space become equal."""
    found = filters.tokenize(expression)
    called = {token.start for token in filters.called_functions(found)}
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


def rename_columns(expression: str, names: Mapping[str, str]) -> str:
    """Return the expression with its columns renamed as in `names`."""
    pieces, copied = [], 0
    for token, column in column_references(filters.tokenize(expression), names):
        if names[column] != column:
            quoted = "`" + names[column].replace("`", "``") + "`"
            pieces += [expression[copied : token.start], quoted]
            copied = token.end
    return "".join([*pieces, expression[copied:]])


def column_references(found: Sequence[Token], columns: Collection[str]) -> Iterator[tuple[Token, str]]:
    """Yield each token that is the name of a column in `columns`, with the column.

    As in Lance, a name matches the column of exactly that name, or else one that is equal in lower case.
    """
    by_lower = {name.casefold(): name for name in reversed(list(columns))}
    for token in _names(found):
        column = token.name if token.name in columns else by_lower.get(token.name.casefold())
        if column is not None:
            yield token, column


def _names(found: Sequence[Token]) -> Iterator[Token]:
    """Yield the words and quoted names in places where a column's name is allowed.

    Any word can be a column's name. Whether a word is a keyword depends on its place.
    """
    words = case_keywords(found)
    complete = False  # whether the token follows a complete operand, so that it is an operator
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
    """Return whether a word where an operand may be is a keyword: `true`, `date '2024-06-01'`, `IS DISTINCT FROM`."""
    if token.lower in _LITERALS or token.lower == "not":
        return True
    if after is None:
        return False
    return after.kind is Kind.STRING or (token.lower, after.lower) in {("distinct", "from"), ("array", "[")}


def _is_call(after: Token | None) -> bool:
    return after is not None and after.text == "("


def volatile_function(expression: str) -> str:
    """Return the first volatile function in a text; empty: none.

    Raises:
        InvalidArgument: INVALID_FILTER – the text is not an expression.
    """
    found = filters.tokenize(expression)
    called = [token.name for token in filters.called_functions(found)]
    bare = [t.text for t in found if t.kind is Kind.WORD and t.lower in _BARE]
    return next((name for name in [*called, *bare] if name.lower() in VOLATILE), "")


def _instability(expression: str) -> str:
    """Return why an expression may give another value at each evaluation; empty if it does not."""
    if name := volatile_function(expression):
        return f"{name} returns another value at each call, so values computed with it cannot be kept"
    for token in filters.tokenize(expression):
        if token.kind in {Kind.WORD, Kind.QUOTED} and token.name.lower().startswith(_ROW_COLUMNS):
            return f"{token.name} changes without the row, so values computed with it cannot be kept"
    return ""


_PREFIX = "json_"
#: The only JSON function that returns JSON in Lance's internal form, so that only JSON functions can use the result.
_GIVES_JSON = "json_get"


def check_json_use(text: str, schema: pa.Schema) -> None:
    """Refuse an expression that uses JSON outside of JSON functions.

    Raises:
        InvalidArgument: INVALID_FILTER.
    """
    columns = [field.name for field in schema if isinstance(field.type, pa.JsonType)]
    found = filters.tokenize(text)
    names = {token.start: name for token, name in column_references(found, schema.names)}
    calls = {token.start for token in filters.called_functions(found)}
    for at, token in enumerate(found):
        if names.get(token.start) in columns and len(found) > 1 and not _is_read(found, at, at):
            raise invalid_filter(
                f"{token.text} is JSON, which SQL reads with json_extract({token.text}, '$.…'), json_get_int and the "
                "like, or compares with NULL"
            )
        if token.start in calls and token.lower == _GIVES_JSON and not _is_read(found, at, _end(found, at + 1)):
            raise invalid_filter(
                "json_get gives JSON for other functions of it: use json_extract, json_get_string and the like"
            )


def _is_read(found: Sequence[Token], begin: int, end: int) -> bool:
    """Return whether the JSON operand at these tokens is used in a way that JSON allows.

    It must be the first argument of a JSON function, or be tested with IS.
    """
    if begin > 1 and found[begin - 1].text == "(" and found[begin - 2].lower.startswith(_PREFIX):
        return True
    return end + 1 < len(found) and found[end + 1].lower == "is"


def _end(found: Sequence[Token], opening: int) -> int:
    """Return the index of the bracket that closes an opening one."""
    depth = 0
    for at in range(opening, len(found)):
        depth += (found[at].text == "(") - (found[at].text == ")")
        if depth == 0:
            return at
    return len(found)


#: Functions of a list or map whose result does not depend on the names of struct fields in it.
_NAMELESS = frozenset({"array_length", "cardinality", "empty", "list_length"})
_FIELD = "get_field"


@dataclass(frozen=True, slots=True)
class Renamed:
    """The type of a column that an expression reads: when the expression was written, and now."""

    written: pa.DataType
    now: pa.DataType


@dataclass(frozen=True, slots=True)
class _Path:
    """A path such as `s.a` that begins with a column's name: the index of the token after the path, and its type."""

    end: int
    kind: Renamed
    #: Tokens to replace, each with its new text.
    changes: tuple[tuple[Token, str], ...] = ()


def with_current_names(expression: str, columns: Mapping[str, Renamed]) -> str:
    """Return an expression with the current names of struct fields.

    Args:
        expression: An expression that was checked before.
        columns: The columns that it reads, by their names in the expression. The two types of a column differ only in
            names of struct fields.

    Raises:
        FailedPrecondition: TYPE_MISMATCH – the expression reads a struct with renamed fields as a whole.
    """
    if all(column.written == column.now for column in columns.values()):
        return expression
    found = filters.tokenize(expression)
    place = {token.start: at for at, token in enumerate(found)}
    changes: list[tuple[Token, str]] = []
    for token, name in column_references(found, columns):
        path = _followed(found, place[token.start] + 1, columns[name])
        path = _field_called(found, place[token.start], path)
        begin, end = place[token.start], path.end
        if path.kind.written != path.kind.now and not _looks_at_no_name(found, begin, end):
            raise _refused(name, columns[name])
        changes += path.changes
    pieces, copied = [], 0
    # sorted by position, because a path may be inside the brackets of another path
    for token, text in sorted(changes, key=lambda change: change[0].start):
        pieces += [expression[copied : token.start], text]
        copied = token.end
    return "".join([*pieces, expression[copied:]])


def check_packed(text: str, schema: pa.Schema) -> None:
    """Refuse an expression that reads fields of a packed struct: Lance would return values of other fields.

    Raises:
        InvalidArgument: INVALID_FILTER.
    """
    columns = [field.name for field in schema if is_packed(field)]
    if not columns:
        return
    found = filters.tokenize(text)
    place = {token.start: at for at, token in enumerate(found)}
    for token, name in column_references(found, schema.names):
        at = place[token.start]
        if name in columns and not _looks_at_no_name(found, at, at + 1):
            raise invalid_filter(
                f"{token.text} is a packed struct, of whose fields Lance gives wrong values: compare it with NULL or "
                "take it as a whole, or rewrite the table without the metadata 'packed'"
            )


def _followed(found: Sequence[Token], at: int, kind: Renamed, changes: tuple[tuple[Token, str], ...] = ()) -> _Path:
    """Follow a path of type `kind` from the token at `at` to the end of the path."""
    if _texts(found, at, ".") and at + 1 < len(found) and pt.is_struct(kind.written):
        inner = _inner(kind, found[at + 1])
        if inner is not None:
            return _followed(found, at + 2, inner[0], (*changes, *_change(found[at + 1], inner[1], "`")))
    if _texts(found, at, "["):
        if pt.is_struct(kind.written):
            inner = _inner(kind, found[at + 1]) if _texts(found, at + 2, "]") else None
            if inner is not None:
                return _followed(found, at + 3, inner[0], (*changes, *_change(found[at + 1], inner[1], "'")))
        elif _is_list(kind.written):
            items = Renamed(kind.written.value_type, kind.now.value_type)
            return _followed(found, _behind(found, at), items, changes)
    return _Path(at, kind, changes)


def _field_called(found: Sequence[Token], begin: int, path: _Path) -> _Path:
    """Return the path `get_field(path, 'a')`, if `path` is the first argument of such a call; else `path` itself."""
    called = begin >= 2 and found[begin - 1].text == "(" and found[begin - 2].lower == _FIELD
    if not (called and _texts(found, path.end, ",") and _texts(found, path.end + 2, ")")):
        return path
    inner = _inner(path.kind, found[path.end + 1])
    if inner is None:
        return path
    changes = (*path.changes, *_change(found[path.end + 1], inner[1], "'"))
    return _followed(found, path.end + 3, inner[0], changes)


def _inner(kind: Renamed, token: Token) -> tuple[Renamed, str] | None:
    """Return the struct field that a token refers to, and its new name (empty: not renamed); None if there is none."""
    if not pt.is_struct(kind.written) or token.kind is Kind.NUMBER:
        return None
    names = [field.name for field in kind.written]
    by_lower = {name.casefold(): name for name in reversed(names)}
    name = token.name if token.name in names else by_lower.get(token.name.casefold(), "")
    if name not in names:
        return None
    at = names.index(name)
    now = kind.now.field(at)
    return Renamed(kind.written.field(at).type, now.type), "" if now.name == name else now.name


def _change(token: Token, name: str, quote: str) -> tuple[tuple[Token, str], ...]:
    return ((token, f"{quote}{name.replace(quote, quote * 2)}{quote}"),) if name else ()


def _behind(found: Sequence[Token], opening: int) -> int:
    """Return the index after the bracket that closes an opening one."""
    depth = 0
    for at in range(opening, len(found)):
        depth += {"[": 1, "]": -1}.get(found[at].text, 0)
        if not depth:
            return at + 1
    return len(found)


def _looks_at_no_name(found: Sequence[Token], begin: int, end: int) -> bool:
    """Return whether the use of a path does not depend on field names: the path alone, or `… IS NULL` and the like."""
    if begin == 0 and end == len(found):
        return True
    if end < len(found) and found[end].lower == "is":
        rest = [token.lower for token in found[end + 1 : end + 3]]
        return rest[:1] == ["null"] or rest == ["not", "null"]
    called = begin >= 2 and found[begin - 1].text == "(" and found[begin - 2].lower in _NAMELESS
    return called and _texts(found, end, ")")


def _texts(found: Sequence[Token], at: int, text: str) -> bool:
    return at < len(found) and found[at].text == text


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def _refused(name: str, column: Renamed) -> FailedPrecondition:
    return FailedPrecondition(
        "TYPE_MISMATCH",
        f"Type mismatch for column {name}: the expression was written for {column.written}, and with fields renamed it "
        f"is {column.now} now. Name single fields (`{name}.x`), which are followed to their new names, or give the "
        "column the expression again with CatalogService.AlterColumns: it then sees the new names in all rows",
        column=name,
        declared=column.written,
        actual=column.now,
    )


def columns_read(query: ViewQuery, columns: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct source columns that a view reads, in the order in which the query names them.

    Unknown names are left out. If the source is a view, the last column is its `__is_set`: it marks rows without
    values, which the view must leave out.
    """
    names = list(columns)
    read: list[str] = []
    for column in query.columns:
        read += [column.source_column] if column.source_column else columns_of_expression(column.expression, names)
    if query.where:
        read += columns_of_expression(query.where, names)
    for function in query.functions:
        read += [path.split(".")[0] for path in function.inputs]
    held = frozenset(names)
    return tuple(name for name in dict.fromkeys([*read, IS_SET]) if name in held)
