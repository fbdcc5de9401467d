"""Keys of checkpoints in columns: a table of 100,000 fragments may have as many, and its plan looks at each."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from leman_core.model.keys import FamilyKey, KeyFamily, range_key
from leman_core.model.object_columns import Numbers
from leman_core.model.ranges import RowRange

#: md5 in hex digits, one of 32 bytes for each.
Digests: TypeAlias = npt.NDArray[np.bytes_]

_DIGITS = 32
#: A number as Leman writes it, which 64 bits hold.
_NUMBER = "0|[1-9][0-9]{0,17}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RangeKeys:
    """Keys of checkpoints that belong to one family. Each field has one value for each key."""

    family: KeyFamily
    #: md5 of the filter.
    filters: Digests
    #: md5 of the inputs.
    sources: Digests
    fragment_ids: Numbers
    #: Where the range begins.
    starts: Numbers
    #: Where it ends.
    ends: Numbers

    def some(self, which: npt.NDArray[Any]) -> RangeKeys:
        """Return some of the keys, by a mask or by their places."""
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


def parsed(family: KeyFamily, keys: Sequence[str]) -> tuple[RangeKeys, list[str]]:
    """Take the keys of checkpoints apart that are of a family and as Leman writes them.

    Returns:
        These, and all other keys: those of fragment records are among them, and those of ranges with leading zeros.
    """
    try:
        texts = pa.array(keys, pa.large_string())
    except UnicodeEncodeError:  # a file has a name that is no text
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
