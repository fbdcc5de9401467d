"""pyarrow, imported when something of it is used for the first time: half of what a command takes.

if TYPE_CHECKING:
    import pyarrow as pa
else:
    from leman import _arrow as pa
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    import pyarrow  # noqa: PLC0415

    found = getattr(pyarrow, name)
    globals()[name] = found
    return found
