"""JSON in SQL. Lance has SQL read it in a form of its own, which only its functions of JSON understand.

As text or bytes it would be garbage.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from leman_core.sql import expressions, filters
from leman_core.sql.filters import Token, invalid

_PREFIX = "json_"
#: The one of them that gives JSON in that form.
_GIVES_JSON = "json_get"


def check(text: str, schema: pa.Schema) -> None:
    """Refuse an expression on a table that takes JSON for anything else.

    Raises:
        InvalidArgument: INVALID_FILTER.
    """
    columns = [field.name for field in schema if isinstance(field.type, pa.JsonType)]
    found = filters.tokens(text)
    names = {token.start: name for token, name in expressions.references(found, schema.names)}
    calls = {token.start for token in filters.calls(found)}
    for at, token in enumerate(found):
        if names.get(token.start) in columns and len(found) > 1 and not _is_read(found, at, at):
            raise invalid(
                f"{token.text} is JSON, which SQL reads with json_extract({token.text}, '$.…'), json_get_int and the "
                "like, or compares with NULL"
            )
        if token.start in calls and token.lower == _GIVES_JSON and not _is_read(found, at, _end(found, at + 1)):
            raise invalid(
                "json_get gives JSON for other functions of it: use json_extract, json_get_string and the like"
            )


def _is_read(found: Sequence[Token], begin: int, end: int) -> bool:
    """Tell whether the operand between two tokens is read as JSON.

    It is the first argument of a function of JSON then, or is compared with NULL.
    """
    if begin > 1 and found[begin - 1].text == "(" and found[begin - 2].lower.startswith(_PREFIX):
        return True
    return end + 1 < len(found) and found[end + 1].lower == "is"


def _end(found: Sequence[Token], opening: int) -> int:
    """Return where the bracket closes that opens there."""
    depth = 0
    for at in range(opening, len(found)):
        depth += (found[at].text == "(") - (found[at].text == ")")
        if depth == 0:
            return at
    return len(found)
