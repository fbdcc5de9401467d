"""Decide from an inventory alone, without I/O, which files next to a table's data may be deleted.

A file is deleted if nothing can need it and it is older than the requested age. In doubt it stays: a checkpoint that is
kept too long costs space, but one that is deleted too early costs computing its rows again.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from leman._format.column_bindings import ColumnBinding
from leman._format.view_definitions import BASE_RECORD, FAILED_PREFIX, RECORD_PREFIX, failed_in
from leman_core.functions import binding
from leman_core.model import keys
from leman_core.model.garbage import (
    DAY,
    IN_USE,
    UNFINISHED_NAME,
    Fate,
    OpenJob,
    Purpose,
    RetentionDecision,
    StoredFile,
    StoredKind,
    Use,
)
from leman_core.model.row_positions import RowRange
from leman_core.model.table import DataFile, Fragment, TableField, TableSnapshot
from leman_core.storage.checkpoint_records import FragmentRecord

CHECKPOINTS, DATA, REFRESH = "_checkpoints", "data", "_refresh"


class SlotState(enum.Enum):
    """Whether a fragment has the values that one function version computes from certain inputs."""

    OPEN = "open"
    PARTIAL = "partial"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True)
class Slot:
    """The values of a column in one fragment, and whether they are complete."""

    state: SlotState
    #: The partial column file, if the state is PARTIAL.
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A computed column."""

    name: str
    bound: ColumnBinding
    field_ids: tuple[int, ...]
    #: Field ids in parameter order, including children, as the planner uses them.
    input_ids: tuple[int, ...]
    family: keys.KeyFamily


#: Column, md5 of the inputs, fragment id.
SlotId = tuple[str, str, int]


class Uses:
    """The references of a table's versions to files.

    Create it with the latest version. Add older ones with `add`, newest first, and versions of other branches only with
    `refer`.

    Args:
        latest: The latest version.
        own_folder: Whether the checkpoints lie in the table's own folder. Then keys that were written before the table
            was moved count too.
    """

    def __init__(self, latest: TableSnapshot, *, own_folder: bool) -> None:
        self._own_folder = own_folder
        self.version = latest.version
        found = (computed_column(latest, field) for field in latest.fields)
        self.columns = {column.name: column for column in found if column is not None}
        #: For each column's current name, the name by which checkpoint keys refer to the column.
        self.key_names = {column.name: column.family.column for column in self.columns.values()}
        self.column_names = frozenset(f.name for f in latest.fields) | frozenset(self.key_names.values())
        self.slots: dict[SlotId, Slot] = {}
        self.files: set[str] = set()
        self._seen: set[tuple[int, int, tuple[DataFile, ...]]] = set()
        self.add(latest)

    def add(self, snapshot: TableSnapshot) -> None:
        """Add a version. Slots of newer versions take precedence."""
        self._refer_record(snapshot)
        for fragment in snapshot.fragments:
            known = (fragment.fragment_id, fragment.live_rows, fragment.files)
            if known in self._seen:
                continue
            self._seen.add(known)
            self.files.update(f.path for f in fragment.files)
            for column in self.columns.values():
                sources = keys.sources([(i, fragment.file_of(i)) for i in column.input_ids])
                slot_id = (column.name, sources, fragment.fragment_id)
                if slot_id not in self.slots:
                    self.slots[slot_id] = _slot(column, fragment, sources)

    def refer(self, snapshot: TableSnapshot) -> None:
        """Add the references of a version, without its slots."""
        self._refer_record(snapshot)
        for fragment in snapshot.fragments:
            self.files.update(f.path for f in fragment.files)

    def _refer_record(self, snapshot: TableSnapshot) -> None:
        """Add the files that a view's metadata names: the record of its source, and the list of its failed rows."""
        record = snapshot.metadata.get(BASE_RECORD.encode(), b"").decode()
        self.files.update(name for name in (record, failed_in(snapshot.metadata).file) if name)

    def slot_of(self, key: str) -> tuple[Column, keys.FamilyKey, Slot | None] | None:
        """Return the column of a checkpoint key, the key's parts, and the slot to which it belongs.

        Two columns share keys if one was renamed and another added under its old name. Then the one that still needs
        the key is returned.

        Returns:
            None for a key that does not belong to a column's own function. The slot is None if no version added so far
            has the inputs in the key.
        """
        found = None
        for column in self.columns.values():
            parsed = column.family.parse(key, anywhere=self._own_folder)
            if parsed is not None:
                slot = self.slots.get((column.name, parsed.sources, parsed.fragment_id))
                if found is None or slot is None or slot.state is not SlotState.SETTLED:
                    found = column, parsed, slot
        return found

    def unexplained(self, files: Iterable[StoredFile]) -> list[StoredFile]:
        """Return the files that only older versions can explain. Pass those versions to `add` too."""
        return [file for file in files if self._is_unexplained(file)]

    def _is_unexplained(self, file: StoredFile) -> bool:
        if file.folder == DATA:
            unfinished = UNFINISHED_NAME.fullmatch(file.name) is not None
            return not unfinished and file.name not in self.files
        if file.folder == REFRESH:
            return file.name.startswith((RECORD_PREFIX, FAILED_PREFIX)) and file.name not in self.files
        found = self.slot_of(file.key) if file.key else None
        return found is not None and found[2] is None


def computed_column(table: TableSnapshot, column: TableField) -> Column | None:
    """Return a column and its binding, or None if no function computes it.

    Raises the errors of `binding.read`.
    """
    bound = binding.read(column.arrow)
    if bound is None:
        return None
    inputs = [table.find_id(i.field_id) or table.find(i.name) for i in bound.inputs]
    ids = tuple(i for f in inputs if f is not None for i in f.field_ids)
    family = keys.KeyFamily(
        udf_name=bound.udf_name, udf_version=bound.udf_version, column=bound.keyed_as(column.name), uri=table.uri
    )
    return Column(name=column.name, bound=bound, field_ids=column.field_ids, input_ids=ids, family=family)


def _slot(column: Column, fragment: Fragment, sources: str) -> Slot:
    if fragment.live_rows == 0:
        return Slot(SlotState.SETTLED)
    files = fragment.files_of(column.field_ids)
    name = keys.parse_column_file_name(files[0]) if len(files) == 1 else None
    bound = column.bound
    wanted = keys.fingerprint_of(keys.function_part(bound.udf_name, bound.udf_version, bound.values_id), sources)
    if name is None or name.fingerprint != wanted:
        return Slot(SlotState.OPEN)
    return Slot(SlotState.PARTIAL, files[0]) if name.partial else Slot(SlotState.SETTLED)


#: The largest expected difference between the clocks of workers, stores and this process, in seconds.
CLOCK_SKEW = 60.0
#: The longest time in seconds that a caller waits for a refresh that runs within its call.
_SOON_SECONDS = 300.0

_DAMAGED = ".damaged"
_KEY = re.compile(
    r"udf-(?P<udf>.+)_ver-(?P<version>.+)_col-(?P<column>.+)"
    r"_where-[0-9a-f]{32}_uri-[0-9a-f]{32}_srcfiles-[0-9a-f]{32}",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class PartialStates:
    """The parts of a partial column file's row states on which decisions depend."""

    #: Rows that were never requested.
    untouched: tuple[RowRange, ...]
    #: md5 of the filters for which all rows are computed.
    filters: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Everything on which decisions depend."""

    #: The current time, in seconds since the epoch.
    now: float
    #: The requested age, in seconds.
    older_than: float
    uses: Uses
    #: The files in the checkpoint folder, and Leman's files in the data folder.
    files: Sequence[StoredFile]
    #: Records by file name; None for a record without the current fields.
    records: Mapping[str, FragmentRecord | None] = field(default_factory=dict)
    #: States by the name of the partial column file; unreadable ones are missing.
    states: Mapping[str, PartialStates] = field(default_factory=dict)
    jobs: Sequence[OpenJob] = ()
    #: Whether no other coordinator serves the table.
    alone: bool = True


def decide_retention(inventory: Inventory) -> list[RetentionDecision]:
    """Return one decision for each file, except for files of the data folder that a version refers to.

    Decisions on the checkpoint folder come first, then all others, each in the order of the files.
    """
    present = {f.name for f in inventory.files if f.folder == DATA} | inventory.uses.files
    decisions = [
        _decision(inventory, file, *_checkpoint_use(inventory, file, present))
        for file in inventory.files
        if file.folder == CHECKPOINTS
    ]
    named = {
        record.file
        for decision in decisions
        if decision.kind is StoredKind.RECORD and decision.fate is not Fate.GARBAGE
        if (record := inventory.records.get(decision.file.name)) is not None
    }
    for file in inventory.files:
        if file.folder == DATA and file.name not in inventory.uses.files:
            decisions.append(_decision(inventory, file, *_data_use(file, named)))
        elif file.folder not in (CHECKPOINTS, DATA) and file.name not in inventory.uses.files:
            decisions.append(_decision(inventory, file, StoredKind.UNFINISHED, Use.UNFINISHED, Purpose()))
    return decisions


def _checkpoint_use(
    inventory: Inventory, file: StoredFile, present: Collection[str]
) -> tuple[StoredKind, Use, Purpose]:
    if file.name.endswith(_DAMAGED):
        return StoredKind.DAMAGED, Use.DAMAGED, Purpose()
    if UNFINISHED_NAME.fullmatch(file.name):
        return StoredKind.UNFINISHED, Use.UNFINISHED, Purpose()
    if keys.is_legacy(file.key):
        return StoredKind.CHECKPOINT, Use.LEGACY, Purpose()
    purpose = purpose_of(inventory.uses, file.key)
    if keys.parse_record_key(file.key) is not None:
        return StoredKind.RECORD, _record_use(inventory, file, purpose, present), purpose
    if keys.parse_range_key(file.key) is not None and purpose.column:
        return StoredKind.CHECKPOINT, _range_use(inventory, file.key, purpose), purpose
    return StoredKind.OTHER, Use.UNKNOWN, Purpose()


def _range_use(inventory: Inventory, key: str, purpose: Purpose) -> Use:
    found = inventory.uses.slot_of(key)
    if found is None:
        return _external(inventory.uses, purpose)
    _, parsed, slot = found
    if slot is None:
        return Use.NO_SOURCES
    if slot.state is not SlotState.PARTIAL or parsed.range is None:
        return Use.SETTLED if slot.state is SlotState.SETTLED else Use.OPEN
    states = inventory.states.get(slot.file)
    if states is None:
        return Use.OPEN
    done = parsed.filter_id in states.filters or not any(parsed.range.intersect(r) for r in states.untouched)
    return Use.SETTLED if done else Use.OPEN


def _record_use(inventory: Inventory, file: StoredFile, purpose: Purpose, present: Collection[str]) -> Use:
    record = inventory.records.get(file.name)
    if record is None:
        return Use.LEGACY
    if record.file not in present:
        return Use.FILE_MISSING
    named = keys.parse_column_file_name(record.file)
    if named is None or named.fingerprint != record.fingerprint:
        return Use.OPEN  # the record describes its file better than the file's name, for example after a compaction
    found = inventory.uses.slot_of(file.key)
    if record.file in inventory.uses.files:
        partial = found is not None and found[2] == Slot(SlotState.PARTIAL, record.file)
        return Use.OPEN if partial and record.states else Use.SETTLED  # the only trace of its rows after a compaction
    if found is None:
        return _external(inventory.uses, purpose)
    column, _, slot = found
    if slot is None:
        return Use.NO_SOURCES
    if slot.state is SlotState.SETTLED:
        return Use.SETTLED
    return Use.OPEN if record.column_id == column.bound.column_id else Use.NOT_INSTALLABLE


def _external(uses: Uses, purpose: Purpose) -> Use:
    return Use.OTHER_FUNCTION if purpose.column in uses.column_names else Use.NO_COLUMN


def _data_use(file: StoredFile, named: Collection[str]) -> tuple[StoredKind, Use, Purpose]:
    if keys.is_view_file_name(file.name) or keys.is_rows_file_name(file.name):
        # Without a record, only the job or the call that is writing it can need it.
        return StoredKind.COLUMN_FILE, Use.UNREFERENCED, Purpose()
    if keys.parse_column_file_name(file.name) is not None:
        return StoredKind.COLUMN_FILE, Use.OPEN if file.name in named else Use.UNREFERENCED, Purpose()
    if UNFINISHED_NAME.fullmatch(file.name):
        return StoredKind.UNFINISHED, Use.UNFINISHED, Purpose()
    return StoredKind.OTHER, Use.UNKNOWN, Purpose()


def _decision(
    inventory: Inventory, file: StoredFile, kind: StoredKind, use: Use, purpose: Purpose
) -> RetentionDecision:
    def fate() -> Fate:
        if use in IN_USE:
            return Fate.KEPT
        if _job_may_need(inventory.jobs, inventory.uses, file):
            return Fate.JOB
        return Fate.YOUNG if inventory.now - file.modified < _age(inventory, kind, file) else Fate.GARBAGE

    return RetentionDecision(file=file, kind=kind, use=use, fate=fate(), purpose=purpose)


def _job_may_need(jobs: Sequence[OpenJob], uses: Uses, file: StoredFile) -> bool:
    """Return whether an open job may need the file: it is younger than the job, or belongs to the job's column.

    The job may use a function other than the column's own. Then the parts of a key cannot be separated reliably, so the
    column's name is searched as text.
    """
    return any(file.modified >= job.created_at - CLOCK_SKEW or _is_of_column(job.column, uses, file) for job in jobs)


def _is_of_column(column: str | None, uses: Uses, file: StoredFile) -> bool:
    return column is not None and f"_col-{uses.key_names.get(column, column)}_where-" in file.key


def _age(inventory: Inventory, kind: StoredKind, file: StoredFile) -> float:
    """Return the age in seconds below which a file stays.

    A new file that nothing refers to yet looks like garbage, so the age is at least a day. A requested age of 0 applies
    only if no job is open and no other coordinator may be about to commit such a file. It never applies to unfinished
    files in the table's own folders, because writers other than Leman may be writing them. A short refresh writes files
    next to its view before the job history has its job, so files of a refresh always stay for some minutes.
    """
    if kind not in (StoredKind.COLUMN_FILE, StoredKind.UNFINISHED):
        return inventory.older_than
    forced = inventory.alone and inventory.older_than == 0 and not inventory.jobs
    external = kind is StoredKind.UNFINISHED and file.folder not in (CHECKPOINTS, REFRESH)
    if forced and not external:
        return _SOON_SECONDS if file.folder == REFRESH else 0.0
    return max(inventory.older_than, DAY)


def purpose_of(uses: Uses, key: str) -> Purpose:
    """Return the purpose of a key.

    The result is reliable for the columns' own functions. For other functions it may be wrong if a name looks like a
    part of a key.
    """
    found = uses.slot_of(key)
    if found is not None:
        column, parsed, _ = found
        bound = column.bound
        return Purpose(
            udf_name=bound.udf_name,
            udf_version=bound.udf_version,
            column=column.name,
            fragment_id=parsed.fragment_id,
            range=parsed.range,
        )
    ranged, record = keys.parse_range_key(key), keys.parse_record_key(key)
    prefix = ranged.prefix if ranged is not None else record[0] if record is not None else ""
    match = _KEY.fullmatch(prefix)
    if match is None:
        return Purpose()
    fragment_id = ranged.fragment_id if ranged is not None else record[1] if record is not None else -1
    return Purpose(
        udf_name=match["udf"],
        udf_version=match["version"],
        column=match["column"],
        fragment_id=fragment_id,
        range=ranged.range if ranged is not None else None,
    )


def partial_files(uses: Uses, files: Iterable[StoredFile]) -> set[str]:
    """Return the names of the partial column files whose row states the decisions need."""
    found = (uses.slot_of(f.key) for f in files if f.key)
    return {slot.file for _, _, slot in filter(None, found) if slot is not None and slot.state is SlotState.PARTIAL}


def removal_order(decisions: Iterable[RetentionDecision]) -> list[StoredFile]:
    """Return the garbage in the order of its removal: each record before the file that it names.

    So even after a crash, no record names a missing file.
    """
    garbage = [v for v in decisions if v.fate is Fate.GARBAGE]
    return [v.file for v in sorted(garbage, key=lambda v: v.kind is not StoredKind.RECORD)]
