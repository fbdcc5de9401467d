"""Decide what a refresh has to do, and which earlier versions of the view have values for it. Pure.

The same snapshots and compactions always give the same plan. The names of files that Leman wrote show which fragments
of a view have values. A row that is equal in two versions of a source is equal in all versions between them, unless the
source was restored. So the only useful earlier states of the view are those whose source version is nearest to the
target version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from leman._format.stored_functions import UdfKind
from leman._format.view_definitions import IS_SET, EarlierState, ViewDefinition, ViewFunction
from leman_core.model.service_errors import FailedPrecondition
from leman_core.model.table import Fragment, TableSnapshot, outlives_versions
from leman_core.model.view import (
    PLACEHOLDER_FILE_PREFIX,
    VIEW_FILE_PREFIX,
    ChangeKind,
    EarlierValues,
    RefreshMode,
    RefreshPlan,
    RefreshPolicy,
    RefreshReason,
    RefreshSpec,
    ResolvedFunction,
    SourceChange,
    UnsetFragment,
)
from leman_planner.views.source_changes import Compactions, changed_fragments, check_source, check_view


@dataclass(frozen=True, slots=True)
class ViewState:
    """Which fragments of a view have values."""

    #: Fragments without values.
    unset: tuple[UnsetFragment, ...]
    #: The number of other fragments.
    filled: int
    #: The number of rows that queries show.
    rows_set: int


def foreign_fragments(view: TableSnapshot) -> list[Fragment]:
    """Return the fragments with files that, by their names, compaction or another writer wrote."""
    column = _is_set_id(view)
    return [f for f in with_rows(view) if not f.file_of(column).startswith((PLACEHOLDER_FILE_PREFIX, VIEW_FILE_PREFIX))]


def with_rows(view: TableSnapshot) -> list[Fragment]:
    """Return the fragments with rows. Full refreshes and the recreation of placeholders leave empty fragments."""
    return [fragment for fragment in view.fragments if fragment.live_rows]


def classify_fragments(view: TableSnapshot, set_rows: Mapping[int, int]) -> ViewState:
    """Separate the filled fragments of a view from those to fill.

    If compaction merged placeholders and filled rows into one fragment, it counts as unset. Filling it again gives its
    filled rows the same values.

    Args:
        view: The view.
        set_rows: The number of live rows with values in `foreign_fragments`, by fragment id.
    """
    column = _is_set_id(view)
    unset: list[UnsetFragment] = []
    rows = 0
    fragments = with_rows(view)
    for fragment in fragments:
        found = _rows_set(fragment, fragment.file_of(column), set_rows)
        rows += found
        if found < fragment.live_rows:
            unset.append(UnsetFragment(fragment.fragment_id, fragment.physical_rows, fragment.deleted_rows))
    return ViewState(tuple(unset), len(fragments) - len(unset), rows)


def _rows_set(fragment: Fragment, file: str, set_rows: Mapping[int, int]) -> int:
    if file.startswith(VIEW_FILE_PREFIX):
        return fragment.live_rows
    return 0 if file.startswith(PLACEHOLDER_FILE_PREFIX) else set_rows.get(fragment.fragment_id, 0)


def _is_set_id(view: TableSnapshot) -> int:
    column = view.column(IS_SET)
    return -1 if column is None else column.field_id


_WORDS = {
    ChangeKind.APPEARED: "appeared",
    ChangeKind.GONE: "gone",
    ChangeKind.DELETIONS: "with other deleted rows",
    ChangeKind.REWRITTEN: "with rewritten columns",
}


@dataclass(frozen=True, slots=True)
class Case:
    """A view, with its source at the version that the last refresh recorded and at the target version."""

    view: TableSnapshot
    definition: ViewDefinition
    #: The source at the version of the last refresh, or None if that version was cleaned up.
    base: TableSnapshot | None
    target: TableSnapshot
    spec: RefreshSpec
    #: Returns the source's compactions between the two versions. Called only if fragments appeared and disappeared.
    compactions: Compactions = tuple
    #: Whether `base` comes from the view's own record of its source (`leman_core.storage.view_side_files`), because the
    #: recorded version was cleaned up.
    from_record: bool = False

    @property
    def moved(self) -> bool:
        return self.target.version != self.definition.base_version


@dataclass(frozen=True, slots=True)
class _Decision:
    mode: RefreshMode
    reason: RefreshReason
    message: str
    unset: tuple[UnsetFragment, ...] = ()
    create_placeholders_again: bool = False
    changes: tuple[SourceChange, ...] = ()


def plan_refresh(
    case: Case, functions: Sequence[ResolvedFunction], set_rows: Mapping[int, int] | None = None
) -> RefreshPlan:
    """Decide what a refresh has to do.

    Args:
        case: The view and its source.
        functions: The view's functions.
        set_rows: See `classify_fragments`.

    Raises:
        FailedPrecondition: STABLE_ROW_IDS_REQUIRED, FULL_REFRESH_NEEDED, SOURCE_COLUMN_MISSING, TYPE_MISMATCH,
            EXTERNAL_WRITES.
    """
    broken = broken_link(case)
    _check_row_ids(case, broken)
    check_view(case.view, case.definition)
    check_source(case.view, case.definition, None if broken else case.base, case.target, functions)
    stale = case.definition.stale
    decided = _decide(case, broken, classify_fragments(case.view, set_rows or {}), stale)
    return RefreshPlan(
        uri=case.view.uri,
        version=case.view.version,
        incarnation=case.view.incarnation,
        definition=case.definition,
        schema=case.view.schema,
        functions=tuple(functions),
        target_version=case.target.version,
        target_incarnation=case.target.identity,
        mode=decided.mode,
        reason=decided.reason,
        message=decided.message,
        unset=decided.unset,
        create_placeholders_again=decided.create_placeholders_again,
        changes=decided.changes,
        stale=stale,
        rows=case.view.live_rows,
        calls={name: _most_calls(case, decided, is_stale=name in stale) for name in map(_name, functions)},
        file_format="{}.{}".format(*case.view.file_format),
        identity=case.view.version_identity,
    )


def _name(function: ResolvedFunction) -> str:
    return function.column.name


def _most_calls(case: Case, decided: _Decision, *, is_stale: bool) -> int:
    """Return an upper bound of the rows that a function is called for.

    This reads no rows, so it considers neither the view's filter nor earlier values.
    """
    if decided.mode is RefreshMode.NO_OP:
        return 0
    query = case.definition.query
    every = case.target.live_rows if query.limit is None else min(query.limit, case.target.live_rows)
    if decided.create_placeholders_again or (decided.mode is RefreshMode.FULL and not decided.unset):
        return every
    placeholders = sum(unset.physical_rows - unset.deleted_rows for unset in decided.unset)
    shifts = query.limit is not None or query.offset  # a deleted row then makes room for another row
    changed = case.target.live_rows if decided.changes and shifts else _rows_changed(case, decided.changes)
    whole = case.view.live_rows if is_stale else placeholders
    return whole + min(every, changed)


def _rows_changed(case: Case, changes: Sequence[SourceChange]) -> int:
    """Return an upper bound of the source's rows with values that the view lacks."""
    before = {} if case.base is None else {fragment.fragment_id: fragment for fragment in case.base.fragments}
    kinds = {change.fragment_id: change.kind for change in changes}
    rows = 0
    for fragment in case.target.fragments:
        kind = kinds.get(fragment.fragment_id)
        if kind is ChangeKind.DELETIONS and fragment.deleted_rows > before[fragment.fragment_id].deleted_rows:
            continue
        rows += fragment.live_rows if kind is not None and kind is not ChangeKind.GONE else 0
    return rows


def broken_link(case: Case) -> RefreshReason | None:
    """Return why the source's changes since the recorded version cannot be determined, or None if they can."""
    recorded = case.definition.base_incarnation
    if case.base is not None and not case.from_record:
        # The target is a version of the same table, because Lance numbers both versions in one history.
        return None if case.base.identity == recorded else RefreshReason.SOURCE_REPLACED
    known = outlives_versions(recorded) and bool(case.target.incarnation)
    if known and case.target.incarnation != recorded:
        return RefreshReason.SOURCE_REPLACED
    if case.base is not None and (known or _is_one_table(case.base, case)):
        return None
    return RefreshReason.SOURCE_HISTORY_LOST


def _is_one_table(base: TableSnapshot, case: Case) -> bool:
    """Return whether both versions are of one table.

    They are if the target has a file of the recorded version, or a file into which compaction merged one.
    """
    names = {file.path for fragment in base.fragments for file in fragment.files}
    if any(file.path in names for fragment in case.target.fragments for file in fragment.files):
        return True
    compacted = (fragment for rewrite in case.compactions() for fragment in rewrite.old)
    return any(file.path in names for fragment in compacted for file in fragment.files)


def _check_row_ids(case: Case, broken: RefreshReason | None) -> None:
    version = case.definition.base_version
    if case.definition.format.value > 1 and case.target.stable_row_ids:
        return
    if case.target.stable_row_ids and broken is RefreshReason.SOURCE_REPLACED:
        problem, advice = "its source was created again", "Drop the view and create it again"
    elif case.definition.format.value > 1 or broken is RefreshReason.SOURCE_REPLACED:
        problem = "its source was created again without stable row IDs"
        advice = (
            "Create the source with stable row IDs (TableService.CreateTable does), then drop the view and create it "
            "again"
        )
    elif case.moved or broken is not None:
        problem = f"its source has no stable row IDs, and the view was created from version {version}"
        advice = (
            f"Refresh to the same version (`src_version={version}`), or recreate the source table with stable row IDs "
            "enabled (the default of TableService.CreateTable) and then the view"
        )
    else:
        return
    raise FailedPrecondition(
        "STABLE_ROW_IDS_REQUIRED",
        f"Cannot refresh materialized view to version {case.target.version}: {problem}. {advice}",
        source_version=version,
        target_version=case.target.version,
    )


def _decide(case: Case, broken: RefreshReason | None, state: ViewState, stale: Sequence[str]) -> _Decision:
    if case.spec.policy is RefreshPolicy.FULL:  # even if there are placeholders, which another refresh would fill first
        return _full(case, RefreshReason.FORCED)
    if state.unset and not state.filled:
        return _first_fill(case, broken, state)
    if broken is not None or case.base is None:
        return _full(case, broken or RefreshReason.SOURCE_HISTORY_LOST)
    found = changed_fragments(case.definition.query, case.base, case.target, case.compactions)
    if case.from_record and (state.unset or (found and case.definition.query.offset)):
        return _full(case, RefreshReason.SOURCE_HISTORY_LOST)  # the values of that version no longer exist
    if state.unset:
        unset = _count(len(state.unset), "fragment")
        message = f"An earlier fill was interrupted: {unset} of the view have no values yet"
        reason = RefreshReason.FIRST_FILL
    elif case.moved and (found or not stale):
        message, reason = _what_changed(case, found), RefreshReason.SOURCE_CHANGED
        message += f". {_other_functions(stale)}" if stale else ""
    elif stale:
        message, reason = _other_functions(stale), RefreshReason.FUNCTION_CHANGED
    else:
        message = f"The view is already current for version {case.target.version} of its source"
        return _Decision(RefreshMode.NO_OP, RefreshReason.UP_TO_DATE, message)
    return _Decision(RefreshMode.INCREMENTAL, reason, message, state.unset, changes=found)


def _first_fill(case: Case, broken: RefreshReason | None, state: ViewState) -> _Decision:
    rows = case.spec.max_rows_per_fragment
    other = case.moved or broken is not None
    message = f"No row has values yet: {_count(len(state.unset), 'fragment')} of placeholders"
    if other:
        message += f", created again for version {case.target.version} of the source"
    elif again := bool(rows) and not _created_by(case.view, rows):
        message += f", created again with {rows} rows in each"
        return _Decision(
            RefreshMode.FULL, RefreshReason.FIRST_FILL, message, state.unset, create_placeholders_again=again
        )
    return _Decision(RefreshMode.FULL, RefreshReason.FIRST_FILL, message, state.unset, create_placeholders_again=other)


def _created_by(view: TableSnapshot, rows: int) -> bool:
    """Return whether each fragment but the last has exactly `rows` rows."""
    sizes = [fragment.physical_rows for fragment in with_rows(view)]
    return all(size == rows for size in sizes[:-1]) and all(size <= rows for size in sizes[-1:])


def _full(case: Case, reason: RefreshReason) -> _Decision:
    version = case.definition.base_version
    why = {
        RefreshReason.FORCED: "A full refresh was requested",
        RefreshReason.SOURCE_REPLACED: "The source was dropped and created again",
        RefreshReason.SOURCE_HISTORY_LOST: f"Version {version} of the source, from which the view was computed, "
        "was cleaned up, so that later changes cannot be determined",
    }[reason]
    if case.spec.policy is RefreshPolicy.INCREMENTAL:
        raise FailedPrecondition(
            "FULL_REFRESH_NEEDED",
            f"{why}. A full refresh is needed: allow it with POLICY_AUTO, or request it with POLICY_FULL",
            why=reason.name,
        )
    return _Decision(RefreshMode.FULL, reason, f"{why}: every row is computed, while the view stays readable")


def _other_functions(stale: Sequence[str]) -> str:
    return f"A new function version computes {', '.join(stale)} for every row"


def _what_changed(case: Case, found: Sequence[SourceChange]) -> str:
    step = f"The source changed from version {case.definition.base_version} to {case.target.version}"
    if case.from_record:
        step += ", and the former was cleaned up: the view's record of it is compared"
    if not found:
        return f"{step}: nothing that the view reads changed; only the new version is recorded"
    counts = Counter(change.kind for change in found)
    listed = ", ".join(f"{counts[kind]} {word}" for kind, word in _WORDS.items() if counts[kind])
    return f"{step}. Its fragments: {listed}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


#: The number of latest states to consider if the source was restored. A restore may bring back rows of any version.
_RESTORED = 3
_COMPUTED = {ChangeKind.APPEARED, ChangeKind.REWRITTEN, ChangeKind.DELETIONS}

#: Returns the definition in an earlier version of the view, or None if that was cleaned up.
Recall = Callable[[int], ViewDefinition | None]
#: Returns the case of a refresh from an earlier version of the view to a version of the source.
CaseOf = Callable[[ViewDefinition, TableSnapshot], Case]


@dataclass(frozen=True, slots=True)
class _Step:
    """The next computation of a refresh: the columns of these functions, at the source version `goal`."""

    functions: Sequence[ViewFunction]
    goal: TableSnapshot
    #: Whether the view's present rows are as useful as an earlier state's, except in columns that another function
    #: version computed.
    from_here: bool
    #: Whether a restore of the source may have brought back rows that are older than the view.
    restored: bool = False
    #: Whether unchanged rows are computed too.
    whole: bool = False


def current_view_state(case: Case) -> EarlierState | None:
    """Return the view's present state, or None if its source version is unknown."""
    if case.base is None:
        return None
    base = case.definition.base_version
    return EarlierState(
        view_version=case.view.version,
        source_version=base,
        computed=case.definition.computed,
        last_fragment=_last_fragment(case.base),
    )


def versions_with_values(plan: RefreshPlan, case: Case, recall: Recall, case_of: CaseOf) -> Iterator[EarlierValues]:
    """Yield the earlier versions of the view that have values for the plan's first step with functions, best first."""
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


def earlier_versions_text(earlier: Sequence[EarlierValues]) -> str:
    """Describe the earlier versions, as the end of a plan's message."""
    if not earlier:
        return ""
    versions = " and ".join(dict.fromkeys(str(found.view_version) for found in earlier))
    return f". Unchanged rows reuse their values from version {versions} of the view"


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
    """Yield the present view for functions whose present values may be kept.

    These are the functions whose inputs may be unchanged in rewritten rows of the source. If `whole`, one function
    computes every row anyway, and these are all other functions.
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
        found = changed_fragments(alone, case.base, case.target, case.compactions)
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
    """Return the states with values at the step's source version, or else the nearest before and after it.

    Args:
        step: The step.
        states: The states.
        here: The view's present source version if its present values can be used too, or else None.
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
    """Return whether a later version of the source has signs of a restore.

    Such signs are reused fragment ids, deleted rows that exist again, and columns with other files.
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
    """Return the changes between the source version of an earlier state and `goal`, or None if they are unknown."""
    try:
        case = case_of(definition, goal)
    except FailedPrecondition:  # the record of that source version cannot be read
        return None
    if broken_link(case) is not None or case.base is None:
        return None
    return changed_fragments(case.definition.query, case.base, case.target, case.compactions)
