"""Tells which rows of a source are the same in two versions, as far as a view reads them, without reading a value.

Three things tell, the cheapest first; a row for which none does counts as changed, and is computed anew:

1. Lance's `_row_last_updated_at_version` is the same in both versions. It cannot be relied on where a version in
   between may have changed values without moving it (`row_versions.is_silent`).
2. The row lies elsewhere, and compaction alone brought it there (`ancestry`). Fragments 0 and 1 became fragment 4: a
   row of 4 is the same as in 0 if the files of 0 that the view reads are those that the older version has.
3. The row lies where it did, its fragment has another file, and that file says which rows it changed
   (`leman_core.storage.views.patches`): all others are the same. So do the files of views and those of computed
   columns.

Row 17 at (fragment 0, offset 3) before and at (4, 3) now, where 4 was compacted from 0 and 1: 1 tells where no column
was rewritten in between. If another column of fragment 0 was rewritten first, the row counts as updated, and 2 tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import lance
import numpy as np

from leman_core.model.refresh import RefreshPlan
from leman_core.model.sorted_sets import contains, distinct
from leman_core.model.table import Fragment, TableField
from leman_core.model.view_rows import Ids, Mask
from leman_core.sql.query_columns import columns_read
from leman_core.storage.manifest import read_fragments
from leman_core.storage.opening import open_version
from leman_core.storage.tables import fields_of
from leman_core.storage.views.patches import patched_offsets
from leman_core.storage.views.row_facts import RowFacts
from leman_executor.refresh.diff.ancestry import Ancestry, Origins, common_origin
from leman_executor.refresh.diff.row_versions import is_silent


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Rows that are there in both versions, sorted by id; row `i` of one side is row `i` of the other."""

    before: RowFacts
    now: RowFacts


class Side:
    """One of the two versions; its fragments are read when they are asked for."""

    def __init__(self, version: int, fields: Sequence[TableField], read: Callable[[], Iterable[Fragment]]) -> None:
        self.version = version
        self.fields = fields
        self._read = read

    @classmethod
    def of(cls, dataset: lance.LanceDataset) -> Side:
        """Return the side of a version that the table still has."""
        return cls(int(dataset.version), fields_of(dataset), lambda: read_fragments(dataset))

    @cached_property
    def fragments(self) -> Mapping[int, Fragment]:
        """Return the fragments by id."""
        return {fragment.fragment_id: fragment for fragment in self._read()}


class UnchangedRows:
    """Tells for one plan which rows are the same.

    The source is opened, and its history read, only where that is needed. `base` returns the older version.
    """

    def __init__(self, plan: RefreshPlan, base: Callable[[], Side]) -> None:
        self._plan = plan
        self._get_base = base
        self._uri = plan.definition.source_uri
        self._known_ancestries: dict[int, Ancestry] = {}
        self._known_origins: dict[int, Origins] = {}

    def unchanged(self, pairs: Pairs) -> Mask:
        """Tell for each pair of rows whether the view reads the same values from both.

        The rows are in fragments whose files differ.
        """
        now, before = pairs.now, pairs.before
        same: Mask = np.zeros(len(now), np.bool_)
        if not len(now):
            return same
        stayed: Mask = before.addresses == now.addresses
        if not self._changed_silently:
            same |= before.updated == now.updated
        if not self._other_columns:  # file names show compactions, even where nothing else is known
            same |= self._only_moved(pairs, ~same & ~stayed)
        rewritten = stayed & ~same
        for fragment_id in distinct(now.fragment_ids[rewritten]).tolist():
            patched = self._patched(fragment_id)
            if patched is not None:
                here = rewritten & (now.fragment_ids == fragment_id)
                same |= here & ~contains(patched, now.offsets)
        return same

    @cached_property
    def _base(self) -> Side:
        return self._get_base()

    @cached_property
    def _dataset(self) -> lance.LanceDataset:
        return open_version(self._uri, self._plan.target_version)

    @cached_property
    def _target(self) -> Side:
        return Side.of(self._dataset)

    @cached_property
    def _columns(self) -> tuple[str, ...]:
        return columns_read(self._plan.definition.query, [field.name for field in self._target.fields])

    @cached_property
    def _other_columns(self) -> bool:
        """Tell whether a name means another column now: its values may be in the same file."""
        ids = [{f.name: f.field_ids for f in side.fields} for side in (self._base, self._target)]
        return any(ids[0].get(c) != ids[1].get(c) for c in self._columns)

    @cached_property
    def _changed_silently(self) -> bool:
        """Tell whether `_row_last_updated_at_version` may be the same for rows with other values."""
        return self._other_columns or is_silent(self._dataset, self._plan.definition.base_version, self._columns)

    def _only_moved(self, pairs: Pairs, asked: Mask) -> Mask:
        """Tell which of the asked rows compaction alone moved: in either direction, or out of one place."""
        found = np.zeros(len(asked), np.bool_)
        before, now = (self._base, pairs.before), (self._target, pairs.now)
        for (newer, here), (older, there) in ((now, before), (before, now)):
            left = np.flatnonzero(asked & ~found)
            if len(left):
                origins = self._origins(newer, older)
                found[left] = origins.only_moved(here.at(left), there.at(left), self._patched_between)
        left = np.flatnonzero(asked & ~found)
        if len(left):
            ancestries = self._ancestry(self._target), self._ancestry(self._base)
            found[left] = common_origin(ancestries[0], pairs.now.at(left), ancestries[1], pairs.before.at(left))
        return found

    def _origins(self, newer: Side, older: Side) -> Origins:
        key = newer.version
        if key not in self._known_origins:
            self._known_origins[key] = Origins(self._ancestry(newer), self._ancestry(older))
        return self._known_origins[key]

    def _ancestry(self, side: Side) -> Ancestry:
        if side.version not in self._known_ancestries:
            fields = [i for f in side.fields if f.name in self._columns for i in f.field_ids]
            self._known_ancestries[side.version] = Ancestry(self._uri, side.version, fields, side.fragments)
        return self._known_ancestries[side.version]

    def _patched(self, fragment_id: int) -> Ids | None:
        """Return the offsets of a fragment's rows that were changed in between; None: any may have been."""
        old, new = self._base.fragments.get(fragment_id), self._target.fragments.get(fragment_id)
        return None if old is None or new is None else self._patched_between(old, new)

    def _patched_between(self, old: Fragment, new: Fragment) -> Ids | None:
        if self._other_columns:
            return None
        before, after = self._files(self._base, old), self._files(self._target, new)
        if before is None or after is None:
            return None
        offsets = patched_offsets(self._uri, before, after)
        return patched_offsets(self._uri, after, before) if offsets is None else offsets

    def _files(self, side: Side, fragment: Fragment) -> Mapping[str, str] | None:
        """Return which file holds each column that is read; None where one column has several."""
        files = {f.name: fragment.files_of(f.field_ids) for f in side.fields if f.name in self._columns}
        if any(len(names) != 1 for names in files.values()):
            return None
        return {column: names[0] for column, names in files.items()}
