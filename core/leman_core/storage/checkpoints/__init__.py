"""Checkpoint stores: computed values that survive the process that computed them."""

from leman_core.storage.checkpoints.lance_store import LanceCheckpointStore
from leman_core.storage.checkpoints.memory import InMemoryCheckpointStore
from leman_core.storage.checkpoints.records import FragmentRecord

__all__ = ["FragmentRecord", "InMemoryCheckpointStore", "LanceCheckpointStore"]
