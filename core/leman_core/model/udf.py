"""Functions and computed columns as they are stored, and the request of a preview."""

from __future__ import annotations

from dataclasses import dataclass

from leman._format.column_bindings import NOT_YET, ColumnBinding, ColumnInput, FunctionVersion, InputNames, InputSource
from leman._format.stored_functions import (
    CheckpointBounds,
    ErrorAction,
    ErrorPolicy,
    ErrorRule,
    RemoteFunction,
    Resources,
    UdfDefinition,
    UdfKind,
)

__all__ = [
    "NOT_YET",
    "CheckpointBounds",
    "ColumnBinding",
    "ColumnInput",
    "ErrorAction",
    "ErrorPolicy",
    "ErrorRule",
    "FunctionVersion",
    "InputNames",
    "InputSource",
    "PreviewSpec",
    "RemoteFunction",
    "Resources",
    "UdfDefinition",
    "UdfKind",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewSpec:
    """The request of a preview, see `protos/leman/v1/jobs.proto`."""

    database: str
    table: str
    column: str = ""
    udf_name: str = ""
    udf_version: str = ""
    definition: UdfDefinition | None = None
    sql_expression: str = ""
    #: That of the expression; None: the registered one.
    error_policy: ErrorPolicy | None = None
    input_columns: tuple[str, ...] = ()
    where: str = ""
    read_version: int = 0
    read_tag: str = ""

    @property
    def names_function(self) -> bool:
        """Return whether a function is named, and not only a column."""
        return bool(self.udf_name or self.sql_expression or self.definition is not None)
