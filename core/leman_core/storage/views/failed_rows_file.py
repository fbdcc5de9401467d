"""The rows of a view that have no value because a function failed for them.

They are a file in the view's folder `_refresh` that never changes. Its name has the digest of its content, and the
view's metadata has the name and the counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import xxhash

from leman_core.model.sorted_sets import union, without
from leman_core.model.view import FailedNote
from leman_core.model.view_metadata import FAILED_PREFIX
from leman_core.model.view_rows import NO_IDS, Ids
from leman_core.storage.locations import TABLE_ENDING
from leman_core.storage.views.refresh_folder import REFRESH_FOLDER, read_beside, write_beside

#: One column and one job: (column, job id).
_Group = tuple[str, str]
_SCHEMA = pa.schema([("column", pa.string()), ("job_id", pa.string()), ("source_row_id", pa.int64())])


@dataclass(frozen=True, slots=True, eq=False)
class FailedRows:
    """Source row ids, sorted, by function column and by the job in which they failed; jobs in their order."""

    groups: Mapping[_Group, Ids]

    def of(self, column: str) -> Ids:
        """Return all of a column, sorted."""
        return np.sort(np.concatenate([NO_IDS, *(ids for (name, _), ids in self.groups.items() if name == column)]))

    def without(self, ids: Ids, columns: Collection[str]) -> FailedRows:
        """Return the same without these rows in these columns."""
        left = {
            (column, job): without(own, ids) if column in columns else own for (column, job), own in self.groups.items()
        }
        return FailedRows({group: own for group, own in left.items() if len(own)})

    def plus(self, job_id: str, failed: Mapping[str, Ids]) -> FailedRows:
        """Return the same with rows that failed in a later job."""
        found = dict(self.groups)
        for column, ids in failed.items():
            if len(ids):
                found[column, job_id] = union(found.pop((column, job_id), NO_IDS), ids)
        return FailedRows(found)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FailedRows) or self.groups.keys() != other.groups.keys():
            return False
        return all(np.array_equal(ids, other.groups[group]) for group, ids in self.groups.items())

    __hash__ = None  # type: ignore[assignment]


NONE_FAILED = FailedRows({})


def read(view: str, note: FailedNote) -> FailedRows | None:
    """Return the rows that a view's metadata counts; None where the file is gone, or is not what was written.

    Raises:
        LemanError: what `storage_errors.unusable` gives where it cannot be read.
    """
    if not note.file:
        return NONE_FAILED
    content = read_beside(view, note.file)
    if content is None or note.file != _name(content):
        return None
    found: dict[_Group, list[int]] = {}
    for column, job, row_id in zip(*pa.ipc.open_stream(content).read_all().to_pydict().values(), strict=True):
        found.setdefault((column, job), []).append(row_id)
    return FailedRows({group: np.array(ids, np.int64) for group, ids in found.items()})


def lost(name: str, note: FailedNote, what: str = "is damaged or gone") -> str:
    """Say of a view whose list cannot be used what that means.

    Args:
        name: The view.
        note: What its metadata says of the list.
        what: What is wrong with the list.
    """
    path = f"{name}{TABLE_ENDING}/{REFRESH_FOLDER}/{note.file}"
    return (
        f"{path} {what}: which {note.total} values of view {name} are missing is not known. They stay NULL, and a full "
        "refresh computes them"
    )


def write(view: str, failed: FailedRows) -> FailedNote:
    """Keep the rows in the view's folder and return what its metadata is to say of them.

    Raises:
        LemanError: as `write_beside`.
    """
    if not failed.groups:
        return FailedNote()
    columns = [
        [column for (column, _), ids in failed.groups.items() for _ in ids],
        [job for (_, job), ids in failed.groups.items() for _ in ids],
        np.concatenate(list(failed.groups.values())),
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(pa.table(columns, schema=_SCHEMA))
    content = bytes(sink.getvalue())
    name = _name(content)
    write_beside(view, name, content)
    rows, jobs = Counter[str](), Counter[str]()
    for (column, job), ids in failed.groups.items():
        rows[column] += len(ids)
        jobs[job] += len(ids)
    return FailedNote(name, dict(rows), dict(reversed(jobs.items())))


def _name(content: bytes) -> str:
    return f"{FAILED_PREFIX}{xxhash.xxh3_128(content).hexdigest()}.arrow"
