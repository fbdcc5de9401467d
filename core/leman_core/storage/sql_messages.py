"""What Lance says of SQL that it does not take, in words for the one who wrote it."""

from __future__ import annotations

import re

from leman_core.functions.validation import no_column
from leman_core.model.errors import FailedPrecondition, LemanError
from leman_core.sql import expressions

_RUST_PATH = re.compile(r",?\s*/\S+?\.rs:\d+:\d+")
_PARSER = re.compile(r"\(sql parser error: (.*)\)$", re.DOTALL)
_NO_FIELD = re.compile(r"No field named (?:\"(?P<quoted>(?:[^\"]|\"\")*)\"|(?P<plain>[^\s.]+))\.")
_PREFIXES = ("Invalid user input: ", "Schema error: ", "Not supported: ", "Error during planning: ")
_NO_TIME = re.compile(r"literal Utf8.*literal of type '(Timestamp|Date)")
_NO_COLUMN = "Scans must request at least one column"


def clean_message(message: str) -> str:
    """Return Lance's own sentence, without paths of its sources and names of its error classes."""
    text = _RUST_PATH.sub("", message).strip()
    text = re.sub(r"LanceError\(\w+\): ", "", text)
    parser = _PARSER.search(text)
    if parser:
        return parser[1]
    for prefix in _PREFIXES:
        text = text.replace(prefix, "")
    return text.split("\n")[0][:500]


def expression_error(error: Exception, columns: list[str]) -> LemanError:
    """Return the error for an expression that Lance does not take on a table with these columns."""
    text = clean_message(str(error))
    if _NO_COLUMN in text:
        return expressions.invalid("it reads no column of the table: every row would get the same value")
    missing = _unknown_column(text, columns)
    if not missing:
        return expressions.invalid(text)
    return FailedPrecondition("INPUT_COLUMN_MISSING", missing, columns=_missing_name(text))


def filter_message(error: Exception, columns: list[str]) -> str:
    """Return what is wrong with a filter that Lance does not take on a table with these columns."""
    text = clean_message(str(error))
    if "INTERVAL" in text:
        return f"{text}; intervals are understood after now() and current_date: now() - interval '30 days'"
    if _NO_TIME.search(text):
        return f"{text}; write times like timestamp '2024-06-01' or date '2024-06-01'"
    return _unknown_column(text, columns) or text


def _unknown_column(text: str, columns: list[str]) -> str:
    """Return what to say about a column that Lance does not find; empty where that is not what it says."""
    name = _missing_name(text)
    if not name:
        return ""
    return no_column(name, columns)


def _missing_name(text: str) -> str:
    """Return the column that Lance does not find; empty where that is not what it says."""
    unknown = _NO_FIELD.search(text)
    return "" if unknown is None else unknown["plain"] or unknown["quoted"].replace('""', '"')
