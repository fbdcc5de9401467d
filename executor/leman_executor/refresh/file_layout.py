"""How the rows of a refresh are spread over new fragments and a scratch table, and what both are called. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash

from leman_core.model.refresh import RefreshPlan, ResolvedFunction
from leman_core.model.row_address import fragments_of, offsets_of
from leman_core.model.view import SCRATCH_PREFIX

#: New rows are split where every slot would have at least the first number of rows, or beyond the second number.
_LEAST_ROWS = 1 << 16
_MOST_ROWS = 1 << 20

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Touched:
    """Rows of one fragment of the view that are computed anew."""

    fragment_id: int
    #: Physical offsets, ascending.
    offsets: Ints
    #: The place of the first of them among all rows that are computed anew.
    first: int


def split(rows: int, most: int, slots: int) -> list[tuple[int, int]]:
    """Cut new rows into fragments.

    Args:
        rows: How many new rows there are.
        most: Rows of each fragment but the last, exactly; 0: one fragment, or one for each slot where there are many
            rows.
        slots: Task slots.

    Returns:
        Start and end of each fragment.
    """
    if not rows:
        return []
    size = most or min(max(-(-rows // slots), _LEAST_ROWS), _MOST_ROWS)
    return [(start, min(start + size, rows)) for start in range(0, rows, size)]


def touched(addresses: Ints) -> list[Touched]:
    """Group ascending row addresses (`leman_core.model.row_address`) by fragment."""
    if not len(addresses):
        return []
    fragments, offsets = fragments_of(addresses), offsets_of(addresses)
    starts = np.flatnonzero(np.diff(fragments, prepend=-1))
    ends = [*starts[1:], len(addresses)]
    return [Touched(int(fragments[a]), offsets[a:b], int(a)) for a, b in zip(starts, ends, strict=True)]


def digest(plan: RefreshPlan, version: int, functions: Sequence[ResolvedFunction], rows: Iterable[Ints]) -> str:
    """Return a name for one piece of work: the same view, source version, functions and rows give the same name."""
    found = xxhash.xxh3_128()
    identity = [
        plan.uri,
        plan.incarnation,
        plan.definition.source_uri,
        plan.target_incarnation,
        version,
        [[f.column.name, f.udf.name, f.udf.version, list(f.column.inputs)] for f in functions],
    ]
    found.update(json.dumps(identity).encode())
    for ids in rows:
        found.update(len(ids).to_bytes(8, "little"))
        found.update(np.ascontiguousarray(ids).data)
    return found.hexdigest()


def scratch_table(view: str, of: str) -> str:
    """Return the name of a scratch table."""
    return f"{SCRATCH_PREFIX}{view}_{of[:16]}"


def scratch_pattern(view: str) -> re.Pattern[str]:
    """Return what the names of the view's scratch tables match, and no other names."""
    return re.compile(re.escape(f"{SCRATCH_PREFIX}{view}_") + "[0-9a-f]{16}")
