"""Keep a table open between commits, commit files of several columns in one transaction, and classify commit errors.

A key of the table's config records the latest attempt at each job that was taken over, and commits of earlier attempts
are refused. A commit reads the config with the manifest anyway, so this check costs no request. Every coordinator sees
the record, even after a restart or without Redis (decision 16).

The Lance operation DataReplacement installs files of the same fields, one in each fragment. The Lance operation Update
replaces whole fragments, and so can install files of any columns. After either operation, indexes on these columns no
longer cover the fragments. Unlike a DataReplacement, an Update also sets the versions at which rows were last updated,
and conflicts with concurrent deletions.
"""

from __future__ import annotations

import contextlib
import json
import struct
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import lance
import pyarrow as pa
from lance import LanceOperation
from lance.commit import CommitConflictError

from leman_coordinator.lance_io.table_files import InstallableFile, with_files
from leman_core.model.service_errors import Aborted, FailedPrecondition, InvalidArgument, LemanError, NotFound
from leman_core.model.table import DataFile, Fragment, TableSnapshot, identified_fragment
from leman_core.storage.error_translation import LANCE_ERRORS, first_line, is_definite, table_error
from leman_core.storage.filesystems import counted_table
from leman_core.storage.lance_files import Deletions, are_still_deleted
from leman_core.storage.lance_tables import INCARNATION_KEY, LanceTables, fields_of, open_table
from leman_core.storage.object_stores import options_of
from leman_core.storage.opening import move_to_latest, open_latest
from leman_core.storage.panics import panics_as_errors
from leman_core.storage.storage_errors import refusal_error
from leman_core.storage.table_creation import check_conditional_puts
from leman_core.storage.transactions import OPERATION, REPLACE_COLUMNS, CommitHistory, CommitRecord

#: Messages of plain OSErrors after which certainly nothing was committed.
_REFUSED = (
    "Incompatible transaction",
    "commit conflict",
    "Fragment being replaced not found",
    "no changes were made",
)


class CommitConflict(Exception):
    """Another writer committed first, so nothing was committed. Read the table again before a retry."""


class CommitUnclear(Exception):
    """Lance failed, and the commit may or may not have been made. Read the table before a retry."""


@contextlib.contextmanager
def commit_outcomes(uri: str) -> Iterator[None]:
    """Translate Lance's errors in a commit into one of three outcomes.

    Raises:
        CommitConflict: Another writer committed first, and nothing was committed.
        FailedPrecondition: The same commit would be refused again, by the storage (see
            `leman_core.storage.storage_errors`) or by Lance (COMMIT_REFUSED).
        CommitUnclear: Any other error; the commit may have been made.
    """
    try:
        yield
    except (LemanError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in Lance's Rust is not an Exception
        refused = isinstance(error, OSError) and any(text in str(error) for text in _REFUSED)
        if refused or isinstance(error, CommitConflictError | FileExistsError):
            raise CommitConflict(first_line(error)) from error
        definite = refusal_error(error, uri) or _definite(uri, error)
        if definite is not None:
            raise definite from error
        raise CommitUnclear(first_line(error)) from error


def _definite(uri: str, error: BaseException) -> FailedPrecondition | None:
    """Return the error for a commit that Lance would refuse again, or None if a retry may succeed.

    For a panic the result is None, because reading the table shows whether the commit was made.
    """
    if not is_definite(error):
        return None
    return FailedPrecondition(
        "COMMIT_REFUSED", f"Lance refuses this commit to {uri}, and would again: {first_line(error)}", uri=uri
    )


ATTEMPTS_KEY = "leman.attempts"
#: The number of taken-over jobs that a table records. If more of its jobs were taken over while an executor was frozen,
#: that executor could commit again.
_JOBS_KEPT = 64


def read_attempts(config: Mapping[str, str]) -> dict[str, int]:
    """Return, for each job that was taken over, the number of its latest attempt.

    Any writer may change the config, so an invalid record counts as none.
    """
    try:
        stored = json.loads(config.get(ATTEMPTS_KEY) or "{}")
    except ValueError:
        return {}
    if not isinstance(stored, dict):
        return {}
    return {job_id: attempt for job_id, attempt in stored.items() if isinstance(attempt, int)}


def with_attempt(known: Mapping[str, int], job_id: str, attempt: int) -> str:
    """Return the record with an attempt added at its end. At most `_JOBS_KEPT` jobs stay in it, the latest ones."""
    entries = [(job, number) for job, number in known.items() if job != job_id][-_JOBS_KEPT + 1 :]
    return json.dumps(dict([*entries, (job_id, attempt)]), separators=(",", ":"))


_CONTAINER = 1 << 16
#: The first number of a portable Roaring bitmap with run containers; and the smallest number of containers for which
#: the format requires a list of their offsets.
_COOKIE, _LISTED_FROM = 12347, 4


def update_of(dataset: lance.LanceDataset, files: Sequence[tuple[int, InstallableFile]]) -> LanceOperation.Update:
    """Return the operation that installs files in fragments of `dataset`. A fragment may get several."""
    by_fragment: dict[int, list[InstallableFile]] = {}
    for fragment_id, file in files:
        by_fragment.setdefault(fragment_id, []).append(file)
    fragments = []
    for fragment_id, new in by_fragment.items():
        fragment = dataset.get_fragment(fragment_id)
        if fragment is None:
            raise Aborted("FRAGMENT_GONE", f"Fragment {fragment_id} is not in the table any more")
        fragments.append(with_files(fragment.metadata, [file.data_file for file in new]))
    return LanceOperation.Update(
        updated_fragments=fragments,
        fields_modified=sorted({field_id for _, file in files for field_id in file.data_file.fields}),
        update_mode="rewrite_columns",
        updated_fragment_offsets={fragment.id: all_offsets(fragment.physical_rows) for fragment in fragments},
    )


def are_one_replacement(files: Sequence[tuple[int, InstallableFile]]) -> bool:
    """Return whether one DataReplacement can install the files."""
    fields = {tuple(file.data_file.fields) for _, file in files}
    return len(fields) == 1 and len({fragment_id for fragment_id, _ in files}) == len(files)


def all_offsets(rows: int) -> bytes:
    """Return the numbers below `rows` as a Roaring bitmap with one run in each container."""
    sizes = [min(_CONTAINER, rows - begin) for begin in range(0, rows, _CONTAINER)]
    count = len(sizes)
    head = struct.pack("<I", _COOKIE | (count - 1) << 16) + ((1 << count) - 1).to_bytes(-(-count // 8), "little")
    head += b"".join(struct.pack("<HH", key, size - 1) for key, size in enumerate(sizes))
    if count >= _LISTED_FROM:
        begin = len(head) + 4 * count
        head += struct.pack(f"<{count}I", *(begin + 6 * at for at in range(count)))
    return head + b"".join(struct.pack("<HHH", 1, 0, size - 1) for size in sizes)


_COMMIT_TIMEOUT = timedelta(seconds=60)
#: The size of Lance's cache for a table between commits. By default Lance keeps the manifest of each version that the
#: handle has read, which takes half a megabyte for 200 columns.
_CACHE_BYTES = 16 << 20


class TableHandle:
    """A table that is kept open between commits, for one thread at a time.

    Call `latest` right before each commit. A commit builds on what the handle has read, and Lance would not notice that
    a table was dropped and recreated at the same path.
    """

    def __init__(self, uri: str) -> None:
        check_conditional_puts(uri.rpartition("/")[0])
        self._uri = uri
        self._past: TableSnapshot | None = None
        self._options = options_of(uri)
        self._dataset = open_table(uri, cache_bytes=_CACHE_BYTES)
        self._history = CommitHistory()
        self._had_index = False
        #: Versions that were already searched for duplicate rows, see `duplicate_commits`.
        self.twins_settled: set[int] = set()

    @property
    def kept_bytes(self) -> int:
        """Return the bytes of memory that Lance keeps for the table, without the latest manifest."""
        return int(self._dataset.session().size_bytes())

    def latest(self, fragment_ids: Collection[int] = ()) -> TableSnapshot:
        """Move the handle to the latest version, and return it with the requested fragments that exist.

        Raises:
            LemanError: see `table_error`.
        """
        before = self.incarnation
        try:
            self._move_to_latest()
            with panics_as_errors():  # Lance panics when it reads an invalid schema
                found = self._snapshot(fragment_ids)
        except (OSError, ValueError) as error:
            raise table_error(self._uri, error) from None
        if found.incarnation != before:
            self._history = CommitHistory()
            self._past = None
            self.twins_settled.clear()
        return found

    def _move_to_latest(self) -> None:
        options = options_of(self._uri)
        if options == self._options:
            move_to_latest(self._dataset)
        else:  # credentials were renewed, but the handle has the old ones
            self._dataset = open_latest(self._uri, cache_bytes=_CACHE_BYTES)
            self._options = options

    def replace_files(
        self, base: TableSnapshot, files: Sequence[tuple[int, InstallableFile]], properties: Mapping[str, str]
    ) -> int:
        """Install files, at most one for each column and fragment, and return the version of the table with them.

        Lance may commit on top of a version after `base`. If the result is more than one above `base`, other writers
        have committed in between.

        Args:
            base: The handle's version, which was checked.
            files: Fragment ids, each with its file.
            properties: Transaction properties, see `leman_core.storage.transactions`.

        Raises the errors of `commit_outcomes`.
        """
        if self._dataset.version != base.version:
            raise RuntimeError(f"checked at version {base.version}, the handle is at {self._dataset.version}")
        operation: LanceOperation.BaseOperation
        said = dict(properties)
        if are_one_replacement(files):
            groups = [LanceOperation.DataReplacementGroup(fragment, file.data_file) for fragment, file in files]
            operation = LanceOperation.DataReplacement(groups)
        else:
            operation = update_of(self._dataset, files)
            said[OPERATION] = REPLACE_COLUMNS
        transaction = lance.Transaction(base.version, operation, str(uuid.uuid4()), said)
        with commit_outcomes(self._uri):
            self._dataset = _committed(self._dataset, transaction)
        return int(self._dataset.version)

    def commit(self, operation: LanceOperation.BaseOperation, properties: Mapping[str, str]) -> int:
        """Commit an operation on the handle's version, and return the version of the table with it.

        Raises the errors of `commit_outcomes`.
        """
        version = int(self._dataset.version)
        transaction = lance.Transaction(version, operation, str(uuid.uuid4()), dict(properties))
        with commit_outcomes(self._uri):
            self._dataset = _committed(self._dataset, transaction)
        return int(self._dataset.version)

    def drop_columns(self, names: Sequence[str]) -> int:
        """Drop columns of the handle's version, and return the version of the table without them.

        Raises the errors of `commit_outcomes`.
        """
        with commit_outcomes(self._uri):
            self._dataset.drop_columns(list(names))
        return int(self._dataset.version)

    def alter_columns(self, alterations: Sequence[dict[str, Any]]) -> int:
        """Alter columns of the handle's version, with the arguments of `LanceDataset.alter_columns`.

        Raises the errors of `commit_outcomes`.
        """
        with commit_outcomes(self._uri):
            self._dataset.alter_columns(*alterations)  # type: ignore[arg-type]  # Lance's annotation is too narrow
        return int(self._dataset.version)

    def add_plain_columns(self, fields: Sequence[pa.Field]) -> int:
        """Add columns without values to the handle's version.

        Raises the errors of `commit_outcomes`.
        """
        with commit_outcomes(self._uri):
            self._dataset.add_columns(pa.schema(list(fields)))
        return int(self._dataset.version)

    def current(self, fragment_ids: Collection[int]) -> TableSnapshot:
        """Return the handle's version, which it last committed or read, with the requested fragments."""
        return self._snapshot(fragment_ids)

    def has_no_index(self) -> bool:
        """Return whether the handle's version certainly has no index.

        This is cheap as long as the table never had an index. Once it had one, this returns False without checking.
        """
        if not self._had_index:
            self._had_index = True
            with contextlib.suppress(*LANCE_ERRORS), panics_as_errors():
                self._had_index = bool(self._dataset.describe_indices())
        return not self._had_index

    @property
    def dataset(self) -> lance.LanceDataset:
        """The handle's version, as Lance's dataset."""
        return self._dataset

    def follow(self, committed: lance.LanceDataset) -> int:
        """Move to the version that a commit on `dataset` made, and return its number."""
        self._dataset = committed
        return int(committed.version)

    def past(self, version: int) -> TableSnapshot | None:
        """Return an older version, or None if it was deleted.

        The version that was opened last is cached, because versions never change.

        Raises:
            Unavailable: STORE_UNAVAILABLE – the storage cannot be read now.
        """
        if self._past is None or self._past.version != version:
            try:
                self._past = LanceTables().snapshot(self._uri, version)
            except NotFound:
                return None
        return self._past

    def has_version(self, version: int, identity: str) -> bool:
        """Return whether the table at the uri has a version with the identity that a plan recorded.

        Raises the errors of `LanceTables.snapshot`.
        """
        fragment = identified_fragment(identity)
        if fragment is None:
            return False
        try:
            found = LanceTables().snapshot(self._uri, version, [fragment])
        except NotFound:
            return False
        return found.version_identity == identity

    def count_rows(self, fragment_id: int, where: str) -> int:
        """Return the number of live rows of a fragment that match the filter, in the handle's version."""
        fragment = self._dataset.get_fragment(fragment_id)
        return 0 if fragment is None else int(fragment.count_rows(where))

    def are_still_deleted(self, fragment_id: int, before: Deletions) -> bool:
        """Return whether all of a fragment's rows that are deleted in `before` are still deleted."""
        fragment = self._dataset.get_fragment(fragment_id)
        return fragment is None or are_still_deleted(fragment, before)

    def add_schema(self, schema: pa.Schema) -> None:
        """Add columns without data to the handle's version, all or none, and give the table an incarnation.

        Raises:
            InvalidArgument: BAD_COLUMN – Lance refuses the schema.
            CommitConflict, CommitUnclear: see `commit_outcomes`.
            FailedPrecondition: see `commit_outcomes`.
        """
        with commit_outcomes(self._uri):
            if not self.incarnation:
                self._dataset.update_config({INCARNATION_KEY: uuid.uuid4().hex})
            try:
                self._dataset.add_columns(schema)
            except OSError as error:
                if "Invalid user input" in str(error) or "LanceError(Schema)" in str(error):
                    raise InvalidArgument("BAD_COLUMN", first_line(error), field="schema") from None
                raise

    def update_fields(self, changed: dict[int, LanceOperation.UpdateMap]) -> None:
        """Change metadata of columns, by field id, and give the table an incarnation.

        Raises the errors of `commit_outcomes`.
        """
        config = None if self.incarnation else LanceOperation.UpdateMap({INCARNATION_KEY: uuid.uuid4().hex})
        operation = LanceOperation.UpdateConfig(config_updates=config, field_metadata_updates=changed)
        transaction = lance.Transaction(int(self._dataset.version), operation, str(uuid.uuid4()))
        with commit_outcomes(self._uri):
            self._dataset = _committed(self._dataset, transaction)

    def begin_attempt(self, base: TableSnapshot, job_id: str, attempt: int) -> int:
        """Record in the table's config that an attempt at a job has begun, and return the version with the record.

        A table without an incarnation gets one.

        Raises the errors of `commit_outcomes`.
        """
        record = with_attempt(base.attempts, job_id, attempt)
        said: dict[str, str | None] = {ATTEMPTS_KEY: record}
        if not base.incarnation:
            said[INCARNATION_KEY] = uuid.uuid4().hex
        operation = LanceOperation.UpdateConfig(config_updates=LanceOperation.UpdateMap(said))
        transaction = lance.Transaction(base.version, operation, str(uuid.uuid4()))
        with commit_outcomes(self._uri):
            self._dataset = _committed(self._dataset, transaction)
        return int(self._dataset.version)

    def records(self, after: int, limit: int) -> Iterator[CommitRecord]:
        """Yield Leman's commits after version `after` among the last `limit` versions, newest first."""
        return self._history.records(self._dataset, int(self._dataset.version), after, limit)

    @property
    def incarnation(self) -> str:
        """The incarnation, which identifies this table among successive ones of its name, or "" if it has none."""
        return str(self._dataset.config().get(INCARNATION_KEY, ""))

    def _snapshot(self, fragment_ids: Collection[int]) -> TableSnapshot:
        found = (self._dataset.get_fragment(fragment_id) for fragment_id in sorted(fragment_ids))
        config = self._dataset.config()
        return TableSnapshot(
            uri=self._uri,
            version=int(self._dataset.version),
            incarnation=str(config.get(INCARNATION_KEY, "")),
            attempts=read_attempts(config),
            fields=fields_of(self._dataset),
            fragments=tuple(_fragment(f.metadata) for f in found if f is not None),
            stable_row_ids=bool(self._dataset.has_stable_row_ids),
        )


def _fragment(metadata: lance.FragmentMetadata) -> Fragment:
    deleted = metadata.deletion_file.num_deleted_rows if metadata.deletion_file else 0
    # The property `path` creates a class at every access, which would take longer than the whole commit.
    files = tuple(DataFile(f._path, tuple(f.fields)) for f in metadata.files)
    return Fragment(metadata.id, metadata.physical_rows, deleted or 0, files)


def _committed(dataset: lance.LanceDataset, transaction: lance.Transaction) -> lance.LanceDataset:
    return counted_table(lance.LanceDataset.commit(dataset, transaction, commit_timeout=_COMMIT_TIMEOUT))
