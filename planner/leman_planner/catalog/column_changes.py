"""Compare requested columns with existing ones, and estimate what a change costs. No I/O."""

from __future__ import annotations

import difflib
import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leman._format.column_bindings import ColumnBinding, FunctionVersion
from leman._format.stored_functions import UdfDefinition
from leman_core.functions import column_checks
from leman_core.functions.column_checks import NewColumn
from leman_core.model.job import Job
from leman_core.model.plan import SETTLED, PlanHeader, Reason
from leman_core.model.service_errors import FailedPrecondition
from leman_core.model.table import TableField, TableSnapshot
from leman_planner.planning.request_resolution import check_inputs

_UNITS = (("second", 1.0, 90.0), ("minute", 60.0, 90.0 * 60), ("hour", 3600.0, 36.0 * 3600))
_DAY = 24 * 3600.0


#: The measured rows, or the seconds in the function, that an estimate needs. With fewer, most of the time is that of
#: opening and closing files.
_ENOUGH_ROWS = 20
_ENOUGH_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class RunTime:
    """The number of rows that backfills computed, their seconds of wall time, and the seconds within the function."""

    rows: int = 0
    seconds: float = 0.0
    function_seconds: float = 0.0

    def __add__(self, other: RunTime) -> RunTime:
        function_seconds = self.function_seconds + other.function_seconds
        return RunTime(self.rows + other.rows, self.seconds + other.seconds, function_seconds)

    @property
    def is_enough(self) -> bool:
        """Return whether this run time is enough to estimate the time of other rows."""
        return self.rows >= _ENOUGH_ROWS or self.function_seconds >= _ENOUGH_SECONDS

    def of(self, rows: int) -> float:
        """Return the estimated seconds for a number of rows."""
        return self.seconds / self.rows * rows


def run_time(job: Job) -> RunTime | None:
    """Return the run time of a job, or None if it has not ended or called no function.

    It is the total time of the job's workers divided by the number of concurrent workers, without fixed costs such as
    starting Spark.
    """
    progress = job.progress
    wall = job.ended_at - job.started_at
    work = progress.udf_seconds + progress.read_seconds + progress.checkpoint_seconds + progress.write_seconds
    if not job.state.terminal or not job.started_at or not progress.rows_evaluated or wall <= 0 or work <= 0:
        return None
    at_once = max(1.0, work / wall)
    return RunTime(progress.rows_evaluated, work / at_once, progress.udf_seconds)


def estimate_text(seconds: float) -> str:
    """Describe a duration as an estimate, such as `about 12 minutes`."""
    if seconds < 1:
        return "less than a second"
    for unit, length, below in _UNITS:
        if seconds < below:
            return _counted(seconds / length, unit)
    return _counted(seconds / _DAY, "day")


def _counted(number: float, unit: str) -> str:
    whole = max(1, round(number))
    return f"about {whole:,} {unit}" + ("s" if whole != 1 else "")


#: The maximum number of characters in a diff.
_DIFF = 16 << 10
#: The maximum number of characters in all diffs of an error.
_DIFF_IN_ERROR = 900
#: Reasons for computing rows for the first time.
_NEVER = frozenset({Reason.MISSING, Reason.PARTIAL})
#: Reasons for computing rows again.
_STALE = frozenset(Reason) - _NEVER - SETTLED - {Reason.STAGED}


class OnChange(enum.Enum):
    """What to do with an existing computed column; see `protos/leman/v1/catalog.proto`."""

    REFUSE_ANY = enum.auto()
    ERROR = enum.auto()
    UPDATE = enum.auto()
    KEEP = enum.auto()


class Outcome(enum.Enum):
    """What was done with a column."""

    ADDED = enum.auto()
    UNCHANGED = enum.auto()
    UPDATED = enum.auto()
    KEPT = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnOutcome:
    """What was, or would be, done with a column; see `protos/leman/v1/catalog.proto`."""

    column: str
    outcome: Outcome
    function: FunctionVersion
    before: FunctionVersion | None = None
    diff: str = ""
    rows_stale: int = 0
    rows_not_computed: int = 0
    #: The number of rows that unfinished jobs have computed with the present definition, but not committed.
    rows_stored: int = 0
    expected_seconds: float | None = None
    #: Differences other than those of the functions' sources, as text.
    notes: tuple[str, ...] = ()
    #: Whether values of the present definition, committed or not, exist. The change would make them stale.
    has_values: bool = True
    #: The number of rows, committed or stored, that are finished with the present definition but not with the new one.
    rows_lost: int = 0
    #: Rows that the next backfill does not compute, because their values of the new definition are still stored.
    rows_found: int = 0
    #: Stale rows that the next backfill first compares with earlier versions.
    rows_compared: int = 0
    #: Whether lost rows can be kept.
    can_keep: bool = False
    #: The inputs of the present function.
    inputs_before: tuple[str, ...] = ()
    #: The request's `on_change`, or None if the column was altered.
    on_change: OnChange | None = OnChange.ERROR

    @property
    def summary(self) -> str:
        """Return a sentence such as `score changed: 4,000 rows stale, recomputed by the next backfill`."""
        if self.outcome is Outcome.ADDED:
            return f"{self.column} is new: {self.rows_not_computed:,} rows not computed yet"
        if self.outcome is Outcome.UNCHANGED:
            return f"{self.column} is unchanged"
        if self.before is None:
            return f"{self.column} changed"
        parts = ["its values are kept"] if self.outcome is Outcome.KEPT else self._rows_again()
        if self.rows_found:
            rows = "1 row gets" if self.rows_found == 1 else f"{self.rows_found:,} rows get"
            parts.append(f"{rows} back stored values of {self.function}")
        if self.rows_not_computed:
            parts.append(f"{self.rows_not_computed:,} not computed yet")
        if self.expected_seconds is not None and self.rows_stale + self.rows_stored + self.rows_not_computed:
            parts.append(estimate_text(self.expected_seconds))
        return f"{self.column} changed: {', '.join(parts)}{self._how_to_keep()}"

    def _rows_again(self) -> list[str]:
        most = "up to " if self.rows_compared else ""
        if self.rows_lost and (self.rows_stored or self.on_change is None):
            would = "would" if self.on_change is OnChange.ERROR else "will"
            parts = [f"{most}{self.rows_lost:,} finished rows {would} be computed again"]
            if others := self.rows_stale + self.rows_stored - self.rows_lost:
                parts.append(f"{others:,} others that were not current")
            return parts
        if self.rows_found and not self.rows_stale:
            return []
        parts = [f"{most}{self.rows_stale:,} rows stale"]
        if self.rows_stale and self.on_change is not OnChange.ERROR:
            parts.append("computed again by the next backfill")
        return parts

    def _how_to_keep(self) -> str:
        if not self.can_keep or not self.rows_lost:
            return ""
        if self.on_change is None:
            before = f"{self.before}({', '.join(self.inputs_before)})"
            return f"; to keep them, give {self.column} {before} again, then {self.function} with keep_values"
        return "; on_change='keep' keeps them" if self.rows_stored and self.on_change is OnChange.ERROR else ""


def inputs_asked(
    column: NewColumn, udf: UdfDefinition, bound: ColumnBinding, table: TableSnapshot
) -> tuple[TableField, ...]:
    """Return the input columns that a request lists for an existing computed column.

    If the table no longer has a column of a listed name, the name stands for the input that had this name when the
    column was bound. Computed columns follow renames of their inputs, so a program that still lists the old names can
    run again.

    Raises:
        FailedPrecondition: As `column_checks.find_inputs` and `check_inputs`.
    """
    names = list(column.input_columns or udf.input_columns)
    for at, (name, known) in enumerate(zip(names, bound.inputs, strict=False)):
        renamed = table.find_id(known.field_id) if known.name == name and table.find(name) is None else None
        if renamed is not None:
            names[at] = renamed.name
    inputs = column_checks.find_inputs(names, udf, table)
    check_inputs(column.name, inputs, udf)
    return inputs


def is_same(udf: UdfDefinition, inputs: Sequence[TableField], bound: ColumnBinding, table: TableSnapshot) -> bool:
    """Return whether a column is already bound to this function with these inputs."""
    return bound.function == (udf.name, udf.version) and input_names(bound, table) == _names(inputs)


def difference_notes(
    udf: UdfDefinition,
    inputs: Sequence[TableField],
    bound: ColumnBinding,
    table: TableSnapshot,
    registered: UdfDefinition | None = None,
) -> tuple[str, ...]:
    """Describe the differences between a column and the request.

    Args:
        udf: The function of the request.
        inputs: Its inputs.
        bound: The column's binding.
        table: The table.
        registered: The column's present function, if it is still registered.
    """
    found = []
    if bound.function != (udf.name, udf.version):
        found.append(f"{bound.function} → {FunctionVersion(udf.name, udf.version)}")
        if registered is not None and _text(registered) == _text(udf) != "":
            found.append("their sources are equal; values that they use may differ")
    if (before := input_names(bound, table)) != (now := _names(inputs)):
        found.append(f"its inputs change from {', '.join(before)} to {', '.join(now)}")
    if not found and bound.kept:
        found.append(f"values of {', '.join(map(str, bound.kept))} are no longer kept")
    return tuple(found)


def source_diff(before: UdfDefinition | None, after: UdfDefinition) -> str:
    """Return a unified diff of two functions' sources, or "" if one is unknown or they are equal."""
    old, new = ("", "") if before is None else (_text(before), _text(after))
    if not old or not new or before is None:
        return ""
    was, now = (str(FunctionVersion(udf.name, udf.version)) for udf in (before, after))
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), was, now, n=2, lineterm="")
    return _cut("\n".join(lines), _DIFF)


def rows_lost(before: PlanHeader, after: PlanHeader) -> tuple[int, int]:
    """Return how many rows are finished in `before` but not in `after`, and how many of these are only stored.

    Stored rows were computed by an unfinished job, and are not in the table yet.
    """
    lost = max(0, after.rows_to_compute - before.rows_to_compute)
    stale, first = rows_by_need(after)
    was_stale = min(sum(count.rows for count in before.reasons if count.reason in _STALE), before.rows_to_compute)
    return lost, min(first, lost - min(lost, max(0, stale - was_stale)))


def rows_by_need(header: PlanHeader) -> tuple[int, int]:
    """Return how many rows a plan computes again, and how many for the first time."""
    never = sum(count.rows for count in header.reasons if count.reason in _NEVER)
    first = min(never, header.rows_to_compute)
    return header.rows_to_compute - first, first


def column_changed_error(outcomes: Iterable[ColumnOutcome]) -> FailedPrecondition:
    """Return the error for columns that exist with other definitions."""
    found = list(outcomes)
    diffs = "\n".join(outcome.diff for outcome in found if outcome.diff)
    shown = f"\n{_cut(diffs, _DIFF_IN_ERROR)}" if diffs else ""
    details = "; ".join(f"{o.summary} ({', '.join(o.notes)})" for o in found)
    return FailedPrecondition(
        "COLUMN_CHANGED",
        f"{details}. Nothing was changed. Set on_change: with 'update' the next backfill computes the rows again; with "
        f"'keep' the stored values count as current{shown}",
        columns=", ".join(outcome.column for outcome in found),
        rows_stale=sum(outcome.rows_stale for outcome in found),
        rows_stored=sum(outcome.rows_stored for outcome in found),
        diff=diffs,
    )


def _text(udf: UdfDefinition) -> str:
    return udf.source or udf.sql_expression


def _names(fields: Sequence[TableField]) -> list[str]:
    return [field.name for field in fields]


def input_names(bound: ColumnBinding, table: TableSnapshot) -> list[str]:
    """Return the present names of a column's inputs, or the former name of an input that is gone."""
    found = ((known, table.find_id(known.field_id) or table.find(known.name)) for known in bound.inputs)
    return [known.name if field is None else field.name for known, field in found]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\n…"
