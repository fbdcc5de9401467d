"""Commits to views. Each is prepared outside the commit queue, and tried once inside it.

Preparation checks files and writes placeholders. A try reads the latest version, then refuses or commits. After an
unclear failure, the next try first finds out whether the commit was made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from leman._format import view_definitions
from leman._format.view_definitions import IS_SET, SOURCE_ROW_ID, ViewDefinition
from leman_coordinator.commits.commit_requests import (
    ApplyDeltaRequest,
    CommitResult,
    CreatePlaceholdersRequest,
    FillPlaceholdersRequest,
    Outcome,
    Status,
    ViewFile,
    ViewRequest,
)
from leman_coordinator.commits.preconditions import Rejection, fenced_rejection
from leman_coordinator.lance_io import row_commits, table_files, view_commits
from leman_coordinator.lance_io.table_files import InstallableFile
from leman_coordinator.lance_io.table_handle import CommitConflict, CommitUnclear, TableHandle
from leman_coordinator.lance_io.view_commits import Swap, ViewDelta, ViewFiles, stage_placeholders
from leman_core.model import view_metadata
from leman_core.model.plan import StagedFile
from leman_core.model.row_ids import NO_IDS, Ids
from leman_core.model.row_positions import fragments_of, offsets_of
from leman_core.model.service_errors import (
    Aborted,
    DataLoss,
    FailedPrecondition,
    InvalidArgument,
    LemanError,
    NotFound,
    Unavailable,
)
from leman_core.model.table import Fragment, TableSnapshot
from leman_core.model.view import VIEW_FILE_PREFIX
from leman_core.process.crash_points import crash_point
from leman_core.server.blocking import BlockingPool
from leman_core.storage import transactions, view_side_files
from leman_core.storage import view_data_files as view_files
from leman_core.storage.locations import is_link
from leman_core.storage.source_rows import SourceRows
from leman_core.storage.storage_errors import error_text
from leman_core.storage.view_data_files import view_rows

Checked = InstallableFile | Rejection

#: The commit queue, which has the view open, checks deltas of at most this many files itself.
_FEW = 2
_FEW_BYTES = 32 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A request about a view that is ready for the commit queue."""

    request: ViewRequest
    #: The checked files of `fragments`, or of `appended` followed by `swapped`.
    files: Sequence[Checked] = ()
    evicted: Ids = field(default_factory=lambda: NO_IDS)
    #: The view's schema, if placeholders were written for it.
    schema: pa.Schema | None = None
    #: Staged placeholders, for a new view or one whose placeholders are recreated.
    placeholders: Sequence[StagedFile] = ()
    #: Why to refuse the request, unless it is already committed.
    error: LemanError | None = None
    #: Whether the commit queue must still check the files of a delta.
    late: bool = False
    #: Earlier tries that may have committed, so that the view may refer to the placeholders.
    unclear: list[CommitUnclear] = field(default_factory=list)


class ViewChecks:
    """Prepares requests about one view. One request uses at most `width` threads of the pool."""

    def __init__(self, uri: str, pool: BlockingPool, width: int) -> None:
        self._uri = uri
        self._pool = pool
        self._width = width

    async def prepared(self, request: ViewRequest) -> Prepared:
        """Check the request's files, or write its placeholders, before the request enters the commit queue.

        Errors other than Unavailable are stored in the result, not raised. The commit queue raises them only if no
        earlier call has committed the request: after such a commit, missing files are no error.

        Raises:
            Unavailable: STORE_UNAVAILABLE – the storage cannot be used now.
        """
        try:
            if isinstance(request, CreatePlaceholdersRequest):
                return await self._pool.run(_with_placeholders, request)
            if isinstance(request, FillPlaceholdersRequest):
                return Prepared(request, await self._checked(request.fragments, "fill"))
            files = [*request.appended, *request.swapped]
            if len(files) <= _FEW and sum(file.staged.size_bytes for file in files) <= _FEW_BYTES:
                return Prepared(request, late=True)
            appended = await self._checked(request.appended, "append")
            swapped = await self._checked(request.swapped, "swap")
            evicted = await self._pool.run(_evicted, request)
            return Prepared(request, [*appended, *swapped], evicted)
        except Unavailable:
            raise
        except LemanError as error:
            return Prepared(request, error=error)

    async def _checked(self, files: Sequence[ViewFile], use: str) -> list[Checked]:
        if not files:
            return []
        checker = await self._pool.run(ViewFiles, self._uri)
        wanted = _columns(checker, use)
        size = -(-len(files) // self._width)
        shares = [files[i : i + size] for i in range(0, len(files), size)]
        found = await asyncio.gather(*(self._pool.run(_look_at, checker, share, wanted) for share in shares))
        checked = [file for share in found for file in share]
        await self._pool.run(_note, self._uri, files, checked)
        return checked


def checked_delta(request: ApplyDeltaRequest, checker: ViewFiles) -> Prepared:
    """Check the files of a small delta one by one. Several threads would each have to open the view, which is slower.

    Raises:
        LemanError: see `ViewChecks.prepared`, including the errors that it keeps.
    """
    checked = _look_at(checker, request.appended, _columns(checker, "append"))
    checked += _look_at(checker, request.swapped, _columns(checker, "swap"))
    _note(request.uri, [*request.appended, *request.swapped], checked)
    return Prepared(request, checked, _evicted(request))


def _columns(checker: ViewFiles, use: str) -> Collection[str] | None:
    """Return the columns that files for a use must have, or None if any data columns are allowed."""
    wanted: Collection[str] | None
    wanted = {"fill": checker.data_columns, "append": checker.columns}.get(use)
    return wanted


def _note(uri: str, files: Sequence[ViewFile], checked: Sequence[Checked]) -> None:
    sound = [f.staged for f, file in zip(files, checked, strict=True) if isinstance(file, InstallableFile)]
    if sound:
        table_files.write_note(uri, sound)


def _look_at(checker: ViewFiles, share: Sequence[ViewFile], wanted: Collection[str] | None) -> list[Checked]:
    return [_look_at_one(checker, file.staged, wanted) for file in share]


def _look_at_one(checker: ViewFiles, staged: StagedFile, wanted: Collection[str] | None) -> Checked:
    try:
        return checker.prepare(staged, wanted)
    except (NotFound, DataLoss, FailedPrecondition) as error:
        return Rejection(error.reason, error.message)


def _evicted(request: ApplyDeltaRequest) -> Ids:
    if not request.evictions_file:
        return NO_IDS
    return view_side_files.read_evictions(request.uri, request.evictions_file, request.evictions_digest)


def _with_placeholders(request: CreatePlaceholdersRequest) -> Prepared:
    """Write the placeholders of a view to files, with bounded memory, and write the record of its source."""
    if request.create and view_commits.find_view(request.uri) is not None:
        return Prepared(request)
    definition = _definition(request.schema, request.uri)
    stored = [view_files.stored_field(f) if f.name not in (SOURCE_ROW_ID, IS_SET) else f for f in request.schema]
    schema = pa.schema(stored, metadata=request.schema.metadata)
    source = SourceRows(definition.source_uri, definition.base_version)
    rows = view_rows(_read(source.matching_ids(definition.query.where), source), definition.query)
    version = view_files.storage_version(schema)
    if not request.create:
        version = view_files.version_of(request.uri)
    files = stage_placeholders(request.uri, schema, rows, request.max_rows_per_fragment, version)
    if files:
        table_files.write_note(request.uri, files)
    name = _recorded(request.uri, definition)
    schema = view_definitions.write(schema, replace(definition, base_record=name))
    return Prepared(request, schema=schema, placeholders=files)


def _recorded(view: str, definition: ViewDefinition) -> str:
    try:
        query, version = definition.query, definition.base_version
        return view_side_files.write_source_record(view, query, definition.source_uri, version, definition.base_record)
    except Unavailable as error:
        raise _source_changed(definition.source_uri, definition.base_version, error) from None


def _read(ids: Iterator[Ids], source: SourceRows) -> Iterator[Ids]:
    """Yield the ids. Raise Aborted (SOURCE_CHANGED) if files of the source vanish meanwhile."""
    try:
        yield from ids
    except Unavailable as error:
        raise _source_changed(source.uri, source.version, error) from None


def _source_changed(uri: str, version: int, error: Unavailable) -> Aborted:
    return Aborted(
        "SOURCE_CHANGED",
        f"Version {version} of the source {uri} cannot be read, it may have been cleaned up: try again. "
        f"{error_text(error)}",
        uri=uri,
    )


def _definition(schema: pa.Schema, uri: str) -> ViewDefinition:
    found = view_metadata.read(schema, uri)
    if found is None or [f.name for f in schema][:2] != [SOURCE_ROW_ID, IS_SET]:
        raise InvalidArgument("BAD_SCHEMA", "The schema is not that of a view", field="create_placeholders.schema")
    return found


#: How many versions of the view's history are searched for a request.
HISTORY_LIMIT = 256
_LEMAN = b"leman::"


def create_new_view(work: Prepared) -> CommitResult:
    """Create the view, or complete it if this request created it before.

    Raises:
        AlreadyExists: TABLE_EXISTS – another table has the name.
        CommitConflict: Another writer committed first, or a table of that name existed and is gone.
        CommitUnclear: The view may have been created.
        LemanError: raised by the preparation of the request.
    """
    request = work.request
    made = view_commits.find_view(request.uri)
    is_taken = is_link(request.uri) if made is None else not view_commits.is_made_by(made, request.request_id)
    if is_taken:
        _discard(work)
        raise row_commits.table_exists_error(request.uri)
    if made is not None:
        return CommitResult(view_commits.complete_creation(request.uri), operation="CreatePlaceholders")
    if work.error is not None:
        raise work.error
    if work.schema is None:
        raise CommitConflict(f"the table {request.uri} was there and is gone")
    crash_point("coordinator.placeholders_staged")
    version = view_commits.create_view(request.uri, work.schema, work.placeholders, request.request_id, request.job_id)
    return CommitResult(version, operation="CreatePlaceholders")


def change_view(table: TableHandle, work: Prepared) -> CommitResult:
    """Fill placeholders, apply a delta, or recreate placeholders.

    Raises:
        FailedPrecondition: ATTEMPT_FENCED – a later attempt at the job has begun; for a delta also FRAGMENT_GONE and
            ROW_COUNT_MISMATCH – a fragment is not in the view, or has other rows; and the reason of a refused file.
        NotFound: FILE_MISSING – a file of a delta does not exist.
        DataLoss: FILE_DAMAGED – a file of a delta is damaged.
        Aborted: TABLE_REPLACED – the view was dropped and created again; VIEW_CHANGED – its version is not the planned
            one; VIEW_IS_SET – it has values, so it gets no new placeholders.
        InvalidArgument: MISSING_FIELD – a fill has no fragment.
        CommitConflict, CommitUnclear: see `commit_outcomes`.
        LemanError: raised by the preparation of the request and by `TableHandle.latest`.
    """
    try:
        if isinstance(work.request, FillPlaceholdersRequest):
            return _fill(table, work, work.request)
        return _change(table, work, work.request)
    except CommitUnclear as unclear:
        work.unclear.append(unclear)
        raise
    except LemanError:
        if not work.unclear:
            _discard(work)
        raise


def _change(table: TableHandle, work: Prepared, request: CreatePlaceholdersRequest | ApplyDeltaRequest) -> CommitResult:
    base = _base(table, request)
    done = _done(table, request)
    operation = "ApplyViewDelta" if isinstance(request, ApplyDeltaRequest) else "CreatePlaceholders"
    if done:
        return CommitResult(done, operation=operation)
    if work.error is not None:
        raise work.error
    if base.version != request.read_version:
        raise _changed(request, base.version)
    if work.late and isinstance(request, ApplyDeltaRequest):
        work = checked_delta(request, view_commits.ViewFiles(request.uri, table.dataset))
    planned = _delta(table, work, request) if isinstance(request, ApplyDeltaRequest) else _anew(table, work, request)
    crash_point("coordinator.before_delta")
    made = view_commits.apply_delta(table.dataset, planned, operation, request.request_id, request.job_id)
    version = table.follow(made)
    crash_point("coordinator.after_delta")
    if isinstance(request, ApplyDeltaRequest) and request.evictions_file:
        view_side_files.remove_evictions(request.uri, request.evictions_file)
    return CommitResult(version, operation=operation, without_indexes=table.has_no_index())


def _base(table: TableHandle, request: ViewRequest, fragment_ids: Sequence[int] = ()) -> TableSnapshot:
    base = table.latest(fragment_ids)
    if not base.incarnation:  # its creator crashed between the two commits of a creation
        view_commits.complete_creation(request.uri)
        raise _changed(request, base.version)
    refused = fenced_rejection(base, request.job_id, request.attempt)
    if refused is not None:
        raise FailedPrecondition(refused.reason, refused.message, uri=request.uri)
    if request.incarnation != base.incarnation:
        raise Aborted("TABLE_REPLACED", f"View {request.uri} was dropped and created again: plan again")
    return base


def _changed(request: ViewRequest, version: int) -> Aborted:
    return Aborted(
        "VIEW_CHANGED",
        f"View {request.uri} is at version {version}, the refresh was planned at {request.read_version}: plan again",
        uri=request.uri,
        version=version,
    )


def _done(table: TableHandle, request: ViewRequest) -> int:
    """Return the version that an earlier call of this request committed, or 0."""
    for record in table.records(request.read_version, HISTORY_LIMIT):
        if request.request_id in record.request_ids:
            return record.version
    return int(table.dataset.version) if view_commits.is_made_by(table.dataset, request.request_id) else 0


def _anew(table: TableHandle, work: Prepared, request: CreatePlaceholdersRequest) -> ViewDelta:
    if table.dataset.count_rows(f"coalesce({IS_SET}, false)"):
        raise Aborted("VIEW_IS_SET", f"View {request.uri} has rows with values by now: plan again", uri=request.uri)
    files = view_commits.ViewFiles(request.uri)
    appended = [(files.prepare(staged, files.columns), staged.physical_rows) for staged in work.placeholders]
    metadata = ((work.schema or request.schema).metadata or {}).items()
    ours = {key.decode(): value.decode() for key, value in metadata if key.startswith(_LEMAN)}
    return ViewDelta(appended=appended, swapped=(), evicted=work.evicted, metadata=ours, replace_all=True)


def _delta(table: TableHandle, work: Prepared, request: ApplyDeltaRequest) -> ViewDelta:
    files = [_usable(file) for file in work.files]
    appended, swapped = files[: len(request.appended)], files[len(request.appended) :]
    _check_fragments(table, work, request)
    return ViewDelta(
        appended=[(file, wanted.staged.physical_rows) for file, wanted in zip(appended, request.appended, strict=True)],
        swapped=[Swap(wanted.fragment_id, file) for file, wanted in zip(swapped, request.swapped, strict=True)],
        evicted=work.evicted,
        metadata=request.metadata,
        replace_all=request.replace_all,
    )


def _usable(file: Checked) -> InstallableFile:
    if isinstance(file, InstallableFile):
        return file
    errors: dict[str, type[LemanError]] = {"FILE_MISSING": NotFound, "FILE_DAMAGED": DataLoss}
    raise errors.get(file.reason, FailedPrecondition)(file.reason, file.message)


def _check_fragments(table: TableHandle, work: Prepared, request: ApplyDeltaRequest) -> None:
    """Raise FailedPrecondition if the request does not fit the view's fragments.

    The view has not changed since the plan, so a mismatch is the caller's mistake.
    """
    evicted: dict[int, int] = {}
    places = zip(fragments_of(work.evicted).tolist(), offsets_of(work.evicted).tolist(), strict=True)
    for fragment_id, offset in places:
        evicted[fragment_id] = max(evicted.get(fragment_id, 0), offset)
    wanted = {*evicted, *(file.fragment_id for file in request.swapped)}
    found = {f.fragment_id: f.physical_rows for f in table.current(wanted).fragments}
    for fragment_id in wanted:
        if fragment_id not in found:
            raise FailedPrecondition("FRAGMENT_GONE", f"Fragment {fragment_id} is not in the view")
    for file in request.swapped:
        if file.staged.physical_rows != found[file.fragment_id]:
            raise FailedPrecondition("ROW_COUNT_MISMATCH", _rows(file, found[file.fragment_id]))
    for fragment_id, offset in evicted.items():
        if offset >= found[fragment_id]:
            raise FailedPrecondition("ROW_COUNT_MISMATCH", f"Fragment {fragment_id} has no row {offset} to be evicted")


def _fill(table: TableHandle, work: Prepared, request: FillPlaceholdersRequest) -> CommitResult:
    if not request.fragments:
        raise InvalidArgument(
            "MISSING_FIELD",
            "The request has no fragment to fill: add at least one",
            field="fill_placeholders.fragments",
        )
    base = _base(table, request, [file.fragment_id for file in request.fragments])
    if work.error is not None:
        raise work.error
    known = {fragment.fragment_id: fragment for fragment in base.fragments}
    outcomes: dict[int, Outcome] = {}
    ready: list[tuple[int, InstallableFile]] = []
    for wanted, file in zip(request.fragments, work.files, strict=True):
        current = _current(base, known.get(wanted.fragment_id))
        if current == wanted.staged.file:
            outcomes[wanted.fragment_id] = Outcome(
                fragment_id=wanted.fragment_id, status=Status.COMMITTED, version=base.version
            )
        elif (problem := _problem(table, wanted, file, known.get(wanted.fragment_id), current)) is not None:
            outcomes[wanted.fragment_id] = _rejected(wanted, problem)
        elif isinstance(file, InstallableFile):
            ready.append((wanted.fragment_id, file))
    _honour_history(table, request, outcomes)
    if ready:
        crash_point("coordinator.before_commit")
        version = table.replace_files(
            base, ready, transactions.commit_properties([request.request_id], [request.job_id])
        )
        crash_point("coordinator.after_commit")
        outcomes |= {i: Outcome(fragment_id=i, status=Status.COMMITTED, version=version) for i, _ in ready}
    ordered = tuple(outcomes[file.fragment_id] for file in request.fragments)
    return CommitResult(max(outcome.version for outcome in ordered), ordered)


def _current(base: TableSnapshot, fragment: Fragment | None) -> str:
    """Return the data file with the column that marks the rows of the fragment with values."""
    column = base.column(IS_SET)
    return "" if fragment is None or column is None else fragment.file_of(column.field_id)


def _problem(
    table: TableHandle, wanted: ViewFile, file: Checked, fragment: Fragment | None, current: str
) -> Rejection | None:
    if fragment is None:
        return Rejection("FRAGMENT_GONE", f"Fragment {wanted.fragment_id} is no longer in the view: plan again")
    if isinstance(file, Rejection):
        return file
    if fragment.physical_rows != wanted.staged.physical_rows:
        return Rejection("ROW_COUNT_MISMATCH", _rows(wanted, fragment.physical_rows))
    unset = f"NOT coalesce({IS_SET}, false)"
    if current.startswith(VIEW_FILE_PREFIX) or not table.count_rows(wanted.fragment_id, unset):
        return Rejection("FRAGMENT_CHANGED", f"Fragment {wanted.fragment_id} has values already: plan again")
    return None


def _rows(file: ViewFile, physical_rows: int) -> str:
    return f"{file.staged.file} has {file.staged.physical_rows} rows, fragment {file.fragment_id} has {physical_rows}"


def _rejected(file: ViewFile, problem: Rejection) -> Outcome:
    return Outcome(fragment_id=file.fragment_id, status=Status.REJECTED, reason=problem.reason, message=problem.message)


def _honour_history(table: TableHandle, request: FillPlaceholdersRequest, outcomes: dict[int, Outcome]) -> None:
    """Answer COMMITTED for files that the view's history lists as committed, even if the view has changed since."""
    if all(outcome.status is Status.COMMITTED for outcome in outcomes.values()):
        return
    files = {file.fragment_id: file.staged.file for file in request.fragments}
    for record in table.records(request.read_version, HISTORY_LIMIT):
        if request.request_id not in record.request_ids:
            continue
        for fragment_id, installed in record.files.items():
            if files.get(fragment_id) in installed:
                outcomes[fragment_id] = Outcome(
                    fragment_id=fragment_id, status=Status.COMMITTED, version=record.version
                )


def _discard(work: Prepared) -> None:
    """Remove placeholders that will not become part of a view."""
    view_files.remove_staged(work.request.uri, [file.file for file in work.placeholders])
