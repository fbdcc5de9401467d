"""The Lance side of a commit: a table that is kept open between commits."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import lance
import pyarrow as pa
from lance import LanceOperation

from commit_coordinator.lance_io import attempts
from commit_coordinator.lance_io.commit_outcomes import commit_outcomes, first_line
from commit_coordinator.lance_io.first_version import first_version
from commit_coordinator.lance_io.installable_files import InstallableFile
from core.crash_points import crash_point
from core.domain.table import DataFile, Fragment, TableField, TableSnapshot
from core.domain.udf import NOT_YET
from core.errors import FailedPrecondition, InvalidArgument, NotFound
from core.lance_io.commit_history import CommitHistory, CommitRecord
from core.lance_io.deletions import Deletions, are_still_deleted
from core.lance_io.opening import move_to_latest
from core.lance_io.panics import panics_as_errors
from core.lance_io.table_errors import table_error
from core.lance_io.tables import INCARNATION_KEY, LanceTables, fields_of, open_table
from core.udf import binding

_COMMIT_TIMEOUT = timedelta(seconds=60)
#: What is kept of a table between commits. By itself Lance keeps the manifest of each version that the handle was at:
#: half a megabyte for 200 columns.
_CACHE_BYTES = 16 << 20
#: Lance takes a column of such a name, and can then neither delete from the table nor compact it.
_RESERVED_NAMES = frozenset(
    {"", "_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"}
)


class TableHandle:
    """A table that is kept open between commits, for one thread at a time.

    Call `latest` right before each commit: a commit builds on what the handle has read, and Lance would let it build
    on a table that was dropped and made anew at the same path.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._past: TableSnapshot | None = None
        self._dataset = open_table(uri, cache_bytes=_CACHE_BYTES)
        self._history = CommitHistory()

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
            move_to_latest(self._dataset)
            with panics_as_errors():  # over a schema that makes no sense, once it is asked for
                found = self._snapshot(fragment_ids)
        except (OSError, ValueError) as error:
            raise table_error(self._uri, error) from None
        if found.incarnation != before:
            self._history = CommitHistory()
        return found

    def replace_files(
        self, base: TableSnapshot, files: Sequence[tuple[int, InstallableFile]], properties: Mapping[str, str]
    ) -> int:
        """Install files of the same fields, at most one in each fragment; return the version of the table with them.

        Lance rebases over versions that came after `base`: where the version grew by more than one, others
        committed in between.

        Args:
            base: The version that the handle is at, which was checked.
            files: Fragment ids, each with its file.
            properties: Of the transaction, see `core.lance_io.commit_history`.

        Raises:
            CommitConflict: Another writer came between.
            CommitUnclear: The commit may have been made.
            FailedPrecondition: as `commit_outcomes`.
        """
        if self._dataset.version != base.version:
            raise RuntimeError(f"checked at version {base.version}, the handle is at {self._dataset.version}")
        groups = [LanceOperation.DataReplacementGroup(fragment, file.data_file) for fragment, file in files]
        transaction = lance.Transaction(
            base.version, LanceOperation.DataReplacement(groups), str(uuid.uuid4()), dict(properties)
        )
        with commit_outcomes(self._uri):
            self._dataset = lance.LanceDataset.commit(self._dataset, transaction, commit_timeout=_COMMIT_TIMEOUT)
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
            self._dataset = lance.LanceDataset.commit(self._dataset, transaction, commit_timeout=_COMMIT_TIMEOUT)
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

    @property
    def dataset(self) -> lance.LanceDataset:
        """The version that the handle is at, as Lance's dataset."""
        return self._dataset

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

    def add_null_columns(self, base: TableSnapshot, schema: pa.Schema) -> int:
        """Add columns without data, all or none, and return the version of the table that has them.

        The table gets an incarnation first if it has none. Columns are known by the column id in their metadata:
        where all of them are there already, nothing is done, and the version is the first one that had them. Where one
        reads another one, the id that it got is written into its metadata, in a further version; until then it is
        known by its name.

        Raises:
            FailedPrecondition: COLUMN_EXISTS – another column has the name; else as `commit_outcomes`.
            InvalidArgument: BAD_COLUMN – Lance refuses the schema, or a name is reserved or stands there twice.
            CommitConflict: Another writer came between.
            CommitUnclear: The commit may have been made.
        """
        if all(_same_column(base.column(wanted.name), wanted) for wanted in schema):
            if self._settle_inputs(schema):
                return int(self._dataset.version)
            return first_version(self._uri, base.version, lambda past: _has_settled(past, schema))
        _check_new_columns(base, schema)
        with commit_outcomes(self._uri):
            if not base.incarnation:
                self._dataset.update_config({INCARNATION_KEY: uuid.uuid4().hex})
            try:
                self._dataset.add_columns(schema)
            except OSError as error:
                if "Invalid user input" in str(error) or "LanceError(Schema)" in str(error):
                    raise InvalidArgument("BAD_COLUMN", first_line(error), field="schema") from None
                raise
        self._settle_inputs(schema)
        return int(self._dataset.version)

    def _settle_inputs(self, schema: pa.Schema) -> bool:
        """Write the ids of inputs that were added with the columns that read them; False: there is nothing to write."""
        there = self.current(())
        columns = [column for name in schema.names if (column := there.column(name)) is not None]
        found = [(column.field_id, binding.settled(column.arrow, there)) for column in columns]
        changed = {i: LanceOperation.UpdateMap(binding.entries(field)) for i, field in found if field is not None}
        if changed:
            crash_point("coordinator.inputs_unsettled")
            self._update_fields(changed)
        return bool(changed)

    def bind_columns(self, base: TableSnapshot, schema: pa.Schema) -> int:
        """Replace what the columns' metadata says about their functions, for all or none; return the version after it.

        Values stay. Where the metadata says all of it already, nothing is done; if this very request made it so, the
        version is the first one that said it.

        Raises:
            FailedPrecondition: COLUMN_NOT_DEFINED – a column was dropped or added again; TYPE_MISMATCH – a column
                has another type; else as `commit_outcomes`.
            CommitConflict: Another writer came between.
            CommitUnclear: The commit may have been made.
        """
        changed = {}
        for asked in schema:
            wanted = binding.settled(asked, base) or asked
            column = _bindable(base, wanted)
            if binding.read(column.arrow) != binding.read(wanted):
                changed[column.field_id] = LanceOperation.UpdateMap(binding.entries(wanted))
        if not changed and _has_all(self._dataset, schema, binding.REQUEST):
            return first_version(self._uri, base.version, lambda past: _has_all(past, schema, binding.REQUEST))
        if changed:
            self._update_fields(changed)
        return int(self._dataset.version)

    def _update_fields(self, changed: dict[int, LanceOperation.UpdateMap]) -> None:
        """Change metadata of columns, by field id, in the version that the handle is at."""
        operation = LanceOperation.UpdateConfig(field_metadata_updates=changed)
        transaction = lance.Transaction(int(self._dataset.version), operation, str(uuid.uuid4()))
        with commit_outcomes(self._uri):
            self._dataset = lance.LanceDataset.commit(self._dataset, transaction, commit_timeout=_COMMIT_TIMEOUT)

    def begin_attempt(self, base: TableSnapshot, job_id: str, attempt: int) -> int:
        """Write into the table's config that an attempt at a job has begun, and return the version after it.

        Raises:
            CommitConflict: Another writer came between.
            CommitUnclear: The commit may have been made.
            FailedPrecondition: as `commit_outcomes`.
        """
        record = attempts.with_attempt(base.attempts, job_id, attempt)
        said: dict[str, str | None] = {attempts.ATTEMPTS_KEY: record}
        operation = LanceOperation.UpdateConfig(config_updates=LanceOperation.UpdateMap(said))
        transaction = lance.Transaction(base.version, operation, str(uuid.uuid4()))
        with commit_outcomes(self._uri):
            self._dataset = lance.LanceDataset.commit(self._dataset, transaction, commit_timeout=_COMMIT_TIMEOUT)
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


def _same_column(existing: TableField | None, wanted: pa.Field) -> bool:
    """Tell whether the column was added by this very request, or by one with the same column id."""
    if existing is None:
        return False
    column_id = (wanted.metadata or {}).get(binding.COLUMN_ID)
    return column_id is not None and (existing.arrow.metadata or {}).get(binding.COLUMN_ID) == column_id


def _has_all(dataset: lance.LanceDataset, wanted: pa.Schema, key: bytes) -> bool:
    """Tell whether a version of the table has each wanted entry in the metadata of some column of its own."""
    entries = [(field.metadata or {}).get(key) for field in wanted]
    there = Counter((field.metadata or {}).get(key) for field in dataset.schema)
    return None not in entries and not Counter(entries) - there


def _has_settled(dataset: lance.LanceDataset, wanted: pa.Schema) -> bool:
    """Tell whether a version of the table has the wanted columns, with the ids of all their inputs."""
    return _has_all(dataset, wanted, binding.COLUMN_ID) and not any(
        column.field_id == NOT_YET
        for field in dataset.schema
        if field.name in wanted.names and (bound := binding.read(field)) is not None
        for column in bound.inputs
    )


def _bindable(base: TableSnapshot, wanted: pa.Field) -> TableField:
    column = base.column(wanted.name)
    if column is None or binding.read(wanted) is None or not _same_column(column, wanted):
        raise FailedPrecondition(
            "COLUMN_NOT_DEFINED",
            f"Column {wanted.name} is not the one that was to be altered: it was dropped or added again meanwhile",
            column=wanted.name,
        )
    if column.arrow.type != wanted.type:
        raise FailedPrecondition(
            "TYPE_MISMATCH",
            f"Type mismatch for column {wanted.name}: it is {column.arrow.type}, {wanted.type} was to be altered",
            column=wanted.name,
        )
    return column


def _check_new_columns(base: TableSnapshot, schema: pa.Schema) -> None:
    for wanted in schema:
        if base.column(wanted.name) is not None:
            raise FailedPrecondition(
                "COLUMN_EXISTS", f"Column {wanted.name} exists in this table already", column=wanted.name
            )
        if wanted.name in _RESERVED_NAMES:
            raise InvalidArgument("BAD_COLUMN", f"A column cannot be named '{wanted.name}'", field="schema")
    if len(set(schema.names)) < len(schema.names):
        raise InvalidArgument("BAD_COLUMN", "A column is named twice", field="schema")
