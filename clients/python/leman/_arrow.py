"""pyarrow as `pa`, imported on first use: the import takes half of a command's time."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["pa"]


class _Pyarrow(ModuleType):
    def __getattr__(self, name: str) -> Any:
        import pyarrow  # noqa: PLC0415

        found = getattr(pyarrow, name)
        setattr(self, name, found)
        return found


if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = _Pyarrow("pyarrow")
