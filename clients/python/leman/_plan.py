"""A plan, as a dry run shows it."""

from __future__ import annotations

from dataclasses import dataclass

from leman._shown import Shown
from leman._table_model import KeptRows, ReasonCount, StaleInput

REASONS = {
    "REUSED": "written by this function version, or by one whose values are kept, from these inputs",
    "STAGED": "computed, not committed yet",
    "MISSING": "never computed",
    "UDF_CHANGED": "computed by another version of the function",
    "INPUT_CHANGED": "computed from data that has changed since",
    "PARTIAL": "some rows computed, some not",
    "EXTERNAL_WRITE": "values that Leman did not compute, or that an update moved",
    "REUSED_FILTER": "all that the filter asks for is computed",
    "REUSED_COMPACTED": "computed before compaction moved its rows",
    "PAST_INPUT": "inputs have moved on: gets the values of read_version, the next plain run makes them current",
    "HISTORY_LOST": "perhaps moved by compaction: the versions that would tell were cleaned away",
}
"""What each reason means for a fragment."""


@dataclass(frozen=True, slots=True)
class FragmentDecision:
    """What is to be done about one fragment. `missing`: physical offsets (start, end) that nothing covers."""

    fragment_id: int
    reason: str
    rows: int
    missing: tuple[tuple[int, int], ...]
    checkpoints_reused: int


@dataclass(frozen=True, slots=True)
class Plan(Shown):
    """What a backfill would do, and why. `fragments`: the first few with work; `kept`: rows that stay although an
    earlier version of the function computed them; `inputs_version`: the one that `read_version` asked to
    compute from, 0: the table's; `expected_seconds`: what it will take about, from the column's last backfill (None: it
    had none); `stale_inputs`: computed columns that it rests on and that are not current, inputs before what reads
    them; `str()` is for people."""

    table: str
    column: str
    udf_name: str
    udf_version: str
    input_columns: tuple[str, ...]
    read_version: int
    where: str
    rows_total: int
    rows_reused: int
    rows_to_compute: int
    rows_failed_before: int
    reasons: tuple[ReasonCount, ...]
    fragments: tuple[FragmentDecision, ...]
    summary: str
    kept: tuple[KeptRows, ...] = ()
    inputs_version: int = 0
    expected_seconds: float | None = None
    stale_inputs: tuple[StaleInput, ...] = ()

    def __str__(self) -> str:
        inputs = ", ".join(self.input_columns)
        lines = [
            f"{self.table}.{self.column} = {self.udf_name}({inputs})",
            f"  function version {self.udf_version}, table version {self.read_version}"
            + (f", rows as in version {self.inputs_version}" if self.inputs_version else "")
            + (f", where {self.where}" if self.where else ""),
            f"  {self.rows_to_compute:,} of {self.rows_total:,} rows to compute, {self.rows_reused:,} reused"
            + (f", {self.rows_failed_before:,} failed before" if self.rows_failed_before else ""),
        ]
        lines += [
            f"  {kept.rows:,} rows keep values of {kept.udf_name}@{kept.udf_version}: alter_columns() to"
            f" {self.udf_name}@{self.udf_version} makes them stale"
            for kept in self.kept
        ]
        lines += [f"  it rests on {stale}" for stale in self.stale_inputs]
        if self.reasons:
            rows = [("fragments", "rows", "reason", "")]
            rows += [(f"{r.fragments:,}", f"{r.rows:,}", r.reason, REASONS.get(r.reason, "")) for r in self.reasons]
            widths = [max(len(row[i]) for row in rows) for i in range(3)]
            lines.append("")
            lines += [f"  {a:>{widths[0]}}  {b:>{widths[1]}}  {c:<{widths[2]}}  {d}".rstrip() for a, b, c, d in rows]
        return "\n".join([*lines, "", f"  {self.summary}"] if self.summary else lines)
