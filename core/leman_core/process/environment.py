"""The environment variables that a process inherits and exposes, and requests to Linux for it and its children.

Functions see only the variables that their processes need, which docs/security.md lists, and those that match
`LEMAN_SPARK__PASS_ENV` (decision 66). On systems other than Linux, most of the requests here do nothing. Standard
library only, because Spark's daemon starts with this module.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import resource
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
#: Open files that a service and its children may need: Spark opens some 400, and a table opens one for each data file.
_OPEN_FILES = 65_536


def adopt_orphans() -> None:
    """Make descendants whose parent dies children of this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def show_name(name: str) -> None:
    """Show a name for this process in `ps` and `top`, at most 15 bytes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def allow_dumps(*, allowed: bool) -> None:
    """Allow or forbid core dumps, and access of the same user's processes to this one's memory and descriptors.

    Forked processes inherit this choice; programs that this process starts do not. `faulthandler` works in either case.
    """
    _prctl(_PR_SET_DUMPABLE, int(allowed))


def die_with(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Make the kernel send this process a signal when its parent dies. If the parent is dead already, end here."""
    _prctl(_PR_SET_PDEATHSIG, number)
    if sys.platform == "linux" and os.getppid() != parent:
        os._exit(1)


def raise_open_files_limit() -> None:
    """Raise the limit of open files, for this process and its children, to the hard limit or 65,536."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # macOS has its own limit below the hard one
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


#: The pattern of all variables.
EVERYTHING = "*"
#: Tells Spark's Python processes which further variables functions see: comma-separated patterns of names.
PASSED = "_LEMAN_PASS_ENV"
#: Set for Spark's Python processes if core dumps of them, and reads by processes of the same user, are allowed.
CORE_DUMPS = "_LEMAN_CORE_DUMPS"
#: The descriptor of a pipe with the rest of a new process's environment.
REST = "_LEMAN_ENVIRONMENT"

#: User, folders, locale, Python and the libraries that read files.
_COMMON = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME", "PWD", "TERM", "LANG", "LANGUAGE", "LC_*", "TZ", "TZDIR"),
    *("TMPDIR", "TEMP", "TMP", "XDG_*", "LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_*", "GLIBC_TUNABLES", "MALLOC_*"),
    *("PYTHON*", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "LANCE_*", "ARROW_*"),
    *("RUST_LOG", "RUST_BACKTRACE"),
    "LEMAN_CRASH",  # of tests
)
#: Processors and threads.
_HARDWARE = (
    *("CUDA_*", "NVIDIA_*", "NCCL_*", "HIP_*", "ROCR_*", "HSA_*", "XLA_*", "PYTORCH_*", "OMP_*", "KMP_*", "MKL_*"),
    *("OPENBLAS_*", "GOTO_NUM_THREADS", "BLIS_*", "VECLIB_*", "NUMEXPR_*", "NUMBA_*", "RAYON_NUM_THREADS"),
    *("TOKIO_WORKER_THREADS", "TOKENIZERS_PARALLELISM"),
)
#: The folders of models, but not the credentials to download them.
_MODELS = (
    *("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_DATASETS_CACHE", "HF_ENDPOINT", "HF_HUB_OFFLINE"),
    *("TRANSFORMERS_CACHE", "TRANSFORMERS_OFFLINE", "SENTENCE_TRANSFORMERS_HOME", "TORCH_HOME", "KERAS_HOME"),
    *("NLTK_DATA", "TIKTOKEN_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "MPLCONFIGDIR"),
)
_CERTIFICATES = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"),
    "NODE_EXTRA_CA_CERTS",
)
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
#: The access of Lance and pyarrow to object stores in a function's process, unless options (`StoreOptions`) state it.
STORE_NAMES = ("AZURE_ENDPOINT", "GOOGLE_APPLICATION_CREDENTIALS")
STORE_BEGINNINGS = (
    *("AWS_", "AZURE_AUTHORITY_", "AZURE_CLIENT_", "AZURE_FEDERATED_", "AZURE_MSI_", "AZURE_STORAGE_", "AZURE_TENANT_"),
    *("GOOGLE_BUCKET", "GOOGLE_SERVICE_ACCOUNT"),
)
_STORES = (*STORE_NAMES, *(f"{beginning}*" for beginning in STORE_BEGINNINGS), "IDENTITY_ENDPOINT", "IDENTITY_HEADER")
#: Variables of Spark's programs, in addition to those of functions.
_SPARK = (
    *("SPARK_*", "PYSPARK_*", "_PYSPARK_*", "JAVA_*", "JDK_*", "_JAVA_*", "HADOOP_*", "HDFS_*", "YARN_*", "MAPRED_*"),
    *("KUBERNETES_*", "KUBECONFIG", "KRB5*", "CLASSPATH", "_LEMAN_*"),
)
#: Private to one process: the ways to a JVM and to Spark's daemon, and Leman's internal variables.
_OWN = frozenset({PASSED, CORE_DUMPS, REST, "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "_LEMAN_WARM_PROCESS"})
_OWN_BEGINNINGS = ("PYTHON_WORKER_FACTORY_", "_PYSPARK_DRIVER_CONN_INFO")
#: A variable with such a name is never passed on, whatever its prefix.
_SECRET = re.compile(r"secret|token(?!izers)|passw|credential|(?:access|account|api)_?key", re.IGNORECASE)
_ENV_START, _ENV_END = 47, 48  # of the fields after the program's name in /proc/self/stat


def _pattern(names: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(name).replace(r"\*", ".*") for name in names), re.DOTALL)


_plain = _pattern((*_COMMON, *_HARDWARE, *_MODELS, *_CERTIFICATES, *_PROXIES, *map(str.lower, _PROXIES)))
_stores, _spark = _pattern(_STORES), _pattern(_SPARK)


def is_plain(name: str) -> bool:
    """Return whether every process may have and expose a variable, because it holds no secret."""
    return _plain.fullmatch(name) is not None and not _SECRET.search(name)


def for_functions(environment: Mapping[str, str], passed: Collection[str] = ()) -> dict[str, str]:
    """Return the variables that functions see.

    Args:
        passed: Patterns of further names. `EVERYTHING` stands for all names except Leman's settings and variables that
            are private to this process.
    """
    return {name: value for name, value in environment.items() if not _is_own(name) and _is_for(name, passed)}


def for_spark(environment: Mapping[str, str], passed: Collection[str] = ()) -> dict[str, str]:
    """Return the variables for Spark's JVM: those that it needs, and those that its workers inherit."""
    return {
        name: value
        for name, value in environment.items()
        if _spark.fullmatch(name) or (not _is_setting(name) and _is_for(name, passed))
    }


def confine() -> None:
    """Prepare this process to run functions: drop all variables that functions may not see, and protect its memory.

    Its children inherit only the other variables. Other processes of the same user cannot read its memory.
    """
    _guard_memory()
    allowed = for_functions(os.environ, passed(os.environ))
    for name in list(os.environ):
        if name not in allowed:
            del os.environ[name]
    blank_shown(lambda name: name in allowed)


def passed(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the patterns of further variables that Spark's Python processes received."""
    return tuple(filter(None, environment.get(PASSED, "").split(",")))


def guard() -> None:
    """Hide this process's environment and, unless it may be dumped, its memory from the same user (Linux)."""
    hide()
    _guard_memory()


def hide() -> None:
    """Remove values that may be secrets from /proc/PID/environ. The process itself still sees them."""
    for name, value in list(os.environ.items()):
        if not is_plain(name):
            os.environ[name] = value  # C's copy moves to other memory
    blank_shown(is_plain)


def _guard_memory() -> None:
    allow_dumps(allowed=CORE_DUMPS in os.environ)


def blank_shown(kept: Callable[[str], bool]) -> None:
    """Overwrite values in /proc/PID/environ, which always shows a process's initial environment.

    Call it after variables that C libraries read have moved or are gone (`hide`).
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[_ENV_START]), int(fields[_ENV_END])
        at = start
        for entry in ctypes.string_at(start, end - start).split(b"\0"):
            name, equals, value = entry.partition(b"=")
            if equals and not kept(name.decode(errors="replace")):
                ctypes.memset(at + len(name) + 1, ord("*"), len(value))
            at += len(entry) + 1


def split(environment: Mapping[str, str]) -> tuple[dict[str, str], bytes]:
    """Return the variables that a new process may expose, and the rest in the format of `leman_local.child`."""
    shown = {name: value for name, value in environment.items() if is_plain(name)}
    rest = (f"{name}={value}" for name, value in environment.items() if name not in shown)
    return shown, b"\0".join(map(os.fsencode, rest))


def give_rest(descriptor: int, rest: bytes) -> None:
    """Write the rest of a new process's environment into the pipe that it received as `REST`, and close the pipe."""
    with contextlib.suppress(BrokenPipeError), os.fdopen(descriptor, "wb") as pipe:  # the process has ended already
        pipe.write(rest)


def _is_for(name: str, passed: Collection[str]) -> bool:
    if EVERYTHING in passed:
        return True
    if is_plain(name) or _stores.fullmatch(name):
        return True
    return any(fnmatchcase(name, pattern) for pattern in passed)


def _is_own(name: str) -> bool:
    return name in _OWN or name.startswith(_OWN_BEGINNINGS) or _is_setting(name)


def _is_setting(name: str) -> bool:
    return name.upper().startswith("LEMAN_") and not is_plain(name)
