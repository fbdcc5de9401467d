"""The Lance side of a commit: a table that is kept open between commits."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import lance
import pyarrow as pa
from lance import LanceOperation

from leman_coordinator.lance_io import attempts
from leman_coordinator.lance_io.column_updates import are_one_replacement, update_of
from leman_coordinator.lance_io.commit_outcomes import commit_outcomes
from leman_coordinator.lance_io.installable_files import InstallableFile
from leman_core.model.errors import InvalidArgument, NotFound
from leman_core.model.table import DataFile, Fragment, TableSnapshot
from leman_core.storage.commit_history import CommitHistory, CommitRecord
from leman_core.storage.conditional_puts import check_store
from leman_core.storage.deletions import Deletions, are_still_deleted
from leman_core.storage.error_translation import LANCE_ERRORS, first_line
from leman_core.storage.object_stores.known import options_of
from leman_core.storage.object_stores.requests import counted_table
from leman_core.storage.opening import move_to_latest, open_latest
from leman_core.storage.panics import panics_as_errors
from leman_core.storage.table_errors import table_error
from leman_core.storage.tables import INCARNATION_KEY, LanceTables, fields_of, open_table
from leman_core.storage.transactions import OPERATION, REPLACE_COLUMNS

_COMMIT_TIMEOUT = timedelta(seconds=60)
#: What is kept of a table between commits. By itself Lance keeps the manifest of each version that the handle was at:
#: half a megabyte for 200 columns.
_CACHE_BYTES = 16 << 20


class TableHandle:
    """A table that is kept open between commits, for one thread at a time.

    Call `latest` right before each commit: a commit builds on what the handle has read, and Lance would let it build
    on a table that was dropped and made anew at the same path.
    """

    def __init__(self, uri: str) -> None:
        check_store(uri.rpartition("/")[0])
        self._uri = uri
        self._past: TableSnapshot | None = None
        self._options = options_of(uri)
        self._dataset = open_table(uri, cache_bytes=_CACHE_BYTES)
        self._history = CommitHistory()
        self._had_index = False
        #: Versions whose rows were taken back, or need not be, see `twin_commits`.
        self.twins_settled: set[int] = set()

    @property
    def kept_bytes(self) -> int:
        """Return how much Lance keeps of the table, beside its latest manifest."""
        return int(self._dataset.session().size_bytes())

    def latest(self, fragment_ids: Collection[int] = ()) -> TableSnapshot:
        """Move to the latest version and return it, with those of the named fragments that exist.

        Raises:
            LemanError: what `table_errors.table_error` gives.
        """
        before = self.incarnation
        try:
            self._move_to_latest()
            with panics_as_errors():  # over a schema that makes no sense, once it is asked for
                found = self._snapshot(fragment_ids)
        except (OSError, ValueError) as error:
            raise table_error(self._uri, error) from None
        if found.incarnation != before:
            self._history = CommitHistory()
            self.twins_settled.clear()
        return found

    def _move_to_latest(self) -> None:
        options = options_of(self._uri)
        if options == self._options:
            move_to_latest(self._dataset)
        else:  # credentials were renewed, and the handle keeps those that it was opened with
            self._dataset = open_latest(self._uri, cache_bytes=_CACHE_BYTES)
            self._options = options

    def replace_files(
        self, base: TableSnapshot, files: Sequence[tuple[int, InstallableFile]], properties: Mapping[str, str]
    ) -> int:
        """Install files, at most one of each column in each fragment; return the version of the table with them.

        Lance rebases over versions that came after `base`: where the version grew by more than one, others
        committed in between.

        Args:
            base: The version that the handle is at, which was checked.
            files: Fragment ids, each with its file.
            properties: Of the transaction, see `leman_core.storage.commit_history`.

        Raises:
            CommitConflict: Another writer came between.
            CommitUnclear: The commit may have been made.
            FailedPrecondition: as `commit_outcomes`.
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
        """Commit an operation on the version that the handle is at, and return the version of the table with it.

        Raises:
            CommitConflict: Another writer came between.
            CommitUnclear: The commit may have been made.
            FailedPrecondition: as `commit_outcomes`.
        """
        version = int(self._dataset.version)
        transaction = lance.Transaction(version, operation, str(uuid.uuid4()), dict(properties))
        with commit_outcomes(self._uri):
            self._dataset = _committed(self._dataset, transaction)
        return int(self._dataset.version)

    def drop_columns(self, names: Sequence[str]) -> int:
        """Drop columns of the version that the handle is at, and return the version of the table without them.

        Raises:
            CommitConflict: Another writer came between.
            CommitUnclear: The commit may have been made.
            FailedPrecondition: as `commit_outcomes`.
        """
        with commit_outcomes(self._uri):
            self._dataset.drop_columns(list(names))
        return int(self._dataset.version)

    def alter_columns(self, alterations: Sequence[dict[str, Any]]) -> int:
        """Alter columns of the version that the handle is at, as `LanceDataset.alter_columns` takes it.

        Raises:
            CommitConflict: Another writer came between.
            CommitUnclear: The commit may have been made.
            FailedPrecondition: as `commit_outcomes`.
        """
        with commit_outcomes(self._uri):
            self._dataset.alter_columns(*alterations)  # type: ignore[arg-type]  # its annotation is of another form
        return int(self._dataset.version)

    def add_plain_columns(self, fields: Sequence[pa.Field]) -> int:
        """Add columns without values to the version that the handle is at.

        Raises:
            CommitConflict: Another writer came between.
            CommitUnclear: The commit may have been made.
            FailedPrecondition: as `commit_outcomes`.
        """
        with commit_outcomes(self._uri):
            self._dataset.add_columns(pa.schema(list(fields)))
        return int(self._dataset.version)

    def current(self, fragment_ids: Collection[int]) -> TableSnapshot:
        """Return the version that the handle is at, that of its last commit or look, with the named fragments."""
        return self._snapshot(fragment_ids)

    def has_no_index(self) -> bool:
        """Tell whether it is certain that the version that the handle is at has no index.

        To look costs nothing where there is none; of a table that had one it is not asked again.
        """
        if not self._had_index:
            self._had_index = True
            with contextlib.suppress(*LANCE_ERRORS), panics_as_errors():
                self._had_index = bool(self._dataset.describe_indices())
        return not self._had_index

    @property
    def dataset(self) -> lance.LanceDataset:
        """The version that the handle is at, as Lance's dataset."""
        return self._dataset

    def follow(self, committed: lance.LanceDataset) -> int:
        """Move to what a commit on top of `dataset` made, and return its version."""
        self._dataset = committed
        return int(committed.version)

    def past(self, version: int) -> TableSnapshot | None:
        """Return an older version; None where it was cleaned up.

        The one asked for last is remembered: versions never change.

        Raises:
            Unavailable: STORE_UNAVAILABLE – the storage cannot be read now.
        """
        if self._past is None or self._past.version != version:
            try:
                self._past = LanceTables().snapshot(self._uri, version)
            except NotFound:
                return None
        return self._past

    def count_rows(self, fragment_id: int, where: str) -> int:
        """Count the live rows of a fragment for which the filter is true, in the version that the handle is at."""
        fragment = self._dataset.get_fragment(fragment_id)
        return 0 if fragment is None else int(fragment.count_rows(where))

    def are_still_deleted(self, fragment_id: int, before: Deletions) -> bool:
        """Tell whether every row of a fragment that was deleted `before` is deleted in the handle's version, too."""
        fragment = self._dataset.get_fragment(fragment_id)
        return fragment is None or are_still_deleted(fragment, before)

    def add_schema(self, schema: pa.Schema) -> None:
        """Add columns without data, all or none, to the version that the handle is at, which gets an incarnation.

        Raises:
            InvalidArgument: BAD_COLUMN – Lance refuses the schema.
            CommitConflict: Another writer came between.
            CommitUnclear: The commit may have been made.
            FailedPrecondition: as `commit_outcomes`.
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
        """Change metadata of columns, by field id, in the version that the handle is at.

        Raises:
            CommitConflict: Another writer came between.
            CommitUnclear: The commit may have been made.
            FailedPrecondition: as `commit_outcomes`.
        """
        operation = LanceOperation.UpdateConfig(field_metadata_updates=changed)
        transaction = lance.Transaction(int(self._dataset.version), operation, str(uuid.uuid4()))
        with commit_outcomes(self._uri):
            self._dataset = _committed(self._dataset, transaction)

    def begin_attempt(self, base: TableSnapshot, job_id: str, attempt: int) -> int:
        """Write into the table's config that an attempt at a job has begun, and return the version after it.

        A table that has no incarnation gets one.

        Raises:
            CommitConflict: Another writer came between.
            CommitUnclear: The commit may have been made.
            FailedPrecondition: as `commit_outcomes`.
        """
        record = attempts.with_attempt(base.attempts, job_id, attempt)
        said: dict[str, str | None] = {attempts.ATTEMPTS_KEY: record}
        if not base.incarnation:
            said[INCARNATION_KEY] = uuid.uuid4().hex
        operation = LanceOperation.UpdateConfig(config_updates=LanceOperation.UpdateMap(said))
        transaction = lance.Transaction(base.version, operation, str(uuid.uuid4()))
        with commit_outcomes(self._uri):
            self._dataset = _committed(self._dataset, transaction)
        return int(self._dataset.version)

    def records(self, after: int, limit: int) -> Iterator[CommitRecord]:
        """Yield Leman's commits later than version `after` among the last `limit` versions, newest first."""
        return self._history.records(self._dataset, int(self._dataset.version), after, limit)

    @property
    def incarnation(self) -> str:
        """That of the version that the handle is at; empty: it has none."""
        return str(self._dataset.config().get(INCARNATION_KEY, ""))

    def _snapshot(self, fragment_ids: Collection[int]) -> TableSnapshot:
        found = (self._dataset.get_fragment(fragment_id) for fragment_id in sorted(fragment_ids))
        config = self._dataset.config()
        return TableSnapshot(
            uri=self._uri,
            version=int(self._dataset.version),
            incarnation=str(config.get(INCARNATION_KEY, "")),
            attempts=attempts.read(config),
            fields=fields_of(self._dataset),
            fragments=tuple(_fragment(f.metadata) for f in found if f is not None),
            stable_row_ids=bool(self._dataset.has_stable_row_ids),
        )


def _fragment(metadata: lance.FragmentMetadata) -> Fragment:
    deleted = metadata.deletion_file.num_deleted_rows if metadata.deletion_file else 0
    # `path` makes a class at every call, which would take longer than the whole commit.
    files = tuple(DataFile(f._path, tuple(f.fields)) for f in metadata.files)
    return Fragment(metadata.id, metadata.physical_rows, deleted or 0, files)


def _committed(dataset: lance.LanceDataset, transaction: lance.Transaction) -> lance.LanceDataset:
    return counted_table(lance.LanceDataset.commit(dataset, transaction, commit_timeout=_COMMIT_TIMEOUT))
