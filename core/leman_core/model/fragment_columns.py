"""All fragments of a version of a table, in columns: a table may have a million, each of several objects."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leman_core.model import sorted_sets
from leman_core.model.object_columns import Numbers, ObjectColumns
from leman_core.model.table import DataFile, Fragment


class FragmentColumns(ObjectColumns[Fragment]):
    """Fragments in the order of the manifest; each `Fragment` is made when it is looked at, and not kept.

    Example: fragments 0 (files a, b) and 3 (file c) are `ids` [0, 3], `first_file` [0, 2, 3] and `paths` [a, b, c].

    Args:
        ids: of the fragments.
        physical_rows: of each.
        deleted_rows: of each.
        first_file: where the files of each begin in `paths`, and the number of all files behind them.
        paths: names of files.
        held: of each file a place in `field_sets`.
        field_sets: Lance field ids that files hold, each set once.
        deletion_files: of `Fragment`, by place, where there is one.
    """

    __slots__ = ("deleted_rows", "deletion_files", "field_sets", "first_file", "held", "ids", "paths", "physical_rows")

    def __init__(
        self,
        ids: Numbers,
        physical_rows: Numbers,
        deleted_rows: Numbers,
        *,
        first_file: Numbers,
        paths: pa.LargeStringArray,
        held: Numbers,
        field_sets: Sequence[tuple[int, ...]],
        deletion_files: dict[int, str],
    ) -> None:
        self.ids = ids
        self.physical_rows = physical_rows
        self.deleted_rows = deleted_rows
        self.first_file = first_file
        self.paths = paths
        self.held = held
        self.field_sets = field_sets
        self.deletion_files = deletion_files

    @classmethod
    def of(cls, fragments: Iterable[Fragment]) -> FragmentColumns:
        """Return fragments as columns; those that are columns already as they are."""
        if isinstance(fragments, cls):
            return fragments
        known = list(fragments)
        files = [file for fragment in known for file in fragment.files]
        sets: dict[tuple[int, ...], int] = {}
        return cls(
            _numbers(fragment.fragment_id for fragment in known),
            _numbers(fragment.physical_rows for fragment in known),
            _numbers(fragment.deleted_rows for fragment in known),
            first_file=starts(len(fragment.files) for fragment in known),
            paths=pa.array([file.path for file in files], pa.large_string()),
            held=_numbers(sets.setdefault(file.field_ids, len(sets)) for file in files),
            field_sets=tuple(sets),
            deletion_files={at: f.deletion_file for at, f in enumerate(known) if f.deletion_file},
        )

    @property
    def live_rows(self) -> Numbers:
        """Of each fragment."""
        return self.physical_rows - self.deleted_rows

    def with_ids(self, wanted: Collection[int]) -> npt.NDArray[np.bool_]:
        """Tell which fragments have one of the ids."""
        return sorted_sets.contains(np.array(sorted(wanted), np.int64), self.ids)

    def files_with(self, field_ids: Collection[int]) -> tuple[Numbers, Numbers]:
        """Return of each fragment its first file that holds any of the fields (-1: none), and how many do."""
        wanted = frozenset(field_ids)
        holds = np.array([not wanted.isdisjoint(held) for held in self.field_sets], np.bool_)
        files = np.flatnonzero(holds[self.held]) if len(holds) else np.zeros(0, np.int64)
        owners = np.searchsorted(self.first_file, files, side="right") - 1
        first = np.full(len(self), -1, np.int64)
        first[owners[::-1]] = files[::-1]
        return first, np.bincount(owners, minlength=len(self))

    def names(self, files: Numbers) -> list[str]:
        """Return the names of some files, by their places in `paths`; empty for -1."""
        return listed(self.paths_at(files))

    def paths_at(self, files: Numbers) -> pa.LargeStringArray:
        """Return what `names` does, as an array."""
        return self.paths.take(pa.array(files, mask=files < 0)).fill_null("")

    def __len__(self) -> int:
        return len(self.ids)

    def _made(self, places: Numbers) -> Iterator[Fragment]:
        first = self.first_file[places]
        counts = self.first_file[places + 1] - first
        ends = np.cumsum(counts)
        each = np.arange(ends[-1]) + np.repeat(first - (ends - counts), counts)
        held = map(self.field_sets.__getitem__, self.held[each].tolist())
        files = map(DataFile, self.names(each), held)
        columns = (places, self.ids[places], self.physical_rows[places], self.deleted_rows[places], counts)
        for at, fragment_id, rows, deleted, count in zip(*(column.tolist() for column in columns), strict=True):
            own = tuple(itertools.islice(files, count))
            yield Fragment(fragment_id, rows, deleted, own, self.deletion_files.get(at, ""))

    def __repr__(self) -> str:
        return f"<{len(self)} fragments>"


def listed(names: pa.LargeStringArray) -> list[str]:
    """Return the names as texts."""
    found: list[str] = names.to_numpy(zero_copy_only=False).tolist()  # to_pylist takes four times as long
    return found


def starts(counts: Iterable[int]) -> Numbers:
    """Return where each of consecutive parts begins, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(_numbers(counts))])


def _numbers(values: Iterable[int]) -> Numbers:
    return np.fromiter(values, np.int64)
