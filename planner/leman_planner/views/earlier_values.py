"""Which versions of a view may have values that a refresh needs again. Pure.

A row that is the same in two versions of a source is the same in all those between, unless the source was restored. So
of the states that a view remembers only the nearest ones are looked at, and none that lies behind what the view is: a
source that is only written to costs nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from leman_core.model.errors import FailedPrecondition
from leman_core.model.refresh import ChangeKind, EarlierValues, RefreshMode, RefreshPlan, RefreshReason, SourceChange
from leman_core.model.table import Fragment, TableSnapshot
from leman_core.model.udf import UdfKind
from leman_core.model.view import EarlierState, ViewDefinition, ViewFunction
from leman_planner.views.refresh_planning import Case, broken_link
from leman_planner.views.source_diff import changes

#: How many of the last states are looked at where the source was restored: it may have rows of any version then.
_RESTORED = 3
_COMPUTED = {ChangeKind.APPEARED, ChangeKind.REWRITTEN, ChangeKind.DELETIONS}

#: The definition in an earlier version of the view; None: it was cleaned away.
Recall = Callable[[int], ViewDefinition | None]
#: The case of a refresh from an earlier version of the view to a version of the source.
CaseOf = Callable[[ViewDefinition, TableSnapshot], Case]


@dataclass(frozen=True, slots=True)
class _Step:
    """What is computed next: columns of these functions, at the source version `goal`."""

    functions: Sequence[ViewFunction]
    goal: TableSnapshot
    #: Whether rows of the view as it is are as good as those of an earlier state, but for columns of another function
    #: version.
    from_here: bool
    #: Whether rows of the source may be older than the view.
    restored: bool = False
    #: Whether rows that stay as they are are computed too.
    whole: bool = False


def state_of(case: Case) -> EarlierState | None:
    """Return what the view is now; None where its source version is not known any more."""
    if case.base is None:
        return None
    base = case.definition.base_version
    return EarlierState(
        view_version=case.view.version,
        source_version=base,
        computed=case.definition.computed,
        last_fragment=_last_fragment(case.base),
    )


def values_of(plan: RefreshPlan, case: Case, recall: Recall, case_of: CaseOf) -> Iterator[EarlierValues]:
    """Yield earlier versions with values for the plan's first step that calls functions, the best first."""
    step = _next_step(plan, case)
    if step is None:
        return
    if step.from_here:
        yield from _of_now(plan, case, whole=step.whole)
    for state, columns in _chosen(step, case.definition):
        definition = recall(state.view_version)
        if definition is None or definition.base_version != state.source_version:
            continue
        found = _changes(case_of, definition, step.goal)
        if found is not None:
            yield EarlierValues(view_version=state.view_version, definition=definition, columns=columns, changes=found)


def told(earlier: Sequence[EarlierValues]) -> str:
    """Return the end of a plan's message, which names the earlier versions."""
    if not earlier:
        return ""
    versions = " and ".join(dict.fromkeys(str(found.view_version) for found in earlier))
    return f". Rows that are as they were in version {versions} of the view have their values from there"


def _next_step(plan: RefreshPlan, case: Case) -> _Step | None:
    full = plan.mode is RefreshMode.FULL
    functions = [function.column for function in plan.functions]
    if not functions or plan.unset or plan.reason is RefreshReason.FORCED:
        return None
    if plan.stale and not full and not plan.changes:
        return _Step([f for f in functions if f.name in plan.stale], case.target, False)
    if full:
        return None if plan.create_placeholders_again else _Step(functions, case.target, False, restored=True)
    restored = _is_restored(case, plan.changes)
    if plan.stale:
        return _Step(functions, case.target, True, restored, whole=True)
    bounded = case.definition.query.limit is not None or case.definition.query.offset
    if not plan.changes or not (bounded or any(change.kind in _COMPUTED for change in plan.changes)):
        return None
    return _Step(functions, case.target, True, restored)


def _of_now(plan: RefreshPlan, case: Case, *, whole: bool) -> Iterator[EarlierValues]:
    """Yield the view as it is, for functions whose values there can stay.

    That is where rows of the source were rewritten of which one of the functions may read the same values, or where
    another function has to compute all rows (`whole`).
    """
    rewritten = {change for change in plan.changes if change.kind is ChangeKind.REWRITTEN}
    kinds = {change.kind for change in plan.changes}
    moved = ChangeKind.APPEARED in kinds and not kinds.isdisjoint({ChangeKind.GONE, ChangeKind.DELETIONS})
    if case.base is None or not (rewritten or moved or whole):
        return
    for resolved in plan.functions:
        function = resolved.column
        if case.definition.computed.get(function.name) != function.identity:
            continue
        alone = replace(case.definition.query, columns=(), where="", functions=(function,))
        found = changes(alone, case.base, case.target, case.compactions)
        is_dear = resolved.udf.kind is not UdfKind.SQL
        if whole or is_dear or not rewritten.issubset(found):
            yield EarlierValues(
                view_version=case.view.version,
                definition=replace(case.definition, query=alone),
                columns=(function.name,),
                changes=found,
            )


def _chosen(step: _Step, definition: ViewDefinition) -> Iterator[tuple[EarlierState, tuple[str, ...]]]:
    wanted: dict[int, tuple[EarlierState, list[str]]] = {}
    for function in step.functions:
        fitting = [s for s in definition.earlier if s.computed.get(function.name) == function.identity]
        current = definition.computed.get(function.name) == function.identity
        for state in _nearest(step, fitting, definition.base_version if step.from_here and current else None):
            wanted.setdefault(state.view_version, (state, []))[1].append(function.name)
    goal = step.goal.version
    for state, columns in sorted(wanted.values(), key=lambda found: abs(found[0].source_version - goal)):
        yield state, tuple(columns)


def _nearest(step: _Step, states: Sequence[EarlierState], here: int | None) -> Iterable[EarlierState]:
    """Return, of states with a column's values, the one of the very version, or the next ones on both sides of it.

    Args:
        here: the source version of the view, where its own values are as good; None elsewhere.
    """
    goal = step.goal.version
    exact = [s for s in states if s.source_version == goal]
    if exact:
        return exact[:1]
    before = max((s for s in states if s.source_version < goal), key=lambda s: s.source_version, default=None)
    after = min((s for s in states if s.source_version > goal), key=lambda s: s.source_version, default=None)
    if here is not None and before is not None and before.source_version < here < goal:
        before = None
    if here is not None and after is not None and goal < here < after.source_version:
        after = None
    found = {s.view_version: s for s in (before, after) if s is not None}
    if step.restored:
        found |= {s.view_version: s for s in states[:_RESTORED]}
    return found.values()


def _is_restored(case: Case, found: Sequence[SourceChange]) -> bool:
    """Tell whether a later version of the source has what looks older than the view.

    That is: fragments with ids that were given out before, deleted rows that are back, or columns with other files,
    which may be those of before.
    """
    if case.base is None or case.target.version < case.base.version:
        return False
    last = max([_last_fragment(case.base), *(state.last_fragment for state in case.definition.earlier)])
    before = {f.fragment_id: f for f in case.base.fragments}
    now = {f.fragment_id: f for f in case.target.fragments}
    return any(_is_older(change, before, now, last) for change in found)


def _last_fragment(source: TableSnapshot) -> int:
    return max((fragment.fragment_id for fragment in source.fragments), default=-1)


def _is_older(change: SourceChange, before: dict[int, Fragment], now: dict[int, Fragment], last: int) -> bool:
    if change.kind is ChangeKind.APPEARED:
        return change.fragment_id <= last
    if change.kind is ChangeKind.DELETIONS:
        return now[change.fragment_id].deleted_rows < before[change.fragment_id].deleted_rows
    return change.kind is ChangeKind.REWRITTEN


def _changes(case_of: CaseOf, definition: ViewDefinition, goal: TableSnapshot) -> tuple[SourceChange, ...] | None:
    """Return the changes between the source version of an earlier state and the one to compute for; None: unknown."""
    try:
        case = case_of(definition, goal)
    except FailedPrecondition:  # its record may not be read
        return None
    if broken_link(case) is not None or case.base is None:
        return None
    return changes(case.definition.query, case.base, case.target, case.compactions)
