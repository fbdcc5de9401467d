"""Where each job has failed rows in the error store, by zones of neighbouring rows: a page reads a few of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leman_core.storage.log_snapshot import Snapshot

_Numbers = npt.NDArray[np.int64]
#: Rows of a zone at the most.
_ZONE = 1024
#: So many times a zone is cut where the rows of another append begin; rows without any order are left together.
_CUTS = 7


@dataclass(frozen=True, slots=True)
class Zone:
    """Rows that are stored one behind the other, among them some of one job."""

    #: The place of the first row, and how many there are, of whichever job.
    begin: int
    rows: int
    #: The lowest and the highest row address among those of the job.
    lowest: int
    highest: int


@dataclass(slots=True)
class _Fragment:
    rows: int
    #: By job; places count from the fragment's first row.
    zones: dict[str, list[Zone]] = field(default_factory=dict)


class ErrorZones:
    """The zones of one version of the store.

    They are learnt from the jobs and addresses of all rows, once for each fragment; one entry for each zone and job.
    """

    def __init__(self, snapshot: Snapshot, before: ErrorZones | None = None) -> None:
        """Read the fragments that the zones of an earlier version do not know."""
        self.version = snapshot.version
        sizes = snapshot.fragment_sizes
        known = before._fragments if before is not None else {}
        self._fragments: dict[str, _Fragment] = {
            name: known.get(name) or _Fragment(rows) for name, rows in sizes.items()
        }
        new = [name for name in sizes if name not in known]
        numbers = snapshot.fragments
        batches = snapshot.scan(["job_id", "row_address"], [numbers[name] for name in new])
        _learn([self._fragments[name] for name in new], batches)
        self._of_jobs: dict[str, tuple[Zone, ...]] = {}

    def of(self, job_id: str) -> tuple[Zone, ...]:
        """Return the zones with rows of a job, the one with the lowest address first."""
        found = self._of_jobs.get(job_id)
        if found is None:
            found = self._of_jobs[job_id] = tuple(sorted(self._placed(job_id), key=lambda zone: zone.lowest))
        return found

    def _placed(self, job_id: str) -> Iterator[Zone]:
        begin = 0
        for fragment in self._fragments.values():
            for zone in fragment.zones.get(job_id, ()):
                yield Zone(begin + zone.begin, zone.rows, zone.lowest, zone.highest)
            begin += fragment.rows


def _learn(fragments: Sequence[_Fragment], batches: Iterator[pa.RecordBatch]) -> None:
    """Learn the zones of fragments from their rows, in the fragments' order."""
    coming = iter(fragments)
    fragment, at = None, 0
    for batch in batches:
        done = 0
        while done < batch.num_rows:
            while fragment is None or at == fragment.rows:
                fragment, at = next(coming), 0
            part = batch.slice(done, min(_ZONE, batch.num_rows - done, fragment.rows - at))
            for begin, end in _stretches(part["row_address"].to_numpy()):
                for job_id, lowest, highest in _extremes(part.slice(begin, end - begin)):
                    fragment.zones.setdefault(job_id, []).append(Zone(at + begin, end - begin, lowest, highest))
            done, at = done + part.num_rows, at + part.num_rows


def _stretches(addresses: _Numbers) -> Iterator[tuple[int, int]]:
    """Yield where stretches of rows begin and end that ascend in one fragment of the table, unless they are many."""
    cuts = np.flatnonzero((np.diff(addresses) < 0) | (np.diff(addresses >> 32) != 0)) + 1
    marks = [0, *(cuts.tolist() if len(cuts) <= _CUTS else ()), len(addresses)]
    return itertools.pairwise(marks)


def _extremes(rows: pa.RecordBatch) -> Iterator[tuple[str, int, int]]:
    """Yield each job of these rows with its lowest and its highest row address."""
    jobs = rows["job_id"].dictionary_encode()
    names = jobs.dictionary.to_pylist()
    addresses: _Numbers = rows["row_address"].to_numpy()
    if len(names) == 1:
        yield names[0], int(addresses.min()), int(addresses.max())
        return
    numbers: _Numbers = jobs.indices.to_numpy()
    order = np.lexsort((addresses, numbers))
    numbers, addresses = numbers[order], addresses[order]
    first = np.flatnonzero(np.r_[True, numbers[1:] != numbers[:-1]])
    for begin, end in zip(first, [*first[1:], len(numbers)], strict=True):
        yield names[numbers[begin]], int(addresses[begin]), int(addresses[end - 1])
