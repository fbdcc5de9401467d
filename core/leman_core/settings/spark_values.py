"""Values among Spark's own settings that are known to be amounts of memory or whole numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_AMOUNT = re.compile(r"([0-9]+)(?:(b)|([kmgtp])b?)?")
#: Spark gives the heap of its driver to the JVM as it stands.
_HEAP = re.compile(r"[0-9]+[kmgt]", re.IGNORECASE)


def mebibytes(text: str) -> int:
    """Return an amount of memory in Spark's notation as MiB; plain numbers are MiB.

    Raises:
        ValueError: The text is not in Spark's notation.
    """
    found = _AMOUNT.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"'{text}' is no amount of memory in Spark's notation, such as 512m or 2g")
    if found[2]:
        return int(found[1]) >> 20
    return int(found[1]) << (10 * "kmgtp".index(found[3] or "m")) >> 10


def heap(text: str) -> str:
    """Return the heap of a driver as it is.

    Raises:
        ValueError: It is none that a JVM can be given.
    """
    if not _HEAP.fullmatch(text):
        raise ValueError(f"'{text}' is no heap of a JVM: a whole number with k, m, g or t, such as 512m or 2g")
    return text


def check(conf: Mapping[str, str]) -> None:
    """Check the settings whose values Leman reads, or passes on as they are.

    Raises:
        ValueError: One is wrong; the message names it.
    """
    for key, read in _READ.items():
        if key in conf:
            try:
                read(conf[key])
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from None


def _whole(text: str) -> int:
    if not re.fullmatch(r"[0-9]+", text.strip()):
        raise ValueError(f"'{text}' is no whole number")
    return int(text)


def _count(text: str) -> int:
    number = _whole(text)
    if not number:
        raise ValueError("it is 1 at the least")
    return number


_READ: Mapping[str, Callable[[str], object]] = {
    "spark.driver.memory": heap,
    "spark.executor.memory": mebibytes,
    "spark.executor.memoryOverhead": mebibytes,
    "spark.executor.pyspark.memory": mebibytes,
    "spark.cores.max": _count,
    "spark.executor.cores": _count,
    "spark.task.cpus": _count,
    "spark.executor.resource.gpu.amount": _whole,
}
