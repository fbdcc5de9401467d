"""Objects that stay are looked at by the collector once, and garbage among them goes in the end."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from leman_core.process.memory import LongLivedObjects


class Node:
    """Part of a cycle."""

    def __init__(self) -> None:
        self.me = self


@contextlib.contextmanager
def every_collection_is_long() -> Iterator[None]:
    objects = LongLivedObjects(long_seconds=0.0)
    gc.collect()
    objects.watch()
    yield
    objects.forget()
    assert gc.get_freeze_count() == 0


def what_outlives_a_long_collection_is_set_aside() -> None:
    with every_collection_is_long():
        kept = [Node() for _ in range(1000)]
        gc.collect()
        assert gc.get_freeze_count() >= len(kept)
        assert not any(isinstance(one, Node) for one in gc.get_objects())


def a_short_collection_sets_nothing_aside() -> None:
    objects = LongLivedObjects(long_seconds=3600.0)
    objects.watch()
    try:
        gc.collect()
        assert gc.get_freeze_count() == 0
    finally:
        objects.forget()


def cycles_among_them_are_freed_once_half_as_much_again_is_set_aside() -> None:
    with every_collection_is_long():
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


def what_is_no_part_of_a_cycle_is_freed_at_once() -> None:
    with every_collection_is_long():
        node = Node()
        freed = weakref.ref(node)
        gc.collect()
        node.me = None
        del node
        assert freed() is None


@pytest.fixture(scope="module")
def small_process() -> Iterator[ProcessPoolExecutor]:
    """One that holds little: in that of the tests each collection would look at millions of objects."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield pool


@pytest.mark.parametrize(
    "holds",
    [
        what_outlives_a_long_collection_is_set_aside,
        a_short_collection_sets_nothing_aside,
        cycles_among_them_are_freed_once_half_as_much_again_is_set_aside,
        what_is_no_part_of_a_cycle_is_freed_at_once,
    ],
    ids=lambda holds: holds.__name__,
)
def test_in_a_process_of_its_own(small_process: ProcessPoolExecutor, holds: Callable[[], None]) -> None:
    small_process.submit(holds).result(timeout=60)
