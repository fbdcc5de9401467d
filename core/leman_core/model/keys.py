"""Checkpoint keys, fingerprints and file names. Only this module hashes identities.

The format of keys is public: later releases read the keys of earlier ones, and other languages can check theirs with
the vectors in `tests/conformance/vectors/checkpoint_keys.json`.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from leman_core.model.row_positions import RowRange

_RANGE = re.compile(r"(?P<prefix>.+)_frag-(?P<frag>[0-9]+)_range-(?P<start>[0-9]+)-(?P<end>[0-9]+)", re.DOTALL)
_RECORD = re.compile(r"(?P<prefix>.+)_frag-(?P<frag>[0-9]+)_file", re.DOTALL)
_ATTEMPT = "[0-9a-z]+"
_HEX = "[0-9a-f]{32}"
_FILE = re.compile(rf"([0-9a-f]{{32}})-(partial-)?{_ATTEMPT}\.lance")
_VIEW_FILE = re.compile(r"(view|placeholders)-[0-9a-f]{32}\.lance")
#: The prefix of files with rows that a caller adds.
ROWS_FILE_PREFIX = "rows-"
_ROWS_FILE = re.compile(rf"{ROWS_FILE_PREFIX}[0-9a-f]{{32}}\.lance")
_EVICTIONS = re.compile(r"[0-9a-f]{32}\.arrow")
_HALF = 16  # hex digits of a fingerprint
_LEGACY = re.compile(r"_where-[0-9a-f]{32}_uri-[0-9a-f]{32}_ver-[0-9]+(_frag-[0-9]+_range-[0-9]+-[0-9]+)?\Z")


def md5(text: str) -> str:
    """Return the md5 of a text as lower-case hex. It only identifies: it does not protect against forgery."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


_compact = json.JSONEncoder(separators=(",", ":")).encode
_quoted = json.encoder.encode_basestring_ascii
#: `md5` with a cache, for texts that recur, such as filters and uris.
md5_of_few = functools.lru_cache(maxsize=64)(md5)


class FamilyKey(NamedTuple):
    """A key of a known family, parsed."""

    key: str
    filter_id: str
    sources: str
    fragment_id: int
    #: None for a fragment record.
    range: RowRange | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFamily:
    """The parts of checkpoint keys other than the filter, the input files, the fragment and its range."""

    udf_name: str
    udf_version: str
    #: The name under which the column was added, even if it was renamed since.
    column: str
    uri: str
    #: The md5 of the uri that the table had when its keys were made; empty if that was `uri`.
    former_place: str = ""

    @property
    def place(self) -> str:
        """Return the md5 in keys that stands for the table's location."""
        return self.former_place or md5_of_few(self.uri)

    @property
    def head(self) -> str:
        """Return the start that all keys of this function version and column have in common."""
        return f"udf-{self.udf_name}_ver-{self.udf_version}_col-{self.column}_where-"

    def prefix(self, where: str, inputs: Iterable[tuple[int, str]]) -> str:
        """Return the part of a key before the fragment.

        Args:
            where: The filter's identity; see `filter_identity`.
            inputs: The input files; see `sources`.
        """
        return self.prefix_for(where, sources(inputs))

    def prefix_for(self, where: str, inputs_md5: str) -> str:
        """Return `prefix`, given the md5 of the inputs."""
        return self.prefix_under(md5_of_few(where), inputs_md5)

    def prefix_under(self, filter_md5: str, inputs_md5: str) -> str:
        """Return `prefix`, given the md5s of filter and inputs."""
        return self.before_inputs(filter_md5) + inputs_md5

    def before_inputs(self, filter_md5: str) -> str:
        """Return the start that all prefixes with this filter have in common."""
        return f"{self.head}{filter_md5}_uri-{self.place}_srcfiles-"

    def parse(self, key: str, *, anywhere: bool = False) -> FamilyKey | None:
        """Parse a key of this family. Return None for any other key, even one that only ends differently."""
        return next(self.parse_all((key,), anywhere=anywhere), None)

    def parse_all(self, keys: Iterable[str], *, anywhere: bool = False) -> Iterator[FamilyKey]:
        """Parse the keys of this family, and skip other keys.

        Args:
            keys: Any keys.
            anywhere: Whether to include keys from when the table was at another location. Use it only for keys in the
                table's own folder, because keys elsewhere may belong to other tables.
        """
        fullmatch = _family_pattern(self.head, _HEX if anywhere else self.place).fullmatch
        ends = _Ends()  # many keys share filters and ranges
        for key in keys:
            match = fullmatch(key)
            if match is not None:
                filter_, inputs, fragment, end = match.groups()
                yield FamilyKey(key, sys.intern(filter_), inputs, int(fragment), ends[end])

    def as_made(self, keys: Sequence[str]) -> KeyFamily:
        """Return the family whose location most of these keys have. If some have the present one, return `self`.

        This finds the checkpoints of a table that was moved.
        """
        here = _family_pattern(self.head, self.place).fullmatch
        if any(here(key) for key in keys):
            return self
        anywhere = _family_pattern(self.head, _HEX).fullmatch
        at = len(f"{self.head}{'0' * 32}_uri-")
        places = collections.Counter(key[at : at + 32] for key in keys if anywhere(key))
        return replace(self, former_place=places.most_common(1)[0][0]) if places else self


class _Ends(dict[str, RowRange | None]):
    """The range at the end of each key, parsed once; None for keys of fragment records."""

    def __missing__(self, end: str) -> RowRange | None:
        _, _, numbers = end.partition("-")
        start, _, stop = numbers.partition("-")
        found = self[end] = RowRange(int(start), int(stop)) if numbers else None
        return found


@functools.lru_cache(maxsize=64)
def _family_pattern(head: str, place: str) -> re.Pattern[str]:
    return re.compile(
        f"{re.escape(head)}({_HEX})_uri-{place}_srcfiles-({_HEX})_frag-([0-9]+)_(range-[0-9]+-[0-9]+|file)"
    )


def sources(inputs: Iterable[tuple[int, str]]) -> str:
    """Return the md5 of a fragment's inputs: (field id, data file) pairs in the order of the function's parameters.

    The field ids distinguish `f(a)` from `f(b)` if both columns are in the same file. The hashed text is compact JSON.
    It is built by hand, because the encoder would take most of the time of a plan.
    """
    return md5(f"[{','.join([f'[{field_id},{_quoted(file)}]' for field_id, file in inputs])}]")


def sources_of_many(field_ids: Sequence[int], files: Sequence[Sequence[str]]) -> list[bytes]:
    """Return `sources` of many fragments, as 16 bytes each.

    Args:
        field_ids: At least one.
        files: For each field id, the files of all fragments.
    """
    parts = [
        [f"[{field_id},{_quoted(file)}]" for file in column] for field_id, column in zip(field_ids, files, strict=True)
    ]
    texts = parts[0] if len(parts) == 1 else map(",".join, zip(*parts, strict=True))
    return [hashlib.md5(f"[{text}]".encode(), usedforsecurity=False).digest() for text in texts]


def moved_sources(field_ids: Iterable[int], version: int) -> list[tuple[int, str]]:
    """Return pairs for `sources` that stand for rows of an older version, for values of rows that moved since.

    No table has files with these names, so a later plan treats the values as stale.
    """
    return [(field_id, f"version {version}") for field_id in field_ids]


def filter_identity(where: str, files: Iterable[tuple[int, str]]) -> str:
    """Return a filter's identity: its text, and the (field id, data file) pairs of columns that only the filter reads.

    The files matter because the same text matches other rows after a column was rewritten in place.
    """
    pairs = list(files)
    return f"{where}\n{_compact(pairs)}" if where and pairs else where


def failed_identity(file: str, where: str) -> str:
    """Return the filter's identity of a job that recomputes only the failed rows of a column file.

    The file is a part of it, because a later file has other failed rows, and rows that failed twice.
    """
    return f"failed rows of {file}\n{where}"


def filter_id(prefix: str) -> str:
    """Return the md5 of the filter in a prefix or key. A partial file's row states list those that it covers."""
    return prefix.rpartition("_where-")[2][:32]


@dataclass(frozen=True, slots=True)
class RangeKey:
    """A checkpoint key, parsed."""

    prefix: str
    fragment_id: int
    range: RowRange


def range_key(prefix: str, fragment_id: int, covered: RowRange) -> str:
    """Return the key of the checkpoint with the rows `covered` of a fragment."""
    return f"{prefix}_frag-{fragment_id}_range-{covered.start}-{covered.end}"


def record_key(prefix: str, fragment_id: int) -> str:
    """Return the key of the fragment record, which points to the column file written for the fragment."""
    return f"{prefix}_frag-{fragment_id}_file"


def traced_key(function_part_: str) -> str:
    """Return the key of the records about compacted fragments, for a function version and column.

    The records say which rows need no work. The key contains `function_part`, which does not change with the column's
    name.
    """
    return f"traced-{function_part_}"


def parse_range_key(key: str) -> RangeKey | None:
    """Parse a checkpoint key from its end, so that names may contain `_frag-` or `_range-`.

    Returns:
        None if it is not such a key, or one of a legacy form, whose checkpoint is never reused.
    """
    if is_legacy(key):
        return None
    match = _RANGE.fullmatch(key)
    if match is None:
        return None
    covered = RowRange(int(match["start"]), int(match["end"]))
    return RangeKey(match["prefix"], int(match["frag"]), covered)


def parse_record_key(key: str) -> tuple[str, int] | None:
    """Return (prefix, fragment id) of a fragment record's key; None for any other key."""
    match = _RECORD.fullmatch(key)
    return (match["prefix"], int(match["frag"])) if match else None


def is_legacy(key: str) -> bool:
    """Return whether a key has an older form: with a dataset version, `fragment_data_file:…`, or a bare sha256."""
    return (
        key.startswith("fragment_data_file:")
        or re.fullmatch(r"[0-9a-f]{64}", key) is not None
        or _LEGACY.search(key) is not None
    )


def before_filter(prefix: str) -> str:
    """Return the part of a prefix before the filter, with which checkpoints of any filter can be listed."""
    head, mark, _ = prefix.rpartition("_where-")
    return head + mark


def under_filter(prefix: str, filter_md5: str) -> str:
    """Return the prefix of checkpoints of the same rows under another filter."""
    head, mark, tail = prefix.rpartition("_where-")
    return f"{head}{mark}{filter_md5}{tail[32:]}"


def of_function(prefix: str, own: tuple[str, str], other: tuple[str, str]) -> str:
    """Return the prefix that another function's checkpoints of the same rows, column and filter have.

    Args:
        prefix: The prefix of the function's own checkpoints.
        own: The function's name and version.
        other: The other function's name and version.
    """
    return "udf-{}_ver-{}".format(*other) + prefix.removeprefix("udf-{}_ver-{}".format(*own))


def any_filter(prefix: str) -> str:
    """Return a prefix with `*` for the filter. It is equal for checkpoints of the same rows under any filter."""
    head, _, tail = prefix.rpartition("_where-")
    return f"{head}_where-*{tail[32:]}"


def fingerprint(udf_name: str, udf_version: str, column_id: str, inputs: Iterable[tuple[int, str]]) -> str:
    """Return the identity of one fragment's values, as 32 hex digits: 16 for function and output column, 16 for inputs.

    A file's name contains it, so a planner sees in the name which of the two halves changed. The filter is not a part
    of it, because values computed under one filter are valid under another. For `inputs` see `sources`.
    """
    return fingerprint_of(function_part(udf_name, udf_version, column_id), sources(inputs))


def fingerprint_of(function: str, sources_: str) -> str:
    """Return a fingerprint from the results of `function_part` and `sources`."""
    return function + sources_[:_HALF]


def sources_part(inputs: Iterable[tuple[int, str]]) -> str:
    """Compute the second half of a fingerprint."""
    return sources(inputs)[:_HALF]


def function_of(fingerprint_: str) -> str:
    """Return the first half of a fingerprint, which `function_part` computes."""
    return fingerprint_[:_HALF]


@functools.lru_cache(maxsize=64)
def function_part(udf_name: str, udf_version: str, column_id: str) -> str:
    """Compute the first half of a fingerprint."""
    return md5(_compact([udf_name, udf_version, column_id]))[:_HALF]


def column_file_name(fingerprint_: str, attempt: str, *, partial: bool) -> str:
    """Return the name of a column file: the fingerprint, `partial` if some values are missing, and the attempt's id."""
    return f"{fingerprint_}-{'partial-' if partial else ''}{attempt}.lance"


class ColumnFileName(NamedTuple):
    """The parsed name of a column file that Leman wrote."""

    fingerprint: str
    partial: bool

    @property
    def function_part(self) -> str:
        return function_of(self.fingerprint)

    @property
    def sources_part(self) -> str:
        return self.fingerprint[_HALF:]


def whole_file_pattern(function: str) -> str:
    """Return a pattern for the names of files with all values of a function, for any inputs.

    Args:
        function: The result of `function_part`.
    """
    return f"^{function}[0-9a-f]{{{_HALF}}}-{_ATTEMPT}\\.lance$"


def parse_column_file_name(path: str) -> ColumnFileName | None:
    """Parse the name of a column file. Return None for a file that Leman did not write."""
    match = _FILE.fullmatch(path)
    return ColumnFileName(match[1], match[2] is not None) if match else None


def is_view_file_name(path: str) -> bool:
    """Return whether a name is that of a view's data file."""
    return _VIEW_FILE.fullmatch(path) is not None


def is_rows_file_name(path: str) -> bool:
    """Return whether a name is that of a data file with rows that a caller added."""
    return _ROWS_FILE.fullmatch(path) is not None


def is_evictions_name(path: str) -> bool:
    """Return whether a name is that of a file that lists rows to evict from a view."""
    return _EVICTIONS.fullmatch(path) is not None


def job_key(database: str, job_id: str) -> str:
    """Return a key for a job that is unique among all databases: a copy of a database has jobs with the same ids."""
    return f"{job_id}@{hashlib.blake2b(database.rstrip('/').encode(), digest_size=8).hexdigest()}"


def id_in_key(key: str) -> str:
    """Return the job's id in a key of `job_key`."""
    return key.partition("@")[0]
