"""Checkpoint stores: computed values that survive the process that computed them."""

from core.checkpoints.lance_store import LanceCheckpointStore
from core.checkpoints.memory import InMemoryCheckpointStore
from core.checkpoints.records import FragmentRecord

__all__ = ["FragmentRecord", "InMemoryCheckpointStore", "LanceCheckpointStore"]
