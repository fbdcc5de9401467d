"""Fields of structs in SQL expressions, under the names that they have now: `s.a` of an expression that was written
before the field was renamed.

An expression names fields as `s.a`, `s['a']`, `l[1].a` and `get_field(s, 'a')`, at any depth. What reads a struct with
renamed fields in another way sees their names, or may see them, and is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt

from leman_core.functions.storable_types import is_packed
from leman_core.model.errors import FailedPrecondition
from leman_core.sql import expressions, filters
from leman_core.sql.filters import Kind, Token, invalid

#: Functions of one list or map that look at no name in it.
_NAMELESS = frozenset({"array_length", "cardinality", "empty", "list_length"})
_FIELD = "get_field"


@dataclass(frozen=True, slots=True)
class Renamed:
    """A column that an expression reads: its type as the expression was written for, and as it is now."""

    written: pa.DataType
    now: pa.DataType


@dataclass(frozen=True, slots=True)
class _Path:
    """What stands from a column's name on: the place after it, and what it leads to."""

    end: int
    kind: Renamed
    #: Tokens to be written otherwise, with the text.
    changes: tuple[tuple[Token, str], ...] = ()


def with_names_now(expression: str, columns: Mapping[str, Renamed]) -> str:
    """Return an expression with the names that fields of structs have now.

    Args:
        expression: a checked one.
        columns: those that it reads, by the names that it has for them. The two types of one differ in names alone.

    Raises:
        FailedPrecondition: TYPE_MISMATCH, where it reads a struct with renamed fields as a whole.
    """
    if all(column.written == column.now for column in columns.values()):
        return expression
    found = filters.tokens(expression)
    place = {token.start: at for at, token in enumerate(found)}
    changes: list[tuple[Token, str]] = []
    for token, name in expressions.references(found, columns):
        path = _followed(found, place[token.start] + 1, columns[name])
        path = _field_called(found, place[token.start], path)
        begin, end = place[token.start], path.end
        if path.kind.written != path.kind.now and not _looks_at_no_name(found, begin, end):
            raise _refused(name, columns[name])
        changes += path.changes
    pieces, copied = [], 0
    # by place: a path may stand in the brackets of another
    for token, text in sorted(changes, key=lambda change: change[0].start):
        pieces += [expression[copied : token.start], text]
        copied = token.end
    return "".join([*pieces, expression[copied:]])


def check_packed(text: str, schema: pa.Schema) -> None:
    """Refuse an expression on a table that looks into a packed struct: Lance would give it values of other fields.

    Raises:
        InvalidArgument: INVALID_FILTER.
    """
    columns = [field.name for field in schema if is_packed(field)]
    if not columns:
        return
    found = filters.tokens(text)
    place = {token.start: at for at, token in enumerate(found)}
    for token, name in expressions.references(found, schema.names):
        at = place[token.start]
        if name in columns and not _looks_at_no_name(found, at, at + 1):
            raise invalid(
                f"{token.text} is a packed struct, of whose fields Lance gives wrong values: compare it with NULL or "
                "take it as a whole, or rewrite the table without the metadata 'packed'"
            )


def _followed(found: Sequence[Token], at: int, kind: Renamed, changes: tuple[tuple[Token, str], ...] = ()) -> _Path:
    """Follow a path from a place in it on to where it ends."""
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
    """Continue inside `get_field(…, 'a')`."""
    called = begin >= 2 and found[begin - 1].text == "(" and found[begin - 2].lower == _FIELD
    if not (called and _texts(found, path.end, ",") and _texts(found, path.end + 2, ")")):
        return path
    inner = _inner(path.kind, found[path.end + 1])
    if inner is None:
        return path
    changes = (*path.changes, *_change(found[path.end + 1], inner[1], "'"))
    return _followed(found, path.end + 3, inner[0], changes)


def _inner(kind: Renamed, token: Token) -> tuple[Renamed, str] | None:
    """Return the field that a token names, and what it is called now; None where there is none."""
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
    """Return the place behind the bracket that closes one."""
    depth = 0
    for at in range(opening, len(found)):
        depth += {"[": 1, "]": -1}.get(found[at].text, 0)
        if not depth:
            return at + 1
    return len(found)


def _looks_at_no_name(found: Sequence[Token], begin: int, end: int) -> bool:
    """Tell whether what stands around a path is the same whatever fields are called: `… IS NULL`, or nothing at all."""
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
