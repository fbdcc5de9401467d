"""Objects that stay are looked at by the collector once, and garbage among them goes in the end."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from core.long_lived_objects import LongLivedObjects


class Node:
    """Part of a cycle."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def every_collection_is_long() -> Iterator[None]:
    objects = LongLivedObjects(long_seconds=0.0)
    gc.collect()
    objects.watch()
    yield
    objects.forget()
    assert gc.get_freeze_count() == 0


def test_what_outlives_a_long_collection_is_set_aside(every_collection_is_long):
    kept = [Node() for _ in range(1000)]
    gc.collect()
    assert gc.get_freeze_count() >= len(kept)
    assert not any(isinstance(one, Node) for one in gc.get_objects())


def test_a_short_collection_sets_nothing_aside():
    objects = LongLivedObjects(long_seconds=3600.0)
    objects.watch()
    try:
        gc.collect()
        assert gc.get_freeze_count() == 0
    finally:
        objects.forget()


def test_cycles_among_them_are_freed_once_half_as_much_again_is_set_aside(every_collection_is_long):
    node = Node()
    freed = weakref.ref(node)
    gc.collect()  # sets it aside: all has been looked at
    del node
    gc.collect()
    assert freed() is not None
    more = [[] for _ in range(2 * gc.get_freeze_count())]
    gc.collect()  # sets as much aside
    gc.collect()
    assert freed() is None
    assert more


def test_what_is_no_part_of_a_cycle_is_freed_at_once(every_collection_is_long):
    node = Node()
    freed = weakref.ref(node)
    gc.collect()
    node.me = None
    del node
    assert freed() is None
