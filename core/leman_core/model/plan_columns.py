"""Fragments, checkpoint keys and tasks in columns, because a table or plan may have a million of them.

Python objects exist only while they are used. The tasks of a plan are Arrow record batches (`PlannedTasks`): the
planner builds these batches and sends them unchanged, and the executor derives its units of work from them.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import operator
import re
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeAlias, TypeVar, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from leman_core.model import row_ids
from leman_core.model.keys import FamilyKey, KeyFamily, range_key
from leman_core.model.plan import CheckpointRef, FragmentTask, Reason, StagedFile
from leman_core.model.row_positions import RowRange
from leman_core.model.table import DataFile, Fragment

Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Item = TypeVar("Item")

#: How many objects are created at a time.
AT_ONCE = 8192
#: `materialize` creates at most this many objects at once.
_FEW = 1000


def materialize(items: Sequence[Item]) -> Sequence[Item]:
    """Return a sequence that is cheap to use repeatedly: a tuple if there are few items, otherwise `items` itself."""
    return tuple(items) if len(items) <= _FEW else items


class ObjectColumns(Sequence[Item]):
    """A sequence that creates its objects from columns each time they are used."""

    __slots__ = ()

    @abstractmethod
    def _made(self, places: Numbers) -> Iterable[Item]:
        """Return the objects at these indices, in the order of the indices. There are 1 to `AT_ONCE` of them."""

    def take(self, places: Numbers) -> Iterator[Item]:
        """Yield the objects at these indices, in the order of the indices."""
        for begin in range(0, len(places), AT_ONCE):
            yield from self._made(places[begin : begin + AT_ONCE])

    @overload
    def __getitem__(self, at: int) -> Item: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Item]: ...
    def __getitem__(self, at: int | slice) -> Item | Sequence[Item]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        return next(self.take(np.array([at % len(self)])))

    def __iter__(self) -> Iterator[Item]:
        return self.take(np.arange(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class FragmentColumns(ObjectColumns[Fragment]):
    """All fragments of a version of a table, in the order of the manifest.

    Example: fragments 0 (files a, b) and 3 (file c) are `ids` [0, 3], `first_file` [0, 2, 3] and `paths` [a, b, c].
    """

    ids: Numbers
    physical_rows: Numbers
    deleted_rows: Numbers
    #: The index in `paths` at which the files of each fragment begin; last, the number of all files.
    first_file: Numbers
    #: The names of all files.
    paths: pa.LargeStringArray
    #: For each file, an index into `field_sets`.
    held: Numbers
    #: The distinct sets of Lance field ids that files hold.
    field_sets: Sequence[tuple[int, ...]]
    #: `Fragment.deletion_file` by the fragment's index, for fragments that have one.
    deletion_files: dict[int, str]

    @classmethod
    def from_fragments(cls, fragments: Iterable[Fragment]) -> FragmentColumns:
        """Return fragments as columns. If they are columns already, return them unchanged."""
        if isinstance(fragments, cls):
            return fragments
        known = list(fragments)
        files = [file for fragment in known for file in fragment.files]
        sets: dict[tuple[int, ...], int] = {}
        return cls(
            ids=_numbers(fragment.fragment_id for fragment in known),
            physical_rows=_numbers(fragment.physical_rows for fragment in known),
            deleted_rows=_numbers(fragment.deleted_rows for fragment in known),
            first_file=offsets_of_counts(len(fragment.files) for fragment in known),
            paths=pa.array([file.path for file in files], pa.large_string()),
            held=_numbers(sets.setdefault(file.field_ids, len(sets)) for file in files),
            field_sets=tuple(sets),
            deletion_files={at: f.deletion_file for at, f in enumerate(known) if f.deletion_file},
        )

    @property
    def live_rows(self) -> Numbers:
        """Return the number of rows of each fragment that are not deleted."""
        return self.physical_rows - self.deleted_rows

    def with_ids(self, wanted: Collection[int]) -> Mask:
        """Return a mask that is true for the fragments with these ids."""
        return row_ids.isin_sorted(np.array(sorted(wanted), np.int64), self.ids)

    def files_with(self, field_ids: Collection[int]) -> tuple[Numbers, Numbers]:
        """Return the index of each fragment's first file with any of the fields, or -1, and the number of them."""
        wanted = frozenset(field_ids)
        holds = np.array([not wanted.isdisjoint(held) for held in self.field_sets], np.bool_)
        files = np.flatnonzero(holds[self.held]) if len(holds) else np.zeros(0, np.int64)
        owners = np.searchsorted(self.first_file, files, side="right") - 1
        first = np.full(len(self), -1, np.int64)
        first[owners[::-1]] = files[::-1]
        return first, np.bincount(owners, minlength=len(self))

    def paths_at(self, files: Numbers) -> pa.LargeStringArray:
        """Return the names of the files with these indices in `paths`; an empty name for the index -1."""
        return self.paths.take(pa.array(files, mask=files < 0)).fill_null("")

    def __len__(self) -> int:
        return len(self.ids)

    def _made(self, places: Numbers) -> Iterator[Fragment]:
        each, first = list_items(self.first_file, places)
        held = map(self.field_sets.__getitem__, self.held[each].tolist())
        files = map(DataFile, as_texts(self.paths_at(each)), held)
        columns = (places, self.ids[places], self.physical_rows[places], self.deleted_rows[places], np.diff(first))
        for at, fragment_id, rows, deleted, count in zip(*(column.tolist() for column in columns), strict=True):
            own = tuple(itertools.islice(files, count))
            yield Fragment(fragment_id, rows, deleted, own, self.deletion_files.get(at, ""))

    def __repr__(self) -> str:
        return f"<{len(self)} fragments>"


def as_texts(names: pa.LargeStringArray) -> list[str]:
    """Return an array of texts as a list."""
    found: list[str] = names.to_numpy(zero_copy_only=False).tolist()  # to_pylist takes four times as long
    return found


def offsets_of_counts(counts: Iterable[int]) -> Numbers:
    """Return the offset at which each of consecutive lists begins, and at which the last one ends."""
    known = counts if isinstance(counts, np.ndarray) else _numbers(counts)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(known)])


def _numbers(values: Iterable[int]) -> Numbers:
    return np.fromiter(values, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class RangeLists:
    """A list of row ranges for each of many fragments.

    Example: the lists [0-40, 30-60] and [50-100] are `first` [0, 2, 3], `starts` [0, 30, 50] and `ends` [40, 60, 100].
    """

    #: The index of the first range of each list; last, the number of all ranges.
    first: Numbers
    starts: Numbers
    ends: Numbers

    @classmethod
    def from_arrow(cls, lists: pa.ListArray) -> RangeLists:
        """Return the lists of a column whose items are structs with `start` and `end`."""
        ranges = lists.values
        return cls(lists.offsets.to_numpy(), ranges.field("start").to_numpy(), ranges.field("end").to_numpy())

    @property
    def rows(self) -> Numbers:
        """Return the number of rows in each list. A row that lies in several ranges counts several times."""
        total = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.ends - self.starts)])
        return np.diff(total[self.first])

    def take(self, places: Numbers) -> RangeLists:
        """Return the lists at these indices."""
        if not len(self.starts):
            return RangeLists(np.zeros(len(places) + 1, np.int64), self.starts, self.ends)
        each, first = list_items(self.first, places)
        return RangeLists(first, self.starts[each], self.ends[each])

    def gaps(self, rows: Numbers) -> RangeLists:
        """Return, for each list, the ranges of its fragment's rows that it does not cover.

        The ranges of a list must be in order, and none may lie within the ranges before it.
        """
        fragments, counts = np.arange(len(rows)), np.diff(self.first)
        # each list has a gap before each of its ranges and one after the last, so those of list i begin at first[i] + i
        before = np.arange(len(self.starts)) + np.repeat(fragments, counts)
        begins = np.zeros(len(self.starts) + len(rows), np.int64)
        ends = begins.copy()
        begins[before + 1] = self.ends
        ends[before], ends[self.first[1:] + fragments] = self.starts, rows
        is_open = begins < ends
        owners = np.repeat(fragments, counts + 1)[is_open]
        first = offsets_of_counts(np.bincount(owners, minlength=len(rows)))
        return RangeLists(first, begins[is_open], ends[is_open])


def list_items(first: Numbers, places: Numbers) -> tuple[Numbers, Numbers]:
    """Return the indices of all items of some lists, and the offset in that result at which each of the lists begins.

    Args:
        first: The index of the first item of each list; last, the number of all items.
        places: The indices of the wanted lists.
    """
    counts = np.diff(first)[places]
    begins = offsets_of_counts(counts)
    return np.arange(begins[-1]) + np.repeat(first[places] - begins[:-1], counts), begins


#: md5s as hex digits, 32 bytes each.
Digests: TypeAlias = npt.NDArray[np.bytes_]

_DIGITS = 32
#: A pattern of numbers without leading zeros that fit into 64 bits.
_NUMBER = "0|[1-9][0-9]{0,17}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RangeKeys:
    """Keys of checkpoints of one family, in columns. Each field has one value for each key."""

    family: KeyFamily
    #: The md5 of the filter.
    filters: Digests
    #: The md5 of the inputs.
    sources: Digests
    fragment_ids: Numbers
    starts: Numbers
    ends: Numbers

    def some(self, which: npt.NDArray[Any]) -> RangeKeys:
        """Return the keys that a mask or indices select."""
        return RangeKeys(
            family=self.family,
            filters=self.filters[which],
            sources=self.sources[which],
            fragment_ids=self.fragment_ids[which],
            starts=self.starts[which],
            ends=self.ends[which],
        )

    def __len__(self) -> int:
        return len(self.fragment_ids)

    def __iter__(self) -> Iterator[FamilyKey]:
        """Yield the keys, each as `KeyFamily.parse` returns it."""
        digests = (self.filters.astype(str).tolist(), self.sources.astype(str).tolist())
        numbers = (column.tolist() for column in (self.fragment_ids, self.starts, self.ends))
        for filter_id, sources, fragment_id, start, end in zip(*digests, *numbers, strict=True):
            covered = RowRange(start, end)
            key = range_key(self.family.prefix_under(filter_id, sources), fragment_id, covered)
            yield FamilyKey(key, filter_id, sources, fragment_id, covered)


def parse_range_keys(family: KeyFamily, keys: Sequence[str]) -> tuple[RangeKeys, list[str]]:
    """Parse the checkpoint keys of a family that have exactly the form in which Leman writes them.

    Returns:
        The parsed keys, and all other keys as they are, such as those of fragment records.
    """
    try:
        texts = pa.array(keys, pa.large_string())
    except UnicodeEncodeError:  # the name of a file is not valid text
        return _ranges(family, _apart(family, pa.array([], pa.large_string()))), list(keys)
    found = _apart(family, texts)
    others = np.flatnonzero(np.asarray(pc.is_null(found)))
    return _ranges(family, found), [keys[at] for at in others.tolist()]


def _apart(family: KeyFamily, keys: pa.LargeStringArray) -> pa.StructArray:
    return pc.extract_regex(keys, _pattern(family.head, family.place))


def _ranges(family: KeyFamily, found: pa.StructArray) -> RangeKeys:
    filters, sources, *numbers = found.drop_null().flatten()
    fragment_ids, starts, ends = (pc.cast(column, pa.int64()).to_numpy() for column in numbers)
    return RangeKeys(
        family=family,
        filters=_digests(filters),
        sources=_digests(sources),
        fragment_ids=fragment_ids,
        starts=starts,
        ends=ends,
    )


def _digests(texts: pa.LargeStringArray) -> Digests:
    fixed = texts.cast(pa.large_binary()).cast(pa.binary(_DIGITS))
    return np.frombuffer(fixed.buffers()[1], f"S{_DIGITS}", len(fixed), fixed.offset * _DIGITS)


@functools.lru_cache(maxsize=64)
def _pattern(head: str, place: str) -> str:
    digest = f"[0-9a-f]{{{_DIGITS}}}"
    return (
        rf"\A{re.escape(head)}(?P<filter>{digest})_uri-{place}_srcfiles-(?P<sources>{digest})"
        rf"_frag-(?P<fragment>{_NUMBER})_range-(?P<start>{_NUMBER})-(?P<end>{_NUMBER})\z"
    )


#: How many tasks a record batch has.
BATCH_TASKS = 4000
_SOURCES_BYTES = 16
_DICTIONARY = pa.dictionary(pa.int32(), pa.string())
_RANGE = [("start", pa.int64()), ("end", pa.int64())]
_CHECKPOINT = pa.struct([*_RANGE, ("settles", pa.bool_()), ("version", pa.int32()), ("key", pa.string())])
_STAGED = pa.struct([(f.name, pa.int64() if f.type == "int" else pa.string()) for f in dataclasses.fields(StagedFile)])
#: The columns that every batch has. A task's fingerprint is `function` followed by the first half of `sources` in hex.
#: Its checkpoint prefix is `prefix` followed by all of `sources` in hex. If `sources` is null, `function` and `prefix`
#: are the whole fingerprint and the whole checkpoint prefix.
_COLUMNS = {
    "fragment_id": pa.int64(),
    "physical_rows": pa.int64(),
    "deleted_rows": pa.int64(),
    "reason": _DICTIONARY,
    "function": _DICTIONARY,
    "prefix": _DICTIONARY,
    "input_files": pa.list_(pa.large_string()),
}
#: The columns that a batch has only if a task needs them: each with its type, and the value that an absent column or a
#: null stands for. In `missing`, null stands for all rows. A checkpoint whose `key` is null has the prefix of its task.
_OPTIONAL = {
    "sources": (pa.binary(_SOURCES_BYTES), b""),
    "current_file": (pa.large_string(), ""),
    "extend_current": (pa.bool_(), False),
    "missing": (pa.list_(pa.struct(_RANGE)), None),
    "checkpoints": (pa.list_(_CHECKPOINT), ()),
    "staged": (_STAGED, None),
    "row_states": (pa.large_binary(), b""),
    "rows_failed_before": (pa.int64(), 0),
}


class TaskKeys(NamedTuple):
    """The parts from which the fingerprints and checkpoint prefixes of tasks are built."""

    #: The first half of all fingerprints.
    function: str
    #: The start of all checkpoint prefixes.
    prefix: str
    #: The md5s of the tasks' inputs, 16 bytes each.
    sources: bytes


def task_columns(
    *,
    fragments: FragmentColumns,
    places: Numbers,
    reasons: pa.DictionaryArray,
    keys: TaskKeys,
    input_files: pa.ListArray,
    current_files: pa.LargeStringArray | None,
    checkpoints: RangeLists,
) -> pa.RecordBatch:
    """Build a batch of tasks for fragments whose stored checkpoints all have their task's own prefix.

    Args:
        fragments: All fragments of the table.
        places: The indices of the fragments with a task. Each of the following arguments has one value for each task.
        reasons: The values of `Reason`.
        keys: The parts of fingerprints and checkpoint prefixes.
        input_files: The names of the files with the inputs.
        current_files: The names of the files with the output column; None if no fragment has one.
        checkpoints: The ranges of the checkpoints.
    """
    rows = fragments.physical_rows[places]
    columns = {
        "fragment_id": fragments.ids[places],
        "physical_rows": rows,
        "deleted_rows": fragments.deleted_rows[places],
        "reason": reasons,
        "function": _same(keys.function, len(rows)),
        "prefix": _same(keys.prefix, len(rows)),
        "input_files": input_files,
        "sources": pa.Array.from_buffers(pa.binary(_SOURCES_BYTES), len(rows), [None, pa.py_buffer(keys.sources)]),
    }
    if current_files is not None:
        columns["current_file"] = current_files
    if len(checkpoints.starts):
        count = len(checkpoints.starts)
        ranges = [pa.array(checkpoints.starts), pa.array(checkpoints.ends)]
        others = [pa.array(np.ones(count, np.bool_)), pa.array(np.zeros(count, np.int32)), pa.nulls(count, pa.string())]
        refs = pa.StructArray.from_arrays([*ranges, *others], fields=list(_CHECKPOINT))
        columns["checkpoints"] = pa.ListArray.from_arrays(pa.array(checkpoints.first, pa.int32()), refs)
        left = checkpoints.gaps(rows)
        ranges = [pa.array(left.starts), pa.array(left.ends)]
        columns["missing"] = pa.ListArray.from_arrays(
            pa.array(left.first, pa.int32()),
            pa.StructArray.from_arrays(ranges, fields=[pa.field(*field) for field in _RANGE]),
            mask=pa.array(np.diff(checkpoints.first) == 0),
        )
    return pa.RecordBatch.from_pydict(columns)


def _same(text: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))


def task_batch(tasks: Sequence[FragmentTask]) -> pa.RecordBatch:
    """Convert tasks to a record batch."""
    columns: dict[str, Sequence[object]] = {name: [getattr(task, name) for task in tasks] for name in _NUMBERS}
    columns["reason"] = [task.reason.value for task in tasks]
    columns["function"] = [task.fingerprint for task in tasks]
    columns["prefix"] = [task.checkpoint_prefix for task in tasks]
    columns["input_files"] = [task.input_files for task in tasks]
    made = {name: pa.array(columns[name], kind) for name, kind in _COLUMNS.items()}
    optional: dict[str, Sequence[object]] = {
        name: [getattr(task, name) for task in tasks]
        for name in ("current_file", "extend_current", "row_states", "rows_failed_before")
    }
    optional["missing"] = [None if task.missing == whole_range(task.physical_rows) else task.missing for task in tasks]
    optional["checkpoints"] = [
        tuple([(*ref.range, ref.settles, ref.version, ref.key) for ref in task.checkpoints]) for task in tasks
    ]
    optional["staged"] = [task.staged and _staged_values(task.staged) for task in tasks]
    for name, values in optional.items():
        kind, default = _OPTIONAL[name]
        if any(value != default for value in values):
            made[name] = pa.array(values, kind)
    return pa.RecordBatch.from_pydict(made)


def slice_tasks(batch: pa.RecordBatch, begin: int, end: int) -> pa.RecordBatch:
    """Return the tasks `begin` to `end - 1` of a batch, without texts in dictionaries that only other tasks use."""
    part = batch.slice(begin, end - begin)
    columns = [
        column.dictionary_decode().dictionary_encode() if pa.types.is_dictionary(column.type) else column
        for column in part.columns
    ]
    return pa.RecordBatch.from_arrays(columns, part.schema.names)


_NUMBERS = ("fragment_id", "physical_rows", "deleted_rows")
_staged_values = operator.attrgetter(*(field.name for field in _STAGED))


class _TaskReader:
    """A reader of one record batch of tasks."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        columns: dict[str, pa.Array] = dict(zip(batch.schema.names, batch.columns, strict=True))
        numbers: list[Numbers] = [columns[name].to_numpy() for name in _NUMBERS]
        self.fragment_ids, self.physical_rows, self.deleted_rows = numbers
        texts = [_decoded(columns[name]) for name in ("reason", "function", "prefix")]
        (self._reason_codes, names), self._functions, self._prefixes = texts
        self._reasons = [Reason(name) for name in names]
        self._first_file = columns["input_files"].offsets.to_numpy()
        self._files: pa.LargeStringArray = columns["input_files"].values
        self._flat = {name: _filled(columns.get(name), _OPTIONAL[name][1]) for name in _FLAT}
        self._staged = columns.get("staged")
        self._missing: tuple[Mask, RangeLists] | None = None
        if (missing := columns.get("missing")) is not None:
            is_whole = missing.is_null().to_numpy(zero_copy_only=False)
            self._missing = is_whole, RangeLists.from_arrow(missing)
        self._first_checkpoint: Numbers | None = None
        self._checkpoints: list[Any] = []
        if (checkpoints := columns.get("checkpoints")) is not None:
            self._first_checkpoint = checkpoints.offsets.to_numpy()
            *parts, keys = (checkpoints.values.field(at) for at in range(len(_CHECKPOINT)))
            self._checkpoints = [column.to_numpy(zero_copy_only=False) for column in parts]
            self._checkpoints += [keys] if keys.null_count < len(keys) else []

    @property
    def rows_missing(self) -> Numbers:
        """Return the number of rows of each fragment that neither a checkpoint nor a file covers."""
        if self._missing is None:
            return self.physical_rows
        is_whole, ranges = self._missing
        found: Numbers = np.where(is_whole, self.physical_rows, ranges.rows)
        return found

    @property
    def is_staged(self) -> Mask:
        """Return a mask that is true for the fragments with a finished file."""
        if self._staged is None:
            return np.zeros(len(self.fragment_ids), np.bool_)
        return np.asarray(self._staged.is_valid().to_numpy(zero_copy_only=False))

    @property
    def has_checkpoints(self) -> Mask:
        """Return a mask that is true for the fragments with checkpoints."""
        if self._first_checkpoint is None:
            return np.zeros(len(self.fragment_ids), np.bool_)
        found: Mask = np.diff(self._first_checkpoint) > 0
        return found

    def tasks(self, begin: int, end: int) -> Iterator[FragmentTask]:
        """Yield the tasks `begin` to `end - 1` of the batch."""
        numbers = (self.fragment_ids, self.physical_rows, self.deleted_rows, self._reason_codes)
        texts = ((codes[begin:end].tolist(), known) for codes, known in (self._functions, self._prefixes))
        first = self._first_file[begin : end + 1].tolist()
        files = iter(as_texts(self._files[first[0] : first[-1]]))
        rows = zip(
            *(column[begin:end].tolist() for column in numbers),
            *(map(known.__getitem__, codes) for codes, known in texts),
            itertools.pairwise(first),
            *(_values(column, begin, end, _OPTIONAL[name][1]) for name, column in self._flat.items()),
            self._missing_in(begin, end),
            self._checkpoints_in(begin, end),
            self._staged_in(begin, end),
            strict=False,  # a column that the batch does not have is an endless iterator of its default
        )
        for at, count, deleted, code, function, prefix, bounds, sources, file, extends, states, failed, *rest in rows:
            missing, refs, staged = rest
            digest = sources.hex()
            under = prefix + digest
            yield FragmentTask(
                at,
                count,
                deleted,
                self._reasons[code],
                function + digest[:_SOURCES_BYTES],
                under,
                tuple(itertools.islice(files, bounds[1] - bounds[0])),
                file,
                extends,
                whole_range(count) if missing is None else missing,
                tuple([_checkpoint(under, at, ref) for ref in refs]) if refs else (),
                staged,
                states,
                failed,
            )

    def _missing_in(self, begin: int, end: int) -> Iterator[tuple[RowRange, ...] | None]:
        if self._missing is None:
            return itertools.repeat(None)
        is_whole, ranges = self._missing
        lists = _lists(ranges.first, begin, end, ranges.starts, ranges.ends)
        pairs = zip(is_whole[begin:end].tolist(), lists, strict=True)
        return (None if whole else tuple(itertools.starmap(RowRange, found)) for whole, found in pairs)

    def _checkpoints_in(self, begin: int, end: int) -> Iterator[Sequence[tuple[Any, ...]]]:
        if self._first_checkpoint is None:
            return itertools.repeat(())
        return _lists(self._first_checkpoint, begin, end, *self._checkpoints)

    def _staged_in(self, begin: int, end: int) -> Iterator[StagedFile | None]:
        if self._staged is None:
            return itertools.repeat(None)
        return (found and StagedFile(**found) for found in self._staged.slice(begin, end - begin).to_pylist())


_FLAT = ("sources", "current_file", "extend_current", "row_states", "rows_failed_before")


def _checkpoint(prefix: str, fragment_id: int, ref: tuple[Any, ...]) -> CheckpointRef:
    start, end, settles, version, *keys = ref
    covered, key = RowRange(start, end), keys[0] if keys else None
    return CheckpointRef(range_key(prefix, fragment_id, covered) if key is None else key, covered, settles, version)


def _decoded(column: pa.DictionaryArray) -> tuple[Numbers, list[str]]:
    return column.indices.to_numpy(), column.dictionary.to_pylist()


def _filled(column: pa.Array | None, default: object) -> pa.Array | None:
    if column is None or not column.null_count or pa.types.is_fixed_size_binary(column.type):
        return column
    return column.fill_null(default)


def _values(column: pa.Array | None, begin: int, end: int, default: Any) -> Iterable[Any]:
    if column is None:
        return itertools.repeat(default)
    part = column.slice(begin, end - begin)
    values: list[Any] = part.to_numpy(zero_copy_only=False).tolist()
    return [value or default for value in values] if column.null_count else values


def _lists(first: Numbers, begin: int, end: int, *items: Any) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the items of each of the lists `begin` to `end - 1`."""
    bounds = first[begin : end + 1].tolist()
    rows = zip(*(item[bounds[0] : bounds[-1]].tolist() for item in items), strict=True)
    for start, stop in itertools.pairwise(bounds):
        yield list(itertools.islice(rows, stop - start))


class PlannedTasks(Sequence[FragmentTask]):
    """The tasks of a plan, in the order of fragment ids. They are record batches: a task is created when it is used.

    Args:
        batches: The tasks; see `task_columns` and `task_batch`. Fragment ids ascend over all batches.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch] = ()) -> None:
        self.batches = [batch for batch in batches if len(batch)]
        self._first = [0, *itertools.accumulate(map(len, self.batches))]

    @cached_property
    def _readers(self) -> list[_TaskReader]:
        return list(map(_TaskReader, self.batches))

    def checked(self) -> PlannedTasks:
        """Check that this release can read the columns of the tasks, and return the tasks.

        Raises:
            KeyError: A column is missing.
            ValueError: A reason is unknown.
        """
        for reader in self._readers:
            _ = reader.rows_missing
        return self

    @cached_property
    def fragment_ids(self) -> Numbers:
        """The ids of the fragments, in the order of the tasks."""
        return self._joined(batch.column("fragment_id").to_numpy() for batch in self.batches)

    @cached_property
    def rows_missing(self) -> Numbers:
        """The number of rows of each task's fragment that neither a checkpoint nor a file covers."""
        return self._joined(reader.rows_missing for reader in self._readers)

    @property
    def live_rows(self) -> int:
        """Return the number of rows of all fragments that are not deleted."""
        return sum(int((reader.physical_rows - reader.deleted_rows).sum()) for reader in self._readers)

    @property
    def from_checkpoints(self) -> int:
        """Count the fragments that have checkpoints and no finished file."""
        return sum(int((reader.has_checkpoints & ~reader.is_staged).sum()) for reader in self._readers)

    @property
    def staged(self) -> PlannedTasks:
        """Return the tasks of fragments with a finished file."""
        return self._where(reader.is_staged for reader in self._readers)

    def without_staged(self) -> PlannedTasks:
        """Return the tasks of fragments whose file is still to be written."""
        return self._where(~reader.is_staged for reader in self._readers)

    def of_fragments(self, ids: Collection[int]) -> PlannedTasks:
        """Return the tasks of these fragments, of which some may have none."""
        wanted = np.array(sorted(ids), np.int64)
        masks = row_ids.isin_sorted(wanted, self.fragment_ids)
        return self._where(masks[begin:end] for begin, end in itertools.pairwise(self._first))

    def of_fragment(self, fragment_id: int) -> FragmentTask:
        """Return the task of a fragment.

        Raises:
            KeyError: The fragment has no task.
        """
        return self[self.place_of(fragment_id)]

    def place_of(self, fragment_id: int) -> int:
        """Return the index of a fragment's task.

        Raises:
            KeyError: The fragment has no task.
        """
        at = int(np.searchsorted(self.fragment_ids, fragment_id))
        if at == len(self) or self.fragment_ids[at] != fragment_id:
            raise KeyError(fragment_id)
        return at

    def _where(self, masks: Iterable[Mask]) -> PlannedTasks:
        pairs = zip(self.batches, masks, strict=True)
        return PlannedTasks(batch if mask.all() else batch.filter(pa.array(mask)) for batch, mask in pairs)

    @staticmethod
    def _joined(columns: Iterable[Numbers]) -> Numbers:
        return np.concatenate([np.zeros(0, np.int64), *columns])

    def __len__(self) -> int:
        return self._first[-1]

    @overload
    def __getitem__(self, at: int) -> FragmentTask: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[FragmentTask]: ...
    def __getitem__(self, at: int | slice) -> FragmentTask | Sequence[FragmentTask]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        at %= len(self)
        part = bisect.bisect_right(self._first, at) - 1
        row = at - self._first[part]
        return next(self._readers[part].tasks(row, row + 1))

    def __iter__(self) -> Iterator[FragmentTask]:
        for reader in self._readers:
            yield from reader.tasks(0, len(reader.fragment_ids))

    def __eq__(self, other: object) -> bool:
        return tuple(self) == (tuple(other) if isinstance(other, PlannedTasks) else other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"<{len(self)} tasks>"


def planned_tasks(tasks: Iterable[FragmentTask]) -> PlannedTasks:
    """Return tasks in any order as `PlannedTasks`."""
    if isinstance(tasks, PlannedTasks):
        return tasks
    known = sorted(tasks, key=operator.attrgetter("fragment_id"))
    parts = (known[begin : begin + BATCH_TASKS] for begin in range(0, len(known), BATCH_TASKS))
    return PlannedTasks(map(task_batch, parts))


@lru_cache(maxsize=64)
def whole_range(rows: int) -> tuple[RowRange, ...]:
    """Return the range of all rows. It is cached, because most fragments of a table have the same number of rows."""
    return (RowRange(0, rows),)
