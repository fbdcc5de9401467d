"""Rules that the SDK and the services both need, and neither may import from the other."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from types import ModuleType


def check_twins(own: ModuleType, *services: ModuleType, alone: Collection[str] = ()) -> None:
    """Check that each function and class of the SDK's module has the same source in a module of the services.

    `alone`: those that only the SDK has.
    """
    for name, value in vars(own).items():
        if (
            not (inspect.isfunction(value) or inspect.isclass(value))
            or value.__module__ != own.__name__
            or name in alone
        ):
            continue
        twin = next((getattr(module, name) for module in services if hasattr(module, name)), None)
        assert twin, f"{name} has no twin"
        assert inspect.getsource(twin) == inspect.getsource(value), name
