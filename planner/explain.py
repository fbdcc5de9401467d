"""A plan in words. Pure."""

from __future__ import annotations

from core.domain.plan import SETTLED, Plan, PlanHeader


def summarise(plan: Plan) -> str:
    """One sentence for a person."""
    header = plan.header
    fragments = sum(count.fragments for count in header.reasons)
    current = sum(count.fragments for count in header.reasons if count.reason in SETTLED)
    if not fragments:
        return "the table has no rows: nothing to do"
    if current == fragments:
        return f"{current:,} of {fragments:,} fragments are current: nothing to do{_failed(header)}"
    parts = [f"{len(plan.tasks):,} of {fragments:,} fragments to do ({_why(header)})"]
    parts.append(f"about {header.rows_to_compute:,} rows to compute")
    if len(plan.tasks) < fragments - current:
        parts.append(f"{fragments - current - len(plan.tasks):,} left for later by num_frags")
    parts.append(f"{current:,} reused{_failed(header)}")
    return "; ".join(parts)


def _why(header: PlanHeader) -> str:
    open_counts = [count for count in header.reasons if count.reason not in SETTLED]
    return ", ".join(f"{count.fragments:,} {count.reason.value.replace('_', ' ')}" for count in open_counts)


def _failed(header: PlanHeader) -> str:
    failed = header.rows_failed_before
    return f"; {failed:,} rows failed before and stay failed" if failed else ""
