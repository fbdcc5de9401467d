"""A store of checkpoints in memory, equal to the one in Lance files by the conformance suite."""

from __future__ import annotations

import pyarrow as pa


class InMemoryCheckpointStore:
    """A dictionary of batches. See `leman_core.model.work.CheckpointStore`."""

    def __init__(self) -> None:
        self._batches: dict[str, pa.RecordBatch] = {}

    def __setitem__(self, key: str, value: pa.RecordBatch) -> None:
        self._batches[key] = value

    def __getitem__(self, key: str) -> pa.RecordBatch:
        return self._batches[key]

    def __contains__(self, key: str) -> bool:
        return key in self._batches

    def __delitem__(self, key: str) -> None:
        self._batches.pop(key, None)

    def list_keys(self, prefix: str | None = None) -> list[str]:
        return sorted(k for k in self._batches if k.startswith(prefix or ""))
