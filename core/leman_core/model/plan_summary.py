"""A plan in words: `leman plan` and a job's summary say the same. Pure."""

from __future__ import annotations

from leman_core.model.plan import SETTLED, KeptRows, Plan, PlanHeader, Reason


def summarise(plan: Plan) -> str:
    """Sum a plan up in one sentence for a person."""
    header = plan.header
    fragments = sum(count.fragments for count in header.reasons)
    current = sum(count.fragments for count in header.reasons if count.reason in SETTLED)
    if not fragments:
        return "the table has no rows: nothing to do"
    notes = _notes(header)
    if header.failed_only:
        return "; ".join([_failed_rows(plan, fragments), *notes])
    if current == fragments:
        settled = f"{current:,} of {fragments:,} fragments are current"
        return "; ".join([settled if header.stale_inputs else f"{settled}: nothing to do", *notes])
    parts = [f"{len(plan.tasks):,} of {fragments:,} fragments to do ({_why(header)})"]
    parts.append(f"about {_rows(header.rows_to_compute)} to compute")
    if len(plan.tasks) < fragments - current:
        parts.append(f"{fragments - current - len(plan.tasks):,} left for later by num_frags")
    parts.append(f"{_rows(header.rows_reused)} reused")
    if rewritten := sum(compared.rows for compared in plan.compared):
        parts.append(
            f"{_rows(rewritten)} rewritten by others: the job compares their inputs and computes those that differ"
        )
    return "; ".join([*parts, *notes])


def _failed_rows(plan: Plan, fragments: int) -> str:
    if not plan.tasks:
        return "no row is marked as failed: nothing to do"
    rows = plan.header.rows_to_compute
    staged = sum(task.staged is not None for task in plan.tasks)
    again = f"{rows:,} failed rows to try again in {len(plan.tasks):,} of {fragments:,} fragments"
    return again + (f", {staged:,} of them only to be committed" if staged else "")


def _why(header: PlanHeader) -> str:
    open_counts = [count for count in header.reasons if count.reason not in SETTLED]
    return ", ".join(f"{count.fragments:,} {count.reason.value.replace('_', ' ')}" for count in open_counts)


def _notes(header: PlanHeader) -> list[str]:
    """Say what stays as it is although someone may want it otherwise."""
    notes = []
    if header.rows_failed_before:
        notes.append(f"{header.rows_failed_before:,} rows failed before and stay failed")
    if header.rows_not_computed:
        notes.append(f"{header.rows_not_computed:,} rows are not computed: a backfill computes them")
    past = sum(count.rows for count in header.reasons if count.reason is Reason.PAST_INPUT)
    if past:
        notes.append(
            f"{past:,} rows get the values of version {header.inputs_version}, as inputs have moved on: the next run "
            "without read_version makes them current"
        )
    notes += [
        f"it rests on {stale.column}, of which {stale.rows:,} rows are stale or not computed yet"
        for stale in header.stale_inputs
    ]
    notes += [f"it replaces {_values(header, other)}" for other in header.replaced]
    notes += [f"{kept.rows:,} rows keep values of {kept.function}" for kept in header.kept]
    return notes


def _values(header: PlanHeader, other: KeptRows) -> str:
    most = "up to " if header.where else ""
    return f"values of {other.function} in {most}{_rows(other.rows)}"


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"
