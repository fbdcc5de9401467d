"""What the author of a function asks for."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from leman.error_handling import ErrorHandlingConfig
from leman.errors import UdfDefinitionError


@dataclass(frozen=True, slots=True)
class UdfOptions:
    """What the author of a function asks for; None: nothing. Meanings: see `udf`."""

    batch_size: int | None = None
    checkpoint_size: int | None = None
    min_checkpoint_size: int | None = None
    max_checkpoint_size: int | None = None
    error_handling: ErrorHandlingConfig = field(default_factory=ErrorHandlingConfig)
    timeout: float | None = None

    def __post_init__(self) -> None:
        _check_sizes(self.batch_size, self.checkpoint_size, self.min_checkpoint_size, self.max_checkpoint_size)
        _check_timeout(self.timeout)
        if not isinstance(self.error_handling, ErrorHandlingConfig):
            raise UdfDefinitionError("error_handling takes a leman.ErrorHandlingConfig")


def _check_timeout(timeout: Any) -> None:
    """Raises UdfDefinitionError unless it is a positive, finite number or None."""
    if timeout is None:
        return
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not number or not 0 < timeout < math.inf:
        raise UdfDefinitionError(f"timeout is a number of seconds above 0, not {timeout!r}")


def _check_sizes(batch_size: Any, checkpoint_size: Any, smallest: Any, largest: Any) -> None:
    """Raises UdfDefinitionError unless each size is a positive int or None, and min <= max."""
    named = {
        "batch_size": batch_size,
        "checkpoint_size": checkpoint_size,
        "min_checkpoint_size": smallest,
        "max_checkpoint_size": largest,
    }
    for key, value in named.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise UdfDefinitionError(f"{key} is a number of rows, 1 or more, not {value!r}")
    if smallest is not None and largest is not None and smallest > largest:
        raise UdfDefinitionError(f"min_checkpoint_size ({smallest}) is above max_checkpoint_size ({largest})")
