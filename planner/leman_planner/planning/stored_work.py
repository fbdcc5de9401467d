"""The work that earlier runs stored, and the selection of the parts that a plan needs. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from leman_core.model.keys import FamilyKey
from leman_core.model.plan_columns import Digests, Mask, Numbers, RangeKeys, parse_range_keys
from leman_core.model.row_ids import distinct, isin
from leman_core.model.row_states import StateSummary
from leman_core.storage.checkpoint_records import FragmentRecord
from leman_planner.planning.column_graph import is_computed
from leman_planner.planning.fragment_status import Decisions, Statuses
from leman_planner.planning.request_resolution import ResolvedRequest

#: A 64-bit id that no fragment has.
_NO_FRAGMENT = (1 << 63) - 1

#: A fragment with certain input files: (md5 of the inputs, fragment id).
Slot = tuple[str, int]


class FailedNow(NamedTuple):
    """Counts of a fragment's failed rows: those that are not deleted, and how many of these match the filter."""

    live: int
    asked: int


NONE_FAILED = FailedNow(0, 0)


class FoundCheckpoints:
    """Checkpoints of fragments with work, computed from the input files that the fragments have now.

    Args:
        keys: The checkpoints, in any order.
        strange: Keys that are valid but not in the form that Leman writes, by fragment id.
    """

    def __init__(self, keys: RangeKeys, strange: Mapping[int, Sequence[FamilyKey]]) -> None:
        order = np.lexsort((keys.filters, -keys.ends, keys.starts, keys.fragment_ids))
        #: Sorted by fragment id, then by the beginning of the range, with the longest range first.
        self.keys = keys.some(order)
        self.strange = strange

    @cached_property
    def fragment_ids(self) -> Numbers:
        """The sorted ids of the fragments that have checkpoints."""
        strange = np.fromiter(self.strange, np.int64, len(self.strange))
        return distinct(np.concatenate([self.keys.fragment_ids, strange]))

    def of(self, fragment_ids: Numbers) -> dict[int, list[FamilyKey]]:
        """Return the checkpoints of some fragments, by fragment id."""
        found: dict[int, list[FamilyKey]] = defaultdict(list)
        for key in self.keys.some(isin(self.keys.fragment_ids, fragment_ids)):
            found[key.fragment_id].append(key)
        for fragment_id in fragment_ids.tolist() if self.strange else ():
            found[fragment_id] += self.strange.get(fragment_id, ())
        return found

    def __iter__(self) -> Iterator[FamilyKey]:
        yield from self.keys
        for keys in self.strange.values():
            yield from keys


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptWork:
    """Uncommitted work of an earlier function whose values the column keeps."""

    #: The function's index in `ResolvedRequest.versions`, from 1 on.
    version: int
    #: The request for this function.
    resolved: ResolvedRequest
    stored: StoredWork


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWork:
    """Everything that earlier runs stored for a request."""

    #: Row states by name of the partial file, which is committed or staged.
    states: Mapping[str, StateSummary] = field(default_factory=dict)
    #: Checkpoints of the request's family, or None if there are none.
    found: FoundCheckpoints | None = None
    #: Fragment records by key, if their files exist.
    records: Mapping[str, FragmentRecord] = field(default_factory=dict)
    #: Keys of fragments that the table no longer has.
    gone: Sequence[str] = ()
    #: Keys of fragments with work whose values were computed from earlier files of the inputs; only if an input is a
    #: computed column.
    outdated: Sequence[str] = ()
    #: The result of `decide_reuse`, or None to let the plan decide.
    decisions: Decisions | None = None
    #: By fragment id, for fragments with fewer failed rows than the header of their file says.
    failed: Mapping[int, FailedNow] = field(default_factory=dict)
    #: The work of functions whose values the column keeps.
    kept: Sequence[KeptWork] = ()
    #: The numbers of rows with values of earlier versions, by fragment id and version, for fragments with deleted rows.
    kept_rows: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    #: Whether any work is stored for the function and the column, even for other inputs or fragments.
    was_used: bool = False

    def kept_now(self, fragment_id: int, states: StateSummary) -> Mapping[str, int]:
        """Return the number of a fragment's rows with values of each earlier version. `states` is its file's header."""
        known = self.kept_rows.get(fragment_id)
        return {part: computed for part, computed, _ in states.older} if known is None else known

    def failed_now(self, fragment_id: int, states: StateSummary) -> FailedNow:
        """Return the failed rows of a fragment that still count. `states` is the header of its file."""
        return self.failed.get(fragment_id) or FailedNow(states.failed, states.failed)


class RelevantWork(NamedTuple):
    """The keys that a plan needs; see `StoredWork` for `found`, `gone` and `outdated`."""

    found: FoundCheckpoints
    #: Keys of fragment records.
    records: list[str]
    gone: list[str]
    outdated: list[str]
    #: The number of fragments with work that have keys with other input files.
    fragments_outdated: int


class OpenInputs:
    """The fragments with work, and the digests of their inputs. Only checkpoints of such fragments matter."""

    def __init__(self, statuses: Statuses, decisions: Decisions) -> None:
        self._statuses = statuses
        self._is_open = ~decisions.is_settled

    def __bool__(self) -> bool:
        return bool(self._is_open.any())

    def sift(self, fragment_ids: Numbers, sources: Digests) -> tuple[Mask, Mask, Mask]:
        """Return masks of keys: inputs unchanged, inputs changed, fragment gone.

        A key of a fragment without work is in none of the masks.
        """
        ids, order = self._ids
        if not len(ids):
            none = np.zeros(len(fragment_ids), np.bool_)
            return none, none, ~none
        at = np.searchsorted(ids, fragment_ids)
        at[at == len(ids)] = 0
        known, places = ids[at] == fragment_ids, order[at]
        is_open: Mask = known & self._is_open[places]
        same = self._sources[places] == sources
        return is_open & same, is_open & ~same, ~known

    @cached_property
    def _ids(self) -> tuple[Numbers, Numbers]:
        """Return the ids of all fragments, sorted, and the place of each fragment."""
        order = self._statuses.in_order
        return self._statuses.fragments.ids[order], order

    @cached_property
    def _sources(self) -> Digests:
        digests = self._statuses.source_digests(np.arange(len(self._statuses))).hex()
        return np.frombuffer(digests.encode(), "S32")


def select_relevant(resolved: ResolvedRequest, wanted: OpenInputs, listed: Sequence[str]) -> RelevantWork:
    """Select the keys that a plan needs from all listed keys."""
    follows = any(is_computed(resolved.table, column.name.split(".")[0]) for column in resolved.inputs)
    ranges, others = parse_range_keys(resolved.family, listed)
    same, other_inputs, gone = wanted.sift(ranges.fragment_ids, ranges.sources)
    fragments_outdated = set(ranges.fragment_ids[other_inputs].tolist())
    outdated = [key.key for key in ranges.some(other_inputs)] if follows else []
    keys_gone = [key.key for key in ranges.some(gone)]
    records: list[str] = []
    strange: dict[int, list[FamilyKey]] = defaultdict(list)
    rest = list(resolved.family.parse_all(others))
    ids = np.array([min(key.fragment_id, _NO_FRAGMENT) for key in rest], np.int64)
    judged = wanted.sift(ids, np.array([key.sources for key in rest], "S32"))
    for key, is_same, has_others, is_gone in zip(rest, *(mask.tolist() for mask in judged), strict=True):
        if is_gone:
            keys_gone.append(key.key)
        elif has_others:
            fragments_outdated.add(key.fragment_id)
            outdated += [key.key] if follows else []
        elif is_same and key.range is None:
            records.append(key.key)
        elif is_same:
            strange[key.fragment_id].append(key)
    found = FoundCheckpoints(ranges.some(same), strange)
    return RelevantWork(found, records, sorted(keys_gone), sorted(outdated), len(fragments_outdated))
