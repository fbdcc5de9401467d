"""What a refresh has to do. Pure: the same snapshots and compactions give the same plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leman_core.model.errors import FailedPrecondition
from leman_core.model.refresh import (
    ChangeKind,
    RefreshMode,
    RefreshPlan,
    RefreshPolicy,
    RefreshReason,
    RefreshSpec,
    ResolvedFunction,
    SourceChange,
    UnsetFragment,
)
from leman_core.model.table import TableSnapshot
from leman_core.model.view import ViewDefinition
from leman_core.model.view_metadata import identity, outlives_versions
from leman_planner.views.fill_state import ViewState, classify, with_rows
from leman_planner.views.source_checks import check_source, check_view
from leman_planner.views.source_diff import Compactions, changes

_WORDS = {
    ChangeKind.APPEARED: "appeared",
    ChangeKind.GONE: "gone",
    ChangeKind.DELETIONS: "with other deleted rows",
    ChangeKind.REWRITTEN: "with rewritten columns",
}


@dataclass(frozen=True, slots=True)
class Case:
    """A view and its source at the recorded version and at the one to go to."""

    view: TableSnapshot
    definition: ViewDefinition
    #: The source at the recorded version; None: it was cleaned away.
    base: TableSnapshot | None
    target: TableSnapshot
    spec: RefreshSpec
    #: Those of the source between the two versions; asked for only where fragments came and went.
    compactions: Compactions = tuple
    #: Whether the recorded version was cleaned away, so that `base` is as the view keeps it (see
    #: `leman_core.storage.views.source_records`).
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
        set_rows: see `leman_planner.views.fill_state.classify`.

    Raises:
        FailedPrecondition: STABLE_ROW_IDS_REQUIRED, FULL_REFRESH_NEEDED, SOURCE_COLUMN_MISSING, TYPE_MISMATCH,
            EXTERNAL_WRITES.
    """
    broken = broken_link(case)
    _check_row_ids(case, broken)
    check_view(case.view, case.definition)
    check_source(case.view, case.definition, None if broken else case.base, case.target, functions)
    stale = case.definition.stale
    decided = _decide(case, broken, classify(case.view, set_rows or {}), stale)
    return RefreshPlan(
        uri=case.view.uri,
        version=case.view.version,
        incarnation=case.view.incarnation,
        definition=case.definition,
        schema=case.view.schema,
        functions=tuple(functions),
        target_version=case.target.version,
        target_incarnation=identity(case.target),
        mode=decided.mode,
        reason=decided.reason,
        message=decided.message,
        unset=decided.unset,
        create_placeholders_again=decided.create_placeholders_again,
        changes=decided.changes,
        stale=stale,
        rows=case.view.live_rows,
        file_format="{}.{}".format(*case.view.file_format),
    )


def broken_link(case: Case) -> RefreshReason | None:
    """Return why it cannot be told what changed since the recorded version; None: it can."""
    recorded = case.definition.base_incarnation
    if case.base is not None and not case.from_record:
        # The target is a version of the same table: Lance numbers them along one history.
        return None if identity(case.base) == recorded else RefreshReason.SOURCE_REPLACED
    known = outlives_versions(recorded) and bool(case.target.incarnation)
    if known and case.target.incarnation != recorded:
        return RefreshReason.SOURCE_REPLACED
    if case.base is not None and (known or _is_one_table(case.base, case)):
        return None
    return RefreshReason.SOURCE_HISTORY_LOST


def _is_one_table(base: TableSnapshot, case: Case) -> bool:
    """Tell whether the target has files of the recorded version, or they were compacted in its history.

    A file's name is used only once, so that one file in common is enough.
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
        problem, advice = "its source was made anew", "Drop the view and create it again"
    elif case.definition.format.value > 1 or broken is RefreshReason.SOURCE_REPLACED:
        problem = "its source was made anew without stable row IDs"
        advice = (
            "Make the source with stable row IDs (TableService.CreateTable does), then drop the view and create it "
            "again"
        )
    elif case.moved or broken is not None:
        problem = f"its source has no stable row IDs, and it was made from version {version}"
        advice = (
            f"Refresh to the same version (`src_version={version}`), or recreate the source table with stable row IDs "
            "enabled (TableService.CreateTable does so unless told otherwise) and then the view"
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
    if case.spec.policy is RefreshPolicy.FULL:  # of placeholders too: once they were filled it would be asked again
        return _full(case, RefreshReason.FORCED)
    if state.unset and not state.filled:
        return _first_fill(case, broken, state)
    if broken is not None or case.base is None:
        return _full(case, broken or RefreshReason.SOURCE_HISTORY_LOST)
    found = changes(case.definition.query, case.base, case.target, case.compactions)
    if case.from_record and (state.unset or (found and case.definition.query.offset)):
        return _full(case, RefreshReason.SOURCE_HISTORY_LOST)  # values of that version are needed: there are none
    if state.unset:
        message = f"A first fill was cut short: {_count(len(state.unset), 'fragment')} of the view have no values yet"
        reason = RefreshReason.FIRST_FILL
    elif case.moved and (found or not stale):
        message, reason = _what_changed(case, found), RefreshReason.SOURCE_CHANGED
        message += f". {_other_functions(stale)}" if stale else ""
    elif stale:
        message, reason = _other_functions(stale), RefreshReason.FUNCTION_CHANGED
    else:
        message = f"The view is right for version {case.target.version} of its source already"
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
    """Tell whether the fragments have exactly so many rows each, the last one the rest."""
    sizes = [fragment.physical_rows for fragment in with_rows(view)]
    return all(size == rows for size in sizes[:-1]) and all(size <= rows for size in sizes[-1:])


def _full(case: Case, reason: RefreshReason) -> _Decision:
    version = case.definition.base_version
    why = {
        RefreshReason.FORCED: "A full refresh was asked for",
        RefreshReason.SOURCE_REPLACED: "The source was dropped and made anew under its name",
        RefreshReason.SOURCE_HISTORY_LOST: f"Version {version} of the source, which the view is right for, "
        "was cleaned away, so that what changed since cannot be told",
    }[reason]
    if case.spec.policy is RefreshPolicy.INCREMENTAL:
        raise FailedPrecondition(
            "FULL_REFRESH_NEEDED",
            f"{why}. Only a full refresh is right: allow it with POLICY_AUTO, or ask for it with POLICY_FULL",
            why=reason.name,
        )
    return _Decision(RefreshMode.FULL, reason, f"{why}: every row is computed, beside the view as it is")


def _other_functions(stale: Sequence[str]) -> str:
    return f"Another function version is to compute {', '.join(stale)} for every row"


def _what_changed(case: Case, found: Sequence[SourceChange]) -> str:
    step = f"The source went from version {case.definition.base_version} to {case.target.version}"
    if case.from_record:
        step += ", and the former was cleaned away: what the view recorded of it is compared"
    if not found:
        return f"{step}: nothing that the view reads changed; only the version is recorded"
    counts = Counter(change.kind for change in found)
    listed = ", ".join(f"{counts[kind]} {word}" for kind, word in _WORDS.items() if counts[kind])
    return f"{step}. Of its fragments: {listed}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
