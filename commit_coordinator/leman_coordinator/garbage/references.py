"""What the versions of a table refer to, and what its fragments still lack. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from leman_core.functions import binding
from leman_core.model import keys
from leman_core.model.garbage import UNFINISHED_NAME, StoredFile
from leman_core.model.table import DataFile, Fragment, TableField, TableSnapshot
from leman_core.model.udf import ColumnBinding
from leman_core.model.view_metadata import BASE_RECORD, FAILED_PREFIX, RECORD_PREFIX, failed_in

CHECKPOINTS, DATA, REFRESH = "_checkpoints", "data", "_refresh"


class SlotState(enum.Enum):
    """Whether a fragment holds the values of one function version and certain inputs."""

    OPEN = "open"
    PARTIAL = "partial"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of one fragment's values of a column, and whether it is filled."""

    state: SlotState
    #: The partial column file, where the state is PARTIAL.
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A computed column."""

    name: str
    bound: ColumnBinding
    field_ids: tuple[int, ...]
    #: In parameter order, children included, as the planner has them.
    input_ids: tuple[int, ...]
    family: keys.KeyFamily


#: (column, md5 of the inputs, fragment id).
SlotId = tuple[str, str, int]


class Uses:
    """What the versions of a table refer to.

    Give it the latest version first, then older ones with `add`, newest first, and other branches only with `refer`.

    Args:
        latest: the latest version.
        own_folder: the checkpoints lie in the table's own folder: then keys from before it was moved count too.
    """

    def __init__(self, latest: TableSnapshot, *, own_folder: bool) -> None:
        self._own_folder = own_folder
        self.version = latest.version
        found = (computed_column(latest, field) for field in latest.fields)
        self.columns = {column.name: column for column in found if column is not None}
        #: Names that columns have in keys, by the names that they have now.
        self.key_names = {column.name: column.family.column for column in self.columns.values()}
        self.column_names = frozenset(f.name for f in latest.fields) | frozenset(self.key_names.values())
        self.slots: dict[SlotId, Slot] = {}
        self.files: set[str] = set()
        self._seen: set[tuple[int, int, tuple[DataFile, ...]]] = set()
        self.add(latest)

    def add(self, snapshot: TableSnapshot) -> None:
        """Take in a version; what a newer one said about a slot holds."""
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
        """Take in what a version refers to, without its slots."""
        self._refer_record(snapshot)
        for fragment in snapshot.fragments:
            self.files.update(f.path for f in fragment.files)

    def _refer_record(self, snapshot: TableSnapshot) -> None:
        """Take in a view's record of its source, and the list of its failed rows."""
        record = snapshot.metadata.get(BASE_RECORD.encode(), b"").decode()
        self.files.update(name for name in (record, failed_in(snapshot.metadata).file) if name)

    def slot_of(self, key: str) -> tuple[Column, keys.FamilyKey, Slot | None] | None:
        """Return the column that a key belongs to, the key's parts, and the slot.

        Returns:
            None for a key that is not of a column's own function. The slot is None where no version so far has those
            sources. Two columns have the same keys where one was renamed and the other added under its name: then
            the one that still needs the key.
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
        """Return those of the files about which an older version could say more."""
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
    """Return a column of a table with what its binding says; None where no function computes it.

    Raises:
        LemanError: what `binding.read` raises.
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
