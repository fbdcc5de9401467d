"""What root may do, given up: tests run as root, and services mostly do not."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_VERSION = 0x20080522
_PR_CAPBSET_DROP = 24
_LAST = 63

_P = ParamSpec("_P")
_T = TypeVar("_T")


def unprivileged(call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call it in a thread that may do no more than any user's; nor may what it starts."""

    def without_rights() -> _T:
        lib = ctypes.CDLL(None)
        for capability in range(_LAST):
            lib.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # root's programs would have it again
        assert lib.capset((ctypes.c_uint32 * 2)(_VERSION, 0), (ctypes.c_uint32 * 6)()) == 0
        return call(*args, **kwargs)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(without_rights).result()
