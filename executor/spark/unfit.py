"""What keeps Spark's workers from running functions, told from what Spark says of a task that failed. Pure."""

from __future__ import annotations

import re

from core.errors import FailedPrecondition, LemanError, Unavailable

_ADVICE = (
    "Install Leman there under the same path, name the workers' own interpreter (LEMAN_SPARK__PYTHON), or ship this "
    "environment: `leman pack-env`"
)
_MISSING = re.compile(r'Cannot run program "([^"]+)"[^\n]*?: (?:error=\d+, )?([^\n]+)')
_NO_MODULE = re.compile(r"No module named '?([\w.]+)")
_VERSIONS = re.compile(r"PYTHON_VERSION_MISMATCH\][^\n]*|Python in worker has different version[^\n]*")


def unusable_python(message: str, host: str, python: str) -> LemanError | None:
    """Why a worker cannot run Python as it must; None where a task failed for another reason."""
    missing = _MISSING.search(message)
    if missing is not None:
        what = f"cannot run {missing[1]}: {missing[2].strip()}"
    elif "from python worker" in message and (module := _NO_MODULE.search(message)) is not None:
        what = f"runs {python}, which has no module {module[1]}"
    elif (versions := _VERSIONS.search(message)) is not None:
        what = f"runs {python}, which is another Python: {versions[0][:300]}"
    else:
        return None
    return FailedPrecondition(
        "WORKER_PYTHON_UNUSABLE", f"Spark's worker on {host} {what}. {_ADVICE}", host=host, python=python
    )


def unreachable(master: str, host: str, port: str, seconds: float) -> Unavailable:
    """No worker has called back in time."""
    return Unavailable(
        "WORKERS_CANNOT_REACH_DRIVER",
        f"Spark's workers cannot reach the driver at {host}:{port}: none of {master} has called back within "
        f"{seconds:g} s. Name an address of this machine that they reach (LEMAN_SPARK__DRIVER_HOST, "
        "LEMAN_SPARK__CALLBACK_PORT), and see that the cluster has free cores",
        retry_after_seconds=5.0,
        host=host,
        port=port,
    )


def not_started(master: str, cause: str) -> Unavailable:
    """There is no session at all."""
    return Unavailable(
        "SPARK_NOT_STARTED",
        f"Spark did not start with the master {master}: {cause}. Is the master up, and LEMAN_SPARK__MASTER right?",
    )
