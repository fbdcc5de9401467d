"""What earlier runs stored, and which of it matters to a plan. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from leman_core.model.keys import FamilyKey
from leman_core.model.plan_columns import Digests, Numbers, RangeKeys, parse_range_keys
from leman_core.model.row_ids import distinct, isin
from leman_core.model.row_states import StateSummary
from leman_core.storage.checkpoint_records import FragmentRecord
from leman_planner.planning.column_graph import is_computed
from leman_planner.planning.fragment_status import (
    SETTLES,
    FragmentStatus,
    Mask,
    ReuseDecision,
    Statuses,
    decide_reuse,
    outcome_codes,
)
from leman_planner.planning.request_resolution import ResolvedRequest

#: No fragment has this id, and 64 bits hold it.
_NO_FRAGMENT = (1 << 63) - 1

#: A fragment under certain input files: (md5 of the inputs, fragment id).
Slot = tuple[str, int]
#: A fragment as the manifest shows it, and what its values are worth.
Decided = tuple[FragmentStatus, ReuseDecision]


class FailedNow(NamedTuple):
    """Failed rows of a fragment that are not deleted, and those of them that the filter matches."""

    live: int
    asked: int


NONE_FAILED = FailedNow(0, 0)


class FoundCheckpoints:
    """Checkpoints of fragments with work, whose input files are still those of their keys.

    Args:
        keys: in any order.
        strange: keys that Leman would not write so, by id of the fragment.
    """

    def __init__(self, keys: RangeKeys, strange: Mapping[int, Sequence[FamilyKey]]) -> None:
        order = np.lexsort((keys.filters, -keys.ends, keys.starts, keys.fragment_ids))
        #: In the order of fragment ids, where ranges begin, and of those the longest first.
        self.keys = keys.some(order)
        self.strange = strange

    @cached_property
    def fragment_ids(self) -> Numbers:
        """Of the fragments that have any, in order."""
        strange = np.fromiter(self.strange, np.int64, len(self.strange))
        return distinct(np.concatenate([self.keys.fragment_ids, strange]))

    def of(self, fragment_ids: Numbers) -> dict[int, list[FamilyKey]]:
        """Return those of some fragments that have any, by id of the fragment."""
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
    """What runs of a function stored whose values the column keeps, and did not commit."""

    #: The function's place in `ResolvedRequest.versions`, from 1 on.
    version: int
    #: The request as this function asked it.
    resolved: ResolvedRequest
    stored: StoredWork


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWork:
    """What was stored by earlier runs."""

    #: Row states by name of partial file, committed or staged.
    states: Mapping[str, StateSummary] = field(default_factory=dict)
    #: Checkpoints of the request's family; None: there are none.
    found: FoundCheckpoints | None = None
    #: Fragment records by key, only of files that exist.
    records: Mapping[str, FragmentRecord] = field(default_factory=dict)
    #: Keys of fragments that the table does not have.
    gone: Sequence[str] = ()
    #: Keys of fragments with work under files that their inputs had before, where computed columns are among these.
    outdated: Sequence[str] = ()
    #: By place of the fragment, what was decided already; of others it is decided when the plan is made.
    decided: Mapping[int, Decided] = field(default_factory=dict)
    #: By id of the fragment, where fewer failed rows may count than its file's header says.
    failed: Mapping[int, FailedNow] = field(default_factory=dict)
    #: The same of functions whose values the column keeps.
    kept: Sequence[KeptWork] = ()
    #: Rows with values of earlier versions, by id of the fragment and version, where some rows are deleted.
    kept_rows: Mapping[int, Mapping[str, int]] = field(default_factory=dict)

    def kept_now(self, fragment_id: int, states: StateSummary) -> Mapping[str, int]:
        """Return the rows of a fragment with values of earlier versions, by version.

        Args:
            states: what the header of the fragment's file says.
        """
        known = self.kept_rows.get(fragment_id)
        return {part: computed for part, computed, _ in states.older} if known is None else known

    def failed_now(self, fragment_id: int, states: StateSummary) -> FailedNow:
        """Return the failed rows of a fragment that still count.

        Args:
            states: what the header of the fragment's file says.
        """
        return self.failed.get(fragment_id) or FailedNow(states.failed, states.failed)


class RelevantWork(NamedTuple):
    """Keys that matter. `found`, `gone` and `outdated` are those of `StoredWork`."""

    found: FoundCheckpoints
    #: Keys of fragment records.
    records: list[str]
    gone: list[str]
    outdated: list[str]
    #: Number of the fragments with work that have keys under other input files.
    fragments_outdated: int


class OpenInputs:
    """The fragments with something to do, and the md5 of their inputs: only their checkpoints matter."""

    def __init__(self, statuses: Statuses, is_open: Mask, decided: Mapping[int, Decided]) -> None:
        self._statuses = statuses
        self._is_open = is_open
        #: What was decided about the fragments with row states, by place.
        self.decided = decided

    def __bool__(self) -> bool:
        return bool(self._is_open.any())

    def sift(self, fragment_ids: Numbers, sources: Digests) -> tuple[Mask, Mask, Mask]:
        """Tell of keys of fragments under some inputs which matter, which have other inputs now, and which are gone.

        Keys of fragments with nothing to do are none of these.
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
        """Return the ids of all fragments in order, and the place of each."""
        order = self._statuses.in_order
        return self._statuses.fragments.ids[order], order

    @cached_property
    def _sources(self) -> Digests:
        digests = self._statuses.source_digests(np.arange(len(self._statuses))).hex()
        return np.frombuffer(digests.encode(), "S32")


def open_inputs(resolved: ResolvedRequest, statuses: Statuses, states: Mapping[str, StateSummary]) -> OpenInputs:
    """Return which fragments have something to do."""
    is_open: Mask = ~SETTLES[outcome_codes(statuses, failed_only=resolved.failed_only)]
    decided = decided_at(resolved, statuses, states, np.flatnonzero(statuses.with_states))
    is_open[list(decided)] = [not decision.settled for _, decision in decided.values()]
    return OpenInputs(statuses, is_open, decided)


def decided_at(
    resolved: ResolvedRequest, statuses: Statuses, states: Mapping[str, StateSummary], places: Numbers
) -> dict[int, Decided]:
    """Decide about some fragments, one by one."""
    pairs = zip(places.tolist(), statuses.some(places), strict=True)
    return {at: (status, decide_reuse(resolved, status, states)) for at, status in pairs}


def select_relevant(resolved: ResolvedRequest, wanted: OpenInputs, listed: Sequence[str]) -> RelevantWork:
    """Select the keys that matter to a plan.

    Args:
        wanted: what `open_inputs` returns.
    """
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
