"""The work on a request about a view beside the commit queue: files are checked, placeholders are written."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from leman_coordinator.lance_io import committed_files, view_commits
from leman_coordinator.lance_io.commit_outcomes import CommitUnclear
from leman_coordinator.lance_io.installable_files import InstallableFile
from leman_coordinator.lance_io.placeholders import stage_placeholders
from leman_coordinator.lance_io.view_commits import ViewFiles
from leman_coordinator.preconditions import Rejection
from leman_coordinator.views.requests import (
    ApplyDeltaRequest,
    CreatePlaceholdersRequest,
    FillPlaceholdersRequest,
    ViewFile,
    ViewRequest,
)
from leman_core.model import view_metadata
from leman_core.model.errors import (
    Aborted,
    DataLoss,
    FailedPrecondition,
    InvalidArgument,
    LemanError,
    NotFound,
    Unavailable,
)
from leman_core.model.plan import StagedFile
from leman_core.model.view import IS_SET, SOURCE_ROW_ID, ViewDefinition
from leman_core.model.view_rows import NO_IDS, Ids
from leman_core.server.blocking import BlockingPool
from leman_core.storage.storage_errors import said
from leman_core.storage.views import evictions_file, source_records
from leman_core.storage.views import files as view_files
from leman_core.storage.views.source import SourceRows
from leman_core.storage.views.view_order import view_rows

Checked = InstallableFile | Rejection

#: So many files of a delta are checked by the commit queue, which has the view open.
_FEW = 2
_FEW_BYTES = 32 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A request about a view, ready for the commit queue."""

    request: ViewRequest
    #: Those of `fragments`, or those of `appended` and then those of `swapped`.
    files: Sequence[Checked] = ()
    evicted: Ids = field(default_factory=lambda: NO_IDS)
    #: Of the view, where placeholders were made for it; else None.
    schema: pa.Schema | None = None
    #: Staged, for a view that is created or whose placeholders are made anew.
    placeholders: Sequence[StagedFile] = ()
    #: Why the request must be refused, unless it was done already.
    error: LemanError | None = None
    #: Whether the files of a delta are still to be looked at.
    late: bool = False
    #: Commits of earlier tries that may have been made: the view may refer to the placeholders.
    unclear: list[CommitUnclear] = field(default_factory=list)


class ViewChecks:
    """The checks for one view; at most `width` threads of the pool work on one request."""

    def __init__(self, uri: str, pool: BlockingPool, width: int) -> None:
        self._uri = uri
        self._pool = pool
        self._width = width

    async def prepared(self, request: ViewRequest) -> Prepared:
        """Check the request's files or write its placeholders, and return it ready for the commit queue.

        Other errors than Unavailable are kept in the result for the commit queue: the answer to the request may have
        been lost, and its files be gone since.

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


def looked_at(request: ApplyDeltaRequest, checker: ViewFiles) -> Prepared:
    """Check a delta of few files, one after the other: to open the view once more would take longer.

    Raises:
        LemanError: as `ViewChecks.prepared`, and what that keeps.
    """
    checked = _look_at(checker, request.appended, _columns(checker, "append"))
    checked += _look_at(checker, request.swapped, _columns(checker, "swap"))
    _note(request.uri, [*request.appended, *request.swapped], checked)
    return Prepared(request, checked, _evicted(request))


def _columns(checker: ViewFiles, use: str) -> Collection[str] | None:
    """Return the columns that files must have for a use; None: some of the data columns."""
    wanted: Collection[str] | None
    wanted = {"fill": checker.data_columns, "append": checker.columns}.get(use)
    return wanted


def _note(uri: str, files: Sequence[ViewFile], checked: Sequence[Checked]) -> None:
    sound = [f.staged for f, file in zip(files, checked, strict=True) if isinstance(file, InstallableFile)]
    if sound:
        committed_files.note(uri, sound)


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
    return evictions_file.read(request.uri, request.evictions_file, request.evictions_digest)


def _with_placeholders(request: CreatePlaceholdersRequest) -> Prepared:
    """Write the placeholders of a view to files, streamed with bounded memory, and the record of its source."""
    if request.create and view_commits.find(request.uri) is not None:
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
        committed_files.note(request.uri, files)
    name = _recorded(request.uri, definition)
    schema = view_metadata.write(schema, replace(definition, base_record=name))
    return Prepared(request, schema=schema, placeholders=files)


def _recorded(view: str, definition: ViewDefinition) -> str:
    try:
        query, version = definition.query, definition.base_version
        return source_records.write(view, query, definition.source_uri, version, definition.base_record)
    except Unavailable as error:
        raise _source_changed(definition.source_uri, definition.base_version, error) from None


def _read(ids: Iterator[Ids], source: SourceRows) -> Iterator[Ids]:
    """Pass the ids on; raise Aborted (SOURCE_CHANGED) where files of the source went while they were read."""
    try:
        yield from ids
    except Unavailable as error:
        raise _source_changed(source.uri, source.version, error) from None


def _source_changed(uri: str, version: int, error: Unavailable) -> Aborted:
    return Aborted(
        "SOURCE_CHANGED",
        f"Version {version} of the source {uri} cannot be read, it may have been cleaned up: try again. {said(error)}",
        uri=uri,
    )


def _definition(schema: pa.Schema, uri: str) -> ViewDefinition:
    found = view_metadata.read(schema, uri)
    if found is None or [f.name for f in schema][:2] != [SOURCE_ROW_ID, IS_SET]:
        raise InvalidArgument("BAD_SCHEMA", "The schema is not that of a view", field="create_placeholders.schema")
    return found
