"""Environment variables that callers give the functions of a job: which ones there may be. Errors tell no value."""

from __future__ import annotations

import re
from collections.abc import Mapping

from leman_core.model.errors import InvalidArgument
from leman_core.process.environment import STORE_BEGINNINGS, STORE_NAMES

MOST_VARIABLES = 64
MOST_BYTES = 32 << 10
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Names by which the processes of functions go themselves, in capitals: some were read long before a job begins, and
#: others say how tables are read and written there.
_RESERVED = frozenset(
    {"ALL_PROXY", "BASH_ENV", "GLIBC_TUNABLES", "HOME", "HTTPS_PROXY", "HTTP_PROXY", "JAVA_HOME", "NO_PROXY", "PATH"}
    | {"PWD", "SSL_CERT_DIR", "SSL_CERT_FILE", "TMPDIR"}
    | set(STORE_NAMES)
)
_RESERVED_BEGINNINGS = (
    *("LEMAN_", "LANCE_", "PYSPARK_", "PYTHON", "RUST_", "SPARK_", "DYLD_", "LD_", "MALLOC_"),
    *STORE_BEGINNINGS,
)
#: Read by numpy's OpenBLAS when that is loaded, which is before a job has its process.
_THREAD_COUNTS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS")


def env_from_proto(env: Mapping[str, str], field: str = "env") -> dict[str, str]:
    """Return the environment variables of a job or a preview.

    Raises:
        InvalidArgument: BAD_ENV – too many, or one with a name or a value that none can have.
    """
    if len(env) > MOST_VARIABLES:
        raise _bad(f"{len(env)} environment variables: give {MOST_VARIABLES} at the most", field)
    for name, value in env.items():
        if not _NAME.fullmatch(name):
            raise _bad("An environment variable has a name of letters, digits and _, and no digit first", field)
        if name.upper() in _THREAD_COUNTS:
            message = (
                f"{name} has no effect on a job, as numpy is there before its variables are: have the function say how "
                "many threads there are to be, as by threadpoolctl.threadpool_limits(4) or torch.set_num_threads(4)"
            )
            raise _bad(message, field)
        if is_reserved(name):
            message = (
                f"{name} cannot be set for a job, as the processes of functions go by it themselves: take another "
                "name, and have the function hand its value on"
            )
            raise _bad(message, field)
        if "\0" in value:
            raise _bad(f"The value of {name} has a NUL in it, which no environment variable can have", field)
    size = sum(len(name) + len(value.encode()) for name, value in env.items())
    if size > MOST_BYTES:
        raise _bad(f"The environment variables have {size} bytes: {MOST_BYTES} are allowed", field)
    return dict(env)


def is_reserved(name: str) -> bool:
    """Tell whether the processes of functions go by a variable themselves."""
    upper = name.upper()
    return upper in _RESERVED or upper in _THREAD_COUNTS or upper.startswith(_RESERVED_BEGINNINGS)


def _bad(message: str, field: str) -> InvalidArgument:
    return InvalidArgument("BAD_ENV", message, field=field)
