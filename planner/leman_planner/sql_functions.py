"""SQL expressions as functions."""

from __future__ import annotations

import pyarrow as pa

from leman_core.model import keys
from leman_core.model.udf import UdfDefinition, UdfKind
from leman_core.sql import expressions

#: The name under which expressions are registered that were given in place of a function.
NAME = "sql"


def definition(expression: str, columns: tuple[str, ...], output: pa.DataType) -> UdfDefinition:
    """Make the function of an expression over these columns.

    Its version is the md5 of what it computes: the text (white space aside), the columns, the type.
    """
    text = expressions.normal(expression)
    version = keys.md5("\n".join([text, *columns, str(output)]))
    return UdfDefinition(NAME, version, UdfKind.SQL, columns, output, sql_expression=text)
