"""Which Python a bundle is of. A pickle of code is for the minor version that wrote it alone."""

from __future__ import annotations

import sys

from leman_core.model.errors import FailedPrecondition
from leman_core.model.udf import UdfDefinition

#: `major.minor` of this process. PySpark wants the same of driver and workers.
PYTHON = "{}.{}".format(*sys.version_info[:2])


def check_python(udf: UdfDefinition, workers: str) -> None:
    """Refuse a bundle that workers of this Python could not load.

    Raises:
        FailedPrecondition: UDF_PYTHON_MISMATCH.
    """
    if udf.bundle_sha256 and udf.bundle_python != workers:
        raise python_mismatch(udf.name, udf.version, udf.bundle_python, workers)


def python_mismatch(name: str, version: str, bundled: str, workers: str) -> FailedPrecondition:
    """Return the error of a bundle that workers cannot load."""
    return FailedPrecondition(
        "UDF_PYTHON_MISMATCH",
        f"The bundle of function {name}@{version} was pickled by Python {bundled}, and the workers run Python "
        f"{workers}. Register the function from Python {workers}, under the same version: its bundle takes the place "
        "of one that cannot be loaded. Or install the function on the workers and register it with an entrypoint",
        bundle_python=bundled,
        workers_python=workers,
    )
