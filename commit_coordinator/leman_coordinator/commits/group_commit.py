"""One try of a group commit, and the concurrent checks of staged files before it.

A try reads the latest version, decides about every fragment, and installs the files that may be installed. It runs in a
thread, one at a time for a table. A failed try leaves candidates undecided, and the next one reads the table again.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from leman_coordinator.commits import preconditions
from leman_coordinator.commits.commit_requests import (
    AddColumnsRequest,
    BeginAttemptRequest,
    BindColumnsRequest,
    Outcome,
    ReplaceRequest,
    Status,
)
from leman_coordinator.commits.preconditions import Base, Item, Rejection, SameInputs
from leman_coordinator.lance_io import column_definitions, table_files
from leman_coordinator.lance_io.table_files import InstallableFile, StagedFiles
from leman_coordinator.lance_io.table_handle import TableHandle
from leman_core.model.plan import FragmentReplacement, StagedFile
from leman_core.model.service_errors import Aborted, DataLoss, FailedPrecondition, LemanError, NotFound
from leman_core.model.table import TableSnapshot
from leman_core.process.crash_points import crash_point
from leman_core.server.blocking import BlockingPool
from leman_core.storage import transactions
from leman_core.storage.locations import in_object_store

#: How many versions of the history are searched for a request whose files are no longer in the table.
HISTORY_LIMIT = 256


@dataclass(slots=True, eq=False)
class Candidate(Item):
    """An item in the commit queue."""

    #: The result of checking its content.
    file: InstallableFile | Rejection
    #: Its outcome, or None while undecided.
    decision: Outcome | LemanError | None = None
    #: How long its version took to write.
    manifest_seconds: float = 0.0
    #: Whether the table is known to have no index.
    without_indexes: bool = False


def install_candidates(table: TableHandle, candidates: Sequence[Candidate]) -> None:
    """Install in one version all files that may be installed, and decide about every candidate.

    Args:
        candidates: One group that `commit_turns` yields.

    Raises:
        CommitConflict: Another writer committed first; some candidates are undecided.
        CommitUnclear: The commit may have been made; some candidates are undecided.
        LemanError: raised by `TableHandle.latest`.
    """
    base, ready = _look(table, candidates)
    if not ready:
        return
    files = [(c.replacement.fragment_id, c.file) for c in ready if isinstance(c.file, InstallableFile)]
    crash_point("coordinator.before_commit")
    begin = time.monotonic()
    version = table.replace_files(
        base.table,
        files,
        transactions.commit_properties(
            dict.fromkeys(c.request.request_id for c in ready), dict.fromkeys(c.request.job_id for c in ready)
        ),
    )
    took = time.monotonic() - begin
    crash_point("coordinator.after_commit")
    without_indexes = table.has_no_index()
    for candidate in ready:
        candidate.manifest_seconds = took
        candidate.without_indexes = without_indexes
        candidate.decision = Outcome(
            fragment_id=candidate.replacement.fragment_id, status=Status.COMMITTED, version=version
        )
    if version > base.table.version + 1:
        after = table.current([fragment_id for fragment_id, _ in files])
        _recheck_inputs(Base(after, _past(table, ready)), ready)
    column_definitions.record_input_names(table, base.table, dict.fromkeys(c.request.output.name for c in ready))


def decide_without_commit(table: TableHandle, candidates: Sequence[Candidate]) -> None:
    """Decide, where possible, without a commit: after an unclear failure, the files may be in the table already."""
    _look(table, candidates)


def add_columns(table: TableHandle, request: AddColumnsRequest) -> int:
    """Add columns without data and return the version of the table that has them.

    Raises:
        Aborted: TABLE_REPLACED – the table is not the one that the request names.
        CommitConflict, CommitUnclear: see `commit_outcomes`.
        LemanError: raised by `TableHandle.latest` and `column_definitions.add_null_columns`.
    """
    version = column_definitions.add_null_columns(table, _base(table, request), request.schema)
    crash_point("coordinator.columns_added")
    return version


def bind_columns(table: TableHandle, request: BindColumnsRequest) -> int:
    """Bind columns to their functions and return the version of the table in which they are bound.

    Raises:
        Aborted: TABLE_REPLACED – the table is not the one that the request names.
        CommitConflict, CommitUnclear: see `commit_outcomes`.
        LemanError: raised by `TableHandle.latest` and `column_definitions.bind_columns`.
    """
    return column_definitions.bind_columns(table, _base(table, request), request.schema)


def begin_attempt(table: TableHandle, request: BeginAttemptRequest) -> int:
    """Begin an attempt at a job and return a version of the table that refuses earlier attempts.

    Raises:
        Aborted: TABLE_REPLACED – the table has another incarnation, or no version with the identity, that the request
            names.
        FailedPrecondition: ATTEMPT_FENCED – a later attempt has begun.
        LemanError: raised by `TableHandle.latest`.
        CommitConflict, CommitUnclear: see `commit_outcomes`.
    """
    base = _base(table, request)
    if request.identity and not table.has_version(request.read_version, request.identity):
        raise _table_replaced(request.uri)
    refused = preconditions.fenced_rejection(base, request.job_id, request.attempt)
    if refused is not None:
        raise FailedPrecondition(refused.reason, refused.message)
    if base.attempts.get(request.job_id) == request.attempt:
        return base.version
    return table.begin_attempt(base, request.job_id, request.attempt)


def _base(table: TableHandle, request: AddColumnsRequest | BeginAttemptRequest | BindColumnsRequest) -> TableSnapshot:
    base = table.latest()
    if request.incarnation and request.incarnation != base.incarnation:
        raise _table_replaced(request.uri)
    return base


def _table_replaced(uri: str) -> Aborted:
    return Aborted("TABLE_REPLACED", f"Table {uri} was dropped and created again: try again", uri=uri)


def _look(table: TableHandle, candidates: Sequence[Candidate]) -> tuple[Base, list[Candidate]]:
    """Decide about the undecided candidates. Return the base, and the candidates that may be installed on it."""
    undecided = [c for c in candidates if c.decision is None]
    base = Base(table.latest({c.replacement.fragment_id for c in undecided}), _past(table, undecided))
    for candidate in undecided:
        refusal = preconditions.refuse_request(base, candidate)
        candidate.decision = refusal or preconditions.decide(base, candidate)
    _honour_history(table, [c for c in undecided if _is_rejected(c)])
    for candidate in undecided:
        rejection = _file_rejection(table, candidate)
        if candidate.decision is None and rejection is not None:
            candidate.decision = preconditions.rejected_outcome(candidate, rejection)
    return base, [c for c in undecided if c.decision is None]


def _past(table: TableHandle, candidates: Sequence[Candidate]) -> dict[int, TableSnapshot]:
    """Return the older versions that inputs were read from, if they still exist."""
    found = {n: table.past(n) for n in {c.request.inputs_version for c in candidates} if n}
    return {n: snapshot for n, snapshot in found.items() if snapshot is not None}


def _file_rejection(table: TableHandle, candidate: Candidate) -> Rejection | None:
    """Return why the file cannot be installed: it failed its check, or lacks rows that a restore has brought back."""
    if isinstance(candidate.file, Rejection):
        return candidate.file
    lacks, fragment_id = candidate.file.deletions, candidate.replacement.fragment_id
    if lacks is None or table.are_still_deleted(fragment_id, lacks):
        return None
    return Rejection(
        "FILE_LACKS_ROWS",
        f"{candidate.file.name} has no values for rows of fragment {fragment_id} that were deleted when it was written "
        "and that a restore has brought back: plan again",
    )


def _is_rejected(candidate: Candidate) -> bool:
    return isinstance(candidate.decision, Outcome) and candidate.decision.status is Status.REJECTED


def _honour_history(table: TableHandle, refused: Sequence[Candidate]) -> None:
    """Answer COMMITTED for fragments that the table's history lists as committed.

    The first answer may have been lost, and the table may have changed before the request was retried.
    """
    if not refused:
        return
    oldest = min(c.request.read_version for c in refused)
    installed = {
        (request_id, fragment_id, file): record.version
        for record in table.records(oldest, HISTORY_LIMIT)
        for request_id in record.request_ids
        for fragment_id, files in record.files.items()
        for file in files
    }
    for candidate in refused:
        fragment_id, file = candidate.replacement.fragment_id, candidate.replacement.staged.file
        version = installed.get((candidate.request.request_id, fragment_id, file))
        if version is not None:
            candidate.decision = Outcome(fragment_id=fragment_id, status=Status.COMMITTED, version=version)


def _recheck_inputs(after: Base, installed: Sequence[Candidate]) -> None:
    """Reject installed files whose inputs another writer changed between our read and our commit.

    Lance has no read set and accepts both commits, so such a file is in the table and stale. The next plan would detect
    this by the file's name; the rejection makes the caller plan again at once.
    """
    for candidate in installed:
        rejection = SameInputs().check(after, candidate)
        if rejection is not None:
            candidate.decision = preconditions.rejected_outcome(candidate, rejection)


_log = structlog.get_logger(__name__)


class FileChecks:
    """Checks the files of one table. One request uses at most `width` threads of the pool."""

    def __init__(self, uri: str, pool: BlockingPool, width: int) -> None:
        self._uri = uri
        self._files = StagedFiles(uri)
        self._pool = pool
        self._width = width

    async def candidates(self, request: ReplaceRequest) -> Sequence[Candidate]:
        """Check the request's files and return one candidate for each of its fragments, in the request's order.

        The sizes and digests of the files are noted next to the table for later verification. In an object store, the
        note is written concurrently with the checks; elsewhere afterwards, with only the valid files.

        Raises the errors of `storage_failed`.
        """
        staged = [replacement.staged for replacement in request.replacements]
        if in_object_store(self._uri) and all(map(table_files.can_be_noted, staged)):
            candidates, _ = await asyncio.gather(self._checked(request), self._note(staged))
            return candidates
        candidates = await self._checked(request)
        await self._note([c.replacement.staged for c in candidates if isinstance(c.file, InstallableFile)])
        return candidates

    async def _checked(self, request: ReplaceRequest) -> list[Candidate]:
        size = -(-len(request.replacements) // self._width)
        shares = [request.replacements[i : i + size] for i in range(0, len(request.replacements), size)]
        checked = await asyncio.gather(*(self._pool.run(self._check, request, share) for share in shares))
        return list(itertools.chain.from_iterable(checked))

    async def _note(self, files: Sequence[StagedFile]) -> None:
        if files:
            await self._pool.run(table_files.write_note, self._uri, files)

    def _check(self, request: ReplaceRequest, share: Sequence[FragmentReplacement]) -> list[Candidate]:
        return [Candidate(request, replacement, self._look_at(request, replacement)) for replacement in share]

    def _look_at(self, request: ReplaceRequest, replacement: FragmentReplacement) -> InstallableFile | Rejection:
        try:
            return self._files.prepare(replacement.staged, request.output)
        except (NotFound, DataLoss, FailedPrecondition) as error:
            if isinstance(error, DataLoss):  # its rows are computed again, but an operator should know
                _log.warning("a staged file is damaged", uri=self._uri, job_id=request.job_id, error=error.message)
            return Rejection(error.reason, error.message)
