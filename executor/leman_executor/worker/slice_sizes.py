"""How many rows a function gets at once: enough to be fast, few enough to stop, checkpoint and report in time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

Result = TypeVar("Result")

_TARGET_SECONDS = 0.1
#: Memory beyond the allocators' limits is mapped anew each time, so that larger slices are slower.
_TARGET_BYTES = 16 << 20
_GROWTH = 4
#: A function that takes a row at a time loses nothing by beginning with one row, and may take seconds for it.
_FIRST_ROWS = {True: 1, False: 16}


class SliceSizer:
    """The size of slices, adapted to the function.

    It grows from a few rows to what takes about a tenth of a second or 16 MB, and shrinks when rows get dearer.
    """

    def __init__(self, *, scalar: bool, most: int, fixed: int = 0) -> None:
        self._most = most
        self._fixed = fixed
        self._rows = min(fixed or _FIRST_ROWS[scalar], most)

    @property
    def rows(self) -> int:
        return self._rows

    def note(self, rows: int, seconds: float, size: int) -> None:
        """Adapt to a slice that was evaluated in `seconds`, to values of `size` bytes."""
        if self._fixed or rows < self._rows:
            return
        if seconds * _GROWTH < _TARGET_SECONDS:
            self._rows = min(self._rows * _GROWTH, self._most)
        elif seconds > _TARGET_SECONDS:
            self._rows = max(1, int(self._rows * _TARGET_SECONDS / seconds))
        if size * self._rows > _TARGET_BYTES * rows:
            self._rows = max(1, _TARGET_BYTES * rows // size)


class Slices:
    """Where slices are evaluated: at once by whoever begins them, or in `threads` threads."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="slices") if threads > 1 else None
        #: How many slices may be begun before the first of them has come back.
        self.ahead = 2 * threads if threads > 1 else 1

    def __enter__(self) -> Slices:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def begin(self, call: Callable[[], Result]) -> Future[Result]:
        """Begin a call; return a future with its result, or with what it raised."""
        if self._pool is not None:
            return self._pool.submit(call)
        done: Future[Result] = Future()
        try:
            done.set_result(call())
        except BaseException as error:  # noqa: BLE001 raised again by whoever asks for the result
            done.set_exception(error)
        return done
