"""Arguments about columns: SQL expressions, types, `on_change`, and parameters of backfills."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TextIO, TypedDict

from leman._arrow import pa
from leman._wire.wire_values import function_ref, seconds
from leman.error_handling import ErrorHandlingConfig
from leman.errors import InvalidArgument, UdfDefinitionError
from leman.v1 import catalog_pb2, planner_pb2, types_pb2, udf_pb2


@dataclass(frozen=True)
class SqlExpression:
    """A SQL expression with a policy for rows on which it fails. Made by `leman.sql`."""

    text: str
    error_handling: ErrorHandlingConfig | None = None

    def column(self, name: str) -> catalog_pb2.NewColumn:
        policy = None if self.error_handling is None else self.error_handling.proto()
        return catalog_pb2.NewColumn(name=name, sql_expression=self.text, error_policy=policy)


def sql(expression: str, *, error_handling: ErrorHandlingConfig | None = None) -> SqlExpression:
    """Return a SQL expression with options, for `Table.add_columns` and `alter_columns`.

    `error_handling`: what to do with rows on which it fails, as with a cast of `'abc'` to a number or a division by
    zero. In the rules of a policy, this error has the name `SqlError`; it is never retried. Without `error_handling`,
    the policy of an earlier registration of the same expression applies. If there is none, the first such row ends the
    job.
    """
    given: Any = expression
    if not isinstance(given, str):
        raise InvalidArgument(f"sql() takes a SQL expression as text, not {given!r}")
    if error_handling is not None and not isinstance(error_handling, ErrorHandlingConfig):
        raise UdfDefinitionError("error_handling takes a leman.ErrorHandlingConfig")
    return SqlExpression(expression, error_handling)


_NAMES = {
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "halffloat": "float16",
    "float": "float32",
    "double": "float64",
    "string": "utf8",
    "large_string": "large_utf8",
    "binary": "binary",
    "large_binary": "large_binary",
}


def type_to_proto(data_type: pa.DataType) -> types_pb2.JsonArrowDataType:
    """Return the type for the wire. Raises InvalidArgument for a type to which Leman cannot cast a column."""
    if not isinstance(data_type, pa.DataType):
        raise InvalidArgument(f"data_type is a pyarrow type, such as pa.int64(), not a {type(data_type).__name__}")
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        values = data_type.value_field
        told = types_pb2.JsonArrowDataType(type="large_list" if pa.types.is_large_list(data_type) else "list")
        told.fields.add(name=values.name, type=type_to_proto(values.type), nullable=values.nullable)
        return told
    name = _NAMES.get(str(data_type))
    if name is None:
        raise InvalidArgument(
            f"a column cannot be cast to {data_type}: integers and floats can become other integers and floats, and"
            " text, bytes and lists their large forms. Add a column of that type instead"
        )
    return types_pb2.JsonArrowDataType(type=name)


OnChange = Literal["error", "update", "keep"]
"""What to do if a computed column exists with another definition, see `Table.add_columns`."""

_ON_CHANGE = {
    "error": catalog_pb2.ON_CHANGE_ERROR,
    "update": catalog_pb2.ON_CHANGE_UPDATE,
    "keep": catalog_pb2.ON_CHANGE_KEEP,
}
_OUTCOMES = {catalog_pb2.ColumnOutcome.OUTCOME_UPDATED: "updated", catalog_pb2.ColumnOutcome.OUTCOME_KEPT: "kept"}
#: Fields of ColumnChange that are also in its message.
_SAME = ("column", "diff", "summary", "rows_stale", "rows_stored", "rows_lost", "rows_not_computed")
_LINES = 40


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A column whose definition was changed. Its `str` describes the change, with a diff of the functions' sources.

    `outcome` is `updated` (its values are now stale) or `kept` (its values still count as current). `udf_before` and
    `udf` have the form `name@version`. `diff` is a unified diff of their sources, empty if these are unknown or equal.

    Three counts say which rows the next backfill computes. `rows_stale` rows have a value in the table, which is
    computed again. `rows_stored` rows were computed by an unfinished job and are computed again, unless you pass
    `on_change="keep"`. `rows_not_computed` rows are computed for the first time. `rows_lost` counts the rows of the
    first two counts whose values came from the previous definition.

    `expected_seconds` estimates the time of the next backfill from the column's last backfills; None if these computed
    too few rows. `summary` is all of this in a sentence.
    """

    column: str
    outcome: str
    udf_before: str
    udf: str
    diff: str
    rows_stale: int
    rows_not_computed: int
    expected_seconds: float | None
    summary: str
    rows_stored: int = 0
    rows_lost: int = 0

    def __str__(self) -> str:
        lines = self.diff.splitlines()
        cut = [f"… {len(lines) - _LINES:,} more lines"] if len(lines) > _LINES else []
        return "\n  ".join([self.summary, *lines[:_LINES], *cut])


def on_change_to_proto(on_change: str) -> catalog_pb2.OnChange.ValueType:
    if on_change not in _ON_CHANGE:
        raise InvalidArgument(f"on_change is 'error', 'update' or 'keep', not {on_change!r}")
    return _ON_CHANGE[on_change]


def column_changes(outcomes: Iterable[catalog_pb2.ColumnOutcome]) -> list[ColumnChange]:
    """Return the columns whose definitions the call changed."""
    return [
        ColumnChange(
            outcome=_OUTCOMES[item.outcome],
            udf_before=f"{item.udf_before.name}@{item.udf_before.version}",
            udf=f"{item.udf.name}@{item.udf.version}",
            expected_seconds=seconds(item.expected_duration) if item.HasField("expected_duration") else None,
            **{name: getattr(item, name) for name in _SAME},
        )
        for item in outcomes
        if item.outcome in _OUTCOMES and item.HasField("udf_before")
    ]


def report_lost(
    outcomes: Iterable[catalog_pb2.ColumnOutcome],
    to: bool | Callable[[ColumnChange], object] | None,  # noqa: FBT001 - the argument of alter_columns, passed on
) -> None:
    """Report, as `report_changes` does, the columns whose finished rows will be computed again."""
    report_changes((change for change in column_changes(outcomes) if change.rows_lost), to)


def report_changes(
    found: Iterable[ColumnChange],
    to: bool | Callable[[ColumnChange], object] | None,  # noqa: FBT001 - the argument of add_columns, passed on
    stream: TextIO | None = None,
) -> None:
    """Report changes to a function, on standard error (None, True), or not at all (False)."""
    for change in found:
        if callable(to):
            to(change)
        elif to is not False:
            print(change, file=stream or sys.stderr, flush=True)


OnStaleInput = Literal["error", "warn", "first"]
"""What a backfill or a refresh does with inputs that are not current, see `BackfillParameters`."""


class BackfillParameters(TypedDict, total=False):
    """The parameters of `Table.backfill`, `backfill_async` and `plan_backfill`; None is the same as not given.

    - `where`: compute only rows for which this SQL expression is true; the others keep their values.
    - `read_version`: read this version of the table, a number or a tag: its rows, with their values then. If inputs
      have changed since, the next backfill without it makes the values current. Default: the latest.
    - `concurrency`: at most this many worker processes. Default: one for each task slot.
    - `intra_applier_concurrency`: threads in each worker process that call the function concurrently, if it allows
      that. Default: one. At most `concurrency` times as many calls run at once.
    - `checkpoint_size`, `min_checkpoint_size`, `max_checkpoint_size`: rows between checkpoints; they override what the
      function asks for. Default: about five seconds of work.
    - `task_size`: rows in a unit of work. Default: chosen from the measured cost.
    - `task_shuffle_diversity`: hand out units of this many fragments in turn; 1 completes one fragment after the other.
      Default: all fragments; the next unit is from the one with the most rows left.
    - `commit_granularity`: fragments between commits. Default: about every five seconds, or a tenth of the job.
    - `commit_rows`: rows between commits, also of fragments that the job is still computing. Until they are computed,
      other rows are NULL, and `row_states` counts them separately. Not allowed with `where` or `read_version`. Default:
      the job commits whole fragments. After ten seconds without a commit, it commits the checkpointed rows; that
      interval doubles each time.
    - `on_stale_input`: what to do if computed columns that the column reads, directly or not, are stale or not computed
      yet. `"error"`, the default, refuses the job (InputColumnStale). `"first"` computes all rows of those inputs
      first. `"warn"` computes from the existing values, with a warning; once the inputs are computed, the new values
      are stale.
    - `num_frags`: compute at most this many fragments, for a sample run. Default: all.
    - `optimize_indices`: once the values are in the table, update the indexes on the column, as
      `Table.optimize_indices` does. Default: no; `Job.stale_indices` then lists the indexes that leave rows out.
    """

    where: str | None
    read_version: int | str | None
    concurrency: int | None
    intra_applier_concurrency: int | None
    checkpoint_size: int | None
    min_checkpoint_size: int | None
    max_checkpoint_size: int | None
    task_size: int | None
    task_shuffle_diversity: int | None
    commit_granularity: int | None
    commit_rows: int | None
    num_frags: int | None
    optimize_indices: bool | None
    on_stale_input: OnStaleInput | None


@dataclass(frozen=True, slots=True)
class BackfillOptions:
    """Checked `BackfillParameters`. Raises InvalidArgument (a ValueError)."""

    where: str | None = None
    read_version: int | str | None = None
    concurrency: int | None = None
    intra_applier_concurrency: int | None = None
    checkpoint_size: int | None = None
    min_checkpoint_size: int | None = None
    max_checkpoint_size: int | None = None
    task_size: int | None = None
    task_shuffle_diversity: int | None = None
    commit_granularity: int | None = None
    commit_rows: int | None = None
    num_frags: int | None = None
    optimize_indices: bool | None = None
    on_stale_input: OnStaleInput | None = None

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> BackfillOptions:
        """Return the checked parameters. Raises TypeError for an unknown name, and InvalidArgument."""
        names = [field.name for field in fields(cls)]
        for name in parameters:
            if name not in names:
                close = difflib.get_close_matches(name, names, 1)
                hint = f"did you mean {close[0]}?" if close else f"its parameters are {', '.join(names)}"
                raise TypeError(f"a backfill has no parameter {name!r}: {hint}")
        return cls(**parameters)

    def __post_init__(self) -> None:
        for name in (*_INT32, *_INT64, *_BOUNDS, "read_version"):
            value = getattr(self, name)
            tag = name == "read_version" and isinstance(value, str) and value.strip()
            if value is not None and not tag:
                _check_count(name, value)
        if self.optimize_indices not in (None, True, False):
            raise InvalidArgument(f"optimize_indices is True or False, not {self.optimize_indices!r}")
        on_stale_input_to_wire(self.on_stale_input)
        check_where(self.where)
        smallest, largest = self.min_checkpoint_size, self.max_checkpoint_size
        if smallest is not None and largest is not None and smallest > largest:
            raise InvalidArgument(f"min_checkpoint_size ({smallest}) is above max_checkpoint_size ({largest})")

    def spec(
        self, table: catalog_pb2.TableRef, column: str, udf_name: str, udf_version: str
    ) -> planner_pb2.BackfillSpec:
        bounds = {name: getattr(self, name) for name in _BOUNDS}
        spec = planner_pb2.BackfillSpec(
            table=table,
            column=column,
            udf=function_ref(udf_name, udf_version) if udf_name else None,
            where=self.where or "",
            checkpoint=udf_pb2.CheckpointBounds(**bounds),
            optimize_indices=bool(self.optimize_indices),
            on_stale_input=on_stale_input_to_wire(self.on_stale_input),
            **{name: getattr(self, name) for name in (*_INT32, *_INT64)},
        )
        if isinstance(self.read_version, int):
            spec.read_version = self.read_version
        elif self.read_version is not None:
            spec.read_tag = self.read_version
        return spec


def on_stale_input_to_wire(value: object) -> planner_pb2.OnStaleInput.ValueType:
    """Return the value for the wire; None leaves it to the service. Raises InvalidArgument."""
    if value is None:
        return planner_pb2.ON_STALE_INPUT_UNSPECIFIED
    found = _ON_STALE_INPUT.get(value) if isinstance(value, str) else None
    if found is None:
        raise InvalidArgument(f"on_stale_input is 'error', 'warn' or 'first', not {value!r}")
    return found


_ON_STALE_INPUT = {
    "error": planner_pb2.ON_STALE_INPUT_ERROR,
    "warn": planner_pb2.ON_STALE_INPUT_WARN,
    "first": planner_pb2.ON_STALE_INPUT_FIRST,
}
#: The number fields of BackfillSpec by their type on the wire, and those of its message about checkpoints.
_INT32 = ("concurrency", "intra_applier_concurrency", "task_shuffle_diversity", "commit_granularity", "num_frags")
_INT64 = ("task_size", "commit_rows")
_BOUNDS = ("checkpoint_size", "min_checkpoint_size", "max_checkpoint_size")


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidArgument(f"{name} is a whole number, 1 or more, not {value!r}", facts={"field": name})
    if value >= 1 << (31 if name in _INT32 else 63):
        raise InvalidArgument(f"{name}={value} is too large", facts={"field": name})


def check_where(where: Any) -> None:
    """Raise InvalidArgument unless `where` is None or a text that is not blank."""
    if where is not None and (not isinstance(where, str) or not where.strip()):
        raise InvalidArgument(f'where is a SQL expression such as "size > 10", not {where!r}', facts={"field": "where"})
