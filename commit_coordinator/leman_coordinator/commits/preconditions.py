"""The preconditions for installing a staged file in a table, checked on a snapshot without I/O.

Lance checks almost none of this. It has no read set, reuses field ids, and does not notice a table that was recreated
at the same path. A commit that only retries on conflicts would lose updates, so every try begins with these checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from leman._format import column_bindings
from leman_coordinator.commits.commit_requests import Outcome, ReplaceRequest, Status
from leman_core.functions import binding
from leman_core.model import keys
from leman_core.model.plan import FragmentReplacement
from leman_core.model.service_errors import ATTEMPT_FENCED, Aborted, FailedPrecondition, LemanError
from leman_core.model.table import Fragment, TableField, TableSnapshot


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a file is not installed: a stable reason, and a message for people."""

    reason: str
    message: str


@dataclass(slots=True, eq=False)
class Item:
    """One fragment of a request."""

    request: ReplaceRequest
    replacement: FragmentReplacement


class Base:
    """The version of the table on which a commit builds, with the fragments that it changes."""

    def __init__(self, table: TableSnapshot, past: Mapping[int, TableSnapshot] | None = None) -> None:
        """Build the base of a commit.

        Args:
            past: Older versions of the table that requests name, if they still exist.
        """
        self.table = table
        self._past = {n: (old, {f.fragment_id: f for f in old.fragments}) for n, old in (past or {}).items()}
        self._fragments = {fragment.fragment_id: fragment for fragment in table.fragments}
        self._inputs: dict[tuple[str, tuple[int, ...]], frozenset[int] | None] = {}

    def fragment(self, item: Item) -> Fragment | None:
        return self._fragments.get(item.replacement.fragment_id)

    def past(self, item: Item) -> tuple[TableSnapshot, Fragment | None] | None:
        """Return the version from which the request's inputs were read, and the item's fragment in it.

        Return None if the version no longer exists.
        """
        found = self._past.get(item.request.inputs_version)
        return None if found is None else (found[0], found[1].get(item.replacement.fragment_id))

    def current_files(self, item: Item) -> tuple[str, ...]:
        """Return the names of the output column's files in the item's fragment."""
        fragment = self.fragment(item)
        return fragment.files_of(item.request.output.field.field_ids) if fragment else ()

    def input_ids(self, request: ReplaceRequest) -> frozenset[int] | None:
        """Return the field ids of the inputs, including children, or None if one is no longer in the table.

        Raises:
            DataLoss: BINDING_DAMAGED – the output column's binding cannot be read.
        """
        key = (request.output.column_id, request.input_field_ids)
        if key not in self._inputs:
            wanted = request.input_field_ids or self._bound_inputs(request.output.column_id)
            ids = {i for f in self.table.fields if f.field_id in wanted for i in f.field_ids} | set(wanted)
            known = {i for f in self.table.fields for i in f.field_ids}
            self._inputs[key] = frozenset(ids) if ids <= known else None
        return self._inputs[key]

    def _bound_inputs(self, column_id: str) -> tuple[int, ...]:
        output = next((f for f in self.table.fields if _column_id(f) == column_id), None)
        bound = binding.read(output.arrow) if output is not None else None
        if bound is None:
            return ()
        found = [(column.field_id, self.table.find_id(column.field_id)) for column in bound.inputs]
        return tuple(i for field_id, field in found for i in (field.field_ids if field is not None else (field_id,)))


class Precondition(Protocol):
    """A condition for installing a file."""

    def check(self, base: Base, item: Item) -> Rejection | None:
        """Return why the precondition does not hold, or None if it does."""
        ...


class LatestAttempt:
    """No later attempt at the job has begun, so the caller still owns the job."""

    def check(self, base: Base, item: Item) -> Rejection | None:
        return fenced_rejection(base.table, item.request.job_id, item.request.attempt)


class SameTable:
    """The table is the planned one, not another one at the same path."""

    def check(self, base: Base, item: Item) -> Rejection | None:
        if base.table.incarnation == item.request.incarnation:
            return None
        return Rejection(
            "TABLE_REPLACED",
            f"Table {base.table.uri} was dropped and created again since the plan: plan again",
        )


class SameColumn:
    """The output column is the planned one: name, field ids, type, and column id."""

    def check(self, base: Base, item: Item) -> Rejection | None:
        planned = item.request.output
        found = base.table.column(planned.name)
        if planned.column_id and (found is None or _column_id(found) != planned.column_id):
            now = next((f.name for f in base.table.fields if _column_id(f) == planned.column_id), None)
            if now is not None:
                taken = "" if found is None else f", and another column is called {planned.name}"
                return Rejection(
                    "COLUMN_NOT_DEFINED",
                    f"Column {planned.name} was renamed to {now}{taken}: plan again under its new name",
                )
        if found is None:
            return Rejection(
                "COLUMN_NOT_DEFINED",
                f"Column {planned.name} is not defined in this table: it was dropped; "
                "add it with CatalogService.AddColumns first",
            )
        if found.arrow.type != planned.field.arrow.type:
            return Rejection(
                "TYPE_MISMATCH",
                f"Type mismatch for column {planned.name}: computed as {planned.field.arrow.type}, "
                f"the table has {found.arrow.type}",
            )
        if (found.field_ids, _column_id(found)) != (planned.field.field_ids, planned.column_id):
            return Rejection(
                "COLUMN_NOT_DEFINED",
                f"Column {planned.name} is not defined in this table as it was planned: it was dropped and "
                "added again; plan again",
            )
        return None


class FragmentExists:
    """The fragment was neither compacted away nor emptied."""

    def check(self, base: Base, item: Item) -> Rejection | None:
        if base.fragment(item) is not None:
            return None
        return Rejection(
            "FRAGMENT_GONE", f"Fragment {item.replacement.fragment_id} is no longer in the table: plan again"
        )


class SameRowCount:
    """The file has one row for each physical row of the fragment, including deleted ones."""

    def check(self, base: Base, item: Item) -> Rejection | None:
        fragment, staged = base.fragment(item), item.replacement.staged
        if fragment is None or fragment.physical_rows == staged.physical_rows:
            return None
        return Rejection(
            "ROW_COUNT_MISMATCH",
            f"{staged.file} has {staged.physical_rows} rows, fragment {fragment.fragment_id} has "
            f"{fragment.physical_rows}",
        )


class SameInputs:
    """The input columns still have the data files from which the values were computed.

    Lance has no read set. Without this check, it would commit stale values without an error.
    """

    def check(self, base: Base, item: Item) -> Rejection | None:
        fragment = base.fragment(item)
        if fragment is None:
            return None
        if item.request.inputs_version:
            return _of_then(base, item, fragment)
        ids = base.input_ids(item.request)
        if ids is not None and fragment.files_of(ids) == tuple(sorted(set(item.replacement.input_files))):
            return None
        what = "An input column was dropped" if ids is None else "The input columns' data changed"
        return Rejection("INPUT_CHANGED", f"{what} in fragment {fragment.fragment_id} since the plan: plan again")


def _of_then(base: Base, item: Item, fragment: Fragment) -> Rejection | None:
    """Check `SameInputs` for a file whose inputs were read from an older version.

    The file's name must contain that version, so that the next plan sees that the file is not current.
    """
    version, ids = item.request.inputs_version, item.request.input_field_ids
    found = base.past(item)
    if found is None:
        return Rejection("VERSION_GONE", f"Version {version}, which was read, was cleaned up: plan again")
    table, then = found
    if then is not None and fragment.has_rows_of(then):
        pairs = [(i, then.file_of(i)) for i in ids]
        files = then.files_of(ids)
    else:
        pairs, files = keys.moved_sources(ids, version), ()
        if not (base.table.stable_row_ids and table.stable_row_ids):
            return Rejection("FRAGMENT_GONE", f"Version {version} has no fragment {fragment.fragment_id}: plan again")
    name = keys.parse_column_file_name(item.replacement.staged.file)
    same_name = name is not None and name.sources_part == keys.sources_part(pairs)
    if ids and same_name and files == tuple(sorted(set(item.replacement.input_files))):
        return None
    return Rejection(
        "INPUT_CHANGED",
        f"{item.replacement.staged.file} does not say that it is of version {version} of fragment "
        f"{fragment.fragment_id}: plan again",
    )


class SameTarget:
    """The output column's current file is the planned one, so no newer value is overwritten."""

    def check(self, base: Base, item: Item) -> Rejection | None:
        replaces = item.replacement.replaces
        if base.fragment(item) is None or base.current_files(item) == ((replaces,) if replaces else ()):
            return None
        return Rejection(
            "FRAGMENT_CHANGED",
            f"Column {item.request.output.name} of fragment {item.replacement.fragment_id} was written by "
            "another writer since the plan: plan again",
        )


#: Checked once for a request. If one fails, no fragment can be decided.
REQUEST_CHECKS: tuple[Precondition, ...] = (LatestAttempt(), SameTable(), SameColumn())

#: Checked before searching the table for a file with equal values.
_CONTENT_CHECKS: tuple[Precondition, ...] = (FragmentExists(), SameRowCount(), SameInputs())
#: Checked after that search.
_TARGET_CHECKS: tuple[Precondition, ...] = (SameTarget(),)


def fenced_rejection(table: TableSnapshot, job_id: str, attempt: int) -> Rejection | None:
    """Return why an attempt at a job may no longer change the table, or None if it may."""
    begun = table.attempts.get(job_id, 0)
    if attempt >= begun:
        return None
    return Rejection(
        ATTEMPT_FENCED,
        f"Job {job_id} was taken over: attempt {begun} has begun, this is attempt {attempt}. Stop; finished work "
        "is kept, and the job's state stands in its history",
    )


def refuse_request(base: Base, item: Item) -> LemanError | None:
    """Return the error for the whole request of an item, or None."""
    rejection = _first(REQUEST_CHECKS, base, item)
    if rejection is None:
        return None
    error = Aborted if rejection.reason == "TABLE_REPLACED" else FailedPrecondition
    return error(rejection.reason, rejection.message, uri=base.table.uri)


def decide(base: Base, item: Item) -> Outcome | None:
    """Return the item's outcome if it needs no commit. Return None if its file may be installed on this base."""
    fragment_id, file = item.replacement.fragment_id, item.replacement.staged.file
    current = base.current_files(item)
    if current == (file,):
        return Outcome(fragment_id=fragment_id, status=Status.COMMITTED, version=base.table.version)
    rejection = _first(_CONTENT_CHECKS, base, item)
    if rejection is None and _holds_equal_values(current, file):
        return Outcome(fragment_id=fragment_id, status=Status.ALREADY_CURRENT)
    rejection = rejection or _first(_TARGET_CHECKS, base, item)
    return rejected_outcome(item, rejection) if rejection else None


def rejected_outcome(item: Item, rejection: Rejection) -> Outcome:
    """Return the rejection as the item's outcome."""
    return Outcome(
        fragment_id=item.replacement.fragment_id,
        status=Status.REJECTED,
        reason=rejection.reason,
        message=rejection.message,
    )


def _first(checks: tuple[Precondition, ...], base: Base, item: Item) -> Rejection | None:
    return next((found for check in checks if (found := check.check(base, item)) is not None), None)


def _holds_equal_values(current: tuple[str, ...], file: str) -> bool:
    """Return whether the fragment has a complete file with the same fingerprint. A partial file lacks rows."""
    ours = keys.parse_column_file_name(file)
    if ours is None or len(current) != 1:
        return False
    theirs = keys.parse_column_file_name(current[0])
    return theirs is not None and theirs.fingerprint == ours.fingerprint and not theirs.partial


def _column_id(field: TableField) -> str:
    column_id: bytes = (field.arrow.metadata or {}).get(column_bindings.COLUMN_ID, b"")
    return column_id.decode()
