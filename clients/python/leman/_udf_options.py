"""What the author of a function asks for."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

from leman.error_handling import ErrorHandlingConfig
from leman.errors import UdfDefinitionError
from leman.v1 import udf_pb2

_MEMORY = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = ("", "k", "m", "g", "t")
#: The most that the wire carries: of cores, and of bytes and rows.
_MOST_CORES, _MOST = 2**31 - 1, 2**63 - 1
#: Spark lets tasks share a GPU in equal parts.
_SHARED_GPU = 0.5


@dataclass(frozen=True, slots=True)
class UdfOptions:
    """What the author of a function asks for; None: nothing. Meanings: see `udf`."""

    batch_size: int | None = None
    checkpoint_size: int | None = None
    min_checkpoint_size: int | None = None
    max_checkpoint_size: int | None = None
    error_handling: ErrorHandlingConfig = field(default_factory=ErrorHandlingConfig)
    timeout: float | None = None
    num_cpus: int | None = None
    num_gpus: float | None = None
    memory: int | str | None = None

    def resources(self) -> udf_pb2.Resources | None:
        """What it takes on the wire; None where nothing is asked, so that the message is absent."""
        asked = udf_pb2.Resources(
            num_cpus=self.num_cpus,
            num_gpus=self.num_gpus,
            memory_bytes=None if self.memory is None else bytes_of(self.memory),
        )
        return asked if asked.ListFields() else None

    def __post_init__(self) -> None:
        _check_sizes(self.batch_size, self.checkpoint_size, self.min_checkpoint_size, self.max_checkpoint_size)
        _check_timeout(self.timeout)
        _check_resources(self.num_cpus, self.num_gpus)
        if self.memory is not None:
            bytes_of(self.memory)
        if not isinstance(self.error_handling, ErrorHandlingConfig):
            raise UdfDefinitionError("error_handling takes a leman.ErrorHandlingConfig")


def bytes_of(memory: Any) -> int:
    """A number of bytes, or a text like `512m` or `1.5 GiB` (units are powers of 1024). Raises UdfDefinitionError."""
    found = _MEMORY.fullmatch(memory.strip()) if isinstance(memory, str) else None
    if found:
        asked = float(found["number"]) * 1024 ** _UNITS.index(found["unit"].lower())
        amount = int(asked) if asked <= _MOST else 0
    else:
        amount = memory
    if not _is_count(amount, _MOST):
        raise UdfDefinitionError(f"memory is a number of bytes, or a text like '2g' or '512 MiB', not {memory!r}")
    return amount


def _is_count(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _check_resources(num_cpus: Any, num_gpus: Any) -> None:
    """Raises UdfDefinitionError for what no worker can be asked for."""
    if num_cpus is not None and not _is_count(num_cpus, _MOST_CORES):
        raise UdfDefinitionError(f"num_cpus is a whole number of cores, 1 to {_MOST_CORES}, not {num_cpus!r}")
    if num_gpus is None:
        return
    number = isinstance(num_gpus, int | float) and not isinstance(num_gpus, bool)
    if not number or not (0 < num_gpus <= _SHARED_GPU or (num_gpus >= 1 and num_gpus == num_gpus // 1 < math.inf)):
        raise UdfDefinitionError(
            f"num_gpus is a whole number of GPUs, or a fraction of at most 0.5 of one to share, not {num_gpus!r}"
        )


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
        if value is not None and not _is_count(value, _MOST):
            raise UdfDefinitionError(f"{key} is a number of rows, 1 or more, not {value!r}")
    if smallest is not None and largest is not None and smallest > largest:
        raise UdfDefinitionError(f"min_checkpoint_size ({smallest}) is above max_checkpoint_size ({largest})")
