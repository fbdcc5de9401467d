"""SQL that is nested too deeply for Lance, and SQL that is only long."""

from __future__ import annotations

from google.protobuf.descriptor import FieldDescriptor

from tests.integration.bad_requests.requests import Path

#: Words in the names of fields that hold SQL.
_SQL = ("where", "expression", "sql", "condition", "filter", "predicate")
#: Fields with such a word that hold something else.
_NO_SQL = {"JobFilter"}


def holds_sql(path: Path) -> bool:
    """Whether the last field of a path is SQL, or a map to SQL."""
    field = path[-1]
    is_text = field.type == FieldDescriptor.TYPE_STRING
    if field.message_type is not None:
        entry = field.message_type
        if entry.name in _NO_SQL or not entry.GetOptions().map_entry:
            return False
        is_text = entry.fields_by_name["value"].type == FieldDescriptor.TYPE_STRING
    return is_text and any(word in field.name for word in _SQL)


def nested(form: str, times: int) -> str:
    text = "n"
    for _ in range(times):
        text = form.format(text)
    return text


#: Each ended a service before its nesting was bounded.
DEEP = {
    "sum": "n" + "+1" * 1_000,
    "casts": "n" + "::int" * 700,
    "brackets": nested("({})", 1_500),
    "calls": nested("abs({})", 600),
    "cases": nested("CASE WHEN {} = 1 THEN 2 ELSE 3 END", 100),
}
LONG = " AND ".join(f"n<>{number}" for number in range(300, 600))
