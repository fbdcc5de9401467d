"""Functions, computed columns and previews, as the catalog knows them.

User-defined functions and computed columns, as the catalog knows them.

A preview: a function that is to be tried on a few rows.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from leman_core.model.plan import InputSource


class UdfKind(enum.Enum):
    """What the function is handed in one call."""

    SCALAR = "scalar"
    ARRAY = "array"
    RECORD_BATCH = "record_batch"
    SQL = "sql"
    REMOTE = "remote"


class ErrorAction(enum.Enum):
    """What an error rule does with a row for which the function raised."""

    FAIL = "fail"
    SKIP = "skip"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class ErrorRule:
    """One rule of an error policy."""

    action: ErrorAction
    #: Class names, which match the classes derived from them too; empty matches every exception.
    exception_types: tuple[str, ...] = ()
    message_pattern: str = ""
    max_attempts: int = 1
    initial_backoff_seconds: float = 0.0
    max_backoff_seconds: float = 60.0

    def matches(self, names: AbstractSet[str], message: str) -> bool:
        """Tell whether the rule is about this exception.

        Args:
            names: of the exception's class and its bases, with and without their modules.
        """
        if self.message_pattern and not re.search(self.message_pattern, message):
            return False
        return not self.exception_types or not names.isdisjoint(self.exception_types)

    def pause(self, attempt: int) -> float:
        """Return seconds to wait after that many attempts."""
        doubled = self.initial_backoff_seconds * 2.0 ** min(attempt - 1, 1000)
        return min(doubled, self.max_backoff_seconds)


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """The first matching rule holds; without one the job fails. Bounds of zero bound nothing."""

    rules: tuple[ErrorRule, ...] = ()
    max_errors: int = 0
    max_error_fraction: float = 0.0
    store_errors: bool = True

    def errors_allowed(self, rows: int) -> int | None:
        """Return how many rows may fail in a job over so many; None: any number."""
        bounds = [self.max_errors] if self.max_errors else []
        if self.max_error_fraction:
            bounds.append(int(self.max_error_fraction * rows))
        return min(bounds, default=None)

    def rule_for(self, names: AbstractSet[str], message: str, attempt: int) -> ErrorRule | None:
        """Return the rule for an exception of the given names after that many attempts; None: the job fails."""
        for rule in self.rules:
            if rule.action is ErrorAction.RETRY and attempt >= rule.max_attempts:
                continue
            if rule.matches(names, message):
                return rule
        return None


@dataclass(frozen=True, slots=True)
class CheckpointBounds:
    """Rows between checkpoints as asked for; 0 is "not asked"."""

    checkpoint_size: int = 0
    min_checkpoint_size: int = 0
    max_checkpoint_size: int = 0

    def over(self, default: CheckpointBounds) -> CheckpointBounds:
        """Return these bounds where they say something, else those of `default` (the call wins over the definition)."""
        return CheckpointBounds(
            self.checkpoint_size or default.checkpoint_size,
            self.min_checkpoint_size or default.min_checkpoint_size,
            self.max_checkpoint_size or default.max_checkpoint_size,
        )

    @property
    def asked(self) -> bool:
        """Tell whether anything was asked."""
        return self != CheckpointBounds()

    @property
    def at_least(self) -> int:
        return max(1, min(self.min_checkpoint_size or 1, self.at_most))

    @property
    def at_most(self) -> int:
        """Return the largest checkpoint in rows; a very large number where nothing was asked."""
        asked = [n for n in (self.checkpoint_size, self.max_checkpoint_size) if n > 0]
        return min(asked) if asked else 1 << 62


@dataclass(frozen=True, slots=True)
class Resources:
    """What one call at a time of a function takes on a worker, as asked for; 0 is "not asked"."""

    num_cpus: int = 0
    num_gpus: float = 0.0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RemoteFunction:
    """Where a function is served that is not computed by a worker itself."""

    #: Flight uris of its servers, which are alike.
    addresses: tuple[str, ...]
    #: What they call it.
    function: str


@dataclass(frozen=True, slots=True)
class UdfDefinition:
    """A registered function. Name and version identify it for ever. See `protos/leman/v1/udf.proto` for the fields."""

    name: str
    version: str
    kind: UdfKind
    input_columns: tuple[str, ...]
    output_type: pa.DataType
    input_types: tuple[pa.DataType | None, ...] = ()
    bundle_sha256: str = ""
    bundle_python: str = ""
    bundle_size: int = 0
    entrypoint: str = ""
    stateful: bool = False
    checkpoint: CheckpointBounds = CheckpointBounds()
    error_policy: ErrorPolicy = ErrorPolicy()
    batch_size: int = 0
    sql_expression: str = ""
    timeout_seconds: float = 0.0
    blob: bool = False
    resources: Resources = Resources()
    remote: RemoteFunction | None = None
    #: The text that the code was made from, for people: it decides nothing.
    source: str = field(default="", compare=False, repr=False)


#: In the place of an input's field id: a column that is being added with the one that reads it. It is known by its name
#: until the commit coordinator has written its id there.
NOT_YET = -1


@dataclass(frozen=True, slots=True)
class ColumnInput:
    """An input of a computed column: its name when that was added, and the Lance field id, which a rename keeps."""

    name: str
    field_id: int


class FunctionVersion(NamedTuple):
    """A function, as a column's metadata names it. The version is empty where nobody said yet which one it is."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}@{self.version}" if self.version else self.name


@dataclass(frozen=True, slots=True)
class InputNames:
    """What fields of structs in a column's inputs were called when the column was bound to its function."""

    #: (Lance field id, name), in the order of the inputs.
    names: tuple[tuple[int, str], ...]
    #: Tells values apart that were computed under other names, before the column was bound again; empty: under these.
    since: str = ""


@dataclass(frozen=True, slots=True)
class ColumnBinding:
    """What the field metadata of a computed column says."""

    #: Made when the column is added: a column that is dropped and added again is another one, although Lance may give
    #: it the same field id.
    column_id: str
    udf_name: str
    udf_version: str
    inputs: tuple[ColumnInput, ...]
    #: The name that the column had when it was added: checkpoint keys hold it, so that a rename does not hide them.
    #: Empty: older releases did not write it.
    added_as: str = ""
    #: Earlier functions of the same inputs whose values count as current, the most recent first.
    kept: tuple[FunctionVersion, ...] = ()
    #: Where given, the function reads that table's columns, and the one input holds row ids of it.
    source: InputSource | None = None
    #: Names of the fields of structs in the inputs, as the function is given them, whatever they are called now. None:
    #: no input has any, or an older release made the binding.
    input_names: InputNames | None = None

    @property
    def function(self) -> FunctionVersion:
        return FunctionVersion(self.udf_name, self.udf_version)

    @property
    def names(self) -> Mapping[int, str]:
        """Return `input_names` by Lance field id."""
        return {} if self.input_names is None else dict(self.input_names.names)

    @property
    def values_id(self) -> str:
        """Return the column's id as it enters fingerprints: with what tells values under other input names apart."""
        return f"{self.column_id}{self._since}"

    def keyed_as(self, name: str) -> str:
        """Return what checkpoint keys call the column, which is called `name` now."""
        return f"{self.added_as or name}{self._since}"

    @property
    def _since(self) -> str:
        return f" {self.input_names.since}" if self.input_names is not None and self.input_names.since else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewSpec:
    """What is asked of a preview; meanings in `protos/leman/v1/jobs.proto`."""

    database: str
    table: str
    column: str = ""
    udf_name: str = ""
    udf_version: str = ""
    definition: UdfDefinition | None = None
    sql_expression: str = ""
    #: That of the expression; None: what it was registered with.
    error_policy: ErrorPolicy | None = None
    input_columns: tuple[str, ...] = ()
    where: str = ""
    read_version: int = 0
    read_tag: str = ""

    @property
    def names_function(self) -> bool:
        """Tell whether a function is named, and not only a column."""
        return bool(self.udf_name or self.sql_expression or self.definition is not None)
