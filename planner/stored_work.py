"""What earlier runs stored, and which of it matters to a plan. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from core.checkpoints.records import FragmentRecord
from core.keys import FamilyKey
from core.row_states import StateSummary
from planner.resolved_request import ResolvedRequest
from planner.reuse_decision import decide
from planner.statuses import SETTLES, Mask, Statuses, outcome_codes

#: A fragment under certain input files: (md5 of the inputs, fragment id).
Slot = tuple[str, int]


class FailedNow(NamedTuple):
    """Failed rows of a fragment that are not deleted, and those of them that the filter matches."""

    live: int
    asked: int


NONE_FAILED = FailedNow(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWork:
    """What was stored by earlier runs."""

    #: Row states by name of partial file, committed or staged.
    states: Mapping[str, StateSummary] = field(default_factory=dict)
    #: Checkpoints of the request's family, by id of the fragment, whose input files are still those of the key.
    found: Mapping[int, Sequence[FamilyKey]] = field(default_factory=dict)
    #: Fragment records by key, only of files that exist.
    records: Mapping[str, FragmentRecord] = field(default_factory=dict)
    #: Keys of fragments that the table does not have.
    gone: Sequence[str] = ()
    #: By id of the fragment, where fewer failed rows may count than its file's header says.
    failed: Mapping[int, FailedNow] = field(default_factory=dict)

    def failed_now(self, fragment_id: int, states: StateSummary) -> FailedNow:
        """Return the failed rows of a fragment that still count.

        Args:
            states: what the header of the fragment's file says.
        """
        return self.failed.get(fragment_id) or FailedNow(states.failed, states.failed)


@dataclass(slots=True)
class RelevantWork:
    """Keys that matter. `found` and `gone` are those of `StoredWork`."""

    found: dict[int, list[FamilyKey]] = field(default_factory=dict)
    #: Keys of fragment records.
    records: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    #: Fragments with work that have keys under other input files.
    outdated: set[int] = field(default_factory=set)


class OpenInputs:
    """The md5 of the inputs of each fragment with something to do, by its id: only their checkpoints matter."""

    def __init__(self, statuses: Statuses, is_open: Mask) -> None:
        self._statuses = statuses
        self._is_open = is_open

    def __bool__(self) -> bool:
        return bool(self._is_open.any())

    @cached_property
    def _places(self) -> dict[int, int]:
        ids = self._statuses.fragments.ids.tolist()
        return {fragment_id: at for at, fragment_id in enumerate(ids)}

    def __contains__(self, fragment_id: int) -> bool:
        """Tell whether the table has the fragment."""
        return fragment_id in self._places

    def get(self, fragment_id: int) -> str | None:
        """Return the md5; None of fragments with nothing to do, or that the table does not have."""
        at = self._places.get(fragment_id)
        return self._statuses.sources_at(at) if at is not None and self._is_open[at] else None


def open_inputs(resolved: ResolvedRequest, statuses: Statuses, states: Mapping[str, StateSummary]) -> OpenInputs:
    """Return which fragments have something to do."""
    is_open: Mask = ~SETTLES[outcome_codes(statuses, failed_only=resolved.failed_only)]
    unsure = np.flatnonzero(statuses.with_states)
    is_open[unsure] = [not decide(resolved, status, states).settled for status in statuses.some(unsure)]
    return OpenInputs(statuses, is_open)


def select_relevant(resolved: ResolvedRequest, wanted: OpenInputs, listed: Iterable[str]) -> RelevantWork:
    """Select the keys that matter to a plan.

    Args:
        wanted: what `open_inputs` returns.
    """
    sifted = RelevantWork()
    found = sifted.found
    for key in resolved.family.parse_all(listed):
        _, _, sources, fragment_id, covered = key
        inputs = wanted.get(fragment_id)
        if inputs == sources:
            if covered is None:
                sifted.records.append(key.key)
            elif fragment_id in found:
                found[fragment_id].append(key)
            else:
                found[fragment_id] = [key]
        elif inputs is not None:
            sifted.outdated.add(fragment_id)
        elif fragment_id not in wanted:
            sifted.gone.append(key.key)
    return sifted
